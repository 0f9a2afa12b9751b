//! PNG, of 1 to 16 bits: grey, colours or a palette. Source: Portable Network Graphics Specification (third edition), W3C
//! 2025.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::Path;

use png::{BitDepth, ColorType, Decoder, DecodingError, Info, InterlaceInfo, Reader};
use png::{Transformations, expand_interlaced_row};

use super::super::data_type::Endian;
use super::luminance::{LeftOut, Model, Samples, luminance};
use super::{DAMAGED, Form, ImageFormat, Plane, PlaneFormat, check_size, open_plane};
use super::{DataType, Header, Source};
use crate::error::{Error, Result};

/// Deflate has at most 1032 bytes for one, each of at most eight pixels.
const MOST_PIXELS: u64 = 8 * 1032;

/// The format.
pub struct Png;

impl ImageFormat for Png {
    fn name(&self) -> &'static str {
        "PNG"
    }

    fn endings(&self) -> &'static [&'static str] {
        &[".png"]
    }

    fn begins(&self, start: &[u8]) -> bool {
        start.starts_with(b"\x89PNG\r\n\x1a\n")
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        open_plane(path, "PNG", &Png)
    }
}

impl PlaneFormat for Png {
    fn plane(&self, path: &Path) -> Result<Plane> {
        plane(path, reader(path)?.info())
    }

    fn decode(&self, path: &Path, bytes: &mut [u8]) -> Result<()> {
        let mut reader = reader(path)?;
        let Form { size: [width, _], data_type } = plane(path, reader.info())?.form;
        let pixels = Pixels::of(reader.info());
        let (stride, bits) = (width * data_type.bytes(), 8 * data_type.bytes() as u8);
        let (mut grey, mut line) = (vec![0; stride], 0);
        while let Some(row) = reader.next_interlaced_row().map_err(|error| failed(path, error))? {
            // The passes of an interlaced picture have shorter rows.
            let count = width.min(8 * row.data().len() / pixels.bits());
            let grey = &mut grey[..count * data_type.bytes()];
            pixels.fill_grey(row.data(), data_type, grey);
            match row.interlace() {
                InterlaceInfo::Adam7(pass) => {
                    expand_interlaced_row(bytes, stride, grey, pass, bits)
                }
                InterlaceInfo::Null(_) => {
                    bytes[line * stride..][..grey.len()].copy_from_slice(grey)
                }
            }
            line += 1;
        }
        // The checksums after the last row.
        reader.finish().map_err(|error| failed(path, error))
    }
}

/// How the pixels of a row are stored.
enum Pixels {
    /// Values of a table, by numbers of so many bits. Every row begins a byte, whose highest bits are the first pixel.
    Listed { bits: usize, values: Vec<u8> },
    /// Samples of so many bits.
    Sampled { bits: usize, samples: Samples },
}

impl Pixels {
    fn of(info: &Info) -> Self {
        let bits = info.bit_depth as usize;
        let sampled = |model| {
            let samples = Samples::together(model, info.color_type.samples(), Endian::Big);
            Self::Sampled { bits, samples }
        };
        match info.color_type {
            ColorType::Indexed => {
                let grey = palette(info).map(|rgb| luminance(rgb.map(u16::from)) as u8);
                let mut values: Vec<u8> = grey.collect();
                // Numbers beyond the palette are black, as in other decoders.
                values.resize(256, 0);
                Self::Listed { bits, values }
            }
            ColorType::Grayscale if bits < 8 => Self::Listed { bits, values: (0..=255).collect() },
            ColorType::Grayscale | ColorType::GrayscaleAlpha => sampled(Model::Grey),
            ColorType::Rgb | ColorType::Rgba => sampled(Model::Rgb),
        }
    }

    /// Of one pixel.
    fn bits(&self) -> usize {
        match self {
            Self::Listed { bits, .. } => *bits,
            Self::Sampled { bits, samples } => bits * samples.pixel_stride,
        }
    }

    fn fill_grey(&self, row: &[u8], data_type: DataType, grey: &mut [u8]) {
        match self {
            Self::Listed { bits, values } => {
                for (i, to) in grey.iter_mut().enumerate() {
                    let (byte, bit) = (row[i * bits / 8], i * bits % 8);
                    let mask = 0xff >> (8 - bits);
                    *to = values[usize::from(byte >> (8 - bits - bit) & mask)];
                }
            }
            Self::Sampled { samples, .. } => samples.fill_grey(row, data_type, grey),
        }
    }
}

/// Red, green and blue of the numbers of pixels.
fn palette<'a>(info: &'a Info) -> impl Iterator<Item = [u8; 3]> + use<'a> {
    let bytes = info.palette.as_deref().unwrap_or_default();
    bytes.chunks_exact(3).map(|rgb| [rgb[0], rgb[1], rgb[2]])
}

fn reader(path: &Path) -> Result<Reader<BufReader<File>>> {
    let file = File::open(path).map_err(|source| Error::io(path, "open", source))?;
    let mut decoder = Decoder::new(BufReader::new(file));
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.read_info().map_err(|error| failed(path, error))
}

fn plane(path: &Path, info: &Info) -> Result<Plane> {
    let data_type = match info.bit_depth {
        BitDepth::Sixteen => DataType::U16,
        _ => DataType::U8,
    };
    let form = Form { size: [info.width as usize, info.height as usize], data_type };
    check_size(path, form, MOST_PIXELS)?;
    let colours = match info.color_type {
        ColorType::Grayscale | ColorType::GrayscaleAlpha => false,
        ColorType::Rgb | ColorType::Rgba => true,
        ColorType::Indexed if info.palette.is_none() => {
            return Err(Error::file(path, "a PNG of indices must have a palette", "none", DAMAGED));
        }
        ColorType::Indexed => palette(info).any(|[r, g, b]| r != g || g != b),
    };
    let has_channel = matches!(info.color_type, ColorType::GrayscaleAlpha | ColorType::Rgba);
    let left_out = LeftOut { colours, alpha: has_channel || info.trns.is_some() };
    Ok(Plane { form, left_out })
}

fn failed(path: &Path, error: DecodingError) -> Error {
    match error {
        DecodingError::IoError(source) if source.kind() != ErrorKind::UnexpectedEof => {
            Error::io(path, "read", source)
        }
        other => {
            Error::file(path, "a PNG must be sound and complete", format!("\"{other}\""), DAMAGED)
        }
    }
}
