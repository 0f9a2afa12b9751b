//! What a registration is given: all of it in host memory or, slab by slab, files that stay open.

use std::path::Path;

use burn::tensor::Device;
use ffdp_burn::transform::{Composite, read_transform};
use ffdp_image::image::{Geometry, LabelMap, Planes, Volume};
use ffdp_image::io::images::{INTENT_LABEL, PlaneReader, header, unreadable_by_itk};
use ffdp_image::io::{check_not_an_input, transform_files};

use super::args::RegisterArguments;
use super::files::Files;
use crate::commands::input::{
    Reading, image_and_warnings, label_ids, label_planes_on, labels_on, landmark_pairs, weights,
};
use crate::failure::{Failure, Result};
use crate::hash::{Hash, sha256};
use crate::in_parallel::in_parallel;
use crate::nan_policy::NanPolicy;
use crate::printer::Printer;
use ffdp_register::{Problem, Settings, Source};

/// The images and what belongs to them, checked as far as they were read.
pub struct Inputs {
    pub fixed: Side,
    pub moving: Side,
    /// Those that --labels asks for.
    pub label_ids: Option<Vec<i32>>,
    /// Where the moving image lies to begin with.
    pub initial: Composite,
    /// SHA-256 of its files and of those of the landmarks.
    pub guides_hash: String,
    /// Of the fixed and the moving image, in RAS mm.
    pub landmarks: Option<[Vec<[f64; 3]>; 2]>,
    /// What is unusual about the files.
    pub warnings: Vec<String>,
}

/// One image with what belongs to it.
pub struct Side {
    pub image: Image,
    /// How much voxels count.
    pub mask: Option<Image>,
    pub labels: Option<Labels>,
    /// SHA-256 of the files.
    pub hash: Hash,
    pub mask_hash: Option<Hash>,
    pub warnings: Vec<String>,
}

/// An image, as it is held.
pub enum Image {
    Volume(Volume),
    Planes(Box<PlaneReader>),
}

/// Labels, as they are held. Planes of other processes than the first come without the list of all.
pub enum Labels {
    Map(LabelMap),
    Planes(Box<PlaneReader>, Vec<i32>),
}

/// Who reads, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// All files, into memory.
    Whole,
    /// Of one process or the first of several: images are opened, labels read through.
    Slabs,
    /// Of the other processes, which neither write nor report: files are opened.
    SlabsToHelp,
}

impl Inputs {
    /// Refuses what can be seen from names and headers, before anything is read.
    ///
    /// # Errors
    /// When a result would overwrite an input, or an image is a label map.
    pub fn check(request: &RegisterArguments, files: &Files) -> Result<()> {
        if request.slabs && request.nan_policy != NanPolicy::Error {
            return Err(Failure::user(
                "--slabs reads images as they are: NaN and infinite voxels are an error",
                "repair the image, or leave out --nan-policy",
            ));
        }
        let inputs = request.inputs();
        for file in files.all().into_iter().chain([files.folder.as_path()]) {
            check_not_an_input(file, &inputs)?;
        }
        if !request.labels_as_images {
            [request.fixed(), request.moving()].into_iter().try_for_each(check_is_no_label_map)?;
        }
        Ok(())
    }

    /// # Errors
    /// When a file cannot be used.
    pub fn read(request: &RegisterArguments, opening: Opening, printer: Printer) -> Result<Self> {
        let reading = Reading { volume: request.volume, nan_policy: request.nan_policy };
        let side = |files: SideFiles| match opening {
            Opening::Whole => files.read(reading),
            Opening::Slabs | Opening::SlabsToHelp => files.open(request.volume, opening),
        };
        let [fixed, moving] = SideFiles::of(request);
        let (fixed, moving) = in_parallel(|| side(fixed), || side(moving));
        let (fixed, moving) = (fixed?, moving?);
        let grids = [fixed.image.geometry(), moving.image.geometry()];
        let warp = Files::in_folder(&request.output, request.format).warp;
        let sheared = unreadable_by_itk(&warp, grids[0]);
        let warnings = [&fixed.warnings[..], &moving.warnings, sheared.as_slice()].concat();
        warnings.iter().for_each(|warning| printer.warning(warning));
        let label_ids = match (&fixed.labels, &moving.labels, &request.labels) {
            (Some(fixed), Some(moving), Some(asked)) if opening != Opening::SlabsToHelp => {
                Some(label_ids([fixed.ids(), moving.ids()], Some(asked))?)
            }
            _ => None,
        };
        let (initial, landmarks) = (initial(request)?, landmarks_of(request, grids)?);
        let guides_hash = guides_hash(request)?;
        Ok(Self { label_ids, initial, guides_hash, landmarks, warnings, fixed, moving })
    }

    /// What is registered.
    pub fn problem(&mut self, settings: &Settings) -> Problem<'_> {
        let Self { fixed, moving, initial, landmarks, .. } = self;
        Problem {
            fixed_mask: fixed.mask.as_mut().map(Image::source),
            moving_mask: moving.mask.as_mut().map(Image::source),
            // Without, they are measured alone.
            landmarks: landmarks.clone().filter(|_| settings.landmark_sigma_mm.is_some()),
            initial: initial.clone(),
            ..Problem::new(fixed.image.source(), moving.image.source())
        }
    }
}

/// What is held whole.
#[derive(Clone, Copy)]
pub struct Volumes<'a> {
    pub fixed: &'a Volume,
    pub moving: &'a Volume,
    pub fixed_labels: Option<&'a LabelMap>,
    pub moving_labels: Option<&'a LabelMap>,
    /// Those that --labels asks for.
    pub label_ids: Option<&'a [i32]>,
}

impl Inputs {
    /// # Panics
    /// If they are read slab by slab.
    pub fn volumes(&self) -> Volumes<'_> {
        let (fixed, fixed_labels) = self.fixed.whole();
        let (moving, moving_labels) = self.moving.whole();
        let label_ids = self.label_ids.as_deref();
        Volumes { fixed, moving, fixed_labels, moving_labels, label_ids }
    }
}

impl Side {
    fn whole(&self) -> (&Volume, Option<&LabelMap>) {
        match (&self.image, &self.labels) {
            (Image::Volume(image), Some(Labels::Map(labels))) => (image, Some(labels)),
            (Image::Volume(image), _) => (image, None),
            (Image::Planes(_), _) => panic!("a result in memory is that of images in memory"),
        }
    }
}

impl Image {
    pub fn geometry(&self) -> &Geometry {
        match self {
            Self::Volume(volume) => &volume.geometry,
            Self::Planes(planes) => planes.geometry(),
        }
    }

    pub fn planes(&mut self) -> &mut dyn Planes {
        match self {
            Self::Volume(volume) => volume,
            Self::Planes(planes) => &mut **planes,
        }
    }

    fn source(&mut self) -> Source<'_> {
        match self {
            Self::Volume(volume) => Source::Volume(volume),
            Self::Planes(planes) => Source::Planes(&mut **planes),
        }
    }
}

impl Labels {
    /// All but the background, ascending.
    fn ids(&self) -> Vec<i32> {
        match self {
            Self::Map(map) => map.ids(),
            Self::Planes(_, ids) => ids.clone(),
        }
    }

    pub fn planes(&mut self) -> Option<(&mut dyn Planes, &[i32])> {
        match self {
            Self::Map(_) => None,
            Self::Planes(planes, ids) => Some((&mut **planes, ids)),
        }
    }
}

/// The files of one image.
#[derive(Clone, Copy)]
struct SideFiles<'a> {
    image: &'a Path,
    labels: Option<&'a Path>,
    mask: Option<&'a Path>,
}

impl<'a> SideFiles<'a> {
    fn of(request: &'a RegisterArguments) -> [Self; 2] {
        let RegisterArguments { fixed_labels, moving_labels, fixed_mask, moving_mask, .. } =
            request;
        let side = |image, labels: &'a Option<_>, mask: &'a Option<_>| Self {
            image,
            labels: Option::as_deref(labels),
            mask: Option::as_deref(mask),
        };
        [
            side(request.fixed(), fixed_labels, fixed_mask),
            side(request.moving(), moving_labels, moving_mask),
        ]
    }

    /// Every file on a core of its own: a gzip stream is unpacked by one.
    fn read(self, reading: Reading) -> Result<Side> {
        let Self { image, labels, mask } = self;
        let read_labels = |labels| labels_on(labels, &header(image)?.geometry, image);
        let (hash, mask_hash) = (Hash::begin(image), mask.map(Hash::begin));
        let ((read, labels), mask) = in_parallel(
            || {
                in_parallel(
                    || image_and_warnings(image, reading),
                    || labels.map(read_labels).transpose(),
                )
            },
            || weights(image, reading, mask),
        );
        let ((image, warnings), labels, mask) = (read?, labels?, mask?);
        let (image, mask) = (Image::Volume(image), mask.map(Image::Volume));
        Ok(Side { image, labels: labels.map(Labels::Map), mask, hash, mask_hash, warnings })
    }

    /// Labels are read through, so that a run does not end with what could be known before it.
    fn open(self, volume: Option<usize>, opening: Opening) -> Result<Side> {
        let hash = |file| match opening {
            Opening::SlabsToHelp => Hash::later(file),
            _ => Hash::begin(file),
        };
        let open = |file, volume| PlaneReader::open(file, volume).map(Box::new);
        let image = open(self.image, volume)?;
        let labels = self.labels.map(|file| match opening {
            Opening::SlabsToHelp => Ok((open(file, None)?, Vec::new())),
            _ => {
                let (planes, ids) = label_planes_on(file, image.geometry(), self.image)?;
                Ok::<_, Failure>((Box::new(planes), ids))
            }
        });
        let warnings = image.header().warnings.iter();
        let name = self.image.display();
        Ok(Side {
            warnings: warnings.map(|warning| format!("{name}: {warning}")).collect(),
            labels: labels.transpose()?.map(|(planes, ids)| Labels::Planes(planes, ids)),
            mask: self.mask.map(|file| open(file, None)).transpose()?.map(Image::Planes),
            hash: hash(self.image),
            mask_hash: self.mask.map(hash),
            image: Image::Planes(image),
        })
    }
}

/// The transform to start from.
fn initial(request: &RegisterArguments) -> Result<Composite> {
    match &request.initial {
        None => Ok(Composite::default()),
        Some(path) => Ok(read_transform(path, &Device::flex())?),
    }
}

/// SHA-256 of the files of the initial transform and of the landmarks.
fn guides_hash(request: &RegisterArguments) -> Result<String> {
    let initial = request.initial.as_ref().map(transform_files).transpose()?;
    let files = initial.iter().flatten().chain(request.landmarks.iter().flatten());
    let hashes = files.map(|file| sha256(file)).collect::<Result<Vec<_>>>()?;
    Ok(hashes.join(" "))
}

/// The landmarks of both images, one to one.
fn landmarks_of(
    request: &RegisterArguments,
    grids: [&Geometry; 2],
) -> Result<Option<[Vec<[f64; 3]>; 2]>> {
    let Some([fixed, moving]) = request.landmarks.as_deref() else { return Ok(None) };
    let spaces = grids.map(|grid| request.landmark_space.of(grid));
    landmark_pairs([fixed, moving], spaces).map(Some)
}

/// Mixed labels are no labels: a map given as an image is most likely a mistake.
fn check_is_no_label_map(path: &Path) -> Result<()> {
    if header(path)?.intent_code != INTENT_LABEL {
        return Ok(());
    }
    Err(Failure::user(
        format!("{}: this is a label map (intent 1002), an image is meant", path.display()),
        "give it as --fixed-labels or --moving-labels, or align the labels themselves with \
         --labels-as-images",
    ))
}
