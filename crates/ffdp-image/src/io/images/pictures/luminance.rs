//! Colours as grey values: the luminance 0.299 R + 0.587 G + 0.114 B of ITU-R BT.601, rounded to the nearest integer.
//! The Y of a JPEG is the same, so that a picture has the same voxels in every format.

use super::super::data_type::Endian;
use super::{DataType, Header};

const HAS_COLOURS: &str =
    "the picture has colours; voxels are their luminance, 0.299 R + 0.587 G + 0.114 B";
const HAS_ALPHA: &str = "the picture has transparency, which is ignored";

/// What a picture has that grey values leave out.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeftOut {
    pub colours: bool,
    pub alpha: bool,
}

impl LeftOut {
    /// What at least one of two planes has.
    pub fn or(self, other: Self) -> Self {
        Self { colours: self.colours || other.colours, alpha: self.alpha || other.alpha }
    }

    /// Says so in a header.
    pub fn note(self, header: &mut Header) {
        header.is_luminance = self.colours;
        for (has, warning) in [(self.colours, HAS_COLOURS), (self.alpha, HAS_ALPHA)] {
            header.warnings.extend(has.then(|| warning.to_string()));
        }
    }
}

/// Luminance of red, green and blue.
pub fn luminance(rgb: [u16; 3]) -> u16 {
    let [r, g, b] = rgb.map(u32::from);
    ((299 * r + 587 * g + 114 * b + 500) / 1000) as u16
}

/// What the first samples of a pixel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// One grey value, or the Y of YCbCr.
    Grey,
    /// Red, green and blue.
    Rgb,
}

/// Where the samples of pixels are.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    pub model: Model,
    /// Samples from one pixel to the next.
    pub pixel_stride: usize,
    /// Samples from one sample of a pixel to the next.
    pub sample_stride: usize,
    pub endian: Endian,
}

impl Samples {
    /// So many samples a pixel, which lie together.
    pub fn together(model: Model, count: usize, endian: Endian) -> Self {
        Self { model, pixel_stride: count, sample_stride: 1, endian }
    }

    /// Fills the grey values of pixels, least significant byte first. `data_type`, U8 or U16, is that of samples and of
    /// values.
    pub fn fill_grey(&self, samples: &[u8], data_type: DataType, grey: &mut [u8]) {
        let place = |pixel: usize, k: usize| pixel * self.pixel_stride + k * self.sample_stride;
        if data_type != DataType::U16 {
            for (pixel, value) in grey.iter_mut().enumerate() {
                *value = self.grey(|k| samples[place(pixel, k)].into()) as u8;
            }
            return;
        }
        let number = match self.endian {
            Endian::Little => u16::from_le_bytes,
            Endian::Big => u16::from_be_bytes,
        };
        for (pixel, value) in grey.chunks_exact_mut(2).enumerate() {
            let sample = |k| {
                let at = 2 * place(pixel, k);
                number([samples[at], samples[at + 1]])
            };
            value.copy_from_slice(&self.grey(sample).to_le_bytes());
        }
    }

    fn grey(&self, sample: impl Fn(usize) -> u16) -> u16 {
        match self.model {
            Model::Grey => sample(0),
            Model::Rgb => luminance([sample(0), sample(1), sample(2)]),
        }
    }
}
