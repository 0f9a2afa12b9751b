//! The measures of a result, as `metrics.json` holds them.

use ffdp_burn::transform::RoundTrip;
use ffdp_image::Result;
use ffdp_image::image::Geometry;
use ffdp_image::metrics::{
    BeforeAfter, JacobianReport, Lengths, Overlap, SimilarityMeasures, TargetRegistrationError,
};
use ffdp_register::report::StageReport;
use ffdp_register::verdict::{Assessment, Evidence};
use ffdp_register::{Registration, Settings, Stage};
use serde::Serialize;

use super::folds::Folds;
use crate::affine_parts::AffineParts;
use crate::label_names::{LabelNames, NamedOverlap};

/// What images and displacements show of a result.
pub struct Measured {
    pub similarity: [SimilarityMeasures; 2],
    pub jacobian: JacobianReport,
    pub motion_mm: Lengths,
    pub displacement_mm: Lengths,
    pub dice: Option<Overlap>,
    pub inverse: Option<RoundTrip>,
}

/// Everything that is known about a finished registration.
#[derive(Debug, Serialize)]
pub struct ResultMeasures {
    /// What the result is worth, and what speaks against it.
    #[serde(flatten)]
    pub assessment: Assessment,
    /// Part of the smaller image that lies inside the other, in percent.
    pub(crate) overlap_percent: BeforeAfter<f64>,
    /// What was optimised, on the finest level: lower is better.
    pub(crate) loss: BeforeAfter<f64>,
    /// The affine map from fixed to moving, RAS mm.
    pub(crate) affine: [[f64; 4]; 3],
    /// Its determinant, and by how much it stretches at most and at least.
    pub(crate) affine_determinant: f64,
    pub(crate) affine_singular_values: [f64; 3],
    /// The same as turns, scales and shears, with the shift of the centre of the fixed grid.
    pub(crate) affine_parts: AffineParts,
    /// With labels of both images.
    pub(crate) dice: Option<NamedOverlap>,
    /// Distances of corresponding landmarks, with landmarks of both images.
    pub(crate) landmarks_mm: Option<TargetRegistrationError>,
    /// How the stages went.
    pub stages: Vec<StageReport>,
    pub(crate) similarity: BeforeAfter<SimilarityMeasures>,
    pub(crate) folds: Folds,
    /// How far points move, from where the headers place them: by the whole map.
    pub(crate) motion_mm: Lengths,
    /// Of it, the deformation alone.
    pub(crate) displacement_mm: Lengths,
    /// How well the inverse displacement undoes the displacement, where one is written that is whole in memory.
    pub(crate) inverse: Option<RoundTrip>,
}

impl ResultMeasures {
    /// Weighs what was measured of a moving image on the grid `moving`.
    ///
    /// # Errors
    /// Those of a device.
    pub(crate) fn of(
        found: &Registration,
        settings: &Settings,
        moving: &Geometry,
        measured: Measured,
        landmarks_mm: Option<TargetRegistrationError>,
        names: &LabelNames,
    ) -> Result<Self> {
        let Measured { similarity, jacobian, motion_mm, displacement_mm, dice, inverse } = measured;
        let folds = Folds::new(&jacobian, found.affine.determinant());
        let surfaces = dice.as_ref().and_then(|dice| dice.surfaces.as_ref());
        let evidence = Evidence {
            similarity: compared(&similarity, settings),
            folds_percent: Some(folds.percent),
            inverse_p95_voxels: inverse.map(|error| error.p95_voxels),
            dice: dice.as_ref().map(|dice| dice.mean.pair()),
            hd95_mm: surfaces.map(|surfaces| surfaces.hd95_mm.pair()),
            landmarks_mm: landmarks_mm.as_ref().map(|tre| [tre.before.mean, tre.after.mean]),
            ..found.evidence(settings, moving)?
        };
        Ok(Self {
            assessment: evidence.assess(),
            overlap_percent: BeforeAfter::of(evidence.overlap_percent.expect("of two grids")),
            loss: BeforeAfter { before: found.loss_before, after: found.loss_after },
            affine: *found.affine.rows(),
            affine_determinant: found.affine.determinant(),
            affine_singular_values: found.affine.singular_values(),
            affine_parts: AffineParts::of(&found.affine, found.grid().center_mm()),
            dice: dice.map(|overlap| NamedOverlap { overlap, names: names.clone() }),
            landmarks_mm,
            stages: found.stages.clone(),
            similarity: BeforeAfter::of(similarity),
            folds,
            motion_mm,
            displacement_mm,
            inverse,
        })
    }
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
