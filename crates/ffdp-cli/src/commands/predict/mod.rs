//! `ffdp predict`: a trained network registers two images.
//!
//! [`crate::result`] predicts and measures, `results.rs` has what is written.

mod results;

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::{ArgGroup, Args};
use ffdp_image::image::Volume;
use ffdp_image::io::images::{header, read_formats};
use ffdp_image::io::{FileRow, check_not_an_input};
use ffdp_train::RunFolder;
use ffdp_train::predict::{CheckpointChoice, Predictor};
use ffdp_train::settings::{Align, parse_size};
use ffdp_train::user_flags::UserFlags;

use super::input::{Reading, image, labels_on};
use crate::cohort::{Cohort, Column, Pair, Steps, run_one};
use crate::device::DeviceChoice;
use crate::disk::{Forecast, Written};
use crate::failure::Result;
use crate::json::to_json;
use crate::label_names::{LabelNames, NamedOverlap};
use crate::manifest::{Claim, Identity, place};
use crate::pairs::{check_effects, named};
use crate::printer::{Printer, print_to_stdout, summarise};
use crate::progress::ProgressPrinter;
use crate::result::{PredictInputs, Prediction};
use results::{Files, Measures, summary};

const HELP: &str = "\
The images may have any size, spacing and orientation: they are brought onto a grid as the training had \
it, and the moving image itself is sampled once, on the fixed image's grid.

The folder --output then holds
  warped.nii.gz         the moving image on the fixed grid
  warp.nii.gz           the whole map as a displacement (ITK: LPS mm), for ffdp apply -t
  warped_labels.nii.gz  with --moving-labels
  labels.csv            Dice of every label (with labels of both images)
  metrics.json          similarity, folds and, with labels of both images, Dice: before, predicted, and \
refined
  manifest.json         the files of this run, and what determines its results

The same command again replaces its own results. A folder with results of another run is refused; \
--overwrite removes that run's files, and no others, once there is something to put in their place.

Exit code: 0 done, 1 an error in the input or the request, 2 a defect.";

/// `ffdp predict`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
#[command(group(ArgGroup::new("label_maps").multiple(true).args(["fixed_labels", "pairs"])))]
pub struct PredictArguments {
    #[command(flatten)]
    given: UserFlags,
    /// Folder of a training (the --output of ffdp train)
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Which checkpoint of it. The best, the last, or that of an epoch by its number
    #[arg(long, value_name = "best|last|N", default_value_t = CheckpointChoice::Best)]
    pub checkpoint: CheckpointChoice,
    /// Image that stays.
    #[arg(help = format!("Image that stays, 3-D. {}", read_formats()))]
    #[arg(short, long, value_name = "FILE", required_unless_present = "pairs")]
    fixed: Option<PathBuf>,
    /// Image that is deformed
    #[arg(short, long, value_name = "FILE", required_unless_present = "pairs")]
    moving: Option<PathBuf>,
    /// Several pairs: a list (CSV), as ffdp register takes it. The columns are fixed, moving and, as needed, name, fixed_labels,
    /// moving_labels. The results of a pair are in its own folder in --output, with summary.csv and index.html.
    #[arg(long, value_name = "PAIRS.CSV", conflicts_with_all = ["fixed", "moving", "fixed_labels", "moving_labels"])]
    pub pairs: Option<PathBuf>,
    /// Folder for the results
    #[arg(short, long, alias = "out", value_name = "DIR")]
    pub output: PathBuf,
    /// Replace the results of another run. Its files are removed first (those that its manifest.json lists, and the
    /// names that results have)
    #[arg(long)]
    pub overwrite: bool,
    /// Labels of the fixed image
    #[arg(long, value_name = "FILE", requires = "moving_labels")]
    pub fixed_labels: Option<PathBuf>,
    /// Labels of the moving image, carried along
    #[arg(long, value_name = "FILE")]
    pub moving_labels: Option<PathBuf>,
    /// Names of the labels: a table (CSV, TSV, ITK-SNAP, FreeSurfer). As ffdp register takes it
    #[arg(long, value_name = "FILE", requires = "label_maps")]
    pub label_names: Option<PathBuf>,
    /// Improve the prediction by at most so many iterations of registration. They are greedy, at full
    /// resolution, with the similarity that was trained
    #[arg(long, value_name = "N")]
    pub refine: Option<usize>,
    /// Size of the network's grid, N or XxYxZ [default: as in training]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// How the moving image is first laid onto the fixed one [default: as in training]
    #[arg(long, value_enum)]
    pub align: Option<Align>,
    #[command(flatten)]
    pub reading: Reading,
    /// Where to compute. Only what was compiled in is accepted
    #[arg(long, value_name = "cpu|cuda[:I]|wgpu", default_value = DeviceChoice::AUTO)]
    pub device: DeviceChoice,
    /// Print metrics.json to stdout instead of a summary
    #[arg(long)]
    pub json: bool,
    /// Say nothing but errors; on stdout only what --json asks for
    #[arg(short, long)]
    pub quiet: bool,
}

impl PredictArguments {
    /// The image that stays.
    fn fixed(&self) -> &Path {
        named(&self.fixed)
    }

    /// The image that is deformed.
    fn moving(&self) -> &Path {
        named(&self.moving)
    }

    /// The request for one pair of a list.
    fn of_pair(&self, row: &FileRow, name: &str) -> Result<Self> {
        check_effects(row, &[("fixed_labels", &["moving_labels"])])?;
        Ok(Self {
            fixed: row.file("fixed"),
            moving: row.file("moving"),
            pairs: None,
            output: self.output.join(name),
            fixed_labels: row.file("fixed_labels"),
            moving_labels: row.file("moving_labels"),
            ..self.clone()
        })
    }

    /// The images, labels and names that are read.
    fn inputs(&self) -> Vec<&Path> {
        let labels = [&self.fixed_labels, &self.moving_labels, &self.label_names];
        let labels = labels.into_iter().flatten();
        [self.fixed(), self.moving()].into_iter().chain(labels.map(PathBuf::as_path)).collect()
    }

    /// What decides the results.
    fn identity(&self) -> Identity {
        let files = [
            ("model", Some(&self.model)),
            ("fixed", self.fixed.as_ref()),
            ("moving", self.moving.as_ref()),
            ("fixed_labels", self.fixed_labels.as_ref()),
            ("moving_labels", self.moving_labels.as_ref()),
            ("label_names", self.label_names.as_ref()),
        ];
        let files = files.into_iter().filter_map(|(name, file)| Some((name, place(file?))));
        let others = [
            ("checkpoint", Some(self.checkpoint.to_string())),
            ("refine", self.refine.map(|iterations| iterations.to_string())),
            ("size", self.size.clone()),
            ("align", self.align.map(|align| format!("{align:?}"))),
        ];
        let others = others.into_iter().chain(self.reading.identity());
        files.chain(others.filter_map(|(name, value)| Some((name, value?)))).collect()
    }
}

/// What the summary has of a pair.
const COLUMNS: [Column; 7] = [
    Column { name: "verdict", pointer: "/verdict", digits: Some(0) },
    Column { name: "dice_before", pointer: "/phases/0/dice", digits: Some(4) },
    Column { name: "dice", pointer: "/phases/1/dice", digits: Some(4) },
    Column { name: "dice_refined", pointer: "/phases/2/dice", digits: Some(4) },
    Column { name: "local_ncc", pointer: "/phases/1/local_ncc_foreground", digits: Some(4) },
    Column { name: "folds", pointer: "/folds/voxels", digits: Some(0) },
    Column { name: "predict_s", pointer: "/seconds/predict", digits: Some(2) },
];

/// Predicts, perhaps refines, writes and measures.
pub fn run(request: &PredictArguments) -> Result<()> {
    let printer = Printer::new(request.quiet, false);
    request.reading.nan_policy.check_without_weights("predict")?;
    let label_names = LabelNames::of(request.label_names.as_deref())?;
    let predictions = Predictions { request, label_names };
    if let Some(list) = &request.pairs {
        let cohort = Cohort {
            list,
            required: &["fixed", "moving"],
            optional: &["fixed_labels", "moving_labels"],
            flags: (&request.given, &[("label_names", &["fixed_labels"])]),
            title: "Predictions",
            columns: &COLUMNS,
            folder: Some(&request.output),
            report: Some("metrics.json"),
            strict: false,
            devices: 1,
            json: request.json,
            quiet: request.quiet,
            verbose: false,
        };
        return cohort.run(&predictions, |row, name, printer| {
            let case = Case::new(request.of_pair(row, name)?, printer)?;
            let metrics =
                case.claim.is_done(case.printer)?.then(|| case.files.read_metrics()).flatten();
            Ok(metrics.map_or_else(|| Pair::Open(case), Pair::Kept))
        });
    }
    let measures = run_one(&predictions, Case::new(request.clone(), printer)?)?;
    printer.note(&format!("results are in {}", request.output.display()));
    match request.json {
        true => print_to_stdout(&to_json(&measures)?),
        false => summarise(request.quiet, || summary(&measures)),
    }
}

/// What all pairs have in common.
struct Predictions<'a> {
    request: &'a PredictArguments,
    /// What labels are called.
    label_names: LabelNames,
}

/// A pair that may be read.
struct Case {
    request: PredictArguments,
    files: Files,
    claim: Claim,
    printer: Printer,
}

impl Case {
    fn new(request: PredictArguments, printer: Printer) -> Result<Self> {
        request.reading.check_volume([request.fixed(), request.moving()])?;
        let files = Files::in_folder(&request.output);
        let claim = files.claim(&request)?;
        Ok(Self { request, files, claim, printer })
    }
}

/// A trained network on a device.
struct Loaded {
    device: Device,
    predictor: Predictor,
}

/// A pair of images and what was predicted for it.
struct Predicted {
    inputs: PredictInputs,
    prediction: Prediction,
}

impl Steps for Predictions<'_> {
    type Pair = Case;
    type Device = Loaded;
    type Read = PredictInputs;
    type Computed = Predicted;
    type Done = Measures;

    fn open(&self, _: usize, _: &Case) -> Result<Loaded> {
        let device = self.request.device.open()?;
        let predictor = load(self.request, &device)?;
        Ok(Loaded { device, predictor })
    }

    fn host_bytes(&self, case: &Case) -> u64 {
        /// Images, their placements and the map in its forms.
        const OF_A_VOXEL: u64 = 60;
        let voxels = header(case.request.fixed()).map_or(0, |header| header.geometry.len());
        OF_A_VOXEL * voxels as u64
    }

    fn read(&self, case: &Case) -> Result<PredictInputs> {
        let voxels = header(case.request.fixed())?.geometry.len() as u64;
        let labels = case.request.moving_labels.is_some();
        let written = Written { displacements: 1, labels, jacobian: false, checkpoint: false };
        Forecast::of_registration(voxels, written).check_file(
            "the results of the prediction",
            &case.request.output.join("warp.nii.gz"),
        )?;
        read(&case.request, &case.files, case.printer)
    }

    fn compute(
        &self,
        case: &Case,
        inputs: PredictInputs,
        Loaded { device, predictor }: &mut Loaded,
    ) -> Result<Predicted> {
        let Case { request, files, printer, .. } = case;
        files.prepare()?;
        let mut progress = ProgressPrinter::new(*printer);
        let prediction = Prediction::of(predictor, &inputs, request.refine, device, &mut progress)?;
        Ok(Predicted { inputs, prediction })
    }

    fn finish(&self, case: &Case, Predicted { inputs, prediction }: Predicted) -> Result<Measures> {
        let named = |overlap| NamedOverlap { overlap, names: self.label_names.clone() };
        let dice = prediction.overlap(&inputs)?.map(named);
        case.claim.begin(&[])?;
        let measures = case.files.write(&case.request, prediction, dice)?;
        case.claim.clone().complete()?;
        let reasons = &measures.result.assessment.reasons;
        reasons.iter().for_each(|reason| case.printer.warning(reason));
        Ok(measures)
    }
}

fn load(request: &PredictArguments, device: &Device) -> Result<Predictor> {
    let run = RunFolder::new(&request.model);
    let mut predictor = Predictor::load(&run, request.checkpoint, device)?;
    if let Some(size) = &request.size {
        predictor = predictor.with_size(parse_size(size)?);
    }
    if let Some(align) = request.align {
        predictor.align = align;
    }
    Ok(predictor)
}

fn read(request: &PredictArguments, files: &Files, printer: Printer) -> Result<PredictInputs> {
    let PredictArguments { fixed_labels, moving_labels, .. } = request;
    let (fixed, moving) = (request.fixed(), request.moving());
    let paths = request.inputs();
    for file in files.all() {
        check_not_an_input(file, &paths)?;
    }
    let reading = request.reading;
    let (fixed_image, moving_image) =
        (image(fixed, reading, printer)?, image(moving, reading, printer)?);
    let of = |labels: &Option<PathBuf>, image: &Volume, path: &Path| {
        labels.as_ref().map(|labels| labels_on(labels, &image.geometry, path)).transpose()
    };
    Ok(PredictInputs {
        fixed_labels: of(fixed_labels, &fixed_image, fixed)?,
        moving_labels: of(moving_labels, &moving_image, moving)?,
        fixed: fixed_image,
        moving: moving_image,
    })
}
