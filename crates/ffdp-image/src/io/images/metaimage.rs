//! MetaImage, ITK's own format (`.mha`, and `.mhd` with its data next to it), raw or zlib: a volume, or a displacement,
//! whose vectors are in LPS mm. Written: one volume, raw; of a `.mhd` the voxels are in the `.raw` of the same name.
//!
//! Source: ITK's MetaIO documentation, <https://itk.org/Wiki/MetaIO/Documentation>. Placement is in LPS mm:
//! `TransformMatrix` has the direction of the first axis, then of the second, then of the third.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::data_type::{DataType, Endian};
use super::file_writer::FileWriter;
use super::format::{ImageFormat, ImageWriter, ends_in};
use super::header::{Format, Header};
use super::new_image::NewImage;
use super::source::{Packing, Source};
use super::text_header::{Voxels, both_files, refuse, start_of_file};
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry};
use crate::io::lps::LPS_SIGNS;
use crate::io::write_atomically;

/// A header is text of a few hundred bytes; more is no header.
const LONGEST_HEADER: usize = 1 << 16;

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
        Ok(both_files(path, Fields::read(path)?.data_file()))
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
    let is_own = || Fields::read(path).is_ok_and(|own| own.data_file().as_deref() == Some(data));
    if !data.exists() || is_own() {
        return Ok(());
    }
    let what = format!("the voxels of {} go to a file that must not be there yet", path.display());
    let fix = "choose another name, or remove that file";
    Err(Error::file(data, &what, "a file of something else", fix))
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

/// The fields of a header up to the one that is the last.
struct Fields<'a> {
    path: &'a Path,
    pairs: Vec<(String, String)>,
    /// The first byte after the header.
    end: u64,
}

impl<'a> Fields<'a> {
    fn read(path: &'a Path) -> Result<Self> {
        let bytes = start_of_file(path, LONGEST_HEADER)?;
        let (mut pairs, mut end) = (Vec::new(), 0);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            end += line.len() as u64;
            let line = String::from_utf8_lossy(line);
            let Some((name, value)) = line.split_once('=') else { break };
            pairs.push((name.trim().to_string(), value.trim().to_string()));
            if name.trim() == "ElementDataFile" {
                return Ok(Self { path, pairs, end });
            }
        }
        Err(refuse(path, "the header must end with ElementDataFile", "none"))
    }

    /// The value of the first of some names that is there, wherever it stands: older names give way, as in ITK.
    fn get(&self, names: &[&str]) -> Option<&str> {
        let of = |name: &&str| self.pairs.iter().find(|(key, _)| key == name);
        names.iter().find_map(of).map(|(_, value)| value.as_str())
    }

    /// Whether a field is there and true.
    fn is_true(&self, names: &[&str]) -> bool {
        self.get(names).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The numbers of a field that is there.
    fn numbers(&self, names: &[&str], count: usize) -> Result<Option<Vec<f64>>> {
        let Some(text) = self.get(names) else { return Ok(None) };
        let numbers: Option<Vec<f64>> =
            text.split_whitespace().map(|word| word.parse().ok()).collect();
        match numbers.filter(|numbers| numbers.len() == count) {
            Some(numbers) => Ok(Some(numbers)),
            None => Err(refuse(self.path, &format!("{} must be {count} numbers", names[0]), text)),
        }
    }

    /// A number for each of two or three axes, that of a third as `usual`.
    fn of_axes(&self, names: &[&str], axes: usize, usual: [f64; 3]) -> Result<[f64; 3]> {
        let known = self.numbers(names, axes)?.unwrap_or_default();
        Ok(std::array::from_fn(|i| known.get(i).copied().unwrap_or(usual[i])))
    }

    /// The file with the data of a header that stands alone.
    fn data_file(&self) -> Option<PathBuf> {
        let name = self.get(&["ElementDataFile"]).filter(|name| *name != "LOCAL");
        name.map(|name| self.path.with_file_name(name))
    }

    /// The name of the type of a voxel.
    fn type_name(&self) -> &str {
        self.get(&["ElementType"]).unwrap_or("")
    }

    fn data_type(&self) -> Result<DataType> {
        let name = self.type_name();
        data_type(name).ok_or_else(|| refuse(self.path, "voxels must be integers or floats", name))
    }

    /// Whether a voxel has the three components of a vector.
    fn has_vectors(&self, data_type: DataType) -> Result<bool> {
        match self.get(&["ElementNumberOfChannels"]) {
            None | Some("1") => Ok(false),
            Some("3") if !data_type.is_integer() => Ok(true),
            Some(channels) => {
                let what =
                    "the image must have one value a voxel, or three floats for a displacement";
                Err(refuse(self.path, what, format!("{channels} channels")))
            }
        }
    }

    /// Voxels along two or three axes.
    fn dims(&self) -> Result<Vec<usize>> {
        let sizes = self.get(&["DimSize"]).unwrap_or("");
        let dims: Option<Vec<usize>> =
            sizes.split_whitespace().map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
        dims.filter(|dims| [2, 3].contains(&dims.len())).ok_or_else(|| {
            refuse(self.path, "the image must have 2 or 3 axes", format!("DimSize {sizes}"))
        })
    }

    /// The placement, in RAS.
    fn geometry(&self, dims: &[usize]) -> Result<Geometry> {
        let axes = dims.len();
        // The size of a voxel may be less than the distance of two, and stand before it.
        let thickness = self.of_axes(&["ElementSize"], axes, [1.0; 3])?;
        let spacing = self.of_axes(&["ElementSpacing"], axes, thickness)?;
        let origin = self.of_axes(&["Offset", "Position", "Origin"], axes, [0.0; 3])?;
        let directions = self.directions(axes)?;
        let rows = std::array::from_fn(|i| {
            let [x, y, z] = [0, 1, 2].map(|j| LPS_SIGNS[i] * directions[j][i] * spacing[j]);
            [x, y, z, LPS_SIGNS[i] * origin[i]]
        });
        let size = std::array::from_fn(|i| dims.get(i).copied().unwrap_or(1));
        let at = Error::in_file(self.path);
        Geometry::new(size, spacing).map_err(&at)?;
        Geometry::from_affine(size, Affine::from_rows(rows)).map_err(at)
    }

    /// The direction of each axis in LPS.
    fn directions(&self, axes: usize) -> Result<[[f64; 3]; 3]> {
        let names = ["TransformMatrix", "Orientation", "Rotation"];
        let known = self.numbers(&names, axes * axes)?;
        let part = |j: usize, i: usize| match &known {
            Some(known) if i.max(j) < axes => known[axes * j + i],
            _ => f64::from(u8::from(i == j)),
        };
        Ok(std::array::from_fn(|j| std::array::from_fn(|i| part(j, i))))
    }

    /// Where the voxels are, whose header is complete but for that.
    fn voxels(&self, header: &Header) -> Result<Voxels> {
        let compressed = self.is_true(&["CompressedData"]);
        let packing = if compressed { Packing::Zlib } else { Packing::Plain };
        let (file, start) = match self.get(&["ElementDataFile"]) {
            Some("LOCAL") => (self.path.to_path_buf(), self.end),
            Some(list) if list.starts_with("LIST") || list.contains('%') => {
                let what = "data must be in one file (ElementDataFile)";
                return Err(refuse(self.path, what, list));
            }
            Some(name) => (self.path.with_file_name(name), 0),
            None => unreachable!("the header ends with it"),
        };
        let mut voxels = Voxels { file, start, packing };
        let skip = self.get(&["HeaderSize"]).map_or(Some(0), |text| text.parse::<i64>().ok());
        let skip = skip.filter(|&skip| skip >= 0 || skip == -1 && packing == Packing::Plain);
        let skip =
            skip.ok_or_else(|| refuse(self.path, "HeaderSize must be -1 or more", "another"))?;
        voxels.skip(skip, header)?;
        if packing == Packing::Plain {
            check_long(self.path, &voxels, self.type_name(), header.data_bytes())?;
        }
        Ok(voxels)
    }
}

fn open(path: &Path) -> Result<(Source, Header)> {
    let fields = Fields::read(path)?;
    let data_type = fields.data_type()?;
    let has_vectors = fields.has_vectors(data_type)?;
    let dims = fields.dims()?;
    let geometry = fields.geometry(&dims)?;
    let mut header = Header::new(Format::named("MetaImage"), data_type, dims, geometry);
    if has_vectors {
        header.set_vectors();
    }
    if fields.is_true(&["BinaryDataByteOrderMSB", "ElementByteOrderMSB"]) {
        header.endian = Endian::Big;
    }
    if fields.get(&["BinaryData"]).is_some() && !fields.is_true(&["BinaryData"]) {
        return Err(refuse(path, "data must be binary", "BinaryData = False"));
    }
    fields.voxels(&header)?.open(header)
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
fn check_long(path: &Path, voxels: &Voxels, name: &str, bytes: u64) -> Result<()> {
    let length = voxels.file_bytes()?;
    let is_long = ["MET_LONG", "MET_ULONG"].contains(&name);
    if !is_long || length < voxels.start + 2 * bytes {
        return Ok(());
    }
    let what = "a voxel of MET_LONG or MET_ULONG must have 4 bytes, as in ITK";
    let value = format!("{} bytes where {bytes} are expected", length - voxels.start);
    let fix = "if its voxels have 8 bytes, write MET_LONG_LONG or MET_ULONG_LONG in the header";
    Err(Error::file(path, what, value, fix))
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
