//! What is registered: two images, what of them counts, and where the search starts.

use std::ops::Range;

use super::shared::SharedImage;
use ffdp_burn::transform::Composite;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Geometry, MovedLabels, Planes, Volume, check_finite, check_planes};

/// Where the voxels of an image come from.
pub enum Source<'a> {
    /// Memory. Where one device holds everything, the image goes there once.
    Volume(&'a Volume),
    /// Memory, for several registrations: what each makes of it alone is made once.
    Shared(&'a SharedImage<'a>),
    /// Whatever gives planes, a file for example: they are read as they are needed, slab by slab.
    Planes(&'a mut (dyn Planes + Send)),
}

impl<'a> From<&'a Volume> for Source<'a> {
    fn from(volume: &'a Volume) -> Self {
        Self::Volume(volume)
    }
}

impl<'a> From<&'a SharedImage<'a>> for Source<'a> {
    fn from(shared: &'a SharedImage<'a>) -> Self {
        Self::Shared(shared)
    }
}

impl<'a, P: Planes + Send> From<&'a mut P> for Source<'a> {
    fn from(planes: &'a mut P) -> Self {
        Self::Planes(planes)
    }
}

impl<'a> Source<'a> {
    /// The volume, where all of it is in memory.
    fn held(&self) -> Option<&'a Volume> {
        match self {
            Self::Volume(volume) => Some(volume),
            Self::Shared(shared) => Some(shared.volume()),
            Self::Planes(_) => None,
        }
    }

    /// Demands that it holds weights: finite, 0 to 1, one of them above 0. Reads all of it.
    ///
    /// # Errors
    /// [`Error::NonFinite`](ffdp_image::Error::NonFinite) or [`Error::Invalid`](ffdp_image::Error::Invalid) in the name of the
    /// mask, and those of reading.
    pub fn check_is_mask(&mut self, name: &str) -> Result<()> {
        check_weights(name, check_finite(name, self)?)
    }

    /// Whether all of it is in memory.
    pub(super) fn is_held(&self) -> bool {
        self.held().is_some()
    }

    /// Demands a voxel for each place of the grid: the fields of a volume are public, and what its constructor promised
    /// may have been broken since.
    pub(super) fn check_count(&self, name: &str) -> Result<()> {
        let Some(volume) = self.held() else { return Ok(()) };
        let (expected, got) = (volume.geometry.len(), volume.data.len());
        if expected == got {
            return Ok(());
        }
        let what = format!("number of voxels of {name}");
        Err(Error::Shape { what, expected: vec![expected], got: vec![got] })
    }
}

/// That the extremes of a mask are those of weights in 0..1, one of them above 0.
fn check_weights(name: &str, [low, high]: [f32; 2]) -> Result<()> {
    if low < 0.0 || high > 1.0 {
        return Err(Error::invalid(
            format!("{name} must hold weights in 0..1"),
            [low, high],
            "divide it by its largest value, or set what counts to 1 and the rest to 0",
        ));
    }
    if high == 0.0 {
        return Err(Error::invalid(
            format!("{name} must not be empty"),
            format_args!("0 in every voxel"),
            "check that it is the file you meant, or leave it out",
        ));
    }
    Ok(())
}

impl Planes for Source<'_> {
    fn geometry(&self) -> &Geometry {
        match self {
            Self::Volume(volume) => &volume.geometry,
            Self::Shared(shared) => &shared.volume().geometry,
            Self::Planes(planes) => planes.geometry(),
        }
    }

    fn read(&mut self, z: Range<usize>) -> Result<&[f32]> {
        match self {
            Self::Volume(volume) => volume.read(z),
            Self::Shared(shared) => {
                let Volume { data, geometry } = shared.volume();
                let [x, y, planes] = geometry.size;
                check_planes(&z, planes)?;
                Ok(&data[z.start * x * y..z.end * x * y])
            }
            Self::Planes(planes) => planes.read(z),
        }
    }

    fn all(&self) -> Option<&[f32]> {
        match self {
            Self::Volume(volume) => Some(&volume.data),
            Self::Shared(shared) => Some(&shared.volume().data),
            Self::Planes(planes) => planes.all(),
        }
    }

    fn labels(&self) -> &MovedLabels {
        match self {
            Self::Volume(volume) => volume.labels(),
            Self::Shared(_) => &MovedLabels::Themselves,
            Self::Planes(planes) => planes.labels(),
        }
    }
}

/// What two images consist of on a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Channels of each, those of [labels that drive](super::Settings::label_term) among them, without its mask.
    pub channels: usize,
    /// Of these, the labels that drive.
    pub labels: usize,
    /// Whether the fixed and the moving image have a mask.
    pub masked: [bool; 2],
}

impl Content {
    /// One channel each, all of which counts.
    pub const PLAIN: Self = Self { channels: 1, labels: 0, masked: [false; 2] };

    /// Channels of each, with its mask.
    pub(super) fn with_masks(&self) -> [usize; 2] {
        self.masked.map(|is_masked| self.channels + usize::from(is_masked))
    }
}

/// Two images, each on its own grid, and what is known about them.
pub struct Problem<'a> {
    /// The image that stays. One plane (a size of 1 along z) where the moving image is one too: then
    /// nothing moves along z.
    pub fixed: Source<'a>,
    /// The image that is brought onto it.
    pub moving: Source<'a>,
    /// Further channels, fixed and moving, each on the grid of the image above: other contrasts of the
    /// same anatomy. All channels count the same.
    pub more_channels: Vec<[Source<'a>; 2]>,
    /// How much each voxel of the fixed image counts, in 0..1, on its grid; without, all count. What
    /// lies at 0 is never looked at, also not for the scaling of intensities.
    pub fixed_mask: Option<Source<'a>>,
    /// The same for the moving image.
    pub moving_mask: Option<Source<'a>>,
    /// Label maps of the fixed and of the moving image, each on its grid: with
    /// [`Settings::label_term`](super::Settings::label_term) the overlap of the labels that it names is a term of the loss.
    pub labels: Option<[Source<'a>; 2]>,
    /// Points of the fixed and of the moving image that belong together, one to one, in RAS mm: with
    /// [`Settings::landmark_sigma_mm`](super::Settings::landmark_sigma_mm) their distance is a term of the loss.
    pub landmarks: Option<[Vec<[f64; 3]>; 2]>,
    /// Where the moving image lies to begin with: from points of the fixed to points of the moving
    /// image, RAS mm. None trusts the headers. After one that deforms come deformable stages alone, which go on from it;
    /// on every level it is evaluated anew.
    pub initial: Composite,
}

impl<'a> Problem<'a> {
    /// Two images as their headers place them.
    pub fn new(fixed: impl Into<Source<'a>>, moving: impl Into<Source<'a>>) -> Self {
        Self {
            fixed: fixed.into(),
            moving: moving.into(),
            more_channels: Vec::new(),
            fixed_mask: None,
            moving_mask: None,
            labels: None,
            landmarks: None,
            initial: Composite::default(),
        }
    }

    /// Channels of each image, without those of labels.
    pub(super) fn image_channels(&self) -> usize {
        1 + self.more_channels.len()
    }

    /// What was given, with so many labels that drive.
    pub(super) fn content(&self, labels: usize) -> Content {
        let masked = [self.fixed_mask.is_some(), self.moving_mask.is_some()];
        Content { channels: self.image_channels() + labels, labels, masked }
    }

    /// Whether all of it is in memory.
    pub(super) fn is_held(&self) -> bool {
        let masks = [&self.fixed_mask, &self.moving_mask].into_iter().flatten();
        let channels = self.more_channels.iter().chain(&self.labels).flatten();
        [&self.fixed, &self.moving].into_iter().chain(masks).chain(channels).all(Source::is_held)
    }
}
