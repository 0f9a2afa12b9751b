//! JPEG, baseline and progressive, of one component of 8 bits. Source: ITU-T T.81 (1992). Values are those of a lossy
//! compression.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::{DAMAGED, Form, ImageFormat, NOT_GREY, PlaneFormat, TO_GREY, check_size, open_plane};
use super::{DataType, Header, Source};
use crate::error::{Error, Result};

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
    fn form(&self, path: &Path) -> Result<Form> {
        Ok(opened(path)?.1)
    }

    fn decode(&self, path: &Path, bytes: &mut [u8]) -> Result<()> {
        let (mut decoder, _) = opened(path)?;
        decoder.decode_into(bytes).map_err(|error| failed(path, error))
    }
}

/// Decodes a JPEG of a known size in a file of another format.
pub fn decode_jpeg(
    path: &Path,
    from: impl BufRead + Seek,
    size: [usize; 2],
    bytes: &mut [u8],
) -> Result<()> {
    let (mut decoder, form) = begun(path, from)?;
    if form.size != size {
        let what = format!("the JPEG must have {size:?} pixels");
        return Err(Error::file(path, &what, format!("{:?}", form.size), DAMAGED));
    }
    decoder.decode_into(bytes).map_err(|error| failed(path, error))
}

fn opened(path: &Path) -> Result<(JpegDecoder<BufReader<File>>, Form)> {
    let file = File::open(path).map_err(|source| Error::io(path, "open", source))?;
    let (decoder, form) = begun(path, BufReader::new(file))?;
    check_size(path, form, MOST_PIXELS)?;
    Ok((decoder, form))
}

/// Reads the header.
fn begun<R: BufRead + Seek>(path: &Path, from: R) -> Result<(JpegDecoder<R>, Form)> {
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(LARGEST)
        .set_max_height(LARGEST)
        .jpeg_set_out_colorspace(ColorSpace::Luma);
    let mut decoder = JpegDecoder::new_with_options(from, options);
    decoder.decode_headers().map_err(|error| failed(path, error))?;
    let info = decoder.info().ok_or_else(|| Error::file(path, NOT_GREY, "no header", DAMAGED))?;
    if info.components != 1 {
        return Err(Error::file(
            path,
            NOT_GREY,
            format!("{} components", info.components),
            TO_GREY,
        ));
    }
    let form = Form { size: [info.width.into(), info.height.into()], data_type: DataType::U8 };
    Ok((decoder, form))
}

fn failed(path: &Path, error: DecodeErrors) -> Error {
    Error::file(
        path,
        "a JPEG must be sound and complete",
        format!("{:?}", error.to_string()),
        DAMAGED,
    )
}
