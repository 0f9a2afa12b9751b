//! The steps of a registration: what is checked before anything is read, what is read, what is done on the device, and what is
//! measured and written after it.
//!
//! Images come whole or, with --slabs, as planes: which of both [`Inputs`] and [`Results`] know, the steps are the same. Pairs
//! that are held whole go through [`crate::cohort`], one step of theirs next to others of their neighbours; one that is read
//! slab by slab takes the steps in turn, by all processes at the same time.

use std::ffi::OsStr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ffdp_image::image::Geometry;
use ffdp_image::io::write_text;
use ffdp_register::{Placement, Register, Registration, checkpoint::Checkpoint};
use serde_json::json;

use super::args::RegisterArguments;
use super::case::{Case, Registrations};
use super::inputs::{Inputs, Opening};
use super::rehearsal::{Rehearsed, Until, rehearse};
use super::results::{Results, Writing};
use crate::checkpoint::{Identified, Keeper};
use crate::cohort::Steps;
use crate::commands::input::Reading;
use crate::device::DeviceChoice;
use crate::failure::{Failure, Result};
use crate::hash::Hash;
use crate::in_parallel::lock;
use crate::json::to_json;
use crate::memory::{Held, Sizes, peak_memory_bytes};
use crate::mesh::MeshArguments;
use crate::names::arguments;
use crate::output::OutputFolder;
use crate::printer::{Printer, say};
use crate::progress::ProgressPrinter;
use crate::report::html;
use crate::report::measures::{Measures, Seconds};
use crate::result::ResultMeasures;
use crate::watch::Watch;

/// Memory of a device that its driver takes for a process: half a GB with CUDA.
const DRIVER_BYTES: u64 = 512 << 20;

/// A device, opened.
pub struct Opened {
    placement: Placement,
    arguments: MeshArguments,
    /// Memory that it had before anything was done on it.
    free_bytes: Option<u64>,
    /// What opening it took, until a pair has counted it.
    seconds: Option<f64>,
    /// The grids that it last worked on.
    grids: Option<[Geometry; 2]>,
}

/// A pair in host memory, or open.
pub struct Read {
    inputs: Inputs,
    start: Instant,
    seconds: f64,
}

/// A pair registered.
pub struct Registered {
    found: Results,
    inputs: Inputs,
    /// Of the first process.
    output: Option<OutputFolder>,
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
        let Case { request, sizes, .. } = case;
        let clock = Instant::now();
        let arguments = self.meshes[device].clone();
        let placement = match request.slabs {
            true => arguments.placement(&self.settings, sizes, &self.hosts)?,
            false => Placement::DeviceMesh(arguments.open(&self.settings, sizes)?),
        };
        let free_bytes = arguments.first().free_memory_bytes();
        let mut opened = Opened { placement, arguments, free_bytes, seconds: None, grids: None };
        self.compile(case, &opened, device, clock.elapsed().as_secs_f64());
        opened.seconds = Some(clock.elapsed().as_secs_f64());
        Ok(opened)
    }

    fn host_bytes(&self, case: &Case) -> u64 {
        case.plan.as_ref().map_or(0, |plan| plan.host_peak_bytes)
    }

    fn read(&self, case: &Case) -> Result<Read> {
        self.read_inputs(case).inspect_err(|_| self.unreadable.store(self.alone, Ordering::Relaxed))
    }

    fn compute(&self, case: &Case, read: Read, opened: &mut Opened) -> Result<Registered> {
        let Case { printer, .. } = case;
        let Read { inputs, start, seconds: read } = read;
        opened.release(&case.sizes);
        if opened.arguments.first() == self.meshes[0].first() {
            let needed = case.plan.as_ref().and_then(|plan| plan.device_peak_bytes);
            lock(&self.following).make_room(needed.unwrap_or(0));
        }
        let opening = opened.seconds.take();
        if let Some(opening) = opening {
            printer.detail(&format!(
                "inputs read in {read:.2} s; device start-up, in parallel, {opening:.2} s"
            ));
        }
        let seconds = Seconds { read, start: opening.unwrap_or(0.0), ..Seconds::default() };
        let placed = opened.placed();
        printer.detail(&format!("{placed} on {}, settings {:?}", opened.arguments, self.settings));
        let begun =
            self.check_memory(case, opened).and_then(|()| self.begin(case, &inputs, opened));
        let (output, continued) = self.hosts.agree(begun)?;
        let mut registered = Registering { all: self, case, inputs, output, seconds };
        let found = registered.found(continued, &opened.placement);
        let Registering { inputs, mut output, seconds, .. } = registered;
        let found = found.inspect_err(|failure| failed(&mut output, failure))?;
        Ok(Registered { found, inputs, output, start, seconds })
    }

    fn finish(&self, case: &Case, registered: Registered) -> Result<Measures> {
        let measures = self.finish_together(case, registered)?;
        Ok(measures.expect("of a pair that is held whole there is one process, the first"))
    }
}

/// What decides the result of one process, and where it goes on from.
type Continued = (Identified, Option<Checkpoint>);

impl Registrations {
    /// Takes all steps of a pair in turn, by all processes at the same time; its measures are those of the first.
    ///
    /// # Errors
    /// Those of the steps; of what comes before the registration, on all processes.
    pub fn run_in_turn(&self, request: &RegisterArguments) -> Result<Option<Measures>> {
        let prepared = || {
            let printer =
                Printer::new(request.print.quiet || !self.hosts.is_first(), request.print.verbose);
            if let Some(ranks) = self.hosts.ranks()
                && request.print.verbose
            {
                // In one piece: the launcher mixes what several processes say.
                say(&format!("{}: process {}", ranks.name(ranks.rank()), std::process::id()));
            }
            let case = Case::new(request.clone(), self, printer)?;
            let read = self.read(&case)?;
            let opened = self.open(0, &case)?;
            Ok((case, read, opened))
        };
        let (case, read, mut opened) = self.hosts.agree(prepared())?;
        let registered = self.compute(&case, read, &mut opened)?;
        self.finish_together(&case, registered)
    }

    /// What is done before a device is needed, and what speaks against the run.
    fn read_inputs(&self, case: &Case) -> Result<Read> {
        let start = self.clock();
        let Case { request, files, printer, sizes, plan, claim } = case;
        let opening = match (request.slabs, self.hosts.is_first()) {
            (false, _) => Opening::Whole,
            (true, true) => Opening::Slabs,
            (true, false) => Opening::SlabsToHelp,
        };
        let (inputs, seconds) = timed(|| Inputs::read(request, &self.settings, opening, *printer));
        let inputs = inputs?;
        if let Some(plan) = plan {
            plan.check_memory()?;
        }
        if let Some(claim) = claim {
            files.prepare()?;
            request.forecast(&sizes.fixed, &self.settings).check(
                "the results of the registration",
                claim.result_folder(request.folder.ignore_disk),
                *printer,
            )?;
        }
        Ok(Read { inputs, start, seconds })
    }

    /// Has the kernels of a GPU compiled, where there is room for a rehearsal of whole images.
    fn compile(&self, case: &Case, opened: &Opened, device: usize, seconds: f64) {
        let (Some(plan), Placement::DeviceMesh(mesh)) = (&case.plan, &opened.placement) else {
            return;
        };
        let first = opened.arguments.first();
        let fits =
            plan.check_memory().is_ok() && plan.check_device_memory(opened.free_bytes).is_ok();
        if first == DeviceChoice::Cpu || opened.arguments.cuts() || !fits {
            return;
        }
        case.printer.detail(&format!("{first} opened in {seconds:.2} s"));
        // Each process that helps takes what a registration takes, and the driver's part of a process.
        let needed = plan.device_peak_bytes.unwrap_or(0);
        let times = |free: Option<u64>, needed: u64| free.map_or(1, |free| free / needed.max(1));
        let room = times(opened.free_bytes, needed + DRIVER_BYTES);
        let room = room.min(times(plan.host_available_bytes, plan.host_peak_bytes)) as usize;
        let used = self.meshes.iter().filter(|mesh| mesh.first() == first).count();
        let most = if device == 0 { room.saturating_sub(used) } else { 0 };
        let name = case.request.output.file_name().filter(|_| !self.alone);
        let settings = self.settings.for_images(&case.sizes.fixed);
        let rehearsed = Rehearsed {
            request: &case.request,
            pair: &name.map(OsStr::to_string_lossy).unwrap_or_default(),
            settings: &settings,
            sizes: &case.sizes,
            mesh,
            until: Until(&self.unreadable),
        };
        let (is_compiled, took) = timed(|| rehearse(rehearsed, most));
        if is_compiled {
            case.printer.detail(&format!("kernels compiled by a rehearsal of {took:.2} s"));
            if device == 0 && !self.alone {
                lock(&self.following).start(rehearsed, most, needed);
            }
        }
    }

    /// Demands room on the device or, slab by slab, in host memory.
    fn check_memory(&self, case: &Case, opened: &Opened) -> Result<()> {
        match &case.plan {
            Some(plan) if !opened.arguments.cuts() => plan.check_device_memory(opened.free_bytes),
            None if self.hosts.ranks().is_none() => {
                let held = Held::Slabs(&opened.placement);
                let plan = case.request.planned(&self.settings, &case.sizes, held)?;
                case.printer.note(&plan.in_short());
                plan.check_memory()
            }
            _ => Ok(()),
        }
    }

    /// The output folder of the first process, and, of one process, what it goes on from.
    fn begin(
        &self,
        case: &Case,
        inputs: &Inputs,
        opened: &Opened,
    ) -> Result<(Option<OutputFolder>, Option<Continued>)> {
        let Case { request, files, printer, claim, .. } = case;
        let continued = match self.hosts.ranks() {
            Some(_) => None,
            None => {
                let run = self.identified(request, inputs, &opened.arguments);
                let resume = request.folder.resume;
                let checkpoint = files.checkpoint.start(resume, &run, &self.settings, *printer)?;
                Some((run, checkpoint))
            }
        };
        let Some(claim) = claim else { return Ok((None, continued)) };
        let resumed = continued.as_ref().is_some_and(|(_, checkpoint)| checkpoint.is_some());
        let records = files.records(&self.toml, resumed);
        let mut output = OutputFolder::new(claim.clone(), records, *printer)?;
        output.journal().event(
            "start",
            json!({"ffdp_version": env!("CARGO_PKG_VERSION"),
                   "device": opened.arguments.to_string(),
                   "command": arguments(), "slabs": request.slabs, "resumed": resumed,
                   "processes": self.hosts.ranks().map_or(1, |ranks| ranks.count())}),
        );
        Ok((Some(output), continued))
    }

    /// What decides the result.
    fn identified(
        &self,
        request: &RegisterArguments,
        inputs: &Inputs,
        mesh: &MeshArguments,
    ) -> Identified {
        let Reading { volume, nan_policy } = request.reading;
        let Inputs { fixed, moving, guides_hash, .. } = inputs;
        let how = if request.slabs { "slabs, " } else { "" };
        Identified {
            device: mesh.to_string(),
            images: [&fixed.hash, &moving.hash].map(Hash::clone),
            masks: [&fixed.mask_hash, &moving.mask_hash].map(Option::clone),
            reading: format!("{how}volume {volume:?}, {nan_policy:?}, {guides_hash}"),
            settings: self.toml.clone(),
        }
    }

    /// Measures the result and writes all files; by all processes together, the first of which has the measures.
    fn finish_together(&self, case: &Case, registered: Registered) -> Result<Option<Measures>> {
        let Registered { found, mut inputs, mut output, start, seconds } = registered;
        let begun = self.hosts.agree(output.as_mut().map_or(Ok(()), OutputFolder::begin));
        let Case { request, files, printer, .. } = case;
        let to = Writing { request, files, hosts: &self.hosts, printer: *printer };
        let finish = || begun.and_then(|()| found.finish(to, &self.settings, &mut inputs));
        let (finished, took) = timed(finish);
        let reported = finished.and_then(|finished| {
            let Some((mut measures, pictures)) = finished else { return Ok(None) };
            let results = seconds.results + took;
            let total = start.elapsed().as_secs_f64();
            measures.seconds = Seconds { results, total, ..seconds };
            measures.peak_memory_bytes = peak_memory_bytes();
            write_text(&files.report, &html(&measures, &pictures)?)?;
            if !self.alone {
                pictures.thumbnail().save(&files.thumbnail)?;
            }
            write_text(&files.metrics, &to_json(&measures)?)?;
            files.checkpoint.clear()?;
            measures.result.assessment.reasons.iter().for_each(|reason| printer.warning(reason));
            Ok(Some(measures))
        });
        let measures = reported.inspect_err(|failure| failed(&mut output, failure))?;
        if let (Some(mut output), Some(measures)) = (output, &measures) {
            let Measures { result, peak_memory_bytes, .. } = measures;
            let ResultMeasures { assessment, loss, .. } = result;
            output.journal().event(
                "end",
                json!({"verdict": assessment.verdict, "reasons": assessment.reasons,
                       "loss": loss, "peak_memory_bytes": peak_memory_bytes}),
            );
            output.complete()?;
        }
        Ok(measures)
    }
}

impl Opened {
    /// Memory is kept in pieces of the sizes that were asked for: it is released before images of others.
    fn release(&mut self, sizes: &Sizes) {
        let grids = [sizes.fixed.clone(), sizes.moving.clone()];
        let sizes_of = |grids: &[Geometry; 2]| grids.each_ref().map(|grid| grid.size);
        let are_others = self.grids.as_ref().is_some_and(|last| sizes_of(last) != sizes_of(&grids));
        if let (Placement::DeviceMesh(mesh), true) = (&self.placement, are_others) {
            mesh.device(0).memory_cleanup();
        }
        self.grids = Some(grids);
    }

    /// In how many parts, for people.
    fn placed(&self) -> String {
        match &self.placement {
            Placement::DeviceMesh(mesh) if mesh.count() > 1 => format!("{} shards", mesh.count()),
            Placement::DeviceMesh(_) => "whole".to_string(),
            Placement::Device { .. } => "shards as there is room".to_string(),
            Placement::Ranks { ranks, .. } => format!("{} processes", ranks.count()),
        }
    }
}

/// One registration under way.
struct Registering<'a> {
    all: &'a Registrations,
    case: &'a Case,
    inputs: Inputs,
    output: Option<OutputFolder>,
    seconds: Seconds,
}

impl Registering<'_> {
    fn found(&mut self, continued: Option<Continued>, placement: &Placement) -> Result<Results> {
        let Case { request, files, printer, sizes, .. } = self.case;
        let settings = &self.all.settings;
        let (keeper, checkpoint) = match continued {
            None => (None, None),
            Some((run, checkpoint)) => {
                let expected = request.forecast(&sizes.fixed, settings).expected;
                let (place, interval) = (files.checkpoint.clone(), self.all.interval);
                (Some(Keeper::new(place, run, interval, expected, *printer)), checkpoint)
            }
        };
        let stage = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.stages.len());
        // What an earlier run took is no part of this one's time.
        let earlier = checkpoint.as_ref().map_or(0.0, Checkpoint::seconds);
        let progress = ProgressPrinter::new(*printer);
        let mut watch =
            self.output.as_mut().map(|output| Watch { progress, output, keeper, stage });
        let mut registration =
            Register::of(self.inputs.problem(settings)).settings(settings).on(placement);
        if let Some(watch) = &mut watch {
            registration = registration.observer(watch);
        }
        if let Some(checkpoint) = checkpoint {
            registration = registration.resume(checkpoint);
        }
        let (result, register) = timed(|| registration.run());
        let result: Registration = result?;
        let levels = result.stages.iter().flat_map(|stage| &stage.levels);
        let iterations = levels.map(|level| level.seconds).sum::<f64>() - earlier;
        let (found, results) = timed(|| Results::of(request, &mut self.inputs, result));
        self.seconds = Seconds { register, iterations, results, ..self.seconds };
        found
    }
}

fn failed(output: &mut Option<OutputFolder>, failure: &Failure) {
    if let Some(output) = output {
        output.failed(failure);
    }
}

/// What work gives, and how long it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let clock = Instant::now();
    let done = work();
    (done, clock.elapsed().as_secs_f64())
}
