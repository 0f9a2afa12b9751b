//! The files of a prediction.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ffdp_image::io::images::{write_displacement, write_labels, write_volume};
use ffdp_image::io::write_text;
use ffdp_image::metrics::SimilarityMeasures;
use ffdp_train::RunFolder;
use serde::Serialize;
use serde_json::Value;

use super::PredictArguments;
use crate::failure::Result;
use crate::json::to_json;
use crate::label_names::NamedOverlap;
use crate::manifest::{Claim, ClaimingRun, Existing};
use crate::names::as_text;
use crate::output;
use crate::report::measures::Provenance;
use crate::report::verdict;
use crate::result::{Folds, Prediction, PredictionMeasures};

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
        // Without weights there is nothing to predict with, which is said when they are loaded.
        let weights = request.checkpoint.weights(&RunFolder::new(&request.model)).ok();
        let inputs = [request.inputs(), weights.iter().map(PathBuf::as_path).collect()].concat();
        let (identity, files) = (request.identity(), self.all());
        let run = ClaimingRun { command: "predict", identity, files: &files, inputs: &inputs };
        Claim::new(&self.folder, run, existing)
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

/// What is known about a prediction, as `metrics.json` holds it.
#[derive(Serialize)]
pub struct Measures {
    #[serde(flatten)]
    run: Provenance,
    #[serde(serialize_with = "as_text")]
    model: PathBuf,
    #[serde(serialize_with = "as_text")]
    fixed: PathBuf,
    #[serde(serialize_with = "as_text")]
    moving: PathBuf,
    #[serde(flatten)]
    pub result: PredictionMeasures,
    /// Of each label, as the images were placed and with the result; with labels of both images.
    dice: Option<NamedOverlap>,
    seconds: BTreeMap<&'static str, f64>,
}

impl Files {
    /// Writes the images, the map and the measures, with the overlap of each label.
    pub fn write(
        &self,
        request: &PredictArguments,
        found: Prediction,
        dice: Option<NamedOverlap>,
    ) -> Result<Measures> {
        let Prediction { warped, labels: [_, labels], values, measures, seconds } = found;
        write_volume(&self.warped, &warped)?;
        write_displacement(&self.warp, &values, &warped.geometry)?;
        if let Some(labels) = &labels {
            write_labels(&self.labels, labels)?;
        }
        if let Some(dice) = &dice {
            write_text(&self.label_table, &dice.csv())?;
        }
        let measures = Measures {
            run: Provenance::here(&request.device),
            model: request.model.clone(),
            fixed: request.fixed().to_path_buf(),
            moving: request.moving().to_path_buf(),
            result: measures,
            dice,
            seconds: seconds.into_iter().collect(),
        };
        write_text(&self.metrics, &to_json(&measures)?)?;
        Ok(measures)
    }
}

/// The measures for people.
pub fn summary(measures: &Measures) -> String {
    let PredictionMeasures { phases, folds, assessment, .. } = &measures.result;
    let mut text = verdict(assessment);
    text += &format!("{:10}  {:>8}  {:>8}  {:>8}\n", "", "NCC", "local^2", "Dice");
    for phase in phases {
        let SimilarityMeasures { ncc, local_ncc_foreground, .. } = phase.similarity;
        let dice = phase.dice.map_or("-".to_string(), |dice| format!("{dice:.4}"));
        text += &format!("{:10}  {ncc:8.4}  {local_ncc_foreground:8.4}  {dice:>8}\n", phase.name);
    }
    let Folds { voxels, percent, sd_log_jacobian, .. } = folds;
    text += &format!("folds {voxels} voxels ({percent:.4} %), SD log J {sd_log_jacobian:.4}\n");
    for (what, seconds) in &measures.seconds {
        text += &format!("{what} {seconds:.2} s\n");
    }
    text
}
