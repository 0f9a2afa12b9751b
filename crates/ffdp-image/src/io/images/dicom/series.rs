//! The planes of a series, in their order along the normal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::super::data_type::{DataType, Endian};
use super::super::decoded_planes::DecodedPlanes;
use super::super::header::{Format, Header};
use super::super::source::Source;
use super::slice::Slice;
use super::{CONVERT, entries, is_dicom};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry};
use crate::io::lps::LPS_SIGNS;

/// How far a plane may be from its place, in distances of two planes: positions are rounded, and some tables move
/// unevenly.
const UNEVEN: f64 = 0.05;

/// Opens a series, or a plane in a file.
pub fn open(path: &Path) -> Result<(Source, Header)> {
    let mut warnings = Vec::new();
    let slices = slices(path, &mut warnings)?;
    let geometry = geometry(path, &slices)?;
    let first = &slices[0];
    let mut dims = first.form.size.to_vec();
    dims.push(slices.len());
    let is_scaled_alike =
        slices.iter().all(|s| (s.slope, s.intercept) == (first.slope, first.intercept));
    let stored = first.form.data_type();
    // Of PET every plane has a scale of its own.
    let data_type = if is_scaled_alike { stored } else { DataType::F32 };
    let mut header = Header::new(Format::named("DICOM"), data_type, dims, geometry);
    if is_scaled_alike {
        (header.slope, header.intercept) = (first.slope, first.intercept);
    }
    if first.is_inverted {
        let text = "MONOCHROME1: large values are dark; values are taken as stored";
        warnings.push(text.to_string());
    }
    header.description.clone_from(&first.series.1);
    header.warnings = warnings;
    let [x, y] = first.form.size;
    let plane_bytes = x * y * data_type.bytes();
    let mut buffer = Vec::new();
    let decode = move |z: usize, bytes: &mut [u8]| {
        let slice = &slices[z];
        if is_scaled_alike {
            return slice.decode(bytes);
        }
        buffer.resize(slice.form.bytes(), 0);
        slice.decode(&mut buffer)?;
        let mut values: Vec<f64> = Vec::with_capacity(x * y);
        stored.decode(Endian::Little, &buffer, &mut values);
        for (to, value) in bytes.chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&((value * slice.slope + slice.intercept) as f32).to_le_bytes());
        }
        Ok(())
    };
    Ok((Source::decoded(path, DecodedPlanes::new(path, plane_bytes, decode)), header))
}

/// The files of the planes.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    Ok(slices(path, &mut Vec::new())?.into_iter().map(|slice| slice.path).collect())
}

/// The planes of a file or folder, in order.
fn slices(path: &Path, warnings: &mut Vec<String>) -> Result<Vec<Slice>> {
    if !path.is_dir() {
        let slice = Slice::of(path)?;
        let slice = slice.ok_or_else(|| {
            Error::file(path, "the file must hold an image", "a DICOM file without pixels", CONVERT)
        })?;
        warnings.push("one plane is read; name the folder to read the series".to_string());
        return Ok(vec![slice]);
    }
    let files = entries(path);
    let found: Vec<Option<Slice>> = files
        .par_iter()
        .map(|file| if is_dicom(file) { Slice::of(file) } else { Ok(None) })
        .collect::<Result<_>>()?;
    let others = found.iter().filter(|slice| slice.is_none()).count();
    let mut slices: Vec<Slice> = found.into_iter().flatten().collect();
    if slices.is_empty() {
        return Err(Error::file(
            path,
            "the folder must hold an image",
            "DICOM without pixels",
            CONVERT,
        ));
    }
    if others > 0 {
        warnings.push(format!("{others} files of the folder are no planes; they are ignored"));
    }
    check_one_series(path, &slices)?;
    let first = slices[0].clone();
    if let Some(odd) = slices.iter().find(|slice| !slice.form.agrees(&first.form)) {
        let what = format!(
            "the planes of a series must have one size, type, spacing and orientation, as {}",
            first.path.display()
        );
        let value = format!("another in {}", name(odd));
        return Err(Error::file(path, &what, value, "move such planes to another folder"));
    }
    let normal = cross(first.form.axes);
    slices.sort_by(|a, b| along(normal, a.position).total_cmp(&along(normal, b.position)));
    Ok(slices)
}

fn name(slice: &Slice) -> String {
    slice.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn check_one_series(path: &Path, slices: &[Slice]) -> Result<()> {
    let mut series: BTreeMap<&(String, String), usize> = BTreeMap::new();
    slices.iter().for_each(|slice| *series.entry(&slice.series).or_default() += 1);
    let identifiers: std::collections::BTreeSet<&String> =
        series.keys().map(|(identifier, _)| identifier).collect();
    if identifiers.len() < 2 {
        return Ok(());
    }
    const SHOWN: usize = 8;
    let list = series.iter().take(SHOWN).map(|((identifier, description), count)| {
        format!("{description:?} of {count} files ({identifier})")
    });
    let list: Vec<String> = list.collect();
    let more = if series.len() > SHOWN { ", .." } else { "" };
    let value = format!("{}: {}{more}", identifiers.len(), list.join(", "));
    let fix = "move the files of each series to a folder of its own, or convert them with dcm2niix";
    Err(Error::file(path, "a folder must hold one series", value, fix))
}

/// The grid of sorted planes.
fn geometry(path: &Path, slices: &[Slice]) -> Result<Geometry> {
    let (first, last) = (&slices[0], &slices[slices.len() - 1]);
    let form = &first.form;
    let normal = cross(form.axes);
    let step: [f64; 3] = match slices.len() {
        1 => normal.map(|part| part * first.thickness),
        count => {
            let intervals = (count - 1) as f64;
            std::array::from_fn(|i| (last.position[i] - first.position[i]) / intervals)
        }
    };
    if slices.len() > 1 {
        check_even(path, slices, (normal, step))?;
    }
    let [[a, b, c], [d, e, f]] = form.axes;
    let [dx, dy] = form.spacing;
    let columns = [[a * dx, b * dx, c * dx], [d * dy, e * dy, f * dy], step];
    let rows = std::array::from_fn(|i| {
        let sign = LPS_SIGNS[i];
        [sign * columns[0][i], sign * columns[1][i], sign * columns[2][i], sign * first.position[i]]
    });
    let size = [form.size[0], form.size[1], slices.len()];
    let at = Error::in_file(path);
    // Before columns are normalised, which would make negative spacings positive.
    Geometry::new([size[0], size[1], 1], [dx, dy, 1.0]).map_err(&at)?;
    Geometry::from_affine(size, Affine::from_rows(rows)).map_err(at)
}

/// Demands that planes lie where equal steps lead.
fn check_even(path: &Path, slices: &[Slice], (normal, step): ([f64; 3], [f64; 3])) -> Result<()> {
    let gaps: Vec<f64> = slices
        .windows(2)
        .map(|pair| along(normal, pair[1].position) - along(normal, pair[0].position))
        .collect();
    let mut sorted = gaps.clone();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted[sorted.len() / 2];
    let pair = |i: usize| format!("{} and {}", name(&slices[i]), name(&slices[i + 1]));
    if let Some(i) = gaps.iter().position(|gap| *gap < UNEVEN * usual || *gap < 1e-6) {
        let what = "each plane must have a place of its own";
        let value = format!("the same one for {}", pair(i));
        let fix =
            "the series has several volumes (times, echoes, directions): convert it with dcm2niix";
        return Err(Error::file(path, what, value, fix));
    }
    if let Some(i) = gaps.iter().position(|gap| (gap - usual).abs() > 2.0 * UNEVEN * usual) {
        let what = format!("planes must be equally far apart, {usual:.4} mm");
        let value = format!("{:.4} mm between {}", gaps[i], pair(i));
        let fix = "add the planes that are missing, or resample the series";
        return Err(Error::file(path, &what, value, fix));
    }
    let length = step.iter().map(|v| v * v).sum::<f64>().sqrt();
    let deviation = |(k, slice): (usize, &Slice)| {
        let part = |i: usize| slices[0].position[i] + k as f64 * step[i] - slice.position[i];
        [part(0), part(1), part(2)].iter().map(|v| v * v).sum::<f64>().sqrt()
    };
    let farthest = slices.iter().enumerate().map(deviation).enumerate();
    let farthest = farthest.max_by(|a, b| a.1.total_cmp(&b.1));
    match farthest.filter(|(_, distance)| *distance > 2.0 * UNEVEN * length) {
        None => Ok(()),
        Some((k, distance)) => {
            let what = "planes must lie along a line";
            let value = format!("{} is {distance:.4} mm away from it", name(&slices[k]));
            Err(Error::file(path, what, value, "resample the series, or convert it with dcm2niix"))
        }
    }
}

fn cross([a, b]: [[f64; 3]; 2]) -> [f64; 3] {
    std::array::from_fn(|i| {
        let (j, k) = ((i + 1) % 3, (i + 2) % 3);
        a[j] * b[k] - a[k] * b[j]
    })
}

fn along(normal: [f64; 3], position: [f64; 3]) -> f64 {
    normal.iter().zip(position).map(|(a, b)| a * b).sum()
}
