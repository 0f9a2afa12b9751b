//! TIFF and BigTIFF, read: the pages are planes, grey, RGB or YCbCr, of one size and type. Strips or tiles; raw, LZW,
//! deflate, PackBits or JPEG.
//!
//! The order of the pages and the size of voxels are in the text of the first page, as OME-TIFF and ImageJ write it
//! (`description.rs`); without such a text pages are planes along z, and voxels are 1 mm, with a warning: the dots per
//! inch that many files have are those of a printer. x grows to the left, y to the back, z upwards, as ITK reads them.
//! Channels and times are volumes, time fastest, as in an OME-Zarr.
//!
//! Source: TIFF 6.0 (Adobe, 1992).

mod description;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use ::tiff::ColorType;
use ::tiff::TiffError;
use ::tiff::decoder::ifd::Value;
use ::tiff::decoder::{Decoder, Limits};
use ::tiff::tags::Tag;

use super::super::data_type::Endian;
use super::super::refuse::check_addressable;
use super::super::reserve::reserve;
use super::luminance::{LeftOut, Model, Samples};
use super::{DataType, DecodedPlanes, Format, Header, ImageFormat, Source};
use super::{Form, NO_SPACING, Plane, PlaneFormat, grid_as_itk};
use crate::error::{Error, Result};
use description::Description;

/// The format.
pub struct Tiff;

const READ: &str =
    "pages must be grey (integers of 8 to 64 bits, or floats) or RGB of 8 or 16 bits";
const CONVERT: &str = "convert it to OME-Zarr with bioformats2raw, or to a grey TIFF with Fiji";
const CONVERT_PALETTE: &str = "convert it to PNG, of which palettes are read: convert IN.tif OUT.png (ImageMagick); of \
    several pages name the folder of the PNGs";
const DAMAGED: &str = "it is damaged: copy or download it again";

/// No compression of the format has more bytes for one of the file: LZW has codes of 12 bits for up to 4096 bytes.
const LARGEST_EXPANSION: u64 = 4096;
/// Tiles may be wider than a small page.
const WIDEST_TILE: u64 = 1 << 16;
/// Longest text of a page that is read, unless the file is shorter.
const LONGEST_TEXT: u64 = 1 << 28;
/// Memory that the values of a tag may take in any file: tiff 0.11 takes 32 bytes for one of the tables of a JPEG.
const LEAST_VALUE_MEMORY: u64 = 1 << 20;
/// The `PhotometricInterpretation` of pages whose pixels are numbers of colours.
const PALETTE: u16 = 3;
/// In which samples are decoded.
const NATIVE: Endian = if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };
/// The bit of `NewSubfileType` of a smaller copy of another page.
const REDUCED: u32 = 1;

impl ImageFormat for Tiff {
    fn name(&self) -> &'static str {
        "TIFF"
    }

    fn help(&self) -> String {
        "TIFF (a stack of pages; OME-TIFF, ImageJ)".to_string()
    }

    fn endings(&self) -> &'static [&'static str] {
        &[".tif", ".tiff"]
    }

    fn begins(&self, start: &[u8]) -> bool {
        [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].iter().any(|magic| start.starts_with(*magic))
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        let mut pages = Pages::open(path)?;
        let description =
            Description::of(&pages.text, pages.resolution, pages.indices.len(), pages.samples);
        let description =
            description.map_err(|(what, value)| Error::file(path, &what, value, CONVERT))?;
        let [planes, channels, times] = description.sizes;
        let Plane { form, left_out } = pages.plane;
        let [x, y] = form.size;
        let mut dims = vec![x, y, planes];
        dims.extend([times, channels].iter().filter(|size| **size > 1));
        check_addressable(path, &dims, form.data_type)?;
        let spacing = description.spacing_mm.unwrap_or([1.0; 3]);
        let geometry = grid_as_itk([x, y, planes], spacing).map_err(Error::in_file(path))?;
        let mut header =
            Header::new(Format::named(description.name), form.data_type, dims, geometry);
        header.warnings = description.warnings;
        if description.spacing_mm.is_none() {
            header.warnings.push(NO_SPACING.to_string());
        }
        left_out.note(&mut header);
        let bytes = form.bytes();
        let decode =
            move |plane: usize, bytes: &mut [u8]| pages.decode(description.pages[plane], bytes);
        Ok((Source::decoded(path, DecodedPlanes::new(path, bytes, decode)), header))
    }
}

impl PlaneFormat for Tiff {
    fn plane(&self, path: &Path) -> Result<Plane> {
        let pages = Pages::open(path)?;
        match pages.indices.len() {
            1 => Ok(pages.plane),
            count => {
                let what = "a plane of a folder must have one page";
                Err(Error::file(path, what, count, "name the file itself, or split it into planes"))
            }
        }
    }

    fn decode(&self, path: &Path, bytes: &mut [u8]) -> Result<()> {
        Pages::open(path)?.decode(0, bytes)
    }
}

/// An open file.
struct Pages {
    path: std::path::PathBuf,
    decoder: Decoder<BufReader<File>>,
    /// Of the first page; what grey values leave out of any of them.
    plane: Plane,
    /// Samples of a pixel of the first page.
    samples: usize,
    /// Those of the pages that are no smaller copies, in the file.
    indices: Vec<usize>,
    /// Text of the first page.
    text: String,
    /// Of the first page, in pixels for a unit.
    resolution: [Option<f64>; 2],
}

impl Pages {
    fn open(path: &Path) -> Result<Self> {
        let failed = failed(path);
        let file = File::open(path).map_err(|source| Error::io(path, "open", source))?;
        let length = file.metadata().map_err(|source| Error::io(path, "read", source))?.len();
        let mut limits = Limits::default();
        // Nothing in a file is longer than the file.
        limits.ifd_value_size = length.min(LONGEST_TEXT) as usize;
        limits.intermediate_buffer_size = length as usize;
        limits.decoding_buffer_size = length.max(LEAST_VALUE_MEMORY) as usize;
        let decoder = Decoder::new(BufReader::new(file)).map_err(&failed)?;
        let mut decoder = decoder.with_limits(limits);
        let text = text(&mut decoder, length).map_err(&failed)?;
        let resolution = [Tag::XResolution, Tag::YResolution].map(|tag| {
            let value = match decoder.find_tag(tag).ok().flatten()? {
                Value::Rational(above, below) => f64::from(above) / f64::from(below),
                _ => return None,
            };
            (value > 0.0 && value.is_finite()).then_some(value)
        });
        let mut plane = plane(path, &mut decoder, length)?;
        let samples = decoder.colortype().map_err(&failed)?.num_samples().into();
        let mut indices = Vec::new();
        for index in 0.. {
            let kind = decoder.find_tag_unsigned::<u32>(Tag::NewSubfileType).map_err(&failed)?;
            if kind.unwrap_or(0) & REDUCED == 0 || index == 0 {
                let Plane { form, left_out } = self::plane(path, &mut decoder, length)?;
                if form != plane.form {
                    let what = format!("all pages must be like the first, {:?}", plane.form);
                    let value = format!("{form:?} in page {index}");
                    return Err(Error::file(path, &what, value, CONVERT));
                }
                plane.left_out = plane.left_out.or(left_out);
                indices.push(index);
            }
            if !decoder.more_images() {
                break;
            }
            decoder.next_image().map_err(&failed)?;
        }
        Ok(Self { path: path.to_path_buf(), decoder, plane, samples, indices, text, resolution })
    }

    /// Fills the voxels of a page.
    fn decode(&mut self, page: usize, bytes: &mut [u8]) -> Result<()> {
        let failed = failed(&self.path);
        self.decoder.seek_to_image(self.indices[page]).map_err(&failed)?;
        let color = self.decoder.colortype().map_err(&failed)?;
        if !matches!(color, ColorType::Gray(_)) {
            return self.decode_colours(color, bytes);
        }
        self.decoder.read_image_bytes(bytes).map_err(&failed)?;
        if NATIVE == Endian::Big {
            bytes.chunks_exact_mut(self.plane.form.data_type.bytes()).for_each(<[u8]>::reverse);
        }
        Ok(())
    }

    /// Fills the voxels of the page at which the decoder is, a strip or tile at a time.
    fn decode_colours(&mut self, color: ColorType, bytes: &mut [u8]) -> Result<()> {
        let failed = failed(&self.path);
        let (decoder, Form { size: [width, height], data_type }) =
            (&mut self.decoder, self.plane.form);
        let voxel = data_type.bytes();
        let model = if matches!(color, ColorType::YCbCr(_)) { Model::Grey } else { Model::Rgb };
        let mut pixels = Samples::together(model, color.num_samples().into(), NATIVE);
        let is_apart = decoder.image_buffer_layout().map_err(&failed)?.planes > 1;
        // Of YCbCr only Y is read.
        let planes = if is_apart && model == Model::Rgb { 3 } else { 1 };
        let (part_width, part_height) = decoder.chunk_dimensions();
        let [part_width, part_height] = [part_width, part_height].map(|size| size as usize);
        let across = width.div_ceil(part_width);
        let parts = across * height.div_ceil(part_height);
        let mut samples = Vec::new();
        for part in 0..parts {
            let index = |plane: usize| (part + plane * parts) as u32;
            // tiff 0.11 counts the padding of the last row of tiles as pixels, but in the first plane.
            let last = decoder.image_chunk_buffer_layout(index(planes - 1)).map_err(&failed)?.len;
            if part == 0 {
                // No other part is larger.
                samples = reserve(&self.path, planes * last)?;
            }
            samples.resize(planes * last, 0);
            for (plane, samples) in samples.chunks_exact_mut(last).enumerate() {
                decoder.read_chunk_bytes(index(plane), samples).map_err(&failed)?;
            }
            if is_apart {
                (pixels.pixel_stride, pixels.sample_stride) = (1, last / voxel);
            }
            let (columns, rows) = decoder.chunk_data_dimensions(index(0));
            let [columns, rows] = [columns, rows].map(|size| size as usize);
            let corner = part / across * part_height * width + part % across * part_width;
            for row in 0..rows {
                let grey = &mut bytes[(corner + row * width) * voxel..][..columns * voxel];
                let start = row * columns * pixels.pixel_stride * voxel;
                pixels.fill_grey(&samples[start..], data_type, grey);
            }
        }
        Ok(())
    }
}

/// The text of the page at which a decoder is; what is no UTF-8 of it is replaced, as some programs write Latin-1.
fn text(decoder: &mut Decoder<BufReader<File>>, length: u64) -> Result<String, TiffError> {
    let mut page = decoder.image_ifd();
    let Some(entry) = page.find_entry(Tag::ImageDescription) else { return Ok(String::new()) };
    let mut bytes = vec![0; entry.count().min(length).min(LONGEST_TEXT) as usize];
    let known = page.find_tag_bytes(Tag::ImageDescription, &mut bytes, 0)?.unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..known.min(bytes.len())]).into_owned();
    Ok(text.trim_end_matches('\0').to_string())
}

/// What the page is at which a decoder is.
fn plane(path: &Path, decoder: &mut Decoder<BufReader<File>>, length: u64) -> Result<Plane> {
    let failed = failed(path);
    let (width, height) = decoder.dimensions().map_err(&failed)?;
    let pixels = decoder.find_tag_unsigned::<u16>(Tag::PhotometricInterpretation);
    if pixels.map_err(&failed)? == Some(PALETTE) {
        return Err(Error::file(path, READ, "a palette", CONVERT_PALETTE));
    }
    let color = decoder.colortype().map_err(&failed)?;
    let format = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat).map_err(&failed)?;
    let format = format.and_then(|formats| formats.first().copied()).unwrap_or(1);
    let samples = decoder.find_tag_unsigned::<u16>(Tag::SamplesPerPixel).map_err(&failed)?;
    let samples = samples.unwrap_or(1);
    // tiff 0.11 misplaces pixels that have further samples, of no known meaning.
    let data_type = data_type(color, format).filter(|_| samples == color.num_samples());
    let Some(data_type) = data_type else {
        let value = format!("{color:?}, {samples} samples, sample format {format}");
        return Err(Error::file(path, READ, value, CONVERT));
    };
    // Refuses subsampled colours that are not in a JPEG.
    let is_apart = decoder.image_buffer_layout().map_err(&failed)?.planes > 1;
    let form = Form { size: [width as usize, height as usize], data_type };
    let pixels = u64::from(width) * u64::from(height);
    let most = length.saturating_mul(LARGEST_EXPANSION);
    let mut side = |tag| {
        let side = decoder.find_tag_unsigned::<u32>(tag).map_err(&failed)?;
        Ok::<u64, Error>(side.unwrap_or(0).into())
    };
    // A row of a tile is allocated, however narrow the page is, and of separate colours whole tiles.
    let tile = side(Tag::TileWidth)? * if is_apart { side(Tag::TileLength)? } else { 1 };
    if pixels == 0 || pixels > most || tile > most.max(WIDEST_TILE) {
        let what = format!("a file of {length} bytes cannot have the pixels of its header");
        return Err(Error::file(path, &what, format!("{width} x {height}"), DAMAGED));
    }
    let colours = !matches!(color, ColorType::Gray(_));
    let left_out = LeftOut { colours, alpha: matches!(color, ColorType::RGBA(_)) };
    Ok(Plane { form, left_out })
}

/// The type of samples of a format (1 unsigned, 2 signed, 3 float); `None` for what is not read.
fn data_type(color: ColorType, format: u16) -> Option<DataType> {
    Some(match (color, format) {
        (ColorType::Gray(8) | ColorType::YCbCr(8), 1) => DataType::U8,
        (ColorType::RGB(8) | ColorType::RGBA(8), 1) => DataType::U8,
        (ColorType::Gray(16) | ColorType::RGB(16) | ColorType::RGBA(16), 1) => DataType::U16,
        (ColorType::Gray(32), 1) => DataType::U32,
        (ColorType::Gray(64), 1) => DataType::U64,
        (ColorType::Gray(8), 2) => DataType::I8,
        (ColorType::Gray(16), 2) => DataType::I16,
        (ColorType::Gray(32), 2) => DataType::I32,
        (ColorType::Gray(64), 2) => DataType::I64,
        (ColorType::Gray(32), 3) => DataType::F32,
        (ColorType::Gray(64), 3) => DataType::F64,
        _ => return None,
    })
}

fn failed(path: &Path) -> impl Fn(TiffError) -> Error + use<> {
    let path = path.to_path_buf();
    move |error| match error {
        TiffError::IoError(source) if source.kind() != std::io::ErrorKind::UnexpectedEof => {
            Error::io(&path, "read", source)
        }
        TiffError::UnsupportedError(error) => Error::file(
            &path,
            "pages must be of a kind that is read",
            format!("\"{error}\""),
            CONVERT,
        ),
        other => {
            Error::file(&path, "a TIFF must be sound and complete", format!("\"{other}\""), DAMAGED)
        }
    }
}
