//! `ffdp register`: read, find the deformation, measure, write.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::Error;
use ffdp_burn::image::{LabelMap, Volume};
use ffdp_burn::io::nifti::{write_displacement, write_labels, write_volume};
use ffdp_burn::io::{check_memory, check_not_an_input, check_writable, write_atomically};
use ffdp_burn::ops::Interpolation;
use ffdp_burn::register::{
    GreedySettings, LevelSettings, LnccSettings, MiSettings, Problem, Registration, Settings,
    Similarity as Metric, Stage, register,
};
use ffdp_burn::transform::{Composite, Displacement};

use super::input::{Reading, image, labels_on};
use crate::args::{self, RegisterArguments};
use crate::failure::{Failure, Outcome};
use crate::printer::{Printer, print_to_stdout};
use crate::progress::ProgressPrinter;
use crate::report::measures::{
    BeforeAfter, Folds, Input, Lengths, Measures, Overlap, Seconds, Similarity,
};
use crate::report::picture::{Slices, draw};
use crate::report::summary;

/// Host memory that a run needs for each voxel of the fixed image, measures and picture included:
/// 140 bytes were measured on the CPU at 160x192x224.
const BYTES_PER_VOXEL: u64 = 160;

/// Registers a pair and writes the results.
pub fn run(request: &RegisterArguments) -> Outcome<()> {
    let start = Instant::now();
    let printer = Printer::new(request.quiet, request.verbose);
    let settings = settings(request)?;
    let files = Files::in_folder(&request.output);
    let inputs = Inputs::read(request, &files, printer)?;
    files.prepare()?;
    let voxels = inputs.fixed.geometry.len() as u64;
    check_memory("the registration", BYTES_PER_VOXEL * voxels)?;
    let device = request.device.open()?;
    printer.detail(&format!("device {}, settings {settings:?}", request.device));
    let read = start.elapsed().as_secs_f64();

    let clock = Instant::now();
    let mut progress = ProgressPrinter::new(printer);
    let problem = Problem::new(&inputs.fixed, &inputs.moving);
    let result = register(&problem, &settings, &device, &mut progress)?;
    let seconds = Seconds { read, register: clock.elapsed().as_secs_f64(), ..Seconds::default() };
    if let Some(advice) = result.outcome.advice() {
        printer.warning(advice);
    }

    let clock = Instant::now();
    let found = Found::of(&inputs, result, &device)?;
    let mut measures = found.measures(request, settings, &inputs)?;
    measures.seconds = Seconds { measure: clock.elapsed().as_secs_f64(), ..seconds };
    found.write(&files, &inputs)?;
    measures.seconds.total = start.elapsed().as_secs_f64();
    let json = json(&measures)?;
    write_file(&files.metrics, json.as_bytes())?;
    printer.note(&format!("results are in {}", request.output.display()));
    print_to_stdout(&if request.json { json } else { summary(&measures) })
}

/// The settings that the flags describe.
fn settings(request: &RegisterArguments) -> Outcome<Settings> {
    let mut greedy = GreedySettings::default();
    let default = |f: fn(&LevelSettings) -> f64| greedy.levels.iter().map(f).collect::<Vec<_>>();
    let shrinks = request.shrink.clone().unwrap_or_else(|| default(|level| level.shrink));
    let iterations = request
        .iterations
        .clone()
        .unwrap_or_else(|| greedy.levels.iter().map(|level| level.iterations).collect());
    if shrinks.len() != iterations.len() {
        return Err(Failure::user(
            format!("--shrink names {shrinks:?} and --iterations {iterations:?}"),
            "give one number per level to both, for example --shrink 4,2,1 --iterations 200,100,50",
        ));
    }
    let level = |(shrink, iterations)| LevelSettings { shrink, iterations };
    greedy.levels = shrinks.into_iter().zip(iterations).map(level).collect();
    greedy.similarity = match (request.metric, request.window) {
        (args::Metric::Lncc, window) => {
            let default = LnccSettings::default();
            Metric::Lncc(LnccSettings { window: window.unwrap_or(default.window), ..default })
        }
        (args::Metric::Mse, None) => Metric::Mse,
        (args::Metric::Mi, None) => Metric::Mi(MiSettings::default()),
        (metric, Some(window)) => {
            let metric = format!("{metric:?}").to_lowercase();
            return Err(Failure::user(
                format!("--window {window} is given, but the metric {metric} has no window"),
                "leave it out, or use --metric lncc",
            ));
        }
    };
    greedy.learning_rate_voxels = request.lr.unwrap_or(greedy.learning_rate_voxels);
    greedy.sigma_gradient_voxels = request.sigma_grad.unwrap_or(greedy.sigma_gradient_voxels);
    greedy.sigma_warp_voxels = request.sigma_warp.unwrap_or(greedy.sigma_warp_voxels);
    let settings = Settings { stages: vec![Stage::Greedy(greedy)], ..Settings::default() };
    settings.validate()?;
    Ok(settings)
}

/// Where the results go.
struct Files {
    folder: PathBuf,
    warped: PathBuf,
    warp: PathBuf,
    labels: PathBuf,
    picture: PathBuf,
    metrics: PathBuf,
}

impl Files {
    fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            warped: folder.join("warped.nii.gz"),
            warp: folder.join("warp.nii.gz"),
            labels: folder.join("warped_labels.nii.gz"),
            picture: folder.join("report.png"),
            metrics: folder.join("metrics.json"),
        }
    }

    fn all(&self) -> [&Path; 5] {
        [&self.warped, &self.warp, &self.labels, &self.picture, &self.metrics]
    }

    /// Makes the folder and tries whether every file can be written, before the work.
    fn prepare(&self) -> Outcome<()> {
        fs::create_dir_all(&self.folder)
            .map_err(|source| Error::io(&self.folder, "create the output folder", source))?;
        self.all().into_iter().try_for_each(|file| Ok(check_writable(file)?))
    }
}

/// What was read.
struct Inputs {
    fixed: Volume,
    moving: Volume,
    fixed_labels: Option<LabelMap>,
    moving_labels: Option<LabelMap>,
}

impl Inputs {
    fn read(request: &RegisterArguments, files: &Files, printer: Printer) -> Outcome<Self> {
        let RegisterArguments { fixed, moving, fixed_labels, moving_labels, .. } = request;
        let labels = [fixed_labels, moving_labels].into_iter().flatten();
        let paths: Vec<&Path> = [fixed, moving].into_iter().chain(labels).map(|p| &**p).collect();
        for file in files.all() {
            check_not_an_input(file, &paths)?;
        }
        let reading = Reading { volume: request.volume, nan_policy: request.nan_policy };
        let fixed_image = image(fixed, reading, printer)?;
        let moving_image = image(moving, reading, printer)?;
        let on = |labels: &Option<PathBuf>, image: &Volume, path: &Path| {
            labels.as_ref().map(|labels| labels_on(labels, image, path)).transpose()
        };
        Ok(Self {
            fixed_labels: on(fixed_labels, &fixed_image, fixed)?,
            moving_labels: on(moving_labels, &moving_image, moving)?,
            fixed: fixed_image,
            moving: moving_image,
        })
    }
}

/// The result with everything that is written or measured, on the host.
struct Found {
    result: Registration,
    /// The moving image on the fixed grid by the headers alone.
    before: Volume,
    labels_before: Option<LabelMap>,
    labels_after: Option<LabelMap>,
    /// `[3, D, H, W]` in voxels.
    displacement: Vec<f32>,
    /// `[3, D, H, W]` in RAS mm.
    displacement_mm: Vec<f32>,
}

impl Found {
    fn of(inputs: &Inputs, result: Registration, device: &Device) -> Outcome<Self> {
        let grid = &inputs.fixed.geometry;
        let labels = |through: &Composite| {
            let labels = inputs.moving_labels.as_ref();
            let nearest = Interpolation::Nearest;
            labels.map(|labels| through.warp_labels(labels, grid, nearest, device)).transpose()
        };
        let warp = match &result.warp {
            Some(warp) => warp.clone(),
            None => Displacement::zero(grid.clone(), device),
        };
        let displacement_mm = warp
            .to_mm()
            .try_into_vec_as::<f32>()
            .map_err(|reason| Error::device("reading back the displacement", reason))?;
        let identity = Composite::default();
        Ok(Self {
            before: identity.warp(&inputs.moving, grid, device)?,
            labels_before: labels(&identity)?,
            labels_after: labels(&result.transform())?,
            displacement: warp.to_vec()?,
            displacement_mm,
            result,
        })
    }

    fn measures(
        &self,
        request: &RegisterArguments,
        settings: Settings,
        inputs: &Inputs,
    ) -> Outcome<Measures> {
        let (fixed, result) = (&inputs.fixed, &self.result);
        let dice = match (&inputs.fixed_labels, &self.labels_before, &self.labels_after) {
            (Some(fixed), Some(before), Some(after)) => Some(Overlap::of(fixed, before, after)?),
            _ => None,
        };
        Ok(Measures {
            ffdp_version: env!("CARGO_PKG_VERSION"),
            command: std::env::args().collect(),
            device: request.device.to_string(),
            fixed: Input::of(&request.fixed, fixed),
            moving: Input::of(&request.moving, &inputs.moving),
            outcome: result.outcome,
            advice: result.outcome.advice(),
            loss: BeforeAfter { before: result.loss_before, after: result.loss_after },
            similarity: BeforeAfter {
                before: Similarity::of(fixed, &self.before)?,
                after: Similarity::of(fixed, &result.warped)?,
            },
            folds: Folds::of(&self.displacement, fixed.geometry.size)?,
            displacement_mm: Lengths::of(&self.displacement_mm),
            dice,
            stages: result.stages.clone(),
            settings,
            seconds: Seconds::default(),
        })
    }

    fn write(&self, files: &Files, inputs: &Inputs) -> Outcome<()> {
        let geometry = &inputs.fixed.geometry;
        write_volume(&files.warped, &self.result.warped)?;
        write_displacement(&files.warp, &self.displacement, geometry)?;
        if let Some(labels) = &self.labels_after {
            write_labels(&files.labels, labels)?;
        }
        let slices = Slices {
            fixed: &inputs.fixed,
            before: &self.before,
            warped: &self.result.warped,
            displacement_mm: &self.displacement_mm,
        };
        write_file(&files.picture, &draw(&slices)?)
    }
}

fn json(measures: &Measures) -> Outcome<String> {
    let json = serde_json::to_string_pretty(measures);
    let mut json = json.map_err(|reason| Failure::user(reason.to_string(), "report this"))?;
    json.push('\n');
    Ok(json)
}

fn write_file(path: &Path, bytes: &[u8]) -> Outcome<()> {
    Ok(write_atomically(path, |file| file.write_all(bytes))?)
}
