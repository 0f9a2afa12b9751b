//! `ffdp template`: the mean shape and the mean intensities of a cohort.
//!
//! [`ffdp_groups::template`] makes it; here the images are found, the run is followed, and its results are written.

mod args;
mod files;
mod watch;

pub use self::args::TemplateArguments;

use std::fs;
use std::path::Path;
use std::time::Instant;

use ffdp_groups::Images;
use ffdp_groups::template::{Template, TemplateResult, TemplateSettings};
use ffdp_image::image::Geometry;
use ffdp_image::io::images::{header, write_displacement, write_labels, write_volume};
use ffdp_image::io::{write_affine, write_text};
use ffdp_register::Content;

use self::files::Files;
use self::watch::Watch;
use crate::commands::cohort_images::ImageFiles;
use crate::commands::group::{GroupRun, Planned, finish};
use crate::disk::{Forecast, Written};
use crate::failure::{Failure, Result};
use crate::memory::{Held, Plan, Sizes, peak_memory_bytes};
use crate::printer::Printer;
use crate::report::measures::{Provenance, RunMeasures};
use crate::report::template::{MemberFiles, TemplateMetrics, page};
use crate::settings::deforms;

/// Makes a template and writes it, with the maps to all images.
pub fn run(request: &TemplateArguments) -> Result<()> {
    let clock = Instant::now();
    let (printer, reading) = (request.run.print.printer(), request.run.reading);
    let settings = request.resolve()?;
    let images = ImageFiles::new(request.list(), request.files(), &["image"], reading, printer)?;
    let grid = request.grid.as_ref().map(header).transpose()?.map(|header| header.geometry);
    let planned = planned(request, &settings, &images, grid.as_ref())?;
    let files = Files::of(request, &images);
    let claim = files.claim(request, &settings, &images)?;
    if request.run.print.plan {
        return planned.plan.asking(request.run.mesh.first()).print(request.run.print.json);
    }
    let run = GroupRun {
        command: "template",
        product: "a template",
        results: "the results of the template",
        images: ["image", "images"],
        count: images.count(),
        registration: &settings.registration,
    };
    let of_run = files.of_run();
    request.run.check(&run, &planned, &claim, &of_run)?;
    let (output, placements) = request.run.begin(&run, &planned.sizes, claim, of_run)?;
    let mut watch = Watch::new(output, printer);
    let mut template = Template::new(&images)
        .settings(&settings)
        .on_each(placements)
        .folder(&files.checkpoint)
        .observer(&mut watch);
    if let Some(grid) = grid {
        template = template.grid(grid);
    }
    let found = template.run();
    let Watch { output, rounds, failure, .. } = watch;
    let found = failure.map_or_else(|| found.map_err(Failure::from), Err);
    let measured = found.and_then(|found| {
        let members = write(request, &files, &found, printer)?;
        let metrics = TemplateMetrics {
            run: Provenance::here(&request.run.mesh),
            images: images.count(),
            grid: found.grid().clone(),
            members,
            rounds: found.rounds.clone(),
            excluded: found.excluded.clone(),
            settings: settings.clone(),
            seconds: clock.elapsed().as_secs_f64(),
            peak_memory_bytes: peak_memory_bytes(),
        };
        write_text(&files.report, &page(&metrics, &rounds)?)?;
        write_text(&files.metrics, &metrics.json()?)?;
        found.clear_state()?;
        Ok(metrics)
    });
    let metrics = finish(output, measured, &request.run.print, &request.output)?;
    let left_out = metrics.images - metrics.used();
    request.run.strictly(left_out, metrics.images, "the results and a report", &request.output)
}

/// What a registration and an average take, as far as headers show.
fn planned(
    request: &TemplateArguments,
    settings: &TemplateSettings,
    images: &ImageFiles,
    grid: Option<&Geometry>,
) -> Result<Planned> {
    images.check_volume(None)?;
    let grids = images.grids();
    let Some(largest) = grids.iter().max_by_key(|grid| grid.len()).cloned() else {
        let first = images.image(0);
        // The reason is that of the first.
        header(first)?;
        return Err(Failure::user("no image can be read", "check the list").about(first));
    };
    let fixed = match (grid, settings.spacing_mm) {
        (Some(grid), _) => grid.clone(),
        (None, None) => largest.clone(),
        (None, Some(spacing)) => largest.resized(std::array::from_fn(|i| {
            let voxels = largest.size[i] as f64 * largest.spacing_mm[i] / spacing;
            (voxels.round() as usize).max(1)
        }))?,
    };
    let averaging = Template::averaging_bytes(&fixed, largest.len());
    let sizes =
        Sizes { fixed, moving: largest, content: Content::PLAIN, labels: images.has_labels() };
    let disk = forecast(settings, images, &sizes);
    let mut plan =
        Plan::new(&settings.registration, &sizes, Held::Whole, request.run.mesh.first(), disk)?;
    // One image is read ahead, and each device has one.
    let ahead = 4 * sizes.moving.len() as u64;
    let at_once = request.run.mesh.each().len() as u64;
    plan.host_peak_bytes = (at_once * plan.host_peak_bytes).max(averaging) + ahead;
    Ok(Planned { plan, sizes, disk })
}

/// Maps and labels of all images, the template, and fields of all during the run.
fn forecast(settings: &TemplateSettings, images: &ImageFiles, sizes: &Sizes) -> Forecast {
    let voxels = sizes.fixed.len() as u64;
    let displacements = if deforms(&settings.registration) { 2 } else { 0 };
    let written = Written { displacements, labels: false, jacobian: false, checkpoint: true };
    let one = Forecast::of_registration(voxels, written);
    let count = images.count() as u64;
    let own = Forecast::of_images(4 * voxels, 0);
    Forecast {
        least: count * one.least + own.least,
        expected: count * one.expected + own.expected,
        most: count * one.most + own.most,
    }
}

/// Writes the volumes and the maps; the files of each member, and how well its inverse undoes its map.
fn write(
    request: &TemplateArguments,
    files: &Files,
    found: &TemplateResult,
    printer: Printer,
) -> Result<Vec<MemberFiles>> {
    write_volume(&files.template, &found.template)?;
    write_volume(&files.mean, &found.mean)?;
    write_volume(&files.variance, &found.variance)?;
    if let Some(labels) = &found.labels {
        write_labels(&files.labels, labels)?;
    }
    let mut members = Vec::new();
    for (k, report) in found.members.iter().enumerate() {
        let folder = files.folder.join(&report.name);
        fs::create_dir_all(&folder)
            .map_err(|source| ffdp_image::Error::io(&folder, "create", source))?;
        write_affine(folder.join(files::AFFINE), &report.affine)?;
        write_affine(folder.join(files::AFFINE_MAT), &report.affine)?;
        let displacement = |file: &Path, field: &ffdp_burn::transform::Displacement| {
            write_displacement(file, &field.to_vec()?, field.geometry())
        };
        let mut inverse_error = None;
        if let Some(field) = found.displacement(k)? {
            displacement(&folder.join(files::WARP), &field)?;
            if !request.no_inverse
                && let Some((inverse, error)) = found.inverse_displacement(k)?
            {
                displacement(&folder.join(files::INVERSE), &inverse)?;
                inverse_error = Some(error);
            }
        }
        printer.detail(&format!("maps of {} written", report.name));
        members.push(MemberFiles { report: report.clone(), inverse: inverse_error });
    }
    Ok(members)
}
