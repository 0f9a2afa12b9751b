//! What a prediction is worth, and its files.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{Composite, Displacement};
use ffdp_image::image::{Geometry, LabelMap, Volume};
use ffdp_image::io::images::{write_displacement, write_labels, write_volume};
use ffdp_image::io::write_text;
use ffdp_image::metrics::{Compared, Overlap, SimilarityMeasures, dice, jacobian};
use ffdp_register::verdict::{Assessment, Evidence};
use ffdp_train::predict::Predictor;
use serde::Serialize;
use serde_json::Value;

use super::{Inputs, PredictArguments};
use crate::failure::Result;
use crate::json::to_json;
use crate::label_names::{LabelNames, NamedOverlap};
use crate::manifest::{Claim, Existing};
use crate::names::as_text;
use crate::output;
use crate::report::measures::{Provenance, shows_all};
use crate::report::verdict;
use crate::result::Folds;

/// The files in the output folder.
pub struct Files {
    folder: PathBuf,
    warped: PathBuf,
    warp: PathBuf,
    labels: PathBuf,
    /// The overlap of every label.
    label_table: PathBuf,
    metrics: PathBuf,
}

impl Files {
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            warped: folder.join("warped.nii.gz"),
            warp: folder.join("warp.nii.gz"),
            labels: folder.join("warped_labels.nii.gz"),
            label_table: folder.join("labels.csv"),
            metrics: folder.join("metrics.json"),
        }
    }

    /// Every file that may be written.
    pub fn all(&self) -> [&Path; 5] {
        [&self.warped, &self.warp, &self.labels, &self.label_table, &self.metrics]
    }

    /// The run's right to the folder.
    ///
    /// # Errors
    /// When the folder holds results of another run, and the request does not allow for it.
    pub fn claim(&self, request: &PredictArguments) -> Result<Claim> {
        let existing = match request.overwrite {
            true => Existing::Overwrite,
            false => Existing::Refuse,
        };
        let what = ("predict", request.identity());
        Claim::new(&self.folder, what, &self.all(), &request.inputs(), existing)
    }

    /// The measures that an earlier run has left.
    pub fn read_metrics(&self) -> Option<Value> {
        serde_json::from_slice(&fs::read(&self.metrics).ok()?).ok()
    }

    /// Makes the folder and tries whether every file can be written, before the work.
    pub fn prepare(&self) -> Result<()> {
        output::prepare(&self.folder, &self.all())
    }
}

/// The images through one map.
pub struct Phase {
    name: &'static str,
    warped: Volume,
    labels: Option<LabelMap>,
    similarity: SimilarityMeasures,
    dice: Option<f64>,
}

impl Phase {
    /// Warps the moving image and labels, and compares them with the fixed ones.
    pub fn of(
        name: &'static str,
        map: &Composite,
        inputs: &Inputs,
        device: &Device,
    ) -> Result<Self> {
        let map = map.on_grid(&inputs.fixed.geometry, device);
        let warped = map.warp(&inputs.moving, Interpolation::Linear)?;
        let moving_labels = inputs.moving_labels.as_ref();
        let labels = moving_labels.map(|labels| map.warp_labels(labels, Interpolation::Nearest));
        let labels = labels.transpose()?;
        let dice = match (&inputs.fixed_labels, moving_labels, &labels) {
            (Some(fixed), Some(moving), Some(moved)) => {
                Some(dice(&fixed.data, &moved.data)?.counting_lost(&moving.ids()).mean())
            }
            _ => None,
        };
        let moving = &inputs.moving;
        let ones = Volume::new(vec![1.0; moving.data.len()], moving.geometry.clone())?;
        let inside = shows_all(&map.warp(&ones, Interpolation::Linear)?);
        let compared = Compared { windows: inside.clone(), inside };
        let similarity = SimilarityMeasures::of(&inputs.fixed, &warped, &compared)?;
        Ok(Self { name, similarity, warped, labels, dice })
    }
}

/// What is known about a prediction, as `metrics.json` holds it.
#[derive(Serialize)]
pub struct Measures {
    #[serde(flatten)]
    run: Provenance,
    #[serde(serialize_with = "as_text")]
    model: PathBuf,
    /// The epoch whose weights were used.
    epoch: usize,
    #[serde(serialize_with = "as_text")]
    fixed: PathBuf,
    #[serde(serialize_with = "as_text")]
    moving: PathBuf,
    /// The images as they were placed, through the prediction and, with --refine, through the refined map.
    phases: Vec<PhaseMeasures>,
    /// Of each label, as the images were placed and with the result; with labels of both images.
    dice: Option<NamedOverlap>,
    /// Of the written displacement.
    folds: Folds,
    /// What the result is worth, and what speaks against it.
    #[serde(flatten)]
    pub assessment: Assessment,
    seconds: std::collections::BTreeMap<&'static str, f64>,
}

#[derive(Serialize)]
struct PhaseMeasures {
    name: &'static str,
    #[serde(flatten)]
    similarity: SimilarityMeasures,
    /// Mean over the labels of both images; lost labels count 0.
    dice: Option<f64>,
}

/// The result and its measures.
pub struct Results {
    warped: Volume,
    /// The moving labels as they were placed, and with the result.
    labels: [Option<LabelMap>; 2],
    /// Those that were read, of the fixed and of the moving image.
    given_labels: Option<[LabelMap; 2]>,
    values: Vec<f32>,
    grid: Geometry,
    pub measures: Measures,
}

impl Results {
    /// The last phase is the result, `warp` its map on the fixed grid.
    pub fn new(
        request: &PredictArguments,
        predictor: &Predictor,
        mut phases: Vec<Phase>,
        warp: &Displacement,
        seconds: Vec<(&'static str, f64)>,
    ) -> Result<Self> {
        let values = warp.to_vec()?;
        let placed = phases.first_mut().and_then(|phase| phase.labels.take());
        let last = phases.last_mut().expect("there is a prediction");
        let (warped, labels) = (last.warped.clone(), [placed, last.labels.take()]);
        let measures = |phase: Phase| {
            let Phase { name, similarity, dice, .. } = phase;
            PhaseMeasures { name, similarity, dice }
        };
        // The placement is part of the map.
        let folds = Folds::new(&jacobian(&values, warp.geometry().size)?, 1.0);
        let (first, last) = (&phases[0], &phases[phases.len() - 1]);
        let evidence = Evidence {
            similarity: Some([
                first.similarity.local_ncc_foreground,
                last.similarity.local_ncc_foreground,
            ]),
            folds_percent: Some(folds.percent),
            dice: first.dice.zip(last.dice).map(|(before, after)| [before, after]),
            ..Evidence::default()
        };
        let assessment = evidence.assess();
        let measures = Measures {
            run: Provenance::here(&request.device),
            model: request.model.clone(),
            epoch: predictor.epoch,
            fixed: request.fixed().to_path_buf(),
            moving: request.moving().to_path_buf(),
            phases: phases.into_iter().map(measures).collect(),
            dice: None,
            folds,
            assessment,
            seconds: seconds.into_iter().collect(),
        };
        let (grid, given_labels) = (warp.geometry().clone(), None);
        Ok(Self { warped, labels, given_labels, values, grid, measures })
    }

    /// Keeps the labels of both images, where there are such, for [`Results::measure_labels`].
    pub fn keep_labels(&mut self, inputs: Inputs) {
        let Inputs { fixed_labels, moving_labels, .. } = inputs;
        self.given_labels = fixed_labels.zip(moving_labels).map(|(fixed, moving)| [fixed, moving]);
    }

    /// Measures each label, where both images have some.
    ///
    /// # Errors
    /// Those of [`Overlap::of`].
    pub fn measure_labels(&mut self, names: &LabelNames) -> Result<()> {
        let Some([fixed, moving]) = self.given_labels.take() else { return Ok(()) };
        if let [Some(before), Some(after)] = &self.labels {
            let overlap = Overlap::of(&fixed, &moving, [before, after], None)?;
            self.measures.dice = Some(NamedOverlap { overlap, names: names.clone() });
        }
        Ok(())
    }

    /// The images, the map and the measures.
    pub fn write(&self, files: &Files) -> Result<()> {
        write_volume(&files.warped, &self.warped)?;
        write_displacement(&files.warp, &self.values, &self.grid)?;
        if let [_, Some(labels)] = &self.labels {
            write_labels(&files.labels, labels)?;
        }
        if let Some(dice) = &self.measures.dice {
            write_text(&files.label_table, &dice.csv())?;
        }
        Ok(write_text(&files.metrics, &to_json(&self.measures)?)?)
    }
}

/// The measures for people.
pub fn summary(measures: &Measures) -> String {
    let mut text = verdict(&measures.assessment);
    text += &format!("{:10}  {:>8}  {:>8}  {:>8}\n", "", "NCC", "local^2", "Dice");
    for phase in &measures.phases {
        let SimilarityMeasures { ncc, local_ncc_foreground, .. } = phase.similarity;
        let dice = phase.dice.map_or("-".to_string(), |dice| format!("{dice:.4}"));
        text += &format!("{:10}  {ncc:8.4}  {local_ncc_foreground:8.4}  {dice:>8}\n", phase.name);
    }
    let Folds { voxels, percent, sd_log_jacobian, .. } = &measures.folds;
    text += &format!("folds {voxels} voxels ({percent:.4} %), SD log J {sd_log_jacobian:.4}\n");
    for (what, seconds) in &measures.seconds {
        text += &format!("{what} {seconds:.2} s\n");
    }
    text
}
