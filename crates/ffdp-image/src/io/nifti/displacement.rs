//! Displacement fields as ITK and ANTs keep them: 5-D NIfTI, vectors in LPS millimetres.
//!
//! Inside, a displacement is in voxels of its own grid, components (x, y, z). With `L` the linear
//! part of the grid's voxel-to-mm map, the vector in RAS mm is `L u`; LPS turns the signs of x and
//! y. The file has axes `[x, y, z, 1, 3]` with the component slowest, as `[3, D, H, W]` has it.

use std::path::Path;

use super::data_type::DataType;
use super::header::Header;
use super::layout::RawHeader;
use super::read::{for_each_chunk, reserve};
use super::refuse::reject;
use super::source::Source;
use super::write::{new_header, write_file, write_numbers};
use crate::error::{Error, Result};
use crate::image::{Geometry, Matrix3};
use crate::io::lps::{LPS_SIGNS, flip};

/// Vectors; ITK and ANTs keep displacements so, in LPS mm.
const INTENT_VECTOR: i32 = 1007;
/// Displacement vectors; by the standard, and as ITK reads them since 5.3, in RAS mm.
const INTENT_DISPLACEMENT: i32 = 1006;

/// Writes a displacement `[3, D, H, W]` (components x, y, z in voxels of `geometry`) for ITK and
/// ANTs: float32, axes `[x, y, z, 1, 3]`, intent 1007, vectors in LPS mm.
///
/// # Errors
/// As [`write_volume`](super::write_volume).
pub fn write_displacement(
    path: impl AsRef<Path>,
    displacement: &[f32],
    geometry: &Geometry,
) -> Result<()> {
    let voxels = geometry.len();
    if displacement.len() != 3 * voxels {
        let [d, h, w] = geometry.dims();
        let what = format!("number of values of a displacement [3, {d}, {h}, {w}]");
        let (expected, got) = (vec![3 * voxels], vec![displacement.len()]);
        return Err(Error::Shape { what, expected, got });
    }
    let header = displacement_header(geometry);
    let linear = geometry.voxel_to_mm().linear();
    let (ux, rest) = displacement.split_at(voxels);
    let (uy, uz) = rest.split_at(voxels);
    write_file(path.as_ref(), &header, |file| {
        (0..3).try_for_each(|i| {
            let [a, b, c] = linear[i].map(|v| v * LPS_SIGNS[i]);
            let vectors = ux.iter().zip(uy).zip(uz).map(|((&x, &y), &z)| {
                (a * f64::from(x) + b * f64::from(y) + c * f64::from(z)) as f32
            });
            write_numbers(file, vectors.map(f32::to_le_bytes))
        })
    })
}

/// Of a float32 displacement for ITK and ANTs.
pub(super) fn displacement_header(geometry: &Geometry) -> RawHeader {
    let mut header = new_header(geometry, DataType::F32);
    (header.dim[0], header.dim[4], header.dim[5]) = (5, 1, 3);
    header.intent_code = INTENT_VECTOR;
    header
}

/// Reads a displacement field into `[3, D, H, W]`: components x, y, z in voxels of the returned grid.
///
/// The intent says in which space the vectors are: 1007 (vectors: ITK, ANTs) LPS mm, 1006
/// (displacement vectors) RAS mm, as ITK reads them.
///
/// # Errors
/// As [`header()`](super::header()); [`Error::Nifti`] when the file has other axes than
/// `[x, y, z, 1, 3]`, another intent, or vectors that are not finite.
pub fn read_displacement(path: impl AsRef<Path>) -> Result<(Vec<f32>, Geometry)> {
    let path = path.as_ref();
    let mut source = Source::open(path)?;
    let header = Header::read(&mut source)?;
    check_is_displacement(&header, path)?;
    let geometry = header.geometry.clone();
    let mut data: Vec<f32> = reserve(path, 3 * geometry.len())?;
    for_each_chunk(&mut source, &header, 0, 3 * geometry.len(), |values| {
        data.extend(values.iter().map(|&v| v as f32));
    })?;
    source.finish(header.vox_offset + header.data_bytes())?;
    check_finite(&data, &geometry, path)?;
    let linear = geometry.mm_to_voxel().linear();
    match header.intent_code {
        INTENT_DISPLACEMENT => to_voxels(&mut data, &linear),
        _ => lps_to_voxels(&mut data, &linear),
    }
    Ok((data, geometry))
}

fn check_is_displacement(header: &Header, path: &Path) -> Result<()> {
    if header.dims.len() != 5 || header.dims[3..] != [1, 3] {
        let what = "a displacement field has the axes [x, y, z, 1, 3]";
        let fix = "convert it with ANTs or ITK tools";
        return Err(reject(path, what, format!("{:?}", header.dims), fix));
    }
    if ![INTENT_VECTOR, INTENT_DISPLACEMENT].contains(&header.intent_code) {
        let what =
            "a displacement field has the intent 1007 (vectors, in LPS mm) or 1006 (in RAS mm)";
        let fix = "set the intent 1007 if the vectors are displacements in LPS mm";
        return Err(reject(path, what, header.intent_code.to_string(), fix));
    }
    Ok(())
}

fn check_finite(data: &[f32], geometry: &Geometry, path: &Path) -> Result<()> {
    let Some(first) = data.iter().position(|v| !v.is_finite()) else { return Ok(()) };
    let count = data.iter().filter(|v| !v.is_finite()).count();
    let (component, voxel) = (first / geometry.len(), geometry.index_of(first % geometry.len()));
    let value = format!(
        "{count} NaN or infinite components, the first at voxel {voxel:?}, component {component}"
    );
    let what = "a displacement must be finite everywhere";
    Err(reject(path, what, value, "compute the field again, or fill it"))
}

/// From LPS mm to voxels, in place; `linear` is the linear part of RAS mm to voxel.
pub(in crate::io) fn lps_to_voxels(data: &mut [f32], linear: &Matrix3) {
    to_voxels(data, &linear.map(flip));
}

/// `linear v` for all vectors, in place.
fn to_voxels(data: &mut [f32], linear: &Matrix3) {
    let (xs, rest) = data.split_at_mut(data.len() / 3);
    let (ys, zs) = rest.split_at_mut(xs.len());
    for ((x, y), z) in xs.iter_mut().zip(ys).zip(zs) {
        let mm = [f64::from(*x), f64::from(*y), f64::from(*z)];
        let [a, b, c] = linear.map(|row| row[0] * mm[0] + row[1] * mm[1] + row[2] * mm[2]);
        (*x, *y, *z) = (a as f32, b as f32, c as f32);
    }
}
