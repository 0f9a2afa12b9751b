//! The flags of `ffdp register`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, ArgGroup, Args, ValueEnum};
use ffdp_groups::series::Reference;
use ffdp_image::Error;
use ffdp_image::io::FileRow;
use ffdp_image::io::images::{header, read_formats};
use ffdp_register::{Settings, Stage};
use ffdp_train::user_flags::{UserFlags, WithoutEffect};

use super::channels;
use crate::commands::apply::SpaceChoice;
use crate::commands::chain::TransformChoice;
use crate::commands::folder::FolderArguments;
use crate::commands::input::Reading;
use crate::commands::print::PrintArguments;
use crate::failure::{Failure, Result};
use crate::mesh::MeshArguments;
use crate::pairs::{check_effects, named};
use crate::settings::{SettingsArguments, deforms};

const HELP: &str = "\
The stages are moments, rigid, affine and a deformation. --transform chooses the last one, --aligned starts \
with the deformation. The images may differ in spacing, orientation, size and origin.

Written to the output folder:
  warped.nii.gz         the moving image on the fixed grid, in its own intensities
  affine.txt            the affine map (ITK, ANTs)
  affine.mat            the same in ITK's MATLAB format, which ANTs and ANTsPy can invert
  warp.nii.gz           the displacement before it (ITK, ANTs: LPS mm, 5-D, intent 1007)
  inverse_warp.nii.gz   the inverse displacement (not with --no-inverse)
  bspline.tfm           the same displacement as control points (ITK; with --transform ffd)
  log_jacobian.nii.gz   ln det J of the whole map (with --jacobian)
  warped_labels.nii.gz  the moving labels on the fixed grid (with --moving-labels)
  labels.csv            Dice of every label (with labels of both images)
  report.html           slices, the deformation, convergence and measures on one page
  metrics.json          similarity, folds, Dice, losses, times, memory, settings
  settings.toml         all settings; --settings with it repeats the run
  log.jsonl             one JSON object per event, written as it happens
  manifest.json         the files of this run, and what determines its results
  checkpoint/           during the run: the state that --resume continues from

With a moving image of several volumes (4-D) every volume is registered: to the fixed image or, without --fixed, to the \
mean of the series or the volume that --reference names (motion correction; rigid unless --transform says more). \
Written are warped.nii.gz (4-D), reference.nii.gz, motion.tsv (rotations, translations, framewise displacement), \
transforms.csv with the folder transforms/ (-t OUTPUT of ffdp apply takes them), and the report, metrics, settings and log.

The same command again replaces its own results. A folder with results of another run (other images, \
settings or outputs) is refused; --overwrite removes the files of that run, and no others. Earlier files are removed when the first \
checkpoint or result is written: a run that is refused leaves them. Repeat the arguments of a run that was killed with \
--resume to continue it.

The list of --pairs, files relative to its folder:
  fixed,moving,name,fixed_labels,moving_labels
  sub-01_T1w.nii.gz,sub-02_T1w.nii.gz,01_02,sub-01_dseg.nii.gz,sub-02_dseg.nii.gz
  sub-01_T1w.nii.gz,sub-03_T1w.nii.gz,01_03,sub-01_dseg.nii.gz,sub-03_dseg.nii.gz

With --pairs the results of a pair are in OUTPUT/NAME (the column name, or MOVING_to_FIXED), with a table of all \
in summary.csv and index.html. Devices are opened and kernels compiled once. While one pair is registered, the next \
is read and the last one written. Each of several --devices takes pairs of its own (a device named twice has two at a \
time). A pair that fails is reported and the others continue. The same command again registers the pairs that are \
not complete.

Every run ends with a verdict, in the summary, the report and metrics.json: aligned, doubtful (with what speaks \
against it) or failed (worse than before by labels or landmarks, a map that mirrors or collapses space, a lost overlap).

Exit code: 0 done, 1 an error in the input or the request (with --pairs, of at least one pair), 2 a defect or a \
failure of the device, 3 with --strict: a registration failed.";

/// What only one pair can have on the command line; of several, the list says it.
const OF_ONE_PAIR: [&str; 9] = [
    "fixed",
    "moving",
    "fixed_labels",
    "moving_labels",
    "fixed_mask",
    "moving_mask",
    "channels",
    "landmarks",
    "plan",
];

/// `ffdp register`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
#[command(group(ArgGroup::new("label_maps").multiple(true).args(["fixed_labels", "pairs"])))]
pub struct RegisterArguments {
    #[command(flatten)]
    pub given: UserFlags,
    /// Image that stays.
    #[arg(help = format!("Image that stays, 3-D. {}. Left out, a moving image of several volumes is registered to itself", read_formats()))]
    #[arg(short, long, value_name = "FILE")]
    pub fixed: Option<PathBuf>,
    /// Image that is deformed, of several volumes (4-D) all. On any grid; it need not overlap the fixed one.
    #[arg(short, long, value_name = "FILE", required_unless_present = "pairs")]
    moving: Option<PathBuf>,
    /// Without --fixed: what volumes are registered to [default: mean]. The mean is that of a first pass.
    #[arg(long, value_name = "mean|first|middle|N", conflicts_with_all = ["fixed", "pairs"])]
    pub reference: Option<Reference>,
    /// Several pairs: a list (CSV), shown at the end of --help. Its first line names the columns fixed, moving and, as
    /// needed, name, fixed_labels, moving_labels, fixed_mask, moving_mask, initial, fixed_landmarks, moving_landmarks,
    /// fixed_channels, moving_channels (several files with semicolons between). The results of a pair are in its own folder
    /// in the output folder.
    #[arg(long, value_name = "PAIRS.CSV", conflicts_with_all = OF_ONE_PAIR)]
    pub pairs: Option<PathBuf>,
    /// Folder for the results. It is made if it does not exist.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// Labels on the fixed grid. With --moving-labels, Dice before and after is computed, and with --label-terms they drive
    /// the registration.
    #[arg(long, value_name = "FILE", requires = "moving_labels")]
    pub fixed_labels: Option<PathBuf>,
    /// Labels on the moving grid. They are warped with the nearest label.
    #[arg(long, value_name = "FILE")]
    pub moving_labels: Option<PathBuf>,

    /// The labels that are measured [default: all of either map]. All are warped.
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', requires = "fixed_labels")]
    pub labels: Option<Vec<i32>>,
    /// Names of the labels: a table (CSV, TSV, ITK-SNAP, FreeSurfer). CSV and TSV with the columns id (or index, label) and
    /// name, ITK-SNAP's label description or FreeSurfer's colour table. The names are in the report, labels.csv and
    /// metrics.json.
    #[arg(long, value_name = "FILE", requires = "label_maps")]
    pub label_names: Option<PathBuf>,

    /// How much each voxel of the fixed image counts, 0 to 1. An image on its grid. Of a series that is registered to itself,
    /// of its reference.
    #[arg(long, value_name = "FILE")]
    pub fixed_mask: Option<PathBuf>,
    /// The same for the moving image. Of a series, for each volume.
    #[arg(long, value_name = "FILE")]
    pub moving_mask: Option<PathBuf>,

    /// Further channels of both images, on their grids. Other contrasts, or features that a network
    /// has written; all volumes of a 4-D file. May be repeated. All channels count the same, unless terms of a sum in
    /// --settings name them.
    #[arg(long, value_names = ["FIXED", "MOVING"], num_args = 2, action = ArgAction::Append)]
    pub channels: Vec<PathBuf>,

    /// Transform to start from, or a folder of results. It maps points of the fixed to points of the moving image: a file of
    /// ITK, ANTs or FreeSurfer, a displacement field, the flow.json of ffdp shape, or the output folder of a registration;
    /// [FILE,1] takes its inverse. The stages improve it; if it deforms, only the deformable ones are done. Of
    /// a series, the first volume starts there.
    #[arg(long, value_name = "FILE|DIR|[FILE,1]")]
    pub initial: Option<TransformChoice>,
    /// Corresponding landmarks of both images. Their distance before and after is
    /// measured (CSV, or Slicer's .fcsv), and with --landmark-sigma they drive the registration.
    #[arg(long, value_names = ["FIXED", "MOVING"], num_args = 2)]
    pub landmarks: Option<Vec<PathBuf>>,
    /// Coordinates of the landmarks.
    #[arg(long, value_name = "SPACE", value_enum, default_value_t = SpaceChoice::File, requires = "landmarks")]
    pub landmark_space: SpaceChoice,
    /// How images are written. With ome-zarr warped.zarr, warp.zarr and so on, each with its pyramid.
    #[arg(long, value_enum, default_value_t)]
    pub format: ImageFormat,
    /// Intensity where the moving image does not reach. Default: 0, or what the border of the moving image shows where that
    /// is not dark: air in CT, white around a stained section.
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub background: Option<f32>,
    /// Exit with 3 when the registration failed by its verdict. All results are written.
    #[arg(long)]
    pub strict: bool,
    /// Do not compute the inverse displacement and its error.
    #[arg(long)]
    pub no_inverse: bool,
    /// Write the map of volume change, ln det J, as log_jacobian.nii.gz. On the fixed grid, of the whole map with its affine
    /// part, by central differences: positive where the moving image is larger. What folds is written as ln 0.001.
    #[arg(long)]
    pub jacobian: bool,

    /// What is done.
    #[command(flatten)]
    pub settings: SettingsArguments,

    #[command(flatten)]
    pub reading: Reading,
    /// Accept label maps (intent 1002) as images.
    #[arg(long)]
    pub labels_as_images: bool,

    /// Where to compute.
    #[command(flatten)]
    pub mesh: MeshArguments,
    /// For images that do not fit into memory: slab by slab. They are read, registered and written so. With --device-memory,
    /// what does not fit on the device is kept in host memory. There is an inverse only where the method gives it
    /// (syn, svf, gnk), Dice of labels but no distances, and checkpoints of one process only.
    #[arg(long)]
    pub slabs: bool,
    #[command(flatten)]
    pub folder: FolderArguments,
    /// Shortest time between two checkpoints, which are saved at the end of a level.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub checkpoint_every: f64,
    #[command(flatten)]
    pub print: PrintArguments,
}

impl RegisterArguments {
    /// The image that stays.
    pub fn fixed(&self) -> &Path {
        named(&self.fixed)
    }

    /// The image that is deformed.
    pub fn moving(&self) -> &Path {
        named(&self.moving)
    }

    /// What is done. An initial transform that deforms leaves nothing to the linear stages.
    pub fn resolve(&self) -> Result<Settings> {
        let initial = self.initial.as_ref();
        let deforms = initial.map(TransformChoice::is_deforming).transpose()?.unwrap_or(false);
        let aligned = self.settings.aligned || deforms;
        let settings = SettingsArguments { aligned, ..self.settings.clone() };
        let settings = match self.fixed.is_none() && self.pairs.is_none() {
            true => settings.resolve_motion(),
            false => settings.resolve(),
        }?;
        if self.pairs.is_none() {
            self.check_driven(&settings)?;
        }
        Ok(settings)
    }

    /// As [`Drivers::check`], of the flags.
    pub fn check_driven(&self, settings: &Settings) -> Result<()> {
        let labels = self.fixed_labels.is_some();
        Drivers { landmarks: self.landmarks.is_some(), labels }.check(settings)
    }

    /// Demands a stage that is cut where the images are to be, by one process.
    pub fn check_cuts(&self, settings: &Settings) -> Result<()> {
        let is_linear = !deforms(settings);
        let shared = self.pairs.is_none() && self.mesh.has_several_devices();
        let rule = |flags, when| WithoutEffect {
            flags,
            when,
            because: "all stages are linear, and those are not cut",
            fix: "end the settings with a deformable stage, as --transform greedy",
        };
        Ok(self.given.refuse(&[
            rule(&["shards"], is_linear),
            rule(&["devices"], is_linear && shared),
            rule(&["device_memory"], is_linear && !self.slabs),
        ])?)
    }

    /// Demands one pair of single volumes where planes are read.
    pub fn check_slabs(&self) -> Result<()> {
        if !self.slabs {
            return Ok(());
        }
        if self.pairs.is_some() {
            return Err(Failure::user(
                "--slabs registers one pair with all the memory that there is, and --pairs names several",
                "register the pairs one after the other, each with --slabs, or leave --slabs out",
            ));
        }
        // What cannot be read is said where it is read.
        let volumes = header(self.moving()).map_or(1, |of| of.volumes());
        if volumes > 1 && self.reading.volume.is_none() {
            return Err(Failure::user(
                format!(
                    "--slabs reads planes of one volume; {} has {volumes}",
                    self.moving().display()
                ),
                "choose one with --volume, or leave --slabs out: then every volume is registered",
            ));
        }
        Ok(())
    }

    /// Whether a series is registered: all volumes of a moving image that has several.
    ///
    /// # Errors
    /// Without a fixed image, where the moving one has a single volume, or one was chosen.
    pub fn is_series(&self) -> Result<bool> {
        if self.pairs.is_some() {
            return Ok(false);
        }
        let of_one = self.reading.volume.is_some() || self.slabs;
        if self.fixed.is_some() {
            // What cannot be read is said where it is read.
            return Ok(!of_one && header(self.moving()).is_ok_and(|of| of.volumes() > 1));
        }
        let volumes = header(self.moving())?.volumes();
        if volumes > 1 && !of_one {
            return Ok(true);
        }
        Err(Failure::user(
            format!(
                "an image of one volume is registered to another one, and --fixed names none; {} has {volumes}",
                self.moving().display()
            ),
            "give --fixed; without it a moving image of several volumes is registered to itself, without --volume and \
             --slabs",
        ))
    }

    /// The request for one pair of a list, with results in a folder of its own.
    ///
    /// # Errors
    /// For what a line names in vain.
    pub fn of_pair(&self, row: &FileRow, name: &str) -> Result<Self> {
        check_effects(
            row,
            &[
                ("fixed_labels", &["moving_labels"]),
                ("fixed_channels", &["moving_channels"]),
                ("moving_channels", &["fixed_channels"]),
                ("fixed_landmarks", &["moving_landmarks"]),
                ("moving_landmarks", &["fixed_landmarks"]),
            ],
        )?;
        let file = |column| row.file(column);
        let landmarks = file("fixed_landmarks").zip(file("moving_landmarks"));
        Ok(Self {
            fixed: file("fixed"),
            moving: file("moving"),
            pairs: None,
            output: self.output.join(name),
            fixed_labels: file("fixed_labels"),
            moving_labels: file("moving_labels"),
            fixed_mask: file("fixed_mask"),
            moving_mask: file("moving_mask"),
            channels: channels::of_row(row)?,
            initial: file("initial").map(Into::into).or_else(|| self.initial.clone()),
            landmarks: landmarks.map(|(fixed, moving)| vec![fixed, moving]),
            ..self.clone()
        })
    }

    /// The time between two checkpoints.
    pub fn checkpoint_interval(&self) -> Result<Duration> {
        Duration::try_from_secs_f64(self.checkpoint_every).map_err(|_| {
            let value = self.checkpoint_every;
            let what = format!("--checkpoint-every must be a time, got {value}");
            Failure::user(what, "use 0 or more")
        })
    }

    /// All files that are read but the settings.
    pub fn inputs(&self) -> Vec<&Path> {
        let labels = [&self.fixed_labels, &self.moving_labels];
        let masks = [&self.fixed_mask, &self.moving_mask];
        let optional = labels.into_iter().chain(masks).flatten();
        let initial = self.initial.iter().flat_map(TransformChoice::paths);
        let several = self.channels.iter().chain(self.landmarks.iter().flatten());
        let several = several.chain(&self.label_names);
        let all = optional.chain(several).map(PathBuf::as_path).chain(initial);
        let fixed = self.fixed.as_deref();
        fixed.into_iter().chain([self.moving()]).chain(all).collect()
    }

    /// Which of the fixed and the moving image has a mask.
    pub fn masked(&self) -> [bool; 2] {
        [self.fixed_mask.is_some(), self.moving_mask.is_some()]
    }
}

/// What a pair has besides its images that may drive its registration.
#[derive(Clone, Copy, Debug)]
pub struct Drivers {
    /// Corresponding landmarks.
    pub landmarks: bool,
    /// Label maps of both images.
    pub labels: bool,
}

impl Drivers {
    /// Demands what is to drive the registration by its settings, and stages that it drives.
    ///
    /// # Errors
    /// For landmarks or labels that are to drive and are not there, or drive no stage.
    pub fn check(self, settings: &Settings) -> Result<()> {
        let moments = |stage: &Stage| matches!(stage, Stage::Moments(_));
        if settings.landmark_sigma_mm.is_some() && settings.stages.iter().all(moments) {
            let because = "moments are those of the images alone";
            let fix = "add a stage, as --transform rigid";
            return Err(Error::without_effect("--landmark-sigma", because, fix).into());
        }
        if settings.landmark_sigma_mm.is_some() && !self.landmarks {
            return Err(Failure::user(
                "landmark_sigma_mm (--landmark-sigma) says how exactly landmarks are known, and there are none",
                "give them by --landmarks FIXED MOVING, or leave it out",
            ));
        }
        if settings.label_term.is_some() && !self.labels {
            return Err(Failure::user(
                "the labels of label_term (--label-terms) drive the registration, and there are no label maps",
                "give them by --fixed-labels and --moving-labels, or leave label_term out",
            ));
        }
        Ok(())
    }
}

/// How images are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ImageFormat {
    /// NIfTI, compressed.
    #[default]
    Nifti,
    /// OME-Zarr 0.5.
    OmeZarr,
}

impl ImageFormat {
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Nifti => ".nii.gz",
            Self::OmeZarr => ".zarr",
        }
    }
}
