//! The flags of `ffdp template`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ffdp_groups::template::{Average, Intensities, Sharpening, TemplateSettings};
use ffdp_register::{Settings, Stage};
use ffdp_train::user_flags::{UserFlags, WithoutEffect};

use crate::commands::group::GroupArguments;
use crate::failure::{Failure, Result};
use crate::settings::{SettingsArguments, deforms};

const HELP: &str = "\
The images are placed by their centres of mass and averaged. In linear rounds each is registered to the average by rigid \
and affine stages, in deformable rounds by a deformation as well. After each round what the maps have in common is taken out, \
so that the template has the mean shape of all, and the images are averaged anew. No image is a reference, and the order of \
the list changes no bit. The flags of ffdp register choose how images are registered.

Written to the output folder:
  template.nii.gz       the template: the sharpened average
  mean.nii.gz           the mean of the images on it
  variance.nii.gz       their variance
  labels.nii.gz         the label that most have at each voxel (with a column labels)
  NAME/affine.txt       of each image, the affine part of the map from the template (ITK, ANTs)
  NAME/warp.nii.gz      the displacement before it (ITK, ANTs: LPS mm, 5-D, intent 1007)
  NAME/inverse_warp.nii.gz
  report.html           pictures of the rounds, convergence and measures on one page
  metrics.json          rounds, change, sharpness, overlap of labels, settings, times
  settings.toml         how images were registered, for --settings
  log.jsonl             one JSON object per event, written as it happens
  manifest.json         the files of this run, and what determines its results
  checkpoint/           during the run: the state that --resume continues from

The list of --images, files relative to its folder:
  image,name,labels
  sub-01_T1w.nii.gz,sub-01,sub-01_dseg.nii.gz
  sub-02_T1w.nii.gz,sub-02,sub-02_dseg.nii.gz

ffdp apply -t OUTPUT/NAME brings an image onto the template, with --inverse the template onto it.

An image that cannot be read, is constant, holds NaN or is in the list twice is reported and left out; one whose \
registration fails is left out of that round and tried again in the next. Repeat the arguments of a run that was killed with \
--resume: it goes on from the last image that was registered.

Exit code: 0 done, 1 an error in the input or the request, 2 a defect or a failure of the device, 3 with --strict: an \
image was left out.";

/// `ffdp template`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = HELP)]
pub struct TemplateArguments {
    #[command(flatten)]
    given: UserFlags,
    /// The images, or one list as --images has it. Files of any format that ffdp register takes, on any grids.
    #[arg(value_name = "FILE", required_unless_present = "list", conflicts_with = "list")]
    files: Vec<PathBuf>,
    /// The images as a list (CSV). Its first line names the columns image and, as needed, name and labels. File names are
    /// relative to the list's folder.
    #[arg(short = 'i', long = "images", id = "list", value_name = "IMAGES.CSV")]
    list: Option<PathBuf>,
    /// Folder for the results; made if it does not exist.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// Deformable rounds at most.
    #[arg(long, value_name = "N", default_value_t = TemplateSettings::default().rounds)]
    rounds: usize,
    /// Linear rounds before them.
    #[arg(long, value_name = "N", default_value_t = TemplateSettings::default().linear_rounds)]
    linear_rounds: usize,
    /// End when the template changes by less than this part of its root mean square in a deformable round.
    #[arg(long, value_name = "PART", default_value_t = TemplateSettings::default().tolerance)]
    tolerance: f64,
    /// Part of the mean map that each round takes out.
    #[arg(long, value_name = "PART", default_value_t = TemplateSettings::default().update)]
    update: f64,
    /// How intensities are averaged.
    #[arg(long, value_enum, default_value_t)]
    average: AverageChoice,
    /// For --average trimmed: part of the images that is left out at either end.
    #[arg(long, value_name = "PART", default_value_t = 0.1)]
    trim: f64,
    /// How much the average is sharpened by an unsharp mask; 0 not at all.
    #[arg(long, value_name = "AMOUNT", default_value_t = Sharpening::default().amount)]
    sharpen: f64,
    /// How intensities are made comparable.
    #[arg(long, value_enum, default_value_t)]
    intensities: IntensitiesChoice,
    /// Spacing of the template [default: that of the images]. Where these share no grid, the median of theirs.
    #[arg(long, value_name = "MM")]
    resolution: Option<f64>,
    /// An image on whose grid the template is to lie. Without it, on one that suits the images.
    #[arg(long, value_name = "FILE", conflicts_with = "resolution")]
    pub grid: Option<PathBuf>,

    /// How images are registered.
    #[command(flatten)]
    pub settings: SettingsArguments,

    /// Do not compute the inverse displacements.
    #[arg(long)]
    pub no_inverse: bool,

    /// How they are read and computed.
    #[command(flatten)]
    pub run: GroupArguments,
}

/// How intensities are averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum AverageChoice {
    /// The mean.
    #[default]
    Mean,
    /// The median, which single images do not move.
    Median,
    /// The mean without the darkest and brightest at each voxel.
    Trimmed,
}

/// How intensities are made comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum IntensitiesChoice {
    /// By the mean of the foreground.
    #[default]
    Foreground,
    /// By the range from the 1st to the 99.9th percentile.
    Range,
    /// As they are, of quantitative images.
    Keep,
}

impl TemplateArguments {
    /// How the template is made.
    pub fn resolve(&self) -> Result<TemplateSettings> {
        if self.settings.search.is_some() {
            return Err(Failure::user(
                "--search looks for the orientation of one image, and a template has several",
                "bring the images into one orientation first: ffdp register --search of each to one of them",
            ));
        }
        let registration: Settings = self.settings.resolve()?;
        self.run.reading.nan_policy.check_without_weights("template")?;
        self.refuse_without_effect(&registration)?;
        let average = match self.average {
            AverageChoice::Mean => Average::Mean,
            AverageChoice::Median => Average::Median,
            AverageChoice::Trimmed => Average::Trimmed { part: self.trim },
        };
        let intensities = match self.intensities {
            IntensitiesChoice::Foreground => Intensities::Foreground,
            IntensitiesChoice::Range => Intensities::Range,
            IntensitiesChoice::Keep => Intensities::Keep,
        };
        let settings = TemplateSettings {
            registration,
            rounds: self.rounds,
            linear_rounds: self.linear_rounds,
            tolerance: self.tolerance,
            update: self.update,
            average,
            sharpening: Sharpening { amount: self.sharpen, ..Sharpening::default() },
            intensities,
            spacing_mm: self.resolution,
        };
        settings.validate()?;
        Ok(settings)
    }

    /// Refuses flags that the other ones leave without an effect.
    fn refuse_without_effect(&self, registration: &Settings) -> Result<()> {
        let is_of_a_round =
            |stage: &Stage| stage.is_linear() && !matches!(stage, Stage::Moments(_));
        let has_linear = registration.stages.iter().any(is_of_a_round);
        Ok(self.given.refuse(&[
            WithoutEffect {
                flags: &["trim"],
                when: self.average != AverageChoice::Trimmed,
                because: "it is a part of the trimmed mean, and --average asks for another",
                fix: "add --average trimmed",
            },
            WithoutEffect {
                flags: &["rounds", "tolerance"],
                when: !deforms(registration),
                because: "the registration has no deformable stage",
                fix: "end it with one, as --transform greedy",
            },
            WithoutEffect {
                flags: &["tolerance"],
                when: self.rounds == 0,
                because: "there is no deformable round (--rounds 0)",
                fix: "allow for some",
            },
            WithoutEffect {
                flags: &["linear_rounds"],
                when: !has_linear,
                because: "the registration has no linear stage",
                fix: "leave out what removes them, as --aligned",
            },
        ])?)
    }

    /// The list, where there is one: named by its flag, or the only file.
    pub fn list(&self) -> Option<&Path> {
        let is_list =
            |file: &&PathBuf| file.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("csv"));
        let only = || match &self.files[..] {
            [file] => Some(file).filter(is_list),
            _ => None,
        };
        self.list.as_ref().or_else(only).map(PathBuf::as_path)
    }

    /// The files, where there is no list.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }
}
