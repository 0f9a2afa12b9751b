//! Where the results of a registration go.

use std::path::{Path, PathBuf};

use ffdp_image::image::Geometry;
use ffdp_register::{Settings, Stage};

use super::args::{ImageFormat, RegisterArguments};
use crate::checkpoint::CheckpointFolder;
use crate::cohort::THUMBNAIL;
use crate::commands::chain::TransformChoice;
use crate::disk::{Forecast, Written};
use crate::failure::Result;
use crate::hash::sha256_of;
use crate::journal::Opening;
use crate::manifest::{Claim, ClaimingRun, Identity, place};
use crate::output::{self, Records};
use crate::result::ResultRequest;
use crate::settings::deforms;

/// The files in the output folder.
pub struct Files {
    pub folder: PathBuf,
    pub warped: PathBuf,
    pub affine: PathBuf,
    /// The same, as ITK writes it for MATLAB: what ANTs inverts by itself.
    pub affine_mat: PathBuf,
    pub warp: PathBuf,
    pub inverse: PathBuf,
    pub spline: PathBuf,
    pub labels: PathBuf,
    /// The overlap of every label.
    pub label_table: PathBuf,
    /// ln det J.
    pub jacobian: PathBuf,
    pub report: PathBuf,
    /// Of a pair of a list, for the page of all.
    pub thumbnail: PathBuf,
    pub metrics: PathBuf,
    pub settings: PathBuf,
    pub log: PathBuf,
    pub checkpoint: CheckpointFolder,
}

impl Files {
    pub fn in_folder(folder: &Path, format: ImageFormat) -> Self {
        let image = |name: &str| folder.join(format!("{name}{}", format.ending()));
        Self {
            folder: folder.to_path_buf(),
            warped: image("warped"),
            affine: folder.join("affine.txt"),
            affine_mat: folder.join("affine.mat"),
            warp: image("warp"),
            inverse: image("inverse_warp"),
            spline: folder.join("bspline.tfm"),
            labels: image("warped_labels"),
            label_table: folder.join("labels.csv"),
            jacobian: image("log_jacobian"),
            report: folder.join("report.html"),
            thumbnail: folder.join(THUMBNAIL),
            metrics: folder.join("metrics.json"),
            settings: folder.join("settings.toml"),
            log: folder.join("log.jsonl"),
            checkpoint: CheckpointFolder::in_folder(folder),
        }
    }

    /// Every file that a run may write.
    pub fn all(&self) -> [&Path; 14] {
        [
            &self.warped,
            &self.affine,
            &self.affine_mat,
            &self.warp,
            &self.inverse,
            &self.spline,
            &self.labels,
            &self.label_table,
            &self.jacobian,
            &self.report,
            &self.thumbnail,
            &self.metrics,
            &self.settings,
            &self.log,
        ]
    }

    /// Makes the folder and tries whether every file can be written, before the work.
    pub fn prepare(&self) -> Result<()> {
        output::prepare(&self.folder, &self.all())
    }

    /// What a run writes about itself, with the settings as settings.toml has them; `resumed` if it goes on from the
    /// checkpoint that is there.
    pub fn records(&self, settings: &str, resumed: bool) -> Records {
        let (opening, kept) = match resumed {
            true => (Opening::Continued, vec![self.log.clone(), self.checkpoint.file()]),
            false => (Opening::Anew, Vec::new()),
        };
        Records {
            log: self.log.clone(),
            opening,
            settings: self.settings.clone(),
            text: settings_file(settings),
            kept,
            files: self.all().into_iter().map(Path::to_path_buf).collect(),
        }
    }

    /// The run's right to the folder, with the settings as settings.toml has them.
    ///
    /// # Errors
    /// When the folder holds results of another run, and the request does not allow for it.
    pub fn claim(
        &self,
        request: &RegisterArguments,
        settings: &str,
        inputs: &[&Path],
    ) -> Result<Claim> {
        let checkpoint = self.checkpoint.file();
        let files: Vec<&Path> = self.all().into_iter().chain([&*checkpoint]).collect();
        let identity = request.identity(settings);
        let run = ClaimingRun { command: "register", identity, files: &files, inputs };
        Claim::new(&self.folder, run, request.folder.existing())
    }
}

impl RegisterArguments {
    /// What will be written, on the grid of the fixed image.
    pub fn forecast(&self, fixed: &Geometry, settings: &Settings) -> Forecast {
        // Slab by slab nothing is inverted: methods give it or not.
        let inverted = !self.slabs || settings.stages.last().is_some_and(Stage::gives_inverse);
        let displacements = match (deforms(settings), !self.no_inverse && inverted) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        };
        let labels = self.moving_labels.is_some();
        let jacobian = self.jacobian;
        let written = Written { displacements, labels, jacobian, checkpoint: true };
        Forecast::of_registration(fixed.len() as u64, written)
    }

    /// What of a result is computed.
    pub fn result(&self) -> ResultRequest {
        ResultRequest { background: self.background, inverse: !self.no_inverse }
    }

    /// What decides the results.
    pub fn identity(&self, settings: &str) -> Identity {
        let files = [
            ("fixed", self.fixed.as_ref()),
            ("fixed_labels", self.fixed_labels.as_ref()),
            ("moving_labels", self.moving_labels.as_ref()),
            ("fixed_mask", self.fixed_mask.as_ref()),
            ("moving_mask", self.moving_mask.as_ref()),
            ("fixed_landmarks", self.landmarks.as_ref().and_then(|files| files.first())),
            ("label_names", self.label_names.as_ref()),
            ("moving_landmarks", self.landmarks.as_ref().and_then(|files| files.get(1))),
        ];
        let files = files.into_iter().filter_map(|(name, file)| Some((name, place(file?))));
        let channels: Vec<_> = self.channels.iter().map(|file| place(file)).collect();
        let space = self.landmarks.is_some().then(|| format!("{:?}", self.landmark_space));
        let others = [
            ("settings", Some(sha256_of(settings))),
            ("channels", (!channels.is_empty()).then(|| format!("{channels:?}"))),
            ("initial", self.initial.as_ref().map(TransformChoice::identity)),
            ("landmark_space", space),
            ("labels", self.labels.as_ref().map(|ids| format!("{ids:?}"))),
            ("reference", self.reference.map(|reference| reference.to_string())),
            ("no_inverse", self.no_inverse.then(String::new)),
            ("jacobian", self.jacobian.then(String::new)),
            ("background", self.background.map(|value| value.to_string())),
            ("slabs", self.slabs.then(String::new)),
            ("format", (self.format != ImageFormat::Nifti).then(|| format!("{:?}", self.format))),
        ];
        let others = others.into_iter().chain(self.reading.identity());
        let others = others.filter_map(|(name, value)| Some((name, value?)));
        let moving = [("moving", place(self.moving()))];
        moving.into_iter().chain(files).chain(others).collect()
    }
}

pub fn settings_file(settings: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "# All settings of a registration by ffdp {version}.\n# ffdp register --settings with this file repeats it.\n\n{settings}"
    )
}
