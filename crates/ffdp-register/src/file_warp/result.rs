//! What voxels of the result are: floats, integers as they were, or labels; read from the image, and written.

use std::path::Path;

use burn::tensor::Tensor;

use super::FileWarp;
use super::finite::Finite;
use super::outside::{fill, fill_labels, label_of, label_or_refusal};
use ffdp_burn::ops::Interpolation;
use ffdp_burn::transform::GridMap;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Geometry, Planes, SmoothImage, SmoothKernel, Volume, download};
use ffdp_image::io::images::{
    DataType, Header, INTENT_LABEL, IntegerForm, IntegerWriter, LabelWriter, PlaneReader,
    VolumeWriter,
};
use ffdp_parallel::chain::SeenImage;

/// How voxels of the result come to be.
pub(super) struct FileResult {
    pub volumes: usize,
    how: Interpolation,
    /// In place of `how`.
    smooth: Option<SmoothKernel>,
    /// Of integers that stay what they are.
    pub form: Option<IntegerForm>,
    outside: Outside,
}

/// What voxels get that the image does not reach.
struct Outside {
    background: f32,
    /// The integer that stands for it, where there is one.
    integer: Option<i32>,
    /// Samplers give 0.
    is_zero: bool,
}

impl FileResult {
    pub fn of(warp: &FileWarp) -> Result<Self> {
        let (how, smooth) = warp.interpolation.samplers();
        let (background, header) = (warp.background, &warp.header);
        let form = match how {
            Interpolation::Linear => None,
            Interpolation::Nearest => {
                IntegerForm::of(header).or_else(|| IntegerForm::of_stored(header))
            }
            Interpolation::Label => IntegerForm::of(header)
                .map(|form| IntegerForm { intent_code: INTENT_LABEL, ..form }),
        };
        // Of a background that the type does not hold, floats.
        let form = form.filter(|form| form.integer(background.into()).is_some());
        let integer = match form {
            Some(form) => form.integer(background.into()),
            None if how == Interpolation::Label => Some(label_or_refusal(background)?),
            None => label_of(background),
        };
        let volumes = warp.volumes();
        let is_zero = background == 0.0 && integer == Some(0);
        let outside = Outside { background, integer, is_zero };
        Ok(Self { volumes, how, smooth, form, outside })
    }

    /// Whether values are integers on their way.
    fn moves_integers(&self) -> bool {
        self.form.is_some() || self.how == Interpolation::Label
    }

    /// The planes of all volumes, or of the one asked for, and the labels in them where their number may be too large, or
    /// says the type of the result.
    pub fn open(&mut self, warp: &FileWarp) -> Result<(PlaneReader, KnownValues)> {
        /// Beyond, f32 does not have all integers.
        const EXACT: f64 = 8_388_608.0;
        let FileWarp { path, header, volume, .. } = warp;
        let open = || match *volume {
            None => PlaneReader::open_all(path),
            volume => PlaneReader::open(path, volume),
        };
        // Labels are integers, or the file is refused; of 64 bits that is seen with their list.
        let says_labels = header.intent_code == INTENT_LABEL && header.data_type == DataType::F32;
        if says_labels && self.how == Interpolation::Nearest {
            open()?.with_labels()?;
        }
        if let Some((planes, list)) = self.listed(open()?, header)? {
            return Ok((planes, KnownValues::List(list)));
        }
        let planes = open()?;
        let is_stored = self.form.is_some_and(|form| form.scale.is_some());
        let planes = if is_stored { planes.stored() } else { planes };
        let is_exact = header.data_type.bytes() <= 2 && planes.header().intercept.abs() <= EXACT;
        Ok(match self.moves_integers() && !(is_exact && self.form.is_some()) {
            true => {
                let (planes, ids) = planes.with_labels()?;
                (planes, KnownValues::Ids(ids))
            }
            false => (planes, KnownValues::Ids(Vec::new())),
        })
    }

    /// The planes of integers that neither f32 nor i32 may hold, with the list of all values; `None` for what is of
    /// another kind.
    fn listed(
        &mut self,
        planes: PlaneReader,
        header: &Header,
    ) -> Result<Option<(PlaneReader, Vec<i64>)>> {
        let is_wide = matches!(header.data_type, DataType::U32 | DataType::I64 | DataType::U64);
        let form = match (self.form, self.how) {
            (Some(form), _) if is_wide && form.scale.is_none() => Some(form),
            (None, Interpolation::Nearest | Interpolation::Label) => {
                IntegerForm::of_doubles(header)
            }
            _ => None,
        };
        let background = self.outside.background;
        let Some(form) = form.filter(|form| form.integer(background.into()).is_some()) else {
            return Ok(None);
        };
        let Some((planes, mut list)) = planes.with_values()? else { return Ok(None) };
        let intent_code = match self.how {
            Interpolation::Label => INTENT_LABEL,
            _ => form.intent_code,
        };
        self.form = Some(IntegerForm { intent_code, ..form });
        let value = background as i64;
        let place = list.iter().position(|listed| *listed == value).unwrap_or(list.len());
        if place == list.len() {
            list.push(value);
        }
        self.outside.integer = Some(place as i32);
        Ok(Some((planes, list)))
    }

    pub fn writer(
        &self,
        path: &Path,
        grid: &Geometry,
        header: &Header,
        known: KnownValues,
    ) -> Result<ResultWriter> {
        let ids = match (known, self.form) {
            (KnownValues::List(list), Some(form)) => {
                let file = IntegerWriter::create(path, grid, self.volumes, form)?;
                return Ok(ResultWriter::Listed(file, list));
            }
            (KnownValues::List(_), None) => unreachable!("a list is made for a form"),
            (KnownValues::Ids(ids), _) => ids,
        };
        Ok(match (self.form, self.moves_integers()) {
            (Some(form), _) => {
                ResultWriter::Integers(IntegerWriter::create(path, grid, self.volumes, form)?)
            }
            (None, true) if self.volumes == 1 => {
                let ids = [&ids, self.outside.integer.as_slice()].concat();
                ResultWriter::Labels(LabelWriter::create(path, grid, &ids)?)
            }
            (None, true) => {
                let what = "label maps of floats must come one in a file";
                let fix = "choose one volume, or convert them to integers";
                return Err(Error::invalid(what, self.volumes, fix));
            }
            (None, false) => {
                let (volumes, seconds) = (self.volumes, header.time_step_seconds);
                ResultWriter::Floats(VolumeWriter::create_series(path, grid, volumes, seconds)?)
            }
        })
    }

    /// How a volume is looked at.
    pub fn reading<'a, 'b>(&self, planes: &'a mut Finite<'b>) -> Result<InputVolume<'a>>
    where
        'b: 'a,
    {
        let Some(kernel) = self.smooth else {
            return Ok(InputVolume::Planes(Box::new(SeenImage::new(planes))));
        };
        let grid = planes.geometry().clone();
        let values = planes.read(0..grid.size[2])?.to_vec();
        Ok(InputVolume::Whole(Box::new(SmoothImage::new(Volume::new(values, grid)?, kernel))))
    }

    /// What a map sees of a volume.
    pub fn piece(&self, seen: &mut InputVolume, map: &GridMap) -> Result<Values> {
        let planes = match seen {
            InputVolume::Planes(planes) => planes,
            InputVolume::Whole(image) => {
                return Ok(Values::Floats(map.read_smoothly(image, self.outside.background)?));
            }
        };
        let meaning = planes.labels().clone();
        let window = planes.through(map)?;
        let sampled = |values: Tensor<5>, grid: &Geometry, how| {
            download(map.sample(values, grid, how), "a warped image")
        };
        let count = map.grid().len();
        let values = match &window {
            Some((values, grid)) => sampled(values.clone(), grid, self.how)?,
            None => vec![0.0; count],
        };
        // How much of the image is in each voxel, where that is not known.
        let inside = match &window {
            _ if self.outside.is_zero => Vec::new(),
            None => vec![0.0; count],
            Some((values, grid)) => {
                let how = match self.how {
                    Interpolation::Linear => Interpolation::Linear,
                    Interpolation::Nearest | Interpolation::Label => Interpolation::Nearest,
                };
                sampled(values.ones_like(), grid, how)?
            }
        };
        Ok(match self.moves_integers() {
            true => Values::Integers(self.outside.fill_integers(meaning.read(&values)?, &inside)),
            false => Values::Floats(self.outside.fill(values, &inside)),
        })
    }
}

impl Outside {
    fn fill(&self, mut values: Vec<f32>, inside: &[f32]) -> Vec<f32> {
        fill(&mut values, inside, self.background);
        values
    }

    fn fill_integers(&self, mut values: Vec<i32>, inside: &[f32]) -> Vec<i32> {
        let background = self.integer.expect("asked for, or refused, before");
        fill_labels(&mut values, inside, background);
        values
    }
}

/// What is known of the values of an image before it is warped.
pub(super) enum KnownValues {
    /// Its labels, or none where no one needs them.
    Ids(Vec<i32>),
    /// All values, whose places are moved in place of them.
    List(Vec<i64>),
}

/// A volume as it is looked at.
pub(super) enum InputVolume<'a> {
    Planes(Box<SeenImage<'a>>),
    /// What a kernel reads everywhere of, or filters, is there whole.
    Whole(Box<SmoothImage>),
}

/// Voxels of the result.
pub(super) enum Values {
    Floats(Vec<f32>),
    Integers(Vec<i32>),
}

/// The file of the result.
pub(super) enum ResultWriter {
    Floats(VolumeWriter),
    Integers(IntegerWriter),
    /// By their places in a list.
    Listed(IntegerWriter, Vec<i64>),
    Labels(LabelWriter),
}

impl ResultWriter {
    pub fn write(&mut self, values: Values) -> Result<()> {
        match (self, values) {
            (Self::Floats(file), Values::Floats(values)) => file.write(&values)?,
            (Self::Integers(file), Values::Integers(values)) => file.write(&values)?,
            (Self::Listed(file, list), Values::Integers(places)) => {
                file.write_listed(&places, list)?;
            }
            (Self::Labels(file), Values::Integers(values)) => file.write(&values)?,
            _ => unreachable!("integers go where integers are written"),
        }
        Ok(())
    }

    pub fn finish(self) -> Result<()> {
        match self {
            Self::Floats(file) => file.finish(),
            Self::Integers(file) | Self::Listed(file, _) => file.finish(),
            Self::Labels(file) => file.finish(),
        }
    }
}
