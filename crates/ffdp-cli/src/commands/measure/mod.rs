//! `ffdp measure`: how well two images, their labels or a deformation agree, without registering.
//!
//! [`inputs`] reads and checks, [`report`] measures, [`table`] prints for people.

mod inputs;
mod report;
mod table;

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use ffdp_burn::image::Volume;
use ffdp_burn::io::nifti::write_volume;
use ffdp_burn::io::{check_not_an_input, check_writable};
use ffdp_burn::metrics::{Difference, jacobian_determinants};

use super::apply::SpaceChoice;
use super::chain::TransformChoice;
use crate::failure::{Failure, Outcome};
use crate::nan_policy::NanPolicy;
use crate::printer::{Printer, print_to_stdout};
use inputs::Inputs;
use report::Report;

const HELP: &str = "\
What is measured depends on what is given:
  --fixed and --moving                NCC, LNCC, MI, NMI, SSIM, MSE, PSNR
  --fixed-labels and --moving-labels  Dice, HD95, HD90, HD100, ASSD of each label, means, InvDice
  --warp                              det J and folds; the moving side is measured through the warp
  --warp and --inverse-warp           inverse consistency
  --landmarks                         TRE: distances of landmarks, by the headers and through -t

Distances are in mm, between the surfaces of a label in both maps. HD95 is the 95th percentile of the \
distances of surface elements, each counted by its area (as DeepMind's surface-distance and Learn2Reg do), \
the larger of both directions; programs that count voxels of the border instead give other values. A label that is absent from the fixed or the moving side scores nothing and is \
left out of the means; one that the warp has lost counts as a Dice of 0 and has no distances. HD90cum is the mean of the \
smallest 90 % of the surface distances (FFDP paper). InvDice weights each label by the inverse of its \
volume in the fixed map.

Exit code: 0 done, 1 the input or request cannot be worked with, 2 a defect.";

/// `ffdp measure`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
#[command(group(ArgGroup::new("what").required(true).multiple(true)
    .args(["fixed", "fixed_labels", "warp", "landmarks"])))]
pub struct MeasureArguments {
    /// Image that stays (NIfTI, 3-D).
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
    /// Displacement on the fixed grid (ITK: LPS mm, 5-D, intent 1007). The moving image and labels
    /// are seen through it.
    #[arg(short, long, value_name = "FILE")]
    pub warp: Option<PathBuf>,
    /// Write det J of --warp (central differences, on its grid) as an image.
    #[arg(long, value_name = "FILE", requires = "warp")]
    pub jacobian_out: Option<PathBuf>,
    /// Displacement that should undo --warp, on any grid.
    #[arg(long, value_name = "FILE", requires = "warp")]
    pub inverse_warp: Option<PathBuf>,
    /// Without --warp: place the moving side on the fixed grid by the headers. Otherwise other grids
    /// are refused.
    #[arg(long, conflicts_with = "warp")]
    pub resample: bool,

    /// Corresponding landmarks of the fixed and the moving image (CSV, or Slicer's .fcsv).
    #[arg(long, value_names = ["FIXED", "MOVING"], num_args = 2)]
    pub landmarks: Option<Vec<PathBuf>>,
    /// What the landmarks' numbers are; voxel indices are those of --fixed and --moving.
    #[arg(long, value_enum, default_value_t = SpaceChoice::Ras, requires = "landmarks")]
    pub landmark_space: SpaceChoice,
    /// Transform that the fixed landmarks are brought through; repeat it for a chain, as apply takes
    /// it: warp, then affine.
    #[arg(short, long, value_name = "FILE", requires = "landmarks")]
    pub transform: Vec<TransformChoice>,

    /// The labels to measure, in this order [default: all of either map].
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', requires = "fixed_labels")]
    pub labels: Option<Vec<i32>>,
    /// Measure as the Learn2Reg challenge does: HD95 in voxels, SDlogJ of det J + 3. All files must be on
    /// one grid.
    #[arg(long, requires = "warp", requires = "fixed_labels")]
    pub learn2reg: bool,
    /// Voxels of the fixed grid that count for the similarity of images: those that are not 0.
    #[arg(long, value_name = "FILE", requires = "fixed")]
    pub mask: Option<PathBuf>,
    /// Width of the LNCC window in voxels; odd.
    #[arg(long, value_name = "VOXELS", default_value_t = 7, requires = "fixed")]
    pub window: usize,
    /// Bins of the joint histogram along each axis, 2 to 1024.
    #[arg(long, value_name = "N", default_value_t = 32, requires = "fixed")]
    pub bins: usize,

    /// Of an image file with several volumes, the one to use, from 0.
    #[arg(long, value_name = "K")]
    pub volume: Option<usize>,
    /// What to do about NaN and infinite voxels.
    #[arg(long, value_enum, default_value_t = NanPolicy::Error)]
    pub nan_policy: NanPolicy,
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
        let named = named.chain(self.landmarks.iter().flatten()).map(PathBuf::as_path);
        named.chain(self.transform.iter().flat_map(TransformChoice::paths)).collect()
    }
}

/// Measures and prints.
pub fn run(request: &MeasureArguments) -> Outcome<()> {
    let printer = Printer::new(false, false);
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
        let json = serde_json::to_string_pretty(&report);
        let json = json.map_err(|reason| Failure::user(reason.to_string(), "report this"))?;
        return print_to_stdout(&format!("{json}\n"));
    }
    print_to_stdout(&table::table(&report))
}
