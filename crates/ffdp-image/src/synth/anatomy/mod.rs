//! A skull-stripped brain as a function of position: no grid, so that every size and spacing
//! samples the same anatomy.
//!
//! Coordinates are RAS+ mm with the origin near the anterior commissure, as in MNI space: x to
//! the right, y forward, z up. The brain fills about x -66..66, y -104..73, z -72..76. Read
//! [`Anatomy::structure`] first, then `cerebrum.rs`, whose folding makes the picture a brain.

mod cerebrum;
mod deep;
mod folding;
mod hindbrain;
mod implicit;

use cerebrum::{Cerebrum, Hemispheres};
use deep::DeepNuclei;
use hindbrain::{BrainstemAndCerebellum, Hindbrain};

use super::head::HEAD_MM;
use super::structure::Structure::{self, *};

/// Thickness of the fluid around the brain, mm.
const FLUID_MARGIN: f64 = 3.5;

/// Centre and radii of an ellipsoid that holds everything, mm: most of a grid lies outside.
const BOUNDS: [[f64; 3]; 2] = [[0.0, -20.0, 2.0], [88.0, 112.0, 92.0]];

/// The continuous anatomy; the same for every subject, who differ by their warps.
#[derive(Clone, Debug)]
pub struct Anatomy {
    cerebrum: Hemispheres,
    deep: DeepNuclei,
    hindbrain: BrainstemAndCerebellum,
}

impl Default for Anatomy {
    fn default() -> Self {
        Self::new(FOLDING_SEED)
    }
}

/// Seed of the folding pattern that `Anatomy::default` has.
const FOLDING_SEED: u64 = 2025;

impl Anatomy {
    /// Low and high corner of the box that the whole head fits in, RAS mm, warped or not.
    pub const BOX_MM: [[f64; 3]; 2] = HEAD_MM;

    /// The anatomy with the folding pattern of `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            cerebrum: Hemispheres::new(seed),
            deep: DeepNuclei::new(),
            hindbrain: BrainstemAndCerebellum::new(seed),
        }
    }

    /// The structure at `point_mm`; `None` outside the brain and its fluid.
    pub fn structure(&self, point_mm: [f64; 3]) -> Option<Structure> {
        if !within_bounds(point_mm) {
            return None;
        }
        let [x, y, z] = point_mm;
        let m = [x.abs(), y, z];
        let hull = self.cerebrum.hull(m);
        let brainstem = self.hindbrain.brainstem(m);
        let cerebellum = self.hindbrain.cerebellum(m);
        let envelope = hull.union(cerebellum, 8.0).union(brainstem, 10.0).value;
        if envelope > FLUID_MARGIN {
            return None;
        }
        if let Some(structure) = self.deep.structure(m) {
            return Some(match structure {
                ThirdVentricle => ThirdVentricle,
                paired => paired.on_side_of(x),
            });
        }
        match self.hindbrain.tissue(m, brainstem, cerebellum) {
            Hindbrain::Outside => {}
            Hindbrain::Fluid => return Some(CerebrospinalFluid),
            Hindbrain::Brainstem => return Some(Brainstem),
            Hindbrain::CerebellarCortex => return Some(LeftCerebellarCortex.on_side_of(x)),
            Hindbrain::CerebellarWhiteMatter => {
                return Some(LeftCerebellarWhiteMatter.on_side_of(x));
            }
        }
        Some(match self.cerebrum.tissue(m, x.signum(), hull) {
            Cerebrum::Outside => CerebrospinalFluid,
            Cerebrum::Cortex => LeftCortex.on_side_of(x),
            Cerebrum::WhiteMatter => LeftWhiteMatter.on_side_of(x),
        })
    }
}

/// Whether a point lies in [`BOUNDS`]; NaN does not.
fn within_bounds(p: [f64; 3]) -> bool {
    let [centre, radii] = BOUNDS;
    (0..3).map(|axis| ((p[axis] - centre[axis]) / radii[axis]).powi(2)).sum::<f64>() < 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_everything() {
        let anatomy = Anatomy::default();
        // The surface of the bounds and a bit inside: fluid there would be cut off.
        for i in 0..20_000 {
            let height = 1.0 - (2.0 * f64::from(i) + 1.0) / 20_000.0;
            let (sine, cosine) = (2.399_963 * f64::from(i)).sin_cos();
            let ring = (1.0 - height * height).sqrt();
            let direction = [ring * cosine, ring * sine, height];
            let p = std::array::from_fn(|a| BOUNDS[0][a] + 0.999 * BOUNDS[1][a] * direction[a]);
            assert_eq!(anatomy.structure(p), None, "{p:?}");
        }
    }
}
