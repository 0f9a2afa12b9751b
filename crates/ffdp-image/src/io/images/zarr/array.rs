//! What an array says of itself: shape, chunks, shards, type, and how chunks are packed.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::Value;

use super::super::data_type::{DataType, Endian};
use super::codecs::{Codec, Compressor};
use super::store;
use crate::error::{Error, Result};
use crate::io::zarr_name::address;

/// Files of an array behind an address that are asked for, at most, to see that it has some.
const ASKED: usize = 512;
/// Those that are asked for before looking at the answers.
const ASKED_AT_ONCE: usize = 16;

/// An array of Zarr 2 or 3; sizes in the order of its axes.
#[derive(Clone, Debug)]
pub struct Array {
    pub folder: PathBuf,
    pub shape: Vec<usize>,
    /// Of the smallest pieces that are packed by themselves.
    pub chunk: Vec<usize>,
    /// Of the files that hold several of them.
    pub shard: Option<Shard>,
    pub data_type: DataType,
    /// Whether values are stored as float16; they are widened to `data_type`, float32, when a chunk is unpacked.
    pub is_half: bool,
    /// One value, least significant byte first.
    pub fill: Vec<u8>,
    /// Applied to a chunk in this order when writing.
    pub codecs: Vec<Codec>,
    keys: Keys,
}

/// Chunks in one file, with an index.
#[derive(Clone, Debug)]
pub struct Shard {
    pub shape: Vec<usize>,
    pub index_at_end: bool,
    pub index_has_checksum: bool,
}

/// How the file of a chunk is called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Keys {
    prefix: &'static str,
    separator: char,
}

/// Refusals of one file.
struct Refuse<'a>(&'a Path);

impl Refuse<'_> {
    fn because(&self, what: &str, value: impl ToString) -> Error {
        let fix = "write the array anew with a common codec, for example zstd or blosc";
        Error::file(self.0, what, value, fix)
    }

    fn damaged(&self, what: &str, value: impl ToString) -> Error {
        Error::file(self.0, what, value, "it is damaged: copy or download it again")
    }
}

/// A JSON file.
pub fn read_json(path: &Path) -> Result<Value> {
    let failed = |source| Error::io(path, "read", source);
    let text = store::read(path).map_err(failed)?;
    let text = text.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    serde_json::from_slice(&text)
        .map_err(|reason| Refuse(path).damaged("the file must be JSON", format!("\"{reason}\"")))
}

impl Array {
    /// The array in a folder.
    ///
    /// # Errors
    /// [`Error::Io`] without metadata, [`Error::File`] for what cannot be read here.
    pub fn open(folder: &Path) -> Result<Self> {
        let (three, two) = (folder.join("zarr.json"), folder.join(".zarray"));
        let there =
            |file: &Path| store::exists(file).map_err(|source| Error::io(file, "look for", source));
        match there(&three)? || !there(&two)? {
            true => Self::version_three(folder, &read_json(&three)?, &Refuse(&three)),
            false => Self::version_two(folder, &read_json(&two)?, &Refuse(&two)),
        }
    }

    fn version_two(folder: &Path, json: &Value, refuse: &Refuse) -> Result<Self> {
        if json["zarr_format"] != 2 {
            return Err(refuse.because("zarr_format must be 2", &json["zarr_format"]));
        }
        let shape = sizes(&json["shape"], "shape", refuse)?;
        let chunk = sizes(&json["chunks"], "chunks", refuse)?;
        let type_name = json["dtype"].as_str().unwrap_or("");
        let (endian, name) = match type_name.split_at_checked(1) {
            Some((">", name)) => (Endian::Big, name),
            Some(("<" | "|", name)) => (Endian::Little, name),
            _ => (Endian::Little, ""),
        };
        let data_type = parse_v2_type(name)
            .ok_or_else(|| refuse.because("voxels must be integers or floats", &json["dtype"]))?;
        let is_half = name == "f2";
        let mut codecs = Vec::new();
        match json["order"].as_str() {
            Some("C") => {}
            Some("F") => codecs.push(Codec::Transpose((0..shape.len()).rev().collect())),
            _ => return Err(refuse.because("order must be C or F", &json["order"])),
        }
        codecs.push(Codec::Bytes(endian));
        if json["filters"].as_array().is_some_and(|filters| !filters.is_empty()) {
            return Err(refuse.because("arrays with filters are not read", &json["filters"]));
        }
        let packed = &json["compressor"];
        if !packed.is_null() {
            let known = Compressor::named(packed["id"].as_str().unwrap_or(""));
            let known = known.ok_or_else(|| refuse.because("the compressor is not known", packed));
            codecs.push(Codec::Packed(known?));
        }
        let separator = match json.get("dimension_separator").and_then(Value::as_str) {
            None | Some(".") => '.',
            Some("/") => '/',
            Some(other) => return Err(refuse.because("dimension_separator is . or /", other)),
        };
        let fill = fill(&json["fill_value"], data_type, is_half)
            .ok_or_else(|| refuse.because("fill_value must be a number", &json["fill_value"]))?;
        let keys = Keys { prefix: "", separator };
        let folder = folder.to_path_buf();
        let shard = None;
        Self { folder, shape, chunk, shard, data_type, is_half, fill, codecs, keys }.checked(refuse)
    }

    fn version_three(folder: &Path, json: &Value, refuse: &Refuse) -> Result<Self> {
        if json["zarr_format"] != 3 || json["node_type"] != "array" {
            let value = format!("{}, {}", json["zarr_format"], json["node_type"]);
            return Err(refuse.because("zarr_format must be 3, node_type \"array\"", value));
        }
        let shape = sizes(&json["shape"], "shape", refuse)?;
        let is_half = json["data_type"] == "float16";
        let data_type = json["data_type"].as_str().and_then(parse_v3_type);
        let data_type = data_type.ok_or_else(|| {
            refuse.because("voxels must be integers or floats", &json["data_type"])
        })?;
        let grid = &json["chunk_grid"];
        if grid["name"] != "regular" {
            return Err(refuse.because("the chunk grid must be regular", grid));
        }
        let outer = sizes(&grid["configuration"]["chunk_shape"], "chunk_shape", refuse)?;
        let fill = fill(&json["fill_value"], data_type, is_half)
            .ok_or_else(|| refuse.because("fill_value must be a number", &json["fill_value"]))?;
        if json["storage_transformers"].as_array().is_some_and(|some| !some.is_empty()) {
            let value = &json["storage_transformers"];
            return Err(refuse.because("storage transformers are not read", value));
        }
        let codecs = json["codecs"].as_array().map_or(&[][..], Vec::as_slice);
        let (chunk, shard, codecs) = match codecs {
            [sharding] if sharding["name"] == "sharding_indexed" => {
                let settings = &sharding["configuration"];
                let chunk = sizes(&settings["chunk_shape"], "chunk_shape", refuse)?;
                let inner = settings["codecs"].as_array().map_or(&[][..], Vec::as_slice);
                let shard = Shard::of(outer, settings, refuse)?;
                (chunk, Some(shard), three_codecs(inner, shape.len(), refuse)?)
            }
            plain => (outer, None, three_codecs(plain, shape.len(), refuse)?),
        };
        let keys = keys(&json["chunk_key_encoding"])
            .ok_or_else(|| refuse.because("chunk keys are not known", &json["chunk_key_encoding"]));
        let folder = folder.to_path_buf();
        let keys = keys?;
        Self { folder, shape, chunk, shard, data_type, is_half, fill, codecs, keys }.checked(refuse)
    }

    /// Demands sizes that fit each other and can be addressed, before anything of them is allocated.
    fn checked(self, refuse: &Refuse) -> Result<Self> {
        let axes = self.shape.len();
        let shard = self.shard.as_ref().map(|shard| &shard.shape);
        if self.chunk.len() != axes || shard.is_some_and(|shard| shard.len() != axes) {
            return Err(refuse.damaged("chunks must have the axes of the array", axes));
        }
        let divides = |shard: &Vec<usize>| shard.iter().zip(&self.chunk).all(|(s, c)| s % c == 0);
        if !shard.is_none_or(divides) {
            let value = format!("{:?} in {shard:?}", self.chunk);
            return Err(refuse.damaged("chunks must divide their shards", value));
        }
        let addressable = |shape: &[usize]| {
            let start = self.data_type.bytes().max(4);
            let bytes = shape.iter().try_fold(start, |n, &size| n.checked_mul(size));
            bytes.is_some_and(|bytes| bytes <= isize::MAX as usize)
        };
        for shape in [Some(&self.shape), Some(&self.chunk), shard].into_iter().flatten() {
            if !addressable(shape) {
                let value = format!("{shape:?}");
                return Err(refuse.damaged("the number of voxels must be addressable", value));
            }
        }
        Ok(self)
    }

    /// Bytes of an unpacked chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk.iter().product::<usize>() * self.data_type.bytes()
    }

    /// An unpacked chunk as values of the array's type.
    pub fn widened(&self, chunk: Vec<u8>) -> Vec<u8> {
        match self.is_half {
            false => chunk,
            true => {
                let halves = chunk.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b));
                halves.flat_map(|bits| half(bits).to_le_bytes()).collect()
            }
        }
    }

    /// Bytes of a chunk and of one of its values before they are widened.
    pub fn stored_bytes(&self) -> (usize, usize) {
        let part = if self.is_half { 2 } else { 1 };
        (self.chunk_bytes() / part, self.data_type.bytes() / part)
    }

    /// Demands that a chunk is where the metadata say. In a folder any; behind an address, which nothing lists, one of
    /// [`ASKED`], and a warning where there are more and none of those is there.
    ///
    /// # Errors
    /// [`Error::File`] with the path that was looked for.
    pub fn check_chunks(&self) -> Result<Option<String>> {
        let corner = vec![0; self.shape.len()];
        let first = self.file(&corner);
        let is_there =
            |file: &Path| store::exists(file).map_err(|source| Error::io(file, "look for", source));
        let separator = if self.keys.separator == '/' { '.' } else { '/' };
        let other = Self { keys: Keys { separator, ..self.keys.clone() }, ..self.clone() };
        let is_remote = address(&self.folder).is_some();
        if is_there(&first)? || !is_remote && self.keys.any_in(&self.folder, corner.len()) {
            return Ok(None);
        }
        let at_other = match is_remote {
            true => is_there(&other.file(&corner))?,
            false => other.keys.any_in(&self.folder, corner.len()),
        };
        let (value, fix) = match (at_other, is_remote) {
            (true, _) => (
                format!("none, but chunks named with {separator:?}"),
                format!(
                    "set the separator of chunks (dimension_separator in Zarr 2) to {separator:?}"
                ),
            ),
            (false, true) if self.has_asked_chunk()? => return Ok(None),
            (false, true) if self.files() > ASKED => {
                let first = first.display();
                return Ok(Some(format!(
                    "of {ASKED} files of chunks that were asked for none is there, as {first}; voxels may all have the \
                     fill value"
                )));
            }
            (false, _) => (
                format!("no chunk at all, the first one looked for is {}", first.display()),
                "copy the whole folder; of an image of zeros alone, write the chunks".to_string(),
            ),
        };
        let what = format!("chunks must be there, as {}", first.display());
        Err(Error::File { path: self.folder.clone(), what, value, fix })
    }

    /// Files of chunks, or of shards, that the array can have along its axes.
    fn files_along(&self) -> impl DoubleEndedIterator<Item = usize> {
        let outer = self.shard.as_ref().map_or(&self.chunk, |shard| &shard.shape);
        self.shape.iter().zip(outer).map(|(size, outer)| size.div_ceil(*outer))
    }

    fn files(&self) -> usize {
        self.files_along().fold(1, usize::saturating_mul)
    }

    /// Whether one of so many files, evenly spread, is there. Those in the middle, where images have most, come first.
    fn has_asked_chunk(&self) -> Result<bool> {
        let files = self.files();
        let asked = files.min(ASKED);
        let place = |k: usize| ((k as u128 * files as u128 / asked as u128) as usize, k);
        let mut places: Vec<(usize, usize)> = (0..asked).map(place).collect();
        places.sort_by_key(|(_, k)| k.abs_diff(asked / 2));
        let is_there = |&(mut place, _): &(usize, usize)| {
            let mut at: Vec<usize> = Vec::new();
            for count in self.files_along().rev() {
                at.insert(0, place % count);
                place /= count;
            }
            let file = self.file(&at);
            store::exists(&file).map_err(|source| Error::io(&file, "look for", source))
        };
        for some in places.chunks(ASKED_AT_ONCE) {
            let found: Vec<bool> = some.par_iter().map(is_there).collect::<Result<_>>()?;
            if found.contains(&true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The file of a chunk, or of a shard where there are some.
    pub fn file(&self, at: &[usize]) -> PathBuf {
        let separator = self.keys.separator.to_string();
        let numbers: Vec<String> = at.iter().map(usize::to_string).collect();
        let key = match (self.keys.prefix, numbers.join(&separator)) {
            ("", key) => key,
            (prefix, key) => format!("{prefix}{separator}{key}"),
        };
        self.folder.join(key)
    }
}

impl Keys {
    /// Whether a folder has the file of a chunk of so many axes; the first one found is enough.
    fn any_in(&self, folder: &Path, axes: usize) -> bool {
        let is_number = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
        if self.separator == '/' {
            let folder = folder.join(self.prefix);
            return numbered(&folder, axes, &is_number);
        }
        let is_chunk = |name: &str| {
            let name = match self.prefix {
                "" => Some(name),
                prefix => name.strip_prefix(prefix).and_then(|name| name.strip_prefix('.')),
            };
            name.is_some_and(|name| {
                name.split('.').count() == axes && name.split('.').all(is_number)
            })
        };
        numbered(folder, 1, &is_chunk)
    }
}

/// Whether names that do lead so many folders deep to a file.
fn numbered(folder: &Path, depth: usize, does: &impl Fn(&str) -> bool) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let mut entries =
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(does));
    entries.any(|entry| match depth {
        1 => entry.path().is_file(),
        _ => numbered(&entry.path(), depth - 1, does),
    })
}

/// A float16 (IEEE 754 binary16) of these bits.
fn half(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

impl Shard {
    fn of(shape: Vec<usize>, settings: &Value, refuse: &Refuse) -> Result<Self> {
        let codecs = settings["index_codecs"].as_array().map_or(&[][..], Vec::as_slice);
        let little =
            |codec: &Value| codec["name"] == "bytes" && codec["configuration"]["endian"] != "big";
        let index_has_checksum = match codecs {
            [bytes] if little(bytes) => false,
            [bytes, check] if little(bytes) && check["name"] == "crc32c" => true,
            _ => {
                let what = "the index of a shard must be little endian, with crc32c or plain";
                return Err(refuse.because(what, &settings["index_codecs"]));
            }
        };
        let index_at_end = match settings.get("index_location").and_then(Value::as_str) {
            None | Some("end") => true,
            Some("start") => false,
            Some(other) => return Err(refuse.because("index_location is start or end", other)),
        };
        Ok(Self { shape, index_at_end, index_has_checksum })
    }
}

/// Positive sizes.
fn sizes(value: &Value, name: &str, refuse: &Refuse) -> Result<Vec<usize>> {
    let size = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|&size| size > 0);
    let sizes: Option<Vec<usize>> =
        value.as_array().and_then(|values| values.iter().map(size).collect());
    sizes
        .filter(|sizes| !sizes.is_empty())
        .ok_or_else(|| refuse.damaged(&format!("{name} must be a list of positive sizes"), value))
}

fn parse_v2_type(name: &str) -> Option<DataType> {
    Some(match name {
        // Of one byte, 0 or 1.
        "b1" | "u1" => DataType::U8,
        "i1" => DataType::I8,
        "u2" => DataType::U16,
        "i2" => DataType::I16,
        "u4" => DataType::U32,
        "i4" => DataType::I32,
        "u8" => DataType::U64,
        "i8" => DataType::I64,
        "f2" | "f4" => DataType::F32,
        "f8" => DataType::F64,
        _ => return None,
    })
}

/// Names of types in Zarr 3.
const V3_TYPES: [(&str, DataType); 10] = [
    ("uint8", DataType::U8),
    ("int8", DataType::I8),
    ("uint16", DataType::U16),
    ("int16", DataType::I16),
    ("uint32", DataType::U32),
    ("int32", DataType::I32),
    ("uint64", DataType::U64),
    ("int64", DataType::I64),
    ("float32", DataType::F32),
    ("float64", DataType::F64),
];

fn parse_v3_type(name: &str) -> Option<DataType> {
    let name = match name {
        "bool" => "uint8",
        "float16" => "float32",
        name => name,
    };
    V3_TYPES.iter().find(|(known, _)| *known == name).map(|(_, data_type)| *data_type)
}

/// The name of a type in Zarr 3.
pub fn type_name(data_type: DataType) -> &'static str {
    V3_TYPES.iter().find(|(_, known)| *known == data_type).expect("all types are listed").0
}

/// One value as bytes; 0 where none is given.
fn fill(value: &Value, data_type: DataType, is_half: bool) -> Option<Vec<u8>> {
    let width = data_type.bytes();
    if !data_type.is_integer() {
        let number = match value {
            Value::Null => 0.0,
            Value::String(text) => match (text.as_str(), text.strip_prefix("0x")) {
                ("NaN", _) => f64::NAN,
                ("Infinity", _) => f64::INFINITY,
                ("-Infinity", _) => f64::NEG_INFINITY,
                (_, Some(digits)) => {
                    let bits = u64::from_str_radix(digits, 16).ok()?;
                    if is_half {
                        return Some(half(bits as u16).to_le_bytes().to_vec());
                    }
                    return Some(bits.to_le_bytes()[..width].to_vec());
                }
                _ => return None,
            },
            number => number.as_f64()?,
        };
        return Some(match data_type {
            DataType::F32 => (number as f32).to_le_bytes().to_vec(),
            _ => number.to_le_bytes().to_vec(),
        });
    }
    let whole = |v: f64| (v.fract() == 0.0 && v.abs() < 2f64.powi(53)).then_some(v as i64);
    let number = match value {
        Value::Null | Value::Bool(false) => 0,
        Value::Bool(true) => 1,
        number => number
            .as_i64()
            .or_else(|| number.as_u64().map(|number| number as i64))
            .or_else(|| number.as_f64().and_then(whole))?,
    };
    Some(number.to_le_bytes()[..width].to_vec())
}

fn keys(encoding: &Value) -> Option<Keys> {
    let asked = encoding["configuration"]["separator"].as_str();
    let (prefix, usual) = match encoding["name"].as_str()? {
        "default" => ("c", "/"),
        "v2" => ("", "."),
        _ => return None,
    };
    let separator = match asked.unwrap_or(usual) {
        "/" => '/',
        "." => '.',
        _ => return None,
    };
    Some(Keys { prefix, separator })
}

fn three_codecs(list: &[Value], axes: usize, refuse: &Refuse) -> Result<Vec<Codec>> {
    let mut codecs = Vec::new();
    for codec in list {
        let name = codec["name"].as_str().unwrap_or("");
        let is_bytes = codecs.iter().any(|codec| matches!(codec, Codec::Bytes(_)));
        let known = match (name, is_bytes) {
            ("transpose", false) => order(&codec["configuration"]["order"], axes),
            ("bytes", false) => match codec["configuration"]["endian"].as_str() {
                Some("big") => Some(Codec::Bytes(Endian::Big)),
                _ => Some(Codec::Bytes(Endian::Little)),
            },
            ("crc32c", true) => Some(Codec::Checksum),
            (_, true) => Compressor::named(name).map(Codec::Packed),
            _ => None,
        };
        codecs.push(known.ok_or_else(|| refuse.because("the codec cannot be used here", codec))?);
    }
    match codecs.iter().any(|codec| matches!(codec, Codec::Bytes(_))) {
        true => Ok(codecs),
        false => Err(refuse.because("one of the codecs must be bytes", format!("{list:?}"))),
    }
}

/// A permutation of the axes.
fn order(value: &Value, axes: usize) -> Option<Codec> {
    let number = |value: &Value| value.as_u64().map(|number| number as usize);
    let order: Vec<usize> = value.as_array()?.iter().map(number).collect::<Option<_>>()?;
    let all = (0..axes).all(|axis| order.contains(&axis));
    (all && order.len() == axes).then_some(Codec::Transpose(order))
}
