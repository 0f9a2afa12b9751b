//! Linear stages: where the moving image lies as a whole.
//!
//! [`moments`](moments()) makes the first guess, [`rigid`] and [`affine`] improve it over the levels. Every map is of physical space, so that grids, spacings and orientations play no part.
//! Read `motion.rs` first (what the parameters are), then `bfgs.rs` (how they are found).

mod affine;
mod bfgs;
mod eigen;
mod mass;
mod moments;
mod motion;
mod rigid;
mod shards;

#[cfg(test)]
mod tests;

use std::time::Instant;

pub(super) use moments::moments;
pub(super) use shards::ShardedPair;

use affine::General;
use bfgs::{Bfgs, State};
use mass::Mass;
use motion::{Frame, Motion};
use rigid::Rigid;

use super::comparison::{Alike, Comparison};
use super::level::{Stop, level_start, run_level};
use super::run::{Found, Run, StageReport};
use super::settings::{FOREGROUND, LinearSettings};
use crate::error::Result;

/// A rigid stage, from `found` on.
pub(super) fn rigid(
    run: &mut Run,
    settings: &LinearSettings,
    found: Found,
) -> Result<(Found, StageReport, Box<dyn Alike>)> {
    linear::<Rigid, 6>(run, "rigid", settings, found)
}

/// An affine stage, from `found` on.
pub(super) fn affine(
    run: &mut Run,
    settings: &LinearSettings,
    found: Found,
) -> Result<(Found, StageReport, Box<dyn Alike>)> {
    linear::<General, 12>(run, "affine", settings, found)
}

fn linear<M: Motion<N>, const N: usize>(
    run: &mut Run,
    name: &'static str,
    settings: &LinearSettings,
    found: Found,
) -> Result<(Found, StageReport, Box<dyn Alike>)> {
    let start = Instant::now();
    let mut levels = Vec::with_capacity(settings.levels.len());
    let mut state = State::<N>::default();
    let mut frame = None;
    let mut finest = None;
    for (index, level) in settings.levels.iter().enumerate() {
        let frame = match frame {
            Some(frame) => frame,
            None => *frame.insert(frame_of(run, settings)?),
        };
        let comparison = run.alike(level, settings.similarity, settings.outside)?;
        let size = comparison.grids()[0].size;
        let level = level_start(name, index, &settings.levels, size);
        let mut search = Bfgs::<M, N>::new(&*comparison, frame, found.affine, state);
        let (convergence, interval) = (&settings.convergence, run.settings.loss_interval);
        let report = run_level(&level, &mut search, convergence, interval, run.observer)?;
        let cancelled = report.stop == Stop::Cancelled;
        levels.push(report);
        state = search.state();
        let (map, loss) = (search.map(), search.loss()?);
        finest = Some((comparison, map, loss));
        if cancelled {
            break;
        }
    }
    let Some((comparison, affine, loss_after)) = finest else {
        unreachable!("settings with no level do not validate")
    };
    let seconds = start.elapsed().as_secs_f64();
    let report = StageReport { transform: name, levels, loss_after, kept: true, seconds };
    Ok((Found { affine, ..found }, report, comparison))
}

/// What the parameters are measured against: the object in the fixed image, on the coarsest level, or a
/// coarser one where that is not whole.
fn frame_of(run: &mut Run, settings: &LinearSettings) -> Result<Frame> {
    let mut level = *settings.levels.first().expect("settings with no level do not validate");
    while run.linear_places(&run.level_grids(&level)?)?.is_some() {
        level.shrink *= 2.0;
    }
    let comparison: Comparison = run.comparison(&level, settings.similarity)?;
    let [fixed, _] = comparison.volumes()?;
    let mass = Mass::of(&fixed, FOREGROUND);
    Ok(Frame { centre_mm: mass.centre_mm, radius_mm: mass.radius_mm() })
}
