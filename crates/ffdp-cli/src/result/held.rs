//! A result in host memory, read back from the device and measured.

use std::time::Instant;

use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{Composite, Displacement, RoundTrip, Step};
use ffdp_image::image::{Affine, LabelMap, Physical, Volume};
use ffdp_image::metrics::{
    Coverage, Lengths, Overlap, SimilarityMeasures, TargetRegistrationError, jacobian,
};
use ffdp_image::{Error, Result};
use ffdp_register::{Registration, Settings, coverage::background, result::Warp};

use super::measures::{Measured, ResultMeasures};
use crate::in_parallel::in_parallel;
use crate::label_names::LabelNames;

/// The images that were registered, whole in memory.
#[derive(Clone, Copy)]
pub struct PairVolumes<'a> {
    /// The image that stays.
    pub fixed: &'a Volume,
    /// The one that is deformed.
    pub moving: &'a Volume,
    /// Labels on the fixed grid.
    pub fixed_labels: Option<&'a LabelMap>,
    /// Labels on the moving grid.
    pub moving_labels: Option<&'a LabelMap>,
    /// The labels that are measured; all where none are named.
    pub label_ids: Option<&'a [i32]>,
}

/// What of a result is computed.
#[derive(Clone, Copy)]
pub struct ResultRequest {
    /// Intensity where the moving image does not reach; what its border shows where none is given.
    pub background: Option<f32>,
    /// Whether the inverse displacement and its error are.
    pub inverse: bool,
}

/// What a registration has found, before and after, in host memory.
pub struct HeldResult {
    /// What it took until displacements were here, and the rest after that.
    pub(crate) seconds: [f64; 2],
    /// Whether there is more than an affine map.
    pub(crate) deforms: bool,
    /// Where the run began: the affine map, and the displacement before it.
    start: (Affine<Physical, Physical>, Option<Vec<f32>>),
    /// The moving image on the fixed grid as it was placed at the start, and as it was found.
    pub images: [Volume; 2],
    /// The same of its labels.
    pub labels: Option<[LabelMap; 2]>,
    /// `[3, D, H, W]` in voxels.
    pub(crate) displacement: Vec<f32>,
    /// The opposite of the displacement, `[3, D, H, W]` in voxels of the same grid, and its error.
    pub inverse: Option<(Vec<f32>, RoundTrip)>,
}

impl HeldResult {
    /// Reads everything back, and releases what the device has of it.
    ///
    /// # Errors
    /// Those of a device.
    pub fn of(
        found: &mut Registration,
        inputs: PairVolumes,
        request: ResultRequest,
    ) -> Result<Self> {
        let clock = Instant::now();
        let (grid, device) = (&inputs.fixed.geometry, found.device().clone());
        // What is written comes first.
        let inverse = if request.inverse { found.inverse_displacement()? } else { None };
        let inverse = inverse.map(|(inverse, error)| Ok::<_, Error>((inverse.to_vec()?, error)));
        let inverse = inverse.transpose()?;
        let warp = found.warp.as_ref().map(Warp::displacement).transpose()?;
        let displacement = match &warp {
            Some(warp) => warp.to_vec()?,
            None => Displacement::zero(grid.clone(), &device).to_vec()?,
        };
        let fields_seconds = clock.elapsed().as_secs_f64();
        let after = warp.map(Step::Displacement).into_iter().chain([Step::Affine(found.affine)]);
        let start = found.before()?.transform()?;
        let (deformation, placement) = start.split_affine();
        let start_displacement = match deformation.steps() {
            [Step::Displacement(w)] => Some(w.to_vec()?),
            _ => None,
        };
        let maps = [start, Composite::new(after.collect())];
        let labels = inputs.moving_labels.map(|labels| {
            let nearest = Interpolation::Nearest;
            let [before, after] =
                maps.each_ref().map(|map| map.warp_labels(labels, grid, nearest, &device));
            Ok::<_, Error>([before?, after?])
        });
        let moving = inputs.moving;
        let [before, after] = maps.each_ref().map(|map| map.warp(moving, grid, &device));
        let mut images = [before?, after?];
        let beyond = match request.background {
            Some(value) => value,
            None => background(&mut { moving })?,
        };
        if beyond != 0.0 {
            let grids = [grid, &moving.geometry];
            let [before, after] = &mut images;
            let began = start_displacement.as_deref();
            Coverage::new(grids, &placement, began).fill(&mut before.data, beyond);
            let deformed = Some(&displacement[..]);
            Coverage::new(grids, &found.affine, deformed).fill(&mut after.data, beyond);
        }
        let deforms = found.warp.is_some();
        (found.warp, found.inverse, found.velocity) = (None, None, None);
        let seconds = [fields_seconds, clock.elapsed().as_secs_f64() - fields_seconds];
        let labels = labels.transpose()?;
        let start = (placement, start_displacement);
        Ok(Self { seconds, deforms, start, images, labels, displacement, inverse })
    }

    /// Everything that is known about the result, of images without names of their labels; the distances of landmarks are
    /// measured before the device releases it.
    ///
    /// # Errors
    /// Those of a device.
    pub fn measures(
        &self,
        found: &Registration,
        inputs: PairVolumes,
        settings: &Settings,
        landmarks_mm: Option<TargetRegistrationError>,
    ) -> Result<ResultMeasures> {
        let (measured, names) = (self.measured(found, inputs)?, LabelNames::default());
        let moving = &inputs.moving.geometry;
        ResultMeasures::of(found, settings, moving, measured, landmarks_mm, &names)
    }

    /// What is measured of images and displacements, in parallel.
    pub(crate) fn measured(&self, found: &Registration, inputs: PairVolumes) -> Result<Measured> {
        let (fixed, moving) = (inputs.fixed, &inputs.moving.geometry);
        let (grid, displacement) = (&fixed.geometry, &self.displacement[..]);
        let similarity = |moved, affine, displacement| {
            let coverage = Coverage::new([grid, moving], affine, displacement);
            SimilarityMeasures::of(fixed, moved, &coverage.compared())
        };
        let lengths = |affine: &Affine<_, _>| Lengths::of(displacement, grid, affine);
        let [before, after] = &self.images;
        let ((before, after), (dice, (jacobian, (displacement_mm, motion_mm)))) = in_parallel(
            || {
                in_parallel(
                    || similarity(before, &self.start.0, self.start.1.as_deref()),
                    || similarity(after, &found.affine, Some(displacement)),
                )
            },
            || {
                in_parallel(
                    || self.overlap(inputs),
                    || {
                        in_parallel(
                            || jacobian(displacement, grid.size),
                            || (lengths(&Affine::identity()), lengths(&found.affine)),
                        )
                    },
                )
            },
        );
        Ok(Measured {
            similarity: [before?, after?],
            jacobian: jacobian?,
            motion_mm,
            displacement_mm,
            dice: dice?,
            inverse: self.inverse.as_ref().map(|(_, error)| *error),
        })
    }

    fn overlap(&self, inputs: PairVolumes) -> Result<Option<Overlap>> {
        match (inputs.fixed_labels, inputs.moving_labels, &self.labels) {
            (Some(fixed), Some(moving), Some(moved)) => {
                Overlap::of(fixed, moving, moved.each_ref(), inputs.label_ids).map(Some)
            }
            _ => Ok(None),
        }
    }
}
