//! A run that is continued gives what it would have given.

use std::ops::Range;

use burn::tensor::{Device, Tensor};

use super::{pair_of, register, register_slabs, resume};
use crate::{
    LevelSettings, Observer, Placement, Problem, Register, Registration, Settings, Silent, Stage,
    checkpoint::{Checkpoint, SavedField},
    methods::{
        FfdSettings, GreedySettings, ModelSettings, SvfSettings, SynSettings, TransformModel,
    },
    settings::{LinearSettings, MomentsSettings},
};
use ffdp_image::image::{Geometry, Volume};
use ffdp_parallel::DeviceMesh;

/// Keeps every point from which the run could be continued.
#[derive(Default)]
struct Keeper(Vec<Checkpoint>);

impl Observer for Keeper {
    fn reached(&mut self, checkpoint: &Checkpoint) {
        self.0.push(checkpoint.clone());
    }
}

fn two_stages() -> Settings {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let stage = |levels| Stage::Greedy(GreedySettings { levels, ..GreedySettings::default() });
    let stages = vec![
        stage(vec![level(4.0, 6), level(2.0, 4)]),
        stage(vec![level(2.0, 5), level(2.0, 0), level(1.0, 3)]),
    ];
    Settings { stages, minimum_axis_voxels: 8, ..Settings::default() }
}

/// Everything but the times.
fn bits(result: &Registration, moving: &Volume) -> (Vec<u32>, Vec<u32>, Vec<Vec<u64>>, [u64; 2]) {
    let warp = result.warp.as_ref().expect("deformable").to_vec().expect("readable");
    let losses = result.stages.iter().flat_map(|stage| &stage.levels);
    (
        warp.iter().map(|v| v.to_bits()).collect(),
        result.warped(moving).expect("readable").data.iter().map(|v| v.to_bits()).collect(),
        losses.map(|level| level.losses.iter().map(|loss| loss.to_bits()).collect()).collect(),
        [result.loss_before.to_bits(), result.loss_after.to_bits()],
    )
}

/// Every kind of stage: the linear ones before each of the deformable ones.
fn every_kind() -> [Settings; 4] {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let levels = vec![level(2.0, 4), level(1.0, 3)];
    let coarse = vec![level(2.0, 6), level(1.0, 3)];
    let linear = || LinearSettings { levels: coarse.clone(), ..LinearSettings::default() };
    let deformable = [
        Stage::Greedy(GreedySettings { levels: levels.clone(), ..GreedySettings::default() }),
        Stage::Syn(SynSettings { levels: levels.clone(), ..SynSettings::default() }),
        Stage::Svf(SvfSettings { levels: levels.clone(), ..SvfSettings::default() }),
        Stage::Ffd(FfdSettings { levels, spacing_mm: [30.0; 3], ..FfdSettings::default() }),
    ];
    deformable.map(|last| {
        let first = Stage::Moments(MomentsSettings::default());
        let stages = vec![first, Stage::Rigid(linear()), Stage::Affine(linear()), last];
        Settings { stages, minimum_axis_voxels: 8, ..Settings::default() }
    })
}

/// Continues a run from every point it reached; returns these: stages and levels that had ended.
fn continued_everywhere(settings: &Settings) -> Vec<(usize, usize)> {
    let pair = pair_of(20, 6);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    let device = Device::flex();
    let mut keeper = Keeper::default();
    let whole = register(&problem, settings, &device, &mut keeper).expect("good input");
    let reached: Vec<_> =
        keeper.0.iter().map(|point| (point.stages.len(), point.levels.len())).collect();
    for (place, checkpoint) in reached.iter().zip(keeper.0) {
        let again = resume(checkpoint, &problem, settings, &device, &mut Silent).expect("good");
        let names = |result: &Registration| -> Vec<_> {
            result.stages.iter().map(|stage| stage.transform).collect()
        };
        assert_eq!(names(&again), names(&whole), "{place:?}");
        assert!(
            bits(&again, &pair.moving.image) == bits(&whole, &pair.moving.image),
            "{:?} continued after {place:?}",
            names(&whole)
        );
    }
    reached
}

/// The same shift everywhere, in voxels of the grid.
#[derive(Debug)]
struct Shift;

impl TransformModel for Shift {
    fn name(&self) -> &'static str {
        "shift"
    }

    fn at_rest(&self, _fixed: &Geometry) -> Vec<Vec<f32>> {
        vec![vec![0.0; 3]]
    }

    fn displacement(
        &self,
        parameters: Tensor<2>,
        grid: &Geometry,
        planes: Range<usize>,
    ) -> Tensor<5> {
        let [x, y, _] = grid.size;
        let mm = parameters.reshape([1, 3, 1, 1, 1]).div_scalar(grid.spacing_mm[0]);
        mm.expand([1, 3, planes.len(), y, x])
    }
}

#[test]
fn a_model_of_ones_own_is_continued_to_the_same_bits() {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    let search =
        ModelSettings { levels: vec![level(2.0, 4), level(1.0, 3)], ..ModelSettings::default() };
    let stages = vec![Stage::model(Shift, search)];
    let settings = Settings { stages, minimum_axis_voxels: 8, ..Settings::default() };
    assert_eq!(continued_everywhere(&settings), [(0, 1), (0, 2)]);
}

/// A deformable stage goes on with the fields of another of its kind, and not with what they amount to.
fn the_same_twice() -> [Settings; 4] {
    every_kind().map(|settings| {
        let last = settings.stages[3].clone();
        Settings { stages: vec![last.clone(), last], ..settings }
    })
}

#[test]
fn stages_of_one_kind_are_continued_to_the_same_bits() {
    for settings in the_same_twice() {
        let expected = [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];
        assert_eq!(continued_everywhere(&settings), expected);
    }
}

#[test]
fn a_run_slab_by_slab_is_continued_to_the_same_bits() {
    let pair = pair_of(20, 6);
    let placement = Placement::DeviceMesh(DeviceMesh::new(&[Device::flex()], 3).expect("a shard"));
    // Linear stages before one of the deformable ones: before the others they are the same, and whole images have them.
    for settings in every_kind().into_iter().take(1).chain(the_same_twice()) {
        let run = |checkpoint: Option<Checkpoint>, observer: &mut dyn Observer| {
            let (mut fixed, mut moving) = (pair.fixed.image.clone(), pair.moving.image.clone());
            let problem = Problem::new(&mut fixed, &mut moving);
            let found = match checkpoint {
                None => register_slabs(problem, &settings, &placement, observer),
                Some(reached) => {
                    let registration = Register::of(problem).settings(&settings).on(&placement);
                    registration.observer(observer).resume(reached).run()
                }
            };
            let found = found.expect("good input");
            let warp = found.warp.as_ref().expect("deformable");
            let values = warp.planes(0..20).expect("readable");
            let bits: Vec<u32> = values.into_iter().map(f32::to_bits).collect();
            (bits, found.loss_after.to_bits())
        };
        let mut keeper = Keeper::default();
        let whole = run(None, &mut keeper);
        // As from a file.
        let stored = |field: &SavedField| {
            SavedField::read::<ffdp_image::Error>(field.geometry().clone(), |z| field.planes(z))
        };
        assert!(keeper.0.iter().any(|point| !point.carried.is_empty()));
        for mut reached in keeper.0 {
            for fields in [&mut reached.found, &mut reached.carried] {
                *fields = fields.iter().map(stored).collect::<Result<_, _>>().expect("readable");
            }
            let place = (reached.stages.len(), reached.levels.len());
            let again = run(Some(reached), &mut Silent);
            assert!(again == whole, "{:?} continued after {place:?}", settings.stages.last());
        }
    }
}

#[test]
fn a_run_continued_after_any_level_gives_the_same_bits() {
    // After each level, and between the stages.
    let expected = [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)];
    assert_eq!(continued_everywhere(&two_stages()), expected);
}

#[test]
fn every_kind_of_stage_is_continued_to_the_same_bits() {
    for settings in every_kind() {
        let reached = continued_everywhere(&settings);
        // Between all stages, and after the levels of the last at least.
        for place in [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2)] {
            assert!(reached.contains(&place), "{reached:?} lacks {place:?}");
        }
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let pair = pair_of(20, 6);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    let mut keeper = Keeper::default();
    register(&problem, &two_stages(), &Device::flex(), &mut keeper).expect("good input");
    let later = keeper.0.pop().expect("the run has levels");
    let shorter = Settings { stages: two_stages().stages[..1].to_vec(), ..Settings::default() };
    let refused = resume(later, &problem, &shorter, &Device::flex(), &mut Silent);
    let text = refused.expect_err("one stage was done").to_string();
    assert!(text.contains("as many stages") && text.contains("got 1"), "{text}");
}
