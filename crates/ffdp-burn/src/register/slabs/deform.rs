//! A greedy stage on images that are read slab by slab.

use std::time::Instant;

use burn::tensor::{DType, Device};

use super::Warp;
use super::crew::{Crew, Told};
use super::room::{Places, Room};
use super::{Scaled, run_sides};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Physical, index_affine};
use crate::ops::{Outside, dense_zeros};
use crate::parallel::{ExactMemory, Holders, Mesh, Sharded, ShardedAlignment};
use crate::register::deformable::{Deformation, Kind, deform_options};
use crate::register::level::{LevelReport, Stop, level_start, run_level};
use crate::register::pyramid::{finest_spacing_mm, level_geometry};
use crate::register::run::{Run, StageReport};
use crate::register::settings::{LevelSettings, Settings};

/// Where a stage begins: the affine map and the displacement before it, and the map at the start of the
/// run.
pub(super) struct Start {
    pub affine: Affine<Physical, Physical>,
    pub warp: Option<Warp>,
    pub initial: Affine<Physical, Physical>,
}

/// A stage from `start` on. Also returns the loss of its last level with the affine map alone, and with the
/// initial one.
pub(super) fn deform(
    run: &mut Run,
    (room, crew): (&Room, &Crew),
    kind: &Kind,
    start: Start,
) -> Result<(Warp, StageReport, [f64; 2])> {
    let clock = Instant::now();
    let descent = kind.descent();
    let Start { affine, mut warp, initial } = start;
    let affine = [&affine, &initial];
    let mut levels = Vec::new();
    let mut ended = None;
    for index in 0..descent.levels.len() {
        let grids = level_grids(&run.grids, run.settings, &descent.levels[index])?;
        let masked = run_sides(run).each_ref().map(Scaled::is_masked);
        let task = Task { kind, index, grids: &grids, masked, affine };
        let reached = match (crew.is_several(), room) {
            (true, Room::Ranks { mesh, .. }) => match crew.places(mesh, [&grids[0], &grids[1]])? {
                Some(places) => task.run(run, crew, places, warp.take())?,
                None => task.run_on_first(run, (room, crew), warp.take())?,
            },
            _ => task.run(run, crew, task.places(room)?, warp.take())?,
        };
        levels.push(reached.report);
        warp = Some(reached.warp);
        if let Some(losses) = reached.losses {
            ended = Some(losses);
            break;
        }
    }
    let (Some([loss_after, before @ ..]), Some(warp)) = (ended, warp) else {
        unreachable!("settings with no level do not validate")
    };
    let seconds = clock.elapsed().as_secs_f64();
    let report = StageReport { transform: kind.name(), levels, loss_after, kept: true, seconds };
    Ok((warp, report, before))
}

/// Demands that the levels of a stage have room, before anything is computed.
pub(super) fn check_room(
    room: &Room,
    kind: &Kind,
    (grids, masked): (&[Geometry; 2], [bool; 2]),
    settings: &Settings,
    affine: &Affine<Physical, Physical>,
) -> Result<()> {
    // The finest, which takes the most, is the one to be told of.
    kind.descent().levels.iter().rev().try_for_each(|level| {
        let [fixed, moving] = &level_grids(grids, settings, level)?;
        let map = index_affine(fixed, moving, affine);
        room.check_level(([fixed, moving], masked), &deform_options(kind, fixed, &map))
    })
}

/// Those of both images on a level.
fn level_grids(
    full: &[Geometry; 2],
    settings: &Settings,
    level: &LevelSettings,
) -> Result<[Geometry; 2]> {
    let spacing_mm = level.shrink * finest_spacing_mm(&full[0]);
    let on_level = |i: usize| level_geometry(&full[i], spacing_mm, settings.minimum_axis_voxels);
    Ok([on_level(0)?, on_level(1)?])
}

/// One level of a stage.
struct Task<'a> {
    kind: &'a Kind<'a>,
    index: usize,
    grids: &'a [Geometry; 2],
    /// Which images have a mask.
    masked: [bool; 2],
    /// Before the stage, and at the start of the run.
    affine: [&'a Affine<Physical, Physical>; 2],
}

/// What a level has come to.
struct Reached {
    warp: Warp,
    report: LevelReport,
    /// Where the stage ends: the loss in the end, with the affine map alone, and with the initial one.
    losses: Option<[f64; 3]>,
}

impl Task<'_> {
    /// Where its images go in one process.
    fn places(&self, room: &Room) -> Result<Places> {
        let [fixed, moving] = self.grids;
        let map = index_affine(fixed, moving, self.affine[0]);
        room.places(([fixed, moving], self.masked), &deform_options(self.kind, fixed, &map))
    }

    /// The level, from `warp` on; shared by all ranks if the places are.
    fn run(
        &self,
        run: &mut Run,
        crew: &Crew,
        places: Places,
        warp: Option<Warp>,
    ) -> Result<Reached> {
        let descent = self.kind.descent();
        let warp = match warp {
            Some(warp) if places.exact.is_some() => Some(warp.in_host_memory(&places.fixed)?),
            warp => warp,
        };
        let home = run.room.home().clone();
        // Pools keep pages of the sizes that the level before asked for, and what was dropped is in use until all that
        // was recorded has been done.
        for device in run.room.devices() {
            device.sync().map_err(|reason| Error::device("waiting for a level", reason))?;
            device.memory_cleanup();
        }
        let mut on_level = Level::read(run, &home, self.grids.clone(), places)?;
        let is_last = self.index + 1 == descent.levels.len();
        // Before there is a displacement of this size.
        let known = is_last.then(|| on_level.losses(self.kind, self.affine)).transpose()?;
        let size = self.grids[0].size;
        let level = level_start(self.kind.name(), self.index, descent.levels, size);
        let field = match warp {
            Some(warp) => warp.resampled(&self.grids[0], &on_level.places)?.field,
            None => on_level.still(),
        };
        let mut deformation = on_level.deformation(self.kind, self.affine[0], field)?;
        if is_last {
            // The blocks of the fixed image take its place.
            on_level.images = None;
        }
        let mut observer = crew.together(&mut *run.observer);
        let interval = run.settings.loss_interval;
        let convergence = descent.convergence;
        let report = run_level(&level, &mut deformation, convergence, interval, &mut observer)?;
        let ends = is_last || report.stop == Stop::Cancelled;
        let after = ends.then(|| deformation.loss()).transpose()?;
        let (geometry, fixed) = (self.grids[0].clone(), run.grids[0].clone());
        let Places { work, team, .. } = on_level.places.clone();
        let (field, crew) = (deformation.into_shards(), crew.clone());
        let warp = Warp { field, geometry, fixed, work, holders: team.fixed, crew };
        let losses = match (after, known) {
            (None, _) => None,
            (Some(after), Some([alone, initial])) => Some([after, alone, initial]),
            (Some(after), None) => {
                let [alone, initial] = on_level.losses(self.kind, self.affine)?;
                Some([after, alone, initial])
            }
        };
        Ok(Reached { warp, report, losses })
    }

    /// The level on rank 0, and what comes of it on all.
    fn run_on_first(
        &self,
        run: &mut Run,
        (room, crew): (&Room, &Crew),
        warp: Option<Warp>,
    ) -> Result<Reached> {
        let warp = warp.map(Warp::on_first).transpose()?.flatten();
        let mut field = None;
        let told = crew.first_does(|| {
            let reached = self.run(run, &Crew::alone(), self.places(room)?, warp)?;
            field = Some(reached.warp.field.gather(room.home()));
            let losses = reached.losses.map(Vec::from).unwrap_or_default();
            Ok(Told::new(&losses, vec![reached.report], true))
        })?;
        let home = room.home();
        let field = crew.field_of_first(field, self.grids[0].dims(), home)?;
        let warp = Warp {
            field: Sharded::whole(field),
            geometry: self.grids[0].clone(),
            fixed: run.grids[0].clone(),
            work: Mesh::one(home),
            holders: Holders::ALONE,
            crew: crew.clone(),
        };
        let losses = <[f64; 3]>::try_from(told.numbers()).ok();
        let mut levels = told.levels.into_iter();
        let report = levels.next().expect("the report of one level was told");
        Ok(Reached { warp, report, losses })
    }
}

/// They are let go of once a stage is on its last level.
const IMAGES: &str = "nobody asks for the images of the last level when they are in blocks";

/// The images of a level, cut.
struct Level {
    /// Fixed and moving, as long as they are needed.
    images: Option<[Sharded; 2]>,
    grids: [Geometry; 2],
    /// Whether their last channel is a mask.
    masked: [bool; 2],
    places: Places,
    /// While the level is at work, where its places ask for it.
    _exact: Option<ExactMemory>,
}

impl Level {
    fn read(run: &mut Run, home: &Device, grids: [Geometry; 2], places: Places) -> Result<Self> {
        let exact = places.exact.map(|planned| ExactMemory::on(home, planned));
        let [fixed, moving] = run_sides(run);
        let masked = [fixed.is_masked(), moving.is_masked()];
        let fixed = fixed.level(&grids[0], &places.fixed, [&places.work, &places.rest])?;
        let meshes = [&places.moving_work, &places.moving_rest];
        let moving = moving.level(&grids[1], &places.moving, meshes)?;
        Ok(Self { images: Some([fixed, moving]), grids, masked, places, _exact: exact })
    }

    /// No displacement.
    fn still(&self) -> Sharded {
        let Places { fixed, rest, .. } = &self.places;
        let shard = |k: usize| {
            let [d, h, w] = fixed.shard_size(k);
            dense_zeros([1, 3, d, h, w], rest.device(k), DType::F32)
        };
        Sharded::new((0..fixed.count()).map(shard).collect(), fixed.clone())
    }

    fn deformation(
        &self,
        kind: &Kind,
        affine: &Affine<Physical, Physical>,
        field: Sharded,
    ) -> Result<Deformation> {
        let images = self.images.as_ref().expect(IMAGES);
        let Places { work, team, .. } = &self.places;
        let images = (images.each_ref(), self.masked);
        Deformation::on_shards(images, &self.grids, kind, affine, field, (work, team))
    }

    /// Of affine maps alone.
    fn losses(&self, kind: &Kind, affine: [&Affine<Physical, Physical>; 2]) -> Result<[f64; 2]> {
        let images = self.images.as_ref().expect(IMAGES);
        let Places { work, team, .. } = &self.places;
        let is_alone = !team.fixed.are_several();
        let is_cut = is_alone && images.iter().any(|image| image.layout().count() > 1);
        let is_masked = self.masked.contains(&true);
        let similarity = kind.descent().similarity;
        // Of shards no displacement is made for it.
        let loss = |affine: &Affine<Physical, Physical>| match is_cut && !is_masked {
            true => {
                let rule = (similarity.alignment_loss(), Outside::Background);
                let alignment = ShardedAlignment::new(images.clone(), rule, work);
                let map = index_affine(&self.grids[0], &self.grids[1], affine);
                Ok(alignment.gradient(map.rows())?.0)
            }
            false => self.deformation(kind, affine, self.still())?.loss(),
        };
        let first = loss(affine[0])?;
        let same = affine[0].rows() == affine[1].rows();
        Ok([first, if same { first } else { loss(affine[1])? }])
    }
}
