//! Brainstem, fourth ventricle and cerebellum.

use super::folding::WaveField;
use super::implicit::{Ellipsoid, Implicit, Point, length};

/// Thickness of the cerebellar cortex, mm; the folia are blurred into it.
const CORTEX_THICKNESS: f64 = 4.5;
/// How far a fissure between two folia reaches in, mm.
const FISSURE_DEPTH: f64 = 10.0;
const FISSURE_WIDTH: f64 = 1.0;
/// Wavelength of the folia's field, mm.
const FOLIA_WAVELENGTH: f64 = 22.0;

/// Tissue of the hindbrain at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindbrain {
    Outside,
    Fluid,
    Brainstem,
    CerebellarCortex,
    CerebellarWhiteMatter,
}

/// Brainstem and cerebellum as continuous functions of position.
#[derive(Clone, Debug)]
pub struct BrainstemAndCerebellum {
    midbrain: Ellipsoid,
    pons: Ellipsoid,
    medulla: Ellipsoid,
    lobe: Ellipsoid,
    vermis: Ellipsoid,
    peduncle: Ellipsoid,
    fourth_ventricle: Ellipsoid,
    folia: WaveField,
}

impl BrainstemAndCerebellum {
    pub fn new(seed: u64) -> Self {
        Self {
            midbrain: Ellipsoid::new([0.0, -25.0, -12.0], [16.0, 12.0, 14.0]).turned(14.0, 0.0),
            pons: Ellipsoid::new([0.0, -25.0, -31.0], [17.0, 13.0, 14.0]).turned(14.0, 0.0),
            medulla: Ellipsoid::new([0.0, -35.5, -50.0], [9.5, 8.5, 19.0]).turned(18.0, 0.0),
            lobe: Ellipsoid::new([24.0, -63.0, -39.0], [29.0, 27.0, 21.0]).turned(10.0, 8.0),
            vermis: Ellipsoid::new([0.0, -64.0, -32.0], [15.0, 22.0, 21.0]),
            peduncle: Ellipsoid::new([15.0, -46.0, -36.0], [8.0, 17.0, 8.0]).turned(0.0, 10.0),
            fourth_ventricle: Ellipsoid::new([0.0, -43.5, -34.0], [7.5, 5.0, 14.0])
                .turned(14.0, 0.0),
            folia: WaveField::new(FOLIA_WAVELENGTH, 10, [0.2, 0.8, 1.0], seed + 2),
        }
    }

    pub fn brainstem(&self, m: Point) -> Implicit {
        self.midbrain.at(m).union(self.pons.at(m), 7.0).union(self.medulla.at(m), 7.0)
    }

    pub fn cerebellum(&self, m: Point) -> Implicit {
        self.lobe.at(m).union(self.vermis.at(m), 6.0)
    }

    /// The tissue at the mirrored point `m`, given the two hulls there.
    pub fn tissue(&self, m: Point, brainstem: Implicit, cerebellum: Implicit) -> Hindbrain {
        if brainstem.value > 0.0 && cerebellum.value > 0.0 && self.peduncle.distance(m) > 0.0 {
            return Hindbrain::Outside;
        }
        if self.fourth_ventricle.distance(m) < 0.0 {
            return Hindbrain::Fluid;
        }
        if brainstem.value < 0.0 {
            return Hindbrain::Brainstem;
        }
        if self.peduncle.distance(m) < 0.0 {
            return Hindbrain::CerebellarWhiteMatter;
        }
        self.foliated(m, cerebellum)
    }

    fn foliated(&self, m: Point, hull: Implicit) -> Hindbrain {
        let depth = -hull.value;
        let norm = length(hull.gradient).max(1e-6);
        let normal = hull.gradient.map(|g| g / norm);
        let foot: Point = std::array::from_fn(|i| m[i] + depth * normal[i]);
        let across = self.folia.distance_to_zero(foot, normal);
        let clearance = across.hypot((depth - FISSURE_DEPTH).max(0.0)) - 0.5 * FISSURE_WIDTH;
        let clearance = clearance.min(depth);
        if clearance <= 0.0 {
            Hindbrain::Outside
        } else if clearance < CORTEX_THICKNESS {
            Hindbrain::CerebellarCortex
        } else {
            Hindbrain::CerebellarWhiteMatter
        }
    }
}
