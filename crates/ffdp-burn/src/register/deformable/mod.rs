//! Deformable stages: fields, found level by level.
//!
//! With the affine map `A` that was found before, the moving image is seen through
//! `phi(x) = A (x + w(x))`: first the deformation and then the affine map, as ITK and ANTs compose
//! them. What a method improves is a field on the grid of the level (`kind.rs` says which, and what
//! becomes of it); `level.rs` is one level as the iterations see it, `work.rs` where they are done.

mod field;
mod kind;
mod level;
mod work;

use std::time::Instant;

use field::Field;
pub(super) use kind::Kind;
pub(super) use level::{Deformation, deform_options, measure, optimizer};
pub(super) use work::SHARED_VOXELS;

use super::checkpoint::Carried;
use super::comparison::Comparison;
use super::level::{Stop, level_start, run_level};
use super::run::{Found, Run, StageReport};
use crate::error::Result;

/// A deformable stage, from `found` on.
pub(super) fn deform(
    run: &mut Run,
    kind: &Kind,
    found: Found,
) -> Result<(Found, StageReport, Comparison)> {
    let start = Instant::now();
    let descent = kind.descent();
    let full = &run.grids[0].clone();
    let (mut levels, carried) = run.take_resumed();
    let spent: f64 = levels.iter().map(|level| level.seconds).sum();
    let begin = || kind.start(found.warp.as_ref(), full, run.device());
    let mut field = Field::of_parts(carried.fields).unwrap_or_else(begin);
    let mut finest = None;
    for (index, level) in descent.levels.iter().enumerate().skip(levels.len()) {
        let comparison = run.comparison(level, descent.similarity)?;
        if index == 0 {
            let warp = found.warp.as_ref().map(|w| w.resampled(&comparison.fixed.geometry));
            comparison.check_weights(&found.affine, warp.as_ref())?;
        }
        let before = field.resampled(&comparison.fixed.geometry);
        let level = level_start(kind.name(), index, descent.levels, comparison.fixed.geometry.size);
        let mut deformation =
            Deformation::new(&comparison, kind, &found.affine, before, &run.mesh)?;
        let report = run_level(
            &level,
            &mut deformation,
            descent.convergence,
            run.settings.loss_interval,
            run.observer,
        )?;
        let cancelled = report.stop == Stop::Cancelled;
        levels.push(report);
        field = deformation.into_field();
        finest = Some(comparison);
        if cancelled {
            break;
        }
        run.level_done(&levels, Carried { fields: field.parts()?, numbers: Vec::new() });
    }
    let comparison = match (finest, descent.levels.last()) {
        (Some(comparison), _) => comparison,
        // Every level was done before the run was resumed.
        (None, Some(level)) => run.comparison(level, descent.similarity)?,
        (None, None) => unreachable!("settings with no level do not validate"),
    };
    let (warp, inverse) = kind.maps(&field.resampled(full))?;
    let on_level = warp.resampled(&comparison.fixed.geometry);
    let loss_after = comparison.loss(&found.affine, Some(&on_level))?;
    let found = Found { warp: Some(warp), inverse, ..found };
    let seconds = spent + start.elapsed().as_secs_f64();
    let report = StageReport { transform: kind.name(), levels, loss_after, kept: true, seconds };
    Ok((found, report, comparison))
}
