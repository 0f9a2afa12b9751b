//! What a result is worth, in the measures of `metrics.json`.

use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{Composite, Displacement, RoundTrip, Step};
use ffdp_image::Result;
use ffdp_image::image::{LabelMap, Volume};
use ffdp_image::metrics::{
    BeforeAfter, Coverage, Lengths, Overlap, SimilarityMeasures, TargetRegistrationError, jacobian,
    tre_of_mapped,
};
use ffdp_register::coverage::background;
use ffdp_register::report::StageReport;
use ffdp_register::result::Warp;
use ffdp_register::verdict::{Assessment, Evidence};
use ffdp_register::{Registration, Settings, Stage};
use serde::Serialize;

use crate::affine_parts::AffineParts;
use crate::registration::Found;
use crate::report_measures::Folds;
use crate::transform::placed_on;

/// The images that were registered, and what is measured besides them.
pub struct Pair {
    pub fixed: Volume,
    pub moving: Volume,
    pub fixed_labels: Option<LabelMap>,
    pub moving_labels: Option<LabelMap>,
    /// Those that are measured; all where none are named.
    pub label_ids: Option<Vec<i32>>,
    pub landmarks: Option<[Vec<[f64; 3]>; 2]>,
}

/// What is asked for of a result.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Intensity where the moving image does not reach; what its border shows where none is given.
    pub background: Option<f32>,
    pub inverse: bool,
}

/// Everything that is known about a finished registration.
#[derive(Serialize)]
pub struct Measures {
    #[serde(flatten)]
    pub assessment: Assessment,
    overlap_percent: BeforeAfter<f64>,
    loss: BeforeAfter<f64>,
    affine: [[f64; 4]; 3],
    affine_determinant: f64,
    affine_singular_values: [f64; 3],
    affine_parts: AffineParts,
    dice: Option<Overlap>,
    landmarks_mm: Option<TargetRegistrationError>,
    pub stages: Vec<StageReport>,
    similarity: BeforeAfter<SimilarityMeasures>,
    folds: Folds,
    motion_mm: Lengths,
    displacement_mm: Lengths,
    inverse: Option<RoundTrip>,
}

/// The moving image and its labels through the maps before and after, and the displacement.
struct Shown {
    images: [Volume; 2],
    labels: Option<[LabelMap; 2]>,
    /// Before, where there was one, and after.
    displacements: (Option<Vec<f32>>, Vec<f32>),
    /// At the start.
    placement: Composite,
}

/// Measures a result, and reads back what the device has of it.
///
/// # Errors
/// Those of a device.
pub fn measured(
    found: &Registration,
    pair: &Pair,
    settings: &Settings,
    asked: Asked,
) -> Result<(Found, Measures)> {
    let host = Device::flex();
    let inverse = if asked.inverse { found.inverse_displacement()? } else { None };
    let (inverse, error) = inverse.unzip();
    let steps = |inverse| vec![Step::Affine(found.affine), Step::Displacement(inverse)];
    let backward = inverse.map(|inverse| {
        let [affine, displacement] = <[Step; 2]>::try_from(steps(inverse)).expect("two");
        let affine = Composite::new(vec![affine]).inverse()?;
        placed_on(&affine.then(Composite::new(vec![displacement])), &host)
    });
    let backward = match backward.transpose()? {
        None if asked.inverse => Some(Composite::from(found.affine).inverse()?),
        other => other,
    };
    let shown = shown(found, pair, asked)?;
    let measures = measures(found, pair, settings, (&shown, error))?;
    let Shown { images: [_, warped], labels, .. } = shown;
    let transform = placed_on(&found.transform()?, &host)?;
    let warped_labels = labels.map(|[_, after]| after);
    Ok((Found { warped, warped_labels, transform, inverse: backward }, measures))
}

fn shown(found: &Registration, pair: &Pair, asked: Asked) -> Result<Shown> {
    let (grid, device) = (&pair.fixed.geometry, found.device());
    let displacement = match found.warp.as_ref().map(Warp::displacement).transpose()? {
        Some(warp) => warp.to_vec()?,
        None => Displacement::zero(grid.clone(), device).to_vec()?,
    };
    let start = found.before()?.transform()?;
    let (deformation, affine) = start.split_affine();
    let began = match deformation.steps() {
        [Step::Displacement(field)] => Some(field.to_vec()?),
        _ => None,
    };
    let maps = [start, found.transform()?];
    let labels = pair.moving_labels.as_ref().map(|labels| {
        let [before, after] = maps
            .each_ref()
            .map(|map| map.warp_labels(labels, grid, Interpolation::Nearest, device));
        Ok::<_, ffdp_image::Error>([before?, after?])
    });
    let [before, after] = maps.each_ref().map(|map| map.warp(&pair.moving, grid, device));
    let mut images = [before?, after?];
    let beyond = match asked.background {
        Some(value) => value,
        None => background(&mut &pair.moving)?,
    };
    if beyond != 0.0 {
        let grids = [grid, &pair.moving.geometry];
        let [before, after] = &mut images;
        Coverage::new(grids, &affine, began.as_deref()).fill(&mut before.data, beyond);
        Coverage::new(grids, &found.affine, Some(&displacement)).fill(&mut after.data, beyond);
    }
    let displacements = (began, displacement);
    Ok(Shown { images, labels: labels.transpose()?, displacements, placement: affine.into() })
}

fn measures(
    found: &Registration,
    pair: &Pair,
    settings: &Settings,
    (shown, inverse): (&Shown, Option<RoundTrip>),
) -> Result<Measures> {
    let (fixed, moving) = (&pair.fixed, &pair.moving.geometry);
    let (grid, displacement) = (&fixed.geometry, &shown.displacements.1[..]);
    let placement = shown.placement.as_affine().expect("it was made of one");
    let similarity = |moved, affine, displacement| {
        let coverage = Coverage::new([grid, moving], affine, displacement);
        SimilarityMeasures::of(fixed, moved, &coverage.compared())
    };
    let [before, after] = &shown.images;
    let similarity = [
        similarity(before, &placement, shown.displacements.0.as_deref())?,
        similarity(after, &found.affine, Some(displacement))?,
    ];
    let dice = match (&pair.fixed_labels, &pair.moving_labels, &shown.labels) {
        (Some(fixed), Some(moving), Some(moved)) => {
            Some(Overlap::of(fixed, moving, moved.each_ref(), pair.label_ids.as_deref())?)
        }
        _ => None,
    };
    let landmarks = pair.landmarks.as_ref().map(|[fixed, moving]| {
        let before = found.before()?.map_points(fixed)?;
        tre_of_mapped(&before, &found.map_points(fixed)?, moving)
    });
    let landmarks = landmarks.transpose()?;
    let folds = Folds::new(&jacobian(displacement, grid.size)?, found.affine.determinant());
    let surfaces = dice.as_ref().and_then(|dice| dice.surfaces.as_ref());
    let evidence = Evidence {
        similarity: compared(&similarity, settings),
        folds_percent: Some(folds.percent),
        inverse_p95_voxels: inverse.map(|error| error.p95_voxels),
        dice: dice.as_ref().map(|dice| dice.mean.pair()),
        hd95_mm: surfaces.map(|surfaces| surfaces.hd95_mm.pair()),
        landmarks_mm: landmarks.as_ref().map(|tre| [tre.before.mean, tre.after.mean]),
        ..found.evidence(settings, moving)?
    };
    Ok(Measures {
        assessment: evidence.assess(),
        overlap_percent: BeforeAfter::of(evidence.overlap_percent.expect("of two grids")),
        loss: BeforeAfter { before: found.loss_before, after: found.loss_after },
        affine: *found.affine.rows(),
        affine_determinant: found.affine.determinant(),
        affine_singular_values: found.affine.singular_values(),
        affine_parts: AffineParts::of(&found.affine, grid.center_mm()),
        stages: found.stages.clone(),
        motion_mm: Lengths::of(displacement, grid, &found.affine),
        displacement_mm: Lengths::of(displacement, grid, &ffdp_image::image::Affine::identity()),
        similarity: BeforeAfter::of(similarity),
        landmarks_mm: landmarks,
        dice,
        folds,
        inverse,
    })
}

/// How alike the images are before and after, by what the last stage compares: local correlation of one contrast,
/// information of two. Unknown where they did not meet before.
fn compared(similarity: &[SimilarityMeasures; 2], settings: &Settings) -> Option<[f64; 2]> {
    let one_contrast = settings.stages.last().is_some_and(Stage::compares_intensities);
    let of = |similarity: &SimilarityMeasures| match one_contrast {
        true => similarity.local_ncc_foreground,
        false => similarity.nmi,
    };
    (!similarity[0].ncc.is_nan()).then(|| similarity.each_ref().map(of))
}
