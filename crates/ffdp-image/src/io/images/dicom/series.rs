//! The planes of a series: those of a volume in their order along the normal, volume after volume.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
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
    let Series { slices, planes } = Series::of(path, &mut warnings)?;
    let geometry = geometry(path, &slices, planes)?;
    let first = &slices[0];
    let mut dims = first.form.size.to_vec();
    dims.push(planes);
    if slices.len() > planes {
        dims.push(slices.len() / planes);
    }
    let is_scaled_alike =
        slices.iter().all(|s| (s.slope, s.intercept) == (first.slope, first.intercept));
    let stored = first.form.data_type();
    // Of PET every plane has a scale of its own.
    let data_type = if is_scaled_alike { stored } else { DataType::F32 };
    let mut header = Header::new(Format::named("DICOM"), data_type, dims, geometry);
    if slices.len() > planes {
        header.time_step_seconds = first.repetition_seconds;
    }
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
    let decode = move |k: usize, bytes: &mut [u8]| {
        let slice = &slices[k];
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
    Ok(Series::of(path, &mut Vec::new())?.slices.into_iter().map(|slice| slice.path).collect())
}

/// Planes in the order of their volumes.
struct Series {
    slices: Vec<Slice>,
    /// Of a volume.
    planes: usize,
}

impl Series {
    /// That of a file or folder.
    fn of(path: &Path, warnings: &mut Vec<String>) -> Result<Self> {
        let mut slices = slices(path, warnings)?;
        let normal = cross(slices[0].form.axes);
        slices.sort_by(|a, b| along(normal, a.position).total_cmp(&along(normal, b.position)));
        let heights: Vec<f64> = slices.iter().map(|s| along(normal, s.position)).collect();
        let places = places(&heights);
        let planes = places.len();
        if planes < slices.len() {
            slices = volumes(path, &slices, &places)?;
        }
        Ok(Self { slices, planes })
    }
}

/// Where along the normal planes lie: the indices of sorted planes at each place.
fn places(heights: &[f64]) -> Vec<Range<usize>> {
    let mut gaps: Vec<f64> = heights.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    // Of a series of volumes most gaps are none, but for rounding.
    let least = gaps.last().map_or(0.0, |largest| 1e-3 * largest);
    let steps = &gaps[gaps.partition_point(|gap| *gap <= least)..];
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(f64::INFINITY);
    let mut places: Vec<Range<usize>> = Vec::new();
    for (k, height) in heights.iter().enumerate() {
        match places.last_mut() {
            Some(place) if height - heights[place.start] < UNEVEN * usual => place.end = k + 1,
            _ => places.push(k..k + 1),
        }
    }
    places
}

/// Sorted planes with several at a place, volume after volume.
fn volumes(path: &Path, sorted: &[Slice], places: &[Range<usize>]) -> Result<Vec<Slice>> {
    let refuse = |what: &str, value: String, fix: &str| Err(Error::file(path, what, value, fix));
    let count = places.iter().map(Range::len).max().unwrap_or(1);
    if let Some(few) = places.iter().find(|place| place.len() < count) {
        let value = format!("{} at the place of {}", few.len(), name(&sorted[few.start]));
        let what = format!("each place must have as many planes, one of each volume: {count}");
        let fix = "remove planes that are there twice, or those of a volume that is incomplete";
        return refuse(&what, value, fix);
    }
    let mut instances: Vec<&Slice> = sorted.iter().filter(|s| !s.instance.is_empty()).collect();
    instances.sort_by(|a, b| a.instance.cmp(&b.instance));
    if let Some(pair) = instances.windows(2).find(|pair| pair[0].instance == pair[1].instance) {
        let value = format!("{} and {}, which are the same", name(pair[0]), name(pair[1]));
        return refuse("each plane must be there once", value, "remove one of them");
    }
    if let Some(odd) = sorted.iter().find(|slice| slice.contrast != sorted[0].contrast) {
        let [(echo, kind), (other_echo, other_kind)] = [&sorted[0].contrast, &odd.contrast];
        let value = format!("{kind}, TE {echo} ms, and {other_kind}, TE {other_echo} ms");
        let fix = "move each echo, and magnitudes and phases, to a folder of its own";
        return refuse("the volumes of a series must be of one kind", value, fix);
    }
    let Some(key) = (0..sorted[0].order.len()).find(|key| orders(*key, sorted, places)) else {
        let what = "TemporalPositionIdentifier, AcquisitionNumber or InstanceNumber must order the \
                    planes of a place";
        let value = format!("the same for some at the place of {}", name(&sorted[0]));
        return refuse(what, value, CONVERT);
    };
    let mut columns: Vec<Vec<&Slice>> =
        places.iter().map(|place| sorted[place.clone()].iter().collect()).collect();
    columns.iter_mut().for_each(|column| column.sort_by_key(|slice| slice.order[key]));
    let planes = (0..count).flat_map(|t| columns.iter().map(move |column| column[t].clone()));
    Ok(planes.collect())
}

/// Whether a number distinguishes the volumes: it differs at a place, and but for that of planes is the same at all places.
fn orders(key: usize, sorted: &[Slice], places: &[Range<usize>]) -> bool {
    let values = |place: &Range<usize>| {
        let values: Option<BTreeSet<i64>> =
            sorted[place.clone()].iter().map(|slice| slice.order[key]).collect();
        values.filter(|values| values.len() == place.len())
    };
    let is_of_planes = key + 1 == sorted[0].order.len();
    let first = values(&places[0]);
    first.is_some()
        && places.iter().all(|place| {
            let values = values(place);
            values.is_some() && (is_of_planes || values == first)
        })
}

/// The planes of a file or folder.
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
    let slices: Vec<Slice> = found.into_iter().flatten().collect();
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
    Ok(slices)
}

fn name(slice: &Slice) -> String {
    slice.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn check_one_series(path: &Path, slices: &[Slice]) -> Result<()> {
    let mut series: BTreeMap<&(String, String), usize> = BTreeMap::new();
    slices.iter().for_each(|slice| *series.entry(&slice.series).or_default() += 1);
    let identifiers: BTreeSet<&String> = series.keys().map(|(identifier, _)| identifier).collect();
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

/// The grid of planes, so many of a volume.
fn geometry(path: &Path, slices: &[Slice], planes: usize) -> Result<Geometry> {
    let (first, last) = (&slices[0], &slices[planes - 1]);
    let form = &first.form;
    let normal = cross(form.axes);
    let step: [f64; 3] = match planes {
        1 => normal.map(|part| part * first.thickness),
        count => {
            let intervals = (count - 1) as f64;
            std::array::from_fn(|i| (last.position[i] - first.position[i]) / intervals)
        }
    };
    if planes > 1 {
        check_even(path, &slices[..planes], normal)?;
    }
    check_line(path, slices, planes, step)?;
    let [[a, b, c], [d, e, f]] = form.axes;
    let [dx, dy] = form.spacing;
    let columns = [[a * dx, b * dx, c * dx], [d * dy, e * dy, f * dy], step];
    let rows = std::array::from_fn(|i| {
        let sign = LPS_SIGNS[i];
        [sign * columns[0][i], sign * columns[1][i], sign * columns[2][i], sign * first.position[i]]
    });
    let size = [form.size[0], form.size[1], planes];
    let at = Error::in_file(path);
    // Before columns are normalised, which would make negative spacings positive.
    Geometry::new([size[0], size[1], 1], [dx, dy, 1.0]).map_err(&at)?;
    Geometry::from_affine(size, Affine::from_rows(rows)).map_err(at)
}

/// Demands that the planes of a volume are equally far apart.
fn check_even(path: &Path, slices: &[Slice], normal: [f64; 3]) -> Result<()> {
    let gaps: Vec<f64> = slices
        .windows(2)
        .map(|pair| along(normal, pair[1].position) - along(normal, pair[0].position))
        .collect();
    let mut sorted = gaps.clone();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted[sorted.len() / 2];
    let Some(i) = gaps.iter().position(|gap| (gap - usual).abs() > 2.0 * UNEVEN * usual) else {
        return Ok(());
    };
    let what = format!("planes must be equally far apart, {usual:.4} mm");
    let value =
        format!("{:.4} mm between {} and {}", gaps[i], name(&slices[i]), name(&slices[i + 1]));
    let fix = "add the planes that are missing, or resample the series";
    Err(Error::file(path, &what, value, fix))
}

/// Demands that the planes of every volume lie where equal steps lead.
fn check_line(path: &Path, slices: &[Slice], planes: usize, step: [f64; 3]) -> Result<()> {
    let length = step.iter().map(|v| v * v).sum::<f64>().sqrt();
    let deviation = |(k, slice): (usize, &Slice)| {
        let steps = (k % planes) as f64;
        let part = |i: usize| slices[0].position[i] + steps * step[i] - slice.position[i];
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
