//! A level of a registration: the images in a periodic box, and the velocity on the grid of the fixed one.
//!
//! The engine's velocity is in voxels of the level, and its flow carries points of the fixed image to points of the
//! moving one; the velocity that is searched carries the moving image the other way, in units of the box.

use std::f64::consts::TAU;

use super::GnkSettings;
use super::flow::by_component;
use super::precondition::vector;
use super::problem::{VelocityImages, VelocityProblem};
use super::weights::{Regularizing, WeightSearch};
use crate::level::Solver;
use crate::methods::deformable::{Deformation, LevelTask, Reached, smoothing, stays};
use crate::pair::LevelPair;
use crate::places::ImagePlaces;
use crate::report::NewtonStep;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Geometry, Physical};
use ffdp_parallel::{
    Sharded,
    deform::FieldVector,
    periodic::{Gap, PaddedGrid},
};

/// A level under way.
struct Level {
    problem: VelocityProblem,
    search: WeightSearch,
    padded: PaddedGrid,
    /// From the velocity that is searched to that of the engine.
    to_voxels: [f64; 3],
    /// Steps that nobody has asked for yet.
    gone: Vec<NewtonStep>,
    begun: bool,
}

/// A level of `settings`.
pub(super) fn begin(settings: &GnkSettings, task: &LevelTask) -> Result<Box<dyn Deformation>> {
    let &LevelTask { pair, affine, ref fields, full, index, levels } = task;
    check_places(pair)?;
    let grid = &pair.grids[0];
    let unit = unit_mm(full);
    let voxel = grid.spacing_mm.map(|mm| mm / unit);
    let ImagePlaces { layout, work, .. } = &pair.places.fixed;
    let padded =
        PaddedGrid::new(layout, work, &pair.places.team.fixed, voxel, settings.gap_voxels)?
            .with_interpolation(settings.interpolation);
    let images = images(settings, pair, affine, &padded)?;
    let similarity = settings.similarity.loss();
    let landmarks = pair.landmarks_for(affine, similarity.usual_gain());
    let similarity = pair.compared(similarity);
    let mut problem =
        VelocityProblem::new(padded.grid().clone(), similarity, images, settings.options())?;
    if let Some(landmarks) = landmarks {
        problem = problem.with_landmarks(landmarks, padded.first(), grid.size);
    }
    let to_voxels = voxel.map(|h| -1.0 / h);
    let start = match fields {
        None => None,
        Some(fields) => {
            let field = by_component(&fields.parts[0], to_voxels.map(f64::recip));
            Some(vector(padded.padded(&field, Gap::Blended)?, padded.grid()))
        }
    };
    let begins = settings.continuation && index == 0 && start.is_none();
    let regularizing = Regularizing {
        first: if begins { settings.beta.max(1.0) } else { settings.beta },
        beta: settings.beta,
        bounds: settings.determinant.filter(|_| index + 1 == levels),
    };
    let search = WeightSearch::new(&mut problem, start, regularizing, settings.newton())?;
    Ok(Box::new(Level { problem, search, padded, to_voxels, gone: Vec::new(), begun: false }))
}

/// The length in which the box of the fixed image has the volume `(2 pi)^3`; of a plane, the area `(2 pi)^2`.
fn unit_mm(full: &Geometry) -> f64 {
    let axes = (0..3).filter(|a| full.size[*a] > 1);
    let lengths: Vec<f64> = axes.map(|a| full.size[a] as f64 * full.spacing_mm[a]).collect();
    let mean = lengths.iter().map(|mm| mm.ln()).sum::<f64>() / lengths.len() as f64;
    mean.exp() / TAU
}

/// Both images in the box: the moving one as the affine map shows it, on the grid of the fixed one.
fn images(
    settings: &GnkSettings,
    pair: &LevelPair,
    affine: &Affine<Physical, Physical>,
    padded: &PaddedGrid,
) -> Result<VelocityImages> {
    let [fixed, moving] = pair.on_fixed(affine)?;
    let kernel = smoothing(&pair.grids[0], settings.sigma_image_voxels);
    let smooth = |image: Sharded, masked: bool| {
        if settings.sigma_image_voxels == 0.0 {
            return Ok(image);
        }
        let [image, mask] = parted(image, masked);
        let image = pair.smoothed(&image.expect("an image has a channel"), &kernel)?;
        Ok::<_, Error>(match mask {
            None => image,
            Some(mask) => joined(image, &mask),
        })
    };
    let [fixed, moving] = [smooth(fixed, pair.masked[0])?, smooth(moving, pair.masked[1])?];
    let mut masked = pair.masked;
    let fixed = match (padded.is_bare(), masked[0]) {
        (true, _) => fixed,
        // Nothing is compared in the gap.
        (false, false) => {
            masked[0] = true;
            let counts = fixed.clone().map(|x| x.narrow(1, 0, 1).ones_like());
            joined(padded.padded(&fixed, Gap::Blended)?, &padded.padded(&counts, Gap::Empty)?)
        }
        (false, true) => {
            let [image, mask] = parted(fixed, true);
            let [image, mask] = [image, mask].map(|x| x.expect("it is masked"));
            joined(padded.padded(&image, Gap::Blended)?, &padded.padded(&mask, Gap::Empty)?)
        }
    };
    Ok(VelocityImages { fixed, moving: padded.padded(&moving, Gap::Blended)?, masked })
}

/// An image and its mask, the last channel.
fn parted(image: Sharded, masked: bool) -> [Option<Sharded>; 2] {
    if !masked {
        return [Some(image), None];
    }
    let channels = image.dims()[1] - 1;
    let part = |first: usize, count: usize| image.clone().map(|x| x.narrow(1, first, count));
    [(channels > 0).then(|| part(0, channels)), Some(part(channels, 1))]
}

/// An image with its mask as last channel.
fn joined(image: Sharded, mask: &Sharded) -> Sharded {
    image.zip_map(mask, |image, mask| burn::Tensor::cat(vec![image, mask], 1))
}

/// Demands that all shards stay where they are computed: every mode depends on every voxel.
fn check_places(pair: &LevelPair) -> Result<()> {
    let ImagePlaces { work, rest, .. } = &pair.places.fixed;
    if pair.places.exact.is_none() && rest.devices() == work.devices() {
        return Ok(());
    }
    Err(stays("gnk", pair.grids[0].size))
}

impl Solver for Level {
    fn iterate(&mut self, iterations: usize) -> Result<Vec<f64>> {
        let mut losses = Vec::new();
        while losses.len() < iterations {
            let Some(step) = self.search.step(&mut self.problem)? else { break };
            losses.push(step.loss);
            self.gone.push(step);
        }
        if losses.is_empty() && !self.begun {
            losses.push(self.search.loss(&mut self.problem)?);
        }
        self.begun = true;
        Ok(losses)
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn newton_steps(&mut self) -> Vec<NewtonStep> {
        std::mem::take(&mut self.gone)
    }
}

impl Deformation for Level {
    fn loss(&mut self) -> Result<f64> {
        self.search.loss(&mut self.problem)
    }

    fn into_fields(self: Box<Self>) -> Result<Reached> {
        let Self { search, padded, to_voxels, .. } = *self;
        let FieldVector { fields, .. } = search.at();
        let field = padded.cropped(&fields[0]);
        Ok((vec![by_component(&field, to_voxels)], None))
    }
}
