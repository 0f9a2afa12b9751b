//! NRRD (`.nrrd`, and `.nhdr` with its data next to it), raw or gzip: a volume, several along the last axis, or a
//! displacement, whose vectors are in LPS mm. Written: one volume, gzip.
//!
//! Source: the format's definition, <https://teem.sourceforge.net/nrrd/format.html>. The placement is by `space
//! directions` and `space origin` in a space of patient axes, which becomes RAS; without, by `spacings`.

use std::path::{Path, PathBuf};

use super::data_type::{DataType, Endian};
use super::file_writer::FileWriter;
use super::format::{ImageFormat, ImageWriter};
use super::header::{Format, Header, INTENT_LABEL};
use super::new_image::{Kind, NewImage};
use super::source::{Packing, Source};
use super::text_header::{Voxels, both_files, refuse, start_of_file};
use crate::error::{Error, Result};
use crate::io::lps::LPS_SIGNS;

mod placement;

use placement::Axes;

/// A header is text of a few hundred bytes; more is no header.
const LONGEST_HEADER: usize = 1 << 20;

/// The format.
pub struct Nrrd;

impl ImageFormat for Nrrd {
    fn name(&self) -> &'static str {
        "NRRD"
    }

    fn endings(&self) -> &'static [&'static str] {
        &[".nrrd", ".nhdr"]
    }

    fn written(&self) -> &'static [&'static str] {
        &[".nrrd"]
    }

    fn begins(&self, start: &[u8]) -> bool {
        start.starts_with(MAGIC)
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        open(path)
    }

    fn files(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let (text, _) = text(path)?;
        Ok(both_files(path, data_file(&text).map(|name| path.with_file_name(name))))
    }

    fn create(&self, path: &Path, image: &NewImage) -> Result<Box<dyn ImageWriter>> {
        // The header is not packed.
        FileWriter::plain(path, &header_of(image)?)?.gzip()?.boxed()
    }
}

const MAGIC: &[u8] = b"NRRD000";

/// The text of the header up to its empty line, and where the data begin.
fn text(path: &Path) -> Result<(String, u64)> {
    let bytes = start_of_file(path, LONGEST_HEADER)?;
    let ends = [&b"\n\n"[..], b"\r\n\r\n"].map(|end| {
        bytes.windows(end.len()).position(|window| window == end).map(|at| at + end.len())
    });
    let end = ends.into_iter().flatten().min().unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Ok((text, end as u64))
}

/// The value of a field; names of fields are compared without case.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().skip(1).filter(|line| !line.starts_with('#'));
    let mut pairs = lines.filter_map(|line| line.split_once(": "));
    pairs.find(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The name of the file with the data of a header that stands alone.
fn data_file(text: &str) -> Option<&str> {
    field(text, "data file").or_else(|| field(text, "datafile"))
}

/// The value of a field that must be there.
fn needed<'a>(path: &Path, text: &'a str, name: &str) -> Result<&'a str> {
    let missing = || refuse(path, &format!("the header must have {name}"), "none");
    field(text, name).ok_or_else(missing)
}

fn open(path: &Path) -> Result<(Source, Header)> {
    let (text, end) = text(path)?;
    if !text.as_bytes().starts_with(MAGIC) {
        let first: String = text.chars().take(8).collect();
        return Err(refuse(path, "the file must begin with NRRD000", format!("{first:?}")));
    }
    let name = needed(path, &text, "type")?;
    let data_type =
        data_type(name).ok_or_else(|| refuse(path, "voxels must be integers or floats", name))?;
    needed(path, &text, "sizes")?;
    let axes = Axes::of(path, &text)?;
    let (geometry, warnings) = axes.geometry(path, &text)?;
    let mut header = Header::new(Format::named("NRRD"), data_type, axes.size.clone(), geometry);
    header.warnings = warnings;
    set_other_axis(&mut header, &axes, path, &text)?;
    header.endian = endian(path, &text, data_type)?;
    // A field of our own: NRRD says nothing of labels.
    if text.lines().any(|line| line == LABELS) {
        header.intent_code = INTENT_LABEL;
    }
    voxels(path, &text, end, &header)?.open(header)
}

/// Makes a header that of vectors or of several volumes, where there is an axis that is not of space.
fn set_other_axis(header: &mut Header, axes: &Axes, path: &Path, text: &str) -> Result<()> {
    match axes.other {
        None | Some((1, _)) => {}
        Some((3, true)) if !header.data_type.is_integer() && !axes.is_colour => {
            header.set_vectors();
            header.slope = axes.unit_mm;
        }
        Some((3, false)) if field(text, "kinds").is_some_and(|kinds| kinds.contains("vector")) => {
            header.set_vectors();
            (header.is_interleaved, header.slope) = (false, axes.unit_mm);
        }
        Some((volumes, false)) => {
            header.dims.resize(3, 1);
            header.dims.push(volumes);
        }
        Some((values, true)) => {
            let what = "the image must have one value a voxel, or three floats for a displacement";
            let fix = "of a .seg.nrrd with layers, export a label map from 3D Slicer; else convert it to NIfTI";
            return Err(Error::file(path, what, format!("{values} values"), fix));
        }
    }
    Ok(())
}

fn endian(path: &Path, text: &str, data_type: DataType) -> Result<Endian> {
    match field(text, "endian") {
        Some("big") => Ok(Endian::Big),
        Some("little") => Ok(Endian::Little),
        None if data_type.bytes() == 1 => Ok(Endian::Little),
        other => Err(refuse(path, "endian must be little or big", other.unwrap_or("none"))),
    }
}

/// Where the voxels are: after the `end` of the header, or in a file of their own.
fn voxels(path: &Path, text: &str, end: u64, header: &Header) -> Result<Voxels> {
    let packing = match needed(path, text, "encoding")?.to_lowercase().as_str() {
        "raw" => Packing::Plain,
        "gz" | "gzip" => Packing::Gzip,
        other => return Err(refuse(path, "the encoding must be raw or gzip", other)),
    };
    if ["line skip", "lineskip"].iter().any(|name| field(text, name).is_some_and(|v| v != "0")) {
        return Err(refuse(path, "data must not begin after lines of text", "line skip"));
    }
    let mut voxels = match data_file(text) {
        Some(name) => {
            let file = path.with_file_name(name);
            if (name.starts_with("LIST") || name.contains('%')) && !file.exists() {
                let what = "data must be in one file, not one for each slice";
                let fix = "join the slices, for example with 3D Slicer or SimpleITK, and save the image as NIfTI";
                return Err(Error::file(path, what, format!("data file: {name}"), fix));
            }
            Voxels { file, start: 0, packing }
        }
        None => Voxels { file: path.to_path_buf(), start: end, packing },
    };
    let skip = field(text, "byte skip").or_else(|| field(text, "byteskip")).unwrap_or("0");
    let bytes = skip.parse::<i64>().ok();
    let bytes = bytes.filter(|&n| n == 0 || n >= -1 && packing == Packing::Plain);
    let wrong = || refuse(path, "byte skip must be -1 or more, of raw data", skip);
    voxels.skip(bytes.ok_or_else(wrong)?, header)?;
    Ok(voxels)
}

const LABELS: &str = "ffdp:=labels";

fn data_type(name: &str) -> Option<DataType> {
    Some(match name {
        "uchar" | "unsigned char" | "uint8" | "uint8_t" => DataType::U8,
        "signed char" | "int8" | "int8_t" => DataType::I8,
        "short" | "short int" | "signed short" | "signed short int" | "int16" | "int16_t" => {
            DataType::I16
        }
        "ushort" | "unsigned short" | "unsigned short int" | "uint16" | "uint16_t" => DataType::U16,
        "int" | "signed int" | "int32" | "int32_t" => DataType::I32,
        "uint" | "unsigned int" | "uint32" | "uint32_t" => DataType::U32,
        "longlong" | "long long" | "signed long long" | "int64" | "int64_t" => DataType::I64,
        "ulonglong" | "unsigned long long" | "uint64" | "uint64_t" => DataType::U64,
        "float" => DataType::F32,
        "double" => DataType::F64,
        _ => return None,
    })
}

/// The header of a new image, with gzip data after it.
fn header_of(image: &NewImage) -> Result<Vec<u8>> {
    image.check_one_volume("NRRD")?;
    let [x, y, z] = image.geometry.size;
    let name = match image.data_type {
        DataType::U8 => "uint8",
        DataType::I8 => "int8",
        DataType::U16 => "uint16",
        DataType::I16 => "int16",
        DataType::U32 => "uint32",
        DataType::I32 => "int32",
        DataType::U64 => "uint64",
        DataType::I64 => "int64",
        DataType::F32 => "float",
        DataType::F64 => "double",
    };
    let rows = *image.geometry.voxel_to_mm().rows();
    let column = |j: usize| {
        let [a, b, c] = [0, 1, 2].map(|i| LPS_SIGNS[i] * rows[i][j]);
        format!("({a},{b},{c})")
    };
    let labels = if image.kind == Kind::Labels { format!("{LABELS}\n") } else { String::new() };
    let text = format!(
        "NRRD0004\ntype: {name}\ndimension: 3\nspace: left-posterior-superior\nsizes: {x} {y} {z}\n\
         space directions: {} {} {}\nkinds: domain domain domain\nendian: little\nencoding: gzip\n\
         space origin: {}\n{labels}\n",
        column(0),
        column(1),
        column(2),
        column(3)
    );
    Ok(text.into_bytes())
}
