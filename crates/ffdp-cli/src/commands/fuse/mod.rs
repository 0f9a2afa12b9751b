//! `ffdp fuse`: the labels of several atlases on one image.

mod args;

pub use self::args::FuseArguments;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ffdp_groups::fusion::{AtlasReport, Fusion, FusionObserver, FusionResult, FusionSettings};
use ffdp_groups::{ImageReport, Images};
use ffdp_image::io::images::{header, write_labels};
use ffdp_image::io::{check_not_an_input, write_text};
use ffdp_register::Content;
use serde::Serialize;
use serde_json::{Value, json};

use crate::commands::cohort_images::ImageFiles;
use crate::commands::group::{GroupRun, Planned, RunFiles, finish, places};
use crate::commands::input::image;
use crate::disk::Forecast;
use crate::failure::{Failure, Result};
use crate::json::to_json;
use crate::manifest::{Claim, ClaimingRun, place};
use crate::memory::{Held, Plan, Sizes, peak_memory_bytes};
use crate::output::OutputFolder;
use crate::printer::Printer;
use crate::report::measures::{Provenance, RunMeasures};

/// Bytes that joining takes for a voxel of the target, besides those of a registration.
const JOINING: u64 = 24;

/// Registers all atlases to the target and joins their labels.
pub fn run(request: &FuseArguments) -> Result<()> {
    let clock = Instant::now();
    let (printer, reading) = (request.run.print.printer(), request.run.reading);
    let settings = request.resolve()?;
    let atlases =
        ImageFiles::new(Some(&request.list), &[], &["image", "labels"], reading, printer)?;
    let grid = header(&request.fixed)?.geometry;
    let planned = planned(request, &settings, &atlases, grid)?;
    let files = Files::in_folder(&request.output);
    let claim = files.claim(request, &settings, &atlases)?;
    if request.run.print.plan {
        return planned.plan.asking(request.run.mesh.first()).print(request.run.print.json);
    }
    let run = GroupRun {
        command: "fuse",
        product: "a fusion",
        results: "the labels and the state of the run",
        images: ["atlas", "atlases"],
        count: atlases.count(),
        registration: &settings.registration,
    };
    let of_run = files.of_run();
    request.run.check(&run, &planned, &claim, &of_run)?;
    let target = image(&request.fixed, reading, printer)?;
    let (mut output, placements) = request.run.begin(&run, &planned.sizes, claim, of_run)?;
    output.begin()?;
    let mut watch = Watch { output, printer, number: 0, of: atlases.count() };
    let found = Fusion::new(&target, &atlases)
        .settings(&settings)
        .on_each(placements)
        .folder(&files.checkpoint)
        .observer(&mut watch)
        .run();
    let measured = found.map_err(Failure::from).and_then(|found| {
        write_labels(&files.labels, &found.labels)?;
        let FusionResult { labels, atlases, weighed_voxels } = found;
        let metrics = FuseMetrics {
            run: Provenance::here(&request.run.mesh),
            target: place(&request.fixed),
            labels: labels.ids().len(),
            atlases,
            weighed_voxels,
            settings: settings.clone(),
            seconds: clock.elapsed().as_secs_f64(),
            peak_memory_bytes: peak_memory_bytes(),
        };
        write_text(&files.metrics, &metrics.json()?)?;
        Ok(metrics)
    });
    let metrics = finish(watch.output, measured, &request.run.print, &request.output)?;
    let of = metrics.atlases.len();
    request.run.strictly(of - metrics.used(), of, "the labels of the others", &request.output)
}

fn planned(
    request: &FuseArguments,
    settings: &FusionSettings,
    atlases: &ImageFiles,
    fixed: ffdp_image::image::Geometry,
) -> Result<Planned> {
    atlases.check_volume(Some(&request.fixed))?;
    let largest = atlases.grids().into_iter().max_by_key(|grid| grid.len());
    let moving = largest.unwrap_or_else(|| fixed.clone());
    let sizes = Sizes { fixed, moving, content: Content::PLAIN, labels: true };
    let voxels = sizes.fixed.len() as u64;
    let (disk, mesh) = (forecast(atlases, &sizes), &request.run.mesh);
    let mut plan = Plan::new(&settings.registration, &sizes, Held::Whole, mesh.first(), disk)?;
    let at_once = mesh.each().len() as u64;
    plan.host_peak_bytes =
        at_once * plan.host_peak_bytes + JOINING * voxels + 8 * sizes.moving.len() as u64;
    Ok(Planned { plan, sizes, disk })
}

/// The labels, and during the run the state of all atlases.
fn forecast(atlases: &ImageFiles, sizes: &Sizes) -> Forecast {
    let voxels = sizes.fixed.len() as u64;
    let labels = Forecast::of_images(voxels, 0);
    Forecast { most: labels.most + 8 * voxels * atlases.count() as u64, ..labels }
}

/// The files in the output folder.
struct Files {
    folder: PathBuf,
    labels: PathBuf,
    metrics: PathBuf,
    settings: PathBuf,
    log: PathBuf,
    /// The state of the run.
    checkpoint: PathBuf,
}

impl Files {
    fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            labels: folder.join("labels.nii.gz"),
            metrics: folder.join("metrics.json"),
            settings: folder.join("settings.toml"),
            log: folder.join("log.jsonl"),
            checkpoint: folder.join("checkpoint"),
        }
    }

    fn all(&self) -> [&Path; 4] {
        [&self.labels, &self.metrics, &self.settings, &self.log]
    }

    /// As a run of a group has them.
    fn of_run(&self) -> RunFiles {
        let all: Vec<PathBuf> = self.all().iter().map(|file| file.to_path_buf()).collect();
        RunFiles {
            folder: self.folder.clone(),
            log: self.log.clone(),
            settings: self.settings.clone(),
            state: self.state(),
            tried: all.clone(),
            all,
        }
    }

    /// What the run goes on from.
    fn state(&self) -> PathBuf {
        self.checkpoint.join("state")
    }

    /// The run's right to the folder.
    fn claim(
        &self,
        request: &FuseArguments,
        settings: &FusionSettings,
        atlases: &ImageFiles,
    ) -> Result<Claim> {
        let inputs: Vec<&Path> = atlases.files().chain([&*request.fixed]).collect();
        let state = self.state();
        let files: Vec<&Path> = self.all().into_iter().chain([&*state]).collect();
        for file in &files {
            check_not_an_input(file, &inputs)?;
        }
        let fixed = ("fixed", Some(place(&request.fixed)));
        let identity = request.run.identity(settings, places(atlases.files()), &[fixed])?;
        let run = ClaimingRun { command: "fuse", identity, files: &files, inputs: &inputs };
        Claim::new(&self.folder, run, request.run.folder.existing())
    }
}

/// Lines on stderr and in the log.
struct Watch {
    output: OutputFolder,
    printer: Printer,
    number: usize,
    of: usize,
}

impl FusionObserver for Watch {
    fn registered(&mut self, report: &ImageReport) -> ControlFlow<()> {
        self.number += 1;
        let ImageReport { name, is_used, reasons, loss, seconds, .. } = report;
        let (number, of) = (self.number, self.of);
        match is_used {
            true => {
                let loss = loss.map_or(String::new(), |[before, after]| {
                    format!(", loss {before:.5} -> {after:.5}")
                });
                self.printer.note(&format!("[{number}/{of}] {name}{loss}, {seconds:.1} s"));
            }
            false => self
                .printer
                .warning(&format!("[{number}/{of}] {name} is left out: {}", reasons.join("; "))),
        }
        self.output.journal().event("registered", json!(report));
        ControlFlow::Continue(())
    }
}

/// `metrics.json`.
#[derive(Serialize)]
struct FuseMetrics {
    #[serde(flatten)]
    run: Provenance,
    target: String,
    /// How many there are.
    labels: usize,
    atlases: Vec<AtlasReport>,
    weighed_voxels: usize,
    settings: FusionSettings,
    seconds: f64,
    peak_memory_bytes: Option<u64>,
}

impl FuseMetrics {
    fn used(&self) -> usize {
        self.atlases.iter().filter(|atlas| atlas.registration.is_used).count()
    }
}

impl RunMeasures for FuseMetrics {
    fn end(&self) -> Value {
        json!({"run_seconds": self.seconds, "used": self.used()})
    }

    fn json(&self) -> Result<String> {
        to_json(self)
    }

    fn summary(&self) -> String {
        let mut text = format!("{:<16}{} of {}\n", "atlases", self.used(), self.atlases.len());
        for AtlasReport { registration: ImageReport { name, reasons, .. }, dice } in &self.atlases {
            let dice = dice.map_or("-".to_string(), |dice| format!("{dice:.4}"));
            text += &format!("  {name:<24}Dice with the joined labels {dice}");
            text += &reasons.iter().map(|reason| format!("; {reason}")).collect::<String>();
            text += "\n";
        }
        text += &format!("{:<16}{}\n", "labels", self.labels);
        text += &format!("{:<16}{}\n", "weighed voxels", self.weighed_voxels);
        text + &format!("{:<16}{:.1} s\n", "time", self.seconds)
    }
}
