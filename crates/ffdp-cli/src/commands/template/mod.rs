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
use serde_json::json;

use self::files::Files;
use self::watch::Watch;
use crate::commands::cohort_images::ImageFiles;
use crate::commands::group::{GroupRun, RunFiles};
use crate::disk::{Forecast, Written};
use crate::failure::{Failure, Result};
use crate::interrupt::of_command;
use crate::memory::{Held, Plan, Sizes, peak_memory_bytes};
use crate::printer::{Printer, print_to_stdout, summarise};
use crate::report::measures::Provenance;
use crate::report::template::{MemberFiles, TemplateMetrics, page, summary};
use crate::settings::deforms;

/// Makes a template and writes it, with the maps to all images.
pub fn run(request: &TemplateArguments) -> Result<()> {
    let clock = Instant::now();
    let (printer, reading) = (request.run.print.printer(), request.run.reading);
    let settings = request.resolve()?;
    let named = (request.list(), request.files());
    let images = ImageFiles::new(named, &["image"], reading, printer)?;
    let grid = request.grid.as_ref().map(header).transpose()?.map(|header| header.geometry);
    let (plan, sizes) = planned(request, &settings, &images, grid.as_ref())?;
    let files = Files::of(request, &images);
    let claim = files.claim(request, &settings, &images)?;
    if request.run.print.plan {
        return plan.asking(request.run.mesh.first()).print(request.run.print.json);
    }
    plan.check_memory()?;
    files.prepare()?;
    forecast(&settings, &images, &sizes).check(
        ("the results of the template", &files.folder),
        claim.earlier_bytes(),
        request.run.folder.ignore_disk,
        printer,
    )?;
    printer.note(&format!("{} images; {}", images.count(), plan.in_short()));
    let placements = request.run.placements(&settings.registration, &sizes)?;
    let run = GroupRun {
        command: "template",
        product: "a template",
        registration: &settings.registration,
    };
    let state = files.state();
    let records =
        RunFiles { log: &files.log, settings: &files.settings, state: &state, all: files.all() };
    let output = request.run.open(&run, claim, records, printer)?;
    let mut watch = Watch::new(output, printer);
    of_command(
        "interrupted: the same command with --resume goes on from the last image that was registered",
    );
    let mut template = Template::new(&images)
        .settings(&settings)
        .on_each(placements)
        .folder(&files.checkpoint)
        .observer(&mut watch);
    if let Some(grid) = grid {
        template = template.grid(grid);
    }
    let found = template.run();
    let Watch { mut output, rounds, failure, .. } = watch;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let finished = found.map_err(Failure::from).and_then(|found| {
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
    let metrics = finished.inspect_err(|failure| {
        output.journal().event("failed", json!({"reason": failure.to_string()}));
    })?;
    let seconds = metrics.seconds;
    output.journal().event("end", json!({"run_seconds": seconds, "used": metrics.used()}));
    output.complete()?;
    printer.note(&format!("results are in {}", request.output.display()));
    match request.run.print.json {
        true => print_to_stdout(&metrics.json()?),
        false => summarise(request.run.print.quiet, || summary(&metrics)),
    }?;
    let left_out = metrics.images - metrics.used();
    request.run.strictly(left_out, metrics.images, "the results and a report", &request.output)
}

/// What a registration and an average take, as far as headers show; and the grids that were counted with.
fn planned(
    request: &TemplateArguments,
    settings: &TemplateSettings,
    images: &ImageFiles,
    grid: Option<&Geometry>,
) -> Result<(Plan, Sizes)> {
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
    Ok((plan, sizes))
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
