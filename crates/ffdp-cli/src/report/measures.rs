//! The measures of a registration, as `metrics.json` holds them.

use std::path::{Path, PathBuf};

use ffdp_image::image::Geometry;
use ffdp_register::Settings;
use serde::Serialize;
use serde_json::Value;

use crate::failure::Result;
use crate::names::{arguments, as_text};
use crate::result::ResultMeasures;
use crate::time::{unix_seconds, utc};

/// What a run with several images has measured.
pub trait RunMeasures {
    /// Fields of the last line of the log.
    fn end(&self) -> Value;
    /// `metrics.json`.
    fn json(&self) -> Result<String>;
    /// The text for people.
    fn summary(&self) -> String;
}

/// Everything that is known about a run and its result.
#[derive(Debug, Serialize)]
pub struct Measures {
    #[serde(flatten)]
    pub run: Provenance,
    pub fixed: Input,
    pub moving: Input,
    #[serde(flatten)]
    pub result: ResultMeasures,
    /// What is unusual about the inputs.
    pub warnings: Vec<String>,
    pub settings: Settings,
    pub seconds: Seconds,
    /// The most memory the process had resident; null where the system does not say.
    pub peak_memory_bytes: Option<u64>,
    /// All of them, by rank, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
}

/// One of several processes.
#[derive(Debug, Serialize)]
pub struct Process {
    pub host: String,
    /// First plane, and the one after the last, of the displacement that it held on the last level; null without a
    /// deformation.
    pub planes: Option<[usize; 2]>,
    /// Null where the system does not say.
    pub peak_memory_bytes: Option<u64>,
}

/// What ran where.
#[derive(Debug, Serialize)]
pub struct Provenance {
    pub ffdp_version: &'static str,
    /// The arguments of the command.
    pub command: Vec<String>,
    pub device: String,
    /// Threads of the CPU.
    pub threads: usize,
    /// Operating system and processor.
    pub system: String,
    /// When the result was measured, UTC.
    pub time: String,
}

/// An image that was read.
#[derive(Debug, Serialize)]
pub struct Input {
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Of the file, as it lies on disk.
    pub sha256: String,
    pub size: [usize; 3],
    pub spacing_mm: [f64; 3],
    /// Anatomical direction in which each voxel axis grows.
    pub axes: String,
    /// Centre of the first voxel, RAS.
    pub origin_mm: [f64; 3],
    /// Low and high corner of the voxel centres, RAS.
    pub bounding_box_mm: [[f64; 3]; 2],
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Seconds {
    /// Reading and checking the inputs.
    pub read: f64,
    /// In parallel: opening the device and, on a GPU, compiling the kernels. What is not compiled by then
    /// is compiled in the registration.
    pub start: f64,
    /// From the images in host memory to the transform.
    pub register: f64,
    /// The levels alone, a part of it.
    pub iterations: f64,
    /// The inverse, the measures and the files.
    pub results: f64,
    /// From the start of the process until the report is written.
    pub total: f64,
}

impl Provenance {
    /// This process, now.
    pub fn here(device: &impl std::fmt::Display) -> Self {
        use std::env::consts::{ARCH, OS};
        Self {
            ffdp_version: env!("CARGO_PKG_VERSION"),
            command: arguments(),
            device: device.to_string(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("{OS} {ARCH}"),
            time: utc(unix_seconds()),
        }
    }
}

impl Input {
    /// Of an image's file, the file's hash and the grid.
    pub fn of(path: &Path, sha256: String, geometry: &Geometry) -> Self {
        Self {
            path: path.to_path_buf(),
            sha256,
            size: geometry.size,
            spacing_mm: geometry.spacing_mm,
            axes: geometry.axis_codes(),
            origin_mm: geometry.origin_mm,
            bounding_box_mm: geometry.bounding_box_mm(),
        }
    }
}
