//! `ffdp apply`: images, label maps or landmarks through transforms.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ffdp_burn::Error;
use ffdp_burn::image::Geometry;
use ffdp_burn::io::nifti::{
    Header, header, read_labels, read_labels_at, read_volumes, write_labels, write_volume,
    write_volumes,
};
use ffdp_burn::io::{
    LandmarkSpace, check_not_an_input, check_writable, read_landmarks, write_landmarks,
};
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{Composite, GridMap};

use super::chain::{ORDER_HELP, TransformChoice, chain, grid};
use super::input::{Reading, image, settle_nan};
use crate::args::NanPolicy;
use crate::device::DeviceChoice;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;

/// `ffdp apply`.
#[derive(Debug, Args)]
#[command(after_long_help = ORDER_HELP)]
pub struct ApplyArguments {
    /// Image or label map to warp, on the moving side (NIfTI); of a 4-D file, all volumes.
    #[arg(short, long, value_name = "FILE", required_unless_present = "landmarks")]
    pub image: Option<PathBuf>,
    /// Image whose grid the result gets [default: the grid of the displacement applied first].
    #[arg(short, long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Transform; repeat it for a chain. The LAST one given is applied first.
    #[arg(short, long, value_name = "FILE", required = true)]
    pub transform: Vec<TransformChoice>,
    /// Result: .nii or .nii.gz, or .csv or .fcsv for landmarks.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// How values are read between voxels.
    #[arg(long, value_enum, default_value_t = InterpolationChoice::Linear)]
    pub interpolation: InterpolationChoice,
    /// Apply the inverse of the whole chain: from the moving to the fixed side.
    #[arg(long)]
    pub inverse: bool,
    /// Landmarks to map in place of an image: from fixed to moving points, with --inverse from moving
    /// to fixed points.
    #[arg(long, value_name = "FILE")]
    pub landmarks: Option<PathBuf>,
    /// What the landmarks' numbers are, in the file and in the result: voxel indices (of --reference
    /// in the file, of --image in the result), or mm. Slicer's .fcsv files say it themselves.
    #[arg(long, value_enum, default_value_t = SpaceChoice::Ras)]
    pub landmark_space: SpaceChoice,
    /// Of an image file with several volumes, the only one to warp, from 0.
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
    /// What to do about NaN and infinite voxels.
    #[arg(long, value_enum, default_value_t = NanPolicy::Error)]
    pub nan_policy: NanPolicy,
    /// Where to compute; only what was compiled in is accepted.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value_t = DeviceChoice::best())]
    pub device: DeviceChoice,
}

/// How values are read between voxels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InterpolationChoice {
    /// Weighted mean of the eight voxels around, as float32.
    Linear,
    /// The nearest voxel; integers stay integers.
    Nearest,
    /// For label maps: the label with most weight among the eight voxels around (smoother borders;
    /// ANTs' GenericLabel).
    Label,
}

/// What landmarks are given in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SpaceChoice {
    /// Voxel indices from 0.
    Voxel,
    /// RAS mm.
    Ras,
    /// LPS mm (ITK, ANTs).
    Lps,
}

impl SpaceChoice {
    /// The space of landmarks of the image in a file that `flag` names; only voxels need it.
    pub fn read(self, image: Option<&Path>, flag: &str) -> Outcome<LandmarkSpace> {
        match (self, image) {
            (Self::Voxel, Some(image)) => Ok(LandmarkSpace::Voxel(header(image)?.geometry)),
            (Self::Voxel, None) => Err(Failure::user(
                format!("landmarks in voxels need the grid of {flag}"),
                format!("name the image whose voxels they are with {flag}"),
            )),
            (Self::Ras, _) => Ok(LandmarkSpace::Ras),
            (Self::Lps, _) => Ok(LandmarkSpace::Lps),
        }
    }

    /// The space of landmarks of the image that lies on `grid`.
    pub fn of(self, grid: &Geometry) -> LandmarkSpace {
        match self {
            Self::Voxel => LandmarkSpace::Voxel(grid.clone()),
            Self::Ras => LandmarkSpace::Ras,
            Self::Lps => LandmarkSpace::Lps,
        }
    }
}

/// Warps what was asked for.
pub fn run(request: &ApplyArguments) -> Outcome<()> {
    let named = [&request.image, &request.reference, &request.landmarks];
    let mut inputs: Vec<&Path> = named.into_iter().flatten().map(PathBuf::as_path).collect();
    inputs.extend(request.transform.iter().flat_map(TransformChoice::paths));
    check_not_an_input(&request.output, &inputs)?;
    check_writable(&request.output)?;
    let device = request.device.open()?;
    let map = chain(&request.transform, &device)?;
    let map = if request.inverse { map.inverse()? } else { map };
    match (&request.landmarks, &request.image) {
        (Some(landmarks), _) => warp_landmarks(request, landmarks, &map),
        (None, Some(image)) => {
            let grid = grid(request.reference.as_deref(), &map)?;
            warp_image(request, image, &map.on_grid(&grid, &device))
        }
        (None, None) => unreachable!("clap demands one of them"),
    }
}

fn warp_image(request: &ApplyArguments, path: &Path, map: &GridMap) -> Outcome<()> {
    let header = header(path)?;
    check_overlap(map, &header)?;
    let several = header.volumes() > 1 && request.volume.is_none();
    let integers = header.data_type.is_integer() && (header.slope, header.intercept) == (1.0, 0.0);
    let how = match request.interpolation {
        InterpolationChoice::Linear => Interpolation::Linear,
        InterpolationChoice::Nearest => Interpolation::Nearest,
        InterpolationChoice::Label => Interpolation::Label,
    };
    let output = &request.output;
    match how {
        Interpolation::Linear | Interpolation::Nearest if several => {
            let mut volumes = read_volumes(path)?;
            for (k, volume) in volumes.iter_mut().enumerate() {
                let name = format!("{}, volume {k}", path.display());
                let warning = settle_nan(volume, &name, request.nan_policy)?;
                warning.iter().for_each(|warning| Printer::new(false, false).warning(warning));
                *volume = map.warp(volume, how)?;
            }
            write_volumes(output, &volumes, header.time_step_seconds)?;
        }
        Interpolation::Label | Interpolation::Nearest
            if integers || how == Interpolation::Label =>
        {
            let labels = match request.volume {
                Some(k) if header.volumes() > 1 => read_labels_at(path, k)?,
                _ => read_labels(path)?,
            };
            write_labels(output, &map.warp_labels(&labels, how)?)?;
        }
        _ => {
            let reading = Reading { volume: request.volume, nan_policy: request.nan_policy };
            let image = image(path, reading, Printer::new(false, false))?;
            write_volume(output, &map.warp(&image, how)?)?;
        }
    }
    Ok(())
}

fn check_overlap(map: &GridMap, image: &Header) -> Outcome<()> {
    let overlap_percent = map.percent_inside(&image.geometry)?;
    if overlap_percent > 0.0 {
        return Ok(());
    }
    Err(Error::NoOverlap {
        fixed_box_mm: map.grid().bounding_box_mm(),
        moving_box_mm: image.geometry.bounding_box_mm(),
        overlap_percent,
        required_percent: 0.0,
    }
    .into())
}

fn warp_landmarks(request: &ApplyArguments, path: &Path, map: &Composite) -> Outcome<()> {
    let from = request.landmark_space.read(request.reference.as_deref(), "--reference")?;
    let to = request.landmark_space.read(request.image.as_deref(), "--image")?;
    let points = map.map_points(&read_landmarks(path, &from)?)?;
    Ok(write_landmarks(&request.output, &points, &to)?)
}
