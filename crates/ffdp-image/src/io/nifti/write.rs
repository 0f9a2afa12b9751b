//! Writing volumes and label maps, whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;

use super::data_type::DataType;
use super::layout::{Endian, RawHeader, Version};
use super::orientation::rotation_to_quaternion;
use super::refuse::reject;
use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, LabelMap, Matrix3, SAME_GRID_TOLERANCE_VOXELS, Volume};
use crate::io::gzip::ParallelGzip;
use crate::io::write_atomically;

/// The largest size of an axis in NIfTI-1.
const LARGEST_DIM_ONE: i64 = i16::MAX as i64;

/// Axes closer than this to orthonormal are those of a rotation; f32 headers round to about 1e-7.
const ORTHONORMAL_TOLERANCE: f64 = 1e-5;

const MILLIMETRES: i32 = 2;
const SCANNER: i32 = 1;
pub(super) const INTENT_LABEL: i32 = 1002;

/// Compression level: float images hardly shrink further, and time grows several times.
const LEVEL: Compression = Compression::fast();

/// Writes a volume as float32: gzip when the name ends in `.nii.gz`, plain for `.nii`.
///
/// NIfTI-1, or NIfTI-2 when an axis has more than 32767 voxels or the geometry needs f64. The grid
/// is stored as sform, and as qform too where the axes are orthogonal. The file appears whole or
/// not at all; an existing one is replaced (see [`check_not_an_input`](crate::io::check_not_an_input)).
///
/// # Errors
/// [`Error::Invalid`] for another file name, [`Error::Shape`] when there is not one value per
/// voxel, [`Error::Io`] when writing fails.
pub fn write_volume(path: impl AsRef<Path>, volume: &Volume) -> Result<()> {
    let header = new_header(&volume.geometry, DataType::F32);
    check_voxels(volume.data.len(), &volume.geometry)?;
    write_file(path.as_ref(), &header, |file| {
        write_numbers(file, volume.data.iter().map(|v| v.to_le_bytes()))
    })
}

/// Writes labels in the smallest integer type that holds them, with the label intent (1002).
///
/// # Errors
/// As [`write_volume`].
pub fn write_labels(path: impl AsRef<Path>, labels: &LabelMap) -> Result<()> {
    let data_type = smallest_type(&labels.data);
    let mut header = new_header(&labels.geometry, data_type);
    header.intent_code = INTENT_LABEL;
    check_voxels(labels.data.len(), &labels.geometry)?;
    let data = || labels.data.iter();
    write_file(path.as_ref(), &header, |file| match data_type {
        DataType::U8 => write_numbers(file, data().map(|&v| (v as u8).to_le_bytes())),
        DataType::I8 => write_numbers(file, data().map(|&v| (v as i8).to_le_bytes())),
        DataType::U16 => write_numbers(file, data().map(|&v| (v as u16).to_le_bytes())),
        DataType::I16 => write_numbers(file, data().map(|&v| (v as i16).to_le_bytes())),
        _ => write_numbers(file, data().map(|v| v.to_le_bytes())),
    })
}

/// The narrowest type for all labels; signed before unsigned at equal width, as more tools read it.
pub(super) fn smallest_type(labels: &[i32]) -> DataType {
    let low = labels.iter().copied().min().unwrap_or(0);
    let high = labels.iter().copied().max().unwrap_or(0);
    let fits = |from: i32, to: i32| low >= from && high <= to;
    if fits(0, u8::MAX.into()) {
        DataType::U8
    } else if fits(i8::MIN.into(), i8::MAX.into()) {
        DataType::I8
    } else if fits(i16::MIN.into(), i16::MAX.into()) {
        DataType::I16
    } else if fits(0, u16::MAX.into()) {
        DataType::U16
    } else {
        DataType::I32
    }
}

fn check_voxels(got: usize, geometry: &Geometry) -> Result<()> {
    if got == geometry.len() {
        return Ok(());
    }
    let what = format!("number of voxels of size {:?}", geometry.size);
    Err(Error::Shape { what, expected: vec![geometry.len()], got: vec![got] })
}

/// A little-endian header for a 3-D image of the given type.
pub(super) fn new_header(geometry: &Geometry, data_type: DataType) -> RawHeader {
    let dims = geometry.size.map(|n| n as i64);
    let small = dims.iter().all(|&n| n <= LARGEST_DIM_ONE) && fits_f32(geometry);
    let version = if small { Version::One } else { Version::Two };
    let [dx, dy, dz] = geometry.spacing_mm;
    let rotation = as_rotation(&geometry.direction);
    let (sign, quatern) = match &rotation {
        Some((sign, rotation)) => (*sign, rotation_to_quaternion(rotation)),
        None => (1.0, [0.0; 3]),
    };
    RawHeader {
        pair: false,
        version,
        endian: Endian::Little,
        dim: [3, dims[0], dims[1], dims[2], 1, 1, 1, 1],
        intent_parameters: [0.0; 3],
        intent_code: 0,
        intent_name: String::new(),
        datatype: data_type.code(),
        bitpix: 8 * data_type.bytes() as i16,
        pixdim: [sign, dx, dy, dz, 1.0, 1.0, 1.0, 1.0],
        vox_offset: version.first_data_byte() as f64,
        scl_slope: 1.0,
        scl_inter: 0.0,
        xyzt_units: MILLIMETRES,
        description: concat!("ffdp ", env!("CARGO_PKG_VERSION")).to_string(),
        qform_code: if rotation.is_some() { SCANNER } else { 0 },
        sform_code: SCANNER,
        quatern,
        qoffset: geometry.origin_mm,
        srow: *geometry.voxel_to_mm().rows(),
    }
}

/// Whether rounding the placement to f32 leaves it the same grid.
fn fits_f32(geometry: &Geometry) -> bool {
    let rounded = geometry.voxel_to_mm().rows().map(|row| row.map(|v| f64::from(v as f32)));
    Geometry::from_affine(geometry.size, Affine::from_rows(rounded))
        .is_ok_and(|rounded| geometry.same_grid(&rounded, SAME_GRID_TOLERANCE_VOXELS))
}

/// Orthonormal axes as a rotation and the sign of the third axis; `None` with shear.
fn as_rotation(direction: &Matrix3) -> Option<(f64, Matrix3)> {
    let dot = |i: usize, j: usize| (0..3).map(|k| direction[k][i] * direction[k][j]).sum::<f64>();
    let deviation = |i: usize, j: usize| (dot(i, j) - f64::from(u8::from(i == j))).abs();
    let orthonormal = (0..3).all(|i| (0..3).all(|j| deviation(i, j) <= ORTHONORMAL_TOLERANCE));
    let determinant = Affine::<(), ()>::from_parts(*direction, [0.0; 3]).determinant();
    let sign = determinant.signum();
    orthonormal.then(|| (sign, direction.map(|[x, y, z]| [x, y, sign * z])))
}

/// Writes header and data to a temporary file, compressed as the name says, and puts it in place.
pub(super) fn write_file(
    path: &Path,
    header: &RawHeader,
    data: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let name = name.unwrap_or_default();
    let bytes = header.to_bytes();
    if name.ends_with(".nii.gz") {
        write_atomically(path, |file| {
            let mut encoder = ParallelGzip::new(file, LEVEL)?;
            encoder.write_all(&bytes)?;
            data(&mut encoder)?;
            encoder.finish().map(drop)
        })
    } else if name.ends_with(".nii") {
        write_atomically(path, |file: &mut BufWriter<_>| {
            file.write_all(&bytes)?;
            data(file)
        })
    } else {
        let what = "the name of a NIfTI file must end in .nii or .nii.gz";
        Err(reject(path, what, format!("{name:?}"), "rename the output"))
    }
}

/// Writes numbers in blocks; calls through `dyn Write` are too slow for single numbers.
pub(super) fn write_numbers<const N: usize>(
    file: &mut dyn Write,
    numbers: impl Iterator<Item = [u8; N]>,
) -> io::Result<()> {
    const BLOCK: usize = 1 << 16;
    let mut block = Vec::with_capacity(BLOCK + N);
    for number in numbers {
        block.extend_from_slice(&number);
        if block.len() >= BLOCK {
            file.write_all(&block)?;
            block.clear();
        }
    }
    file.write_all(&block)
}
