//! Deformable stages: displacement fields, found level by level.
//!
//! With the affine map `A` that was found before, the moving image is seen through
//! `phi(x) = A x + u(x)`. The field `u` is what the methods improve; outside this folder the same map is
//! `A (x + w(x))`, first the deformation and then the affine map, as ITK and ANTs compose them, and
//! `w = A_lin^-1 u`.

mod greedy;

use std::time::Instant;

use greedy::Greedy;

use super::comparison::Comparison;
use super::level::{Stop, level_start, run_level};
use super::run::{Found, Run, StageReport};
use super::settings::GreedySettings;
use crate::error::Result;
use crate::image::{Affine, Matrix3, Physical};
use crate::transform::{Displacement, map_vectors};

/// A greedy stage, from `found` on.
pub(super) fn greedy(
    run: &mut Run,
    settings: &GreedySettings,
    found: Found,
) -> Result<(Found, StageReport, Comparison)> {
    let start = Instant::now();
    let linear = found.affine.linear();
    let mut u = found.warp.map(|w| mapped(&w, &linear));
    let mut levels = Vec::with_capacity(settings.levels.len());
    let mut finest = None;
    for (index, level) in settings.levels.iter().enumerate() {
        let comparison = run.comparison(level, settings.similarity)?;
        let geometry = &comparison.fixed.geometry;
        let before = match u {
            None => Displacement::zero(geometry.clone(), &run.device),
            Some(u) => u.resampled(geometry),
        };
        let level = level_start("greedy", index, &settings.levels, geometry.size);
        let mut greedy = Greedy::new(&comparison, settings, &found.affine, before);
        let report = run_level(
            &level,
            &mut greedy,
            &settings.convergence,
            run.settings.loss_interval,
            run.observer,
        )?;
        let cancelled = report.stop == Stop::Cancelled;
        levels.push(report);
        u = Some(greedy.into_displacement());
        finest = Some(comparison);
        if cancelled {
            break;
        }
    }
    let (Some(u), Some(comparison)) = (u, finest) else {
        unreachable!("settings with no level do not validate")
    };
    let loss_after = comparison.loss(&found.affine, Some(&u))?;
    let back = found.affine.inverse()?.linear();
    let warp = mapped(&u.resampled(&run.problem.fixed.geometry), &back);
    let found = Found { warp: Some(warp), ..found };
    let seconds = start.elapsed().as_secs_f64();
    let report = StageReport { transform: "greedy", levels, loss_after, kept: true, seconds };
    Ok((found, report, comparison))
}

/// The vectors multiplied by a matrix of physical space.
fn mapped(displacement: &Displacement, linear: &Matrix3) -> Displacement {
    let geometry = displacement.geometry();
    let physical = Affine::<Physical, Physical>::from_parts(*linear, [0.0; 3]);
    if physical == Affine::identity() {
        return displacement.clone();
    }
    let voxels = geometry.voxel_to_mm().then(&physical).then(&geometry.mm_to_voxel()).linear();
    let field = map_vectors(displacement.field().clone(), &voxels);
    Displacement::new(field, geometry.clone()).expect("a field of the same size")
}
