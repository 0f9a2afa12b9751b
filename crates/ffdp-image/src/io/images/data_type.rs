//! Voxel types and their decoding.

use rayon::prelude::*;
use serde::Serialize;

/// Byte order of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// Type of a stored voxel: all real integer and floating-point types of the format up to 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DataType {
    /// `uint8`, code 2.
    U8,
    /// `int16`, code 4.
    I16,
    /// `int32`, code 8.
    I32,
    /// `float32`, code 16.
    F32,
    /// `float64`, code 64.
    F64,
    /// `int8`, code 256.
    I8,
    /// `uint16`, code 512.
    U16,
    /// `uint32`, code 768.
    U32,
    /// `int64`, code 1024.
    I64,
    /// `uint64`, code 1280.
    U64,
}

impl DataType {
    /// All types that are read.
    pub const ALL: [DataType; 10] = [
        DataType::U8,
        DataType::I16,
        DataType::I32,
        DataType::F32,
        DataType::F64,
        DataType::I8,
        DataType::U16,
        DataType::U32,
        DataType::I64,
        DataType::U64,
    ];

    /// Whether it is one of the integer types.
    pub const fn is_integer(self) -> bool {
        !matches!(self, DataType::F32 | DataType::F64)
    }

    /// The format's code.
    pub const fn code(self) -> i16 {
        match self {
            DataType::U8 => 2,
            DataType::I16 => 4,
            DataType::I32 => 8,
            DataType::F32 => 16,
            DataType::F64 => 64,
            DataType::I8 => 256,
            DataType::U16 => 512,
            DataType::U32 => 768,
            DataType::I64 => 1024,
            DataType::U64 => 1280,
        }
    }

    /// The type with the given code, `None` when it is not read here.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|data_type| data_type.code() == code)
    }

    /// Bytes of a voxel.
    pub const fn bytes(self) -> usize {
        match self {
            DataType::U8 | DataType::I8 => 1,
            DataType::I16 | DataType::U16 => 2,
            DataType::I32 | DataType::U32 | DataType::F32 => 4,
            DataType::I64 | DataType::U64 | DataType::F64 => 8,
        }
    }

    /// The name of a code in the format's documents, for messages about types that are not read.
    pub(super) fn describe(code: i16) -> &'static str {
        match code {
            0 => "unknown",
            1 => "binary (1 bit a voxel)",
            32 => "complex64",
            128 => "RGB24",
            1536 => "float128",
            1792 => "complex128",
            2048 => "complex256",
            2304 => "RGBA32",
            _ => "not in the standard",
        }
    }

    /// A value as the bytes of a voxel, least significant first; integers are rounded and saturate.
    pub(super) fn encode(self, value: f64, bytes: &mut [u8]) {
        let whole = value.round();
        match self {
            DataType::U8 => bytes.copy_from_slice(&(whole as u8).to_le_bytes()),
            DataType::I8 => bytes.copy_from_slice(&(whole as i8).to_le_bytes()),
            DataType::U16 => bytes.copy_from_slice(&(whole as u16).to_le_bytes()),
            DataType::I16 => bytes.copy_from_slice(&(whole as i16).to_le_bytes()),
            DataType::U32 => bytes.copy_from_slice(&(whole as u32).to_le_bytes()),
            DataType::I32 => bytes.copy_from_slice(&(whole as i32).to_le_bytes()),
            DataType::U64 => bytes.copy_from_slice(&(whole as u64).to_le_bytes()),
            DataType::I64 => bytes.copy_from_slice(&(whole as i64).to_le_bytes()),
            DataType::F32 => bytes.copy_from_slice(&(value as f32).to_le_bytes()),
            DataType::F64 => bytes.copy_from_slice(&value.to_le_bytes()),
        }
    }

    /// Hands the voxels in `bytes` to `values`. Integers beyond 2^53 are rounded to f64.
    pub(super) fn decode(self, endian: Endian, bytes: &[u8], values: &mut impl Numbers) {
        match self {
            DataType::U8 => values.take(bytes.as_chunks().0, |[b]| f64::from(b)),
            DataType::I8 => values.take(bytes.as_chunks().0, |[b]| f64::from(b as i8)),
            DataType::I16 => take(endian, bytes, values, |b| f64::from(i16::from_le_bytes(b))),
            DataType::U16 => take(endian, bytes, values, |b| f64::from(u16::from_le_bytes(b))),
            DataType::I32 => take(endian, bytes, values, |b| f64::from(i32::from_le_bytes(b))),
            DataType::U32 => take(endian, bytes, values, |b| f64::from(u32::from_le_bytes(b))),
            DataType::F32 => take(endian, bytes, values, |b| f64::from(f32::from_le_bytes(b))),
            DataType::F64 => take(endian, bytes, values, f64::from_le_bytes),
            DataType::I64 => take(endian, bytes, values, |b| i64::from_le_bytes(b) as f64),
            DataType::U64 => take(endian, bytes, values, |b| u64::from_le_bytes(b) as f64),
        }
    }
}

fn take<const N: usize>(
    endian: Endian,
    bytes: &[u8],
    values: &mut impl Numbers,
    number: impl Fn([u8; N]) -> f64 + Sync,
) {
    let (chunks, _) = bytes.as_chunks::<N>();
    match endian {
        Endian::Little => values.take(chunks, number),
        Endian::Big => values.take(chunks, |mut chunk| {
            chunk.reverse();
            number(chunk)
        }),
    }
}

/// Where decoded voxels go.
pub(super) trait Numbers {
    /// Appends the number of each chunk.
    fn take<const N: usize>(&mut self, chunks: &[[u8; N]], number: impl Fn([u8; N]) -> f64 + Sync);
}

impl Numbers for Vec<f64> {
    fn take<const N: usize>(&mut self, chunks: &[[u8; N]], number: impl Fn([u8; N]) -> f64 + Sync) {
        self.extend(chunks.iter().map(|&chunk| number(chunk)));
    }
}

/// Real values rounded to f32, decoded by all cores.
pub(super) struct Floats<'a> {
    pub data: &'a mut Vec<f32>,
    pub slope: f64,
    pub intercept: f64,
}

/// Numbers that one thread decodes at least.
const DECODED: usize = 1 << 14;

impl Numbers for Floats<'_> {
    fn take<const N: usize>(&mut self, chunks: &[[u8; N]], number: impl Fn([u8; N]) -> f64 + Sync) {
        let chunks = chunks.par_iter().with_min_len(DECODED);
        match (self.slope, self.intercept) {
            (1.0, 0.0) => self.data.par_extend(chunks.map(|&chunk| number(chunk) as f32)),
            (slope, intercept) => self
                .data
                .par_extend(chunks.map(|&chunk| (number(chunk) * slope + intercept) as f32)),
        }
    }
}
