//! The measures, as `--json` prints them.

use ffdp_image::image::{LabelMap, Volume};
use ffdp_image::metrics::{
    DiceScores, DistanceUnit, InverseConsistency, JacobianReport, LabelDice, LabelSurface,
    Learn2RegCase, Learn2RegReport, SSIM_WINDOW, TargetRegistrationError, Warp, dice_of,
    foreground, information, inverse_consistency, jacobian, learn2reg, local_ncc,
    mean_squared_error, ncc, psnr, ssim, surface_distances, surface_mean, tre_of_mapped,
};
use serde::Serialize;

use super::MeasureArguments;
use super::inputs::Inputs;
use crate::commands::input::label_ids;
use crate::failure::Result;
use crate::label_names::LabelNames;
use crate::names::arguments;

/// Everything that was measured; a part is missing when its files were not given.
#[derive(Debug, Serialize)]
pub struct Report {
    pub ffdp_version: &'static str,
    /// The arguments of the command.
    pub command: Vec<String>,
    pub images: Option<Images>,
    pub labels: Option<Labels>,
    pub jacobian: Option<JacobianReport>,
    pub inverse_consistency: Option<InverseConsistency>,
    pub learn2reg: Option<Learn2RegReport>,
    /// Distances of corresponding landmarks, by the headers alone and through the transforms.
    pub landmarks_mm: Option<TargetRegistrationError>,
}

/// How alike two images are.
#[derive(Debug, Serialize)]
pub struct Images {
    /// Voxels that counted: those of the mask.
    pub voxels: usize,
    /// Pearson's correlation; null when an image is constant.
    pub ncc: f64,
    /// Mean squared local correlation over the mask or, without one, over the voxels above the fixed image's lowest
    /// value; flat windows count as 0.
    pub local_ncc: f64,
    /// Width of its window in voxels.
    pub window: usize,
    /// Mutual information in nats.
    pub mutual_information: f64,
    /// (H(F) + H(M)) / H(F, M).
    pub normalized_mutual_information: f64,
    /// Bins of their histogram along each axis.
    pub bins: usize,
    /// Structural similarity; null when an axis is shorter than its window of 11 voxels.
    pub ssim: Option<f64>,
    pub mean_squared_error: f64,
    /// Peak signal-to-noise ratio in dB; null for equal images.
    pub psnr: f64,
    /// Range of the fixed image's intensities, which SSIM and PSNR refer to.
    pub range: f64,
}

/// How well labels overlap; distances in mm.
#[derive(Debug, Serialize)]
pub struct Labels {
    pub mean: Means,
    /// Mean Dice, weighted by the inverse of the label's volume in the fixed map.
    pub inverse_volume_dice: f64,
    pub labels: Vec<Label>,
    /// Labels that only one side has; they score nothing.
    pub absent: Vec<i32>,
    /// Labels that the warp has lost: Dice 0, no distances.
    pub lost: Vec<i32>,
}

/// Means over the labels that have a score.
#[derive(Debug, Serialize)]
pub struct Means {
    pub dice: f64,
    pub hd95: f64,
    pub hd90: f64,
    pub hd90_cumulative: f64,
    pub hd100: f64,
    pub assd: f64,
}

/// One label.
#[derive(Debug, Serialize)]
pub struct Label {
    #[serde(flatten)]
    pub overlap: LabelDice,
    /// What --label-names calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub surface: LabelSurface,
}

impl Report {
    pub fn of(request: &MeasureArguments, inputs: &Inputs) -> Result<Self> {
        let images = match &inputs.images {
            Some([fixed, moved]) => Some(Images::of(request, inputs, fixed, moved)?),
            None => None,
        };
        let labels = match &inputs.labels {
            Some([fixed, moved]) => Some(Labels::of(request, inputs, fixed, moved)?),
            None => None,
        };
        let mut report = Self {
            ffdp_version: env!("CARGO_PKG_VERSION"),
            command: arguments(),
            images,
            labels,
            jacobian: None,
            inverse_consistency: None,
            learn2reg: None,
            landmarks_mm: match &inputs.landmarks {
                Some(points) => Some(tre_of_mapped(&points.fixed, &points.mapped, &points.moving)?),
                None => None,
            },
        };
        let Some(warp) = &inputs.warp else { return Ok(report) };
        report.jacobian = Some(jacobian(&warp.values, warp.geometry.size)?);
        if let Some(inverse) = &inputs.inverse_warp {
            let forward = Warp::new(&warp.values, &warp.geometry)?;
            let inverse = Warp::new(&inverse.values, &inverse.geometry)?;
            report.inverse_consistency = Some(inverse_consistency(&forward, &inverse));
        }
        if let (true, Some([fixed, _]), Some(moving)) =
            (request.learn2reg, &inputs.labels, &inputs.moving_labels)
        {
            let ids = label_ids([fixed.ids(), moving.ids()], request.labels.as_deref())?;
            let displacement = &warp.values;
            let case = Learn2RegCase { fixed, moving, displacement, ids: &ids, landmarks: None };
            report.learn2reg = Some(learn2reg(&case)?);
        }
        Ok(report)
    }

    /// What the user should look at.
    pub fn warnings(&self) -> Vec<String> {
        let Some(labels) = &self.labels else { return Vec::new() };
        let lists = [
            (&labels.absent, "only one side has the labels", "they are left out of the means"),
            (&labels.lost, "the warp has lost the labels", "their Dice counts as 0"),
        ];
        let said = lists.into_iter().filter(|(ids, ..)| !ids.is_empty());
        said.map(|(ids, what, so)| format!("{what} {ids:?}; {so}")).collect()
    }
}

impl Images {
    fn of(
        request: &MeasureArguments,
        inputs: &Inputs,
        fixed: &Volume,
        moved: &Volume,
    ) -> Result<Self> {
        let (window, bins) = (request.window, request.bins);
        let size = fixed.geometry.size;
        let (low, high) = fixed.min_max().unwrap_or((0.0, 0.0));
        let range = f64::from(high) - f64::from(low);
        let within = |mask: Option<Vec<bool>>| match (mask, &inputs.covered) {
            (Some(mask), Some(covered)) => {
                Some(mask.iter().zip(covered).map(|(&a, &b)| a && b).collect::<Vec<_>>())
            }
            (mask, covered) => mask.or_else(|| covered.clone()),
        };
        // As a registration reports it.
        let object = inputs.mask.clone().unwrap_or_else(|| foreground(&fixed.data));
        let object = within(Some(object));
        let local_ncc = local_ncc(&fixed.data, &moved.data, size, window, object.as_deref())?;
        let mask = within(inputs.mask.clone());
        let mask = mask.as_deref();
        let ssim = || ssim(&fixed.data, &moved.data, size, range, mask);
        let ssim = size.iter().all(|&n| n >= SSIM_WINDOW).then(ssim).transpose()?;
        let chosen = |image: &Volume| match mask {
            Some(mask) => {
                let voxels = image.data.iter().zip(mask);
                voxels.filter(|(_, inside)| **inside).map(|(&v, _)| v).collect()
            }
            None => image.data.clone(),
        };
        let (fixed, moved): (Vec<f32>, Vec<f32>) = (chosen(fixed), chosen(moved));
        let shared = information(&fixed, &moved, bins)?;
        Ok(Self {
            voxels: fixed.len(),
            ncc: ncc(&fixed, &moved)?,
            local_ncc,
            window,
            mutual_information: shared.mutual(),
            normalized_mutual_information: shared.normalized(),
            bins,
            ssim,
            mean_squared_error: mean_squared_error(&fixed, &moved)?,
            psnr: psnr(&fixed, &moved, range)?,
            range,
        })
    }
}

impl Labels {
    fn of(
        request: &MeasureArguments,
        inputs: &Inputs,
        fixed: &LabelMap,
        moved: &LabelMap,
    ) -> Result<Self> {
        let moving = inputs.moving_labels.as_ref().unwrap_or(moved);
        let ids = label_ids([fixed.ids(), moving.ids()], request.labels.as_deref())?;
        let dice = dice_of(&fixed.data, &moved.data, &ids)?.counting_lost(&moving.ids());
        let surfaces = surface_distances(fixed, moved, &ids, DistanceUnit::Millimetres)?;
        let mean = |measure: fn(&LabelSurface) -> f64| surface_mean(&surfaces, measure);
        let listed = |holds: &dyn Fn(&LabelDice) -> bool| -> Vec<i32> {
            dice.labels.iter().filter(|label| holds(label)).map(|label| label.id).collect()
        };
        Ok(Self {
            mean: Means {
                dice: dice.mean(),
                hd95: mean(|label| label.hd95),
                hd90: mean(|label| label.hd90),
                hd90_cumulative: mean(|label| label.hd90_cumulative),
                hd100: mean(|label| label.hd100),
                assd: mean(|label| label.assd),
            },
            inverse_volume_dice: dice.inverse_volume_mean(),
            absent: listed(&|label| label.dice.is_nan()),
            lost: listed(&|label| !label.dice.is_nan() && label.moved_voxels == 0),
            labels: rows(dice, surfaces, &inputs.label_names),
        })
    }
}

fn rows(dice: DiceScores, surfaces: Vec<LabelSurface>, names: &LabelNames) -> Vec<Label> {
    let pairs = dice.labels.into_iter().zip(surfaces);
    let row = |(overlap, surface): (LabelDice, _)| {
        let name = names.get(overlap.id).map(str::to_string);
        Label { overlap, name, surface }
    };
    pairs.map(row).collect()
}
