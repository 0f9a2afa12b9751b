//! `ffdp info`: what a file holds. An image is read twice, some planes at a time; `transform.rs` describes transforms.

mod transform;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use ffdp_image::image::{Counted, Planes, finite_statistics};
use ffdp_image::io::images::{
    DataType, GeometrySource, Header, INTENT_LABEL, PlaneReader, read_formats, read_labels_at,
};
use ffdp_train::user_flags::{UserFlags, WithoutEffect};
use rayon::prelude::*;
use serde::Serialize;

use self::transform::{TransformInfo, is_transform};
use crate::failure::{Failure, Result};
use crate::json::to_json;
use crate::printer::{self, print_to_stdout};

/// A file with at most this many different integers is described as labels.
const MOST_LABELS: usize = 128;
/// Integers up to this magnitude are exact in f32.
const EXACT_IN_F32: f32 = 16_777_216.0;
const PERCENTS: [f64; 5] = [1.0, 25.0, 50.0, 75.0, 99.0];

/// `ffdp info`.
#[derive(Debug, Args)]
pub struct InfoArguments {
    #[command(flatten)]
    given: UserFlags,
    /// Images of the formats that are read, transforms, folders of results.
    #[arg(value_name = "FILE", required = true, help = files_help())]
    pub files: Vec<PathBuf>,
    /// Of files with several volumes, the one whose values are described, from 0.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub volume: usize,
    /// Print JSON: an object, of several files a list of them.
    #[arg(long)]
    pub json: bool,
}

/// Prints the description of every file. One that cannot be read does not hinder the others.
pub fn run(request: &InfoArguments) -> Result<()> {
    request.given.refuse(&[WithoutEffect {
        flags: &["volume"],
        when: request.files.iter().all(|file| is_transform(file)),
        because: "a transform has no volumes",
        fix: "name an image",
    }])?;
    if let [file] = &request.files[..] {
        let info = Described::of(file, request.volume)?;
        return print_to_stdout(&if request.json { to_json(&info)? } else { info.text() });
    }
    let (mut infos, mut failures) = (Vec::new(), 0);
    for file in &request.files {
        match Described::of(file, request.volume) {
            Ok(info) if request.json => infos.push(info),
            Ok(info) => print_to_stdout(&format!("{}\n", info.text()))?,
            Err(failure) => {
                failures += 1;
                printer::failure(failure);
            }
        }
    }
    if request.json {
        print_to_stdout(&to_json(&infos)?)?;
    }
    if failures == 0 {
        return Ok(());
    }
    let all = request.files.len();
    Err(Failure::user(format!("{failures} of {all} files could not be described"), "see above"))
}

fn files_help() -> String {
    format!("Images ({}), transforms (as -t of ffdp apply), or folders of results", read_formats())
}

/// What a file holds.
#[derive(Serialize)]
#[serde(untagged)]
enum Described {
    Image(Box<Info>),
    Transform(TransformInfo),
}

impl Described {
    fn of(file: &Path, volume: usize) -> Result<Self> {
        match is_transform(file) {
            true => TransformInfo::of(file).map(Self::Transform),
            false => Info::of(file, volume).map(|info| Self::Image(Box::new(info))),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Image(info) => info.text(),
            Self::Transform(info) => info.text(),
        }
    }
}

/// Everything about an image.
#[derive(Serialize)]
struct Info {
    file: String,
    header: Header,
    /// Anatomical direction in which each voxel axis grows.
    axes: String,
    bounding_box_mm: [[f64; 3]; 2],
    volumes: usize,
    /// The volume that `values` describes.
    volume: usize,
    values: Values,
}

/// The voxels of one volume, scaling applied.
#[derive(Serialize)]
struct Values {
    voxels: usize,
    not_finite: usize,
    /// Of the finite voxels; null without any.
    min: Option<f32>,
    max: Option<f32>,
    mean: Option<f64>,
    standard_deviation: Option<f64>,
    /// Pairs of percent and value.
    percentiles: Vec<(f64, f32)>,
    /// Voxels of every label, when the values are few integers.
    labels: Option<BTreeMap<i64, usize>>,
}

impl Values {
    fn of(image: &mut PlaneReader) -> Result<Self> {
        let voxels = image.geometry().len();
        let mut labels = Labels::of(image.header());
        let (mut count, mut sum, mut squares) = (0, 0.0, 0.0);
        let mut counted = Counted { image, mask: None, above: None };
        let (finite, found) = finite_statistics(&mut counted, PERCENTS, |sweep, values| {
            if sweep == 0 {
                count += values.par_iter().filter(|v| v.is_finite()).count();
                sum += summed(values, |v| v);
                labels.add(values);
            } else {
                let mean = sum / count as f64;
                squares += summed(values, |v| (v - mean).powi(2));
            }
        })?;
        let of_finite = |sum: f64| found.is_some().then(|| sum / finite as f64);
        let percentiles = found.map(|found| PERCENTS.into_iter().zip(found.percentiles).collect());
        Ok(Self {
            voxels,
            not_finite: voxels - finite,
            min: found.map(|found| found.extremes[0]),
            max: found.map(|found| found.extremes[1]),
            mean: of_finite(sum),
            standard_deviation: of_finite(squares).map(f64::sqrt),
            percentiles: percentiles.unwrap_or_default(),
            labels: labels.counts,
        })
    }
}

/// The sum over finite values, the same on any number of threads.
fn summed(values: &[f32], of: impl Fn(f64) -> f64 + Sync) -> f64 {
    let part = |part: &[f32]| -> f64 {
        part.iter().filter(|v| v.is_finite()).map(|&v| of(f64::from(v))).sum()
    };
    let parts: Vec<f64> = values.par_chunks(1 << 14).map(part).collect();
    parts.iter().sum()
}

/// The number of voxels of every value, if the file stores integers and they are few (or the header
/// says that they are labels).
struct Labels {
    declared: bool,
    counts: Option<BTreeMap<i64, usize>>,
}

impl Labels {
    fn of(header: &Header) -> Self {
        let float = matches!(header.data_type, DataType::F32 | DataType::F64);
        let declared = header.intent_code == INTENT_LABEL;
        Self { declared, counts: (!float || declared).then(BTreeMap::new) }
    }

    fn add(&mut self, values: &[f32]) {
        let Some(counts) = &mut self.counts else { return };
        let mut fits = !values.par_iter().any(|v| v.fract() != 0.0 || !v.is_finite());
        for run in values.chunk_by(|a, b| a == b) {
            if !fits {
                break;
            }
            *counts.entry(run[0] as i64).or_insert(0) += run.len();
            fits = self.declared || counts.len() <= MOST_LABELS;
        }
        if !fits {
            self.counts = None;
        }
    }
}

fn counts(labels: &[i32]) -> BTreeMap<i64, usize> {
    let mut counts = BTreeMap::new();
    for run in labels.chunk_by(|a, b| a == b) {
        *counts.entry(i64::from(run[0])).or_insert(0) += run.len();
    }
    counts
}

impl Info {
    fn of(file: &Path, k: usize) -> Result<Self> {
        let mut image = PlaneReader::open(file, Some(k))?;
        // Of a file with one volume any number is that one.
        let volumes = image.header().volumes();
        if k >= volumes {
            let what = "--volume must be less than the number of volumes";
            let what = format!("{}: {what}, {volumes}, got {k}", file.display());
            return Err(Failure::user(what, "choose a smaller one"));
        }
        let mut values = Values::of(&mut image)?;
        let header = image.header().clone();
        // Beyond, f32 rounds integers: they are read again as what they are.
        let most =
            values.min.into_iter().chain(values.max).fold(0.0f32, |most, v| most.max(v.abs()));
        if values.labels.is_some() && most > EXACT_IN_F32 {
            values.labels = read_labels_at(file, k).ok().map(|labels| counts(&labels.data));
        }
        Ok(Self {
            file: file.display().to_string(),
            axes: header.geometry.axis_codes(),
            bounding_box_mm: header.geometry.bounding_box_mm(),
            volume: k,
            volumes: header.volumes(),
            header,
            values,
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.file);
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<14}{value}");
        };
        let header = &self.header;
        let endian = format!("{:?}", header.endian).to_lowercase();
        line("format", format!("{}, {endian} endian", header.format.name()));
        self.describe_grid(&mut line);
        line("voxel type", format!("{:?}", header.data_type).to_lowercase());
        let scaling = match (header.slope, header.intercept) {
            (1.0, 0.0) => "none".to_string(),
            (slope, intercept) => format!("value = {slope} * stored + {intercept}"),
        };
        line("scaling", scaling);
        self.describe_placement(&mut line);
        if header.intent_code != 0 {
            let meaning = match header.intent_code {
                INTENT_LABEL => " (labels)",
                1007 => " (vectors)",
                _ => "",
            };
            line("intent", format!("{}{meaning} {}", header.intent_code, header.intent_name));
        }
        if !header.description.is_empty() {
            line("description", header.description.clone());
        }
        self.describe_values(&mut line);
        for warning in &header.warnings {
            line("warning", warning.clone());
        }
        text
    }

    /// Where the voxels are.
    fn describe_grid(&self, line: &mut impl FnMut(&str, String)) {
        let (header, geometry) = (&self.header, &self.header.geometry);
        let [x, y, z] = geometry.size;
        let several = match self.volumes {
            1 => String::new(),
            n => format!(", {n} volumes (all axes: {:?})", header.dims),
        };
        line("size", format!("{x} x {y} x {z} voxels{several}"));
        line("spacing", format!("{} mm", join(&geometry.spacing_mm)));
        line("orientation", format!("{} (where voxel x, y, z grow to)", self.axes));
        line("origin", format!("{} mm (voxel 0, RAS)", join(&geometry.origin_mm)));
        let [low, high] = &self.bounding_box_mm;
        line("spans", format!("{} .. {} mm (RAS)", join(low), join(high)));
    }

    /// What the header says of the placement.
    fn describe_placement(&self, line: &mut impl FnMut(&str, String)) {
        let header = &self.header;
        let forms = match header.geometry_source {
            GeometrySource::Metadata => Vec::new(),
            _ => vec![("qform", &header.qform), ("sform", &header.sform)],
        };
        for (name, form) in forms {
            match form {
                None => line(name, "not set".to_string()),
                Some(form) => {
                    line(name, format!("code {}", form.code));
                    for row in form.voxel_to_mm.rows() {
                        line("", join(row));
                    }
                }
            }
        }
        let source = format!("{:?}", header.geometry_source).to_lowercase();
        line("placed by", source);
    }

    fn describe_values(&self, line: &mut impl FnMut(&str, String)) {
        let values = &self.values;
        if self.volumes > 1 {
            line("values of", format!("volume {} of 0..{}", self.volume, self.volumes - 1));
        }
        if values.not_finite > 0 {
            let count = values.not_finite;
            line("warning", format!("{count} of {} voxels are NaN or infinite", values.voxels));
        }
        if let (Some(min), Some(max), Some(mean), Some(deviation)) =
            (values.min, values.max, values.mean, values.standard_deviation)
        {
            line("values", format!("{min} .. {max}, mean {mean:.6}, deviation {deviation:.6}"));
            let percentiles: Vec<String> =
                values.percentiles.iter().map(|(p, v)| format!("{p}%: {v}")).collect();
            line("percentiles", percentiles.join("  "));
            if min == max {
                line("warning", "every voxel has the same value".to_string());
            }
        }
        if let Some(labels) = &values.labels {
            let kinds = labels.keys().filter(|label| **label != 0).count();
            line("labels", format!("{kinds} besides background (label: voxels)"));
            let entries: Vec<String> =
                labels.iter().map(|(label, count)| format!("{label}: {count}")).collect();
            for part in entries.chunks(6) {
                line("", part.join("  "));
            }
        }
    }
}

/// Without trailing zeros.
fn join(numbers: &[f64]) -> String {
    numbers.iter().map(|number| trim(&format!("{number:.6}"))).collect::<Vec<_>>().join(" ")
}

fn trim(number: &str) -> String {
    let number = number.trim_end_matches('0').trim_end_matches('.');
    if number == "-0" { "0".to_string() } else { number.to_string() }
}
