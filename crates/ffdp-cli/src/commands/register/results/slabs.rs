//! A result that is never whole in memory: what is measured, drawn and written leaves run of planes by run of planes.

use std::collections::BTreeMap;
use std::time::Instant;

use ffdp_burn::transform::BsplineTransform;
use ffdp_image::image::{Affine, Planes};
use ffdp_image::io::images::VolumeWriter;
use ffdp_image::metrics::{
    JacobianReport, Lengths, Motion, Overlap, OverlapCounts, SimilarityMeasures,
};
use ffdp_register::{Registration, coverage::background};

use super::jacobian::log_jacobian;
use super::{Results, Writing, Written};
use crate::commands::register::inputs::{Inputs, Labels};
use crate::failure::Result;
use crate::hosts::Hosts;
use crate::memory::peak_memory_bytes;
use crate::report::measures::Process;
use crate::report::slices::{Panels, Quantity};
use crate::result::Measured;

/// Measures, draws and writes; by all processes at the same time, and what is known then is on the first.
pub fn finish(to: Writing, results: &Results, inputs: &mut Inputs) -> Result<Option<Written>> {
    let found = &results.found;
    // Planes through the middle of the fixed image, of what passes by.
    let grid = inputs.fixed.image.geometry().clone();
    let mut panels = Panels::new(&grid, (grid.center_mm(), "middle"));
    panels.landmarks = results.marks.clone();
    panels.controls = results.spline.as_ref().map(BsplineTransform::geometry).cloned();
    let mut clock = Instant::now();
    let mut done = |what: &str| {
        to.printer.detail(&format!("{what}: {:.1} s", clock.elapsed().as_secs_f64()));
        clock = Instant::now();
    };
    let similarity = images(to, found, inputs, &mut panels)?;
    done("warped image, compared");
    let (jacobian, [displacement_mm, motion_mm]) = deformation(to, found, &mut panels)?;
    done("Jacobian");
    write_displacements(to, found)?;
    done("displacements");
    let dice = labels(to, found, inputs)?;
    done("labels");
    mark_labels(to, found, inputs, &mut panels)?;
    done("labels of the report");
    let processes = processes(to.hosts, found)?;
    let inverse = None;
    let measured = Measured { similarity, jacobian, motion_mm, displacement_mm, dice, inverse };
    let written = || Written { measured, pictures: panels.draw(), processes };
    Ok(to.hosts.is_first().then(written))
}

/// Writes the moving image as the result shows it; how alike it is to the fixed one, before and after.
fn images(
    to: Writing,
    found: &Registration,
    inputs: &mut Inputs,
    panels: &mut Panels,
) -> Result<[SimilarityMeasures; 2]> {
    let (fixed, moving) = (inputs.fixed.image.planes(), inputs.moving.image.planes());
    let beyond = match to.request.background {
        Some(value) => value,
        None => background(moving)?,
    };
    let placed = found.before()?;
    let before = placed.similarity(fixed, (&mut *moving, beyond), |shown| {
        panels.add(Quantity::Before, shown.planes.start, shown.moved);
        Ok(())
    })?;
    let writer = || VolumeWriter::create(&to.files.warped, fixed.geometry());
    let mut file = to.hosts.is_first().then(writer).transpose()?;
    let after = found.similarity(fixed, (moving, beyond), |shown| {
        panels.add(Quantity::Fixed, shown.planes.start, shown.fixed);
        panels.add(Quantity::Warped, shown.planes.start, shown.moved);
        file.as_mut().expect("planes come to the first process").write(shown.moved)
    })?;
    file.map_or(Ok(()), VolumeWriter::finish)?;
    Ok([before, after])
}

/// The Jacobian, which is written where it is asked for, and how far voxels move by the deformation and by the whole map.
fn deformation(
    to: Writing,
    found: &Registration,
    panels: &mut Panels,
) -> Result<(JacobianReport, [Lengths; 2])> {
    let grid = found.grid();
    let mut motions = [&Affine::identity(), &found.affine].map(|affine| Motion::new(grid, affine));
    let writer = || VolumeWriter::create(&to.files.jacobian, grid);
    let mut file = (to.request.jacobian && to.hosts.is_first()).then(writer).transpose()?;
    let jacobian = found.jacobian(|planes| {
        if let Some(file) = &mut file {
            file.write(&log_jacobian(planes, grid.size, found.affine.determinant())?)?;
        }
        let own = planes.own_vectors(grid.size);
        motions.iter_mut().for_each(|motion| motion.add(planes.own.start, &own));
        panels.add_displacement(planes)
    })?;
    file.map_or(Ok(()), VolumeWriter::finish)?;
    Ok((jacobian, motions.each_ref().map(Motion::lengths)))
}

fn write_displacements(to: Writing, found: &Registration) -> Result<()> {
    if let Some(warp) = &found.warp {
        warp.write(&to.files.warp)?;
    }
    match &found.inverse {
        Some(inverse) if !to.request.no_inverse => Ok(inverse.write(&to.files.inverse)?),
        _ => Ok(()),
    }
}

/// Writes the moving labels as the result shows them; how they overlap with the fixed ones, before and after.
fn labels(to: Writing, found: &Registration, inputs: &mut Inputs) -> Result<Option<Overlap>> {
    let Inputs { fixed, moving, label_ids, .. } = inputs;
    // Each process has its part in what is written.
    let Some((moving, ids)) = moving.labels.as_mut().and_then(Labels::planes) else {
        return Ok(None);
    };
    let mut fixed = fixed.labels.as_mut().and_then(Labels::planes).map(|(fixed, _)| fixed);
    let before = match &mut fixed {
        Some(fixed) => found.before()?.label_overlap(moving, *fixed)?,
        None => None,
    };
    let after = found.write_warped_labels(&to.files.labels, (moving, ids), fixed)?;
    let scores = |counts: OverlapCounts| {
        let scores = match &*label_ids {
            Some(asked) => counts.dice_of(asked),
            None => counts.dice(),
        };
        scores.counting_lost(ids)
    };
    let scores = before.zip(after).map(|(before, after)| [scores(before), scores(after)]);
    Ok(scores.map(|scores| Overlap::new(&scores, None)))
}

/// Labels at the pixels of the report: those of the fixed image, and those of the moving one before and after.
fn mark_labels(
    to: Writing,
    found: &Registration,
    inputs: &mut Inputs,
    panels: &mut Panels,
) -> Result<()> {
    let (Some(fixed), Some(moving)) = (&mut inputs.fixed.labels, &mut inputs.moving.labels) else {
        return Ok(());
    };
    // All processes have a part of the map.
    let points = panels.points();
    let [before, after] = [found.before()?.map_points(points)?, found.map_points(points)?];
    let (true, Some((fixed, _)), Some((moving, _))) =
        (to.hosts.is_first(), fixed.planes(), moving.planes())
    else {
        return Ok(());
    };
    let maps = [nearest(fixed, points)?, nearest(moving, &before)?, nearest(moving, &after)?];
    panels.set_labels(maps);
    Ok(())
}

/// The values of the voxels nearest to points in RAS mm, 0 outside; each plane is read once.
fn nearest(image: &mut dyn Planes, points: &[[f64; 3]]) -> Result<Vec<f64>> {
    let (to_voxel, size) = (image.geometry().mm_to_voxel(), image.geometry().size);
    let mut by_plane: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (point, at) in points.iter().enumerate() {
        let voxel = to_voxel.apply(*at).map(f64::round);
        if (0..3).all(|i| voxel[i] >= 0.0 && voxel[i] < size[i] as f64) {
            let [x, y, z] = voxel.map(|v| v as usize);
            by_plane.entry(z).or_default().push((point, y * size[0] + x));
        }
    }
    let mut values = vec![0.0; points.len()];
    for (z, pixels) in by_plane {
        let plane = image.read(z..z + 1)?;
        pixels.into_iter().for_each(|(point, voxel)| values[point] = f64::from(plane[voxel]));
    }
    Ok(values)
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
