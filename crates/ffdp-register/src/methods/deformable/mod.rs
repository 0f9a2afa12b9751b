//! Deformable stages: fields, found level by level.
//!
//! With the affine map `A` that was found before, the moving image is seen through
//! `phi(x) = A (x + w(x))`: first the deformation and then the affine map, as ITK and ANTs compose
//! them. What a method improves are fields on the grid of the level (`method.rs` says which, and what
//! becomes of them), in as many shards as the level has (`../../fields.rs`); `level.rs` says how.

mod control;
mod deformation;
mod level;
mod method;
mod search;
mod splined;

use std::sync::Arc;
use std::time::Instant;

use control::Control;

pub(crate) use control::ControlSettings;
pub(crate) use deformation::{Deformation, Reached};
pub(crate) use level::Searched;
pub(crate) use method::{Buffers, FieldMethod, LevelTask, smoothing};

use crate::checkpoint::SavedField;
use crate::context::{Estimate, Run, StageResult};
use crate::fields::Fields;
use crate::level::{level_start, run_level};
use crate::level_memory::LevelProblem;
use crate::models::Deformed;
use crate::pair::LevelPair;
use crate::places::{ImagePlaces, Places};
use crate::processes::Report;
use crate::report::StageReport;
use crate::report::{LevelReport, Stop};
use crate::start::Start;
use ffdp_burn::losses::SimilarityLoss;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::Geometry;

/// A deformable stage, from `found` on; shared by all processes where its levels are large.
fn deform(
    run: &mut Run,
    name: &'static str,
    kind: &dyn FieldMethod,
    found: Estimate,
) -> Result<StageResult> {
    let start = Instant::now();
    let (mut levels, carried) = run.take_resumed(|saved| kind.restore(saved))?;
    let spent: f64 = levels.iter().map(|level| level.seconds).sum();
    let levels_of = kind.descent().levels;
    let mut fields = match carried {
        Some(fields) => Some(fields),
        None => found.deformed.as_ref().map(|found| kind.model().follow(found)).transpose()?,
    };
    let mut ended = None;
    // Where all levels were done before the run was resumed, the last one is judged.
    let first = levels.len();
    for index in first.min(levels_of.len() - 1)..levels_of.len() {
        let grids = run.level_grids(&levels_of[index])?;
        let task = Task { name, kind, index, grids, found: &found };
        let done = first == levels_of.len();
        let reached = task.reach(run, fields.take(), done)?;
        levels.extend(reached.report);
        let judged = reached.losses;
        let cancelled = levels.last().is_some_and(|level| level.stop == Stop::Cancelled);
        if !cancelled && !done {
            run.level_done(&levels, &reached.fields);
        }
        fields = Some(reached.fields);
        if let Some(losses) = judged {
            ended = Some(losses);
            break;
        }
    }
    let (Some(losses), Some(fields)) = (ended, fields) else {
        unreachable!("settings with no level do not validate")
    };
    let StageLosses { after: loss_after, known } = losses;
    let seconds = spent + start.elapsed().as_secs_f64();
    let (undone, margin) = (None, None);
    let deformed = Some(Deformed { model: kind.model(), fields });
    Ok(StageResult {
        found: Estimate { affine: found.affine, deformed },
        report: StageReport { transform: name, levels, loss_after, undone, margin, seconds },
        loss_without: known.alone,
        loss_before: known.before,
    })
}

/// A method that keeps its shards on devices was given one that has no room for them.
pub(crate) fn stays(name: &str, size: [usize; 3]) -> Error {
    let what = format!(
        "all shards of a level of {name} must have room on their devices: each product of its systems takes all voxels"
    );
    let given = format_args!("a level of {size:?} voxels, some of it in host memory");
    Error::invalid(what, given, "use more devices, a coarser last level, or another method")
}

/// One level of a stage.
struct Task<'a> {
    /// Of the stage.
    name: &'static str,
    kind: &'a dyn FieldMethod,
    index: usize,
    grids: [Geometry; 2],
    /// Before the stage.
    found: &'a Estimate,
}

/// What a level has come to.
struct LevelResult {
    fields: Fields,
    report: Option<LevelReport>,
    /// Where the stage ends.
    losses: Option<StageLosses>,
}

/// What a stage is judged by, on its last level.
struct StageLosses {
    /// Of what it has found.
    after: f64,
    /// Of the affine map that was found before, and where the run began.
    known: KnownLosses,
}

/// Losses of what was there before a stage.
struct KnownLosses {
    /// Of the affine map alone.
    alone: f64,
    /// Of the initial transform.
    before: f64,
}

impl Task<'_> {
    /// The level, from `fields` on, where it has room; nothing is iterated if it was `done` before.
    fn reach(&self, run: &mut Run, fields: Option<Fields>, done: bool) -> Result<LevelResult> {
        let grids = self.grids.each_ref();
        if !run.processes.is_several() {
            let places = run.placement.places(&self.problem(run))?;
            return self.on(run, places, fields, done);
        }
        match run.processes.places(&run.placement, grids)? {
            Some(places) => self.on(run, places, fields, done),
            None => self.on_first(run, fields, done),
        }
    }

    /// The level as a device's memory sees it.
    fn problem(&self, run: &Run) -> LevelProblem {
        self.kind.level(self.grids.each_ref(), run.content())
    }

    /// The control points of the level.
    fn control(&self, run: &Run) -> Option<Control> {
        let place = [self.index, self.kind.descent().levels.len()];
        Some(self.kind.control_points()?.on(&run.grids[0], &self.grids[0], place))
    }

    fn similarity(&self) -> Arc<dyn SimilarityLoss> {
        self.kind.descent().similarity.loss()
    }

    /// The level where `places` say; shared by all ranks if the places are.
    fn on(
        &self,
        run: &mut Run,
        places: Places,
        fields: Option<Fields>,
        done: bool,
    ) -> Result<LevelResult> {
        let fields = match fields {
            Some(fields) if places.exact.is_some() => {
                Some(fields.in_host_memory(&places.fixed.layout)?)
            }
            fields => fields,
        };
        let mut pair = self.pair(run, places)?;
        let is_last = self.index + 1 == self.kind.descent().levels.len();
        // Before there is a displacement of this size.
        let known = is_last.then(|| self.losses(run, &pair)).transpose()?;
        let mut deformation = self.begin(run, &pair, fields)?;
        let is_displacement = !self.kind.model().gives_inverse();
        if is_last && is_displacement {
            // The blocks of the fixed image take its place.
            pair.release();
        }
        let report = (!done).then(|| self.iterate(run, &mut *deformation)).transpose()?;
        let cancelled = report.as_ref().is_some_and(|report| report.stop == Stop::Cancelled);
        let ends = is_last || cancelled;
        let after = (ends && is_displacement).then(|| deformation.loss()).transpose()?;
        let Places { fixed: ImagePlaces { work, .. }, team, .. } = pair.places.clone();
        let (parts, exact) = deformation.into_fields()?;
        let geometry = self.grids[0].clone();
        let fields = Fields { parts, geometry, work, holders: team.fixed, exact };
        if !ends {
            return Ok(LevelResult { fields, report, losses: None });
        }
        let after = match after {
            Some(after) => after,
            None => self.loss_of(&fields, &pair)?,
        };
        let known = known.map_or_else(|| self.losses(run, &pair), Ok)?;
        Ok(LevelResult { fields, report, losses: Some(StageLosses { after, known }) })
    }

    /// The images of the level.
    fn pair(&self, run: &mut Run, places: Places) -> Result<LevelPair> {
        run.settle(&places)?;
        let pair = run.pair(self.grids.clone(), places)?;
        if self.index == 0 {
            pair.check_weights(&self.found.affine)?;
        }
        Ok(pair)
    }

    /// What improves the fields, from `fields` on.
    fn begin(
        &self,
        run: &Run,
        pair: &LevelPair,
        fields: Option<Fields>,
    ) -> Result<Box<dyn Deformation>> {
        let fields = fields.map(|fields| fields.resampled(&self.grids[0], &pair.places));
        let (fields, control) = (fields.transpose()?, self.control(run));
        let affine = &self.found.affine;
        let (full, index, levels) = (&run.grids[0], self.index, self.kind.descent().levels.len());
        let task = LevelTask { pair, affine, fields, full, index, levels };
        match self.kind.begin(&task) {
            Some(begun) => begun,
            None => level::begin(self.kind, pair, affine, task.fields, control.as_ref()),
        }
    }

    /// All iterations of the level.
    fn iterate(&self, run: &mut Run, deformation: &mut dyn Deformation) -> Result<LevelReport> {
        let descent = self.kind.descent();
        let level = level_start(self.name, self.index, descent.levels, self.grids[0].size);
        let mut observer = run.processes.together(&mut *run.observer);
        run_level(&level, deformation, descent.convergence, run.loss_interval, &mut observer)
    }

    /// The loss of what fields stand for.
    fn loss_of(&self, fields: &Fields, pair: &LevelPair) -> Result<f64> {
        let (mut w, _) = self.kind.model().maps(fields)?;
        pair.loss(&self.similarity(), &self.found.affine, Some(w.parts.remove(0)))
    }

    /// Of the affine map that was found before alone, and where the run began.
    fn losses(&self, run: &Run, pair: &LevelPair) -> Result<KnownLosses> {
        let similarity = self.similarity();
        let (affine, Start { affine: first, deformation }) = (&self.found.affine, &run.start);
        let alone = pair.loss(&similarity, affine, None)?;
        let given = deformation.as_ref().map(|given| {
            Fields::of_exact(given.clone(), &pair.grids[0], &pair.places)
                .map(|mut fields| fields.parts.remove(0))
        });
        let before = match given.transpose()? {
            None if affine.rows() == first.rows() => alone,
            given => pair.loss(&similarity, first, given)?,
        };
        Ok(KnownLosses { alone, before })
    }

    /// The level on rank 0, and what comes of it on all.
    fn on_first(&self, run: &mut Run, fields: Option<Fields>, done: bool) -> Result<LevelResult> {
        let processes = run.processes.clone();
        let fields = fields.map(|fields| fields.on_first(&processes)).transpose()?.flatten();
        let mut mine = None;
        let home = run.placement.home().clone();
        let report = processes.run_on_root(|| {
            let places = run.placement.places(&self.problem(run))?;
            let reached = run.alone(|run| self.on(run, places, fields, done))?;
            let saved = reached.fields.exact.as_ref().and_then(|exact| exact.saved());
            let saved = saved.map_or(Ok(Vec::new()), |saved| saved.numbers())?;
            mine = Some(reached.fields);
            let losses = reached.losses.map_or([f64::NAN; 3], |StageLosses { after, known }| {
                [after, known.alone, known.before]
            });
            let numbers = [&losses[..], &saved].concat();
            Ok(Report::new(&numbers, reached.report.into_iter().collect(), None))
        })?;
        let (count, grid) = (self.kind.count(), &self.grids[0]);
        let mut fields = Fields::of_first(&processes, mine, count, grid, &home)?;
        let numbers = report.numbers();
        let (losses, saved) = numbers.split_at(3);
        if !saved.is_empty() {
            fields.exact = Some(self.kind.restore(&SavedField::of_numbers(saved)?)?);
        }
        // Not a number where the stage goes on.
        let losses = (!losses[0].is_nan()).then(|| StageLosses {
            after: losses[0],
            known: KnownLosses { alone: losses[1], before: losses[2] },
        });
        Ok(LevelResult { fields, report: report.levels.into_iter().next(), losses })
    }
}
