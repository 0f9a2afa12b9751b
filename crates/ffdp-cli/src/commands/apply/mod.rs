//! `ffdp apply`: images, label maps or landmarks through transforms.

mod image;

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use ffdp_burn::transform::Composite;
use ffdp_image::image::Geometry;
use ffdp_image::io::images::{header, read_formats, written_endings};
use ffdp_image::io::{FileRow, LandmarkSpace, LandmarkTable, check_not_an_input, check_writable};
use ffdp_register::file_warp::FILE_WARP_VOXELS;
use ffdp_train::user_flags::{UserFlags, WithoutEffect};

use self::image::{Map, Warping, warp_image};
use super::chain::{ORDER_HELP, SeriesChain, TransformChoice, chain, grid, plane_chain};
use super::input::Reading;
use crate::cohort::{Cohort, Pair, Steps, run_one};
use crate::device::DeviceChoice;
use crate::failure::{Failure, Result};
use crate::nan_policy::NanPolicy;

/// `ffdp apply`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = ORDER_HELP)]
pub struct ApplyArguments {
    #[command(flatten)]
    given: UserFlags,
    /// Image or label map to warp, on the moving side.
    #[arg(help = format!("Image or label map to warp, of several volumes all. {}", read_formats()))]
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["landmarks", "pairs"])]
    pub image: Option<PathBuf>,
    /// Image whose grid the result gets [default: that of the first -t]. Without it the first -t must be a displacement.
    #[arg(short, long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Transform or folder of results. Repeat it for a chain: list the warp, then the affine, as for antsApplyTransforms.
    /// Without one, the image is resampled onto the grid of --reference.
    #[arg(short, long, value_name = "FILE|DIR")]
    pub transform: Vec<TransformChoice>,
    /// Result, of a format that is written.
    #[arg(help = format!("Result; its name says the format. {}, or .csv, .fcsv or .mrk.json for landmarks", written_endings()))]
    #[arg(short, long, value_name = "FILE", required_unless_present = "pairs")]
    output: Option<PathBuf>,
    /// Several images: a list (CSV). The columns are image, output and, as needed, reference and transform (several with
    /// semicolons between, in the order of -t). The last ones are written while one is warped.
    #[arg(long, value_name = "PAIRS.CSV", conflicts_with_all = ["image", "reference", "transform", "output", "landmarks"])]
    pub pairs: Option<PathBuf>,
    /// How values are read between voxels.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = InterpolationChoice::Linear)]
    pub interpolation: InterpolationChoice,
    /// Value of voxels that the image does not reach.
    #[arg(long, value_name = "VALUE", default_value_t = 0.0, allow_negative_numbers = true)]
    #[arg(conflicts_with = "landmarks")]
    pub background: f32,
    /// Apply the inverse of the whole chain, from the moving to the fixed side.
    #[arg(long)]
    pub inverse: bool,
    /// Landmarks to map in place of an image. They go from fixed to moving points, with --inverse from moving
    /// to fixed points. CSV, Slicer's .fcsv and .mrk.json, elastix; other columns stay as they are.
    #[arg(long, value_name = "FILE")]
    pub landmarks: Option<PathBuf>,
    /// Coordinates of the landmarks, in the file and in the result. Voxel indices (of --reference
    /// in the file, of --image in the result), or mm. Slicer's files say it themselves.
    #[arg(long, value_name = "SPACE", value_enum, default_value_t = SpaceChoice::File, requires = "landmarks")]
    pub landmark_space: SpaceChoice,
    /// Of an image file with several volumes, the only one to warp, from 0.
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
    /// How NaN and infinite voxels are handled.
    #[arg(long, value_enum, default_value_t = NanPolicy::Error)]
    pub nan_policy: NanPolicy,
    /// Device to compute on. It must be compiled in.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value = DeviceChoice::AUTO)]
    pub device: DeviceChoice,
}

/// How values are read between voxels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InterpolationChoice {
    /// Weighted mean of the eight voxels around, as float32.
    Linear,
    /// A cubic B-spline through the voxels: sharper than linear, and may swing a little beyond the values there are.
    Cubic,
    /// A sinc in a Lanczos window of three voxels to either side: sharper still, and swings more.
    Sinc,
    /// The nearest voxel; integers stay what they are, in the same type.
    Nearest,
    /// For label maps: the label with most weight among the eight voxels around (smoother borders;
    /// ANTs' GenericLabel).
    Label,
}

/// What landmarks are given in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SpaceChoice {
    /// What the file says: LPS mm for points of ANTs (columns x,y,z,t,..) and elastix, for Slicer what its head has;
    /// otherwise RAS mm.
    File,
    /// Voxel indices from 0.
    Voxel,
    /// RAS mm.
    Ras,
    /// LPS mm (ITK, ANTs).
    Lps,
}

impl SpaceChoice {
    /// The space of landmarks of the image in a file that `flag` names; only voxels need it.
    pub fn read(self, image: Option<&Path>, flag: &str) -> Result<LandmarkSpace> {
        match (self, image) {
            (Self::Voxel, Some(image)) => Ok(LandmarkSpace::Voxel(header(image)?.geometry)),
            (Self::Voxel, None) => Err(Failure::user(
                format!("landmarks in voxels need the grid of {flag}"),
                format!("name the image whose voxels they are with {flag}"),
            )),
            (Self::File, _) => Ok(LandmarkSpace::OfFile),
            (Self::Ras, _) => Ok(LandmarkSpace::Ras),
            (Self::Lps, _) => Ok(LandmarkSpace::Lps),
        }
    }

    /// The space of landmarks of the image that lies on `grid`.
    pub fn of(self, grid: &Geometry) -> LandmarkSpace {
        match self {
            Self::Voxel => LandmarkSpace::Voxel(grid.clone()),
            Self::File => LandmarkSpace::OfFile,
            Self::Ras => LandmarkSpace::Ras,
            Self::Lps => LandmarkSpace::Lps,
        }
    }
}

impl ApplyArguments {
    /// Where the result goes.
    fn output(&self) -> &Path {
        self.output
            .as_deref()
            .expect("demanded where there is no list, and read from it where there is")
    }

    /// Refuses flags that have no effect on what is asked for.
    fn refuse_without_effect(&self) -> Result<()> {
        self.nan_policy.check_without_weights("apply")?;
        let points = self.landmarks.is_some();
        Ok(self.given.refuse(&[
            WithoutEffect {
                flags: &["interpolation", "nan_policy", "volume"],
                when: points,
                because: "landmarks are mapped, and no image is read",
                fix: "warp the image in a run of its own",
            },
            WithoutEffect {
                flags: &["image", "reference"],
                when: points && self.landmark_space != SpaceChoice::Voxel,
                because: "landmarks are mapped, and their coordinates are no voxels of an image",
                fix: "warp the image in a run of its own",
            },
            WithoutEffect {
                flags: &["inverse"],
                when: self.transform.is_empty() && self.pairs.is_none(),
                because: "there is no transform",
                fix: "name one by --transform",
            },
        ])?)
    }

    /// The request for one line of a list.
    fn of_line(&self, row: &FileRow) -> Result<Self> {
        Ok(Self {
            image: row.file("image"),
            reference: row.file("reference"),
            transform: TransformChoice::of_row(row)?,
            output: row.file("output"),
            pairs: None,
            ..self.clone()
        })
    }
}

/// Warps what was asked for.
pub fn run(request: &ApplyArguments) -> Result<()> {
    request.refuse_without_effect()?;
    let Some(list) = &request.pairs else {
        return run_one(&Warpings { request }, request.clone());
    };
    let cohort = Cohort {
        list,
        required: &["image", "output"],
        optional: &["reference", "transform"],
        flags: (&request.given, &[("inverse", &["transform"])]),
        title: "Warped images",
        columns: &[],
        folder: None,
        report: None,
        strict: false,
        devices: 1,
        json: false,
        quiet: false,
        verbose: false,
    };
    cohort.run(&Warpings { request }, |row, _, _| Ok(Pair::Open(request.of_line(row)?)))
}

/// What is left to do with a result, in parallel with the next one.
type Writing = Box<dyn FnOnce() -> Result<()> + Send>;

/// Images through transforms, on one device.
struct Warpings<'a> {
    request: &'a ApplyArguments,
}

impl Steps for Warpings<'_> {
    type Pair = ApplyArguments;
    type Device = Device;
    type Read = ();
    type Computed = Writing;
    type Done = ();

    fn open(&self, _: usize, _: &ApplyArguments) -> Result<Device> {
        self.request.device.open()
    }

    fn host_bytes(&self, request: &ApplyArguments) -> u64 {
        /// Of a voxel of a piece, its displacements and what is sampled, on the CPU; of the image, all that may be looked at.
        const OF_A_PIECE: usize = 64;
        const OF_THE_IMAGE: usize = 4;
        let voxels = |file: &PathBuf| header(file).map_or(0, |header| header.geometry.len());
        let [image, grid] =
            [&request.image, &request.reference].map(|file| file.as_ref().map_or(0, voxels));
        (OF_A_PIECE * image.max(grid).min(FILE_WARP_VOXELS) + OF_THE_IMAGE * image) as u64
    }

    fn read(&self, request: &ApplyArguments) -> Result<()> {
        let reading = Reading { volume: request.volume, nan_policy: request.nan_policy };
        reading.check_volume(request.image.as_deref())?;
        let named = [&request.image, &request.reference, &request.landmarks];
        let mut inputs: Vec<&Path> = named.into_iter().flatten().map(PathBuf::as_path).collect();
        inputs.extend(request.transform.iter().flat_map(TransformChoice::paths));
        check_not_an_input(request.output(), &inputs)?;
        Ok(check_writable(request.output())?)
    }

    fn compute(&self, request: &ApplyArguments, (): (), device: &mut Device) -> Result<Writing> {
        match (&request.landmarks, &request.image) {
            (Some(landmarks), _) => {
                let map = chain(&request.transform, device)?;
                let map = if request.inverse { map.inverse()? } else { map };
                warp_landmarks(request, landmarks, &map)
            }
            (None, Some(image)) => {
                let (map, grid) = match SeriesChain::read(&request.transform)? {
                    None => {
                        let map = plane_chain(&request.transform, request.inverse, device)?;
                        let grid = grid(request.reference.as_deref(), map.first_grid())?;
                        (Map::One(map), grid)
                    }
                    Some(series) => {
                        series.check(image, request.volume)?;
                        let first = request.volume.unwrap_or(0);
                        let first = series.map(first, request.inverse, device)?;
                        let reference = request.reference.clone().or_else(|| series.reference());
                        let grid = grid(reference.as_deref(), first.first_grid())?;
                        (Map::Each(series), grid)
                    }
                };
                warp_image(request, image, Warping { map, grid: &grid, device })
            }
            (None, None) => unreachable!("clap demands one of them"),
        }
    }

    fn finish(&self, _: &ApplyArguments, write: Writing) -> Result<()> {
        write()
    }
}

fn warp_landmarks(request: &ApplyArguments, path: &Path, map: &Composite) -> Result<Writing> {
    let from = request.landmark_space.read(request.reference.as_deref(), "--reference")?;
    let to = request.landmark_space.read(request.image.as_deref(), "--image")?;
    let table = LandmarkTable::read(path, &from)?;
    let points = map.map_points(&table.points)?;
    let (table, output) = (table.with_points(points), request.output().to_path_buf());
    Ok(Box::new(move || Ok(table.write(&output, &to)?)))
}
