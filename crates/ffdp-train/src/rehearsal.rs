//! A training step in parts, by processes that compile kernels while the training begins.
//!
//! The first step of a training compiles a hundred kernels or more, one after the other. Where kernels are kept on disk, the
//! program is started again, with the same arguments, several times: each process computes some pieces of the step
//! ([`Pieces`]), forward and backward, on images that are made up; the training finds what they have compiled. They
//! touch no files of the run, print nothing and end by themselves; how they end changes nothing. A repeated run finds
//! all kernels: then there are none.

use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Device, Tensor};
use burn::train::InferenceStep;
use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::{Error, Result};
use ffdp_kit::rehearsal::{Helper, Note, cores};
use ffdp_nets::Pieces;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

#[cfg(feature = "cli")]
use crate::arguments::TrainArguments;
use crate::data::{Change, Changes, Dataset, Draw, Item, OnDevice, Prepared, Sample};
use crate::model::Registration;
use crate::objective::Objective;
use crate::optimizer::AmsGrad;
use crate::run::TrainingRun;
use crate::settings::{Settings, file};
use crate::team::Team;

/// Cores for each of the processes, the training among them: one that compiles, and the threads of the driver.
const CORES: usize = 2;
/// Cores below which the training has none to spare.
const FEWEST_CORES: usize = 8;
/// Each has a context on the device, of about half a GiB, and a piece has no more than a fifth of the kernels.
const MOST_HELPERS: usize = 7;
/// Voxels of the made-up images; with more, planes are left out, since memory of the device is the training's. What
/// depends on the number of planes is compiled when it is met.
const MOST_VOXELS: usize = 1 << 21;
/// So many planes are left out at a time, and so many stay: to a multiple of these networks pad images, the same number then.
const PLANES: usize = 32;

/// Settings that decide no kernel.
const WITHOUT_KERNELS: [&str; 11] = [
    "epochs",
    "patience",
    "keep",
    "workers",
    "cache_mib",
    "seed",
    "learning_rate",
    "pairs",
    "data",
    "hold_out",
    "align",
];

/// Processes that compile; they are ended with this.
pub struct Helpers {
    note: Option<Note>,
    _running: Vec<Helper>,
}

impl Helpers {
    /// Starts them, for a run on one CUDA device ([`TrainingRun::rehearsed`]) that was never rehearsed, where kernels are kept
    /// and cores are many.
    pub fn start(run: &TrainingRun, dataset: &Dataset, team: &Team) -> Self {
        let kernels = kernels_of(run, dataset.size).filter(|_| team.is_one());
        let note = kernels.and_then(|kernels| Note::of(&kernels)).filter(|note| !note.exists());
        let of = if note.is_some() { processes(cores()) } else { 0 };
        let part = |which| Part { which, of, size: dataset.size };
        let running = (0..of).filter_map(|which| Helper::start(&part(which).name()));
        Self { _running: running.collect(), note }
    }

    /// Notes that the training was there, and all its kernels are kept.
    pub fn finish(self) {
        if let Some(note) = self.note {
            note.write();
        }
    }
}

/// An odd number: pieces with many kernels and with few alternate.
fn processes(cores: usize) -> usize {
    if cores < FEWEST_CORES { 0 } else { ((cores / CORES - 1) | 1).min(MOST_HELPERS) }
}

/// What decides the kernels of a run. Of wgpu the driver compiles, and keeps, or does not.
fn kernels_of(run: &TrainingRun, size: [usize; 3]) -> Option<String> {
    let device = run.rehearsed.as_ref().filter(|device| device.starts_with("cuda"))?;
    let mut recipe = file::table(&run.settings);
    recipe.retain(|name, _| !WITHOUT_KERNELS.contains(&name));
    Some(format!("train {device} {size:?} {recipe}"))
}

/// Does the part of a training step that this process was started for, if it was: to be asked before the run is opened.
///
/// # Errors
/// As [`TrainArguments::settings`], and a part that is none.
#[cfg(feature = "cli")]
pub fn help(arguments: &TrainArguments, team: &Team) -> Option<Result<()>> {
    let name = ffdp_kit::rehearsal::part()?;
    let part = Part::named(&name);
    Some(part.and_then(|part| part.rehearse(&arguments.settings()?, team.first()).map(|_| ())))
}

/// The pieces of a step whose number leaves the rest `which` when it is divided by `of`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Part {
    which: usize,
    of: usize,
    /// Of the images for which the network is made, (x, y, z) voxels.
    size: [usize; 3],
}

/// Pieces of a step, and how many of them a part has.
#[derive(Debug, PartialEq)]
struct Counts {
    all: usize,
    taken: usize,
}

impl Part {
    fn name(self) -> String {
        serde_json::to_string(&self).expect("numbers are plain values")
    }

    fn named(name: &str) -> Result<Self> {
        let part = serde_json::from_str(name).ok();
        part.filter(|part: &Self| part.which < part.of && !part.size.contains(&0)).ok_or_else(
            || {
                Error::invalid(
                    "a part of a training step has a number and a size",
                    name,
                    "unset it",
                )
            },
        )
    }

    /// Computes the pieces: of the network and what it predicts, the objective, the optimiser, a validation, and random
    /// changes of the images.
    fn rehearse(self, settings: &Settings, device: &Device) -> Result<Counts> {
        let tracking = device.clone().autodiff();
        let network = settings.network(self.size).init(&tracking);
        let model = Registration::new(network, Objective::new(settings, None));
        let pair = pair(settings, shown(self.size))?;
        let plain = Prepared { changes: None, ..pair.clone() };
        let item = item(settings, &plain, &tracking);
        let mut each = |made: Tensor<5>| drop(made.backward());
        let mut pieces = Pieces::some(self.which, self.of, &mut each);
        let predicted = model.predict(&item, &mut pieces);
        if pieces.takes_next() {
            let (terms, _) = model.objective().terms(&item, predicted);
            drop(terms.share(1.0 / settings.batch as f64).backward());
            terms.read();
        }
        if pieces.takes_next() {
            optimise(settings, &model);
        }
        if pieces.takes_next() {
            let off_tape = self::item(settings, &plain, device);
            drop(InferenceStep::step(&model.valid(), off_tape));
        }
        if pieces.takes_next() {
            self::item(settings, &pair, &tracking);
        }
        let counts = Counts { all: pieces.count(), taken: pieces.taken() };
        // What is enqueued is compiled.
        device.sync().map_err(|error| Error::device("rehearsing a training step", error))?;
        Ok(counts)
    }
}

/// Fewer planes of images that are large.
fn shown([x, y, z]: [usize; 3]) -> [usize; 3] {
    let too_many = z.saturating_sub(MOST_VOXELS / (x * y)).next_multiple_of(PLANES);
    [x, y, z - too_many.min(z.saturating_sub(PLANES) / PLANES * PLANES)]
}

/// An image of a few intensities and a label, with itself, and random changes where the settings have some.
fn pair(settings: &Settings, size: [usize; 3]) -> Result<Prepared> {
    let grid = Geometry::new(size, [1.0; 3])?;
    let intensities = (0..grid.len()).map(|i| (i % 97) as f32 / 96.0).collect();
    let labels = (0..grid.len()).map(|i| (i % 2) as i32).collect();
    let (image, labels) =
        (Volume::new(intensities, grid.clone())?, LabelMap::new(labels, grid.clone())?);
    let sample = Arc::new(Sample::new("made up".into(), image, Some(labels)));
    let draw = Draw::new(&settings.augmentation, &mut ChaCha8Rng::seed_from_u64(0));
    let changes = draw.map(|draw| {
        let [moving, fixed] = [&draw.moving, &draw.fixed]
            .map(|image| draw.map(image, &grid).map(|map| Change { map, draw: image.clone() }));
        Ok::<_, Error>(Changes { moving: moving?, fixed: fixed?, grid })
    });
    Ok(Prepared { moving: sample.clone(), fixed: sample, changes: changes.transpose()? })
}

fn item(settings: &Settings, pair: &Prepared, device: &Device) -> Item {
    let place = OnDevice::new(device, settings.dice_weight > 0.0, 0);
    let [moving, fixed] = place.pair(pair);
    Item { moving, fixed, pair: pair.clone(), picture: None, waited: 0.0 }
}

/// A step with the gradients of as many pairs as make a difference.
fn optimise(settings: &Settings, model: &Registration) {
    let mut sum = GradientsAccumulator::new();
    for _ in 0..settings.batch.min(2) {
        let mut weights = Weights(GradientsParams::new());
        model.visit(&mut weights);
        sum.accumulate(model, weights.0);
    }
    let mut optimizer = AmsGrad::default().init();
    optimizer.step(settings.learning_rate, model.clone(), sum.grads());
}

/// The weights of a network in place of their gradients.
struct Weights(GradientsParams);

impl ModuleVisitor for Weights {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        self.0.register(parameter.id, parameter.val().inner());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Augmentation, HeadArg, NetworkArg, Regularizer, ResolutionArg};

    fn recipes() -> [(&'static str, Settings); 6] {
        let plain = Settings::default;
        let voxelmorph = || Settings { network: NetworkArg::Voxelmorph, ..plain() };
        let augmentation =
            Augmentation { flips: true, rotation: 5.0, noise: 0.1, ..plain().augmentation };
        [
            ("TransMorph", plain()),
            ("labels, pairs", Settings { dice_weight: 1.0, batch: 3, augmentation, ..plain() }),
            (
                "full, aligned, both ways",
                Settings {
                    affine: true,
                    integrate: true,
                    resolution: ResolutionArg::Full,
                    jacobian_weight: 0.1,
                    inverse_weight: 0.1,
                    ..plain()
                },
            ),
            ("composed", Settings { baseline: true, integrate: true, ..plain() }),
            ("VoxelMorph", Settings { regularizer: Regularizer::Bending, ..voxelmorph() }),
            ("splines", Settings { head: HeadArg::Bspline, drop_path: 0.2, ..voxelmorph() }),
        ]
    }

    /// The step is counted by the code that trains; what is added to it are objective, optimiser, validation and changes.
    #[test]
    fn parts_share_all_pieces_of_a_step() {
        let device = Device::flex();
        let size = [32, 32, 32];
        for (case, settings) in recipes() {
            settings.validate().unwrap_or_else(|error| panic!("{case}: {error}"));
            let model = Registration::new(
                settings.network(size).init(&device),
                Objective::new(&settings, None),
            );
            let pair = pair(&settings, size).expect("a grid");
            assert_eq!(pair.changes.is_some(), case == "labels, pairs");
            let plain = Prepared { changes: None, ..pair };
            let mut all = Pieces::all();
            model.predict(&item(&settings, &plain, &device), &mut all);
            let count = all.count() + 4;
            for of in [1, 3] {
                let part = |which| Part { which, of, size };
                let done = (0..of).map(|which| {
                    let counts = part(which).rehearse(&settings, &device).expect("a CPU");
                    assert_eq!(counts.all, count, "{case}: {which} of {of}");
                    // As evenly as numbers can be shared.
                    assert!(counts.taken.abs_diff(count / of) <= 1, "{case}: {counts:?}");
                    counts.taken
                });
                assert_eq!(done.sum::<usize>(), count, "{case}: in {of}");
            }
        }
    }

    #[test]
    fn parts_have_names() {
        let part = Part { which: 2, of: 7, size: [64, 48, 32] };
        assert_eq!(Part::named(&part.name()).expect("its name"), part);
        let beyond = Part { which: 7, ..part };
        for name in ["results", "", &beyond.name(), &Part { size: [64, 0, 32], ..part }.name()] {
            assert!(Part::named(name).is_err(), "{name}");
        }
    }

    #[test]
    fn large_images_have_fewer_planes() {
        assert_eq!(shown([64; 3]), [64; 3]);
        assert_eq!(shown([128; 3]), [128; 3]);
        assert_eq!(shown([160, 192, 224]), [160, 192, 64]);
        assert_eq!(shown([182, 218, 182]), [182, 218, 54]);
        assert_eq!(shown([400, 400, 33]), [400, 400, 33]);
        assert_eq!(shown([512; 3]), [512, 512, 32]);
        assert_eq!(shown([512, 512, 8]), [512, 512, 8]);
    }

    #[test]
    fn helpers_are_an_odd_number_and_leave_cores() {
        let found = [1, 7, 8, 10, 12, 16, 128].map(processes);
        assert_eq!(found, [0, 0, 3, 5, 5, 7, 7]);
    }

    #[test]
    fn a_run_is_noted_by_what_decides_kernels() {
        let kernels = |settings: Settings, device: &str| {
            let folder = std::path::Path::new("/no/such/folder");
            let run = TrainingRun::begin(settings, folder).expect("settings");
            kernels_of(&TrainingRun { rehearsed: Some(device.to_string()), ..run }, [64; 3])
        };
        let plain = Settings::default;
        assert!(["cpu", "wgpu"].iter().all(|device| kernels(plain(), device).is_none()));
        let expected = kernels(plain(), "cuda:0").expect("a CUDA device");
        let same = Settings { seed: 5, epochs: 40, learning_rate: 1e-5, keep: 7, ..plain() };
        assert_eq!(kernels(same, "cuda:0"), Some(expected.clone()));
        for other in [Settings { affine: true, ..plain() }, Settings { batch: 2, ..plain() }] {
            assert_ne!(kernels(other, "cuda:0"), Some(expected.clone()));
        }
        assert_ne!(kernels(plain(), "cuda:1"), Some(expected));
        let names = file::table(&plain());
        let unknown = WITHOUT_KERNELS.iter().filter(|name| !names.contains_key(**name));
        // Settings that have no value by default are in no table.
        assert!(unknown.eq(&["patience", "pairs", "data"]));
    }
}
