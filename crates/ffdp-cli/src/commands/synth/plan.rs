//! Grids and files of a run, and what they need: known before anything is computed.

use std::path::{Path, PathBuf};

use ffdp_image::Error;
use ffdp_image::image::Geometry;
use ffdp_image::io::{check_not_an_input, check_writable};

use super::source::Sources;
use super::{SynthArguments, make_folder};
use crate::disk::Forecast;
use crate::failure::{Failure, Result};
use crate::manifest::{Claim, ClaimingRun, Existing, MANIFEST};

/// Slices of the finest grid that are computed at a time, at least.
const SLAB: usize = 16;
/// Slices that the smoothing of the intensities looks ahead and back: 4 deviations of 0.75 voxel.
const LOOK: usize = 6;
/// Coarser grids are whole multiples of the finest within this part of it.
const MULTIPLE_TOLERANCE: f64 = 1e-6;
/// The coarsest grid has at most this many times the finest's spacing.
const LARGEST_FACTOR: usize = 64;
/// Beyond this a label's contrast means nothing any more.
const LARGEST_VARIATION: f64 = 10.0;
/// Voxels; the same bound as that of the smoothing of intensities.
const MOST_SMOOTHING: f64 = 10.0;

/// All files and grids of a run.
pub struct Plan {
    pub subjects: usize,
    /// Whether subjects are warped when the request does not say.
    pub warped: bool,
    /// One per source.
    pub grids: Vec<Grids>,
    /// One per subject.
    pub files: Vec<SubjectFiles>,
    folders: Vec<PathBuf>,
}

/// The grids of the subjects of one source.
pub struct Grids {
    pub images: ImageGrids,
    pub warp: Geometry,
}

/// The grids of one subject, over one field of view.
pub struct ImageGrids {
    pub finest: Geometry,
    /// For every spacing in the order of the request: voxels of the finest grid along an edge.
    pub factors: Vec<usize>,
    /// The grids of these factors.
    pub of_factor: Vec<Geometry>,
    /// Slices of a slab of the finest grid: a multiple of every factor.
    pub thickness: usize,
}

/// The files of one subject; images and labels in the order of the spacings.
pub struct SubjectFiles {
    pub name: String,
    pub images: Vec<PathBuf>,
    pub labels: Vec<PathBuf>,
    pub warp: PathBuf,
    pub inverse_warp: PathBuf,
}

impl Plan {
    pub fn new(request: &SynthArguments, sources: &Sources) -> Result<Self> {
        let subjects = request.subjects.unwrap_or(request.labels.len());
        let subjects =
            if request.labels.is_empty() && request.subjects.is_none() { 2 } else { subjects };
        if subjects == 0 {
            return Err(Failure::user("--subjects is 0", "ask for one or more"));
        }
        if !(0.0..=LARGEST_VARIATION).contains(&request.variation) {
            return Err(Failure::user(
                format!(
                    "--variation must lie in 0..{LARGEST_VARIATION}, got {}",
                    request.variation
                ),
                "use 0 for none, 1 for as much between subjects as within a label",
            ));
        }
        if !(0.0..=MOST_SMOOTHING).contains(&request.smoothing) {
            return Err(Failure::user(
                format!(
                    "--smoothing must lie in 0..{MOST_SMOOTHING} voxels, got {}",
                    request.smoothing
                ),
                "use 0.75, or 0 for none",
            ));
        }
        let warped = subjects > request.labels.len();
        let grids =
            sources.geometries.iter().map(|field_of_view| Grids::new(request, field_of_view));
        let grids = grids.collect::<Result<Vec<_>>>()?;
        let files = (0..subjects).map(|k| SubjectFiles::new(request, k)).collect();
        let spacings = request.spacing.iter().map(|s| request.output.join(folder(*s)));
        let folders = spacings.chain([request.output.join("warps")]).collect();
        Ok(Self { subjects, warped, grids, files, folders })
    }

    /// The run's right to the folder.
    ///
    /// # Errors
    /// When an output is an input, or the folder holds another data set or results and the request does not
    /// allow for it.
    pub fn claim(&self, request: &SynthArguments) -> Result<Claim> {
        let inputs = request.labels.iter().chain(&request.image).chain(&request.statistics);
        let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
        let statistics = request.output.join("statistics.json");
        let pairs: Vec<PathBuf> = request
            .spacing
            .iter()
            .map(|s| request.output.join(folder(*s)).join("pairs.csv"))
            .collect();
        let files =
            self.files.iter().flat_map(SubjectFiles::all).chain(&pairs).chain([&statistics]);
        let files: Vec<&Path> = files.map(PathBuf::as_path).collect();
        for file in files.iter().copied().chain([&*request.output.join(MANIFEST)]) {
            check_not_an_input(file, &inputs)?;
        }
        let existing = match request.overwrite {
            true => Existing::Overwrite,
            false => Existing::Refuse,
        };
        let identity = request.identity();
        let run = ClaimingRun { command: "synth", identity, files: &files, inputs: &inputs };
        Claim::new(&request.output, run, existing)
    }

    /// Makes the folders and tries whether files can be written there, before the work.
    pub fn make_folders(&self) -> Result<()> {
        for folder in &self.folders {
            make_folder(folder)?;
            check_writable(&folder.join("probe"))?;
        }
        Ok(())
    }

    /// Bytes of all files.
    pub fn disk_forecast(&self, uncompressed: bool) -> Forecast {
        let grids = || (0..self.subjects).map(|k| &self.grids[k % self.grids.len()]);
        let voxels: u64 =
            grids().flat_map(|grids| &grids.images.of_factor).map(|grid| grid.len() as u64).sum();
        // Two warps of three floats; they are small, and not every run has them.
        let warps: u64 = grids().map(|grids| 24 * grids.warp.len() as u64).sum();
        // Four bytes of intensity, one to four of label.
        if uncompressed {
            let expected = 5 * voxels + warps;
            return Forecast { least: 5 * voxels, expected, most: 8 * voxels + warps };
        }
        Forecast::of_images(voxels, warps)
    }

    /// Bytes of memory that streaming a subject of a source takes: slabs of labels, texture and
    /// image with copies for the coarser grids and compression; then both warps.
    pub fn memory_bytes(&self, source: usize) -> u64 {
        let Grids { images, warp } = &self.grids[source];
        let [nx, ny, _] = images.finest.size;
        let slabs = 24 * (nx * ny * (images.thickness + 2 * LOOK)) as u64;
        slabs.max(12 * warp.len() as u64)
    }
}

impl Grids {
    fn new(request: &SynthArguments, field_of_view: &Geometry) -> Result<Self> {
        let images = ImageGrids::new(&request.spacing, field_of_view)?;
        let coarsest = field_of_view.spacing_mm.iter().copied().fold(0.0, f64::max);
        let finest = images.finest.spacing_mm[0];
        if !request.labels.is_empty() && finest > coarsest + MULTIPLE_TOLERANCE {
            return Err(Failure::user(
                format!("the finest spacing is {finest} mm, that of a label map {coarsest} mm"),
                "ask for the label map's spacing or a finer one too, for example --spacing 1,2",
            ));
        }
        let warp = grid(field_of_view, request.warp_spacing, 1)?;
        Ok(Self { images, warp })
    }
}

impl ImageGrids {
    fn new(spacings: &[f64], field_of_view: &Geometry) -> Result<Self> {
        let finest_mm = spacings.iter().copied().fold(f64::INFINITY, f64::min);
        let factors = spacings.iter().map(|s| factor(*s, finest_mm)).collect::<Result<Vec<_>>>()?;
        let common = factors.iter().copied().fold(1, least_common_multiple);
        if common > LARGEST_FACTOR {
            return Err(Failure::user(
                format!("--spacing {spacings:?}: blocks of {common} voxels are too many"),
                format!("choose spacings with a common multiple of at most {LARGEST_FACTOR}"),
            ));
        }
        let finest = grid(field_of_view, finest_mm, common)?;
        let coarse = |factor: &usize| finest.resized(finest.size.map(|n| n / factor));
        let of_factor = factors.iter().map(coarse).collect::<Result<Vec<_>, Error>>()?;
        Ok(Self { finest, of_factor, factors, thickness: SLAB.next_multiple_of(common) })
    }
}

/// The grid of a spacing along the axes of another one and around the same centre, of the same
/// extent as far as a multiple of `block` voxels allows.
fn grid(field_of_view: &Geometry, spacing_mm: f64, block: usize) -> Result<Geometry> {
    let size = [0, 1, 2].map(|axis| {
        let extent = field_of_view.size[axis] as f64 * field_of_view.spacing_mm[axis];
        // Saturates where there is no such number of voxels; `Geometry` then refuses the size.
        ((extent / (spacing_mm * block as f64)).round().max(1.0) as usize).saturating_mul(block)
    });
    let placed = Geometry::new(size, [spacing_mm; 3])?.with_direction(field_of_view.direction)?;
    let (from, to) = (placed.center_mm(), field_of_view.center_mm());
    Ok(placed.with_origin([0, 1, 2].map(|axis| to[axis] - from[axis]))?)
}

fn factor(spacing_mm: f64, finest_mm: f64) -> Result<usize> {
    let ratio = spacing_mm / finest_mm;
    let whole = ratio.round();
    if whole >= 1.0 && (ratio - whole).abs() <= MULTIPLE_TOLERANCE * whole {
        return Ok(whole as usize);
    }
    Err(Failure::user(
        format!("--spacing: {spacing_mm} mm is no whole multiple of the finest, {finest_mm} mm"),
        "coarser images are block means: choose for example --spacing 0.25,0.5,1",
    ))
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    (1..=b).map(|k| k * a).find(|m| m % b == 0).expect("a b is a common multiple")
}

/// `0.5mm`.
fn folder(spacing_mm: f64) -> String {
    format!("{spacing_mm}mm")
}

impl SubjectFiles {
    fn new(request: &SynthArguments, subject: usize) -> Self {
        let name = format!("subject-{subject:03}");
        let ending = if request.uncompressed { ".nii" } else { request.format.ending() };
        let folders: Vec<String> = request.spacing.iter().map(|s| folder(*s)).collect();
        let file = |folder: &str, what: &str| {
            request.output.join(folder).join(format!("{name}{what}{ending}"))
        };
        Self {
            images: folders.iter().map(|f| file(f, "")).collect(),
            labels: folders.iter().map(|f| file(f, "_labels")).collect(),
            warp: file("warps", "_warp"),
            inverse_warp: file("warps", "_inverse_warp"),
            name,
        }
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.images.iter().chain(&self.labels).chain([&self.warp, &self.inverse_warp])
    }
}
