//! Two synthetic structures, one deformed onto the other: surfaces of a label map, LDDMM, what the flow carries.
//!
//! `cargo run --example shapes -- [FOLDER]` writes source.ply, target.ply and matched.vtk (open them in ParaView or
//! Slicer), and prints how far the surfaces lie apart. The same on the command line, with a report:
//! `ffdp shape register -f FOLDER/target.ply -m FOLDER/source.ply -o FOLDER/run`.

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::{DType, Device};
use ffdp::Result;
use ffdp::image::{Geometry, LabelMap};
use ffdp::shapes::files::{write_shape, write_shape_with};
use ffdp::shapes::lddmm::{LddmmSettings, match_shapes};
use ffdp::shapes::shape::{self_intersections, surface_distance};
use ffdp::shapes::{Shape, ShapeTree, SurfaceSettings, label_surfaces};

/// A bent sausage of voxels, 40 mm long and 10 mm thick: where `bend` is larger, it is more of a banana.
fn structure(bend: f64) -> Result<Shape> {
    let grid = Geometry::new([64, 32, 40], [1.0; 3])?;
    let label = |offset: usize| {
        let [x, y, z] = grid.index_of(offset).map(|v| v as f64);
        let along = (x - 32.0) / 20.0;
        let middle = [16.0, 14.0 + bend * along * along];
        let across = ((y - middle[0]).powi(2) + (z - middle[1]).powi(2)).sqrt() / 5.0;
        i32::from(along * along + across * across < 1.0)
    };
    let labels = LabelMap::new((0..grid.len()).map(label).collect(), grid.clone())?;
    Ok(label_surfaces(&labels, &[1], &SurfaceSettings::default())?.remove(0))
}

/// Writes the shapes into a folder; the mean distance of their surfaces in mm, before and after.
pub fn run(folder: &Path, iterations: usize) -> Result<[f64; 2]> {
    std::fs::create_dir_all(folder).map_err(|e| ffdp::Error::io(folder, "create", e))?;
    let (source, target) = (structure(0.0)?, structure(9.0)?);
    write_shape(folder.join("source.ply"), &source)?;
    write_shape(folder.join("target.ply"), &target)?;

    let settings = LddmmSettings { iterations, ..LddmmSettings::advised(&target) };
    let mut observe = |iteration: &ffdp::shapes::lddmm::Iteration| {
        if iteration.number.is_multiple_of(10) {
            println!("iteration {}: cost {:.4}", iteration.number, iteration.cost);
        }
        ControlFlow::Continue(())
    };
    let place = (&Device::flex(), DType::F32);
    let found = match_shapes([&source, &target], &settings, place, None, &mut observe)?;

    let [before, after] = [&source, &found.shape].map(|shape| surface_distance(shape, &target));
    println!("surface distance: {:.3} mm before, {:.3} mm after", before.mean, after.mean);
    println!("self-intersections: {}", self_intersections(&found.shape));
    // The flow is a map of all of space: a point inside goes along, and comes back.
    let inside = [[32.0, 16.0, 14.0]];
    let there = found.flow.map_points(&inside)?;
    println!(
        "the middle goes to {:.2?}, and back to {:.2?}",
        there[0],
        found.flow.map_points_back(&there)?[0]
    );

    let tree = ShapeTree::new(&target);
    let distance: Vec<f64> =
        found.shape.points.iter().map(|&p| tree.nearest(p).distance_mm).collect();
    write_shape_with(folder.join("matched.vtk"), &found.shape, &[("distance", &distance)])?;
    Ok([before.mean, after.mean])
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "shapes-run".into());
    run(Path::new(&folder), 60).map(|_| ())
}
