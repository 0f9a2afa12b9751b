//! What a registration is given: all of it in host memory or, slab by slab, files that stay open.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use ffdp_burn::transform::Composite;
use ffdp_image::image::{Geometry, LabelMap, Planes, Volume};
use ffdp_image::io::images::{INTENT_LABEL, PlaneReader, header, unreadable_by_itk};
use ffdp_image::io::{check_not_an_input, transform_files};

use super::args::RegisterArguments;
use super::channels;
use super::files::Files;
use crate::commands::chain::TransformChoice;
use crate::commands::input::{
    Reading, check_on_grid, image_and_warnings, label_ids, label_planes_on, labels_on,
    landmark_pairs, weights,
};
use crate::failure::{Failure, Result};
use crate::hash::{Hash, sha256};
use crate::in_parallel::in_parallel;
use crate::label_names::LabelNames;
use crate::nan_policy::NanPolicy;
use crate::printer::Printer;
use crate::result::PairVolumes;
use ffdp_register::{Problem, Settings, Source};

/// The images and what belongs to them, checked as far as they were read.
pub struct Inputs {
    pub fixed: Side,
    pub moving: Side,
    /// Those that --labels asks for.
    pub label_ids: Option<Vec<i32>>,
    /// What labels are called.
    pub label_names: LabelNames,
    /// Where the moving image lies to begin with.
    pub initial: Composite,
    /// SHA-256 of its files and of all others that drive the registration: landmarks, labels, channels.
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
    /// Further channels.
    pub channels: Vec<Image>,
    pub labels: Option<Labels>,
    /// Of labels that are held whole, those that drive the registration.
    pub driving: Option<Volume>,
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
    /// Refuses what can be seen from names, headers and small files, before any image is read.
    ///
    /// # Errors
    /// When a result would overwrite an input, an image is a label map, labels, a mask or a channel lie on another grid
    /// than their image, a file of --initial is not there, or landmarks cannot be used.
    pub fn check(request: &RegisterArguments, files: &Files) -> Result<()> {
        if request.slabs && request.reading.nan_policy != NanPolicy::Error {
            return Err(Failure::user(
                "--slabs reads planes as they are needed, and none is known before to hold NaN or infinite voxels",
                "repair the image, or leave out --nan-policy",
            ));
        }
        let inputs = request.inputs();
        for file in files.all().into_iter().chain([files.folder.as_path()]) {
            check_not_an_input(file, &inputs)?;
        }
        let images = [request.fixed(), request.moving()];
        if !request.labels_as_images {
            images.into_iter().try_for_each(check_is_no_label_map)?;
        }
        request.reading.check_volume(images)?;
        let [fixed, moving] = SideFiles::of(request);
        let grids = [fixed.check_grids()?, moving.check_grids()?];
        request.initial.as_ref().map_or(Ok(()), TransformChoice::check_is_there)?;
        landmarks_of(request, grids.each_ref())?;
        Ok(())
    }

    /// # Errors
    /// When a file cannot be used.
    pub fn read(
        request: &RegisterArguments,
        settings: &Settings,
        opening: Opening,
        printer: Printer,
    ) -> Result<Self> {
        let reading = request.reading;
        let side = |files: SideFiles| match opening {
            Opening::Whole => files.read(reading),
            Opening::Slabs | Opening::SlabsToHelp => files.open(request.reading.volume, opening),
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
        let label_names = LabelNames::of(request.label_names.as_deref())?;
        let (initial, landmarks) = (initial(request)?, landmarks_of(request, grids)?);
        let guides_hash = guides_hash(request, settings)?;
        Ok(Self {
            label_ids,
            label_names,
            initial,
            guides_hash,
            landmarks,
            warnings,
            fixed,
            moving,
        })
    }

    /// What is registered.
    pub fn problem(&mut self, settings: &Settings) -> Problem<'_> {
        let Self { fixed, moving, initial, landmarks, .. } = self;
        let channels = fixed.channels.iter_mut().zip(&mut moving.channels);
        let more_channels = channels.map(|(fixed, moving)| [fixed.source(), moving.source()]);
        let labels = match (&settings.label_term, &mut fixed.labels, &mut moving.labels) {
            (Some(term), Some(here), Some(there)) => Some([
                driving(here, &mut fixed.driving, &term.labels),
                driving(there, &mut moving.driving, &term.labels),
            ]),
            _ => None,
        };
        Problem {
            more_channels: more_channels.collect(),
            labels,
            fixed_mask: fixed.mask.as_mut().map(Image::source),
            moving_mask: moving.mask.as_mut().map(Image::source),
            // Without, they are measured alone.
            landmarks: landmarks.clone().filter(|_| settings.landmark_sigma_mm.is_some()),
            initial: initial.clone(),
            ..Problem::new(fixed.image.source(), moving.image.source())
        }
    }
}

impl Inputs {
    /// # Panics
    /// If they are read slab by slab.
    pub fn volumes(&self) -> PairVolumes<'_> {
        let (fixed, fixed_labels) = self.fixed.whole();
        let (moving, moving_labels) = self.moving.whole();
        let label_ids = self.label_ids.as_deref();
        PairVolumes { fixed, moving, fixed_labels, moving_labels, label_ids }
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
    pub fn ids(&self) -> Vec<i32> {
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

/// The labels that drive a registration; of a map that is held whole, `held` has them alone.
fn driving<'a>(labels: &'a mut Labels, held: &'a mut Option<Volume>, ids: &[i32]) -> Source<'a> {
    match labels {
        Labels::Planes(planes, _) => Source::Planes(&mut **planes),
        Labels::Map(map) => Source::Volume(held.insert(map.only(ids))),
    }
}

/// The files of one image.
struct SideFiles<'a> {
    image: &'a Path,
    labels: Option<&'a Path>,
    mask: Option<&'a Path>,
    channels: Vec<&'a Path>,
}

impl<'a> SideFiles<'a> {
    fn of(request: &'a RegisterArguments) -> [Self; 2] {
        let RegisterArguments { fixed_labels, moving_labels, fixed_mask, moving_mask, .. } =
            request;
        let side = |k: usize, image, labels: &'a Option<_>, mask: &'a Option<_>| Self {
            image,
            labels: Option::as_deref(labels),
            mask: Option::as_deref(mask),
            channels: request.channels.iter().skip(k).step_by(2).map(PathBuf::as_path).collect(),
        };
        [
            side(0, request.fixed(), fixed_labels, fixed_mask),
            side(1, request.moving(), moving_labels, moving_mask),
        ]
    }

    /// The grid of the image, on which all others must lie by their headers.
    fn check_grids(&self) -> Result<Geometry> {
        let grid = header(self.image)?.geometry;
        let channels = self.channels.iter().map(|file| ("channel", *file));
        let maps = [("labels", self.labels), ("mask", self.mask)];
        let maps = maps.into_iter().filter_map(|(what, file)| Some((what, file?)));
        for (what, file) in maps.chain(channels) {
            check_on_grid(file, what, &grid, self.image)?;
        }
        Ok(grid)
    }

    /// Every file on a core of its own: a gzip stream is unpacked by one.
    fn read(self, reading: Reading) -> Result<Side> {
        let Self { image, labels, mask, channels } = self;
        let read_labels = |labels| labels_on(labels, &header(image)?.geometry, image);
        let (hash, mask_hash) = (Hash::begin(image), mask.map(Hash::begin));
        let ((read, labels), mask) = in_parallel(
            || {
                in_parallel(
                    || image_and_warnings(image, reading),
                    || labels.map(read_labels).transpose(),
                )
            },
            || {
                let channels = channels::read(&channels, reading.nan_policy)?;
                Ok::<_, Failure>((weights(image, reading, mask)?, channels))
            },
        );
        let ((image, warnings), labels, (mask, channels)) = (read?, labels?, mask?);
        let (image, mask) = (Image::Volume(image), mask.map(Image::Volume));
        let channels = channels.into_iter().map(Image::Volume).collect();
        let (labels, driving) = (labels.map(Labels::Map), None);
        Ok(Side { image, labels, driving, mask, channels, hash, mask_hash, warnings })
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
            driving: None,
            mask: self.mask.map(|file| open(file, None)).transpose()?.map(Image::Planes),
            channels: channels::open(&self.channels)?
                .into_iter()
                .map(|planes| Image::Planes(Box::new(planes)))
                .collect(),
            hash: hash(self.image),
            mask_hash: self.mask.map(hash),
            image: Image::Planes(image),
        })
    }
}

/// The transform to start from.
pub fn initial(request: &RegisterArguments) -> Result<Composite> {
    match &request.initial {
        None => Ok(Composite::default()),
        Some(choice) => choice.read(&Device::flex()),
    }
}

/// SHA-256 of the files of the initial transform, of the landmarks, of labels that drive and of further channels.
fn guides_hash(request: &RegisterArguments, settings: &Settings) -> Result<String> {
    let initial = request.initial.as_ref();
    let named = initial.into_iter().flat_map(TransformChoice::paths);
    let all = named.map(transform_files).collect::<Result<Vec<_>, _>>()?.concat();
    let labels = [&request.fixed_labels, &request.moving_labels].into_iter().flatten();
    let labels = labels.filter(|_| settings.label_term.is_some());
    let files = all.iter().chain(request.landmarks.iter().flatten());
    let files = files.chain(labels).chain(&request.channels);
    let mut hashes = files.map(|file| sha256(file)).collect::<Result<Vec<_>>>()?;
    hashes.extend(initial.and_then(TransformChoice::inverted));
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
pub fn check_is_no_label_map(path: &Path) -> Result<()> {
    if header(path)?.intent_code != INTENT_LABEL {
        return Ok(());
    }
    Err(Failure::user(
        format!("{}: this is a label map (intent 1002), an image is meant", path.display()),
        "give it as --fixed-labels or --moving-labels, or align the labels themselves with \
         --labels-as-images",
    ))
}
