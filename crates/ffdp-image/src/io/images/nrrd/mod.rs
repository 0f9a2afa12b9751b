//! NRRD (`.nrrd`, and `.nhdr` with its data next to it), raw or gzip: a volume, several along the last axis, or a
//! displacement, whose vectors are in LPS mm. Written: one volume, gzip.
//!
//! Source: the format's definition, <https://teem.sourceforge.net/nrrd/format.html>. The placement is by `space
//! directions` and `space origin` in a space of patient axes, which becomes RAS; without, by `spacings`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::data_type::{DataType, Endian};
use super::file_writer::FileWriter;
use super::format::{ImageFormat, ImageWriter};
use super::header::{Format, Header, INTENT_LABEL};
use super::new_image::{Kind, NewImage};
use super::source::{Packing, Source};
use crate::error::{Error, Result};
use crate::io::lps::LPS_SIGNS;

mod placement;

use placement::Axes;

/// A header is text of a few hundred bytes; more is no header.
const LONGEST_HEADER: usize = 1 << 20;
const REPAIR: &str = "repair the header, or convert the image to NIfTI";

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
        Ok([path.to_path_buf()].into_iter().chain(data_file(path, &text)).collect())
    }

    fn create(&self, path: &Path, image: &NewImage) -> Result<Box<dyn ImageWriter>> {
        // The header is not packed.
        FileWriter::plain(path, &header_of(image)?)?.gzip()?.boxed()
    }
}

const MAGIC: &[u8] = b"NRRD000";

fn refuse(path: &Path, what: &str, value: impl ToString) -> Error {
    let (what, fix) = (what.to_string(), REPAIR.to_string());
    Error::File { path: path.to_path_buf(), what, value: value.to_string(), fix }
}

/// The text of the header up to its empty line, and where the data begin.
fn text(path: &Path) -> Result<(String, u64)> {
    let failed = |source| Error::io(path, "read", source);
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LONGEST_HEADER as u64).read_to_end(&mut bytes).map_err(failed)?;
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

/// The file with the data of a header that stands alone.
fn data_file(path: &Path, text: &str) -> Option<PathBuf> {
    let name = field(text, "data file").or_else(|| field(text, "datafile"));
    name.map(|name| path.with_file_name(name))
}

fn open(path: &Path) -> Result<(Source, Header)> {
    let (text, end) = text(path)?;
    if !text.as_bytes().starts_with(MAGIC) {
        let first: String = text.chars().take(8).collect();
        return Err(refuse(path, "the file must begin with NRRD000", format!("{first:?}")));
    }
    let need = |name: &str| {
        field(&text, name)
            .ok_or_else(|| refuse(path, &format!("the header must have {name}"), "none"))
    };
    let name = need("type")?;
    let data_type =
        data_type(name).ok_or_else(|| refuse(path, "voxels must be integers or floats", name))?;
    need("sizes")?;
    let axes = Axes::of(path, &text)?;
    let (geometry, warnings) = axes.geometry(path, &text)?;
    let mut header = Header::new(Format::named("NRRD"), data_type, axes.size.clone(), geometry);
    header.warnings = warnings;
    match axes.other {
        None | Some((1, _)) => {}
        Some((3, true)) if !data_type.is_integer() && !axes.is_colour => {
            header.set_vectors();
            header.slope = axes.unit_mm;
        }
        Some((3, false)) if field(&text, "kinds").is_some_and(|kinds| kinds.contains("vector")) => {
            header.set_vectors();
            (header.is_interleaved, header.slope) = (false, axes.unit_mm);
        }
        Some((volumes, false)) => {
            header.dims.resize(3, 1);
            header.dims.push(volumes);
        }
        Some((values, true)) => {
            let what = "the image must have one value a voxel, or three floats for a displacement";
            let (what, value) = (what.to_string(), format!("{values} values"));
            let fix = "of a .seg.nrrd with layers, export a label map from 3D Slicer; else convert it to NIfTI";
            return Err(Error::File { path: path.into(), what, value, fix: fix.to_string() });
        }
    }
    header.endian = match field(&text, "endian") {
        Some("big") => Endian::Big,
        Some("little") => Endian::Little,
        None if data_type.bytes() == 1 => Endian::Little,
        other => return Err(refuse(path, "endian must be little or big", other.unwrap_or("none"))),
    };
    // A field of our own: NRRD says nothing of labels.
    if text.lines().any(|line| line == LABELS) {
        header.intent_code = INTENT_LABEL;
    }
    let packing = match need("encoding")?.to_lowercase().as_str() {
        "raw" => Packing::Plain,
        "gz" | "gzip" => Packing::Gzip,
        other => return Err(refuse(path, "the encoding must be raw or gzip", other)),
    };
    if ["line skip", "lineskip"].iter().any(|name| field(&text, name).is_some_and(|v| v != "0")) {
        return Err(refuse(path, "data must not begin after lines of text", "line skip"));
    }
    let (data, start) = match data_file(path, &text) {
        Some(data) => (data, 0),
        None => (path.to_path_buf(), end),
    };
    let named = field(&text, "data file").or_else(|| field(&text, "datafile")).unwrap_or("");
    if (named.starts_with("LIST") || named.contains('%')) && !data.exists() {
        let value = format!("data file: {named}");
        let fix =
            "join the slices, for example with 3D Slicer or SimpleITK, and save the image as NIfTI";
        let what = "data must be in one file, not one for each slice".to_string();
        return Err(Error::File { path: path.into(), what, value, fix: fix.to_string() });
    }
    let skip = field(&text, "byte skip").or_else(|| field(&text, "byteskip")).unwrap_or("0");
    let start = match (skip.parse::<i64>(), packing) {
        (Ok(0), _) => start,
        // Where the data begin is where they must, so that they end with the file.
        (Ok(-1), Packing::Plain) => {
            let length = std::fs::metadata(&data).map_err(|e| Error::io(&data, "open", e))?.len();
            length.saturating_sub(header.data_bytes())
        }
        (Ok(skip), Packing::Plain) if skip > 0 => start + skip as u64,
        _ => return Err(refuse(path, "byte skip must be -1 or more, of raw data", skip)),
    };
    let source = Source::of_part(&data, start, packing)?;
    header.vox_offset = if packing == Packing::Plain { start } else { 0 };
    let warning = source.check_length(header.vox_offset, header.data_bytes())?;
    header.warnings.extend(warning);
    Ok((source, header))
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
