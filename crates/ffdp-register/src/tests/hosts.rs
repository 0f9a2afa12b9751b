//! A registration by several processes (threads, here) finds and writes what one finds.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use burn::tensor::Device;

use super::slabs::{FIELD_VOXELS, LOSS, WARPED, furthest};
use super::{only, pair_of, register_slabs, tall_pair_of};
use crate::result::MovingPlanes;
use crate::{
    LevelSettings, Observer, Placement, Preset, Problem, Registration, Settings, Silent, Stage,
    methods::GreedySettings,
    report::{Outcome, Progress},
    result::Folding,
};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::Volume;
use ffdp_image::io::images::{read_displacement, read_volume};
use ffdp_image::synth::Pair;
use ffdp_parallel::{
    DeviceMesh,
    hosts::{Ranks, Threads},
};

/// Levels of which the coarse one is done by rank 0 and the fine one is shared.
fn few() -> GreedySettings {
    let level = |shrink, iterations| LevelSettings { shrink, iterations };
    GreedySettings { levels: vec![level(2.0, 12), level(1.0, 8)], ..GreedySettings::default() }
}

/// What each of several ranks is given: its images, its settings, its shards, its observer.
struct RankInputs<'a> {
    pair: &'a Pair,
    moving: Option<Volume>,
    settings: Settings,
    shards: usize,
    observer: Box<dyn Observer>,
}

impl<'a> RankInputs<'a> {
    fn new(pair: &'a Pair, settings: &Settings, shards: usize) -> Self {
        let (settings, observer) = (settings.clone(), Box::new(Silent));
        Self { pair, moving: None, settings, shards, observer }
    }

    fn problem(&self) -> (Volume, Volume) {
        let moving = self.moving.as_ref().unwrap_or(&self.pair.moving.image);
        (self.pair.fixed.image.clone(), moving.clone())
    }
}

/// What a rank has in the end.
struct Got {
    found: Registration,
    field: Vec<f32>,
    folding: Folding,
}

/// Registers as every rank; what is written goes to `folder`.
fn in_ranks<'a>(
    count: usize,
    given: impl Fn(usize) -> RankInputs<'a> + Sync,
    folder: Option<&Path>,
) -> Vec<Result<Got>> {
    let given = &given;
    thread::scope(|scope| {
        let rank = |ranks: Threads| move || one_of(Arc::new(ranks), given, folder);
        let threads = Threads::new(count).into_iter().map(|ranks| scope.spawn(rank(ranks)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("it did not panic")).collect()
    })
}

fn one_of<'a>(
    ranks: Arc<dyn Ranks>,
    given: &(impl Fn(usize) -> RankInputs<'a> + Sync),
    folder: Option<&Path>,
) -> Result<Got> {
    let mut given = given(ranks.rank());
    let mesh = DeviceMesh::new(&[Device::flex()], given.shards)?;
    let (mut fixed, mut moving) = given.problem();
    let problem = Problem::new(&mut fixed, &mut moving);
    let placement = Placement::Ranks { mesh, ranks };
    let found = register_slabs(problem, &given.settings, &placement, given.observer.as_mut())?;
    let warp = found.warp.as_ref().expect("the stage was deformable");
    let (field, folding) = (warp.planes(0..warp.fixed.size[2])?, warp.folding()?);
    if let Some(folder) = folder {
        warp.write(folder.join("warp.nii"))?;
        found.write_warped(
            folder.join("warped.nii"),
            MovingPlanes { planes: &mut moving, beyond: 0.0 },
        )?;
    }
    Ok(Got { found, field, folding })
}

/// The same by one process.
fn alone(pair: &Pair, settings: &Settings, folder: &Path) -> Got {
    let (mut fixed, mut moving) = (pair.fixed.image.clone(), pair.moving.image.clone());
    let problem = Problem::new(&mut fixed, &mut moving);
    let placement = Placement::DeviceMesh(DeviceMesh::one(&Device::flex()));
    let found = register_slabs(problem, settings, &placement, &mut Silent).expect("good input");
    let warp = found.warp.as_ref().expect("the stage was deformable");
    let field = warp.planes(0..warp.fixed.size[2]).expect("readable");
    let folding = warp.folding().expect("readable");
    warp.write(folder.join("warp.nii")).expect("writable");
    found
        .write_warped(folder.join("warped.nii"), MovingPlanes { planes: &mut moving, beyond: 0.0 })
        .expect("writable");
    Got { found, field, folding }
}

/// Compares what every rank got, and what was written, with one process; how far fields may lie apart, in voxels.
fn compare(label: &str, pair: &Pair, settings: &Settings, shards: &[usize], bound: f32) {
    let folders = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let one = alone(pair, settings, folders[0].path());
    assert!(one.field.iter().any(|u| u.abs() > 0.5), "{label}: it does not move");
    let given = |rank: usize| RankInputs::new(pair, settings, shards[rank]);
    let label = format!("{label} on {shards:?}");
    for got in in_ranks(shards.len(), given, Some(folders[1].path())) {
        let got = got.expect("good input");
        let off = furthest(&one.field, &got.field);
        println!("{label}: {off:.1e} voxel");
        assert!(off <= bound, "{label}: {off} voxel");
        let [a, b] = [&one.found, &got.found];
        let off = [a.loss_before - b.loss_before, a.loss_after - b.loss_after];
        assert!(off.iter().all(|off| off.abs() <= LOSS), "{label}: losses {off:?} apart");
        assert_eq!(a.outcome, b.outcome, "{label}");
        let levels = |found: &Registration| -> Vec<_> {
            let levels = found.stages.iter().flat_map(|stage| &stage.levels);
            levels.map(|level| (level.size, level.losses.len(), level.stop)).collect()
        };
        assert_eq!(levels(a), levels(b), "{label}");
        assert_eq!(one.folding.folds, got.folding.folds, "{label}");
        let off = (one.folding.smallest - got.folding.smallest).abs();
        assert!(off < f64::from(bound), "{label}: {:?} for {:?}", got.folding, one.folding);
    }
    let [a, b] = folders.each_ref().map(|folder| {
        let (field, _) = read_displacement(folder.path().join("warp.nii")).expect("it was written");
        let image = read_volume(folder.path().join("warped.nii")).expect("it was written");
        (field, image)
    });
    assert!(furthest(&a.0, &b.0) <= bound, "{label}: files");
    let (low, high) = a.1.min_max().expect("finite");
    let off = furthest(&a.1.data, &b.1.data) / (high - low);
    assert!(off <= WARPED.max(bound), "{label}: {off} of the range");
}

#[test]
fn processes_find_what_one_finds() {
    let pair = tall_pair_of([28, 30, 48], 3);
    for shards in [&[1, 1][..], &[1, 2], &[1, 1, 1]] {
        compare("greedy", &pair, &only(few()), shards, FIELD_VOXELS);
    }
    let pair = tall_pair_of([30, 28, 64], 3);
    let level = LevelSettings { shrink: 1.0, iterations: 6 };
    let fine = GreedySettings { levels: vec![level], ..GreedySettings::default() };
    compare("greedy, 64 planes", &pair, &only(fine), &[1, 1, 1, 1], FIELD_VOXELS);
}

#[test]
fn processes_share_a_stage_that_begins_where_another_ended() {
    let pair = tall_pair_of([28, 30, 48], 3);
    // The second begins on a level that rank 0 does alone, from a displacement that is shared.
    let stages = vec![Stage::Greedy(few()), Stage::Greedy(few())];
    let settings = Settings { stages, ..Settings::default() };
    compare("twice greedy", &pair, &settings, &[2, 1], FIELD_VOXELS);
}

#[test]
fn processes_follow_all_stages_of_a_preset() {
    // Ends at half the resolution, which two processes share; the displacement is carried to that of the image.
    let pair = pair_of(64, 5);
    // The linear search ends where the loss no longer changes in f32, but rank 0 does it as one process does.
    compare("fast", &pair, &Settings::preset(Preset::Fast), &[1, 1], FIELD_VOXELS);
}

/// Ends the run when the second losses of a level are read.
struct Impatient;

impl Observer for Impatient {
    fn losses_read(&mut self, progress: &Progress) -> ControlFlow<()> {
        match progress.iteration > 4 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

#[test]
fn who_has_enough_ends_it_for_all() {
    let pair = tall_pair_of([28, 30, 48], 3);
    let level = LevelSettings { shrink: 1.0, iterations: 12 };
    let fine = GreedySettings { levels: vec![level], ..GreedySettings::default() };
    let settings = Settings { loss_interval: 4, ..only(fine) };
    let given = |rank: usize| {
        let mut given = RankInputs::new(&pair, &settings, 1);
        if rank == 1 {
            given.observer = Box::new(Impatient);
        }
        given
    };
    for got in in_ranks(3, given, None) {
        let found = got.expect("good input").found;
        assert_eq!(found.outcome, Outcome::Cancelled);
        assert_eq!(found.stages[0].levels[0].losses.len(), 8);
    }
}

/// The message of every rank.
fn refused<'a>(count: usize, given: impl Fn(usize) -> RankInputs<'a> + Sync) -> Vec<String> {
    let found = in_ranks(count, given, None).into_iter();
    found
        .map(|got| match got {
            Err(error @ Error::OnRank { .. }) => error.to_string(),
            Err(error) => panic!("not of all ranks: {error}"),
            Ok(_) => panic!("it was accepted"),
        })
        .collect()
}

#[test]
fn what_processes_cannot_do_is_refused_on_all_of_them() {
    let pair = pair_of(32, 3);
    let says = |found: Vec<String>, words: &[&str]| {
        for error in found {
            for word in words {
                assert!(error.contains(word), "no {word:?} in {error}");
            }
        }
    };
    // Rank 0 looks at the intensities.
    let bad = |rank: usize| {
        let mut moving = pair.moving.image.clone();
        moving.data[99] = f32::NAN;
        RankInputs {
            moving: (rank == 0).then_some(moving),
            ..RankInputs::new(&pair, &only(few()), 1)
        }
    };
    says(refused(3, bad), &["rank 0 of 3", "the moving image", "NaN"]);
    let other = |rank: usize| match rank {
        2 => RankInputs::new(&pair, &Settings { loss_interval: 7, ..only(few()) }, 1),
        _ => RankInputs::new(&pair, &only(few()), 1),
    };
    says(refused(3, other), &["rank 2 of 3", "same settings"]);
}
