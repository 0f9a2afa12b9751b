//! `ffdp fuse`: the labels of several atlases on one image.

mod args;

pub use self::args::FuseArguments;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ffdp_groups::Images;
use ffdp_groups::fusion::{AtlasReport, Fusion, FusionObserver, FusionResult, FusionSettings};
use ffdp_image::Error;
use ffdp_image::io::images::{header, write_labels};
use ffdp_image::io::{check_not_an_input, check_writable, write_text};
use ffdp_register::{Content, Placement};
use serde::Serialize;
use serde_json::json;

use crate::commands::cohort_images::ImageFiles;
use crate::commands::input::{Reading, image};
use crate::disk::Forecast;
use crate::failure::{Failure, Result};
use crate::hash::sha256_of;
use crate::interrupt::of_command;
use crate::journal::Opening;
use crate::manifest::{Claim, Existing, Identity, place};
use crate::memory::{Held, Plan, Sizes, peak_memory_bytes};
use crate::names::arguments;
use crate::output::{OutputFolder, Records};
use crate::printer::{Printer, print_to_stdout, summarise};
use crate::report::measures::Provenance;
use crate::settings::to_toml;

/// Bytes that joining takes for a voxel of the target, besides those of a registration.
const JOINING: u64 = 24;

/// Registers all atlases to the target and joins their labels.
pub fn run(request: &FuseArguments) -> Result<()> {
    let clock = Instant::now();
    let printer = Printer::new(request.quiet, request.verbose);
    let settings = request.resolve()?;
    let reading = Reading { volume: request.volume, nan_policy: request.nan_policy };
    let atlases =
        ImageFiles::new((Some(&request.list), &[]), &["image", "labels"], reading, printer)?;
    let grid = header(&request.fixed)?.geometry;
    let (plan, sizes) = planned(request, &settings, &atlases, grid)?;
    if request.plan {
        return plan.asking(request.mesh.first()).print(request.json);
    }
    let files = Files::in_folder(&request.output);
    let (claim, toml) =
        (files.claim(request, &settings, &atlases)?, to_toml(&settings.registration)?);
    plan.check_memory()?;
    files.prepare()?;
    printer.note(&format!("{} atlases; {}", atlases.count(), plan.in_short()));
    let target = image(&request.fixed, reading, printer)?;
    let placements = request
        .mesh
        .each()
        .into_iter()
        .map(|mesh| Ok(Placement::DeviceMesh(mesh.open(&settings.registration, &sizes)?)));
    let placements = placements.collect::<Result<Vec<_>>>()?;
    let mut output = files.opened(request, claim, &toml, printer)?;
    output.begin()?;
    of_command(
        "interrupted: the same command with --resume goes on from the last atlas that was registered",
    );
    let mut watch = Watch { output, printer, number: 0, of: atlases.count() };
    let found = Fusion::new(&target, &atlases)
        .settings(&settings)
        .on_each(placements)
        .folder(&files.checkpoint)
        .observer(&mut watch)
        .run();
    let Watch { mut output, .. } = watch;
    let finished = found.map_err(Failure::from).and_then(|found| {
        write_labels(&files.labels, &found.labels)?;
        let FusionResult { labels, atlases, weighed_voxels } = found;
        let metrics = FuseMetrics {
            run: Provenance::here(&request.mesh),
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
    let metrics = finished.inspect_err(|failure| {
        output.journal().event("failed", json!({"reason": failure.to_string()}));
    })?;
    output.journal().event("end", json!({"run_seconds": metrics.seconds, "used": metrics.used()}));
    output.complete()?;
    printer.note(&format!("results are in {}", request.output.display()));
    match request.json {
        true => print_to_stdout(&metrics.json()?),
        false => summarise(request.quiet, || metrics.summary()),
    }?;
    match metrics.atlases.len() - metrics.used() {
        left if left > 0 && request.strict => Err(Failure::result(
            format!("{left} of {} atlases were left out", metrics.atlases.len()),
            format!("the labels of the others are in {}", request.output.display()),
        )),
        _ => Ok(()),
    }
}

fn planned(
    request: &FuseArguments,
    settings: &FusionSettings,
    atlases: &ImageFiles,
    fixed: ffdp_image::image::Geometry,
) -> Result<(Plan, Sizes)> {
    let largest = atlases.grids().into_iter().max_by_key(|grid| grid.len());
    let moving = largest.unwrap_or_else(|| fixed.clone());
    let sizes = Sizes { fixed, moving, content: Content::PLAIN, labels: true };
    let voxels = sizes.fixed.len() as u64;
    // The state of all atlases during the run.
    let kept = 8 * voxels * atlases.count() as u64;
    let disk = Forecast::of_images(voxels, 0);
    let disk = Forecast { most: disk.most + kept, ..disk };
    let mut plan =
        Plan::new(&settings.registration, &sizes, Held::Whole, request.mesh.first(), disk)?;
    let at_once = request.mesh.each().len() as u64;
    plan.host_peak_bytes =
        at_once * plan.host_peak_bytes + JOINING * voxels + 8 * sizes.moving.len() as u64;
    Ok((plan, sizes))
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

    fn all(&self) -> [&PathBuf; 4] {
        [&self.labels, &self.metrics, &self.settings, &self.log]
    }

    fn prepare(&self) -> Result<()> {
        std::fs::create_dir_all(&self.folder)
            .map_err(|source| Error::io(&self.folder, "create the output folder", source))?;
        self.all().into_iter().try_for_each(|file| Ok(check_writable(file)?))
    }

    /// The run's right to the folder.
    fn claim(
        &self,
        request: &FuseArguments,
        settings: &FusionSettings,
        atlases: &ImageFiles,
    ) -> Result<Claim> {
        let inputs: Vec<&Path> = atlases.files().chain([&*request.fixed]).collect();
        let state = self.checkpoint.join("state");
        let files: Vec<&Path> =
            self.all().into_iter().chain([&state]).map(PathBuf::as_path).collect();
        for file in &files {
            check_not_an_input(file, &inputs)?;
        }
        let existing = match (request.overwrite, request.resume) {
            (true, _) => Existing::Overwrite,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
        };
        let listed: Vec<String> = atlases.files().map(place).collect();
        let settings = serde_json::to_string(settings).map_err(|reason| {
            Failure::defect(format!("settings could not be written: {reason}"))
        })?;
        let identity = [
            ("fixed", Some(place(&request.fixed))),
            ("atlases", Some(sha256_of(&listed.join("\n")))),
            ("settings", Some(sha256_of(&settings))),
            ("volume", request.volume.map(|volume| volume.to_string())),
            ("nan_policy", Some(format!("{:?}", request.nan_policy))),
        ];
        let identity: Identity =
            identity.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Claim::new(&self.folder, ("fuse", identity), &files, &inputs, existing)
    }

    fn opened(
        &self,
        request: &FuseArguments,
        claim: Claim,
        toml: &str,
        printer: Printer,
    ) -> Result<OutputFolder> {
        let state = self.checkpoint.join("state");
        let resumed = request.resume && state.exists();
        let (opening, kept) = match resumed {
            true => (Opening::Continued, vec![self.log.clone(), state]),
            false => (Opening::Anew, Vec::new()),
        };
        let version = env!("CARGO_PKG_VERSION");
        let text = format!(
            "# How the atlases of a fusion by ffdp {version} were registered.\n# ffdp fuse --settings with this file does it again.\n\n{toml}"
        );
        let records = Records {
            log: self.log.clone(),
            opening,
            settings: self.settings.clone(),
            text,
            kept,
            files: self.all().into_iter().cloned().collect(),
        };
        let mut output = OutputFolder::new(claim, records, printer)?;
        output.journal().event(
            "start",
            json!({"ffdp_version": version, "device": request.mesh.to_string(),
                   "command": arguments(), "resumed": resumed}),
        );
        Ok(output)
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
    fn registered(&mut self, report: &AtlasReport) -> ControlFlow<()> {
        self.number += 1;
        let AtlasReport { name, is_used, reasons, loss, seconds, .. } = report;
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
        self.atlases.iter().filter(|atlas| atlas.is_used).count()
    }

    fn json(&self) -> Result<String> {
        let json = serde_json::to_string_pretty(self);
        Ok(json.map_err(|reason| Failure::defect(reason.to_string()))? + "\n")
    }

    fn summary(&self) -> String {
        let mut text = format!("{:<16}{} of {}\n", "atlases", self.used(), self.atlases.len());
        for AtlasReport { name, dice, reasons, .. } in &self.atlases {
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
