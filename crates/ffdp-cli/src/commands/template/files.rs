//! Where the results of a template go.

use std::path::{Path, PathBuf};

use ffdp_groups::template::TemplateSettings;
use ffdp_image::io::check_not_an_input;

use super::args::TemplateArguments;
use crate::commands::cohort_images::ImageFiles;
use crate::commands::group::{RunFiles, places};
use crate::failure::{Failure, Result};
use crate::manifest::{Claim, ClaimingRun, place};

/// In the folder of an image.
pub const AFFINE: &str = "affine.txt";
pub const AFFINE_MAT: &str = "affine.mat";
pub const WARP: &str = "warp.nii.gz";
pub const INVERSE: &str = "inverse_warp.nii.gz";

/// The files in the output folder.
pub struct Files {
    pub folder: PathBuf,
    pub template: PathBuf,
    pub mean: PathBuf,
    pub variance: PathBuf,
    pub labels: PathBuf,
    pub report: PathBuf,
    pub metrics: PathBuf,
    settings: PathBuf,
    log: PathBuf,
    /// The state of the run.
    pub checkpoint: PathBuf,
    /// Of all images.
    members: Vec<PathBuf>,
}

impl Files {
    pub fn of(request: &TemplateArguments, images: &ImageFiles) -> Self {
        let folder = request.output.clone();
        let image = |name: &str| folder.join(format!("{name}.nii.gz"));
        let in_folder = |name: &str| {
            [AFFINE, AFFINE_MAT, WARP, INVERSE].map(|file| folder.join(name).join(file))
        };
        Self {
            template: image("template"),
            mean: image("mean"),
            variance: image("variance"),
            labels: image("labels"),
            report: folder.join("report.html"),
            metrics: folder.join("metrics.json"),
            settings: folder.join("settings.toml"),
            log: folder.join("log.jsonl"),
            checkpoint: folder.join("checkpoint"),
            members: images.names().flat_map(in_folder).collect(),
            folder,
        }
    }

    /// What the run goes on from.
    fn state(&self) -> PathBuf {
        self.checkpoint.join("state")
    }

    /// Every file that may be written.
    fn all(&self) -> Vec<PathBuf> {
        self.own().into_iter().chain(&self.members).cloned().collect()
    }

    /// Those of the template itself.
    fn own(&self) -> [&PathBuf; 8] {
        [
            &self.template,
            &self.mean,
            &self.variance,
            &self.labels,
            &self.report,
            &self.metrics,
            &self.settings,
            &self.log,
        ]
    }

    /// As a run of a group has them.
    pub fn of_run(&self) -> RunFiles {
        RunFiles {
            folder: self.folder.clone(),
            log: self.log.clone(),
            settings: self.settings.clone(),
            state: self.state(),
            tried: self.own().map(PathBuf::clone).to_vec(),
            all: self.all(),
        }
    }

    /// The run's right to the folder.
    ///
    /// # Errors
    /// When a result would overwrite an input, an image is called as a folder of the run, or the folder holds results of
    /// another run and the request does not allow for it.
    pub fn claim(
        &self,
        request: &TemplateArguments,
        settings: &TemplateSettings,
        images: &ImageFiles,
    ) -> Result<Claim> {
        let inputs: Vec<&Path> = images.files().chain(request.grid.as_deref()).collect();
        let state = self.state();
        let all = self.all();
        let files: Vec<&Path> = all.iter().map(PathBuf::as_path).chain([&*state]).collect();
        for file in &files {
            check_not_an_input(file, &inputs)?;
        }
        let own = self.own().into_iter().chain([&self.checkpoint]);
        let mut own = own.filter_map(|file| file.file_name()?.to_str());
        if let Some(name) = images.names().find(|name| own.any(|own| own == *name)) {
            return Err(Failure::user(
                format!("an image is called {name}, as a file of the template"),
                "give it another name by a column `name` of a list",
            ));
        }
        let more = [
            ("grid", request.grid.as_deref().map(place)),
            ("no_inverse", request.no_inverse.then(String::new)),
        ];
        let identity = request.run.identity(settings, places(images.files()), &more)?;
        let run = ClaimingRun { command: "template", identity, files: &files, inputs: &inputs };
        Claim::new(&self.folder, run, request.run.folder.existing())
    }
}
