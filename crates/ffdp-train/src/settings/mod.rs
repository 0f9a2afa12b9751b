//! The recipe of a run: what is learnt, from what, and how. The flags and `settings.toml` have the
//! same names.

mod augmentation;
pub mod file;
mod loss;

use std::path::PathBuf;

use ffdp_burn::baseline;
use ffdp_burn::losses::similarities::{LnccSettings, Similarity};
use ffdp_image::{Error, Result};
use ffdp_nets::{
    AffineNetConfig, NetworkConfig, Resolution, TransMorphConfig, Variant, VoxelMorphConfig,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use augmentation::Augmentation;

/// Everything that decides the numbers of a run. Readable from a file: missing entries take their
/// defaults, unknown ones are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields, remote = "Self")]
pub struct Settings {
    /// Similarity that is trained; in a file a name, or what a stage of a registration has
    #[cfg_attr(feature = "cli", arg(long, value_parser = loss::parser(), default_value = "lncc"))]
    #[serde(deserialize_with = "loss::read")]
    pub loss: Similarity,

    /// Side of LNCC's window in voxels, odd [default: 9]. With another loss, that of the local correlation
    /// which is reported
    #[cfg_attr(feature = "cli", arg(long))]
    pub window: Option<usize>,

    /// Bins of mutual information, 8 to 256 [default: 32]
    #[cfg_attr(feature = "cli", arg(long))]
    pub bins: Option<usize>,

    /// What keeps the displacement smooth
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", value_enum, default_value_t = Regularizer::Diffusion))]
    pub regularizer: Regularizer,

    /// Weight of the smoothness term [default: about what the loss gains, such as 0.5 for lncc and 0.01 for
    /// mse]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WEIGHT"))]
    pub smoothness: Option<f64>,

    /// Weight of what the Jacobian determinant falls below zero by. It is the mean over all voxels; 0 leaves folds alone
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0.0))]
    pub jacobian_weight: f64,

    /// Weight of the inconsistency with the inverse: the mean squared distance, in voxels, between a point and where the
    /// map and that of the pair turned round take it; the network sees every pair twice
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0.0))]
    pub inverse_weight: f64,

    /// Weight of soft Dice over the labels that both images have; 0 trains without labels
    #[cfg_attr(feature = "cli", arg(long, value_name = "WEIGHT", default_value_t = 0.0))]
    pub dice_weight: f64,

    /// Predict a velocity and integrate it by scaling and squaring (7 steps): a diffeomorphism
    #[cfg_attr(feature = "cli", arg(long))]
    pub integrate: bool,

    /// What predicts the displacement
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = NetworkArg::Transmorph))]
    pub network: NetworkArg,

    /// What the network predicts: the displacement of every voxel, or control points of B-splines
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = HeadArg::Dense))]
    pub head: HeadArg,

    /// Voxels between the control points of --head bspline: 2, 4, 8 or 16
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 4))]
    pub control_spacing: usize,

    /// A second network aligns the images by an affine map first; both are trained together
    #[cfg_attr(feature = "cli", arg(long))]
    pub affine: bool,

    /// Size of TransMorph
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = VariantArg::Tiny))]
    pub variant: VariantArg,

    /// Grid on which TransMorph predicts. It has every voxel, or every second one
    #[cfg_attr(feature = "cli", arg(long, value_name = "GRID", value_enum, default_value_t = ResolutionArg::Half))]
    pub resolution: ResolutionArg,

    /// Image size in voxels, as N or XxYxZ [default: 64, or the size of the files with --data]
    #[cfg_attr(feature = "cli", arg(long))]
    pub size: Option<String>,

    /// Passes over the training data
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 13))]
    pub epochs: usize,

    /// Random pairs in an epoch. Each is trained in both directions [default: 16 of 32 synthetic
    /// subjects; with a list of images as many as there are images]
    #[cfg_attr(feature = "cli", arg(long))]
    pub pairs: Option<usize>,

    /// Seed of data, weights, order and augmentation: the same seed gives the same numbers on a CPU
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub seed: u64,

    /// Pairs in a step of the optimiser. Their gradients are averaged; several devices share them
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 1))]
    pub batch: usize,

    /// Learning rate of Adam. It falls epoch by epoch as (1 - e / epochs)^0.9
    #[cfg_attr(feature = "cli", arg(long, value_name = "RATE", default_value_t = 3e-3))]
    pub learning_rate: f64,

    /// Largest probability of dropping a branch of TransMorph's blocks; 0.3 suits runs of days
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0.0))]
    pub drop_path: f64,

    /// NIfTI images: a folder with pairs.csv, with images.csv, or of images alone; or a list of
    /// images as a .csv file with the columns image, labels and part
    #[cfg_attr(feature = "cli", arg(long))]
    pub data: Option<PathBuf>,

    /// How the moving image is first laid onto the fixed one: by the headers' coordinates, or
    /// centre on centre
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = Align::Headers))]
    pub align: Align,

    /// Of a folder of images without a list: how many, the last by name, are kept for validation
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub hold_out: usize,

    /// Random changes of the training images.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub augmentation: Augmentation,

    /// End when the validation has not improved for so many epochs
    #[cfg_attr(feature = "cli", arg(long, value_name = "EPOCHS"))]
    pub patience: Option<usize>,

    /// How many of the best checkpoints are kept besides the last two
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 1))]
    pub keep: usize,

    /// Threads that read and prepare images ahead of the training
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 2))]
    pub workers: usize,

    /// Memory for images that are kept once they are read, MiB: so much of the host, and as much of a
    /// GPU for those that training does not change at random
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 2048))]
    pub cache_mib: usize,

    /// Compose warp and loss of Burn's own operations, differentiated by its autodiff
    #[cfg_attr(feature = "cli", arg(long))]
    pub baseline: bool,
}

/// `--regularizer`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Regularizer {
    /// Mean squared first differences of the displacement
    Diffusion,
    /// Mean squared second differences, which leave affine maps free
    Bending,
    /// Mean length of the differences, which lets the displacement slide along surfaces
    TotalVariation,
}

/// `--network`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum NetworkArg {
    /// A Swin transformer with a convolutional decoder (--variant, --resolution, --drop-path)
    Transmorph,
    /// A U-Net of 0.33 M parameters at full resolution
    Voxelmorph,
}

/// `--head`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum HeadArg {
    /// The displacement of every voxel
    Dense,
    /// Control points of cubic B-splines (--control-spacing): smooth by themselves
    Bspline,
}

/// `--variant`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum VariantArg {
    /// 0.24 million parameters, for a CPU
    Tiny,
    /// 11.7 million
    Small,
    /// 46.6 million, the published TransMorph
    Base,
    /// 108 million
    Large,
}

/// `--resolution`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum ResolutionArg {
    /// Every voxel (published for IXI)
    Full,
    /// Every second voxel, upsampled (published for OASIS)
    Half,
}

/// `--align`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// By the physical coordinates of the NIfTI headers
    Headers,
    /// Centre of the moving grid on the centre of the fixed grid
    Centers,
}

/// The defaults are those of the flags, as a test of `arguments` checks.
impl Default for Settings {
    fn default() -> Self {
        Self {
            loss: Similarity::Lncc(LnccSettings::transmorph()),
            window: None,
            bins: None,
            regularizer: Regularizer::Diffusion,
            smoothness: None,
            jacobian_weight: 0.0,
            inverse_weight: 0.0,
            dice_weight: 0.0,
            integrate: false,
            network: NetworkArg::Transmorph,
            head: HeadArg::Dense,
            control_spacing: 4,
            affine: false,
            variant: VariantArg::Tiny,
            resolution: ResolutionArg::Half,
            size: None,
            epochs: 13,
            pairs: None,
            seed: 0,
            batch: 1,
            learning_rate: 3e-3,
            drop_path: 0.0,
            data: None,
            align: Align::Headers,
            hold_out: 0,
            augmentation: Augmentation::default(),
            patience: None,
            keep: 1,
            workers: 2,
            cache_mib: 2048,
            baseline: false,
        }
    }
}

/// By what `remote = "Self"` derives: functions in place of the traits.
impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, to)
    }
}

/// Files of earlier versions have the window next to the name of the loss, and flags are read as files are.
impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from).map(Self::gathered)
    }
}

impl Settings {
    /// # Errors
    /// The first setting whose value has no meaning, with a way out.
    pub fn validate(&self) -> Result<()> {
        self.validate_loss()?;
        self.validate_numbers()?;
        self.augmentation.validate()?;
        self.image_size().map(|_| ())
    }

    /// That the loss, and what it is given, is one for training.
    fn validate_loss(&self) -> Result<()> {
        let window = self.reported_window();
        if window.is_multiple_of(2) || !(3..=21).contains(&window) {
            let what = "--window must be odd and lie in 3..=21 voxels";
            return Err(Error::invalid(what, window, "use 9 (TransMorph) or 7 (ANTs)"));
        }
        if let Some(bins) = self.bins {
            let what = format!("--bins is given, but the loss {} has none", self.loss.name());
            return Err(Error::invalid(what, bins, "leave it out, or use --loss mi or nmi"));
        }
        if let Similarity::Own(own) = &self.loss {
            let what = "settings.toml cannot name a loss of one's own";
            return Err(Error::invalid(what, own, "train with Objective in a loop of your own"));
        }
        self.loss.validate()?;
        if self.baseline && !baseline::knows(&*self.loss.loss()) {
            let what = "--baseline follows exact gradients and spreads every vote";
            return Err(Error::invalid(what, &self.loss, "leave gradient and mode at exact"));
        }
        let channels = self.loss.loss().least_channels();
        if channels > 1 {
            let what = "images of a training have one channel, the image itself";
            let given = format_args!("a term of channel {}, counted from 0", channels - 1);
            return Err(Error::invalid(what, given, "leave the channels of the terms out"));
        }
        Ok(())
    }

    /// That counts, rates and weights have a meaning.
    fn validate_numbers(&self) -> Result<()> {
        let at_least_one = [
            ("--epochs", Some(self.epochs)),
            ("--pairs", self.pairs),
            ("--patience", self.patience),
            ("--batch", Some(self.batch)),
            ("--keep", Some(self.keep)),
            ("--workers", Some(self.workers)),
        ];
        for (flag, value) in at_least_one {
            if let Some(value @ 0) = value {
                let what = format!("{flag} must be at least 1");
                return Err(Error::invalid(what, value, "leave the flag out for the default"));
            }
        }
        if !(self.learning_rate > 0.0 && self.learning_rate <= 1.0) {
            let what = "--learning-rate must lie in 0..1";
            return Err(Error::invalid(what, self.learning_rate, "2e-3 suits the tiny network"));
        }
        if ![2, 4, 8, 16].contains(&self.control_spacing) {
            let what = "--control-spacing must be 2, 4, 8 or 16 voxels";
            return Err(Error::invalid(what, self.control_spacing, "4 is the default"));
        }
        if !(0.0..1.0).contains(&self.drop_path) {
            let what = "--drop-path must lie in 0..1";
            return Err(Error::invalid(what, self.drop_path, "use 0 to switch it off"));
        }
        if i64::try_from(self.seed).is_err() {
            let what = "--seed must fit a settings file, at most 9223372036854775807";
            return Err(Error::invalid(what, self.seed, "use a smaller one"));
        }
        for (flag, weight) in [
            ("--smoothness", self.smoothness_weight()),
            ("--jacobian-weight", self.jacobian_weight),
            ("--inverse-weight", self.inverse_weight),
            ("--dice-weight", self.dice_weight),
        ] {
            if !(weight >= 0.0 && weight.is_finite()) {
                let what = format!("{flag} must be finite and not negative");
                return Err(Error::invalid(what, weight, "leave the flag out for the default"));
            }
        }
        Ok(())
    }

    /// Weight of the smoothness term: what the similarities gain differs by its size.
    pub fn smoothness_weight(&self) -> f64 {
        self.smoothness.unwrap_or_else(|| self.loss.loss().usual_gain())
    }

    /// Side of the window of the local correlation that is reported, in voxels: that of the loss if it has one.
    pub fn reported_window(&self) -> usize {
        let of_loss = self.loss.clone().window_mut().copied();
        of_loss.or(self.window).unwrap_or(LnccSettings::transmorph().window)
    }

    /// With `window` and `bins` in the loss, where it has them: all of it is in one place.
    fn gathered(mut self) -> Self {
        if let (Some(window), Some(own)) = (self.window, self.loss.window_mut()) {
            *own = window;
            self.window = None;
        }
        if let (Some(bins), Some(own)) = (self.bins, self.loss.bins_mut()) {
            *own = bins;
            self.bins = None;
        }
        self
    }

    /// The size asked for, (x, y, z); `None` means the default of the data.
    ///
    /// # Errors
    /// A text that is no size, or an extent outside 16..=1024.
    pub fn image_size(&self) -> Result<Option<[usize; 3]>> {
        self.size.as_deref().map(parse_size).transpose()
    }

    /// Squarings that integrate a velocity, with `--integrate`.
    pub fn squarings(&self) -> Option<usize> {
        self.integrate.then_some(7)
    }

    /// Voxels between control points, with `--head bspline`.
    pub fn controls(&self) -> Option<usize> {
        (self.head == HeadArg::Bspline).then_some(self.control_spacing)
    }

    /// The network for images of `size` voxels (x, y, z).
    pub fn network(&self, size: [usize; 3]) -> NetworkConfig {
        let config = match self.network {
            NetworkArg::Transmorph => NetworkConfig::from(self.transmorph(size)),
            NetworkArg::Voxelmorph => VoxelMorphConfig::new()
                .with_control_spacing(self.controls())
                .with_integration_steps(self.squarings())
                .with_seed(self.seed)
                .into(),
        };
        config.with_alignment(self.affine.then(|| AffineNetConfig::new().with_seed(self.seed)))
    }

    /// The TransMorph of these settings for images of `size` voxels (x, y, z).
    pub fn transmorph(&self, [x, y, z]: [usize; 3]) -> TransMorphConfig {
        let variant = match self.variant {
            VariantArg::Tiny => Variant::Tiny,
            VariantArg::Small => Variant::Small,
            VariantArg::Base => Variant::Base,
            VariantArg::Large => Variant::Large,
        };
        let resolution = match self.resolution {
            ResolutionArg::Full => Resolution::Full,
            ResolutionArg::Half => Resolution::Half,
        };
        TransMorphConfig::new(variant)
            .with_resolution(resolution)
            .with_control_spacing(self.controls())
            .with_drop_path(self.drop_path)
            .with_integration_steps(self.squarings())
            .with_seed(self.seed)
            .for_size([z, y, x])
    }
}

/// A size in voxels, (x, y, z), from `N` or `XxYxZ`.
///
/// # Errors
/// A text that is no size, or an extent outside 16..=1024.
pub fn parse_size(text: &str) -> Result<[usize; 3]> {
    let parts: Option<Vec<usize>> = text.split('x').map(|part| part.parse().ok()).collect();
    let size = match parts.as_deref() {
        Some(&[n]) => [n; 3],
        Some(&[x, y, z]) => [x, y, z],
        _ => {
            let what = "--size must be one number of voxels, or three as XxYxZ";
            return Err(Error::invalid(what, text, "for example --size 48 or --size 80x96x112"));
        }
    };
    if !size.iter().all(|extent| (16..=1024).contains(extent)) {
        let what = "--size: every extent must lie in 16..=1024 voxels";
        return Err(Error::invalid(what, size, "the network needs at least 16 voxels a side"));
    }
    Ok(size)
}
