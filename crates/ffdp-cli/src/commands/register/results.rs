//! The result on the host: measured, and written.

use std::path::Path;
use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::image::{Affine, LabelMap, Physical, Volume};
use ffdp_burn::io::images::{write_displacement, write_labels, write_volume};
use ffdp_burn::io::write_affine;
use ffdp_burn::metrics::{TargetRegistrationError, tre_of_mapped};
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{
    BsplineTransform, Composite, Displacement, RoundTrip, Step, write_transform,
};
use ffdp_register::{Outcome as Worth, Registration, Settings, StageReport};

use super::args::RegisterArguments;
use super::files::Files;
use super::inputs::Inputs;
use crate::beside::beside;
use crate::failure::Outcome;
use crate::report::measures::{
    BeforeAfter, Folds, Input, Lengths, Measures, Overlap, Record, Run, Seconds, Similarity,
};
use crate::report::slices::Slices;

/// The result on the host, with everything that is written or measured.
pub struct Results {
    /// What it took until displacements were on the host.
    pub fields_seconds: f64,
    affine: Affine<Physical, Physical>,
    /// The moving image on the fixed grid.
    warped: Volume,
    outcome: Worth,
    stages: Vec<StageReport>,
    loss: BeforeAfter<f64>,
    /// Whether there is more than an affine map.
    deforms: bool,
    /// The moving image on the fixed grid as it was placed at the start.
    before: Volume,
    labels_before: Option<LabelMap>,
    labels_after: Option<LabelMap>,
    /// `[3, D, H, W]` in voxels.
    displacement: Vec<f32>,
    /// The opposite of the displacement, `[3, D, H, W]` in voxels of the same grid, and its error.
    inverse: Option<(Vec<f32>, RoundTrip)>,
    landmarks: Option<TargetRegistrationError>,
    /// The displacement as a spline, where it is one.
    spline: Option<BsplineTransform>,
}

impl Results {
    /// Does the rest of what is done on the device, and reads everything back.
    pub fn of(
        request: &RegisterArguments,
        inputs: &Inputs,
        result: Registration,
        device: &Device,
    ) -> Outcome<Self> {
        let grid = &inputs.fixed.geometry;
        let labels = |through: &Composite| {
            let labels = inputs.moving_labels.as_ref();
            let nearest = Interpolation::Nearest;
            labels.map(|labels| through.warp_labels(labels, grid, nearest, device)).transpose()
        };
        let warp = match &result.warp {
            Some(warp) => warp.clone(),
            None => Displacement::zero(grid.clone(), device),
        };
        let start = Composite::new(vec![Step::Affine(inputs.initial)]);
        let landmarks = inputs.landmarks.as_ref().map(|[fixed, moving]| {
            tre_of_mapped(fixed, &result.transform().map_points(fixed)?, moving)
        });
        // What is written comes first.
        let clock = Instant::now();
        let displacement = warp.to_vec()?;
        let wanted = result.warp.as_ref().filter(|_| !request.no_inverse);
        let undone = wanted.map(|warp| inverse(&result, warp, device)).transpose()?;
        let inverse = undone.as_ref().map(Displacement::to_vec).transpose()?;
        let fields_seconds = clock.elapsed().as_secs_f64();
        let error = |undone: &Displacement| {
            alone(&warp).round_trip(&alone(undone), warp.geometry(), device)
        };
        let inverse = inverse.zip(undone.as_ref().map(error).transpose()?);
        drop(undone);
        Ok(Self {
            fields_seconds,
            before: start.warp(&inputs.moving, grid, device)?,
            labels_before: labels(&start)?,
            inverse,
            landmarks: landmarks.transpose()?,
            labels_after: labels(&result.transform())?,
            displacement,
            affine: result.affine,
            warped: result.warped,
            outcome: result.outcome,
            stages: result.stages,
            loss: BeforeAfter { before: result.loss_before, after: result.loss_after },
            deforms: result.warp.is_some(),
            spline: result.spline,
        })
    }

    /// Everything that is known about the run but the times. The measures are taken beside each other.
    pub fn measures(
        &self,
        request: &RegisterArguments,
        settings: Settings,
        inputs: &Inputs,
    ) -> Outcome<Measures> {
        let fixed = &inputs.fixed;
        let similarity = |moved| Similarity::of(fixed, moved);
        let ((before, after), (dice, (folds, displacement_mm))) = beside(
            || beside(|| similarity(&self.before), || similarity(&self.warped)),
            || {
                beside(
                    || self.overlap(inputs),
                    || {
                        beside(
                            || Folds::of(&self.displacement, fixed.geometry.size),
                            || Lengths::of(&self.displacement, &fixed.geometry),
                        )
                    },
                )
            },
        );
        let folds = folds?;
        let [fixed_hash, moving_hash] = [inputs.hashes[0].get()?, inputs.hashes[1].get()?];
        let warnings = inputs.warnings.iter().cloned().chain(folds.advice()).collect();
        let moving = &inputs.moving.geometry;
        let record = Record {
            run: Run::here(&request.mesh),
            fixed: Input::of(request.fixed(), Some(fixed_hash), &fixed.geometry),
            moving: Input::of(request.moving(), Some(moving_hash), moving),
            outcome: self.outcome,
            advice: self.outcome.advice(),
            warnings,
            loss: self.loss,
            affine: *self.affine.rows(),
            dice: dice?,
            stages: self.stages.clone(),
            settings,
            seconds: Seconds::default(),
            peak_memory_bytes: None,
        };
        Ok(Measures {
            record,
            similarity: BeforeAfter { before: before?, after: after? },
            folds,
            displacement_mm,
            inverse: self.inverse.as_ref().map(|(_, error)| *error),
            landmarks_mm: self.landmarks.clone(),
        })
    }

    fn overlap(&self, inputs: &Inputs) -> ffdp_burn::Result<Option<Overlap>> {
        let labels = (&inputs.fixed_labels, &inputs.moving_labels);
        match (labels, &self.labels_before, &self.labels_after) {
            ((Some(fixed), Some(moving)), Some(before), Some(after)) => {
                let asked = inputs.label_ids.as_deref();
                Overlap::of(fixed, moving, [before, after], asked).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The images, the transform and the labels, beside each other.
    pub fn write(&self, files: &Files, inputs: &Inputs) -> Outcome<()> {
        let geometry = &inputs.fixed.geometry;
        let displacement = |path, field: Option<&Vec<f32>>| {
            field.map_or(Ok(()), |field| write_displacement(path, field, geometry))
        };
        let warp = self.deforms.then_some(&self.displacement);
        let inverse = self.inverse.as_ref().map(|(inverse, _)| inverse);
        let labels = self.labels_after.as_ref();
        let ((warped, labels), (warp, inverse)) = beside(
            || {
                beside(
                    || write_volume(&files.warped, &self.warped),
                    || labels.map_or(Ok(()), |labels| write_labels(&files.labels, labels)),
                )
            },
            || beside(|| displacement(&files.warp, warp), || displacement(&files.inverse, inverse)),
        );
        write_spline(&files.spline, self.spline.as_ref())?;
        write_affine(&files.affine, &self.affine)?;
        write_affine(&files.affine_mat, &self.affine)?;
        Ok([warped, labels, warp, inverse].into_iter().collect::<ffdp_burn::Result<()>>()?)
    }

    /// What the report shows.
    pub fn slices<'a>(&'a self, inputs: &'a Inputs) -> Slices<'a> {
        Slices {
            fixed: &inputs.fixed,
            before: &self.before,
            warped: &self.warped,
            displacement: &self.displacement,
            determinant: None,
            controls: self.spline.as_ref().map(BsplineTransform::geometry),
        }
    }
}

/// A spline, where there is one, as ITK has it.
pub fn write_spline(path: &Path, spline: Option<&BsplineTransform>) -> Outcome<()> {
    let Some(spline) = spline else { return Ok(()) };
    Ok(write_transform(path, &Composite::new(vec![Step::Bspline(spline.clone())]))?)
}

/// The inverse of the displacement, given by the method or computed.
fn inverse(result: &Registration, warp: &Displacement, device: &Device) -> Outcome<Displacement> {
    Ok(match &result.inverse {
        Some(inverse) => inverse.clone(),
        None => alone(warp).inverse()?.to_displacement(warp.geometry(), device),
    })
}

fn alone(displacement: &Displacement) -> Composite {
    Composite::new(vec![Step::Displacement(displacement.clone())])
}
