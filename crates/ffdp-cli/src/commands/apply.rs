//! `ffdp apply`: images, label maps or landmarks through transforms.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use ffdp_burn::Error;
use ffdp_burn::image::{Geometry, LabelMap, SmoothKernel, Volume};
use ffdp_burn::io::images::{
    Header, IntegerForm, header, read_labels, read_labels_at, read_stored_at, read_volumes,
    write_integers, write_labels, write_volume, write_volumes,
};
use ffdp_burn::io::{
    LandmarkSpace, check_not_an_input, check_writable, read_landmarks, write_landmarks,
};
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::{Composite, GridMap};

use super::chain::{ORDER_HELP, TransformChoice, chain, grid};
use super::input::{Reading, image, settle_nan};
use crate::cohort::{Cohort, Pair, Steps, run_one};
use crate::device::DeviceChoice;
use crate::failure::{Failure, Outcome};
use crate::nan_policy::NanPolicy;
use crate::pairs::Row;
use crate::printer::Printer;

const INTENT_LABELS: i32 = 1002;

/// `ffdp apply`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = ORDER_HELP)]
pub struct ApplyArguments {
    /// Image or label map to warp, on the moving side (NIfTI, OME-Zarr, NRRD, MetaImage); of several volumes, all.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["landmarks", "pairs"])]
    pub image: Option<PathBuf>,
    /// Image whose grid the result gets [default: the grid of the first -t, a displacement].
    #[arg(short, long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Transform; repeat it for a chain, in the order of antsApplyTransforms: warp, then affine.
    #[arg(short, long, value_name = "FILE", required_unless_present = "pairs")]
    pub transform: Vec<TransformChoice>,
    /// Result: .nii, .nii.gz, .zarr, .nrrd or .mha, or .csv or .fcsv for landmarks.
    #[arg(short, long, value_name = "FILE", required_unless_present = "pairs")]
    output: Option<PathBuf>,
    /// Several images: a list (CSV) with the columns image, transform (several with semicolons between, in the order of -t),
    /// output and, as needed, reference. The last ones are written while one is warped.
    #[arg(long, value_name = "PAIRS.CSV", conflicts_with_all = ["image", "reference", "transform", "output", "landmarks"])]
    pub pairs: Option<PathBuf>,
    /// How values are read between voxels.
    #[arg(long, value_enum, default_value_t = InterpolationChoice::Linear)]
    pub interpolation: InterpolationChoice,
    /// Value of voxels that the image does not reach.
    #[arg(long, value_name = "VALUE", default_value_t = 0.0, allow_negative_numbers = true)]
    #[arg(conflicts_with = "landmarks")]
    pub background: f32,
    /// Apply the inverse of the whole chain: from the moving to the fixed side.
    #[arg(long)]
    pub inverse: bool,
    /// Landmarks to map in place of an image: from fixed to moving points, with --inverse from moving
    /// to fixed points.
    #[arg(long, value_name = "FILE")]
    pub landmarks: Option<PathBuf>,
    /// Coordinates of the landmarks, in the file and in the result: voxel indices (of --reference
    /// in the file, of --image in the result), or mm. Slicer's .fcsv files say it themselves.
    #[arg(long, value_enum, default_value_t = SpaceChoice::Ras)]
    pub landmark_space: SpaceChoice,
    /// Of an image file with several volumes, the only one to warp, from 0.
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
    /// How NaN and infinite voxels are handled.
    #[arg(long, value_enum, default_value_t = NanPolicy::Error)]
    pub nan_policy: NanPolicy,
    /// Device to compute on; it must be compiled in.
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value_t = DeviceChoice::best())]
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

impl ApplyArguments {
    /// Where the result goes.
    fn output(&self) -> &Path {
        self.output
            .as_deref()
            .expect("demanded where there is no list, and read from it where there is")
    }

    /// The request for one line of a list.
    fn of_line(&self, row: &Row) -> Outcome<Self> {
        let choice = |file: PathBuf| {
            TransformChoice::of(file.into_os_string()).map_err(|reason| {
                Failure::user(reason, "name files with semicolons between, as -t takes them")
            })
        };
        Ok(Self {
            image: row.file("image"),
            reference: row.file("reference"),
            transform: row.several("transform").map(choice).collect::<Outcome<_>>()?,
            output: row.file("output"),
            pairs: None,
            ..self.clone()
        })
    }
}

/// Warps what was asked for.
pub fn run(request: &ApplyArguments) -> Outcome<()> {
    let Some(list) = &request.pairs else {
        return run_one(&Warpings { request }, request.clone());
    };
    let cohort = Cohort {
        list,
        required: &["image", "transform", "output"],
        title: "Warped images",
        columns: &[],
        folder: None,
        report: None,
        devices: 1,
        json: false,
        quiet: false,
        verbose: false,
    };
    cohort.run(&Warpings { request }, |row, _, _| Ok(Pair::Open(request.of_line(row)?)))
}

/// What is left to do with a result.
type Writing = Box<dyn FnOnce() -> Outcome<()> + Send>;

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

    fn open(&self, _: usize, _: &ApplyArguments) -> Outcome<Device> {
        self.request.device.open()
    }

    fn host_bytes(&self, request: &ApplyArguments) -> u64 {
        /// An image, what it becomes, and a displacement.
        const OF_A_VOXEL: u64 = 32;
        let files = [&request.image, &request.reference].into_iter().flatten();
        let voxels = files.map(|file| header(file).map_or(0, |header| header.geometry.len()));
        OF_A_VOXEL * voxels.max().unwrap_or(0) as u64
    }

    fn read(&self, request: &ApplyArguments) -> Outcome<()> {
        let named = [&request.image, &request.reference, &request.landmarks];
        let mut inputs: Vec<&Path> = named.into_iter().flatten().map(PathBuf::as_path).collect();
        inputs.extend(request.transform.iter().flat_map(TransformChoice::paths));
        check_not_an_input(request.output(), &inputs)?;
        Ok(check_writable(request.output())?)
    }

    fn compute(&self, request: &ApplyArguments, (): (), device: &mut Device) -> Outcome<Writing> {
        let map = chain(&request.transform, device)?;
        let map = if request.inverse { map.inverse()? } else { map };
        match (&request.landmarks, &request.image) {
            (Some(landmarks), _) => warp_landmarks(request, landmarks, &map),
            (None, Some(image)) => {
                let grid = grid(request.reference.as_deref(), &map)?;
                warp_image(request, image, &map.on_grid(&grid, device))
            }
            (None, None) => unreachable!("clap demands one of them"),
        }
    }

    fn finish(&self, _: &ApplyArguments, write: Writing) -> Outcome<()> {
        write()
    }
}

fn warp_image(request: &ApplyArguments, path: &Path, map: &GridMap) -> Outcome<Writing> {
    let header = header(path)?;
    check_overlap(map, &header)?;
    let how = match request.interpolation {
        InterpolationChoice::Linear | InterpolationChoice::Cubic | InterpolationChoice::Sinc => {
            Interpolation::Linear
        }
        InterpolationChoice::Nearest => Interpolation::Nearest,
        InterpolationChoice::Label => Interpolation::Label,
    };
    let smooth = match request.interpolation {
        InterpolationChoice::Cubic => Some(SmoothKernel::Cubic),
        InterpolationChoice::Sinc => Some(SmoothKernel::Lanczos),
        _ => None,
    };
    let several = header.volumes() > 1 && request.volume.is_none();
    let stored = || IntegerForm::of_stored(&header).filter(|_| how == Interpolation::Nearest);
    let form = IntegerForm::of(&header).or_else(stored);
    // Of a background that the type does not hold, floats.
    let form = form.filter(|form| form.integer(request.background.into()).is_some());
    let outside = match smooth {
        Some(_) => Outside { background: request.background, integer: None, inside: None },
        None => Outside::of(request, map, (&header, form), how)?,
    };
    let mixed = |image: &Volume| match smooth {
        Some(kernel) => map.warp_smoothly(image, kernel, request.background),
        None => Ok(outside.fill(map.warp(image, how)?)),
    };
    let output = request.output().to_path_buf();
    Ok(match (how, form) {
        (Interpolation::Nearest, Some(form)) => {
            let warped = |labels: LabelMap| Ok(outside.fill_labels(map.warp_labels(&labels, how)?));
            let warped: Vec<LabelMap> = if several {
                all_integers(path, &header, form)?
                    .into_iter()
                    .map(warped)
                    .collect::<Outcome<_>>()?
            } else if form.scale.is_some() {
                vec![warped(read_stored_at(path, request.volume.unwrap_or(0))?)?]
            } else {
                vec![warped(one_of_integers(request, path, &header)?)?]
            };
            Box::new(move || Ok(write_integers(output, &warped, form)?))
        }
        (Interpolation::Label, form) => {
            let labels = one_of_integers(request, path, &header)?;
            let warped = outside.fill_labels(map.warp_labels(&labels, how)?);
            match form {
                Some(form) => {
                    let form = IntegerForm { intent_code: INTENT_LABELS, ..form };
                    Box::new(move || Ok(write_integers(output, &[warped], form)?))
                }
                None => Box::new(move || Ok(write_labels(output, &warped)?)),
            }
        }
        _ if several => {
            let mut volumes = read_volumes(path)?;
            for (k, volume) in volumes.iter_mut().enumerate() {
                let name = format!("{}, volume {k}", path.display());
                let warning = settle_nan(volume, &name, request.nan_policy)?;
                warning.iter().for_each(|warning| Printer::new(false, false).warning(warning));
                *volume = mixed(volume)?;
            }
            Box::new(move || Ok(write_volumes(output, &volumes, header.time_step_seconds)?))
        }
        _ => {
            let reading = Reading { volume: request.volume, nan_policy: request.nan_policy };
            let image = image(path, reading, Printer::new(false, false))?;
            let warped = mixed(&image)?;
            Box::new(move || Ok(write_volume(output, &warped)?))
        }
    })
}

/// The only volume, or that of --volume.
fn one_of_integers(request: &ApplyArguments, path: &Path, header: &Header) -> Outcome<LabelMap> {
    Ok(match request.volume {
        Some(k) if header.volumes() > 1 => read_labels_at(path, k)?,
        _ => read_labels(path)?,
    })
}

/// All volumes, in one pass where f32 holds their values.
fn all_integers(path: &Path, header: &Header, form: IntegerForm) -> Outcome<Vec<LabelMap>> {
    const EXACT_IN_F32: f64 = 8_388_608.0;
    if form.scale.is_some() {
        let volumes = 0..header.volumes();
        return Ok(volumes.map(|k| read_stored_at(path, k)).collect::<Result<_, _>>()?);
    }
    if header.data_type.bytes() > 2 || header.intercept.abs() > EXACT_IN_F32 {
        let volumes = 0..header.volumes();
        return Ok(volumes.map(|k| read_labels_at(path, k)).collect::<Result<_, _>>()?);
    }
    let integers = |volume: Volume| {
        LabelMap::new(volume.data.into_iter().map(|v| v as i32).collect(), volume.geometry)
    };
    Ok(read_volumes(path)?.into_iter().map(integers).collect::<Result<_, _>>()?)
}

/// What voxels get that the image does not reach.
struct Outside {
    background: f32,
    /// The integer that stands for it; `None` where none does.
    integer: Option<i32>,
    /// How much of the image is in each voxel, 0..1; `None` where nothing is to be done: samplers give 0.
    inside: Option<Vec<f32>>,
}

/// Weights of a sum are rounded: this near to 1 a voxel lies inside.
const INSIDE: f32 = 1.0 - 1e-5;

impl Outside {
    fn of(
        request: &ApplyArguments,
        map: &GridMap,
        (image, form): (&Header, Option<IntegerForm>),
        how: Interpolation,
    ) -> Outcome<Self> {
        let background = request.background;
        let whole = background.fract() == 0.0 && background.abs() < i32::MAX as f32;
        let integer = match form {
            Some(form) => form.integer(background.into()),
            None => whole.then_some(background as i32),
        };
        if background == 0.0 && integer == Some(0) {
            return Ok(Self { background, integer, inside: None });
        }
        let labels = how == Interpolation::Label;
        if labels && !whole {
            return Err(Failure::user(
                format!("--background {background} is no label"),
                "give an integer, or another --interpolation",
            ));
        }
        let ones = Volume::new(vec![1.0; image.geometry.len()], image.geometry.clone())?;
        let how = if labels { Interpolation::Nearest } else { how };
        Ok(Self { background, integer, inside: Some(map.warp(&ones, how)?.data) })
    }

    fn fill(&self, mut volume: Volume) -> Volume {
        let pairs = volume.data.iter_mut().zip(self.inside.iter().flatten());
        for (value, &inside) in pairs.filter(|(_, inside)| **inside < INSIDE) {
            *value += (1.0 - inside) * self.background;
        }
        volume
    }

    fn fill_labels(&self, mut labels: LabelMap) -> LabelMap {
        let background = self.integer.expect("asked for, or refused, before");
        let pairs = labels.data.iter_mut().zip(self.inside.iter().flatten());
        pairs.filter(|(_, inside)| **inside == 0.0).for_each(|(label, _)| *label = background);
        labels
    }
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

fn warp_landmarks(request: &ApplyArguments, path: &Path, map: &Composite) -> Outcome<Writing> {
    let from = request.landmark_space.read(request.reference.as_deref(), "--reference")?;
    let to = request.landmark_space.read(request.image.as_deref(), "--image")?;
    let points = map.map_points(&read_landmarks(path, &from)?)?;
    let output = request.output().to_path_buf();
    Ok(Box::new(move || Ok(write_landmarks(&output, &points, &to)?)))
}
