//! Integers in the type that they came in.

use std::io;
use std::io::Write;
use std::path::Path;

use super::data_type::DataType;
use super::header::Header;
use super::new_image::{Kind, NewImage};
use super::sink::{Sink, write_numbers};
use crate::error::{Error, Result};
use crate::image::{Geometry, LabelMap};

/// How a file stores integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntegerForm {
    /// Type of the stored values, an integer, or float64 whose values are integers.
    pub data_type: DataType,
    /// Added to the stored values.
    pub intercept: i32,
    /// Slope and intercept of a file whose values are no integers: the integers are then the stored numbers, and
    /// keep what they stand for.
    pub scale: Option<[f64; 2]>,
    /// What the values mean: 0 none, 1002 labels.
    pub intent_code: i32,
    /// Distance of several volumes in seconds.
    pub time_step_seconds: f64,
}

impl IntegerForm {
    /// That of a file whose values are integers by its header; `None` for floats and scaled values.
    pub fn of(header: &Header) -> Option<Self> {
        let intercept = header.intercept as i32;
        let whole = header.slope == 1.0 && f64::from(intercept) == header.intercept;
        (header.data_type.is_integer() && whole).then_some(Self {
            data_type: header.data_type,
            intercept,
            scale: None,
            intent_code: header.intent_code,
            time_step_seconds: header.time_step_seconds,
        })
    }

    /// That of a file of float64, where its values are integers: they stay in that type.
    pub fn of_doubles(header: &Header) -> Option<Self> {
        let is_plain = header.data_type == DataType::F64 && header.slope == 1.0;
        (is_plain && header.intercept == 0.0).then_some(Self {
            data_type: header.data_type,
            intercept: 0,
            scale: None,
            intent_code: header.intent_code,
            time_step_seconds: header.time_step_seconds,
        })
    }

    /// That of a file with scaled integers, as they are stored ([`read_stored_at`](super::read_stored_at)); `None` for
    /// floats, for values without a scale, and for types that 32 bits do not hold.
    pub fn of_stored(header: &Header) -> Option<Self> {
        let narrow = [DataType::U8, DataType::I8, DataType::U16, DataType::I16, DataType::I32];
        let scale = [header.slope, header.intercept];
        (narrow.contains(&header.data_type) && Self::of(header).is_none()).then_some(Self {
            data_type: header.data_type,
            intercept: 0,
            scale: Some(scale),
            intent_code: header.intent_code,
            time_step_seconds: header.time_step_seconds,
        })
    }

    /// The integer that stands for a value; `None` where none does, or the type does not hold it.
    pub fn integer(&self, value: f64) -> Option<i32> {
        let [slope, intercept] = self.scale.unwrap_or([1.0, 0.0]);
        let exact = (value - intercept) / slope;
        let rounding = if self.scale.is_some() { 1e-6 * exact.abs().max(1.0) } else { 0.0 };
        let whole = (exact - exact.round()).abs() <= rounding && exact.abs() < f64::from(i32::MAX);
        whole.then_some(exact.round() as i32).filter(|integer| self.holds(*integer))
    }

    /// Whether a value can be stored.
    pub fn holds(&self, value: i32) -> bool {
        self.fits(i64::from(value) - i64::from(self.intercept))
    }

    fn fits(&self, stored: i64) -> bool {
        let range = match self.data_type {
            DataType::U8 => 0..=i64::from(u8::MAX),
            DataType::I8 => i8::MIN.into()..=i8::MAX.into(),
            DataType::U16 => 0..=u16::MAX.into(),
            DataType::I16 => i16::MIN.into()..=i16::MAX.into(),
            DataType::U32 => 0..=u32::MAX.into(),
            DataType::I32 => i32::MIN.into()..=i32::MAX.into(),
            DataType::U64 => 0..=i64::MAX,
            DataType::I64 => i64::MIN..=i64::MAX,
            DataType::F64 => -(1 << 53)..=1 << 53,
            DataType::F32 => return false,
        };
        range.contains(&stored)
    }
}

/// Writes volumes of integers on one grid in the given form: one as a 3-D, several as a 4-D image.
///
/// # Errors
/// As [`write_volumes`](super::write_volumes); [`Error::Invalid`] for a value that the type does not hold.
pub fn write_integers(
    path: impl AsRef<Path>,
    volumes: &[LabelMap],
    form: IntegerForm,
) -> Result<()> {
    let count = i16::try_from(volumes.len());
    let (Some(first), Ok(count)) = (volumes.first(), count) else {
        let what = "a file of several volumes holds 1 to 32767 of them";
        return Err(Error::invalid(what, volumes.len(), "write several files"));
    };
    for volume in volumes {
        first.geometry.check_same_grid(&volume.geometry, "a volume of a series")?;
    }
    let mut writer = IntegerWriter::create(path, &first.geometry, count as usize, form)?;
    volumes.iter().try_for_each(|volume| writer.write(&volume.data))?;
    writer.finish()
}

/// Integers in a given form that grow by slices, volume after volume.
pub struct IntegerWriter {
    stream: Sink,
    form: IntegerForm,
}

impl IntegerWriter {
    /// Begins a file of so many volumes on a grid.
    ///
    /// # Errors
    /// As [`write_volume`](super::write_volume).
    pub fn create(
        path: impl AsRef<Path>,
        geometry: &Geometry,
        volumes: usize,
        form: IntegerForm,
    ) -> Result<Self> {
        let image = NewImage {
            volumes,
            time_step_seconds: form.time_step_seconds,
            scale: form.scale.unwrap_or([1.0, form.intercept.into()]),
            ..NewImage::new(geometry, form.data_type, Kind::of_intent(form.intent_code))
        };
        Ok(Self { stream: Sink::create(path.as_ref(), &image)?, form })
    }

    /// Appends values, x fastest.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a value that the type does not hold, [`Error::Io`] when writing fails, [`Error::Shape`] for
    /// more values than the file has.
    pub fn write(&mut self, values: &[i32]) -> Result<()> {
        self.write_each(values.len(), |i| values[i].into())
    }

    /// Appends values by their places in a list, as [`PlaneReader::with_values`](super::PlaneReader::with_values) has it.
    ///
    /// # Errors
    /// As [`IntegerWriter::write`].
    ///
    /// # Panics
    /// For a place beyond the list.
    pub fn write_listed(&mut self, places: &[i32], list: &[i64]) -> Result<()> {
        self.write_each(places.len(), |i| list[places[i] as usize])
    }

    fn write_each(&mut self, count: usize, value: impl Fn(usize) -> i64 + Sync) -> Result<()> {
        let form = self.form;
        let stored = |i: usize| value(i) - i64::from(form.intercept);
        if let Some(value) = (0..count).find(|i| !form.fits(stored(*i))).map(&value) {
            let what = format!("values must fit the type {:?} of the file", form.data_type);
            return Err(Error::invalid(what, value, "write them as floats"));
        }
        self.stream.append(count, |out| write_stored(out, count, stored, form))
    }

    /// Puts the complete file in place. Without this call nothing is left behind.
    ///
    /// # Errors
    /// [`Error::Shape`] when values are missing, [`Error::Io`] when writing fails.
    pub fn finish(self) -> Result<()> {
        self.stream.commit()
    }
}

fn write_stored(
    file: &mut dyn Write,
    count: usize,
    stored: impl Fn(usize) -> i64 + Sync,
    form: IntegerForm,
) -> io::Result<()> {
    match (form.data_type, form.data_type.bytes()) {
        (DataType::F64, _) => write_numbers(file, count, |i| (stored(i) as f64).to_le_bytes()),
        (_, 1) => write_numbers(file, count, |i| low::<1>(stored(i))),
        (_, 2) => write_numbers(file, count, |i| low::<2>(stored(i))),
        (_, 4) => write_numbers(file, count, |i| low::<4>(stored(i))),
        _ => write_numbers(file, count, |i| low::<8>(stored(i))),
    }
}

/// The low bytes of a number that fits them.
fn low<const N: usize>(number: i64) -> [u8; N] {
    let bytes = number.to_le_bytes();
    std::array::from_fn(|i| bytes[i])
}
