//! JPEG, baseline and progressive, of 8 bits: grey, YCbCr or RGB. Values are those of a lossy compression.
//!
//! Sources: ITU-T T.81 (1992), and T.871 (2011) for colours.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::super::data_type::Endian;
use super::super::reserve::reserve;
use super::luminance::{LeftOut, Model, Samples};
use super::{DAMAGED, Form, ImageFormat, Plane, PlaneFormat, check_size, open_plane};
use super::{DataType, Header, Source};
use crate::error::{Error, Result};

const READ: &str = "a JPEG must be grey, YCbCr or RGB";
const TO_RGB: &str =
    "convert it to RGB, for example with ImageMagick: magick IN -colorspace sRGB OUT";
/// A code of a progressive file can end so many empty blocks of 64 pixels.
const MOST_PIXELS: u64 = 64 * 32767;
/// The largest size that the format has.
const LARGEST: usize = u16::MAX as usize;

/// The format.
pub struct Jpeg;

impl ImageFormat for Jpeg {
    fn name(&self) -> &'static str {
        "JPEG"
    }

    fn endings(&self) -> &'static [&'static str] {
        &[".jpg", ".jpeg"]
    }

    fn begins(&self, start: &[u8]) -> bool {
        start.starts_with(b"\xff\xd8\xff")
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        open_plane(path, "JPEG", &Jpeg)
    }
}

impl PlaneFormat for Jpeg {
    fn plane(&self, path: &Path) -> Result<Plane> {
        Ok(opened(path)?.1)
    }

    fn decode(&self, path: &Path, bytes: &mut [u8]) -> Result<()> {
        let (mut decoder, _) = opened(path)?;
        if decoder.output_colorspace() != Some(ColorSpace::RGB) {
            return decoder.decode_into(bytes).map_err(|error| failed(path, error));
        }
        let mut colours = reserve(path, 3 * bytes.len())?;
        colours.resize(3 * bytes.len(), 0);
        decoder.decode_into(&mut colours).map_err(|error| failed(path, error))?;
        let samples = Samples::together(Model::Rgb, 3, Endian::Little);
        samples.fill_grey(&colours, DataType::U8, bytes);
        Ok(())
    }
}

/// Decodes a grey JPEG of a known size in a file of another format.
pub fn decode_jpeg(
    path: &Path,
    from: impl BufRead + Seek,
    size: [usize; 2],
    bytes: &mut [u8],
) -> Result<()> {
    let (mut decoder, Plane { form, left_out }) = begun(path, from)?;
    if form.size != size || left_out.colours {
        let what = format!("the JPEG must have {size:?} grey pixels");
        let colours = if left_out.colours { " in colour" } else { "" };
        return Err(Error::file(path, &what, format!("{:?}{colours}", form.size), DAMAGED));
    }
    decoder.decode_into(bytes).map_err(|error| failed(path, error))
}

fn opened(path: &Path) -> Result<(JpegDecoder<BufReader<File>>, Plane)> {
    let file = File::open(path).map_err(|source| Error::io(path, "open", source))?;
    let (decoder, plane) = begun(path, BufReader::new(file))?;
    check_size(path, plane.form, MOST_PIXELS)?;
    Ok((decoder, plane))
}

/// Reads the header.
fn begun<R: BufRead + Seek>(path: &Path, from: R) -> Result<(JpegDecoder<R>, Plane)> {
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(LARGEST)
        .set_max_height(LARGEST);
    let mut decoder = JpegDecoder::new_with_options(from, options);
    decoder.decode_headers().map_err(|error| failed(path, error))?;
    let info = decoder.info().ok_or_else(|| Error::file(path, READ, "no header", DAMAGED))?;
    let output = match (info.components, decoder.input_colorspace()) {
        // Y is the luminance.
        (1, _) | (3, Some(ColorSpace::YCbCr)) => ColorSpace::Luma,
        (3, Some(ColorSpace::RGB)) => ColorSpace::RGB,
        (count, _) => {
            return Err(Error::file(path, READ, format!("{count} components"), TO_RGB));
        }
    };
    decoder.set_options(options.jpeg_set_out_colorspace(output));
    let form = Form { size: [info.width.into(), info.height.into()], data_type: DataType::U8 };
    let left_out = LeftOut { colours: info.components > 1, alpha: false };
    Ok((decoder, Plane { form, left_out }))
}

fn failed(path: &Path, error: DecodeErrors) -> Error {
    Error::file(
        path,
        "a JPEG must be sound and complete",
        format!("{:?}", error.to_string()),
        DAMAGED,
    )
}
