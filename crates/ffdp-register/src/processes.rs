//! The processes that share a registration of slabs: who does what, and how the others learn of it.
//!
//! Deformable levels with planes enough are shared: every rank has its part of them and runs the same iterations. All
//! else, linear stages and small levels, is done by rank 0 alone, and broadcast to the others.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::checkpoint::Checkpoint;
use super::observer::Observer;
use super::places::{ImagePlaces, Placement, Places, SHARED_VOXELS};
use super::report::{LevelReport, LevelStart, NewtonStep, Progress, Undone};
use ffdp_image::error::{Error, Result};
use ffdp_image::image::Geometry;
use ffdp_parallel::{
    Axis, Cuts, DeviceMesh, Layout, Sharded,
    deform::Team,
    hosts::{Holders, Ranks, agree},
};

/// Planes of each shard, on the average, from which a level is shared. Comparing a shard by LNCC computes some 18
/// planes of its neighbours as well.
const SHARED_PLANES: usize = 16;

/// This process, alone or among others.
#[derive(Clone, Debug)]
pub(super) struct Processes {
    ranks: Option<Arc<dyn Ranks>>,
    /// Shards of every rank.
    shards: Vec<usize>,
}

/// What rank 0 broadcasts of what it has done alone.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// As bits: text rounds.
    numbers: Vec<u64>,
    pub levels: Vec<LevelReport>,
    pub undone: Option<Undone>,
}

impl Report {
    pub fn new(numbers: &[f64], levels: Vec<LevelReport>, undone: Option<Undone>) -> Self {
        Self { numbers: numbers.iter().map(|number| number.to_bits()).collect(), levels, undone }
    }

    pub fn numbers(&self) -> Vec<f64> {
        self.numbers.iter().copied().map(f64::from_bits).collect()
    }
}

impl Processes {
    /// One process.
    pub fn alone() -> Self {
        Self { ranks: None, shards: Vec::new() }
    }

    /// Those of a placement.
    ///
    /// # Errors
    /// [`Error::LostRank`].
    pub fn of(placement: &Placement) -> Result<Self> {
        let Placement::Ranks { mesh, ranks } = placement else {
            return Ok(Self::alone());
        };
        let shards = ranks.all_gather(&[mesh.count() as f64])?;
        let shards = shards.into_iter().map(|count| count as usize).collect();
        Ok(Self { ranks: Some(ranks.clone()), shards })
    }

    /// Whether there are others.
    pub fn is_several(&self) -> bool {
        self.ranks.is_some()
    }

    /// Whether this is the one that does what is not shared, and writes.
    pub fn is_first(&self) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| ranks.rank() == 0)
    }

    /// As [`agree`]; of one process, what it has.
    ///
    /// # Errors
    /// As [`agree`].
    pub fn agree<T>(&self, mine: Result<T>) -> Result<T> {
        match &self.ranks {
            Some(ranks) => agree(ranks.as_ref(), mine),
            None => mine,
        }
    }

    /// Demands that all ranks were given the same task.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is another than rank 0's, [`Error::LostRank`].
    pub fn check_same_task(&self, task: &impl Debug) -> Result<()> {
        let Some(ranks) = &self.ranks else { return Ok(()) };
        let mut hasher = DefaultHasher::new();
        format!("{task:?}").hash(&mut hasher);
        let hash = hasher.finish();
        // Exact in f64.
        let halves = [hash >> 32, hash & 0xffff_ffff].map(|half| half as f64);
        let all = ranks.all_gather(&halves)?;
        if all[..2] == halves {
            return Ok(());
        }
        let what = "all ranks register images of the same sizes with the same settings";
        Err(Error::invalid(what, "others than rank 0's", "give all of them the same arguments"))
    }

    /// Where a level with these grids goes on all ranks; `None` if rank 0 does it alone.
    ///
    /// # Errors
    /// Those of cutting it.
    pub fn places(&self, placement: &Placement, grids: [&Geometry; 2]) -> Result<Option<Places>> {
        let (Some(ranks), Placement::Ranks { mesh, .. }) = (&self.ranks, placement) else {
            return Ok(None);
        };
        let [fixed, moving] = grids.map(Geometry::dims);
        let total = self.shards.iter().sum::<usize>();
        let is_slow = *mesh.device(0) == Device::flex();
        if fixed[0] < SHARED_PLANES * total || !is_slow && grids[0].len() < SHARED_VOXELS {
            return Ok(None);
        }
        let rank = ranks.rank();
        let whole = Layout::balanced(fixed, Axis::Z, total)?;
        let fixed_cuts = self.cuts(&whole);
        let fixed = whole.part(self.shards_of(rank));
        // Too few planes for all: everybody has them.
        let shared = moving[0] >= total;
        let whole = Layout::balanced(moving, Axis::Z, if shared { total } else { 1 })?;
        let cuts = shared.then(|| self.cuts(&whole));
        let moving = if shared { whole.part(self.shards_of(rank)) } else { whole };
        let moving_mesh = if shared { mesh.clone() } else { DeviceMesh::one(mesh.device(0)) };
        let moving = ImagePlaces::staying(moving, &moving_mesh);
        let team = Team::new(ranks, fixed_cuts, cuts);
        let fixed = ImagePlaces::staying(fixed, mesh);
        Ok(Some(Places { fixed, moving, exact: None, team }))
    }

    /// The shards of a rank in a layout of all.
    fn shards_of(&self, rank: usize) -> Range<usize> {
        let first = self.shards[..rank].iter().sum();
        first..first + self.shards[rank]
    }

    /// The planes of every rank in a layout of all shards.
    fn cuts(&self, layout: &Layout) -> Cuts {
        let end = |rank| layout.planes(self.shards_of(rank).end - 1).end;
        let ends = (0..self.shards.len()).map(end);
        Cuts::from_ends(std::iter::once(0).chain(ends).collect())
    }

    /// What rank 0 has done, on all ranks; the others do not do it. If it fails, all do.
    ///
    /// # Errors
    /// Those of `work`, [`Error::LostRank`].
    pub fn run_on_root(&self, work: impl FnOnce() -> Result<Report>) -> Result<Report> {
        let Some(ranks) = &self.ranks else { return work() };
        let mine = agree(ranks.as_ref(), self.is_first().then(work).transpose())?;
        let unread = |reason: serde_json::Error| Error::device("telling other ranks", reason);
        let bytes = mine.as_ref().map(serde_json::to_vec).transpose().map_err(unread)?;
        let bytes = ranks.broadcast(bytes.unwrap_or_default())?;
        match mine {
            Some(mine) => Ok(mine),
            None => serde_json::from_slice(&bytes).map_err(unread),
        }
    }

    /// A field `[1, 3, D, H, W]` of rank 0, on all ranks.
    ///
    /// # Errors
    /// [`Error::LostRank`], and [`Error::Device`] when it cannot be read.
    pub fn field_of_first(
        &self,
        field: Option<Tensor<5>>,
        [d, h, w]: [usize; 3],
        device: &Device,
    ) -> Result<Tensor<5>> {
        let Some(ranks) = &self.ranks else {
            return Ok(field.expect("one process has done it itself"));
        };
        let values = match field {
            Some(field) => field.try_into_vec_as::<f32>().map_err(|reason| {
                Error::device("reading a displacement for other ranks", reason)
            })?,
            None => Vec::new(),
        };
        let bytes = ranks.broadcast(bytemuck::cast_slice(&values).to_vec())?;
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        Ok(ffdp_image::image::upload(values, [1, 3, d, h, w], device))
    }

    /// Numbers of rank 0, on all ranks.
    ///
    /// # Errors
    /// [`Error::LostRank`].
    pub fn numbers_of_first<const N: usize>(&self, mine: [f64; N]) -> Result<[f64; N]> {
        let Some(ranks) = &self.ranks else { return Ok(mine) };
        let all = ranks.all_gather(&mine)?;
        Ok(std::array::from_fn(|i| all[i]))
    }

    /// Planes of a volume on rank 0, which alone wants them; `None` on the others.
    ///
    /// # Errors
    /// As [`Holders::fetch`].
    pub fn to_first(
        &self,
        volume: &Sharded,
        holders: &Holders,
        planes: Range<usize>,
    ) -> Result<Option<Sharded>> {
        if !holders.are_several() {
            return Ok(self.is_first().then(|| volume.clone()));
        }
        let mut wanted = vec![0..0; self.shards.len()];
        wanted[0] = planes;
        holders.fetch(volume, &wanted)
    }

    /// An observer that all ranks have in common: if one of theirs ends the run, it ends for all.
    pub fn together<'a>(&'a self, observer: &'a mut dyn Observer) -> Together<'a> {
        Together { observer, ranks: self.ranks.as_deref() }
    }
}

/// See [`Processes::together`].
pub(super) struct Together<'a> {
    observer: &'a mut dyn Observer,
    ranks: Option<&'a dyn Ranks>,
}

impl Together<'_> {
    fn any(&self, mine: ControlFlow<()>) -> ControlFlow<()> {
        let Some(ranks) = self.ranks else { return mine };
        match ranks.all_gather(&[f64::from(u8::from(mine.is_break()))]) {
            Ok(all) if all.iter().all(|breaks| *breaks == 0.0) => ControlFlow::Continue(()),
            // A lost rank shows in what is done next.
            _ => ControlFlow::Break(()),
        }
    }
}

impl Observer for Together<'_> {
    fn level_started(&mut self, level: &LevelStart) -> ControlFlow<()> {
        let mine = self.observer.level_started(level);
        self.any(mine)
    }

    fn losses_read(&mut self, progress: &Progress) -> ControlFlow<()> {
        let mine = self.observer.losses_read(progress);
        self.any(mine)
    }

    fn newton_step(&mut self, step: &NewtonStep) {
        self.observer.newton_step(step);
    }

    fn level_finished(&mut self, level: &LevelReport) -> ControlFlow<()> {
        let mine = self.observer.level_finished(level);
        self.any(mine)
    }

    fn reached(&mut self, checkpoint: &Checkpoint) {
        self.observer.reached(checkpoint);
    }
}
