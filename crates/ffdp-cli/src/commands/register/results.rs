//! The result on the host: measured, and written.

use std::path::Path;
use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{
    BsplineTransform, Composite, Displacement, RoundTrip, Step, write_transform,
};
use ffdp_image::image::{Affine, Geometry, LabelMap, Physical, Volume};
use ffdp_image::io::images::{write_displacement, write_labels, write_volume};
use ffdp_image::io::write_affine;
use ffdp_image::metrics::{Coverage, TargetRegistrationError, tre_of_mapped};
use ffdp_register::{
    Evidence, MOST_INVERSE_ERROR_VOXELS, Registration, Settings, Stage, StageReport, Warp,
    background, finest_spacing_mm,
};

use super::args::RegisterArguments;
use super::files::Files;
use super::inputs::Inputs;
use crate::failure::{Failure, Result};
use crate::in_parallel::in_parallel;
use crate::report::measures::{
    BeforeAfter, Compared, Folds, Input, Lengths, Measures, Overlap, Provenance, Record, Seconds,
    SimilarityMeasures,
};
use crate::report::slices::Slices;

/// The result on the host, with everything that is written or measured.
pub struct Results {
    /// What it took until displacements were on the host.
    pub fields_seconds: f64,
    affine: Affine<Physical, Physical>,
    /// Where the run began: the same, and the displacement before it.
    placement: Affine<Physical, Physical>,
    start_displacement: Option<Vec<f32>>,
    /// The moving image on the fixed grid.
    warped: Volume,
    stages: Vec<StageReport>,
    loss: BeforeAfter<f64>,
    contrast: Option<f64>,
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
    ) -> Result<Self> {
        let grid = &inputs.fixed.geometry;
        let labels = |through: &Composite| {
            let labels = inputs.moving_labels.as_ref();
            let nearest = Interpolation::Nearest;
            labels.map(|labels| through.warp_labels(labels, grid, nearest, device)).transpose()
        };
        let found = result.warp.as_ref().map(Warp::displacement).transpose()?;
        let still = || Displacement::zero(grid.clone(), device);
        let warp = found.clone().unwrap_or_else(still);
        let steps = found.clone().map(Step::Displacement);
        let transform =
            Composite::new(steps.into_iter().chain([Step::Affine(result.affine)]).collect());
        let start = result.start()?;
        let (deformation, placement) = start.split_affine();
        let start_displacement = match deformation.steps() {
            [Step::Displacement(w)] => Some(w.to_vec()?),
            _ => None,
        };
        let landmarks = inputs.landmarks.as_ref().map(|[fixed, moving]| {
            let [before, after] = [&start, &transform].map(|map| map.map_points(fixed));
            tre_of_mapped(&before?, &after?, moving)
        });
        // What is written comes first.
        let clock = Instant::now();
        let displacement = warp.to_vec()?;
        let wanted = found.as_ref().filter(|_| !request.no_inverse);
        let undone = wanted.map(|warp| inverse(&result, warp, device)).transpose()?;
        let inverse = match undone {
            None => None,
            Some((inverse, error)) => Some((inverse.to_vec()?, error)),
        };
        let fields_seconds = clock.elapsed().as_secs_f64();
        let labels_after = labels(&transform)?;
        let shown = |map: &Composite| map.warp(&inputs.moving, grid, device);
        let (mut before, mut warped) = (shown(&start)?, shown(&transform)?);
        let beyond = match request.background {
            Some(value) => value,
            None => background(&mut &inputs.moving)?,
        };
        if beyond != 0.0 {
            let grids = [grid, &inputs.moving.geometry];
            let began = start_displacement.as_deref();
            Coverage::new(grids, &placement, began).fill(&mut before.data, beyond);
            let deformed = Some(&displacement[..]);
            Coverage::new(grids, &result.affine, deformed).fill(&mut warped.data, beyond);
        }
        Ok(Self {
            fields_seconds,
            placement,
            start_displacement,
            before,
            labels_before: labels(&start)?,
            inverse,
            landmarks: landmarks.transpose()?,
            labels_after,
            displacement,
            affine: result.affine,
            warped,
            stages: result.stages.clone(),
            contrast: result.contrast,
            loss: BeforeAfter { before: result.loss_before, after: result.loss_after },
            deforms: found.is_some(),
            spline: spline_of(&result),
        })
    }

    /// Everything that is known about the run but the times. The measures are taken in parallel.
    pub fn measures(
        &self,
        request: &RegisterArguments,
        settings: Settings,
        inputs: &Inputs,
    ) -> Result<Measures> {
        let (fixed, moving) = (&inputs.fixed, &inputs.moving.geometry);
        let grids = [&fixed.geometry, moving];
        let similarity = |moved, affine, displacement| {
            let coverage = Coverage::new(grids, affine, displacement);
            SimilarityMeasures::of(fixed, moved, &Compared::of(&coverage))
        };
        let determinant = self.affine.determinant();
        let still = Affine::identity();
        let ((before, after), (dice, (folds, (displacement_mm, motion_mm)))) = in_parallel(
            || {
                in_parallel(
                    || {
                        similarity(
                            &self.before,
                            &self.placement,
                            self.start_displacement.as_deref(),
                        )
                    },
                    || similarity(&self.warped, &self.affine, Some(&self.displacement)),
                )
            },
            || {
                in_parallel(
                    || self.overlap(inputs),
                    || {
                        let size = fixed.geometry.size;
                        let lengths =
                            |affine| Lengths::of(&self.displacement, &fixed.geometry, affine);
                        in_parallel(
                            || Folds::of(&self.displacement, size, determinant),
                            || (lengths(&still), lengths(&self.affine)),
                        )
                    },
                )
            },
        );
        let (before, after, folds, dice) = (before?, after?, folds?, dice?);
        let overlap_percent = overlaps(grids, [&self.placement, &self.affine]);
        let similarity = BeforeAfter { before, after };
        let mut evidence = self.evidence(&settings, &fixed.geometry)?;
        evidence.similarity = shown(&similarity, &settings);
        evidence.overlap_percent = Some(overlap_percent.pair());
        evidence.folds_percent = Some(folds.percent);
        evidence.dice = dice.as_ref().map(|dice| dice.mean.pair());
        evidence.hd95_mm =
            dice.as_ref().and_then(|dice| Some(dice.surfaces.as_ref()?.hd95_mm.pair()));
        let assessment = evidence.assess();
        let [fixed_hash, moving_hash] = [inputs.hashes[0].get()?, inputs.hashes[1].get()?];
        let record = Record {
            run: Provenance::here(&request.mesh),
            fixed: Input::of(request.fixed(), Some(fixed_hash), &fixed.geometry),
            moving: Input::of(request.moving(), Some(moving_hash), moving),
            assessment,
            warnings: inputs.warnings.clone(),
            overlap_percent,
            loss: self.loss,
            affine: *self.affine.rows(),
            affine_determinant: determinant,
            affine_singular_values: self.affine.singular_values(),
            dice,
            landmarks_mm: self.landmarks.clone(),
            stages: self.stages.clone(),
            settings,
            seconds: Seconds::default(),
            peak_memory_bytes: None,
        };
        Ok(Measures {
            record,
            similarity,
            folds,
            motion_mm,
            displacement_mm,
            inverse: self.inverse.as_ref().map(|(_, error)| *error),
        })
    }

    /// What is known of the result without measuring it.
    fn evidence(&self, settings: &Settings, fixed: &Geometry) -> Result<Evidence<'_>> {
        Ok(Evidence {
            stages: &self.stages,
            loss: Some(self.loss.pair()),
            contrast: self.contrast,
            affine: Some(self.placement.inverse()?.then(&self.affine)),
            may_mirror: settings.stages.iter().any(Stage::may_mirror),
            inverse_p95_voxels: self.inverse.as_ref().map(|(_, error)| error.p95_voxels),
            landmarks_mm: self.landmarks.as_ref().map(|tre| [tre.before.mean, tre.after.mean]),
            voxel_mm: finest_spacing_mm(fixed),
            ..Evidence::default()
        })
    }

    fn overlap(&self, inputs: &Inputs) -> ffdp_image::Result<Option<Overlap>> {
        let labels = (&inputs.fixed_labels, &inputs.moving_labels);
        match (labels, &self.labels_before, &self.labels_after) {
            ((Some(fixed), Some(moving)), Some(before), Some(after)) => {
                let asked = inputs.label_ids.as_deref();
                Overlap::of(fixed, moving, [before, after], asked).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The images, the transform and the labels, in parallel.
    pub fn write(&self, files: &Files, inputs: &Inputs) -> Result<()> {
        let geometry = &inputs.fixed.geometry;
        let displacement = |path, field: Option<&Vec<f32>>| {
            field.map_or(Ok(()), |field| write_displacement(path, field, geometry))
        };
        let warp = self.deforms.then_some(&self.displacement);
        let inverse = self.inverse.as_ref().map(|(inverse, _)| inverse);
        let labels = self.labels_after.as_ref();
        let ((warped, labels), (warp, inverse)) = in_parallel(
            || {
                in_parallel(
                    || write_volume(&files.warped, &self.warped),
                    || labels.map_or(Ok(()), |labels| write_labels(&files.labels, labels)),
                )
            },
            || {
                in_parallel(
                    || displacement(&files.warp, warp),
                    || displacement(&files.inverse, inverse),
                )
            },
        );
        write_spline(&files.spline, self.spline.as_ref())?;
        write_affine(&files.affine, &self.affine)?;
        write_affine(&files.affine_mat, &self.affine)?;
        Ok([warped, labels, warp, inverse].into_iter().collect::<ffdp_image::Result<()>>()?)
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

/// How alike the images are before and after, by what the last stage compares: local correlation of one contrast,
/// information of two. Unknown where they did not meet before.
fn shown(similarity: &BeforeAfter<SimilarityMeasures>, settings: &Settings) -> Option<[f64; 2]> {
    let one_contrast = settings.stages.last().is_some_and(Stage::compares_intensities);
    let of = |similarity: &SimilarityMeasures| match one_contrast {
        true => similarity.local_ncc_foreground,
        false => similarity.nmi,
    };
    let BeforeAfter { before, after } = similarity;
    (!before.ncc.is_nan()).then(|| [of(before), of(after)])
}

/// Part of the smaller image, in percent, that lies inside the other: as the images are placed at the start, and with the
/// result.
pub fn overlaps(
    [fixed, moving]: [&Geometry; 2],
    [initial, found]: [&Affine<Physical, Physical>; 2],
) -> BeforeAfter<f64> {
    let percent = |affine| {
        let placed = moving.placed_by(affine);
        placed.map_or(0.0, |placed| fixed.overlap_of_smaller_percent(&placed))
    };
    BeforeAfter { before: percent(initial), after: percent(found) }
}

/// The spline that a displacement is, if it is one.
pub fn spline_of(found: &Registration) -> Option<BsplineTransform> {
    match found.exact()?.step()? {
        Step::Bspline(spline) => Some(spline),
        _ => None,
    }
}

/// A spline, where there is one, as ITK has it.
pub fn write_spline(path: &Path, spline: Option<&BsplineTransform>) -> Result<()> {
    let Some(spline) = spline else { return Ok(()) };
    Ok(write_transform(path, &Composite::new(vec![Step::Bspline(spline.clone())]))?)
}

/// The inverse of the displacement and its error: that of the method or, where there is none or it is off by more than
/// `ffdp invert` allows, solved for.
fn inverse(
    result: &Registration,
    warp: &Displacement,
    device: &Device,
) -> Result<(Displacement, RoundTrip)> {
    let error =
        |undone: &Displacement| alone(warp).round_trip(&alone(undone), warp.geometry(), device);
    let given = result.inverse.as_ref().map(Warp::displacement).transpose()?;
    let given = given.map(|inverse| Ok::<_, Failure>((error(&inverse)?, inverse))).transpose()?;
    if let Some((error, inverse)) = &given
        && error.p95_voxels <= MOST_INVERSE_ERROR_VOXELS
    {
        return Ok((inverse.clone(), *error));
    }
    let solved = alone(warp).inverse()?.to_displacement(warp.geometry(), device);
    let found = error(&solved)?;
    Ok(match given {
        Some((error, inverse)) if error.p95_voxels < found.p95_voxels => (inverse, error),
        _ => (solved, found),
    })
}

fn alone(displacement: &Displacement) -> Composite {
    Composite::new(vec![Step::Displacement(displacement.clone())])
}
