//! `ffdp register`: read, find the transform, measure, write.

mod args;
mod files;
mod found;
mod inputs;
mod rehearsal;
mod slabs;

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use ffdp_parallel::DeviceMesh;
use ffdp_register::{Checkpoint, Problem, Registration, Settings, register_on, resume_on};
use serde_json::json;

pub use self::args::RegisterArguments;
use self::files::Files;
use self::found::Found;
use self::inputs::Inputs;
use self::rehearsal::rehearse;
pub use self::rehearsal::shortened;
use crate::checkpoint::{Identity, Keeper};
use crate::device::DeviceChoice;
use crate::disk::Forecast;
use crate::failure::{Failure, Outcome};
use crate::hosts::together;
use crate::memory::{Plan, Sizes, peak_memory_bytes};
use crate::names::arguments;
use crate::output::OutputFolder;
use crate::printer::{Printer, print_to_stdout, summarise};
use crate::progress::ProgressPrinter;
use crate::report::measures::{Measures, Seconds};
use crate::report::slices::Pictures;
use crate::report::{html, summary};
use crate::settings::to_toml;
use crate::text::write_text;
use crate::watch::Watch;

/// Registers a pair and writes the results, with the processes that were started together with this one.
pub fn run(request: &RegisterArguments) -> Outcome<()> {
    if request.plan {
        return predict(request);
    }
    together(|hosts| match hosts.ranks() {
        None if request.slabs => slabs::run(request, hosts),
        None => register_whole(request),
        Some(ranks) if !request.slabs => {
            let refused = Failure::user(
                format!("{} processes register slab by slab, got no --slabs", ranks.count()),
                "add --slabs, or start one process",
            );
            hosts.agree(Err(refused))
        }
        Some(_) => slabs::run(request, hosts),
    })
}

/// Prints what a run would take.
fn predict(request: &RegisterArguments) -> Outcome<()> {
    let settings = request.settings.resolve()?;
    let labels = request.moving_labels.is_some();
    let sizes = Sizes::of_files(&request.fixed, &request.moving, labels)?;
    let device = request.mesh.first();
    Plan::new(&settings, &sizes, device).asking(device).print(request.json)
}

/// Registers images that are read whole.
fn register_whole(request: &RegisterArguments) -> Outcome<()> {
    let start = Instant::now();
    let printer = Printer::new(request.quiet, request.verbose);
    let settings = request.settings.resolve()?;
    let labels = request.moving_labels.is_some();
    let interval = request.checkpoint_interval()?;
    let files = Files::in_folder(&request.output);
    Inputs::check(request, &files)?;
    let claim = files.claim(request, &to_toml(&settings)?, &request.inputs())?;
    let sizes = Sizes::of_files(&request.fixed, &request.moving, labels)?;
    let plan = Plan::new(&settings, &sizes, request.mesh.first());
    let ((inputs, read), (opened, opening)) = thread::scope(|scope| {
        let reading = scope.spawn(|| timed(|| Inputs::read(request, printer)));
        // Here, because a thread's memory on a device is its own.
        let opened = timed(|| open(request, &settings, &sizes, &plan, printer));
        (reading.join().unwrap_or_else(|panic| resume_unwind(panic)), opened)
    });
    let inputs = inputs?;
    files.prepare()?;
    plan.check_memory()?;
    let written = request.written(&settings);
    Forecast::of_registration(sizes.fixed.len() as u64, written).check(
        ("the results of the registration", &files.folder),
        claim.earlier_bytes(),
        request.ignore_disk,
        printer,
    )?;
    let mesh = opened?;
    let seconds = Seconds { read, start: opening, ..Seconds::default() };
    let mut work = Work { request, printer, settings, files, inputs, mesh, start, seconds };
    printer.detail(&format!(
        "inputs read in {read:.2} s; beside it, device and kernels ready after {opening:.2} s"
    ));
    printer.detail(&format!(
        "{} on {}, settings {:?}",
        match work.mesh.count() {
            1 => "whole".to_string(),
            shards => format!("{shards} shards"),
        },
        request.mesh,
        work.settings
    ));
    let of_run = (&work.identity()?, &work.settings);
    let checkpoint = work.files.checkpoint.start(request.resume, of_run, printer)?;
    let records = work.files.records(&to_toml(&work.settings)?, checkpoint.is_some());
    let mut output = OutputFolder::new(claim, records, printer)?;
    let done = work.run(checkpoint, interval, &mut output);
    match &done {
        Ok(measures) => output.journal().event(
            "end",
            json!({"outcome": measures.record.outcome, "loss": measures.record.loss,
                   "peak_memory_bytes": measures.record.peak_memory_bytes}),
        ),
        Err(failure) => {
            output.journal().event("failed", json!({"reason": failure.to_string()}));
        }
    }
    let measures = done?;
    output.complete()?;
    printer.note(&format!("results are in {}", request.output.display()));
    match request.json {
        true => print_to_stdout(&json(&measures)?),
        false => summarise(request.quiet, || summary(&measures)),
    }
}

/// Opens the device, asks for its memory, and has the kernels compiled.
fn open(
    request: &RegisterArguments,
    settings: &Settings,
    sizes: &Sizes,
    plan: &Plan,
    printer: Printer,
) -> Outcome<DeviceMesh> {
    let device = request.mesh.first();
    let (mesh, seconds) =
        timed(|| request.mesh.open(settings, ([&sizes.fixed, &sizes.moving], request.masked())));
    let mesh = mesh?;
    if !request.mesh.cuts() {
        plan.check_device_memory(device.free_memory_bytes())?;
        if device != DeviceChoice::Cpu && plan.check_memory().is_ok() {
            printer.detail(&format!("{device} opened in {seconds:.2} s"));
            rehearse(request, settings, sizes, &mesh);
        }
    }
    Ok(mesh)
}

/// What work gives, and how long it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let clock = Instant::now();
    let done = work();
    (done, clock.elapsed().as_secs_f64())
}

/// One registration, everything read.
struct Work<'a> {
    request: &'a RegisterArguments,
    printer: Printer,
    settings: Settings,
    files: Files,
    inputs: Inputs,
    mesh: DeviceMesh,
    start: Instant,
    /// As far as known.
    seconds: Seconds,
}

impl Work<'_> {
    /// What decides the result.
    fn identity(&self) -> Outcome<Identity> {
        let [fixed_sha256, moving_sha256] = self.inputs.hashes.clone();
        let RegisterArguments { volume, nan_policy, mesh, .. } = self.request;
        Ok(Identity {
            ffdp_version: env!("CARGO_PKG_VERSION").to_string(),
            device: mesh.to_string(),
            fixed_sha256,
            moving_sha256,
            masks_sha256: self.inputs.mask_hashes.clone(),
            reading: format!("volume {volume:?}, {nan_policy:?}, {:?}", self.inputs.initial),
            settings: to_toml(&self.settings)?,
        })
    }

    /// From the images to the files.
    fn run(
        &mut self,
        checkpoint: Option<Checkpoint>,
        interval: Duration,
        output: &mut OutputFolder,
    ) -> Outcome<Measures> {
        let identity = self.identity()?;
        output.journal().event(
            "start",
            json!({"ffdp_version": identity.ffdp_version, "device": identity.device,
                   "command": arguments(),
                   "fixed_sha256": identity.fixed_sha256,
                   "moving_sha256": identity.moving_sha256, "resumed": checkpoint.is_some()}),
        );
        let keeper = Keeper::new(self.files.checkpoint.clone(), identity, interval, self.printer);
        let stage = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.stages.len());
        let progress = ProgressPrinter::new(self.printer);
        let mut watch = Watch { progress, output, keeper: Some(keeper), stage };
        let (result, register) = timed(|| self.register(checkpoint, &mut watch));
        let result = result?;
        if let Some(advice) = result.outcome.advice() {
            self.printer.warning(advice);
        }
        let levels = result.stages.iter().flat_map(|stage| &stage.levels);
        let iterations = levels.map(|level| level.seconds).sum();

        let (results, clock) = timed(|| self.results(result, output));
        let (mut measures, pictures) = results?;
        let total = self.start.elapsed().as_secs_f64();
        measures.record.seconds =
            Seconds { register, iterations, results: clock, total, ..self.seconds };
        measures.record.peak_memory_bytes = peak_memory_bytes();
        write_text(&self.files.report, &html(&measures, &pictures)?)?;
        write_text(&self.files.metrics, &json(&measures)?)?;
        self.files.checkpoint.clear()?;
        Ok(measures)
    }

    /// Measures the result and writes the images, beside each other.
    fn results(
        &self,
        result: Registration,
        output: &mut OutputFolder,
    ) -> Outcome<(Measures, Pictures)> {
        let Self { request, inputs, settings, .. } = self;
        let (found, device) = timed(|| Found::of(request, inputs, result, self.mesh.device(0)));
        let found = found?;
        output.begin()?;
        let (((measures, measure), (written, write)), (pictures, draw)) = rayon::join(
            || {
                rayon::join(
                    || timed(|| found.measures(request, settings.clone(), inputs)),
                    || timed(|| found.write(&self.files, inputs)),
                )
            },
            || timed(|| Pictures::draw(&found.slices(inputs))),
        );
        written?;
        self.printer.detail(&format!(
            "inverse found and results read back in {device:.2} s; then, beside each other, measures \
             {measure:.2} s, files {write:.2} s, pictures {draw:.2} s"
        ));
        Ok((measures?, pictures?))
    }

    fn register(&self, checkpoint: Option<Checkpoint>, watch: &mut Watch) -> Outcome<Registration> {
        let Inputs { fixed, moving, fixed_mask, moving_mask, .. } = &self.inputs;
        let (fixed_mask, moving_mask) = (fixed_mask.as_ref(), moving_mask.as_ref());
        let initial = self.inputs.initial;
        let problem = Problem { fixed_mask, moving_mask, initial, ..Problem::new(fixed, moving) };
        let (settings, mesh) = (&self.settings, &self.mesh);
        Ok(match checkpoint {
            Some(checkpoint) => resume_on(mesh, checkpoint, &problem, settings, watch)?,
            None => register_on(mesh, &problem, settings, watch)?,
        })
    }
}

fn json(measures: &Measures) -> Outcome<String> {
    let json = serde_json::to_string_pretty(measures);
    let mut json = json.map_err(|reason| Failure::defect(reason.to_string()))?;
    json.push('\n');
    Ok(json)
}
