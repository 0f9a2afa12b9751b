//! `ffdp register` of a moving image with several volumes: the library registers them, here is what is read, said and
//! written.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ffdp_burn::transform::Composite;
use ffdp_groups::series::{
    REFERENCE, RegisterSeries, SeriesImage, SeriesObserver, SeriesProgress, SeriesRegistration,
    SeriesTransforms, SeriesVerdict,
};
use ffdp_image::image::{Geometry, Volume};
use ffdp_image::io::images::{header, read_volume, write_volume};
use ffdp_image::io::{check_not_an_input, write_text};
use ffdp_parallel::DeviceMesh;
use ffdp_register::{Content, Placement, Registration, Settings};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::args::{ImageFormat, RegisterArguments};
use super::files::settings_file;
use super::inputs::{check_is_no_label_map, initial};
use crate::commands::group::finish;
use crate::commands::input::{Reading, check_on_grid, image, weights};
use crate::disk::Forecast;
use crate::failure::{Failure, Result};
use crate::hash::sha256;
use crate::journal::Opening;
use crate::manifest::{Claim, ClaimingRun, Existing};
use crate::memory::{Sizes, peak_memory_bytes};
use crate::names::arguments;
use crate::output::{self, OutputFolder, Records};
use crate::printer::{Printer, Verbosity, print_to_stdout};
use crate::report::measures::{Input, Provenance, RunMeasures};
use crate::report::series::{SeriesMeasures, SeriesSeconds, html};
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
    request.check_cuts(&settings)?;
    if !request.labels_as_images {
        let images = request.fixed.as_deref().into_iter().chain([request.moving()]);
        images.into_iter().try_for_each(check_is_no_label_map)?;
    }
    let images = SeriesImage::open(request.moving())?;
    let files = Files::new(&request.output, images.count(), deforms(&settings));
    let claim = claim(request, &files, &settings)?;
    images.warnings().iter().for_each(|warning| printer.warning(warning));
    let inputs = SeriesInputs::read(request, images.grid(), printer)?;
    let run = SeriesRun { request, printer, settings, images, files, inputs };
    if request.print.plan {
        return run.predict();
    }
    run.check_room(&claim)?;
    let mesh = run.open()?;
    let device = mesh.device(0).clone();
    let mut output = run.begin(claim)?;
    let read_and_start = clock.elapsed().as_secs_f64();
    let measured = run.register(mesh, &mut output).and_then(|found| {
        output.begin()?;
        let results = Instant::now();
        let warnings = write(request, &run.files, &found, &device)?;
        let seconds = SeriesSeconds {
            read_and_start,
            register: found.seconds,
            results: results.elapsed().as_secs_f64(),
            total: clock.elapsed().as_secs_f64(),
        };
        warnings.iter().for_each(|warning| printer.warning(warning));
        let measures = run.measures(found, &warnings, seconds)?;
        write_text(&run.files.metrics, &measures.json()?)?;
        write_text(&run.files.report, &html(&measures)?)?;
        Ok(measures)
    });
    let measures = finish(output, measured, &request.print, &request.output)?;
    let SeriesVerdict { verdict, failed, not_registered, .. } = &measures.verdict;
    let reason = || {
        format!(
            "the registration of some volumes failed: {failed:?}; not registered: {not_registered:?}"
        )
    };
    super::strictly(request, *verdict, reason)
}

/// A series that is registered.
struct SeriesRun<'a> {
    request: &'a RegisterArguments,
    printer: Printer,
    settings: Settings,
    images: SeriesImage<'a>,
    files: Files,
    inputs: SeriesInputs,
}

impl SeriesRun<'_> {
    /// The grid that volumes are brought onto.
    fn grid(&self) -> &Geometry {
        self.inputs.fixed.as_ref().map_or(self.images.grid(), |fixed| &fixed.geometry)
    }

    /// What will be written.
    fn forecast(&self) -> Forecast {
        let voxels = (self.grid().len() * self.images.count()) as u64;
        let fields = if deforms(&self.settings) { 12 * voxels } else { 0 };
        Forecast::of_images(voxels, fields)
    }

    /// Prints what a run would take, unless it would be refused.
    fn predict(&self) -> Result<()> {
        let series = self.series();
        series.check()?;
        let (count, host) = (self.images.count(), series.host_bytes());
        let disk = self.forecast().expected;
        print_to_stdout(&match self.request.print.json {
            true => format!(
                "{}\n",
                json!({"volumes": count, "host_peak_bytes": host, "disk_bytes": disk})
            ),
            false => format!(
                "{:<22}{count}\n{:<22}{:.2} GB at the peak\n{:<22}{:.2} GB\n",
                "volumes",
                "host memory",
                host as f64 / 1e9,
                "disk",
                disk as f64 / 1e9
            ),
        })
    }

    /// Demands that all files can be written, and disk space for them.
    fn check_room(&self, claim: &Claim) -> Result<()> {
        output::prepare(&self.files.folder, &self.files.single())?;
        self.forecast().check(
            "the results of the series",
            claim.result_folder(self.request.folder.ignore_disk),
            self.printer,
        )
    }

    fn open(&self) -> Result<DeviceMesh> {
        let sizes = Sizes {
            content: Content { masked: self.request.masked(), ..Content::PLAIN },
            labels: false,
            fixed: self.grid().clone(),
            moving: self.images.grid().clone(),
        };
        self.request.mesh.open(&self.settings, &sizes)
    }

    fn begin(&self, claim: Claim) -> Result<OutputFolder> {
        let files = &self.files;
        let records = Records {
            log: files.log.clone(),
            opening: Opening::Anew,
            settings: files.settings.clone(),
            text: settings_file(&to_toml(&self.settings)?),
            kept: Vec::new(),
            files: files.single().iter().map(|file| file.to_path_buf()).collect(),
        };
        let mut output = OutputFolder::new(claim, records, self.printer)?;
        output.journal().event(
            "start",
            json!({"ffdp_version": env!("CARGO_PKG_VERSION"),
                   "device": self.request.mesh.to_string(),
                   "command": arguments(), "volumes": self.images.count()}),
        );
        Ok(output)
    }

    /// What is registered.
    fn series(&self) -> RegisterSeries<'_> {
        let SeriesInputs { fixed, masks, initial } = &self.inputs;
        let mut series =
            RegisterSeries::new(&self.images).settings(&self.settings).initial(initial.clone());
        series = match fixed {
            Some(fixed) => series.fixed(fixed),
            None => series.reference(self.request.reference.unwrap_or_default()),
        };
        let [fixed_mask, moving_mask] = masks;
        if let Some(mask) = fixed_mask {
            series = series.fixed_mask(mask);
        }
        if let Some(mask) = moving_mask {
            series = series.moving_mask(mask);
        }
        series
    }

    fn register(&self, mesh: DeviceMesh, output: &mut OutputFolder) -> Result<SeriesRegistration> {
        let folder = self.files.folder.clone();
        let mut progress = Progress::new(self.printer, folder, deforms(&self.settings), output);
        let series = self.series().on(Placement::DeviceMesh(mesh));
        let found = series.observer(&mut progress).run();
        progress.finish();
        match progress.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(found?),
        }
    }

    fn measures(
        &self,
        found: SeriesRegistration,
        warnings: &[String],
        seconds: SeriesSeconds,
    ) -> Result<SeriesMeasures> {
        let moving = self.request.moving();
        Ok(SeriesMeasures {
            run: Provenance::here(&self.request.mesh),
            fixed: match (&self.request.fixed, &self.inputs.fixed) {
                (Some(path), Some(fixed)) => Some(Input::of(path, sha256(path)?, &fixed.geometry)),
                _ => None,
            },
            moving: Input::of(moving, sha256(moving)?, self.images.grid()),
            onto: found.onto,
            centre_mm: found.centre_mm,
            verdict: found.verdict(),
            framewise_displacement_mm: found.mean_and_largest_displacement_mm(),
            warnings: [self.images.warnings(), warnings].concat(),
            settings: found.settings,
            seconds,
            peak_memory_bytes: peak_memory_bytes(),
            volumes: found.volumes,
        })
    }
}

/// Refuses what a series cannot be given, with what gives it after the registration.
fn refuse_what_pairs_have(request: &RegisterArguments) -> Result<()> {
    let labels = "warp labels with its transforms: ffdp apply -i LABELS -t OUTPUT --interpolation nearest, for those of \
                  one volume with --volume K; compare them by ffdp measure";
    let landmarks = "map points with the transform of their volume: ffdp apply --landmarks POINTS \
                     -t OUTPUT/transforms/NNNN_affine.txt, or measure them by ffdp measure --landmarks";
    let jacobian = "measure the deformation of a volume: ffdp measure --warp OUTPUT/transforms/NNNN_warp.nii.gz \
                    --jacobian-out FILE";
    let channels =
        "register the contrast that shows most, and warp others: ffdp apply -i OTHER -t OUTPUT";
    let policy = request.given.has("nan_policy") && request.fixed.is_none();
    let given = [
        ("--fixed-labels", request.fixed_labels.is_some(), labels),
        ("--moving-labels", request.moving_labels.is_some(), labels),
        ("--landmarks", request.landmarks.is_some(), landmarks),
        ("--jacobian", request.jacobian, jacobian),
        ("--channels", !request.channels.is_empty(), channels),
        ("--resume", request.folder.resume, "start it anew, with --overwrite"),
        (
            "--checkpoint-every",
            request.given.has("checkpoint_every"),
            "a series is registered without checkpoints",
        ),
        (
            "--no-inverse",
            request.no_inverse,
            "no inverse is computed of the transforms of a series",
        ),
        (
            "--nan-policy",
            policy,
            "volumes with NaN are reported, and have the transform of their neighbour",
        ),
        (
            "--format ome-zarr",
            request.format != ImageFormat::Nifti,
            "convert the result: ffdp convert OUTPUT/warped.nii.gz warped.zarr",
        ),
    ];
    match given.into_iter().find(|(_, given, _)| *given) {
        None => Ok(()),
        Some((flag, _, instead)) => Err(Failure::user(
            format!(
                "{flag} is for an image of one volume, and {} has several",
                request.moving().display()
            ),
            format!("leave it out, or choose one volume with --volume K; {instead}"),
        )),
    }
}

fn claim(request: &RegisterArguments, files: &Files, settings: &Settings) -> Result<Claim> {
    let inputs = request.inputs();
    for file in files.all().into_iter().chain([files.folder.as_path()]) {
        check_not_an_input(file, &inputs)?;
    }
    let existing = if request.folder.overwrite { Existing::Overwrite } else { Existing::Refuse };
    let identity = request.identity(&to_toml(settings)?);
    let run = ClaimingRun { command: "register", identity, files: &files.all(), inputs: &inputs };
    Claim::new(&files.folder, run, existing)
}

/// What is read next to the series.
struct SeriesInputs {
    /// The image that stays, where one was named.
    fixed: Option<Volume>,
    /// How much the voxels of it, or of the reference, count, and those of each volume.
    masks: [Option<Volume>; 2],
    /// Where the first volume starts.
    initial: Composite,
}

impl SeriesInputs {
    /// Masks are checked by their headers first.
    fn read(request: &RegisterArguments, series: &Geometry, printer: Printer) -> Result<Self> {
        let fixed_grid = request.fixed.as_ref().map(header).transpose()?.map(|of| of.geometry);
        let fixed_path = request.fixed.as_deref().unwrap_or(request.moving());
        let sides = [
            (&request.fixed_mask, fixed_grid.as_ref().unwrap_or(series), fixed_path),
            (&request.moving_mask, series, request.moving()),
        ];
        for (mask, grid, image) in sides {
            mask.as_ref().map_or(Ok(()), |mask| check_on_grid(mask, "mask", grid, image))?;
        }
        let reading = Reading { volume: None, nan_policy: request.reading.nan_policy };
        let fixed_mask = match &request.fixed {
            // Voxels that are no numbers may have the weight 0.
            Some(path) => weights(path, reading, request.fixed_mask.as_deref())?,
            None => request.fixed_mask.as_ref().map(read_volume).transpose()?,
        };
        let fixed = request.fixed.as_deref().map(|path| image(path, reading, printer));
        Ok(Self {
            initial: initial(request)?,
            masks: [fixed_mask, request.moving_mask.as_ref().map(read_volume).transpose()?],
            fixed: fixed.transpose()?,
        })
    }
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
    let mut warnings =
        found.write_warped(request.moving(), &files.warped, &transforms, beyond, device)?;
    for (k, volume) in found.volumes.iter().enumerate().filter(|(_, v)| !v.is_registered()) {
        warnings.push(format!("volume {k}: {}", volume.reasons.join("; ")));
    }
    Ok(warnings)
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
