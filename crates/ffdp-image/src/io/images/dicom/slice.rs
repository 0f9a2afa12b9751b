//! One file: where its plane lies, and how its pixels become values.

use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::super::data_type::DataType;
use super::super::pictures::decode_jpeg;
use super::elements::{Elements, Tag, fragments};
use super::{CONVERT, DAMAGED, refuse_syntax, rle};
use crate::error::{Error, Result};

const INSTANCE: Tag = (0x0008, 0x0018);
const IMAGE_TYPE: Tag = (0x0008, 0x0008);
const REPETITION_TIME: Tag = (0x0018, 0x0080);
const ECHO_TIME: Tag = (0x0018, 0x0081);
const TEMPORAL_POSITION: Tag = (0x0020, 0x0100);
const ACQUISITION_NUMBER: Tag = (0x0020, 0x0012);
const INSTANCE_NUMBER: Tag = (0x0020, 0x0013);
const SERIES: Tag = (0x0020, 0x000e);
const SERIES_DESCRIPTION: Tag = (0x0008, 0x103e);
const POSITION: Tag = (0x0020, 0x0032);
const ORIENTATION: Tag = (0x0020, 0x0037);
const THICKNESS: Tag = (0x0018, 0x0050);
const SPACING_BETWEEN: Tag = (0x0018, 0x0088);
const SAMPLES: Tag = (0x0028, 0x0002);
const PHOTOMETRIC: Tag = (0x0028, 0x0004);
const FRAMES: Tag = (0x0028, 0x0008);
const ROWS: Tag = (0x0028, 0x0010);
const COLUMNS: Tag = (0x0028, 0x0011);
const PIXEL_SPACING: Tag = (0x0028, 0x0030);
const BITS_ALLOCATED: Tag = (0x0028, 0x0100);
const BITS_STORED: Tag = (0x0028, 0x0101);
const HIGH_BIT: Tag = (0x0028, 0x0102);
const SIGNED: Tag = (0x0028, 0x0103);
const INTERCEPT: Tag = (0x0028, 0x1052);
const SLOPE: Tag = (0x0028, 0x1053);

/// RLE has 128 bytes for two, a JPEG at most 64 for two bits.
const LARGEST_EXPANSION: u64 = 256;

/// A plane in a file.
#[derive(Clone, Debug)]
pub struct Slice {
    pub path: PathBuf,
    /// Identifier and description.
    pub series: (String, String),
    /// The identifier of this plane alone; empty where none is said.
    pub instance: String,
    /// Echo time (ms) and type of image, as they are written.
    pub contrast: (String, String),
    /// What may distinguish volumes, the surest first; the last one numbers planes.
    pub order: [Option<i64>; 3],
    /// From a volume to the next one; 0 where it is not said.
    pub repetition_seconds: f64,
    pub form: Form,
    /// Of the first pixel, in LPS mm.
    pub position: [f64; 3],
    /// Of planes, where there is only one.
    pub thickness: f64,
    pub slope: f64,
    pub intercept: f64,
    pub is_inverted: bool,
    pixels: (u64, Option<u64>),
    packing: Packing,
}

/// What the planes of a series share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// Columns and rows.
    pub size: [usize; 2],
    /// Of pixels along a row, and of rows, in mm.
    pub spacing: [f64; 2],
    /// Directions of a row, and of a column, in LPS.
    pub axes: [[f64; 3]; 2],
    bits: Bits,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bits {
    allocated: u16,
    stored: u16,
    high: u16,
    is_signed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Packing {
    Plain,
    Rle,
    Jpeg,
}

impl Form {
    pub fn data_type(&self) -> DataType {
        match (self.bits.allocated, self.bits.is_signed) {
            (8, false) => DataType::U8,
            (8, true) => DataType::I8,
            (16, false) => DataType::U16,
            (16, true) => DataType::I16,
            (_, false) => DataType::U32,
            (_, true) => DataType::I32,
        }
    }

    pub fn bytes(&self) -> usize {
        self.size[0] * self.size[1] * self.data_type().bytes()
    }
}

impl Slice {
    /// The plane of a file; `None` for a file without pixels, as a report or a directory.
    ///
    /// # Errors
    /// [`Error::File`] for what is no grey plane with a place in space, or damaged, [`Error::Io`].
    pub fn of(path: &Path) -> Result<Option<Self>> {
        let elements = Elements::of(path)?;
        let (Some(pixels), Some(rows), Some(columns)) =
            (elements.pixels, elements.short(ROWS), elements.short(COLUMNS))
        else {
            return Ok(None);
        };
        let refuse =
            |what: &str, value: String, fix: &str| Err(Error::file(path, what, value, fix));
        let samples = elements.short(SAMPLES).unwrap_or(1);
        let photometric = elements.text(PHOTOMETRIC).unwrap_or_default();
        if samples != 1 || !["MONOCHROME1", "MONOCHROME2", ""].contains(&photometric.as_str()) {
            let value = format!("{samples} values a pixel, {photometric}");
            return refuse("the image must be grey", value, CONVERT);
        }
        let frames = elements.text(FRAMES).unwrap_or_else(|| "1".to_string());
        if frames != "1" {
            return refuse("a file must have one frame", format!("{frames} frames"), CONVERT);
        }
        let form = Form::of(path, &elements, [columns.into(), rows.into()])?;
        let Some(position) = elements.exactly::<3>(POSITION) else {
            return refuse("ImagePositionPatient must be three numbers", "none".into(), CONVERT);
        };
        let packing = match elements.transfer_syntax.as_str() {
            "1.2.840.10008.1.2" | "1.2.840.10008.1.2.1" => Packing::Plain,
            "1.2.840.10008.1.2.5" => Packing::Rle,
            "1.2.840.10008.1.2.4.50" if form.bits.allocated == 8 => Packing::Jpeg,
            other => return Err(refuse_syntax(path, other)),
        };
        let length = std::fs::metadata(path).map_err(|e| Error::io(path, "read", e))?.len();
        let most_bytes = length.saturating_mul(LARGEST_EXPANSION);
        match (packing, pixels.1) {
            (Packing::Plain, Some(length)) if length >= form.bytes() as u64 => {}
            (Packing::Rle | Packing::Jpeg, None) if form.bytes() as u64 <= most_bytes => {}
            (_, length) => {
                let what = format!("the pixels must have {} bytes", form.bytes());
                return refuse(&what, format!("{length:?}"), DAMAGED);
            }
        }
        let one = |tag: Tag| elements.numbers(tag).and_then(|numbers| numbers.first().copied());
        let thickness = one(SPACING_BETWEEN).or(one(THICKNESS)).map(f64::abs);
        let text = |tag: Tag| elements.text(tag).unwrap_or_default();
        Ok(Some(Self {
            path: path.to_path_buf(),
            series: (text(SERIES), text(SERIES_DESCRIPTION)),
            instance: text(INSTANCE),
            contrast: (text(ECHO_TIME), text(IMAGE_TYPE)),
            order: [TEMPORAL_POSITION, ACQUISITION_NUMBER, INSTANCE_NUMBER]
                .map(|tag| one(tag).map(|number| number as i64)),
            repetition_seconds: one(REPETITION_TIME).map_or(0.0, |ms| ms / 1000.0),
            form,
            position,
            thickness: thickness.filter(|size| *size > 0.0).unwrap_or(1.0),
            slope: one(SLOPE).filter(|slope| *slope != 0.0).unwrap_or(1.0),
            intercept: one(INTERCEPT).unwrap_or(0.0),
            is_inverted: photometric == "MONOCHROME1",
            pixels,
            packing,
        }))
    }

    /// Fills the stored values, least significant byte first.
    ///
    /// # Errors
    /// [`Error::File`] where they are damaged, [`Error::Io`].
    pub fn decode(&self, bytes: &mut [u8]) -> Result<()> {
        let failed = |source| Error::io(&self.path, "read", source);
        let damaged = |reason: String| {
            Error::file(&self.path, "the pixels must be sound and complete", reason, DAMAGED)
        };
        match self.packing {
            Packing::Plain => {
                let mut file = File::open(&self.path).map_err(failed)?;
                file.seek(SeekFrom::Start(self.pixels.0)).map_err(failed)?;
                file.read_exact(bytes).map_err(failed)?;
            }
            Packing::Rle => {
                let packed = fragments(&self.path, self.pixels.0)?;
                let width = self.form.data_type().bytes();
                rle::unpack(&packed, width, bytes)
                    .ok_or_else(|| damaged(format!("{} bytes of RLE", packed.len())))?;
            }
            Packing::Jpeg => {
                let packed = fragments(&self.path, self.pixels.0)?;
                decode_jpeg(&self.path, Cursor::new(packed), self.form.size, bytes)?;
            }
        }
        self.form.bits.unpack(bytes);
        Ok(())
    }
}

impl Form {
    fn of(path: &Path, elements: &Elements, size: [usize; 2]) -> Result<Self> {
        let refuse = |what: &str, value: String| Err(Error::file(path, what, value, CONVERT));
        let Some([rows, columns]) = elements.exactly::<2>(PIXEL_SPACING) else {
            return refuse("PixelSpacing must be two numbers", "none".into());
        };
        let Some([a, b, c, d, e, f]) = elements.exactly::<6>(ORIENTATION) else {
            return refuse("ImageOrientationPatient must be six numbers", "none".into());
        };
        let short = |tag: Tag| elements.short(tag);
        let allocated = short(BITS_ALLOCATED).unwrap_or(0);
        let stored = short(BITS_STORED).unwrap_or(allocated);
        let high = short(HIGH_BIT).unwrap_or(stored.saturating_sub(1));
        let is_signed = short(SIGNED) == Some(1);
        let is_sound = [8, 16, 32].contains(&allocated)
            && stored >= 1
            && high < allocated
            && stored <= high + 1
            && size.iter().all(|n| *n > 0);
        if !is_sound {
            let what = "pixels must be integers of 8, 16 or 32 bits";
            let [x, y] = size;
            let value = format!("{x} x {y} pixels, bits {stored} of {allocated}, highest {high}");
            return refuse(what, value);
        }
        let bits = Bits { allocated, stored, high, is_signed };
        Ok(Self { size, spacing: [columns, rows], axes: [[a, b, c], [d, e, f]], bits })
    }

    /// Directions that writers round: two planes have the same ones within this.
    const SAME_AXES: f64 = 1e-3;
    /// Relative difference of spacings that are the same.
    const SAME_SPACING: f64 = 1e-4;

    /// Whether planes of both can be in one image.
    pub fn agrees(&self, other: &Self) -> bool {
        let near = |a: &[f64], b: &[f64], most: f64| {
            a.iter().zip(b).all(|(a, b)| (a - b).abs() <= most * b.abs().max(1e-9))
        };
        let axes = self.axes.as_flattened().iter().zip(other.axes.as_flattened());
        self.size == other.size
            && self.bits == other.bits
            && near(&self.spacing, &other.spacing, Self::SAME_SPACING)
            && axes.into_iter().all(|(a, b)| (a - b).abs() <= Self::SAME_AXES)
    }
}

impl Bits {
    /// Leaves the bits of the value, with its sign; others may have overlays.
    fn unpack(self, bytes: &mut [u8]) {
        if self.stored == self.allocated {
            return;
        }
        let (drop, keep) = (self.high + 1 - self.stored, 32 - u32::from(self.stored));
        let width = usize::from(self.allocated / 8);
        for value in bytes.chunks_exact_mut(width) {
            let mut whole = [0; 4];
            whole[..width].copy_from_slice(value);
            let bits = u32::from_le_bytes(whole) >> drop << keep;
            let bits = match self.is_signed {
                true => (bits as i32 >> keep) as u32,
                false => bits >> keep,
            };
            value.copy_from_slice(&bits.to_le_bytes()[..width]);
        }
    }
}
