//! `ffdp.register`: the library's registration of images that Python has.

use burn::tensor::Device;
use ffdp_burn::transform::{Composite, Displacement, Step};
use ffdp_cli::{
    Drivers, Failure, HeldResult, PairVolumes, Reading, ResultMeasures, ResultRequest,
    SettingsArguments, label_ids, settle_nan,
};
use ffdp_image::image::{LabelMap, Volume};
use ffdp_image::io::images::read_volumes;
use ffdp_image::metrics::tre_of_mapped;
use ffdp_register::{Problem, Register, Settings};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Result;
use crate::flags::{Read, RegisterFlags, read};
use crate::image_argument::ImageArgument;
use crate::landmarks::{pair_of, two};
use crate::observer::Watch;
use crate::registration::{Found, Registration};
use crate::transform::{composite_of, placed_on};

/// Finds the transform that carries the moving image onto the fixed one; see the stubs of the module for all arguments.
#[pyfunction]
#[pyo3(signature = (
    fixed, moving, *, fixed_mask=None, moving_mask=None, fixed_labels=None, moving_labels=None,
    channels=None, landmarks=None, initial=None, progress=None, **settings
))]
pub fn register<'py>(
    py: Python<'py>,
    fixed: &Bound<'py, PyAny>,
    moving: &Bound<'py, PyAny>,
    fixed_mask: Option<&Bound<'py, PyAny>>,
    moving_mask: Option<&Bound<'py, PyAny>>,
    fixed_labels: Option<&Bound<'py, PyAny>>,
    moving_labels: Option<&Bound<'py, PyAny>>,
    channels: Option<Vec<Bound<'py, PyAny>>>,
    landmarks: Option<&Bound<'py, PyAny>>,
    initial: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    settings: Option<&Bound<'py, PyDict>>,
) -> Result<Registration> {
    let words = read::<RegisterFlags>(settings)?;
    let flags = &words.flags;
    let initial = initial.map(composite_of).transpose()?.unwrap_or_default();
    let sides = [
        Side::of(fixed, fixed_mask, fixed_labels, ["fixed", "fixed_mask", "fixed_labels"])?,
        Side::of(moving, moving_mask, moving_labels, ["moving", "moving_mask", "moving_labels"])?,
    ];
    let landmarks = landmarks.map(pair_of).transpose()?;
    let settings = resolve(&words, &initial, &sides, landmarks.is_some())?;
    let mut watch = Watch::new(progress)?;
    let inputs = Inputs::read(py, flags, sides, channels.unwrap_or_default())?;
    let Inputs { images: [fixed, moving], labels, .. } = inputs;
    let [fixed_labels, moving_labels] = labels;
    let label_ids = match (&flags.labels, &fixed_labels, &moving_labels) {
        (Some(asked), Some(fixed), Some(moving)) => {
            Some(label_ids([fixed.ids(), moving.ids()], Some(asked))?)
        }
        _ => None,
    };
    let pair = Pair { fixed, moving, fixed_labels, moving_labels, label_ids, landmarks };
    let guides = Guides { masks: inputs.masks, channels: inputs.channels, initial };
    let found = py.detach(|| {
        let device = flags.computing.device.open()?;
        Ok::<_, crate::errors::Refusal>(guides.register(&pair, &settings, &device, &mut watch)?)
    });
    watch.check()?;
    let found = found?;
    let request = ResultRequest { background: flags.background, inverse: !flags.no_inverse };
    let (found, measures) = py.detach(|| pair.measured(found, &settings, request))?;
    py.check_signals()?;
    let (assessment, stages) = (&measures.assessment, &measures.stages);
    Registration::new(py, found, assessment, stages, &measures, Some(&settings))
}

/// What is done. An initial transform that deforms leaves nothing to the linear stages.
fn resolve(
    words: &Read<RegisterFlags>,
    initial: &Composite,
    sides: &[Side; 2],
    has_landmarks: bool,
) -> Result<Settings> {
    let deforms = initial.as_affine().is_none();
    let (flags, given) = (&words.flags, &words.flags.settings);
    let settings = SettingsArguments { aligned: given.aligned || deforms, ..given.clone() };
    let settings = settings.resolve().map_err(|failure| words.named(failure))?;
    let [fixed, moving] = sides.each_ref().map(|side| side.labels.is_some());
    let missing = match () {
        () if fixed && !moving => {
            ("fixed_labels are compared with moving_labels, and there are none", "give both")
        }
        () if flags.labels.is_some() && !fixed => (
            "labels names what is measured, and there are no label maps",
            "give fixed_labels and moving_labels",
        ),
        () => {
            Drivers { landmarks: has_landmarks, labels: fixed }.check(&settings)?;
            return Ok(settings);
        }
    };
    Err(Failure::user(missing.0, missing.1).into())
}

/// One image with what belongs to it, as it was given.
struct Side {
    image: ImageArgument,
    mask: Option<ImageArgument>,
    labels: Option<ImageArgument>,
    /// The arguments.
    names: [&'static str; 3],
}

impl Side {
    fn of(
        image: &Bound<PyAny>,
        mask: Option<&Bound<PyAny>>,
        labels: Option<&Bound<PyAny>>,
        names: [&'static str; 3],
    ) -> Result<Self> {
        Ok(Self {
            image: ImageArgument::of(image, names[0])?,
            mask: ImageArgument::optional(mask, names[1])?,
            labels: ImageArgument::optional(labels, names[2])?,
            names,
        })
    }
}

/// The images that were registered, and what is measured besides them.
struct Pair {
    fixed: Volume,
    moving: Volume,
    fixed_labels: Option<LabelMap>,
    moving_labels: Option<LabelMap>,
    /// Those that are measured; all where none are named.
    label_ids: Option<Vec<i32>>,
    landmarks: Option<[Vec<[f64; 3]>; 2]>,
}

impl Pair {
    /// Measures a result, and reads back what the device has of it.
    fn measured(
        &self,
        mut found: ffdp_register::Registration,
        settings: &Settings,
        request: ResultRequest,
    ) -> ffdp_image::Result<(Found, ResultMeasures)> {
        let host = Device::flex();
        let landmarks = self.landmarks.as_ref().map(|[fixed, moving]| {
            let before = found.before()?.map_points(fixed)?;
            tre_of_mapped(&before, &found.map_points(fixed)?, moving)
        });
        let landmarks = landmarks.transpose()?;
        let transform = placed_on(&found.transform()?, &host)?;
        let held = HeldResult::of(&mut found, self.volumes(), request)?;
        let measures = held.measures(&found, self.volumes(), settings, landmarks)?;
        let on_host = |(values, _)| {
            let field = Displacement::from_vec(values, self.fixed.geometry.clone(), &host)?;
            Ok::<_, ffdp_image::Error>(Step::Displacement(field))
        };
        let steps = held.inverse.map(on_host).transpose()?.into_iter().collect();
        let backward = || {
            let affine = Composite::from(found.affine).inverse()?;
            Ok::<_, ffdp_image::Error>(affine.then(Composite::new(steps)))
        };
        let inverse = request.inverse.then(backward).transpose()?;
        let [_, warped] = held.images;
        let warped_labels = held.labels.map(|[_, after]| after);
        Ok((Found { warped, warped_labels, transform, inverse }, measures))
    }

    fn volumes(&self) -> PairVolumes<'_> {
        PairVolumes {
            fixed: &self.fixed,
            moving: &self.moving,
            fixed_labels: self.fixed_labels.as_ref(),
            moving_labels: self.moving_labels.as_ref(),
            label_ids: self.label_ids.as_deref(),
        }
    }
}

/// The fixed and the moving image with what belongs to them, in memory.
struct Inputs {
    images: [Volume; 2],
    masks: [Option<Volume>; 2],
    labels: [Option<LabelMap>; 2],
    channels: Vec<[Volume; 2]>,
}

impl Inputs {
    fn read(
        py: Python<'_>,
        flags: &RegisterFlags,
        sides: [Side; 2],
        channels: Vec<Bound<PyAny>>,
    ) -> Result<Self> {
        let reading = flags.reading;
        if !flags.labels_as_images {
            sides.iter().try_for_each(|side| side.image.check_is_no_label_map())?;
        }
        let [fixed, moving] = sides.each_ref().map(|side| {
            let Side { image, mask, labels, names } = side;
            let weights = image.weights(py, reading, mask.as_ref())?;
            let volume = image.volume(py, names[0], reading)?;
            let labels =
                labels.as_ref().map(|labels| labels.labels_on(py, &volume.geometry, names[2]));
            Ok::<_, crate::errors::Refusal>((volume, weights, labels.transpose()?))
        });
        let (fixed, moving) = (fixed?, moving?);
        let mut pairs = Vec::new();
        for channel in channels {
            let [fixed, moving] = two(&channel, "channels")?;
            let [fixed, moving] = [all_volumes(&fixed, reading)?, all_volumes(&moving, reading)?];
            if fixed.len() != moving.len() {
                let counts = [fixed.len(), moving.len()];
                let what =
                    "each channel is one of both images: two files must have as many volumes";
                let fix = "give as many of both, in the same order";
                return Err(ffdp_image::Error::invalid(what, counts, fix).into());
            }
            pairs.extend(fixed.into_iter().zip(moving).map(|(fixed, moving)| [fixed, moving]));
        }
        Ok(Self {
            images: [fixed.0, moving.0],
            masks: [fixed.1, moving.1],
            labels: [fixed.2, moving.2],
            channels: pairs,
        })
    }
}

/// All volumes of a channel.
fn all_volumes(object: &Bound<PyAny>, reading: Reading) -> Result<Vec<Volume>> {
    let (py, given) = (object.py(), ImageArgument::of(object, "channels")?);
    let Some(path) = given.path() else {
        return Ok(vec![given.volume(py, "channels", reading)?]);
    };
    let mut volumes = py.detach(|| read_volumes(path))?;
    for volume in &mut volumes {
        settle_nan(volume, &given.name("channels"), reading.nan_policy)?;
    }
    Ok(volumes)
}

/// What guides a registration besides the images.
struct Guides {
    masks: [Option<Volume>; 2],
    channels: Vec<[Volume; 2]>,
    initial: Composite,
}

impl Guides {
    fn register(
        &self,
        pair: &Pair,
        settings: &Settings,
        device: &Device,
        watch: &mut Watch,
    ) -> ffdp_image::Result<ffdp_register::Registration> {
        let [fixed_mask, moving_mask] =
            self.masks.each_ref().map(|mask| mask.as_ref().map(Into::into));
        let term = settings.label_term.as_ref();
        let driving = |labels: &Option<LabelMap>| {
            term.zip(labels.as_ref()).map(|(term, labels)| labels.only(&term.labels))
        };
        let (fixed_labels, moving_labels) =
            (driving(&pair.fixed_labels), driving(&pair.moving_labels));
        let labels = fixed_labels.as_ref().zip(moving_labels.as_ref());
        let channels = self.channels.iter().map(|[fixed, moving]| [fixed.into(), moving.into()]);
        let problem = Problem {
            fixed_mask,
            moving_mask,
            more_channels: channels.collect(),
            labels: labels.map(|(fixed, moving)| [fixed.into(), moving.into()]),
            // Without, they are measured alone.
            landmarks: pair.landmarks.clone().filter(|_| settings.landmark_sigma_mm.is_some()),
            initial: self.initial.clone(),
            ..Problem::new(&pair.fixed, &pair.moving)
        };
        Register::of(problem).settings(settings).on(device).observer(watch).run()
    }
}
