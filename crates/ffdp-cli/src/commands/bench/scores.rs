//! How good a map between the images of a pair is, by their labels and by the map itself.

use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::Composite;
use ffdp_image::Error;
use ffdp_image::image::{LabelMap, Volume};
use ffdp_image::io::images::{read_labels, read_volume};
use ffdp_image::metrics::{
    DistanceUnit, LabelDice, LabelSurface, Regularity, dice_of, regularity, surface_distances,
    surface_mean,
};
use serde::{Deserialize, Serialize};

use super::pairs::Pair;
use crate::commands::input::label_ids;
use crate::failure::Result;

/// A pair in host memory.
pub struct Images {
    pub fixed: Volume,
    pub moving: Volume,
    pub fixed_labels: LabelMap,
    pub moving_labels: LabelMap,
}

impl Images {
    /// Reads a pair. Labels must lie on the grids of their images.
    pub fn read(pair: &Pair) -> Result<Self> {
        let [fixed, moving] = [read_volume(&pair.fixed)?, read_volume(&pair.moving)?];
        for (image, path) in [(&fixed, &pair.fixed), (&moving, &pair.moving)] {
            image.check_finite(&path.display().to_string())?;
        }
        let fixed_labels = read_labels(&pair.fixed_labels)?;
        let moving_labels = read_labels(&pair.moving_labels)?;
        for (labels, image, path) in [
            (&fixed_labels, &fixed, &pair.fixed_labels),
            (&moving_labels, &moving, &pair.moving_labels),
        ] {
            image.geometry.check_same_grid(&labels.geometry, &path.display().to_string())?;
        }
        Ok(Self { fixed, moving, fixed_labels, moving_labels })
    }

    /// The labels asked for, or all of either map, in ascending order.
    pub fn ids(&self, asked: Option<&[i32]>) -> Result<Vec<i32>> {
        label_ids([self.fixed_labels.ids(), self.moving_labels.ids()], asked)
    }
}

/// Accuracy and regularity.
#[derive(Clone, Debug)]
pub struct Scores {
    /// Labels that both images have.
    pub labels: usize,
    pub dice: f64,
    pub inverse_volume_dice: f64,
    pub hd90_cumulative_mm: f64,
    /// Of a map that is not affine.
    pub regularity: Option<Regularity>,
    /// Of each label that both images have.
    pub of_labels: Vec<LabelScore>,
}

/// How well one label overlaps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelScore {
    pub id: i32,
    /// What --label-names calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub dice: f64,
    /// Null when the map has lost the label.
    pub hd90_cumulative_mm: Option<f64>,
}

impl LabelScore {
    fn of(overlap: &LabelDice, surface: &LabelSurface) -> Self {
        let hd90_cumulative_mm = Some(surface.hd90_cumulative).filter(|mm| mm.is_finite());
        Self { id: overlap.id, name: None, dice: overlap.dice, hd90_cumulative_mm }
    }
}

impl Scores {
    /// Measures a map from the fixed to the moving image; `deforms` says whether it can fold.
    pub fn of(
        map: &Composite,
        deforms: bool,
        images: &Images,
        ids: &[i32],
        device: &Device,
    ) -> Result<Self> {
        let Images { fixed_labels: fixed, moving_labels: moving, .. } = images;
        let map = map.on_grid(&fixed.geometry, device);
        let moved = map.warp_labels(moving, Interpolation::Nearest)?;
        let present = moving.ids();
        let dice = dice_of(&fixed.data, &moved.data, ids)?.counting_lost(&present);
        let surfaces = surface_distances(fixed, &moved, ids, DistanceUnit::Millimetres)?;
        let regularity = deforms.then(|| -> Result<Regularity> {
            Ok(regularity(&map.displacement().to_vec()?, fixed.geometry.size)?)
        });
        let pairs = dice.labels.iter().zip(&surfaces);
        let present = pairs.filter(|(overlap, _)| !overlap.dice.is_nan());
        let of_labels: Vec<LabelScore> =
            present.map(|(overlap, surface)| LabelScore::of(overlap, surface)).collect();
        if of_labels.is_empty() {
            let what = "the label maps of a pair must share a label that counts";
            return Err(Error::invalid(what, format!("{ids:?}"), "check --labels").into());
        }
        Ok(Self {
            labels: of_labels.len(),
            dice: dice.mean(),
            inverse_volume_dice: dice.inverse_volume_mean(),
            hd90_cumulative_mm: surface_mean(&surfaces, |label| label.hd90_cumulative),
            regularity: regularity.transpose()?,
            of_labels,
        })
    }
}
