//! Linear stages: where the moving image lies as a whole.
//!
//! `moments.rs` makes the first guess, [`RIGID`], [`SIMILARITY`] and [`AFFINE`] improve it over the levels. Every map
//! is of physical space, so that grids, spacings and orientations play no part.
//! Read `motion.rs` first (what the parameters are), then `search.rs` (how they are found).

mod affine;
mod information;
mod mass;
mod moments;
mod motion;
mod orientations;
mod rigid;
mod search;
mod similarity;
mod together;

#[cfg(test)]
mod tests;

use std::time::Instant;

use affine::General;
use information::is_informative;
use mass::Mass;
use motion::{Frame, Motion};
use rigid::Rigid;
use search::{Bounds, Judged, LinearSearch, State};
use similarity::Similar;

use crate::context::{Estimate, Run, StageResult};
use crate::level::{level_start, run_level};
use crate::methods::StageMethod;
use crate::report::{StageReport, Stop, Undone};
use crate::settings::{FOREGROUND, LevelSettings, LinearSettings, Next, Similarity};
use ffdp_image::error::Result;

/// The stage that turns and shifts.
pub(super) const RIGID: &str = "rigid";
/// The same with one scale.
pub(super) const SIMILARITY: &str = "similarity";
/// All linear maps.
pub(super) const AFFINE: &str = "affine";

impl StageMethod for LinearSettings {
    fn levels(&self) -> &[LevelSettings] {
        &self.levels
    }

    fn levels_mut(&mut self) -> &mut [LevelSettings] {
        &mut self.levels
    }

    fn set_levels(&mut self, levels: Vec<LevelSettings>) {
        self.levels = levels;
    }

    fn for_images(&mut self, longest_voxels: f64, next: Next) {
        self.levels = self.levels_for(longest_voxels, next);
    }

    fn similarity(&self) -> &Similarity {
        &self.similarity
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        LinearSettings::validate(self)
    }

    fn run(&self, name: &'static str, run: &mut Run, found: Estimate) -> Result<StageResult> {
        match name {
            RIGID => linear::<Rigid, 6>(run, name, self, found),
            SIMILARITY => linear::<Similar, 7>(run, name, self, found),
            _ => linear::<General, 12>(run, name, self, found),
        }
    }
}

/// A linear stage of a name, from what was found before.
fn linear<M: Motion<N>, const N: usize>(
    run: &mut Run,
    name: &'static str,
    settings: &LinearSettings,
    found: Estimate,
) -> Result<StageResult> {
    let start = Instant::now();
    let mut levels = Vec::with_capacity(settings.levels.len());
    let mut state = State::<N>::default();
    let mut frame = None;
    let similarity = settings.similarity.loss();
    // Noise hides on fine levels what coarse ones share.
    let mut informative = !similarity.may_ignore_outside();
    for (index, level) in settings.levels.iter().enumerate() {
        let frame = match frame {
            Some(frame) => frame,
            None => *frame.insert(frame_of(run, settings)?),
        };
        let grids = run.level_grids(level)?;
        let places = run.linear_places(&grids)?;
        let pair = run.pair(grids, places)?;
        if index == 0 {
            pair.check_weights(&found.affine)?;
        }
        let aligned = pair.alignment(similarity.clone(), settings.outside);
        let level = level_start(name, index, &settings.levels, pair.grids[0].size);
        let images = Judged::from(&aligned);
        let bounds = Bounds::of(settings, &images, &found.affine);
        let mut search = LinearSearch::<M, N>::new(images, frame, bounds, found.affine, state);
        let (convergence, interval) = (&settings.convergence, run.loss_interval);
        let report = run_level(&level, &mut search, convergence, interval, &mut *run.observer)?;
        let ends = index + 1 == settings.levels.len() || report.stop == Stop::Cancelled;
        levels.push(report);
        informative = informative || is_informative(&pair, &frame, &search.map())?;
        if !ends {
            state = search.into_state();
            continue;
        }
        let (affine, loss_after) = (search.map(), search.loss()?);
        let loss_without = aligned.loss(&found.affine)?;
        let loss_before = aligned.loss(&run.start.affine)?;
        let seconds = start.elapsed().as_secs_f64();
        let undone = match bounds.hold(&search.motion()) {
            true => Some(Undone::AtBound),
            false if !informative => Some(Undone::Uninformative),
            false => None,
        };
        let report =
            StageReport { transform: name, levels, loss_after, undone, margin: None, seconds };
        let found = Estimate { affine, ..found };
        return Ok(StageResult { found, report, loss_without, loss_before });
    }
    unreachable!("settings with no level do not validate")
}

/// What the parameters are measured against: the object in the fixed image, on the coarsest level, or a
/// coarser one where that is not whole.
fn frame_of(run: &mut Run, settings: &LinearSettings) -> Result<Frame> {
    let mut level = *settings.levels.first().expect("settings with no level do not validate");
    let [fixed, _] = run.whole_pair(&mut level)?.volumes()?;
    let mass = Mass::of(&fixed, FOREGROUND);
    Ok(Frame { centre_mm: mass.centre_mm, radius_mm: mass.radius_mm() })
}
