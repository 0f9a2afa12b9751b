//! `ffdp shape atlas`: the mean shape of a cohort.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::DType;
use clap::Args;
use ffdp_image::io::write_text;
use ffdp_shapes::Shape;
use ffdp_shapes::files::write_shape;
use ffdp_shapes::lddmm::{Iteration, atlas};
use ffdp_shapes::shape::surface_distance;
use serde_json::json;

use super::input::{SHAPE_HELP, ShapeInput};
use super::method::{MethodArguments, RunArguments, to_toml, warnings, watch};
use crate::failure::Result;
use crate::printer::summarise;

/// `ffdp shape atlas`.
#[derive(Debug, Args)]
#[command(after_long_help = SHAPE_HELP)]
pub struct AtlasArguments {
    /// Members of the cohort: files, or LABELMAP:LABEL.
    #[arg(required = true, num_args = 2.., value_name = "SHAPE")]
    members: Vec<ShapeInput>,
    /// Shape that the mean begins with [default: the first member].
    #[arg(long, value_name = "SHAPE")]
    template: Option<ShapeInput>,
    /// Folder of the results: template.vtk, member_1.vtk .., flow_1.json .., metrics.json, settings.toml.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    #[command(flatten)]
    method: MethodArguments,
    #[command(flatten)]
    run: RunArguments,
}

/// Computes it and writes everything.
pub fn run(request: &AtlasArguments) -> Result<()> {
    let printer = request.run.printer();
    let members: Vec<Shape> =
        request.members.iter().map(ShapeInput::read).collect::<Result<_>>()?;
    let template = request.template.as_ref().map(ShapeInput::read).transpose()?;
    let template = template.as_ref().unwrap_or(&members[0]);
    let settings = request.method.settings(template, &members[0])?;
    settings.without_start()?;
    members.iter().try_for_each(|member| settings.attachment.check(template, member))?;
    let folder = &request.output;
    std::fs::create_dir_all(folder)
        .map_err(|source| ffdp_image::Error::io(folder, "create", source))?;
    warnings(&settings, template, &members[0]).iter().for_each(|text| printer.warning(text));
    let device = request.run.device.open()?;
    write_text(&folder.join("settings.toml"), &to_toml(&settings)?)?;
    let begin = Instant::now();
    let go_on = |_: &Iteration| ControlFlow::Continue(());
    let mut observe = watch(printer, settings.iterations, go_on);
    let found = atlas(template, &members, &settings, (&device, DType::F32), &mut observe)?;
    let seconds = begin.elapsed().as_secs_f64();
    write_shape(folder.join("template.vtk"), &found.template)?;
    let mut distances = Vec::new();
    for (number, ((shape, flow), member)) in
        (1..).zip(found.shapes.iter().zip(&found.flows).zip(&members))
    {
        write_shape(folder.join(format!("member_{number}.vtk")), shape)?;
        write_text(&folder.join(format!("flow_{number}.json")), &json!(flow.saved()).to_string())?;
        distances.push(surface_distance(shape, member));
    }
    let metrics = json!({ "distance_mm": distances, "costs": found.costs, "seconds": seconds });
    write_text(&folder.join("metrics.json"), &format!("{metrics:#}\n"))?;
    summarise(request.run.quiet, || {
        let worst = distances.iter().map(|d| d.mean).fold(0.0, f64::max);
        format!(
            "mean of {} shapes: they lie within {worst:.3} mm of it, deformed (mean surface distance, \
             the worst), {} iterations in {seconds:.1} s\nresults in {}\n",
            members.len(),
            found.costs.len() - 1,
            folder.display()
        )
    })
}
