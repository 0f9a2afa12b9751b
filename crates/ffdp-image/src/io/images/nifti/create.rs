//! The header of a new NIfTI file.

use super::super::data_type::{DataType, Endian};
use super::super::new_image::{Kind, NewImage};
use super::layout::{RawHeader, Version};
use super::orientation::rotation_to_quaternion;
use crate::image::{Affine, Geometry, Matrix3};

/// The largest size of an axis in NIfTI-1.
const LARGEST_DIM_ONE: i64 = i16::MAX as i64;

/// Axes closer than this to orthonormal are those of a rotation; f32 headers round to about 1e-7.
const ORTHONORMAL_TOLERANCE: f64 = 1e-5;

/// The placement of a NIfTI-1 is off by no more voxels than this at a corner.
const ROUNDING_VOXELS: f64 = 1e-3;

const MILLIMETRES: i32 = 2;
const MILLIMETRES_AND_SECONDS: i32 = 2 | 8;
const SCANNER: i32 = 1;

/// The header of an image; displacements have the axes `[x, y, z, 1, 3]`.
pub fn header_of(image: &NewImage) -> RawHeader {
    let mut header = new_header(&image.geometry, image.data_type);
    header.intent_code = image.kind.intent_code();
    [header.scl_slope, header.scl_inter] = image.scale;
    if image.kind == Kind::Displacement {
        (header.dim[0], header.dim[4], header.dim[5]) = (5, 1, 3);
    } else if image.volumes > 1 {
        (header.dim[0], header.dim[4]) = (4, image.volumes as i64);
        header.pixdim[4] = image.time_step_seconds;
        header.xyzt_units = MILLIMETRES_AND_SECONDS;
    }
    header
}

/// A little-endian header for a 3-D image of the given type.
pub fn new_header(geometry: &Geometry, data_type: DataType) -> RawHeader {
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
        .is_ok_and(|rounded| geometry.same_grid(&rounded, ROUNDING_VOXELS))
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
