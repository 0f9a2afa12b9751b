//! `ffdp register` of a moving image with several volumes: the library registers them, here is what is read, said and
//! written.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ffdp_groups::series::{
    REFERENCE, RegisterSeries, SeriesImage, SeriesObserver, SeriesProgress, SeriesRegistration,
    SeriesTransforms,
};
use ffdp_image::image::Volume;
use ffdp_image::io::images::{read_volume, write_volume};
use ffdp_image::io::{check_not_an_input, write_text};
use ffdp_register::{Content, Placement, Registration, Settings, verdict::Verdict};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::args::{ImageFormat, RegisterArguments};
use super::files::settings_file;
use super::inputs::initial;
use crate::commands::input::{Reading, image};
use crate::disk::Forecast;
use crate::failure::{Failure, Result};
use crate::hash::sha256;
use crate::journal::Opening;
use crate::manifest::{Claim, Existing};
use crate::memory::{Sizes, peak_memory_bytes};
use crate::names::arguments;
use crate::output::{self, OutputFolder, Records};
use crate::printer::{Printer, Verbosity, print_to_stdout, summarise};
use crate::report::measures::{Input, Provenance};
use crate::report::series::{SeriesMeasures, SeriesSeconds, html, summary};
use crate::settings::{deforms, to_toml};

/// Where the results go.
struct Files {
    folder: PathBuf,
    warped: PathBuf,
    reference: PathBuf,
    motion: PathBuf,
    report: PathBuf,
    metrics: PathBuf,
    settings: PathBuf,
    log: PathBuf,
    transforms: Vec<PathBuf>,
}

impl Files {
    fn new(folder: &Path, volumes: usize, deforms: bool) -> Self {
        Self {
            folder: folder.to_path_buf(),
            warped: folder.join("warped.nii.gz"),
            reference: folder.join(REFERENCE),
            motion: folder.join("motion.tsv"),
            report: folder.join("report.html"),
            metrics: folder.join("metrics.json"),
            settings: folder.join("settings.toml"),
            log: folder.join("log.jsonl"),
            transforms: SeriesTransforms::names(folder, volumes, deforms),
        }
    }

    fn single(&self) -> [&Path; 7] {
        let Self { warped, reference, motion, report, metrics, settings, log, .. } = self;
        [warped, reference, motion, report, metrics, settings, log]
    }

    fn all(&self) -> Vec<&Path> {
        let transforms = self.transforms.iter().map(PathBuf::as_path);
        self.single().into_iter().chain(transforms).collect()
    }
}

/// Registers all volumes and writes the results.
pub fn run(request: &RegisterArguments) -> Result<()> {
    let clock = Instant::now();
    refuse_what_pairs_have(request)?;
    let printer = request.print.printer();
    let settings = request.resolve()?;
    let images = SeriesImage::open(request.moving())?;
    if request.print.plan {
        return predict(request, &images, &settings);
    }
    let files = Files::new(&request.output, images.count(), deforms(&settings));
    let (claim, toml) = (claim(request, &files, &settings)?, to_toml(&settings)?);
    images.warnings().iter().for_each(|warning| printer.warning(warning));
    let [fixed, mask] = fixed_and_mask(request, printer)?;
    let grid = fixed.as_ref().map_or(images.grid(), |fixed| &fixed.geometry).clone();
    output::prepare(&files.folder, &files.single())?;
    let voxels = (grid.len() * images.count()) as u64;
    let fields = if deforms(&settings) { 12 * voxels } else { 0 };
    Forecast::of_images(voxels, fields).check(
        ("the results of the series", &files.folder),
        claim.earlier_bytes(),
        request.folder.ignore_disk,
        printer,
    )?;
    let sizes = Sizes {
        content: Content { masked: [mask.is_some(), false], ..Content::PLAIN },
        labels: false,
        fixed: grid.clone(),
        moving: images.grid().clone(),
    };
    let mesh = request.mesh.open(&settings, &sizes)?;
    let device = mesh.device(0).clone();
    let records = Records {
        log: files.log.clone(),
        opening: Opening::Anew,
        settings: files.settings.clone(),
        text: settings_file(&toml),
        kept: Vec::new(),
        files: files.single().iter().map(|file| file.to_path_buf()).collect(),
    };
    let mut output = OutputFolder::new(claim, records, printer)?;
    output.journal().event(
        "start",
        json!({"ffdp_version": env!("CARGO_PKG_VERSION"), "device": request.mesh.to_string(),
               "command": arguments(), "volumes": images.count()}),
    );
    let opened = clock.elapsed().as_secs_f64();
    let mut progress =
        Progress::new(printer, files.folder.clone(), deforms(&settings), &mut output);
    let mut series = RegisterSeries::new(&images)
        .settings(&settings)
        .initial(initial(request)?)
        .on(Placement::DeviceMesh(mesh))
        .observer(&mut progress);
    series = match &fixed {
        Some(fixed) => series.fixed(fixed),
        None => series.reference(request.reference.unwrap_or_default()),
    };
    if let Some(mask) = &mask {
        series = series.fixed_mask(mask);
    }
    let found = series.run();
    progress.finish();
    if let Some(failure) = progress.failure.take() {
        return Err(failure);
    }
    let found = found?;
    drop(progress);
    output.begin()?;
    let results = Instant::now();
    let warnings = write(request, &files, &found, &device)?;
    let results = results.elapsed().as_secs_f64();
    let measures = SeriesMeasures {
        run: Provenance::here(&request.mesh),
        fixed: match (&request.fixed, &fixed) {
            (Some(path), Some(fixed)) => Some(Input::of(path, sha256(path)?, &fixed.geometry)),
            _ => None,
        },
        moving: Input::of(request.moving(), sha256(request.moving())?, images.grid()),
        onto: found.onto,
        centre_mm: found.centre_mm,
        verdict: found.verdict(),
        framewise_displacement_mm: found.mean_and_largest_displacement_mm(),
        warnings: [images.warnings(), &warnings].concat(),
        settings: found.settings.clone(),
        seconds: SeriesSeconds {
            read_and_start: opened,
            register: found.seconds,
            results,
            total: clock.elapsed().as_secs_f64(),
        },
        peak_memory_bytes: peak_memory_bytes(),
        volumes: found.volumes,
    };
    let text = serde_json::to_string_pretty(&measures)
        .map_err(|reason| Failure::defect(reason.to_string()))?
        + "\n";
    write_text(&files.metrics, &text)?;
    write_text(&files.report, &html(&measures)?)?;
    warnings.iter().for_each(|warning| printer.warning(warning));
    output.journal().event(
        "end",
        json!({"verdict": measures.verdict, "peak_memory_bytes": measures.peak_memory_bytes}),
    );
    output.complete()?;
    printer.note(&format!("results are in {}", request.output.display()));
    match request.print.json {
        true => print_to_stdout(&text),
        false => summarise(request.print.quiet, || summary(&measures)),
    }?;
    strictly(request, &measures)
}

/// What belongs to a pair, and has no meaning for a series yet.
fn refuse_what_pairs_have(request: &RegisterArguments) -> Result<()> {
    let given = [
        ("--fixed-labels", request.fixed_labels.is_some()),
        ("--moving-labels", request.moving_labels.is_some()),
        ("--moving-mask", request.moving_mask.is_some()),
        ("--landmarks", request.landmarks.is_some()),
        ("--label-names", request.label_names.is_some()),
        ("--jacobian", request.jacobian),
        ("--channels", !request.channels.is_empty()),
        ("--resume", request.folder.resume),
        ("--format ome-zarr", request.format != ImageFormat::Nifti),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(Failure::user(
            format!(
                "{flag} is for an image of one volume, and {} has several",
                request.moving().display()
            ),
            "leave it out, or choose one volume with --volume K",
        )),
    }
}

fn claim(request: &RegisterArguments, files: &Files, settings: &Settings) -> Result<Claim> {
    let inputs = request.inputs();
    for file in files.all().into_iter().chain([files.folder.as_path()]) {
        check_not_an_input(file, &inputs)?;
    }
    let existing = if request.folder.overwrite { Existing::Overwrite } else { Existing::Refuse };
    let what = ("register", request.identity(&to_toml(settings)?));
    Claim::new(&files.folder, what, &files.all(), &inputs, existing)
}

/// The image that stays, where one was named, and how much its voxels, or those of the reference, count.
fn fixed_and_mask(request: &RegisterArguments, printer: Printer) -> Result<[Option<Volume>; 2]> {
    let reading = Reading { volume: None, nan_policy: request.reading.nan_policy };
    let fixed = request.fixed.as_deref().map(|path| image(path, reading, printer)).transpose()?;
    let mask = request.fixed_mask.as_ref().map(read_volume).transpose()?;
    Ok([fixed, mask])
}

/// Prints what a run would take.
fn predict(request: &RegisterArguments, images: &SeriesImage, settings: &Settings) -> Result<()> {
    let fixed = request.fixed.as_ref().map(read_volume).transpose()?;
    let mut series = RegisterSeries::new(images).settings(settings);
    if let Some(fixed) = &fixed {
        series = series.fixed(fixed);
    }
    let voxels = fixed.as_ref().map_or(images.grid(), |fixed| &fixed.geometry).len();
    let all = (voxels * images.count()) as u64;
    let fields = if deforms(settings) { 12 * all } else { 0 };
    let (host, disk) = (series.host_bytes(), Forecast::of_images(all, fields).expected);
    print_to_stdout(&match request.print.json {
        true => format!(
            "{}\n",
            json!({"volumes": images.count(), "host_peak_bytes": host, "disk_bytes": disk})
        ),
        false => format!(
            "{:<22}{}\n{:<22}{:.2} GB at the peak\n{:<22}{:.2} GB\n",
            "volumes",
            images.count(),
            "host memory",
            host as f64 / 1e9,
            "disk",
            disk as f64 / 1e9
        ),
    })
}

/// Writes transforms, motion, reference and the warped series; what there is to say about it.
fn write(
    request: &RegisterArguments,
    files: &Files,
    found: &SeriesRegistration,
    device: &burn::tensor::Device,
) -> Result<Vec<String>> {
    let transforms = found.write_transforms(&files.folder)?;
    write_text(&files.motion, &found.table())?;
    write_volume(&files.reference, &found.reference)?;
    // As `apply` has it, so that it gives the same bits.
    let beyond = request.background.unwrap_or(0.0);
    let paths = (request.moving(), &*files.warped);
    let mut warnings = found.write_warped(paths, &transforms, beyond, device)?;
    for (k, volume) in found.volumes.iter().enumerate().filter(|(_, v)| !v.is_registered()) {
        warnings.push(format!("volume {k}: {}", volume.reasons.join("; ")));
    }
    Ok(warnings)
}

/// With --strict volumes that failed are a failure of the command.
fn strictly(request: &RegisterArguments, measures: &SeriesMeasures) -> Result<()> {
    let verdict = &measures.verdict;
    match verdict.verdict {
        Verdict::Failed if request.strict => Err(Failure::result(
            format!(
                "the registration of some volumes failed: {:?}; not registered: {:?}",
                verdict.failed, verdict.not_registered
            ),
            format!("the results and a report are in {}", request.output.display()),
        )),
        _ => Ok(()),
    }
}

/// Shows how far the series has come, and writes displacements as they are found.
struct Progress<'a> {
    printer: Printer,
    folder: PathBuf,
    deforms: bool,
    output: &'a mut OutputFolder,
    bar: Option<ProgressBar>,
    failure: Option<Failure>,
}

impl<'a> Progress<'a> {
    fn new(printer: Printer, folder: PathBuf, deforms: bool, output: &'a mut OutputFolder) -> Self {
        Self { printer, folder, deforms, output, bar: None, failure: None }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl SeriesObserver for Progress<'_> {
    fn volumes_done(&mut self, progress: &SeriesProgress) -> ControlFlow<()> {
        let &SeriesProgress { pass, passes, done, volumes } = progress;
        let text = format!("pass {}/{passes}: {done}/{volumes} volumes", pass + 1);
        let draw = std::io::stderr().is_terminal() && self.printer.verbosity() == Verbosity::Normal;
        if draw {
            let bar = self.bar.get_or_insert_with(|| {
                let style = ProgressStyle::with_template("{msg} [{bar:24}] eta {eta}");
                let style = style.expect("the template is valid").progress_chars("=> ");
                ProgressBar::new((passes * volumes) as u64).with_style(style)
            });
            bar.set_message(text.clone());
            bar.set_position((pass * volumes + done) as u64);
        } else if done == volumes {
            self.printer.note(&text);
        } else {
            self.printer.detail(&text);
        }
        if done == volumes {
            self.output.journal().event("pass", json!({"pass": pass + 1, "of": passes}));
        }
        if self.failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn found(&mut self, volume: usize, found: &Registration) -> ffdp_image::Result<()> {
        if !self.deforms {
            return Ok(());
        }
        // Results of an earlier run stay until there is something in their place.
        if let Err(failure) = self.output.begin() {
            self.failure = Some(failure);
            return Ok(());
        }
        SeriesTransforms::write_warp(&self.folder, volume, found)
    }
}
