//! `ffdp measure`: how well two images, their labels or a deformation agree, without registering.
//!
//! [`inputs`] reads and checks, [`report`] measures, [`table`] prints for people.

mod inputs;
mod report;
mod table;

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use ffdp_image::image::Volume;
use ffdp_image::io::images::{header, read_formats, write_volume};
use ffdp_image::io::{FileRow, check_not_an_input, check_writable};
use ffdp_image::metrics::{Difference, jacobian_determinants};
use ffdp_train::user_flags::{UserFlags, WithoutEffect};

use super::apply::SpaceChoice;
use super::chain::TransformChoice;
use super::input::Reading;
use crate::cohort::{Cohort, Column, Pair, Steps};
use crate::failure::{Failure, Result};
use crate::json::to_json;
use crate::pairs::check_effects;
use crate::printer::{Printer, print_to_stdout};
use inputs::Inputs;
use report::Report;

const HELP: &str = "\
What is measured depends on what is given:
  --fixed and --moving                NCC, LNCC, MI, NMI, SSIM, MSE, PSNR
  --fixed-labels and --moving-labels  Dice, HD95, HD90, HD100, ASSD of each label, means, InvDice
  --warp                              det J and folds; the moving side is measured through the warp
  --warp and --inverse-warp           inverse consistency
  -t                                  the same as --warp, of any transform or result folder
  --landmarks                         TRE: distances of landmarks, by the headers and through -t

Distances are in mm, between the surfaces of a label in both maps. HD95 is the 95th percentile of the \
distances of surface elements, each counted by its area (as DeepMind's surface-distance and Learn2Reg do), \
the larger of both directions; programs that count voxels of the border instead give other values. A label that is absent from the fixed or the moving side scores nothing and is \
left out of the means; one that the warp has lost counts as a Dice of 0 and has no distances. HD90cum is the mean of the \
smallest 90 % of the surface distances (FFDP paper). InvDice weights each label by the inverse of its \
volume in the fixed map.

Exit code: 0 done, 1 an error in the input or the request, 2 a defect.";

/// `ffdp measure`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
#[command(group(ArgGroup::new("what").required(true).multiple(true)
    .args(["fixed", "fixed_labels", "warp", "landmarks", "pairs"])))]
#[command(group(ArgGroup::new("images").multiple(true).args(["fixed", "pairs"])))]
#[command(group(ArgGroup::new("label_maps").multiple(true).args(["fixed_labels", "pairs"])))]
#[command(group(ArgGroup::new("warps").multiple(true).args(["warp", "pairs"])))]
pub struct MeasureArguments {
    #[command(flatten)]
    given: UserFlags,
    /// Image that stays.
    #[arg(help = format!("Image that stays, 3-D. {}", read_formats()))]
    #[arg(short, long, value_name = "FILE", requires = "moving")]
    pub fixed: Option<PathBuf>,
    /// Image that is compared with it.
    #[arg(short, long, value_name = "FILE", requires = "fixed")]
    pub moving: Option<PathBuf>,
    /// Labels of the fixed image.
    #[arg(long, value_name = "FILE", requires = "moving_labels")]
    pub fixed_labels: Option<PathBuf>,
    /// Labels that are compared with them.
    #[arg(long, value_name = "FILE", requires = "fixed_labels")]
    pub moving_labels: Option<PathBuf>,
    /// Several pairs: a list (CSV). Any of the columns name, fixed, moving, fixed_labels, moving_labels, transform, warp,
    /// inverse_warp, mask; transforms with semicolons between. A table with a line for each pair, and their means.
    #[arg(long, value_name = "PAIRS.CSV", conflicts_with_all = ["fixed", "moving", "fixed_labels", "moving_labels"])]
    #[arg(conflicts_with_all = ["warp", "inverse_warp", "jacobian_out", "mask", "landmarks", "transform"])]
    pub pairs: Option<PathBuf>,
    /// Displacement on the fixed grid through which the moving side is seen. ITK: LPS mm, 5-D, intent 1007.
    #[arg(short, long, value_name = "FILE")]
    pub warp: Option<PathBuf>,
    /// Write det J of --warp (central differences, on its grid) as an image.
    #[arg(long, value_name = "FILE", requires = "warp")]
    pub jacobian_out: Option<PathBuf>,
    /// Displacement that should undo --warp, on any grid.
    #[arg(long, value_name = "FILE", requires = "warp")]
    pub inverse_warp: Option<PathBuf>,
    /// Place the moving side on the fixed grid by the headers. Without it, --warp and -t other grids
    /// are refused.
    #[arg(long, conflicts_with_all = ["warp", "transform"])]
    pub resample: bool,

    /// Corresponding landmarks of both images (CSV, or Slicer's .fcsv).
    #[arg(long, value_names = ["FIXED", "MOVING"], num_args = 2)]
    pub landmarks: Option<Vec<PathBuf>>,
    /// Coordinates of the landmarks; voxel indices are those of --fixed and --moving.
    #[arg(long, value_name = "SPACE", value_enum, default_value_t = SpaceChoice::File, requires = "landmarks")]
    pub landmark_space: SpaceChoice,
    /// Transform or folder of results through which the moving side is seen. Repeat it for a chain, as apply takes
    /// it: warp, then affine. Images, labels and the fixed landmarks go through it; next to --warp, landmarks alone.
    #[arg(short, long, value_name = "FILE|DIR")]
    pub transform: Vec<TransformChoice>,

    /// The labels to measure, in this order [default: all of either map].
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', requires = "label_maps")]
    pub labels: Option<Vec<i32>>,
    /// Names of the labels: a table (CSV, TSV, ITK-SNAP, FreeSurfer). As ffdp register takes it.
    #[arg(long, value_name = "FILE", requires = "label_maps")]
    pub label_names: Option<PathBuf>,
    /// Measure as the Learn2Reg challenge does. HD95 in voxels, SDlogJ of det J + 3; all files must be on
    /// one grid.
    #[arg(long, requires = "warps", requires = "label_maps")]
    pub learn2reg: bool,
    /// Mask of the fixed grid: where images are compared. Voxels that are not 0 count.
    #[arg(long, value_name = "FILE", requires = "fixed")]
    pub mask: Option<PathBuf>,
    /// Width of the LNCC window in voxels; odd.
    #[arg(long, value_name = "VOXELS", default_value_t = 7, requires = "images")]
    pub window: usize,
    /// Bins of the joint histogram along each axis, 2 to 1024.
    #[arg(long, value_name = "N", default_value_t = 32, requires = "images")]
    pub bins: usize,

    #[command(flatten)]
    pub reading: Reading,
    /// Print JSON instead of a table; null where a measure has no value.
    #[arg(long)]
    pub json: bool,
}

impl MeasureArguments {
    /// The files that are read.
    fn inputs(&self) -> Vec<&Path> {
        let images = [&self.fixed, &self.moving, &self.fixed_labels, &self.moving_labels];
        let fields = [&self.warp, &self.inverse_warp, &self.mask];
        let named = images.into_iter().chain(fields).flatten();
        let named = named.chain(self.landmarks.iter().flatten()).chain(&self.label_names);
        let named = named.map(PathBuf::as_path);
        named.chain(self.transform.iter().flat_map(TransformChoice::paths)).collect()
    }
}

impl MeasureArguments {
    /// Refuses flags that have no effect on what is measured.
    fn refuse_without_effect(&self) -> Result<()> {
        self.reading.nan_policy.check_without_weights("measure")?;
        if self.pairs.is_some() {
            // By its columns.
            return Ok(());
        }
        let images = self.fixed.as_deref().into_iter().chain(self.moving.as_deref());
        self.reading.check_volume(images)?;
        Ok(self.given.refuse(&[
            WithoutEffect {
                flags: &["transform"],
                when: self.warp.is_some() && self.landmarks.is_none(),
                because: "images and labels are seen through --warp",
                fix: "name one of both",
            },
            WithoutEffect {
                flags: &["resample"],
                when: self.fixed.is_none() && self.fixed_labels.is_none(),
                because: "there is neither an image nor a label map",
                fix: "add --fixed and --moving",
            },
            WithoutEffect {
                flags: &["volume", "nan_policy"],
                when: self.fixed.is_none(),
                because: "no image is measured",
                fix: "add --fixed and --moving",
            },
        ])?)
    }
}

/// The columns of a list of which some line must fill one for a flag to have an effect.
const FLAGS_BY_COLUMNS: [(&str, &[&str]); 9] = [
    ("labels", &["fixed_labels"]),
    ("label_names", &["fixed_labels"]),
    ("learn2reg", &["fixed_labels"]),
    ("learn2reg", &["warp", "transform"]),
    ("window", &["fixed"]),
    ("bins", &["fixed"]),
    ("volume", &["fixed"]),
    ("nan_policy", &["fixed"]),
    ("resample", &["fixed", "fixed_labels"]),
];

/// What the table of several pairs has.
const COLUMNS: [Column; 7] = [
    Column { name: "dice", pointer: "/labels/mean/dice", digits: Some(4) },
    Column { name: "hd95_mm", pointer: "/labels/mean/hd95", digits: Some(3) },
    Column { name: "assd_mm", pointer: "/labels/mean/assd", digits: Some(3) },
    Column { name: "ncc", pointer: "/images/ncc", digits: Some(4) },
    Column { name: "local_ncc", pointer: "/images/local_ncc", digits: Some(4) },
    Column { name: "folds", pointer: "/jacobian/true_folds", digits: Some(0) },
    Column { name: "sd_log_jacobian", pointer: "/jacobian/sd_log", digits: Some(4) },
];

/// All pairs of a list; each is what it would be alone.
struct Measurements;

impl Steps for Measurements {
    type Pair = (MeasureArguments, Printer);
    type Device = ();
    type Read = Inputs;
    type Computed = Report;
    type Done = Report;

    fn open(&self, _: usize, _: &Self::Pair) -> Result<()> {
        Ok(())
    }

    fn host_bytes(&self, (request, _): &Self::Pair) -> u64 {
        /// Images and labels of both sides, a displacement, and what is made of them.
        const OF_A_VOXEL: u64 = 60;
        let voxels = |path| header(path).map_or(0, |header| header.geometry.len() as u64);
        let inputs = request.inputs().into_iter().map(voxels);
        OF_A_VOXEL * inputs.max().unwrap_or(0)
    }

    fn read(&self, (request, printer): &Self::Pair) -> Result<Inputs> {
        Inputs::read(request, *printer)
    }

    fn compute(&self, (request, _): &Self::Pair, inputs: Inputs, (): &mut ()) -> Result<Report> {
        Report::of(request, &inputs)
    }

    fn finish(&self, (_, printer): &Self::Pair, report: Report) -> Result<Report> {
        report.warnings().iter().for_each(|warning| printer.warning(warning));
        Ok(report)
    }
}

impl MeasureArguments {
    /// The request for one pair of a list.
    fn of_pair(&self, row: &FileRow) -> Result<Self> {
        check_effects(
            row,
            &[
                ("mask", &["fixed"]),
                ("inverse_warp", &["warp", "transform"]),
                ("transform", &["fixed", "fixed_labels"]),
            ],
        )?;
        if row.text("warp").is_some() && row.text("transform").is_some() {
            let what =
                "transform has no effect next to warp: images and labels are seen through that";
            return Err(row.error(what, "fill in one of both").into());
        }
        let file = |column| row.file(column);
        let request = Self {
            fixed: file("fixed"),
            moving: file("moving"),
            fixed_labels: file("fixed_labels"),
            moving_labels: file("moving_labels"),
            warp: file("warp"),
            inverse_warp: file("inverse_warp"),
            transform: TransformChoice::of_row(row)?,
            mask: file("mask"),
            pairs: None,
            ..self.clone()
        };
        let complete =
            |one: &Option<PathBuf>, other: &Option<PathBuf>| one.is_some() == other.is_some();
        let both = complete(&request.fixed, &request.moving)
            && complete(&request.fixed_labels, &request.moving_labels);
        match both && !request.inputs().is_empty() {
            true => Ok(request),
            false => Err(Failure::user(
                "the line names one image or label map of two, or nothing that can be measured",
                "fill in fixed and moving, fixed_labels and moving_labels, or warp",
            )),
        }
    }
}

/// Measures and prints.
pub fn run(request: &MeasureArguments) -> Result<()> {
    let printer = Printer::new(false, false);
    request.refuse_without_effect()?;
    if let Some(list) = &request.pairs {
        let cohort = Cohort {
            list,
            required: &[],
            optional: &[
                "fixed",
                "moving",
                "fixed_labels",
                "moving_labels",
                "transform",
                "warp",
                "inverse_warp",
                "mask",
            ],
            flags: (&request.given, &FLAGS_BY_COLUMNS),
            title: "Measures",
            columns: &COLUMNS,
            folder: None,
            report: None,
            strict: false,
            devices: 1,
            json: request.json,
            quiet: false,
            verbose: false,
        };
        return cohort.run(&Measurements, |row, _, printer| {
            Ok(Pair::Open((request.of_pair(row)?, printer)))
        });
    }
    if let Some(output) = &request.jacobian_out {
        check_not_an_input(output, &request.inputs())?;
        check_writable(output)?;
    }
    let inputs = Inputs::read(request, printer)?;
    let report = Report::of(request, &inputs)?;
    if let (Some(output), Some(warp)) = (&request.jacobian_out, &inputs.warp) {
        let size = warp.geometry.size;
        let determinants = jacobian_determinants(&warp.values, size, Difference::Central)?;
        write_volume(output, &Volume::new(determinants, warp.geometry.clone())?)?;
    }
    for warning in report.warnings() {
        printer.warning(&warning);
    }
    if request.json {
        return print_to_stdout(&to_json(&report)?);
    }
    print_to_stdout(&table::table(&report))
}
