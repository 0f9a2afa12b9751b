//! PNG, of 1 to 16 bits. Source: Portable Network Graphics Specification (third edition), W3C 2025.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::Path;

use png::{BitDepth, ColorType, Decoder, DecodingError, Reader, Transformations};

use super::{DAMAGED, Form, ImageFormat, NOT_GREY, PlaneFormat, TO_GREY, check_size, open_plane};
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
    fn form(&self, path: &Path) -> Result<Form> {
        form(path, &reader(path)?)
    }

    fn decode(&self, path: &Path, bytes: &mut [u8]) -> Result<()> {
        let mut reader = reader(path)?;
        let [width, _] = form(path, &reader)?.size;
        let bits = reader.info().bit_depth as usize;
        let mut rows = vec![0; reader.output_buffer_size().unwrap_or(0)];
        reader.next_frame(&mut rows).map_err(|error| failed(path, error))?;
        // The checksums after the last row.
        reader.finish().map_err(|error| failed(path, error))?;
        match bits {
            16 => {
                for (to, from) in bytes.chunks_exact_mut(2).zip(rows.chunks_exact(2)) {
                    to.copy_from_slice(&[from[1], from[0]]);
                }
            }
            8 => bytes.copy_from_slice(&rows),
            // Every row begins a byte, whose highest bits are the first pixel.
            bits => {
                let row_bytes = (width * bits).div_ceil(8);
                for (i, to) in bytes.iter_mut().enumerate() {
                    let (y, bit) = (i / width, i % width * bits);
                    let byte = rows[y * row_bytes + bit / 8];
                    *to = byte >> (8 - bits - bit % 8) & ((1 << bits) - 1);
                }
            }
        }
        Ok(())
    }
}

fn reader(path: &Path) -> Result<Reader<BufReader<File>>> {
    let file = File::open(path).map_err(|source| Error::io(path, "open", source))?;
    let mut decoder = Decoder::new(BufReader::new(file));
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.read_info().map_err(|error| failed(path, error))
}

fn form(path: &Path, reader: &Reader<BufReader<File>>) -> Result<Form> {
    let info = reader.info();
    if info.color_type != ColorType::Grayscale || info.trns.is_some() {
        let value = match info.color_type {
            ColorType::Grayscale => "a transparent grey".to_string(),
            other => format!("{other:?}"),
        };
        return Err(Error::file(path, NOT_GREY, value, TO_GREY));
    }
    let data_type = match info.bit_depth {
        BitDepth::Sixteen => DataType::U16,
        _ => DataType::U8,
    };
    let form = Form { size: [info.width as usize, info.height as usize], data_type };
    check_size(path, form, MOST_PIXELS)?;
    Ok(form)
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
