//! The engine as a whole, on synthetic pairs whose answer is known.

mod bad_input;
mod channels;
mod devices;
mod ffd;
mod gnk;
mod hosts;
mod initial;
mod labels;
mod landmarks;
mod levels;
mod masks;
mod matrix;
mod methods;
mod options;
mod planes;
mod real;
mod recovery;
mod resuming;
mod shards;
mod slabs;
mod trust;

use std::path::{Path, PathBuf};

use burn::tensor::Device;

use ffdp_burn::transform::Displacement;
use ffdp_image::error::Result;
use ffdp_image::image::{Geometry, Volume};
use ffdp_image::synth::{Pair, PhantomSettings, pair};
use ffdp_kit::testing::skipped;

use super::{
    LevelSettings, Observer, Placement, Problem, Register, Registration, Settings, Silent,
    Similarity, Source, Stage,
    checkpoint::Checkpoint,
    methods::{GreedySettings, SvfSettings, SynSettings},
    settings::Regularization,
};

/// A pair of `size`^3 voxels around a head of 200 mm, which lie up to a dozen mm apart. Below 48^3
/// an LNCC window of 7 voxels is too coarse for the anatomy.
fn pair_of(size: usize, seed: u64) -> Pair {
    pair(&PhantomSettings::with_size([size; 3]), seed).expect("valid settings")
}

/// The same around a head that just fits a grid of any extents: planes along z for several processes or shards, and few
/// voxels across.
fn tall_pair_of(size: [usize; 3], seed: u64) -> Pair {
    const HEAD_MM: [f64; 3] = [156.0, 200.0, 168.0];
    let spacing_mm = Some([0, 1, 2].map(|axis| 1.08 * HEAD_MM[axis] / size[axis] as f64));
    let settings = PhantomSettings { spacing_mm, ..PhantomSettings::with_size(size) };
    pair(&settings, seed).expect("valid settings")
}

/// Masks of both images: their labels, as far as some plane across x in the middle.
fn half_heads(pair: &Pair) -> [Volume; 2] {
    [&pair.fixed, &pair.moving].map(|side| {
        let geometry = &side.image.geometry;
        let middle = 3 * geometry.size[0] / 5;
        let inside = |i: usize| side.labels.data[i] != 0 && geometry.index_of(i)[0] < middle;
        let weights = (0..geometry.len()).map(|i| f32::from(u8::from(inside(i)))).collect();
        Volume::new(weights, geometry.clone()).expect("one weight for each voxel")
    })
}

/// Two levels with few iterations: seconds on one core.
fn short() -> GreedySettings {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    GreedySettings { levels: vec![level(2.0, 40), level(1.0, 30)], ..GreedySettings::default() }
}

/// Two levels with so few iterations that a place can be compared with another: what differs shows in the first ones.
fn brief() -> GreedySettings {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    GreedySettings { levels: vec![level(2.0, 12), level(1.0, 6)], ..GreedySettings::default() }
}

/// No penalty, and the smoothing of FireANTs: less than by default.
fn little_smoothing(stage: Stage) -> Stage {
    let regularization = Regularization { diffusion: Some(0.0), ..Regularization::default() };
    let sigma_gradient_voxels = 1.0;
    match stage {
        Stage::Greedy(greedy) => {
            Stage::Greedy(GreedySettings { sigma_gradient_voxels, regularization, ..greedy })
        }
        Stage::Syn(syn) => Stage::Syn(SynSettings { sigma_gradient_voxels, regularization, ..syn }),
        Stage::Svf(svf) => Stage::Svf(SvfSettings { sigma_gradient_voxels, regularization, ..svf }),
        other => other,
    }
}

/// The deformation alone.
fn only(greedy: GreedySettings) -> Settings {
    Settings { stages: vec![Stage::Greedy(greedy)], ..Settings::default() }
}

/// The deformable methods, each with the levels of `greedy` and its similarity.
fn methods(greedy: &GreedySettings) -> [Stage; 3] {
    let GreedySettings { levels, similarity, .. } = greedy;
    let (levels, similarity) = (levels.clone(), similarity.clone());
    let syn = SynSettings {
        levels: levels.clone(),
        similarity: similarity.clone(),
        ..SynSettings::default()
    };
    let svf = SvfSettings { levels, similarity, ..SvfSettings::default() };
    [Stage::Greedy(greedy.clone()), Stage::Syn(syn), Stage::Svf(svf)]
}

/// Every similarity with the first method, and every method with squares: neither knows of the other.
fn some_methods(greedy: &GreedySettings) -> Vec<Stage> {
    let count = if greedy.similarity == Similarity::Mse { 3 } else { 1 };
    methods(greedy).into_iter().take(count).collect()
}

/// The same problem once more; all of it is in memory.
fn again<'b>(problem: &'b Problem) -> Problem<'b> {
    let held = |source: &'b Source| match source {
        Source::Volume(volume) => Source::Volume(volume),
        Source::Shared(shared) => Source::Shared(shared),
        Source::Planes(_) => panic!("planes can be read by one registration at a time"),
    };
    Problem {
        fixed: held(&problem.fixed),
        moving: held(&problem.moving),
        more_channels: problem.more_channels.iter().map(|pair| pair.each_ref().map(held)).collect(),
        fixed_mask: problem.fixed_mask.as_ref().map(held),
        moving_mask: problem.moving_mask.as_ref().map(held),
        labels: problem.labels.as_ref().map(|pair| pair.each_ref().map(held)),
        landmarks: problem.landmarks.clone(),
        initial: problem.initial.clone(),
    }
}

/// Whole images, as often as one likes.
pub(crate) fn register(
    problem: &Problem,
    settings: &Settings,
    place: impl Into<Placement>,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    Register::of(again(problem)).settings(settings).on(place).observer(observer).run()
}

/// The same, continued.
fn resume(
    checkpoint: Checkpoint,
    problem: &Problem,
    settings: &Settings,
    place: impl Into<Placement>,
    observer: &mut dyn Observer,
) -> Result<Registration> {
    let registration = Register::of(again(problem)).settings(settings).on(place);
    registration.observer(observer).resume(checkpoint).run()
}

/// Images that are read slab by slab.
fn register_slabs<'a>(
    problem: Problem<'a>,
    settings: &Settings,
    placement: &Placement,
    observer: &'a mut dyn Observer,
) -> Result<Registration> {
    Register::of(problem).settings(settings).on(placement).observer(observer).run()
}

/// What one stage finds.
fn found(problem: &Problem, stage: Stage) -> Registration {
    found_on(&Device::flex(), problem, stage)
}

fn found_on(device: &Device, problem: &Problem, stage: Stage) -> Registration {
    let settings = Settings { stages: vec![stage], ..Settings::default() };
    register(problem, &settings, device, &mut Silent).expect("good input")
}

/// The deformation that was found.
fn warp(result: &Registration) -> Displacement {
    let warp = result.warp.as_ref().expect("the stage was deformable");
    warp.displacement().expect("readable")
}

/// Mean distance in voxels between a field and the answer over the labelled voxels.
fn mean_error(field: &[f32], pair: &Pair) -> f64 {
    let labels = &pair.fixed.labels.data;
    let inside = |p: usize| labels[p] != 0;
    mean_distance(field, &pair.displacement, inside)
}

/// Mean distance between two fields `[3, D, H, W]` over the voxels inside.
fn mean_distance(a: &[f32], b: &[f32], inside: impl Fn(usize) -> bool) -> f64 {
    let count = a.len() / 3;
    let (mut sum, mut n) = (0.0, 0.0);
    for p in (0..count).filter(|&p| inside(p)) {
        let component = |c: usize| f64::from(a[c * count + p] - b[c * count + p]).powi(2);
        sum += (0..3).map(component).sum::<f64>().sqrt();
        n += 1.0;
    }
    sum / n
}

/// The folder of real images, if it is there.
fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !folder.is_dir() {
        skipped(&format!("no real images in {}", folder.display()));
        return None;
    }
    Some(folder)
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
