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
use ffdp_shapes::shape::{self_intersections, surface_distance};
use ffdp_shapes::tensors::to_points;
use ffdp_shapes::{Position, Shape, ShapeTree};
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
    /// Align the source first by a linear map [default: none]. Found from the pairs of landmarks, or from centres and principal
    /// axes of other shapes. It is a part of flow.json.
    #[arg(long, value_enum, value_name = "HOW")]
    start: Option<StartChoice>,
    /// Image of the target: the deformation of its grid is written as warp.nii.gz.
    #[arg(short, long, value_name = "IMAGE")]
    reference: Option<PathBuf>,
    /// Other shapes of the source that the deformation carries along, into the folder.
    #[arg(long, value_name = "FILE")]
    carry: Vec<PathBuf>,
    /// Continue from momenta.json of an interrupted run in the same folder.
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
    let grid = request.reference.as_deref().map(header).transpose()?.map(|h| h.geometry);
    let carried: Vec<Shape> = request.carry.iter().map(read_shape).collect::<Result<_, _>>()?;
    let folder = &request.output;
    std::fs::create_dir_all(folder)
        .map_err(|source| ffdp_image::Error::io(folder, "create", source))?;
    let warnings = warnings(&settings, &source, &target);
    warnings.iter().for_each(|text| printer.warning(text));
    let device = request.run.device.open()?;
    write_text(&folder.join("settings.toml"), &to_toml(&settings)?)?;

    let kept = folder.join("momenta.json");
    let start = if request.resume { Some(read_momenta(&kept)?) } else { None };
    let begin = Instant::now();
    let mut failed = None;
    let save = |iteration: &Iteration| match keep(&kept, iteration) {
        Ok(()) => ControlFlow::Continue(()),
        Err(failure) => {
            failed = Some(failure);
            ControlFlow::Break(())
        }
    };
    let mut observe = watch(printer, settings.iterations, save);
    let place = (&device, DType::F32);
    let found = match_shapes([&source, &target], &settings, place, start, &mut observe)?;
    drop(observe);
    if let Some(failure) = failed {
        return Err(failure);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let results =
        Results { source: &source, target: &target, found: &found, seconds, device: &device };
    results.write(request, &settings, &warnings, grid.as_ref())?;
    for (shape, path) in carried.iter().zip(&request.carry) {
        let name = path.file_name().unwrap_or(path.as_os_str());
        write_shape(folder.join(name), &found.flow.apply(shape)?)?;
    }
    // What was needed to go on is in flow.json.
    let _ = std::fs::remove_file(&kept);
    summarise(request.run.quiet, || results.summary(folder))
}

struct Results<'a> {
    source: &'a Shape,
    target: &'a Shape,
    found: &'a Match,
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
        write_text(&folder.join("flow.json"), &json!(found.flow.saved()).to_string())?;
        let [before, after] =
            [self.source, &found.shape].map(|shape| surface_distance(shape, self.target));
        let crossings = [self.source, &found.shape].map(self_intersections);
        let carried = self.carried_grid()?;
        let metrics = json!({
            "distance_mm": { "before": before, "after": after },
            "attachment": { "before": found.attachment[0], "after": found.attachment[1] },
            "energy_mm2": found.energy, "costs": found.costs, "seconds": self.seconds,
            "self_intersections": { "before": crossings[0], "after": crossings[1] },
            "start": found.flow.saved().start, "carried_grid": carried,
            "control_points": found.flow.saved().momenta.len(), "warnings": warnings,
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
            write_warp(&folder.join("warp.nii.gz"), &found.flow, grid, self.device)?;
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
            ("control points", found.flow.saved().momenta.len().to_string()),
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
        let map: Affine<Physical, Physical> = Affine::from_rows(self.found.flow.saved().start?);
        let moved = self.source.points.iter().map(|&p| {
            let q = map.apply(p);
            (0..3).map(|i| (q[i] - p[i]).powi(2)).sum::<f64>().sqrt()
        });
        let mean = moved.sum::<f64>() / self.source.points.len() as f64;
        Some(format!("{mean:.2} mm on average, volumes times {:.3}", map.determinant()))
    }

    /// What the flow does to a grid around the source, which it carries along.
    fn carried_grid(&self) -> Result<Folds> {
        let ends = |a: usize| {
            let values = self.source.points.iter().map(|p| p[a]);
            values.fold([f64::MAX, f64::MIN], |[low, high], v| [low.min(v), high.max(v)])
        };
        let ends = [ends(0), ends(1), ends(2)];
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
        let [before, after] =
            [self.source, &self.found.shape].map(|shape| surface_distance(shape, self.target));
        format!(
            "surface distance {:.3} -> {:.3} mm (95th percentile {:.3} -> {:.3}, largest {:.3} -> {:.3}), \
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

fn keep(path: &Path, iteration: &Iteration) -> Result<()> {
    let momenta = to_points(iteration.momenta.clone())?;
    Ok(write_text(path, &json!(momenta).to_string())?)
}

fn read_momenta(path: &Path) -> Result<Vec<Position>> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ffdp_image::Error::io(path, "read", source))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::user(format!("{}: {error}", path.display()), "start again without --resume")
    })
}
