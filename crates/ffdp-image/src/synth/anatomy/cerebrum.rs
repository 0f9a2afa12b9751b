//! The two cerebral hemispheres: hull, fissures, sulci, cortex and white matter.

use super::folding::WaveField;
use super::implicit::{Ellipsoid, Implicit, Point, length};

/// Half the width of the gap between the hemispheres, mm.
const FISSURE_HALF_WIDTH: f64 = 1.8;
/// Thickness of the cortical ribbon, mm (human: 2.5; thicker here to survive 3 mm voxels).
const CORTEX_THICKNESS: f64 = 5.0;
/// Width of a sulcus, mm.
const SULCUS_WIDTH: f64 = 2.0;
/// Wavelength of the folding field, mm; sulci are half of it apart.
const FOLDING_WAVELENGTH: f64 = 34.0;
/// Mean depth of a sulcus and how far it varies, mm.
const SULCUS_DEPTH: (f64, f64) = (14.0, 4.5);

/// How nearly perpendicular to the surface the sulci run: 1 is exactly.
const SULCUS_STRAIGHTNESS: f64 = 0.75;

/// Tissue of the cerebrum at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cerebrum {
    Outside,
    Cortex,
    WhiteMatter,
}

/// The cerebrum as a continuous function of position (mm).
#[derive(Clone, Debug)]
pub struct Hemispheres {
    frontal: Ellipsoid,
    parietal: Ellipsoid,
    occipital: Ellipsoid,
    temporal: Ellipsoid,
    parahippocampal: Ellipsoid,
    callosum: Ellipsoid,
    diencephalon: Ellipsoid,
    folding: WaveField,
    depth: WaveField,
}

impl Hemispheres {
    pub fn new(seed: u64) -> Self {
        let pair = |centre, radii| Ellipsoid::new(centre, radii);
        Self {
            frontal: pair([18.0, 20.0, 15.0], [34.0, 52.0, 48.0]),
            parietal: pair([19.0, -32.0, 20.0], [46.0, 54.0, 53.0]),
            occipital: pair([17.0, -66.0, 8.0], [32.0, 37.0, 36.0]),
            temporal: pair([46.0, -16.0, -19.0], [19.0, 42.0, 19.0]).turned(-14.0, 6.0),
            parahippocampal: pair([27.0, -18.0, -18.0], [12.0, 26.0, 12.0]).turned(-12.0, 0.0),
            callosum: Ellipsoid::new([0.0, -5.0, 2.0], [34.0, 37.0, 26.0]),
            diencephalon: Ellipsoid::new([0.0, -13.0, -3.0], [24.0, 19.0, 14.0]),
            folding: WaveField::new(FOLDING_WAVELENGTH, 14, [1.0; 3], seed),
            depth: WaveField::new(70.0, 4, [1.0; 3], seed + 1),
        }
    }

    /// Smooth outer hull of both hemispheres; `m` is the point mirrored to x >= 0.
    pub fn hull(&self, m: Point) -> Implicit {
        // The base: orbital roof in front, tentorium behind, which rises towards the midline.
        let [_, y, z] = m;
        let tent = ((-30.0 - y) / 40.0).clamp(0.0, 1.0);
        let front = (y - 25.0).max(0.0);
        let floor = -20.0 + 0.3 * front + tent * (12.0 - 0.2 * m[0]);
        let base = Implicit { value: floor - z, gradient: [0.0, 0.0, -1.0] };
        let upper = self
            .frontal
            .at(m)
            .union(self.parietal.at(m), 24.0)
            .union(self.occipital.at(m), 16.0)
            .intersection(base, 10.0);
        upper.union(self.temporal.at(m), 5.0).union(self.parahippocampal.at(m), 7.0)
    }

    /// The tissue at mirrored `m` of a point whose x has the sign `side`, given the hull there.
    pub fn tissue(&self, m: Point, side: f64, hull: Implicit) -> Cerebrum {
        let core = self.core(m);
        let surface = if core < 0.0 {
            hull
        } else {
            let medial = Implicit::half_space(m, [-1.0, 0.0, 0.0], FISSURE_HALF_WIDTH);
            hull.intersection(medial, 4.0)
        };
        let depth = (-surface.value).min(self.sylvian(m));
        if depth <= 0.0 {
            return Cerebrum::Outside;
        }
        let depth = depth.min(self.sulcal_clearance(m, side, surface, core));
        if depth <= 0.0 {
            Cerebrum::Outside
        } else if depth < CORTEX_THICKNESS {
            Cerebrum::Cortex
        } else {
            Cerebrum::WhiteMatter
        }
    }

    /// Where the hemispheres are joined and have no medial surface: corpus callosum and below.
    fn core(&self, m: Point) -> f64 {
        // Open below, with the genu rounded off.
        let below = 0.9 * (-6.0 - m[2]) + 0.44 * (m[1] - 12.0);
        let arch = self.callosum.distance(m).max(below);
        arch.min(self.diencephalon.distance(m))
    }

    /// Distance to the nearest sulcus; infinite where none reaches.
    fn sulcal_clearance(&self, m: Point, side: f64, surface: Implicit, core: f64) -> f64 {
        let depth = -surface.value;
        let reach = SULCUS_DEPTH.0 + SULCUS_DEPTH.1;
        if depth > reach + CORTEX_THICKNESS {
            return f64::INFINITY;
        }
        let norm = length(surface.gradient).max(1e-6);
        let normal = surface.gradient.map(|g| g / norm);
        // Not quite the foot of the perpendicular: sulci bend as they go down.
        let foot: Point = std::array::from_fn(|i| m[i] + SULCUS_STRAIGHTNESS * depth * normal[i]);
        // The two sides are folded differently.
        let foot = [side * (foot[0] + 300.0), foot[1], foot[2]];
        let normal = [side * normal[0], normal[1], normal[2]];
        let across = self.folding.distance_to_zero(foot, normal);
        let variation = self.depth.at(foot).0.clamp(-1.0, 1.0);
        // Shallower on the medial wall and in the narrow temporal lobe, and none reaches into
        // the callosum.
        let medial = (-side * normal[0]).max(0.0);
        let temporal = if m[2] < -4.0 && m[0] > 20.0 { 1.0 } else { 0.0 };
        let bottom = SULCUS_DEPTH.0 + SULCUS_DEPTH.1 * variation - 6.0 * medial - 4.0 * temporal;
        let bottom = bottom.min(core + depth - 6.0);
        if bottom <= 0.0 {
            return f64::INFINITY;
        }
        across.hypot((depth - bottom).max(0.0)) - 0.5 * SULCUS_WIDTH
    }

    /// Distance to the lateral (Sylvian) fissure: a sheet between the temporal lobe and the
    /// lobes above it, which ends in a curved plate in front of the insula.
    fn sylvian(&self, m: Point) -> f64 {
        // The sheet's edge runs backwards and upwards in the (y, z) plane, `LENGTH` mm long.
        const FRONT: [f64; 2] = [24.0, -12.0];
        const ALONG: [f64; 2] = [-0.92, 0.392];
        const LENGTH: f64 = 68.0;
        const INSULA: f64 = 38.0;
        let [dy, dz] = [m[1] - FRONT[0], m[2] - FRONT[1]];
        let along = dy * ALONG[0] + dz * ALONG[1];
        let across = dy * ALONG[1] - dz * ALONG[0] - 0.18 * (m[0] - 50.0);
        let beyond = (-along).max(along - LENGTH).max(0.0);
        let sheet = length([across, (INSULA - m[0]).max(0.0), beyond]) - 1.3;
        let bulge = (across / 11.0).powi(2) + ((along - 32.0) / 26.0).powi(2);
        let beyond_rim = (bulge.sqrt() - 1.0).max(0.0) * 11.0;
        let plate = m[0] - INSULA + 2.0 * bulge.min(3.0);
        sheet.min(plate.hypot(beyond_rim) - 1.2)
    }
}
