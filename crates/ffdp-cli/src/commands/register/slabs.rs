//! `ffdp register --slabs`: images read, registered and written slab by slab, for those that do not fit
//! into memory.

use std::path::{Path, PathBuf};
use std::time::Instant;

use ffdp_burn::transform::Composite;
use ffdp_image::image::{Affine, Geometry, Planes};
use ffdp_image::io::images::{PlaneReader, header};
use ffdp_image::io::write_affine;
use ffdp_image::io::{check_not_an_input, write_text};
use ffdp_image::metrics::{DiceScores, TargetRegistrationError, tre_of_mapped};
use ffdp_register::{
    Checkpoint, Evidence, Folding, Placement, Problem, Register, Registration, Settings, Source,
    Stage, background, finest_spacing_mm,
};
use serde_json::json;

use super::args::RegisterArguments;
use super::files::Files;
use super::inputs::{check_is_no_label_map, driving, guides_hash, initial, landmarks_of};
use super::results::{overlaps, spline_of, write_spline};
use super::strictly;
use crate::checkpoint::{Identified, Keeper};
use crate::failure::{Failure, Result};
use crate::hash::Hash;
use crate::hosts::Hosts;
use crate::memory::{Plan, Sizes, peak_memory_bytes};
use crate::names::arguments;
use crate::nan_policy::NanPolicy;
use crate::output::OutputFolder;
use crate::printer::{Printer, print_to_stdout, say, summarise};
use crate::progress::ProgressPrinter;
use crate::report::html_of_slabs;
use crate::report::measures::{BeforeAfter, Input, Overlap, Provenance, Record, Seconds};
use crate::report::slabs::{Process, SlabMeasures, summary};
use crate::report::slices::{Panels, Pictures, Quantity};
use crate::settings::to_toml;
use crate::watch::Watch;

/// Registers a pair and writes the results; of several processes each does its part, and the first writes.
pub fn run(request: &RegisterArguments, hosts: &Hosts) -> Result<()> {
    let start = Instant::now();
    let mut ready = hosts.agree(Ready::new(request, hosts))?;
    let mut seconds = Seconds { read: start.elapsed().as_secs_f64(), ..Seconds::default() };
    let clock = Instant::now();
    // What an earlier run took is no part of this one.
    let earlier = ready.continued.as_ref().and_then(|(_, checkpoint)| checkpoint.as_ref());
    let earlier = earlier.map_or(0.0, Checkpoint::seconds);
    let found = ready.found(request)?;
    seconds.register = clock.elapsed().as_secs_f64();
    let levels = found.stages.iter().flat_map(|stage| &stage.levels);
    seconds.iterations = levels.map(|level| level.seconds).sum::<f64>() - earlier;
    let clock = Instant::now();
    hosts.agree(ready.output.as_mut().map_or(Ok(()), OutputFolder::begin))?;
    let written = ready.write(request, hosts, &found)?;
    let Some(output) = ready.output.take() else { return Ok(()) };
    seconds.results = clock.elapsed().as_secs_f64();
    seconds.total = start.elapsed().as_secs_f64();
    ready.report(request, (&found, written), output, seconds)
}

/// What became of the result besides the images.
struct Written {
    folding: Option<Folding>,
    dice: Option<Overlap>,
    landmarks_mm: Option<TargetRegistrationError>,
    processes: Vec<Process>,
    /// On the first process.
    pictures: Option<Pictures>,
}

impl Ready {
    /// Registers.
    fn found(&mut self, request: &RegisterArguments) -> Result<Registration> {
        let Self { settings, printer, files, images: [fixed, moving], .. } = self;
        let results_bytes = request.forecast(fixed.geometry(), settings).expected;
        let [fixed_mask, moving_mask] = self.masks.each_mut().map(|mask| mask.as_mut());
        let problem = Problem {
            fixed_mask: fixed_mask.map(Source::from),
            moving_mask: moving_mask.map(Source::from),
            landmarks: driving(&self.landmarks, settings),
            initial: self.initial.clone(),
            ..Problem::new(fixed, moving)
        };
        let registration = Register::of(problem).settings(settings).on(&self.placement);
        let Some(output) = &mut self.output else { return Ok(registration.run()?) };
        let progress = ProgressPrinter::new(*printer);
        let (keeper, checkpoint) = match self.continued.take() {
            None => (None, None),
            Some((run, checkpoint)) => {
                let place = (files.checkpoint.clone(), run);
                let interval = request.checkpoint_interval()?;
                (Some(Keeper::new(place, interval, results_bytes, *printer)), checkpoint)
            }
        };
        let stage = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.stages.len());
        let mut watch = Watch { progress, output, keeper, stage };
        let registration = registration.observer(&mut watch);
        let found = match checkpoint {
            None => registration.run(),
            Some(checkpoint) => registration.resume(checkpoint).run(),
        };
        Ok(found.inspect_err(|failure| {
            watch.output.journal().event("failed", json!({"reason": failure.to_string()}));
        })?)
    }

    /// Writes images and displacements; by all processes at the same time. They take minutes where images are large:
    /// progress is reported.
    fn write(
        &mut self,
        request: &RegisterArguments,
        hosts: &Hosts,
        found: &Registration,
    ) -> Result<Written> {
        let Self { printer, files, images: [fixed, moving], .. } = self;
        let mut step = Instant::now();
        let mut done = |what: &str| {
            printer.detail(&format!("{what}: {:.1} s", step.elapsed().as_secs_f64()));
            step = Instant::now();
        };
        let folding = found.warp.as_ref().map(|warp| warp.folding()).transpose()?;
        done("folds");
        let landmarks_mm = self.landmarks.take().map(|[fixed, moving]| {
            tre_of_mapped(&found.map_points_before(&fixed)?, &found.map_points(&fixed)?, &moving)
        });
        let landmarks_mm = landmarks_mm.transpose()?;
        // What the report shows: planes through the middle of the fixed image, of what passes by.
        let grid = fixed.geometry().clone();
        let mut panels = Panels::new(&grid, (grid.center_mm(), "middle"));
        let beyond = match request.background {
            Some(value) => value,
            None => background(moving)?,
        };
        found.write_warped(&files.warped, (moving, beyond), |planes, values| {
            panels.add(Quantity::Warped, planes.start, values);
        })?;
        done("warped image");
        if let Some(warp) = &found.warp {
            warp.write(&files.warp)?;
            done("displacement");
        }
        if let Some(inverse) = found.inverse.as_ref().filter(|_| !request.no_inverse) {
            inverse.write(&files.inverse)?;
            done("inverse displacement");
        }
        let dice = self.labels.overlap(found, &files.labels)?;
        done("labels");
        let processes = processes(hosts, found)?;
        let pictures = pictures(panels, found, (fixed, moving), hosts.is_first())?;
        done("pictures");
        Ok(Written { folding, dice, landmarks_mm, processes, pictures })
    }

    /// Says what was found, on the first process.
    fn report(
        self,
        request: &RegisterArguments,
        (found, written): (&Registration, Written),
        mut output: OutputFolder,
        seconds: Seconds,
    ) -> Result<()> {
        let Self { printer, files, .. } = &self;
        write_spline(&files.spline, spline_of(found).as_ref())?;
        write_affine(&files.affine, &found.affine)?;
        write_affine(&files.affine_mat, &found.affine)?;
        let (measures, pictures) = self.measures(request, found, written, seconds);
        let text = serde_json::to_string_pretty(&measures)
            .map_err(|reason| Failure::defect(reason.to_string()))?;
        write_text(&files.metrics, &format!("{text}\n"))?;
        if let Some(pictures) = &pictures {
            write_text(&files.report, &html_of_slabs(&measures, pictures)?)?;
        }
        let assessment = &measures.record.assessment;
        output.journal().event(
            "end",
            json!({"verdict": assessment.verdict, "reasons": assessment.reasons,
                   "loss": measures.record.loss,
                   "peak_memory_bytes": measures.record.peak_memory_bytes}),
        );
        files.checkpoint.clear()?;
        output.complete()?;
        assessment.reasons.iter().for_each(|reason| printer.warning(reason));
        printer.note(&format!("results are in {}", request.output.display()));
        match request.json {
            true => print_to_stdout(&format!("{text}\n")),
            false => summarise(request.quiet, || summary(&measures)),
        }?;
        strictly(request, assessment)
    }

    fn measures(
        &self,
        request: &RegisterArguments,
        found: &Registration,
        written: Written,
        seconds: Seconds,
    ) -> (SlabMeasures, Option<Pictures>) {
        let Written { folding, dice, landmarks_mm, processes, pictures } = written;
        let Self { settings, warnings, initial, images, .. } = self;
        let grids = images.each_ref().map(Planes::geometry);
        let (_, placement) = initial.split_affine();
        let overlap_percent = overlaps(grids, [&placement, &found.affine]);
        let folds_percent =
            folding.map(|folding| 100.0 * folding.folds as f64 / grids[0].len() as f64);
        let start = placement.inverse().unwrap_or(Affine::identity());
        let evidence = Evidence {
            stages: &found.stages,
            loss: Some([found.loss_before, found.loss_after]),
            contrast: found.contrast,
            overlap_percent: Some(overlap_percent.pair()),
            affine: Some(start.then(&found.affine)),
            may_mirror: settings.stages.iter().any(Stage::may_mirror),
            folds_percent,
            dice: dice.as_ref().map(|dice| dice.mean.pair()),
            landmarks_mm: landmarks_mm.as_ref().map(|tre| [tre.before.mean, tre.after.mean]),
            voxel_mm: finest_spacing_mm(grids[0]),
            ..Evidence::default()
        };
        let record = Record {
            run: Provenance::here(&request.mesh),
            fixed: Input::of(request.fixed(), None, grids[0]),
            moving: Input::of(request.moving(), None, grids[1]),
            assessment: evidence.assess(),
            warnings: warnings.clone(),
            overlap_percent,
            loss: BeforeAfter { before: found.loss_before, after: found.loss_after },
            affine: *found.affine.rows(),
            affine_determinant: found.affine.determinant(),
            affine_singular_values: found.affine.singular_values(),
            dice,
            landmarks_mm,
            stages: found.stages.clone(),
            settings: settings.clone(),
            seconds,
            peak_memory_bytes: peak_memory_bytes(),
        };
        let measures = SlabMeasures {
            record,
            folds: folding.map(|folding| folding.folds),
            smallest_determinant: folding.map(|folding| folding.smallest),
            longest_displacement_mm: folding.map(|folding| folding.longest_mm),
            processes,
        };
        (measures, pictures)
    }
}

/// Prints what a run of one process would take.
pub fn predict(request: &RegisterArguments) -> Result<()> {
    let settings = request.settings.resolve()?;
    let grids = [header(request.fixed())?.geometry, header(request.moving())?.geometry];
    let sides = (grids.each_ref(), request.masked());
    let placement = request.mesh.placement(&settings, sides, &Hosts::default())?;
    let device = request.mesh.first();
    request.slab_plan(&settings, &grids, &placement)?.asking(device).print(request.json)
}

impl RegisterArguments {
    /// What a run of one process takes in a placement.
    fn slab_plan(
        &self,
        settings: &Settings,
        [fixed, moving]: &[Geometry; 2],
        placement: &Placement,
    ) -> Result<Plan> {
        let labels = self.moving_labels.is_some();
        let sizes = Sizes { fixed: fixed.clone(), moving: moving.clone(), labels };
        let place = (placement, self.mesh.first());
        Plan::of_slabs(settings, (&sizes, self.masked()), place, self.forecast(fixed, settings))
    }
}

/// What a process has before the registration begins.
struct Ready {
    settings: Settings,
    printer: Printer,
    files: Files,
    images: [PlaneReader; 2],
    masks: [Option<PlaneReader>; 2],
    labels: Labels,
    landmarks: Option<[Vec<[f64; 3]>; 2]>,
    warnings: Vec<String>,
    initial: Composite,
    placement: Placement,
    /// Of the first alone.
    output: Option<OutputFolder>,
    /// Of one process, what decides its result, and where it goes on from.
    continued: Option<(Identified, Option<Checkpoint>)>,
}

impl Ready {
    fn new(request: &RegisterArguments, hosts: &Hosts) -> Result<Self> {
        let settings = request.settings.resolve()?;
        if request.nan_policy != NanPolicy::Error {
            return Err(Failure::user(
                "--slabs reads images as they are: NaN and infinite voxels are an error",
                "repair the image, or leave out --nan-policy",
            ));
        }
        let is_first = hosts.is_first();
        // The others would say the same.
        let printer = Printer::new(request.quiet || !is_first, request.verbose);
        if let Some(ranks) = hosts.ranks()
            && request.verbose
        {
            // In one piece: the launcher mixes what several processes say.
            say(&format!("{}: process {}", ranks.name(ranks.rank()), std::process::id()));
        }
        let files = Files::in_folder(&request.output, request.format);
        let paths = [request.fixed(), request.moving()];
        let masks = [&request.fixed_mask, &request.moving_mask].map(Option::as_deref);
        let labels = [&request.fixed_labels, &request.moving_labels].map(Option::as_deref);
        for file in files.all().into_iter().chain([files.folder.as_path()]) {
            check_not_an_input(file, &request.inputs())?;
        }
        let text = to_toml(&settings)?;
        let claim = is_first.then(|| files.claim(request, &text, &request.inputs())).transpose()?;
        if !request.labels_as_images {
            paths.into_iter().try_for_each(check_is_no_label_map)?;
        }
        let open = |path: &Path| PlaneReader::open(path, request.volume);
        let images = [open(paths[0])?, open(paths[1])?];
        let mask = |i: usize| masks[i].map(|path| PlaneReader::open(path, None)).transpose();
        let masks = [mask(0)?, mask(1)?];
        let labels = match is_first {
            true => Labels::open(request, labels, images.each_ref().map(Planes::geometry))?,
            // Rank 0 reads and writes labels; the others send what they have of the displacement.
            false => {
                let moving = labels[1].map(|path| PlaneReader::open(path, None)).transpose()?;
                Labels { moving, ..Labels::default() }
            }
        };
        let named = |path: &Path, reader: &PlaneReader| -> Vec<String> {
            let warnings = reader.header().warnings.iter();
            warnings.map(|warning| format!("{}: {warning}", path.display())).collect()
        };
        let warnings = [named(paths[0], &images[0]), named(paths[1], &images[1])].concat();
        warnings.iter().for_each(|warning| printer.warning(warning));
        let grids = images.each_ref().map(|image| image.geometry().clone());
        let placement =
            request.mesh.placement(&settings, ([&grids[0], &grids[1]], request.masked()), hosts)?;
        if hosts.ranks().is_none() {
            let plan = request.slab_plan(&settings, &grids, &placement)?;
            printer.note(&plan.in_short());
            plan.check_memory()?;
        }
        printer.detail(&format!("slab by slab on {}, settings {settings:?}", request.mesh));
        let initial = initial(request)?;
        let landmarks = landmarks_of(request, grids.each_ref())?;
        let reading = format!("slabs, volume {:?}, {}", request.volume, guides_hash(request)?);
        let continued = continued(request, (&files, &text, reading), &settings, (hosts, printer))?;
        let output = claim.map(|claim| {
            files.prepare()?;
            request.forecast(&grids[0], &settings).check(
                ("the results of the registration", &files.folder),
                claim.earlier_bytes(),
                request.ignore_disk,
                printer,
            )?;
            let resumed = continued.as_ref().is_some_and(|(_, checkpoint)| checkpoint.is_some());
            let mut output = OutputFolder::new(claim, files.records(&text, resumed), printer)?;
            output.journal().event(
                "start",
                json!({"ffdp_version": env!("CARGO_PKG_VERSION"),
                       "device": request.mesh.to_string(),
                       "command": arguments(), "slabs": true, "resumed": resumed,
                       "processes": hosts.ranks().map_or(1, |ranks| ranks.count())}),
            );
            Ok::<_, Failure>(output)
        });
        let output = output.transpose()?;
        Ok(Self {
            settings,
            printer,
            files,
            images,
            masks,
            labels,
            landmarks,
            warnings,
            initial,
            placement,
            output,
            continued,
        })
    }
}

/// Of one process, what decides its result, and where it goes on from.
fn continued(
    request: &RegisterArguments,
    (files, text, reading): (&Files, &str, String),
    settings: &Settings,
    (hosts, printer): (&Hosts, Printer),
) -> Result<Option<(Identified, Option<Checkpoint>)>> {
    if hosts.ranks().is_some() {
        let fix = "start one process, or leave out --resume";
        let refused = || Failure::user("several processes keep no checkpoint", fix);
        return if request.resume { Err(refused()) } else { Ok(None) };
    }
    let mask = |path: &Option<PathBuf>| path.as_deref().map(Hash::begin);
    let run = Identified {
        device: request.mesh.to_string(),
        images: [request.fixed(), request.moving()].map(Hash::begin),
        masks: [mask(&request.fixed_mask), mask(&request.moving_mask)],
        reading,
        settings: text.to_string(),
    };
    let checkpoint = files.checkpoint.start(request.resume, (&run, settings), printer)?;
    Ok(Some((run, checkpoint)))
}

/// The labels of both images.
#[derive(Default)]
struct Labels {
    fixed: Option<PlaneReader>,
    moving: Option<PlaneReader>,
    /// Those of the moving image, for the process that writes.
    ids: Vec<i32>,
    /// Those that --labels asks for.
    asked: Option<Vec<i32>>,
}

impl Labels {
    /// Those in files, on the grids of the fixed and of the moving image. Reads all of them, so that a run does not end
    /// with what could be known before it.
    fn open(
        request: &RegisterArguments,
        files: [Option<&Path>; 2],
        grids: [&Geometry; 2],
    ) -> Result<Self> {
        let images = [request.fixed(), request.moving()];
        let mut of_either = Vec::new();
        let mut open = |i: usize| -> Result<Option<(PlaneReader, Vec<i32>)>> {
            let Some(path) = files[i] else { return Ok(None) };
            let what = format!("{} (labels of {})", path.display(), images[i].display());
            grids[i].check_same_grid(&header(path)?.geometry, &what)?;
            let (labels, ids) = PlaneReader::open(path, None)?.with_labels()?;
            if ids.is_empty() {
                let what = "the label map holds no label but background (0)";
                let fix = "check that it is the file you meant";
                return Err(Failure::user(format!("{}: {what}", path.display()), fix));
            }
            of_either.extend_from_slice(&ids);
            Ok(Some((labels, ids)))
        };
        let (fixed, moving) = (open(0)?, open(1)?);
        let asked = request.labels.clone();
        if let Some(id) = asked.iter().flatten().find(|id| **id != 0 && !of_either.contains(id)) {
            return Err(Failure::user(
                format!("neither label map holds the label {id} of --labels"),
                format!("the maps hold {of_either:?}"),
            ));
        }
        let (moving, ids) = moving.map_or((None, Vec::new()), |(map, ids)| (Some(map), ids));
        Ok(Self { fixed: fixed.map(|(map, _)| map), moving, ids, asked })
    }

    /// Writes the moving labels as `found` shows them; how they overlap with the fixed ones, before and after.
    fn overlap(&mut self, found: &Registration, file: &Path) -> Result<Option<Overlap>> {
        // Each rank has its part in what is written, and rank 0 the file.
        let Some(moving) = &mut self.moving else { return Ok(None) };
        let before = match &mut self.fixed {
            Some(fixed) => found.overlap_before((moving, &self.ids), fixed)?,
            None => None,
        };
        let fixed = self.fixed.as_mut().map(|fixed| fixed as &mut dyn Planes);
        let after = found.write_warped_labels(file, (moving, &self.ids), fixed)?;
        let asked = |mut scores: DiceScores| {
            let Some(asked) = &self.asked else { return scores };
            scores.labels.retain(|label| asked.contains(&label.id));
            scores
        };
        let scores = before.zip(after).map(|(before, after)| [asked(before), asked(after)]);
        Ok(scores.map(|scores| Overlap::new(&scores, None)))
    }
}

/// The pictures, on the first process, from panels that have seen the warped image: of the others only the planes are
/// brought that pixels look at. All processes do it together.
fn pictures(
    mut panels: Panels,
    found: &Registration,
    (fixed, moving): (&mut PlaneReader, &mut PlaneReader),
    is_first: bool,
) -> Result<Option<Pictures>> {
    let grid = fixed.geometry().clone();
    let wanted: Vec<bool> = (0..grid.size[2]).map(|plane| panels.look_at(plane)).collect();
    let wants = |plane: usize| wanted[plane];
    match &found.warp {
        Some(warp) => warp.show(wants, |plane, values| {
            let of = [
                Quantity::Determinant,
                Quantity::Displacement(0),
                Quantity::Displacement(1),
                Quantity::Displacement(2),
            ];
            let values = values.chunks(grid.size[0] * grid.size[1]);
            of.into_iter().zip(values).for_each(|(of, values)| panels.add(of, plane, values));
        })?,
        None => panels.fill(Quantity::Determinant, 1.0),
    }
    if !is_first {
        return Ok(None);
    }
    found.show_before(moving, wants, |plane, values| {
        panels.add(Quantity::Before, plane, values);
    })?;
    for plane in (0..wanted.len()).filter(|plane| wants(*plane)) {
        panels.add(Quantity::Fixed, plane, fixed.read(plane..plane + 1)?);
    }
    Ok(Some(panels.finish()))
}

/// All processes; none where one works alone.
fn processes(hosts: &Hosts, found: &Registration) -> Result<Vec<Process>> {
    let Some(ranks) = hosts.ranks() else { return Ok(Vec::new()) };
    let planes = found.warp.as_ref().map_or(0..0, |warp| warp.field.layout().held());
    let numbers = [planes.start as u64, planes.end as u64, peak_memory_bytes().unwrap_or(0)];
    let all = hosts.all_gather(&numbers.map(|number| number as f64))?;
    let process = |(host, numbers): (&String, &[f64])| {
        let [start, end, peak] = [0, 1, 2].map(|i| numbers[i] as usize);
        Process {
            host: host.clone(),
            planes: (start < end).then_some([start, end]),
            peak_memory_bytes: (peak > 0).then_some(peak as u64),
        }
    };
    Ok(ranks.hosts().iter().zip(all.chunks_exact(3)).map(process).collect())
}
