//! `ffdp register --slabs`: images read, registered and written slab by slab, for those that do not fit
//! into memory.

use std::path::Path;
use std::time::Instant;

use ffdp_burn::image::{Affine, Geometry, Physical, Planes, label_ids};
use ffdp_burn::io::check_not_an_input;
use ffdp_burn::io::nifti::PlaneReader;
use ffdp_burn::io::write_affine;
use ffdp_burn::metrics::DiceScores;
use ffdp_burn::register::Outcome as Worth;
use ffdp_burn::register::{
    Folding, Room, Settings, Silent, SlabProblem, SlabRegistration, StageReport, register_slabs,
};
use serde::Serialize;
use serde_json::json;

use super::args::RegisterArguments;
use super::files::Files;
use super::inputs::{check_is_no_label_map, initial};
use crate::args::NanPolicy;
use crate::disk::Forecast;
use crate::failure::{Failure, Outcome};
use crate::hosts::Hosts;
use crate::memory::peak_memory_bytes;
use crate::names::{arguments, as_text};
use crate::output::OutputFolder;
use crate::printer::{Printer, print_to_stdout, say, summarise};
use crate::progress::ProgressPrinter;
use crate::report::measures::{BeforeAfter, Overlap, Run, Seconds};
use crate::settings::to_toml;
use crate::text::write_text;
use crate::watch::Watch;

/// What is known of the result: `metrics.json`. Measures that take whole images are not among it.
#[derive(Debug, Serialize)]
struct SlabMeasures {
    #[serde(flatten)]
    run: Run,
    fixed: Grid,
    moving: Grid,
    outcome: Worth,
    advice: Option<&'static str>,
    warnings: Vec<String>,
    /// What was optimised, on the finest level: lower is better.
    loss: BeforeAfter<f64>,
    /// With labels of both images; without the distances of their surfaces.
    dice: Option<Overlap>,
    /// Voxels at which det J, by central differences, is not positive; null without a deformation.
    folds: Option<u64>,
    smallest_determinant: Option<f64>,
    longest_displacement_mm: Option<f64>,
    /// From fixed to moving, RAS mm.
    affine: [[f64; 4]; 3],
    stages: Vec<StageReport>,
    settings: Settings,
    seconds: Seconds,
    /// Of the process that writes.
    peak_memory_bytes: Option<u64>,
    /// All of them, by rank, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    processes: Vec<Process>,
}

#[derive(Debug, Serialize)]
struct Grid {
    #[serde(serialize_with = "as_text")]
    path: std::path::PathBuf,
    size: [usize; 3],
    spacing_mm: [f64; 3],
    origin_mm: [f64; 3],
}

impl Grid {
    fn of(path: &Path, geometry: &Geometry) -> Self {
        let Geometry { size, spacing_mm, origin_mm, .. } = geometry.clone();
        Self { path: path.to_path_buf(), size, spacing_mm, origin_mm }
    }
}

/// Registers a pair and writes the results; of several processes each does its part, and the first writes.
pub fn run(request: &RegisterArguments, hosts: &Hosts) -> Outcome<()> {
    let start = Instant::now();
    let ready = hosts.agree(Ready::new(request, hosts))?;
    let Ready { settings, printer, files, images: [mut fixed, mut moving], .. } = ready;
    let (warnings, [mut fixed_mask, mut moving_mask]) = (ready.warnings, ready.masks);
    let mut labels = ready.labels;
    let (room, initial, mut output) = (ready.room, ready.initial, ready.output);
    let grids = [fixed.geometry().clone(), moving.geometry().clone()];
    let read = start.elapsed().as_secs_f64();
    let clock = Instant::now();
    let problem = SlabProblem {
        fixed_mask: fixed_mask.as_mut().map(|mask| mask as &mut dyn Planes),
        moving_mask: moving_mask.as_mut().map(|mask| mask as &mut dyn Planes),
        ..SlabProblem::new(&mut fixed, &mut moving, initial)
    };
    let found = match &mut output {
        None => register_slabs(problem, &settings, &room, &mut Silent)?,
        Some(output) => {
            let progress = ProgressPrinter::new(printer);
            let mut watch = Watch { progress, output, keeper: None, stage: 0 };
            let found = register_slabs(problem, &settings, &room, &mut watch);
            found.inspect_err(|failure| {
                watch.output.journal().event("failed", json!({"reason": failure.to_string()}));
            })?
        }
    };
    let register = clock.elapsed().as_secs_f64();
    if let Some(advice) = found.outcome.advice() {
        printer.warning(advice);
    }
    let clock = Instant::now();
    hosts.agree(output.as_mut().map_or(Ok(()), OutputFolder::begin))?;
    let folding = found.warp.as_ref().map(|warp| warp.folding()).transpose()?;
    found.write_warped(&files.warped, &mut moving)?;
    if let Some(warp) = &found.warp {
        warp.write(&files.warp)?;
    }
    if let Some(inverse) = found.inverse.as_ref().filter(|_| !request.no_inverse) {
        inverse.write(&files.inverse)?;
    }
    let dice = labels.overlap(&found, &initial, &files.labels)?;
    let processes = Process::all(hosts, &found)?;
    let Some(mut output) = output else { return Ok(()) };
    write_affine(&files.affine, &found.affine)?;
    write_affine(&files.affine_mat, &found.affine)?;
    let levels = found.stages.iter().flat_map(|stage| &stage.levels);
    let seconds = Seconds {
        read,
        // The device is opened before the images are.
        start: 0.0,
        register,
        iterations: levels.map(|level| level.seconds).sum(),
        results: clock.elapsed().as_secs_f64(),
        total: start.elapsed().as_secs_f64(),
    };
    let known = (grids, warnings, processes);
    let measures = measures(request, settings, (&found, folding, dice), known, seconds);
    let text = serde_json::to_string_pretty(&measures)
        .map_err(|reason| Failure::defect(reason.to_string()))?;
    write_text(&files.metrics, &format!("{text}\n"))?;
    output.journal().event(
        "end",
        json!({"outcome": measures.outcome, "loss": measures.loss,
               "peak_memory_bytes": measures.peak_memory_bytes}),
    );
    output.complete()?;
    printer.note(&format!("results are in {}", request.output.display()));
    match request.json {
        true => print_to_stdout(&format!("{text}\n")),
        false => summarise(request.quiet, || summary(&measures)),
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
    warnings: Vec<String>,
    initial: Affine<Physical, Physical>,
    room: Room,
    /// Of the first alone.
    output: Option<OutputFolder>,
}

impl Ready {
    fn new(request: &RegisterArguments, hosts: &Hosts) -> Outcome<Self> {
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
        let files = Files::in_folder(&request.output);
        let paths = [&*request.fixed, &*request.moving];
        let masks = [&request.fixed_mask, &request.moving_mask].map(Option::as_deref);
        let labels = [&request.fixed_labels, &request.moving_labels].map(Option::as_deref);
        for file in files.all() {
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
        let labels = |i: usize| {
            let on_grid = |path| Labels::open(path, (images[i].geometry(), paths[i]));
            labels[i].map(on_grid).transpose()
        };
        let mut labels = Labels {
            fixed: labels(0)?,
            moving: labels(1)?,
            ids: Vec::new(),
            asked: request.labels.clone(),
        };
        if is_first {
            labels.check(request)?;
        }
        let named = |path: &Path, reader: &PlaneReader| -> Vec<String> {
            let warnings = reader.header().warnings.iter();
            warnings.map(|warning| format!("{}: {warning}", path.display())).collect()
        };
        let warnings = [named(paths[0], &images[0]), named(paths[1], &images[1])].concat();
        warnings.iter().for_each(|warning| printer.warning(warning));
        let grids = images.each_ref().map(|image| image.geometry().clone());
        let room =
            request.mesh.room(&settings, ([&grids[0], &grids[1]], request.masked()), hosts)?;
        printer.detail(&format!("slab by slab on {}, settings {settings:?}", request.mesh));
        let initial = initial(request)?;
        let output = claim.map(|claim| {
            files.prepare()?;
            let voxels = grids[0].len() as u64;
            Forecast::of_registration(voxels, request.written(&settings)).check(
                ("the results of the registration", &files.folder),
                claim.earlier_bytes(),
                request.ignore_disk,
                printer,
            )?;
            let mut output = OutputFolder::new(claim, files.records(&text, false), printer)?;
            output.journal().event(
                "start",
                json!({"ffdp_version": env!("CARGO_PKG_VERSION"),
                       "device": request.mesh.to_string(),
                       "command": arguments(), "slabs": true,
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
            warnings,
            initial,
            room,
            output,
        })
    }
}

/// The labels of both images.
struct Labels {
    fixed: Option<PlaneReader>,
    moving: Option<PlaneReader>,
    /// Those of the moving image, for the process that writes.
    ids: Vec<i32>,
    /// Those that --labels asks for.
    asked: Option<Vec<i32>>,
}

impl Labels {
    /// Those of an image with this grid and file.
    fn open(path: &Path, (grid, image): (&Geometry, &Path)) -> Outcome<PlaneReader> {
        let labels = PlaneReader::open(path, None)?;
        let what = format!("{} (labels of {})", path.display(), image.display());
        grid.check_same_grid(labels.geometry(), &what)?;
        Ok(labels)
    }

    /// Reads all of them, so that a run does not end with what could be known before it.
    fn check(&mut self, request: &RegisterArguments) -> Outcome<()> {
        let files =
            [(&mut self.fixed, &request.fixed_labels), (&mut self.moving, &request.moving_labels)];
        let mut of_either = Vec::new();
        for (labels, path) in files {
            let (Some(labels), Some(path)) = (labels, path) else { continue };
            let fix = "check that it is the file you meant";
            let ids = label_ids(labels);
            let ids = ids.map_err(|no| Failure::user(format!("{}: {no}", path.display()), fix))?;
            if ids.is_empty() {
                let what = "the label map holds no label but background (0)";
                return Err(Failure::user(format!("{}: {what}", path.display()), fix));
            }
            of_either.extend_from_slice(&ids);
            // The moving ones come last.
            self.ids = ids;
        }
        match self.asked.iter().flatten().find(|id| **id != 0 && !of_either.contains(id)) {
            None => Ok(()),
            Some(id) => Err(Failure::user(
                format!("neither label map holds the label {id} of --labels"),
                format!("the maps hold {of_either:?}"),
            )),
        }
    }

    /// Writes the moving labels as `found` shows them; how they overlap with the fixed ones, before and after.
    fn overlap(
        &mut self,
        found: &SlabRegistration,
        initial: &Affine<Physical, Physical>,
        file: &Path,
    ) -> Outcome<Option<Overlap>> {
        let Some(moving) = &mut self.moving else { return Ok(None) };
        let before = match &mut self.fixed {
            Some(fixed) => found.overlap_under(initial, (moving, &self.ids), fixed)?,
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

/// One of several processes: `metrics.json`.
#[derive(Debug, Serialize)]
struct Process {
    host: String,
    /// First plane, and the one after the last, of the displacement that it held on the last level; null without a
    /// deformation.
    planes: Option<[usize; 2]>,
    /// Null where the system does not say.
    peak_memory_bytes: Option<u64>,
}

impl Process {
    /// All of them; none where one works alone.
    fn all(hosts: &Hosts, found: &SlabRegistration) -> Outcome<Vec<Self>> {
        let Some(ranks) = hosts.ranks() else { return Ok(Vec::new()) };
        let planes = found.warp.as_ref().map_or(0..0, |warp| warp.field.layout().held());
        let numbers = [planes.start as u64, planes.end as u64, peak_memory_bytes().unwrap_or(0)];
        let all = hosts.all_gather(&numbers.map(|number| number as f64))?;
        let process = |(host, numbers): (&String, &[f64])| {
            let [start, end, peak] = [0, 1, 2].map(|i| numbers[i] as usize);
            Self {
                host: host.clone(),
                planes: (start < end).then_some([start, end]),
                peak_memory_bytes: (peak > 0).then_some(peak as u64),
            }
        };
        Ok(ranks.hosts().iter().zip(all.chunks_exact(3)).map(process).collect())
    }
}

fn measures(
    request: &RegisterArguments,
    settings: Settings,
    (found, folding, dice): (&SlabRegistration, Option<Folding>, Option<Overlap>),
    (grids, warnings, processes): ([Geometry; 2], Vec<String>, Vec<Process>),
    seconds: Seconds,
) -> SlabMeasures {
    SlabMeasures {
        run: Run::here(&request.mesh),
        fixed: Grid::of(&request.fixed, &grids[0]),
        moving: Grid::of(&request.moving, &grids[1]),
        outcome: found.outcome,
        advice: found.outcome.advice(),
        warnings,
        loss: BeforeAfter { before: found.loss_before, after: found.loss_after },
        dice,
        folds: folding.map(|folding| folding.folds),
        smallest_determinant: folding.map(|folding| folding.smallest),
        longest_displacement_mm: folding.map(|folding| folding.longest_mm),
        affine: *found.affine.rows(),
        stages: found.stages.clone(),
        settings,
        seconds,
        peak_memory_bytes: peak_memory_bytes(),
        processes,
    }
}

fn summary(measures: &SlabMeasures) -> String {
    let BeforeAfter { before, after } = measures.loss;
    let mut text = format!("loss                  {before:.5} -> {after:.5}\n");
    if let Some(Overlap { mean: BeforeAfter { before, after }, .. }) = &measures.dice {
        text += &format!("mean Dice             {before:.4} -> {after:.4}\n");
    }
    if let (Some(folds), Some(det), Some(mm)) =
        (measures.folds, measures.smallest_determinant, measures.longest_displacement_mm)
    {
        text += &format!("displacement          largest {mm:.2} mm\n");
        text += &format!("folds                 {folds} voxels, smallest det J {det:.3}\n");
    }
    let Seconds { total, register, .. } = measures.seconds;
    text + &format!("time                  {total:.1} s, of which {register:.1} s registration\n")
}
