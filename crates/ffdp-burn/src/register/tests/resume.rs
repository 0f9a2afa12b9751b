//! A run that is continued gives what it would have given.

use burn::tensor::Device;

use super::pair_of;
use crate::register::{
    Checkpoint, GreedySettings, LevelSettings, Observer, Problem, Registration, Settings, Silent,
    Stage, register, resume,
};

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
    Settings { stages, ..Settings::default() }
}

/// Everything but the times.
fn bits(result: &Registration) -> (Vec<u32>, Vec<u32>, Vec<Vec<u64>>, [u64; 2]) {
    let warp = result.warp.as_ref().expect("deformable").to_vec().expect("readable");
    let losses = result.stages.iter().flat_map(|stage| &stage.levels);
    (
        warp.iter().map(|v| v.to_bits()).collect(),
        result.warped.data.iter().map(|v| v.to_bits()).collect(),
        losses.map(|level| level.losses.iter().map(|loss| loss.to_bits()).collect()).collect(),
        [result.loss_before.to_bits(), result.loss_after.to_bits()],
    )
}

#[test]
fn a_run_continued_after_any_level_gives_the_same_bits() {
    let pair = pair_of(32, 6);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    let (settings, device) = (two_stages(), Device::flex());
    let mut keeper = Keeper::default();
    let whole = register(&problem, &settings, &device, &mut keeper).expect("good input");
    let reached: Vec<_> =
        keeper.0.iter().map(|point| (point.stages.len(), point.levels.len())).collect();
    // After each level, and between the stages.
    assert_eq!(reached, [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]);
    for (place, checkpoint) in reached.iter().zip(keeper.0) {
        let again = resume(checkpoint, &problem, &settings, &device, &mut Silent).expect("good");
        assert_eq!(again.stages.len(), 2, "{place:?}");
        assert!(bits(&again) == bits(&whole), "continued after {place:?}");
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let pair = pair_of(32, 6);
    let problem = Problem::new(&pair.fixed.image, &pair.moving.image);
    let mut keeper = Keeper::default();
    register(&problem, &two_stages(), &Device::flex(), &mut keeper).expect("good input");
    let later = keeper.0.pop().expect("the run has levels");
    let shorter = Settings { stages: two_stages().stages[..1].to_vec(), ..Settings::default() };
    let refused = resume(later, &problem, &shorter, &Device::flex(), &mut Silent);
    let text = refused.expect_err("one stage was done").to_string();
    assert!(text.contains("as many stages") && text.contains("got 1"), "{text}");
}
