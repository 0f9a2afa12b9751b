//! The stages of a run, one after the other.

use super::checkpoint::{Checkpoint, SavedField};
use super::checks::check_overlap;
use super::context::{Estimate, Run, StageResult};
use super::fields::Fields;
use super::level::check_finite_loss;
use super::methods::{Stage, StageInputs};
use super::models::Deformed;
use super::parametric::spline_of;
use super::places::Placement;
use super::problem::Content;
use super::processes::Report;
use super::report::{Outcome, StageReport, Stop, Undone};
use super::schedule::Settings;
use super::settings::LevelSettings;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Physical};

/// The result of all stages.
pub(super) struct StagesResult {
    pub found: Estimate,
    pub stages: Vec<StageReport>,
    pub loss_before: f64,
    pub loss_after: f64,
    pub contrast: Option<f64>,
    pub outcome: Outcome,
}

impl Run<'_> {
    /// All stages that the checkpoint has not done.
    pub fn stages(&mut self, settings: &Settings) -> Result<StagesResult> {
        let mut stages = self.checkpoint.stages.clone();
        if stages.len() >= settings.stages.len() {
            let what = "a checkpoint must belong to the settings: it has as many stages or more";
            return Err(Error::invalid(what, stages.len(), "start the run anew"));
        }
        let deformed = self.take_found(settings)?;
        let mut found = Estimate { affine: self.checkpoint.affine, deformed };
        let (mut loss_before, mut contrast) = (f64::NAN, None);
        for stage in &settings.stages[stages.len()..] {
            let before = found.clone();
            self.check_given(stage)?;
            if contrast.is_none() && !stage.is_linear() && stage.compares_intensities() {
                contrast = Some(self.contrast(&found.affine)?);
            }
            let mut staged = match stage.is_linear() {
                true => self.linear(stage, found)?,
                false => stage.run(self, found)?,
            };
            let is_driven = self.landmarks.is_some();
            (found, loss_before) =
                (kept(stage, before, is_driven, &mut staged)?, staged.loss_before);
            if matches!(stage, Stage::Moments(_)) {
                check_overlap(&self.grids[0], &self.grids[1], &found.affine)?;
            }
            let ended = staged.report.levels.iter().any(|level| level.stop == Stop::Cancelled);
            stages.push(staged.report);
            if ended {
                break;
            }
            if stages.len() < settings.stages.len() {
                self.stage_done(&stages, &found);
            }
        }
        let loss_after = stages.last().expect("settings with no stage do not validate").loss_after;
        check_finite_loss(loss_after)?;
        let outcome = Outcome::of(&stages, [loss_before, loss_after]);
        Ok(StagesResult { found, stages, loss_before, loss_after, contrast, outcome })
    }

    /// What the stages that have ended found, by the method of the last of them that deforms; before the first of them,
    /// what the run begins with.
    fn take_found(&mut self, settings: &Settings) -> Result<Option<Deformed>> {
        let found = std::mem::take(&mut self.checkpoint.found);
        let ended = settings.stages[..self.checkpoint.stages.len()].iter().rev();
        let method = ended.filter_map(Stage::fields).next();
        let restore = |saved: &SavedField| match method {
            Some(method) => method.restore(saved),
            None => spline_of(saved),
        };
        let fields = Fields::restored(found, self.placement.home(), self.whole, restore)?;
        match (fields, method) {
            (Some(fields), Some(method)) => Ok(Some(Deformed { model: method.model(), fields })),
            (Some(fields), None) => Ok(Some(Deformed::displacement(fields))),
            (None, _) if !self.checkpoint.stages.is_empty() => Ok(None),
            (None, _) => {
                let levels = settings.stages.iter().find_map(|stage| stage.levels().first());
                let [grid, _] =
                    self.level_grids(levels.expect("settings with no level do not validate"))?;
                let given = self.start.fields(&grid, self.placement.home())?;
                Ok(given.map(Deformed::displacement))
            }
        }
    }

    /// Demands that a stage can work with what it is given.
    fn check_given(&self, stage: &Stage) -> Result<()> {
        let Content { channels, labels, masked } = self.content();
        let channels = channels - labels;
        let parts = match &self.placement {
            Placement::DeviceMesh(mesh) => mesh.count() > 1,
            Placement::Device { .. } | Placement::Ranks { .. } => true,
        };
        // What rests is known of levels only; they are checked where they are placed.
        let processes = self.processes.is_several();
        let given = StageInputs { channels, masked, parts, at_rest: false, processes };
        let Some(reason) = stage.refuses(&given) else { return Ok(()) };
        let what = format!("the stage {} must be able to work with what it is given", stage.name());
        let given = format_args!("{given:?}, and {reason}");
        Err(Error::invalid(what, given, "use another stage, or give it what it can work with"))
    }

    /// A linear stage, on rank 0; what it has found, on all.
    fn linear(&mut self, stage: &Stage, found: Estimate) -> Result<StageResult> {
        let processes = self.processes.clone();
        let deformed = found.deformed.clone();
        let report = processes.run_on_root(|| {
            let StageResult { found, report, loss_without, loss_before } =
                stage.run(self, found)?;
            let losses = vec![report.loss_after, loss_without, loss_before, report.seconds];
            let margin = vec![report.margin.unwrap_or(f64::NAN)];
            let numbers = [found.affine.rows().concat(), losses, margin].concat();
            Ok(Report::new(&numbers, report.levels, report.undone))
        })?;
        let numbers = report.numbers();
        let row = |first: usize| [0, 1, 2, 3].map(|column| numbers[first + column]);
        let affine = Affine::from_rows([row(0), row(4), row(8)]);
        let [loss_after, loss_without, loss_before, seconds] = row(12);
        let margin = Some(numbers[16]).filter(|margin| !margin.is_nan());
        let Report { levels, undone, .. } = report;
        let transform = stage.name();
        Ok(StageResult {
            found: Estimate { affine, deformed },
            report: StageReport { transform, levels, loss_after, undone, margin, seconds },
            loss_without,
            loss_before,
        })
    }

    /// How intensities go together under an affine map, on a coarse level; on all ranks.
    fn contrast(&mut self, affine: &Affine<Physical, Physical>) -> Result<f64> {
        /// That of the moments.
        const SHRINK: f64 = 8.0;
        let processes = self.processes.clone();
        let report = processes.run_on_root(|| {
            let mut level = LevelSettings { shrink: SHRINK, iterations: 0 };
            let contrast = self.whole_pair(&mut level)?.contrast(affine)?;
            Ok(Report::new(&[contrast], Vec::new(), None))
        })?;
        Ok(report.numbers()[0])
    }

    fn stage_done(&mut self, stages: &[StageReport], found: &Estimate) {
        let start = Checkpoint::start(found.affine);
        self.checkpoint = Checkpoint { stages: stages.to_vec(), ..start };
        // Of several processes none has all that was deformed.
        if self.processes.is_several() && found.deformed.is_some() {
            return;
        }
        let fields = found.deformed.iter().flat_map(|deformed| deformed.fields.saved());
        self.checkpoint.found = fields.collect();
        self.observer.reached(&self.checkpoint);
        self.checkpoint.found.clear();
    }
}

/// What a stage found, or what was there before it if that aligns them better or the stage ended at its bounds. Moments
/// have tried the start themselves; a deformation that refines another one starts from it and is not judged, nor is what
/// landmarks drive by how alike the images are.
fn kept(
    stage: &Stage,
    before: Estimate,
    is_driven: bool,
    staged: &mut StageResult,
) -> Result<Estimate> {
    let refines = before.deformed.is_some();
    if matches!(stage, Stage::Moments(_)) || refines {
        return Ok(staged.found.clone());
    }
    let alike = is_driven || staged.report.loss_after <= staged.loss_without;
    if staged.report.undone.is_none() && alike {
        return Ok(staged.found.clone());
    }
    check_finite_loss(staged.report.loss_after)?;
    staged.report.undone.get_or_insert(Undone::LessAlike);
    staged.report.loss_after = staged.loss_without;
    Ok(before)
}
