//! A result in host memory, read back from the device and measured.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{Composite, Displacement, RoundTrip, Step};
use ffdp_image::image::{Affine, LabelMap, Physical, Planes, Volume};
use ffdp_image::io::images::write_displacement;
use ffdp_image::metrics::{
    Coverage, FieldPlanes, JacobianReport, Overlap, SimilarityMeasures, TargetRegistrationError,
    jacobian,
};
use ffdp_image::{Error, Result};
use ffdp_register::coverage::background;
use ffdp_register::result::{Shown, ShownLabels, Warp};
use ffdp_register::{Registration, Settings};

use super::files::{ResultFiles, When};
use super::measures::ResultMeasures;
use super::measuring::ResultPlanes;
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
        let beyond = request.beyond(&mut { moving })?;
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
        let measured = self.planes(found, inputs).measured(found, &ResultFiles::default())?;
        let names = LabelNames::default();
        let moving = &inputs.moving.geometry;
        ResultMeasures::of(found, settings, moving, measured, landmarks_mm, &names)
    }

    /// With the images that it is measured on.
    pub(crate) fn planes<'a>(
        &'a self,
        found: &'a Registration,
        inputs: PairVolumes<'a>,
    ) -> HeldPlanes<'a> {
        HeldPlanes { held: self, affine: &found.affine, inputs }
    }
}

impl ResultRequest {
    /// The intensity where a moving image does not reach.
    pub(crate) fn beyond(&self, moving: &mut dyn Planes) -> Result<f32> {
        self.background.map_or_else(|| background(moving), Ok)
    }
}

/// A result in host memory, all planes of which are shown at once.
pub(crate) struct HeldPlanes<'a> {
    held: &'a HeldResult,
    affine: &'a Affine<Physical, Physical>,
    inputs: PairVolumes<'a>,
}

impl HeldPlanes<'_> {
    fn all(&self) -> Range<usize> {
        0..self.inputs.fixed.geometry.size[2]
    }
}

impl ResultPlanes for HeldPlanes<'_> {
    const IN_PARALLEL: bool = true;

    fn similarity(&self, files: &ResultFiles) -> Result<[SimilarityMeasures; 2]> {
        let Self { held: HeldResult { start, images, displacement, .. }, affine, inputs } = self;
        let (fixed, moving) = (inputs.fixed, &inputs.moving.geometry);
        let of = |when, moved: &Volume, affine: &Affine<_, _>, displacement: Option<&[f32]>| {
            let compared = || {
                let coverage = Coverage::new([&fixed.geometry, moving], affine, displacement);
                SimilarityMeasures::of(fixed, moved, &coverage.compared())
            };
            let shown = Shown { planes: self.all(), fixed: &fixed.data, moved: &moved.data };
            Ok(self.both(compared, || files.image(when, &shown))?.0)
        };
        let (before, after) = self.both(
            || of(When::Before, &images[0], &start.0, start.1.as_deref()),
            || of(When::After, &images[1], affine, Some(displacement)),
        )?;
        Ok([before, after])
    }

    fn overlap(&self, files: &ResultFiles) -> Result<Option<Overlap>> {
        let PairVolumes { fixed_labels, moving_labels, label_ids, .. } = self.inputs;
        let (Some(moving), Some(maps)) = (moving_labels, &self.held.labels) else {
            return Ok(None);
        };
        let show = |when, map: &LabelMap| {
            let fixed = fixed_labels.map(|fixed| &fixed.data[..]);
            files.labels(when, &ShownLabels { planes: self.all(), fixed, moved: &map.data })
        };
        let Some(fixed) = fixed_labels else { return show(When::After, &maps[1]).map(|()| None) };
        let (overlap, _) = self.both(
            || Overlap::of(fixed, moving, maps.each_ref(), label_ids),
            || show(When::Before, &maps[0]).and_then(|()| show(When::After, &maps[1])),
        )?;
        Ok(Some(overlap))
    }

    fn jacobian(
        &self,
        mut each: impl FnMut(&FieldPlanes) -> Result<()> + Send,
    ) -> Result<JacobianReport> {
        let (displacement, size) = (&self.held.displacement[..], self.inputs.fixed.geometry.size);
        let all = FieldPlanes { displacement, first: 0, own: self.all() };
        Ok(self.both(|| jacobian(displacement, size), || each(&all))?.0)
    }

    fn inverse_error(&self) -> Option<RoundTrip> {
        self.held.inverse.as_ref().map(|(_, error)| *error)
    }

    fn write_displacements(&self, [warp, inverse]: [&Path; 2]) -> Result<()> {
        let HeldResult { deforms, displacement, inverse: back, .. } = self.held;
        let write = |path, field: Option<&Vec<f32>>| {
            let grid = &self.inputs.fixed.geometry;
            field.map_or(Ok(()), |field| write_displacement(path, field, grid))
        };
        let back = back.as_ref().map(|(inverse, _)| inverse);
        let warp = || write(warp, deforms.then_some(displacement));
        self.both(warp, || write(inverse, back)).map(|_| ())
    }
}
