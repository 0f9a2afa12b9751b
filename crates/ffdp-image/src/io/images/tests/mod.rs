//! Tests of the module, one file per idea; files are built byte by byte here.

mod colours;
mod displacement;
mod golden;
mod golden_formats;
mod gzip;
mod layout;
mod oracle;
mod orientation;
mod pairs;
mod planes;
mod planes_of_files;
mod real_files;
mod reject;
mod round_trip;
mod slabs;
mod sound;
mod stream;
mod text_headers;
mod write;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::data_type::{DataType, Endian};
use super::nifti::layout::{RawHeader, Version};
use super::nifti::new_header;
use crate::error::Result;
use crate::image::{Affine, Geometry};

/// A folder that vanishes with the test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        // Some file systems flush a file that is truncated and written again: slow in loops.
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// Oblique, anisotropic, sheared, every entry exact in f32.
fn sheared(size: [usize; 3]) -> Geometry {
    let rows = [[-1.5, 0.25, 0.0, 10.0], [0.125, 2.0, 0.5, -20.0], [0.0, -0.5, 3.0, 30.0]];
    Geometry::from_affine(size, Affine::from_rows(rows)).unwrap()
}

/// A header for 3x2x2 voxels on the sheared grid.
fn raw(data_type: DataType) -> RawHeader {
    new_header(&sheared([3, 2, 2]), data_type)
}

/// The same header for another version and byte order.
fn converted(mut raw: RawHeader, version: Version, endian: Endian) -> RawHeader {
    (raw.version, raw.endian) = (version, endian);
    raw.vox_offset = version.first_data_byte() as f64;
    raw
}

/// Real values as stored voxels; integers are rounded towards zero and saturate.
fn encode(values: &[f64], data_type: DataType, endian: Endian) -> Vec<u8> {
    let little = |v: f64| match data_type {
        DataType::U8 => (v as u8).to_le_bytes().to_vec(),
        DataType::I8 => (v as i8).to_le_bytes().to_vec(),
        DataType::U16 => (v as u16).to_le_bytes().to_vec(),
        DataType::I16 => (v as i16).to_le_bytes().to_vec(),
        DataType::U32 => (v as u32).to_le_bytes().to_vec(),
        DataType::I32 => (v as i32).to_le_bytes().to_vec(),
        DataType::U64 => (v as u64).to_le_bytes().to_vec(),
        DataType::I64 => (v as i64).to_le_bytes().to_vec(),
        DataType::F32 => (v as f32).to_le_bytes().to_vec(),
        DataType::F64 => v.to_le_bytes().to_vec(),
    };
    let in_order = |mut bytes: Vec<u8>| {
        if endian == Endian::Big {
            bytes.reverse();
        }
        bytes
    };
    values.iter().flat_map(|&v| in_order(little(v))).collect()
}

/// Header, a gap of 0xEE up to `vox_offset`, voxels.
fn file_bytes(raw: &RawHeader, voxels: &[u8]) -> Vec<u8> {
    let mut bytes = raw.to_bytes();
    if raw.vox_offset.is_finite() && raw.vox_offset as usize > bytes.len() {
        bytes.resize(raw.vox_offset as usize, 0xEE);
    }
    bytes.extend_from_slice(voxels);
    bytes
}

/// A file of the values 0, 1, 2, ... as u8.
fn counting(raw: &RawHeader) -> Vec<u8> {
    let voxels: i64 = raw.dim[1..=raw.dim[0].clamp(1, 7) as usize].iter().product();
    let values: Vec<f64> = (0..voxels.max(0)).map(|i| i as f64).collect();
    file_bytes(raw, &encode(&values, DataType::U8, raw.endian))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The message of an error, which must name the file.
fn message<T: std::fmt::Debug>(path: &Path, result: Result<T>) -> String {
    let message = result.expect_err("must be refused").to_string();
    assert!(message.contains(&*path.file_name().unwrap().to_string_lossy()), "{message}");
    message
}
