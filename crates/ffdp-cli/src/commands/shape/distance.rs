//! `ffdp shape distance`: how far two shapes lie apart.

use std::path::PathBuf;

use clap::Args;
use ffdp_image::io::{check_not_an_input, check_writable};
use ffdp_shapes::files::write_shape_with;
use ffdp_shapes::shape::{self_intersections, surface_distance};
use ffdp_shapes::{Shape, ShapeTree};
use serde_json::{Value, json};

use super::input::{SHAPE_HELP, ShapeInput};
use crate::failure::Result;
use crate::printer::print_to_stdout;

/// `ffdp shape distance`.
#[derive(Debug, Args)]
#[command(after_long_help = SHAPE_HELP)]
pub struct DistanceArguments {
    /// One shape: a file, or LABELMAP:LABEL.
    #[arg(short, long, value_name = "SHAPE")]
    fixed: ShapeInput,
    /// The other.
    #[arg(short, long, value_name = "SHAPE")]
    moving: ShapeInput,
    /// The moving shape with the distance of every point (.vtk, .ply).
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Area, volume and faults of a shape.
pub fn describe(shape: &Shape) -> Value {
    let mut value = json!({ "points": shape.points.len(), "cells": shape.cells.len() });
    if !shape.triangles().is_empty() {
        value["area_mm2"] = shape.measure().into();
        value["volume_mm3"] = shape.volume().into();
        value["open_edges"] = shape.open_edges().into();
        value["self_intersections"] = self_intersections(shape).into();
    }
    value
}

/// Measures and prints.
pub fn run(request: &DistanceArguments) -> Result<()> {
    if let Some(output) = &request.output {
        check_not_an_input(output, &[&request.fixed.path, &request.moving.path])?;
        check_writable(output)?;
    }
    let (fixed, moving) = (request.fixed.read()?, request.moving.read()?);
    let distance = surface_distance(&moving, &fixed);
    if let Some(output) = &request.output {
        let tree = ShapeTree::new(&fixed);
        let far: Vec<f64> = moving.points.iter().map(|&p| tree.nearest(p).distance_mm).collect();
        write_shape_with(output, &moving, &[("distance", &far)])?;
    }
    if request.json {
        let all = json!({
            "distance_mm": distance, "fixed": describe(&fixed), "moving": describe(&moving),
        });
        return print_to_stdout(&format!("{all:#}\n"));
    }
    print_to_stdout(&format!(
        "surface distance, both ways:\n  mean          {:.4} mm\n  root mean sq. {:.4} mm\n  \
         95th percent  {:.4} mm\n  largest       {:.4} mm\n",
        distance.mean, distance.rms, distance.p95, distance.max
    ))
}
