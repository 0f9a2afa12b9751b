//! The steps of a registration: what is checked before anything is read, what is read, what is done on the device, and what is
//! measured and written after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ffdp_image::image::Geometry;
use ffdp_image::io::write_text;
use ffdp_parallel::DeviceMesh;
use ffdp_register::{Checkpoint, Register, Registration, Settings};
use serde_json::json;

use super::args::RegisterArguments;
use super::files::Files;
use super::inputs::Inputs;
use super::rehearsal::rehearse;
use super::results::Results;
use crate::checkpoint::{Identified, Keeper};
use crate::cohort::Steps;
use crate::device::DeviceChoice;
use crate::failure::{Failure, Result};
use crate::in_parallel::in_parallel;
use crate::manifest::Claim;
use crate::memory::{Plan, Sizes, give_back_memory, peak_memory_bytes};
use crate::mesh::MeshArguments;
use crate::names::arguments;
use crate::output::OutputFolder;
use crate::printer::Printer;
use crate::progress::ProgressPrinter;
use crate::report::html;
use crate::report::measures::{Measures, Seconds};
use crate::report::slices::Pictures;
use crate::settings::to_toml;
use crate::watch::Watch;

/// What all pairs have in common.
pub struct Registrations {
    settings: Settings,
    /// As settings.toml has them.
    toml: String,
    interval: Duration,
    /// Of one pair, not of a list.
    alone: bool,
    /// Where pairs are registered, each on one of them.
    meshes: Vec<MeshArguments>,
    /// Since the command began. Until the first pair is read its time counts.
    start: Instant,
    begun: AtomicBool,
}

impl Registrations {
    /// # Errors
    /// When the settings cannot be used.
    pub fn new(request: &RegisterArguments, meshes: Vec<MeshArguments>) -> Result<Self> {
        let start = Instant::now();
        let settings = request.settings.resolve()?;
        let (toml, interval) = (to_toml(&settings)?, request.checkpoint_interval()?);
        let (alone, begun) = (request.pairs.is_none(), AtomicBool::new(false));
        Ok(Self { settings, toml, interval, alone, meshes, start, begun })
    }

    /// When a pair began.
    fn clock(&self) -> Instant {
        match self.begun.swap(true, Ordering::Relaxed) {
            true => Instant::now(),
            false => self.start,
        }
    }
}

/// A pair that may be registered, as far as names and headers show.
pub struct Case {
    pub request: RegisterArguments,
    pub files: Files,
    printer: Printer,
    claim: Claim,
    sizes: Sizes,
    plan: Plan,
}

impl Case {
    /// # Errors
    /// When a result would overwrite an input, the folder holds results of another run, or an image is no image.
    pub fn new(request: RegisterArguments, all: &Registrations, printer: Printer) -> Result<Self> {
        let labels = request.moving_labels.is_some();
        let files = Files::in_folder(&request.output, request.format);
        Inputs::check(&request, &files)?;
        let claim = files.claim(&request, &all.toml, &request.inputs())?;
        let sizes = Sizes::of_files(request.fixed(), request.moving(), labels)?;
        let plan = Plan::new(&all.settings, &sizes, request.mesh.first());
        Ok(Self { request, files, printer, claim, sizes, plan })
    }

    /// Whether its results are there.
    pub fn is_done(&self) -> Result<bool> {
        self.claim.is_done()
    }
}

/// A device, opened.
pub struct Opened {
    mesh: DeviceMesh,
    arguments: MeshArguments,
    /// Memory that it had before anything was done on it.
    free_bytes: Option<u64>,
    /// What opening it took, until a pair has counted it.
    seconds: Option<f64>,
    /// The grids that it last worked on.
    grids: Option<[Geometry; 2]>,
}

/// A pair in host memory.
pub struct Read {
    inputs: Inputs,
    start: Instant,
    seconds: f64,
}

/// A pair registered, on the host again.
pub struct Registered {
    found: Results,
    inputs: Inputs,
    output: OutputFolder,
    start: Instant,
    /// As far as known.
    seconds: Seconds,
}

impl Steps for Registrations {
    type Pair = Case;
    type Device = Opened;
    type Read = Read;
    type Computed = Registered;
    type Done = Measures;

    /// Opens the device, asks for its memory, and has the kernels compiled.
    fn open(&self, device: usize, case: &Case) -> Result<Opened> {
        let Case { request, sizes, plan, printer, .. } = case;
        let clock = Instant::now();
        let arguments = self.meshes[device].clone();
        let sides = ([&sizes.fixed, &sizes.moving], request.masked());
        let mesh = arguments.open(&self.settings, sides)?;
        let first = arguments.first();
        let free_bytes = first.free_memory_bytes();
        let opened = clock.elapsed().as_secs_f64();
        let fits = plan.check_memory().is_ok() && plan.check_device_memory(free_bytes).is_ok();
        if first != DeviceChoice::Cpu && !arguments.cuts() && fits {
            printer.detail(&format!("{first} opened in {opened:.2} s"));
            // Each process that helps takes what a registration takes. Of a list they would do all of it.
            let room = free_bytes.zip(plan.device_peak_bytes);
            let room = room.map_or(1, |(free, needed)| free / needed.max(1)) as usize;
            let helpers = if self.alone { room.saturating_sub(1) } else { 0 };
            let settings = self.settings.for_images(&sizes.fixed);
            let (rehearsed, took) = timed(|| rehearse(request, &settings, sizes, &mesh, helpers));
            if rehearsed {
                printer.detail(&format!("kernels compiled by a rehearsal of {took:.2} s"));
            }
        }
        let seconds = Some(clock.elapsed().as_secs_f64());
        Ok(Opened { mesh, arguments, free_bytes, seconds, grids: None })
    }

    fn host_bytes(&self, case: &Case) -> u64 {
        case.plan.host_peak_bytes
    }

    fn read(&self, case: &Case) -> Result<Read> {
        let start = self.clock();
        let Case { request, files, printer, sizes, plan, claim } = case;
        let (inputs, seconds) = timed(|| Inputs::read(request, *printer));
        let inputs = inputs?;
        files.prepare()?;
        plan.check_memory()?;
        request.forecast(&sizes.fixed, &self.settings).check(
            ("the results of the registration", &files.folder),
            claim.earlier_bytes(),
            request.ignore_disk,
            *printer,
        )?;
        Ok(Read { inputs, start, seconds })
    }

    fn compute(&self, case: &Case, read: Read, opened: &mut Opened) -> Result<Registered> {
        let Case { request, files, printer, sizes, plan, claim } = case;
        let Read { inputs, start, seconds: read } = read;
        if !opened.arguments.cuts() {
            plan.check_device_memory(opened.free_bytes)?;
        }
        let grids = [sizes.fixed.clone(), sizes.moving.clone()];
        if opened
            .grids
            .as_ref()
            .is_some_and(|last| last.each_ref().map(|g| g.size) != grids.each_ref().map(|g| g.size))
        {
            // Memory is kept in pieces of the sizes that were asked for.
            opened.mesh.device(0).memory_cleanup();
        }
        opened.grids = Some(grids);
        let opening = opened.seconds.take();
        if let Some(opening) = opening {
            printer.detail(&format!(
                "inputs read in {read:.2} s; device start-up, in parallel, {opening:.2} s"
            ));
        }
        let seconds = Seconds { read, start: opening.unwrap_or(0.0), ..Seconds::default() };
        let mesh = match opened.mesh.count() {
            1 => "whole".to_string(),
            shards => format!("{shards} shards"),
        };
        printer.detail(&format!("{mesh} on {}, settings {:?}", opened.arguments, self.settings));
        let run = self.identified(request, &inputs, &opened.arguments);
        let checkpoint =
            files.checkpoint.start(request.resume, (&run, &self.settings), *printer)?;
        let records = files.records(&self.toml, checkpoint.is_some());
        let output = OutputFolder::new(claim.clone(), records, *printer)?;
        let work = Work { all: self, case, inputs, output, start, seconds };
        work.run(checkpoint, run, &opened.mesh)
    }

    /// Measures the result and writes the images, in parallel.
    fn finish(&self, case: &Case, registered: Registered) -> Result<Measures> {
        let Registered { found, inputs, mut output, start, seconds } = registered;
        let done = self.results(case, (&found, &inputs), &mut output, (start, seconds));
        match &done {
            Ok(measures) => output.journal().event(
                "end",
                json!({"verdict": measures.record.assessment.verdict,
                       "reasons": measures.record.assessment.reasons, "loss": measures.record.loss,
                       "peak_memory_bytes": measures.record.peak_memory_bytes}),
            ),
            Err(failure) => failed(&mut output, failure),
        }
        let measures = done?;
        output.complete()?;
        Ok(measures)
    }
}

impl Registrations {
    /// What decides the result.
    fn identified(
        &self,
        request: &RegisterArguments,
        inputs: &Inputs,
        mesh: &MeshArguments,
    ) -> Identified {
        let RegisterArguments { volume, nan_policy, .. } = request;
        Identified {
            device: mesh.to_string(),
            images: inputs.hashes.clone(),
            masks: inputs.mask_hashes.clone(),
            reading: format!("volume {volume:?}, {nan_policy:?}, {}", inputs.guides_hash),
            settings: self.toml.clone(),
        }
    }

    fn results(
        &self,
        case: &Case,
        (found, inputs): (&Results, &Inputs),
        output: &mut OutputFolder,
        (start, seconds): (Instant, Seconds),
    ) -> Result<Measures> {
        let Case { request, files, printer, .. } = case;
        let clock = Instant::now();
        output.begin()?;
        give_back_memory();
        let (((measures, measure), (written, write)), (pictures, draw)) = in_parallel(
            || {
                in_parallel(
                    || timed(|| found.measures(request, self.settings.clone(), inputs)),
                    || timed(|| found.write(files, inputs)),
                )
            },
            || timed(|| Pictures::draw(&found.slices(inputs))),
        );
        written?;
        let (fields, device) = (found.fields_seconds, seconds.results);
        printer.detail(&format!(
            "inverse found and displacements read back in {fields:.2} s, with what the report shows in \
             {device:.2} s; then, in parallel, measures {measure:.2} s, files {write:.2} s, \
             pictures {draw:.2} s"
        ));
        let mut measures = measures?;
        let results = seconds.results + clock.elapsed().as_secs_f64();
        let total = start.elapsed().as_secs_f64();
        measures.record.seconds = Seconds { results, total, ..seconds };
        measures.record.peak_memory_bytes = peak_memory_bytes();
        write_text(&files.report, &html(&measures, &pictures?)?)?;
        write_text(&files.metrics, &json(&measures)?)?;
        files.checkpoint.clear()?;
        measures.record.assessment.reasons.iter().for_each(|reason| printer.warning(reason));
        Ok(measures)
    }
}

/// One registration on its device.
struct Work<'a> {
    all: &'a Registrations,
    case: &'a Case,
    inputs: Inputs,
    output: OutputFolder,
    start: Instant,
    seconds: Seconds,
}

impl Work<'_> {
    fn run(
        mut self,
        checkpoint: Option<Checkpoint>,
        identified: Identified,
        mesh: &DeviceMesh,
    ) -> Result<Registered> {
        self.output.journal().event(
            "start",
            json!({"ffdp_version": env!("CARGO_PKG_VERSION"), "device": identified.device,
                   "command": arguments(), "resumed": checkpoint.is_some()}),
        );
        match self.found(checkpoint, identified, mesh) {
            Ok(found) => {
                let Self { inputs, output, start, seconds, .. } = self;
                Ok(Registered { found, inputs, output, start, seconds })
            }
            Err(failure) => {
                failed(&mut self.output, &failure);
                Err(failure)
            }
        }
    }

    fn found(
        &mut self,
        checkpoint: Option<Checkpoint>,
        identified: Identified,
        mesh: &DeviceMesh,
    ) -> Result<Results> {
        let Case { request, files, printer, .. } = self.case;
        let settings = &self.all.settings;
        let results = request.forecast(&self.case.sizes.fixed, settings).expected;
        let place = (files.checkpoint.clone(), identified);
        let keeper = Keeper::new(place, self.all.interval, results, *printer);
        let stage = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.stages.len());
        // What an earlier run took is no part of this one's time.
        let earlier = checkpoint.as_ref().map_or(0.0, Checkpoint::seconds);
        let progress = ProgressPrinter::new(*printer);
        let mut watch = Watch { progress, output: &mut self.output, keeper: Some(keeper), stage };
        let (result, register) =
            timed(|| registered(&self.inputs, settings, mesh, checkpoint, &mut watch));
        let result = result?;
        let levels = result.stages.iter().flat_map(|stage| &stage.levels);
        let iterations = levels.map(|level| level.seconds).sum::<f64>() - earlier;
        let (found, results) = timed(|| Results::of(request, &self.inputs, result, mesh.device(0)));
        self.seconds = Seconds { register, iterations, results, ..self.seconds };
        found
    }
}

fn registered(
    inputs: &Inputs,
    settings: &Settings,
    mesh: &DeviceMesh,
    checkpoint: Option<Checkpoint>,
    watch: &mut Watch,
) -> Result<Registration> {
    let registration =
        Register::of(inputs.problem(settings)).settings(settings).on(mesh).observer(watch);
    Ok(match checkpoint {
        Some(checkpoint) => registration.resume(checkpoint).run()?,
        None => registration.run()?,
    })
}

fn failed(output: &mut OutputFolder, failure: &Failure) {
    output.journal().event("failed", json!({"reason": failure.to_string()}));
}

/// What work gives, and how long it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let clock = Instant::now();
    let done = work();
    (done, clock.elapsed().as_secs_f64())
}

/// `metrics.json`.
pub fn json(measures: &Measures) -> Result<String> {
    let json = serde_json::to_string_pretty(measures);
    let mut json = json.map_err(|reason| Failure::defect(reason.to_string()))?;
    json.push('\n');
    Ok(json)
}
