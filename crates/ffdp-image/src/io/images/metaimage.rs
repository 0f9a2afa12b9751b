//! MetaImage, ITK's own format (`.mha`, and `.mhd` with its data next to it), raw or zlib: a volume, or a displacement,
//! whose vectors are in LPS mm. Written: one volume, raw; of a `.mhd` the voxels are in the `.raw` of the same name.
//!
//! Source: ITK's MetaIO documentation, <https://itk.org/Wiki/MetaIO/Documentation>. Placement is in LPS mm:
//! `TransformMatrix` has the direction of the first axis, then of the second, then of the third.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::data_type::{DataType, Endian};
use super::file_writer::FileWriter;
use super::format::{ImageFormat, ImageWriter, ends_in};
use super::header::{Format, Header};
use super::new_image::NewImage;
use super::refuse;
use super::source::{Packing, Source};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry};
use crate::io::lps::LPS_SIGNS;
use crate::io::write_atomically;

/// A header is text of a few hundred bytes; more is no header.
const LONGEST_HEADER: usize = 1 << 16;
const REPAIR: &str = "repair the header, or convert the image to NIfTI";

/// The format.
pub struct MetaImage;

impl ImageFormat for MetaImage {
    fn name(&self) -> &'static str {
        "MetaImage"
    }

    fn endings(&self) -> &'static [&'static str] {
        &[".mha", ".mhd"]
    }

    fn written(&self) -> &'static [&'static str] {
        &[".mha", ".mhd"]
    }

    /// Most files do; the first field may be any.
    fn begins(&self, start: &[u8]) -> bool {
        start.starts_with(b"ObjectType")
    }

    fn open(&self, path: &Path) -> Result<(Source, Header)> {
        open(path)
    }

    fn files(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let (fields, _) = fields(path)?;
        Ok([path.to_path_buf()].into_iter().chain(data_file(path, &fields)).collect())
    }

    fn packs(&self, _path: &Path) -> bool {
        false
    }

    fn create(&self, path: &Path, image: &NewImage) -> Result<Box<dyn ImageWriter>> {
        if !ends_in(path, &[".mhd"]) {
            return FileWriter::plain(path, &header_of(image, "LOCAL")?)?.boxed();
        }
        let data = path.with_extension("raw");
        check_own(path, &data)?;
        let name = data.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let header = header_of(image, &name)?;
        let path = path.to_path_buf();
        Ok(Box::new(PairWriter { path, header, data: Box::new(FileWriter::plain(&data, &[])?) }))
    }
}

/// Demands that a file of voxels is not that of something else: it is replaced only with its own header.
fn check_own(path: &Path, data: &Path) -> Result<()> {
    let is_own = || {
        let (fields, _) = fields(path).ok()?;
        Some(data_file(path, &fields)? == data)
    };
    if !data.exists() || is_own() == Some(true) {
        return Ok(());
    }
    let what = format!("the voxels of {} go to a file that must not be there yet", path.display());
    let fix = "choose another name, or remove that file";
    Err(refuse::refuse(data, &what, "a file of something else", fix))
}

/// A header and its voxels, each in a file of its own.
struct PairWriter {
    path: PathBuf,
    header: Vec<u8>,
    data: Box<FileWriter>,
}

impl Write for PairWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.data.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.data.flush()
    }
}

impl ImageWriter for PairWriter {
    /// The header last: it names voxels that are complete.
    fn commit(self: Box<Self>) -> Result<()> {
        self.data.commit()?;
        write_atomically(&self.path, |file| file.write_all(&self.header))
    }
}

fn refuse(path: &Path, what: &str, value: impl ToString) -> Error {
    let (what, fix) = (what.to_string(), REPAIR.to_string());
    Error::File { path: path.to_path_buf(), what, value: value.to_string(), fix }
}

/// The fields up to the one that is the last, and where the data begin.
fn fields(path: &Path) -> Result<(Vec<(String, String)>, u64)> {
    let failed = |source| Error::io(path, "read", source);
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LONGEST_HEADER as u64).read_to_end(&mut bytes).map_err(failed)?;
    let (mut fields, mut end) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        end += line.len() as u64;
        let line = String::from_utf8_lossy(line);
        let Some((name, value)) = line.split_once('=') else { break };
        fields.push((name.trim().to_string(), value.trim().to_string()));
        if name.trim() == "ElementDataFile" {
            return Ok((fields, end));
        }
    }
    Err(refuse(path, "the header must end with ElementDataFile", "none"))
}

/// The value of the first of some names that is there, wherever it stands: older names give way, as in ITK.
fn field<'a>(fields: &'a [(String, String)], names: &[&str]) -> Option<&'a str> {
    let of = |name: &&str| fields.iter().find(|(key, _)| key == name);
    names.iter().find_map(of).map(|(_, value)| value.as_str())
}

/// The file with the data of a header that stands alone.
fn data_file(path: &Path, fields: &[(String, String)]) -> Option<PathBuf> {
    let name = field(fields, &["ElementDataFile"]).filter(|name| *name != "LOCAL");
    name.map(|name| path.with_file_name(name))
}

fn open(path: &Path) -> Result<(Source, Header)> {
    let (fields, end) = fields(path)?;
    let of = |names: &[&str]| field(&fields, names);
    let numbers = |names: &[&str]| -> Option<Vec<f64>> {
        of(names).and_then(|text| text.split_whitespace().map(|word| word.parse().ok()).collect())
    };
    let name = of(&["ElementType"]).unwrap_or("");
    let data_type =
        data_type(name).ok_or_else(|| refuse(path, "voxels must be integers or floats", name))?;
    let is_field = match of(&["ElementNumberOfChannels"]) {
        None | Some("1") => false,
        Some("3") if !data_type.is_integer() => true,
        Some(channels) => {
            let what = "the image must have one value a voxel, or three floats for a displacement";
            return Err(refuse(path, what, format!("{channels} channels")));
        }
    };
    let sizes = of(&["DimSize"]).unwrap_or("");
    let dims: Option<Vec<usize>> =
        sizes.split_whitespace().map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
    let dims = dims.filter(|dims| [2, 3].contains(&dims.len())).ok_or_else(|| {
        refuse(path, "the image must have 2 or 3 axes", format!("DimSize {sizes}"))
    })?;
    let axes = dims.len();
    // Of one field the numbers of two or three axes, those of the third as usual.
    let padded = |name: &str, names: &[&str], usual: [f64; 3]| -> Result<[f64; 3]> {
        let Some(text) = of(names) else { return Ok(usual) };
        let known = numbers(names).filter(|numbers| numbers.len() == axes);
        let known =
            known.ok_or_else(|| refuse(path, &format!("{name} must be {axes} numbers"), text))?;
        Ok(std::array::from_fn(|i| known.get(i).copied().unwrap_or(usual[i])))
    };
    // The size of a voxel may be less than the distance of two, and stand before it.
    let thickness = padded("ElementSize", &["ElementSize"], [1.0; 3])?;
    let spacing = padded("ElementSpacing", &["ElementSpacing"], thickness)?;
    let origin = padded("Offset", &["Offset", "Position", "Origin"], [0.0; 3])?;
    let names = ["TransformMatrix", "Orientation", "Rotation"];
    let matrix = match of(&names) {
        None => [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        Some(text) => {
            let known = numbers(&names).filter(|numbers| numbers.len() == axes * axes);
            let known = known.ok_or_else(|| {
                refuse(path, &format!("TransformMatrix must be {} numbers", axes * axes), text)
            })?;
            let part = |i: usize, j: usize| match i.max(j) < axes {
                true => known[axes * i + j],
                false => f64::from(u8::from(i == j)),
            };
            std::array::from_fn(|k| part(k / 3, k % 3))
        }
    };
    let rows = std::array::from_fn(|i| {
        let [x, y, z] = [0, 1, 2].map(|j| LPS_SIGNS[i] * matrix[3 * j + i] * spacing[j]);
        [x, y, z, LPS_SIGNS[i] * origin[i]]
    });
    let size = std::array::from_fn(|i| dims.get(i).copied().unwrap_or(1));
    let at = Error::in_file(path);
    Geometry::new(size, spacing).map_err(&at)?;
    let geometry = Geometry::from_affine(size, Affine::from_rows(rows)).map_err(at)?;
    let mut header = Header::new(Format::named("MetaImage"), data_type, dims, geometry);
    if is_field {
        header.set_vectors();
    }
    let is = |names: &[&str]| of(names).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if is(&["BinaryDataByteOrderMSB", "ElementByteOrderMSB"]) {
        header.endian = Endian::Big;
    }
    if of(&["BinaryData"]).is_some_and(|value| !value.eq_ignore_ascii_case("true")) {
        return Err(refuse(path, "data must be binary", "BinaryData = False"));
    }
    let packing = if is(&["CompressedData"]) { Packing::Zlib } else { Packing::Plain };
    let skip = of(&["HeaderSize"]).map_or(Some(0), |text| text.parse::<i64>().ok());
    let (data, mut start) = match of(&["ElementDataFile"]) {
        Some("LOCAL") => (path.to_path_buf(), end),
        Some(list) if list.starts_with("LIST") || list.contains('%') => {
            return Err(refuse(path, "data must be in one file (ElementDataFile)", list));
        }
        Some(name) => (path.with_file_name(name), 0),
        None => unreachable!("the header ends with it"),
    };
    start = match skip {
        Some(0) => start,
        // Where the data begin is where they must, so that they end with the file.
        Some(-1) if packing == Packing::Plain => {
            let length = std::fs::metadata(&data).map_err(|e| Error::io(&data, "open", e))?.len();
            length.saturating_sub(header.data_bytes())
        }
        Some(skip) if skip > 0 => start + skip as u64,
        _ => return Err(refuse(path, "HeaderSize must be -1 or more", "another")),
    };
    if packing == Packing::Plain {
        check_long(path, &data, name, [start, header.data_bytes()])?;
    }
    let source = Source::of_part(&data, start, packing)?;
    header.vox_offset = if packing == Packing::Plain { start } else { 0 };
    let warning = source.check_length(header.vox_offset, header.data_bytes())?;
    header.warnings.extend(warning);
    Ok((source, header))
}

const TYPES: [(&str, DataType); 10] = [
    ("MET_UCHAR", DataType::U8),
    ("MET_CHAR", DataType::I8),
    ("MET_USHORT", DataType::U16),
    ("MET_SHORT", DataType::I16),
    ("MET_UINT", DataType::U32),
    ("MET_INT", DataType::I32),
    ("MET_ULONG_LONG", DataType::U64),
    ("MET_LONG_LONG", DataType::I64),
    ("MET_FLOAT", DataType::F32),
    ("MET_DOUBLE", DataType::F64),
];

fn data_type(name: &str) -> Option<DataType> {
    // In MetaIO `long` has 4 bytes on every machine; a type `_ARRAY` is the same with channels.
    let name = match name.strip_suffix("_ARRAY").unwrap_or(name) {
        "MET_LONG" => "MET_INT",
        "MET_ULONG" => "MET_UINT",
        name => name,
    };
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, data_type)| *data_type)
}

/// Refuses `long` voxels of 8 bytes, as programs other than ITK write them: half of them would be read.
fn check_long(path: &Path, data: &Path, name: &str, [start, voxels]: [u64; 2]) -> Result<()> {
    let length = std::fs::metadata(data).map_err(|e| Error::io(data, "open", e))?.len();
    let is_long = ["MET_LONG", "MET_ULONG"].contains(&name);
    if !is_long || length < start + 2 * voxels {
        return Ok(());
    }
    let what = "a voxel of MET_LONG or MET_ULONG must have 4 bytes, as in ITK".to_string();
    let value = format!("{} bytes where {voxels} are expected", length - start);
    let fix = "if its voxels have 8 bytes, write MET_LONG_LONG or MET_ULONG_LONG in the header";
    Err(Error::File { path: path.into(), what, value, fix: fix.to_string() })
}

/// The header of a new image, with raw data in the named file (`LOCAL`: after it).
fn header_of(image: &NewImage, data: &str) -> Result<Vec<u8>> {
    image.check_one_volume("MetaImage")?;
    let name = TYPES.iter().find(|(_, known)| *known == image.data_type).expect("all are listed").0;
    let Geometry { size, spacing_mm, origin_mm, direction } = &image.geometry;
    let join = |numbers: &[f64]| numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
    let axes: [[f64; 3]; 3] =
        std::array::from_fn(|j| std::array::from_fn(|i| LPS_SIGNS[i] * direction[i][j]));
    let origin: [f64; 3] = std::array::from_fn(|i| LPS_SIGNS[i] * origin_mm[i]);
    let [x, y, z] = size;
    let text = format!(
        "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\n\
         CompressedData = False\nTransformMatrix = {}\nOffset = {}\nCenterOfRotation = 0 0 0\n\
         ElementSpacing = {}\nDimSize = {x} {y} {z}\nElementType = {name}\nElementDataFile = {data}\n",
        join(axes.as_flattened()),
        join(&origin),
        join(spacing_mm)
    );
    Ok(text.into_bytes())
}
