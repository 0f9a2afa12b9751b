//! A greedy stage on images that are read slab by slab.

use std::time::Instant;

use burn::tensor::{DType, Device, Tensor};

use super::Warp;
use super::room::{Places, Room};
use super::run_sides;
use crate::error::Result;
use crate::image::{Affine, Geometry, Physical, index_affine};
use crate::ops::Outside;
use crate::parallel::{ExactMemory, Mesh, Sharded, ShardedAlignment};
use crate::register::deformable::{Deformation, Kind, deform_options};
use crate::register::level::{Stop, level_start, run_level};
use crate::register::pyramid::{finest_spacing_mm, level_geometry};
use crate::register::run::{Run, StageReport};
use crate::register::settings::LevelSettings;

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
    room: &Room,
    kind: &Kind,
    start: Start,
) -> Result<(Warp, StageReport, [f64; 2])> {
    let clock = Instant::now();
    let descent = kind.descent();
    let Start { affine, mut warp, initial } = start;
    let mut levels = Vec::new();
    let mut ended = None;
    for (index, level) in descent.levels.iter().enumerate() {
        let (grids, places) = Level::plan(run, room, level, kind, &affine)?;
        if places.is_exact {
            warp = warp.map(Warp::in_host_memory);
        }
        // Pools keep pages of the sizes that the level before asked for.
        room.devices().iter().for_each(Device::memory_cleanup);
        let mut on_level = Level::read(run, room.home(), grids, places)?;
        let is_last = index + 1 == descent.levels.len();
        // Before there is a displacement of this size.
        let known = is_last.then(|| on_level.losses(kind, [&affine, &initial])).transpose()?;
        let level = level_start(kind.name(), index, descent.levels, on_level.grids[0].size);
        let field = match warp.take() {
            Some(warp) => warp.resampled(&on_level.grids[0], &on_level.places)?.field,
            None => on_level.still(),
        };
        let mut deformation = on_level.deformation(kind, &affine, field)?;
        if is_last {
            // The blocks of the fixed image take its place.
            on_level.images = None;
        }
        let (interval, observer) = (run.settings.loss_interval, &mut *run.observer);
        let report = run_level(&level, &mut deformation, descent.convergence, interval, observer)?;
        let ends = is_last || report.stop == Stop::Cancelled;
        levels.push(report);
        let after = ends.then(|| deformation.loss()).transpose()?;
        let (geometry, fixed) = (on_level.grids[0].clone(), run.grids[0].clone());
        let work = on_level.places.work.clone();
        warp = Some(Warp { field: deformation.into_shards(), geometry, fixed, work });
        if let Some(after) = after {
            let before = match known {
                Some(known) => known,
                None => on_level.losses(kind, [&affine, &initial])?,
            };
            ended = Some((after, before));
            break;
        }
    }
    let (Some((loss_after, before)), Some(warp)) = (ended, warp) else {
        unreachable!("settings with no level do not validate")
    };
    let seconds = clock.elapsed().as_secs_f64();
    let report = StageReport { transform: kind.name(), levels, loss_after, kept: true, seconds };
    Ok((warp, report, before))
}

/// They are let go of once a stage is on its last level.
const IMAGES: &str = "nobody asks for the images of the last level when they are in blocks";

/// The images of a level, cut.
struct Level {
    /// Fixed and moving, as long as they are needed.
    images: Option<[Sharded; 2]>,
    grids: [Geometry; 2],
    places: Places,
    /// While the level is at work, where its places ask for it.
    _exact: Option<ExactMemory>,
}

impl Level {
    /// The grids of a level, and where its shards are.
    fn plan(
        run: &Run,
        room: &Room,
        level: &LevelSettings,
        kind: &Kind,
        affine: &Affine<Physical, Physical>,
    ) -> Result<([Geometry; 2], Places)> {
        let spacing_mm = level.shrink * finest_spacing_mm(&run.grids[0]);
        let least = run.settings.minimum_axis_voxels;
        let on_level = |i: usize| level_geometry(&run.grids[i], spacing_mm, least);
        let grids = [on_level(0)?, on_level(1)?];
        let options = deform_options(kind, &grids[0], &index_affine(&grids[0], &grids[1], affine));
        let places = room.places([&grids[0], &grids[1]], &options)?;
        Ok((grids, places))
    }

    fn read(run: &mut Run, home: &Device, grids: [Geometry; 2], places: Places) -> Result<Self> {
        let exact = places.is_exact.then(|| ExactMemory::on(home));
        let [fixed, moving] = run_sides(run);
        let fixed = fixed.level(&grids[0], &places.fixed, [&places.work, &places.rest])?;
        let meshes = [&places.moving_work, &places.moving_rest];
        let moving = moving.level(&grids[1], &places.moving, meshes)?;
        Ok(Self { images: Some([fixed, moving]), grids, places, _exact: exact })
    }

    /// No displacement.
    fn still(&self) -> Sharded {
        let Places { fixed, rest, .. } = &self.places;
        let shard = |k: usize| {
            let [d, h, w] = fixed.shard_size(k);
            Tensor::zeros([1, 3, d, h, w], (rest.device(k), DType::F32))
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
        Deformation::on_shards(images.each_ref(), &self.grids, kind, affine, field, self.work())
    }

    fn work(&self) -> &Mesh {
        &self.places.work
    }

    /// Of affine maps alone.
    fn losses(&self, kind: &Kind, affine: [&Affine<Physical, Physical>; 2]) -> Result<[f64; 2]> {
        let images = self.images.as_ref().expect(IMAGES);
        let is_cut = images.iter().any(|image| image.layout().count() > 1);
        let similarity = kind.descent().similarity;
        // Of shards no displacement is made for it.
        let loss = |affine: &Affine<Physical, Physical>| match is_cut {
            true => {
                let rule = (similarity.alignment_loss(), Outside::Background);
                let alignment = ShardedAlignment::new(images.clone(), rule, self.work());
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
