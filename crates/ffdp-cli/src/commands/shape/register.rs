//! `ffdp shape register`: one shape onto another.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::{DType, Device};
use clap::{Args, ValueEnum};
use ffdp_burn::transform::{Composite, Displacement, Step, write_transform};
use ffdp_image::image::{Affine, Geometry, Physical};
use ffdp_image::io::images::header;
use ffdp_image::io::write_text;
use ffdp_image::metrics::jacobian;
use ffdp_shapes::files::{read_shape, write_shape, write_shape_with};
use ffdp_shapes::lddmm::{
    Direction, Flow, Iteration, LddmmSettings, LinearStart, Match, match_shapes,
};
use ffdp_shapes::shape::{SurfaceDistance, self_intersections, surface_distance};
use ffdp_shapes::tensors::to_points;
use ffdp_shapes::{Position, Shape, ShapeTree};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::input::{SHAPE_HELP, ShapeInput};
use super::method::{MethodArguments, RunArguments, to_toml, warnings, watch};
use crate::failure::{Failure, Result};
use crate::printer::summarise;
use crate::report::shapes::{ShapeReport, page};
use crate::result::Folds;

/// Cells of the carried grid along the longest side of the source: at least, and at most.
const GRID_CELLS: [f64; 2] = [24.0, 96.0];
/// Cells of that grid in a width of the deformation: larger ones turn over where the map itself does not.
const GRID_CELLS_PER_WIDTH: f64 = 4.0;
/// What the grid goes beyond the source, as a part of its longest side.
const GRID_MARGIN: f64 = 1.0 / 6.0;
/// Linear starts that put the source less far apart are the same, relative to its size: numbers of f64 that are read
/// from a text may differ in the last digit.
const SAME_START: f64 = 1e-9;

/// A linear map of physical space, RAS mm.
type LinearMap = Affine<Physical, Physical>;

/// What lies in the folder of results.
const RESULT_HELP: &str = "\
The folder then holds matched.vtk (the source at the end, with the distance of every point), flow.json (the \
deformation), settings.toml, metrics.json, report.html; with --reference also warp.nii.gz, which ffdp apply takes \
to carry images and labels of the source onto that grid; it takes flow.json itself, too.";

/// `ffdp shape register`.
#[derive(Debug, Args)]
#[command(after_help = RESULT_HELP, after_long_help = format!("{RESULT_HELP}\n\n{SHAPE_HELP}"))]
pub struct RegisterShapes {
    /// Target: a file, or LABELMAP:LABEL.
    #[arg(short, long, value_name = "SHAPE")]
    fixed: ShapeInput,
    /// Source, which is deformed.
    #[arg(short, long, value_name = "SHAPE")]
    moving: ShapeInput,
    /// Folder of the results.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    #[command(flatten)]
    method: MethodArguments,
    /// Align the source first by a linear map [default: none]. Found from the pairs of landmarks, or from centres and
    /// principal axes of other shapes. It is a part of flow.json.
    #[arg(long, value_enum, value_name = "HOW")]
    start: Option<StartChoice>,
    /// Image of the target: the deformation of its grid is written as warp.nii.gz.
    #[arg(short, long, value_name = "IMAGE")]
    reference: Option<PathBuf>,
    /// Other shapes of the source that the deformation carries along, into the folder.
    #[arg(long, value_name = "FILE")]
    carry: Vec<PathBuf>,
    /// Continue from momenta.json of an interrupted run in the same folder, with the same --start.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    run: RunArguments,
}

/// What is done to the source before it is deformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StartChoice {
    /// Nothing.
    None,
    /// Turned and moved.
    Rigid,
    /// Turned, moved and scaled alike in all directions.
    Similarity,
    /// Turned, moved, scaled and sheared; of shapes that are no landmarks scaled along their axes.
    Affine,
}

impl From<StartChoice> for LinearStart {
    fn from(choice: StartChoice) -> Self {
        match choice {
            StartChoice::None => Self::None,
            StartChoice::Rigid => Self::Rigid,
            StartChoice::Similarity => Self::Similarity,
            StartChoice::Affine => Self::Affine,
        }
    }
}

/// Deforms, and writes what was found.
pub fn run(request: &RegisterShapes) -> Result<()> {
    let printer = request.run.printer();
    let (source, target) = (request.moving.read()?, request.fixed.read()?);
    let mut settings = request.method.settings(&source, &target)?;
    settings.start = request.start.map_or(settings.start, LinearStart::from);
    let start = settings.start_map(&source, &target)?;
    let moved = start.map(|map| source.transformed(&map));
    let aligned = moved.as_ref().unwrap_or(&source);
    let grid = request.reference.as_deref().map(header).transpose()?.map(|h| h.geometry);
    let carried: Vec<Shape> = request.carry.iter().map(read_shape).collect::<Result<_, _>>()?;
    settings.attachment.check(aligned, &target)?;
    let folder = &request.output;
    let kept = folder.join("momenta.json");
    let resumed = request.resume.then(|| read_momenta(&kept, start, &source)).transpose()?;
    std::fs::create_dir_all(folder)
        .map_err(|source| ffdp_image::Error::io(folder, "create", source))?;
    let warnings = warnings(&settings, aligned, &target);
    warnings.iter().for_each(|text| printer.warning(text));
    let device = request.run.device.open()?;
    write_text(&folder.join("settings.toml"), &to_toml(&settings)?)?;

    let begin = Instant::now();
    let mut failed = None;
    let save = |iteration: &Iteration| {
        failed = keep(&kept, start, iteration).err();
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut observe = watch(printer, settings.iterations, save);
    let place = (&device, DType::F32);
    // The source is aligned already.
    let rest = LddmmSettings { start: LinearStart::None, ..settings.clone() };
    let found = match_shapes([aligned, &target], &rest, place, resumed, &mut observe)?;
    drop(observe);
    if let Some(failure) = failed {
        return Err(failure);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let flow = found.flow.clone();
    let flow = if let Some(map) = &start { flow.after(map)? } else { flow };
    let results = Results {
        source: &source,
        aligned,
        target: &target,
        found: &found,
        flow: &flow,
        start,
        distances: Distances::new([&source, &found.shape], moved.as_ref(), &target),
        seconds,
        device: &device,
    };
    results.write(request, &settings, &warnings, grid.as_ref())?;
    for (shape, path) in carried.iter().zip(&request.carry) {
        let name = path.file_name().unwrap_or(path.as_os_str());
        write_shape(folder.join(name), &flow.apply(shape)?)?;
    }
    // What was needed to go on is in flow.json.
    let _ = std::fs::remove_file(&kept);
    summarise(request.run.quiet, || results.summary(folder))
}

/// To the target.
#[derive(Clone, Copy, Serialize)]
struct Distances {
    /// Of the source as it was given.
    before: SurfaceDistance,
    /// After the linear start, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    aligned: Option<SurfaceDistance>,
    /// At the end.
    after: SurfaceDistance,
}

impl Distances {
    fn new([source, end]: [&Shape; 2], aligned: Option<&Shape>, target: &Shape) -> Self {
        let far = |shape: &Shape| surface_distance(shape, target);
        Self { before: far(source), aligned: aligned.map(far), after: far(end) }
    }
}

struct Results<'a> {
    source: &'a Shape,
    /// The source after the linear start.
    aligned: &'a Shape,
    target: &'a Shape,
    /// From the aligned source on.
    found: &'a Match,
    /// With the linear start.
    flow: &'a Flow,
    start: Option<LinearMap>,
    distances: Distances,
    seconds: f64,
    device: &'a Device,
}

impl Results<'_> {
    fn write(
        &self,
        request: &RegisterShapes,
        settings: &LddmmSettings,
        warnings: &[String],
        grid: Option<&Geometry>,
    ) -> Result<()> {
        let (folder, found) = (&request.output, self.found);
        let tree = ShapeTree::new(self.target);
        let far: Vec<f64> =
            found.shape.points.iter().map(|&p| tree.nearest(p).distance_mm).collect();
        write_shape_with(folder.join("matched.vtk"), &found.shape, &[("distance", &far)])?;
        write_text(&folder.join("flow.json"), &json!(self.flow.saved()).to_string())?;
        let crossings = [self.source, &found.shape].map(self_intersections);
        let carried = self.carried_grid()?;
        // The deformation, and what it is compared by, begins after the linear start.
        let begin = if self.start.is_some() { "aligned" } else { "before" };
        let metrics = json!({
            "distance_mm": self.distances,
            "attachment": { begin: found.attachment[0], "after": found.attachment[1] },
            "energy_mm2": found.energy, "costs": found.costs, "seconds": self.seconds,
            "self_intersections": { "before": crossings[0], "after": crossings[1] },
            "start": self.flow.saved().start, "carried_grid": carried,
            "control_points": self.flow.saved().momenta.len(), "warnings": warnings,
        });
        write_text(&folder.join("metrics.json"), &format!("{metrics:#}\n"))?;
        let report = ShapeReport {
            title: format!("{} to {}", request.moving.name(), request.fixed.name()),
            shapes: [self.source, &found.shape],
            target: self.target,
            costs: &found.costs,
            measures: self.measures(crossings, &carried),
            warnings,
            settings: to_toml(settings)?,
        };
        write_text(&folder.join("report.html"), &page(&report))?;
        if let Some(grid) = grid {
            write_warp(&folder.join("warp.nii.gz"), self.flow, grid, self.device)?;
        }
        Ok(())
    }

    /// The rows of the report's table.
    fn measures(&self, crossings: [usize; 2], carried: &Folds) -> Vec<(String, String)> {
        let found = self.found;
        let rows = [
            (
                "points and cells",
                format!(
                    "source {} and {}, target {} and {}",
                    self.source.points.len(),
                    self.source.cells.len(),
                    self.target.points.len(),
                    self.target.cells.len()
                ),
            ),
            ("control points", self.flow.saved().momenta.len().to_string()),
            ("iterations", format!("{} in {:.1} s", found.costs.len() - 1, self.seconds)),
            ("comparison", format!("{:.4e} to {:.4e}", found.attachment[0], found.attachment[1])),
            ("length of the path", format!("{:.2} mm", (2.0 * found.energy.max(0.0)).sqrt())),
            ("self-intersections", format!("{} before, {} after", crossings[0], crossings[1])),
            (
                "carried grid",
                format!(
                    "det J {:.3} to {:.3}, {} voxels folded",
                    carried.jacobian_central.min, carried.jacobian_central.max, carried.voxels
                ),
            ),
        ];
        let start = self.start().map(|start| ("linear start", start));
        let rows = start.into_iter().chain(rows);
        rows.map(|(name, value)| (name.to_string(), value)).collect()
    }

    /// What the linear start did.
    fn start(&self) -> Option<String> {
        let (map, distance) = (self.start?, self.distances.aligned?);
        let moved = apart(&self.source.points, &self.aligned.points);
        let mean = moved.sum::<f64>() / self.source.points.len() as f64;
        Some(format!(
            "{mean:.2} mm on average, volumes times {:.3}; {:.3} mm from the target after it",
            map.determinant(),
            distance.mean
        ))
    }

    /// What the flow does to a grid around the aligned source, which it carries along. The linear start has no part in
    /// it.
    fn carried_grid(&self) -> Result<Folds> {
        let [low, high] = self.aligned.bounds();
        let ends = [0, 1, 2].map(|a| [low[a], high[a]]);
        let longest = ends.iter().map(|[low, high]| high - low).fold(0.0, f64::max);
        let longest = if longest > 0.0 { longest } else { 1.0 };
        let widths = &self.found.flow.saved().sigmas_mm;
        let narrowest = widths.iter().copied().fold(f64::INFINITY, f64::min);
        let [most, least] = GRID_CELLS.map(|cells| longest / cells);
        let spacing = (narrowest / GRID_CELLS_PER_WIDTH).clamp(least, most);
        let margin = GRID_MARGIN * longest;
        let start = ends.map(|[low, _]| low - margin);
        let size =
            ends.map(|[low, high]| ((high - low + 2.0 * margin) / spacing).ceil() as usize + 1);
        let linear = [0, 1, 2].map(|i| std::array::from_fn(|j| if i == j { spacing } else { 0.0 }));
        let grid = Geometry::from_affine(size, Affine::from_parts(linear, start))?;
        let mm = self.found.flow.displacement_mm(&grid, Direction::Forward, self.device)?;
        let values: Vec<f32> =
            (0..3).flat_map(|c| mm.iter().map(move |u| (u[c] / spacing) as f32)).collect();
        Ok(Folds::new(&jacobian(&values, size)?, 1.0))
    }

    fn summary(&self, folder: &Path) -> String {
        let Distances { before, aligned, after } = self.distances;
        let aligned = aligned.map_or(String::new(), |aligned| {
            format!("the linear start leaves a surface distance of {:.3} mm\n", aligned.mean)
        });
        format!(
            "{aligned}surface distance {:.3} -> {:.3} mm (95th percentile {:.3} -> {:.3}, largest {:.3} -> {:.3}), \
             {} iterations in {:.1} s\nresults in {}\n",
            before.mean,
            after.mean,
            before.p95,
            after.p95,
            before.max,
            after.max,
            self.found.costs.len() - 1,
            self.seconds,
            folder.display()
        )
    }
}

/// The map from the target's grid to the source, as images are sampled.
fn write_warp(path: &Path, flow: &Flow, grid: &Geometry, device: &Device) -> Result<()> {
    let mm = flow.displacement_mm(grid, Direction::Back, device)?;
    let to_voxel = grid.mm_to_voxel();
    let voxels: Vec<Position> = mm.iter().map(|&u| to_voxel.apply_vector(u)).collect();
    let values = (0..3).flat_map(|c| voxels.iter().map(move |u| u[c] as f32)).collect();
    let warp = Displacement::from_vec(values, grid.clone(), device)?;
    Ok(write_transform(path, &Composite::new(vec![Step::Displacement(warp)]))?)
}

/// The distances of points that correspond, in mm.
fn apart(a: &[Position], b: &[Position]) -> impl Iterator<Item = f64> {
    let squares =
        |(a, b): (&Position, &Position)| (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>();
    a.iter().zip(b).map(squares).map(f64::sqrt)
}

/// What an interrupted run leaves.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedMomenta {
    /// The linear start of the source, rows of `[L | t]` in RAS mm.
    start: Option<[[f64; 4]; 3]>,
    /// Of the control points of the source after that.
    momenta: Vec<Position>,
}

fn keep(path: &Path, start: Option<LinearMap>, iteration: &Iteration) -> Result<()> {
    let momenta = to_points(iteration.momenta.clone())?;
    let saved = SavedMomenta { start: start.map(|map| *map.rows()), momenta };
    Ok(write_text(path, &json!(saved).to_string())?)
}

/// Momenta to go on from, where the source starts as it did.
fn read_momenta(path: &Path, start: Option<LinearMap>, source: &Shape) -> Result<Vec<Position>> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ffdp_image::Error::io(path, "read", source))?;
    let saved: SavedMomenta = serde_json::from_str(&text).map_err(|error| {
        Failure::user(format!("{}: {error}", path.display()), "start again without --resume")
    })?;
    let maps = [saved.start.map(LinearMap::from_rows), start];
    let [then, now] = maps.map(|map| source.transformed(&map.unwrap_or(LinearMap::identity())));
    let far = apart(&then.points, &now.points).fold(0.0, f64::max);
    if far <= SAME_START * now.diameter() {
        return Ok(saved.momenta);
    }
    let what = "momenta go on from the linear start that they were found after";
    let value = format!("a start that puts the source up to {far:.3e} mm from there");
    let fix = "give the shapes and the --start of the interrupted run, or leave --resume out";
    Err(ffdp_image::Error::file(path, what, value, fix).into())
}
