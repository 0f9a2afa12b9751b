//! The engine as a whole, on synthetic pairs whose answer is known.

mod bad_input;
mod levels;
mod recovery;
mod resume;

use crate::image::{Geometry, Volume};
use crate::synth::{Pair, PhantomSettings, pair};

use super::{GreedySettings, LevelSettings, Settings, Stage};

/// A pair of `size`^3 voxels around a head of 200 mm, which lie up to a dozen mm apart. Below 48^3
/// an LNCC window of 7 voxels is too coarse for the anatomy.
fn pair_of(size: usize, seed: u64) -> Pair {
    pair(&PhantomSettings::with_size([size; 3]), seed).expect("valid settings")
}

/// Two levels with few iterations: seconds on one core.
fn short() -> GreedySettings {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    GreedySettings { levels: vec![level(2.0, 40), level(1.0, 30)], ..GreedySettings::default() }
}

/// The deformation alone.
fn only(greedy: GreedySettings) -> Settings {
    Settings { stages: vec![Stage::Greedy(greedy)], ..Settings::default() }
}

/// A smooth object, so that images exist without the phantom.
fn blob(geometry: &Geometry, centre_mm: [f64; 3], sigma_mm: f64) -> Volume {
    let to_mm = geometry.voxel_to_mm();
    let value = |offset| {
        let p = to_mm.apply(geometry.index_of(offset).map(|i| i as f64));
        let square: f64 = (0..3).map(|i| ((p[i] - centre_mm[i]) / sigma_mm).powi(2)).sum();
        (-0.5 * square).exp() as f32
    };
    Volume::new((0..geometry.len()).map(value).collect(), geometry.clone()).expect("sizes match")
}
