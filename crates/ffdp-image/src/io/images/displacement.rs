//! Displacement fields as ITK and ANTs keep them: 5-D NIfTI, vectors in LPS millimetres.
//!
//! Inside, a displacement is in voxels of its own grid, components (x, y, z). With `L` the linear
//! part of the grid's voxel-to-mm map, the vector in RAS mm is `L u`; LPS turns the signs of x and
//! y. The file has axes `[x, y, z, 1, 3]` with the component slowest, as `[3, D, H, W]` has it.
//!
//! In an OME-Zarr the vectors follow the axes of the file (RFC-5): written are components (z, y, x), each in mm along its
//! axis.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::data_type::DataType;
use super::header::{Components, Header, INTENT_DISPLACEMENT, INTENT_VECTOR, Vectors};
use super::new_image::{Kind, NewImage};
use super::open::open;
use super::planes::PlaneReader;
use super::read::read_floats;
use super::refuse::reject;
use super::reserve::reserve;
use super::sink::{format_of, write_image, write_numbers};
use crate::error::{Error, Result};
use crate::image::{Geometry, Matrix3, Planes};
use crate::io::lps::{LPS_SIGNS, flip};

/// Displacements, coefficients of splines and of cosines, by FNIRT (2006 to 2009) and TOPUP (2016 to 2018).
const FSL_INTENTS: [i32; 7] = [2006, 2007, 2008, 2009, 2016, 2017, 2018];
const FROM_FSL: &str = "convert it to a field of ITK: wb_command -convert-warpfield -from-fnirt WARP.nii.gz MOVING.nii.gz -to-itk OUT.nii.gz \
     (coefficients first to a field: fnirtfileutils --in=COEFFICIENTS --ref=FIXED --out=WARP --withaff)";

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
    let image = NewImage::new(geometry, DataType::F32, Kind::Displacement);
    let linear = file_of_voxels(path.as_ref(), geometry)?;
    let (ux, rest) = displacement.split_at(voxels);
    let (uy, uz) = rest.split_at(voxels);
    write_image(path.as_ref(), &image, |file| {
        linear.iter().try_for_each(|[a, b, c]| {
            let component = |i: usize| {
                let [x, y, z] = [ux, uy, uz].map(|component| f64::from(component[i]));
                (a * x + b * y + c * z) as f32
            };
            write_numbers(file, voxels, |i| component(i).to_le_bytes())
        })
    })
}

/// From a vector in voxels to the components of a file: LPS mm, or what OME-Zarr has.
pub(super) fn file_of_voxels(path: &Path, geometry: &Geometry) -> Result<Matrix3> {
    let linear = geometry.voxel_to_mm().linear();
    let spacing = geometry.spacing_mm;
    Ok(match format_of(path)?.holds().displacement.unwrap_or_default() {
        Vectors::AlongAxes(Components { axes, unit_mm }) => std::array::from_fn(|i| {
            let length = spacing[axes[i]] / unit_mm[i];
            std::array::from_fn(|j| if axes[i] == j { length } else { 0.0 })
        }),
        Vectors::Ras => linear,
        Vectors::Lps => std::array::from_fn(|i| linear[i].map(|v| v * LPS_SIGNS[i])),
    })
}

/// Reads a displacement field into `[3, D, H, W]`: components x, y, z in voxels of the returned grid.
///
/// The intent says in which space the vectors are: 1007 (vectors: ITK, ANTs) and none LPS mm, 1006
/// (displacement vectors) RAS mm, as ITK reads them. In NRRD and MetaImage, whose components lie together, LPS mm.
///
/// # Errors
/// As [`header()`](super::header()); [`Error::Nifti`] when the file has other axes than
/// `[x, y, z, 1, 3]` or `[x, y, z, 3]`, another intent, or vectors that are not finite.
pub fn read_displacement(path: impl AsRef<Path>) -> Result<(Vec<f32>, Geometry)> {
    let path = path.as_ref();
    let (mut source, header) = open(path)?;
    check_is_displacement(&header, path)?;
    let geometry = header.geometry.clone();
    let mut data: Vec<f32> = reserve(path, 3 * geometry.len())?;
    read_floats(&mut source, &header, 0, 3 * geometry.len(), &mut data)?;
    source.finish(header.vox_offset + header.data_bytes())?;
    if header.is_interleaved {
        let mut planar: Vec<f32> = reserve(path, data.len())?;
        append_planar(&data, &mut planar);
        data = planar;
    }
    check_finite(&data, &geometry, 0, path)?;
    to_voxels(&mut data, &voxels_of_file(&header));
    Ok((data, geometry))
}

/// Appends the first components of all vectors, then the second, then the third.
fn append_planar(vectors: &[f32], data: &mut Vec<f32>) {
    let (vectors, _) = vectors.as_chunks::<3>();
    for component in 0..3 {
        data.par_extend(vectors.par_iter().with_min_len(PART).map(|vector| vector[component]));
    }
}

/// From the components of a file to a vector in voxels.
fn voxels_of_file(header: &Header) -> Matrix3 {
    let linear = header.geometry.mm_to_voxel().linear();
    let spacing = header.geometry.spacing_mm;
    match header.vectors {
        Vectors::AlongAxes(Components { axes, unit_mm }) => std::array::from_fn(|i| {
            std::array::from_fn(|j| if axes[j] == i { unit_mm[j] / spacing[i] } else { 0.0 })
        }),
        Vectors::Ras => linear,
        Vectors::Lps => linear.map(flip),
    }
}

/// A displacement field in a file, read plane by plane, each of its components as [`PlaneReader`] reads an image.
pub struct DisplacementReader {
    path: PathBuf,
    geometry: Geometry,
    components: Layout,
    linear: Matrix3,
}

/// How the components of vectors lie in a file.
enum Layout {
    Planar(Box<[PlaneReader; 3]>),
    Interleaved(Box<PlaneReader>),
}

impl DisplacementReader {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`read_displacement`], but for what is not read yet.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let header = open(path)?.1;
        check_is_displacement(&header, path)?;
        let component = |c: usize| PlaneReader::open(path, Some(c));
        let components = match header.is_interleaved {
            true => Layout::Interleaved(Box::new(PlaneReader::open_interleaved(path)?)),
            false => Layout::Planar(Box::new([component(0)?, component(1)?, component(2)?])),
        };
        let linear = voxels_of_file(&header);
        Ok(Self { path: path.to_path_buf(), geometry: header.geometry, components, linear })
    }

    /// The grid.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The vectors on the planes `z`, `[3, n, H, W]`: components x, y, z in voxels of the grid.
    ///
    /// # Errors
    /// As [`read_displacement`]; [`Error::Invalid`] when the range is empty or leaves the grid.
    pub fn read(&mut self, z: Range<usize>) -> Result<Vec<f32>> {
        let [x, y, _] = self.geometry().size;
        let mut data: Vec<f32> = reserve(&self.path, 3 * x * y * z.len())?;
        match &mut self.components {
            // On all cores: into memory that is fresh, one copies some GB a second.
            Layout::Planar(components) => {
                for component in components.iter_mut() {
                    let values = component.read(z.clone())?.par_iter().with_min_len(PART);
                    data.par_extend(values.copied());
                }
            }
            Layout::Interleaved(reader) => append_planar(reader.read(z.clone())?, &mut data),
        }
        check_finite(&data, self.geometry(), z.start, &self.path)?;
        to_voxels(&mut data, &self.linear);
        Ok(data)
    }
}

/// Writes a displacement anew, its vectors as the other format has them.
pub(super) fn copy_displacement(from: &Path, to: &Path) -> Result<()> {
    let (displacement, geometry) = read_displacement(from)?;
    write_displacement(to, &displacement, &geometry)
}

/// Whether a file says that it is one.
pub(super) fn is_displacement(header: &Header) -> bool {
    [INTENT_VECTOR, INTENT_DISPLACEMENT].contains(&header.intent_code)
}

/// Demands three components a voxel. A field without an intent is one all the same where it is given as a transform;
/// of another intent it is not, as the fields of FSL, which are in its own coordinates.
fn check_is_displacement(header: &Header, path: &Path) -> Result<()> {
    if !matches!(header.dims[..], [_, _, _, 1, 3] | [_, _, _, 3]) {
        let what = "a displacement field has the axes [x, y, z, 1, 3] or [x, y, z, 3]";
        let fix = "pass a transform, or write the field with ANTs or ITK";
        return Err(reject(path, what, format!("{:?}", header.dims), fix));
    }
    // The intent of a field of ITK, with other vectors: positions or displacements, in RAS mm, or control points.
    if header.intent_name.starts_with("NREG_TRANS") {
        let what = "a displacement field is one of ITK, with vectors in LPS mm";
        let name = format!("intent name {:?}, a transform of NiftyReg", header.intent_name);
        let fix = "make its vectors displacements (reg_transform -disp), and set the intent to 1006 (RAS mm) with another intent name";
        return Err(reject(path, what, name, fix));
    }
    if header.intent_code != 0 && !is_displacement(header) {
        let what = "a displacement field has the intent 1007 (vectors, in LPS mm), 1006 (in RAS mm) or none (as 1007)";
        let code = header.intent_code;
        let (value, fix) = match FSL_INTENTS.contains(&code) {
            true => (format!("{code}, a warp of FSL, in coordinates of its own"), FROM_FSL),
            false => (
                code.to_string(),
                "convert it with the program that made it to a field of ITK, or set the intent if its vectors are displacements in mm: 1007 for LPS, 1006 for RAS",
            ),
        };
        return Err(reject(path, what, value, fix));
    }
    Ok(())
}

/// Of the vectors on planes of a grid, from one on.
fn check_finite(data: &[f32], grid: &Geometry, plane: usize, path: &Path) -> Result<()> {
    // A part at a time: rayon's position_first asks after every value.
    let is_odd = |part: &[f32]| !part.iter().all(|v| v.is_finite());
    if !data.par_chunks(PART).any(is_odd) {
        return Ok(());
    }
    let first = data.iter().position(|v| !v.is_finite()).expect("a part holds one");
    let count = data.iter().filter(|v| !v.is_finite()).count();
    let (component, offset) = (first / (data.len() / 3), first % (data.len() / 3));
    let mut voxel = grid.index_of(offset);
    voxel[2] += plane;
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

/// Vectors that a core turns at a time.
const PART: usize = 1 << 16;

/// `linear v` for all vectors, in place.
fn to_voxels(data: &mut [f32], linear: &Matrix3) {
    let (xs, rest) = data.split_at_mut(data.len() / 3);
    let (ys, zs) = rest.split_at_mut(xs.len());
    let parts = xs.par_chunks_mut(PART).zip(ys.par_chunks_mut(PART)).zip(zs.par_chunks_mut(PART));
    parts.for_each(|((xs, ys), zs)| {
        for ((x, y), z) in xs.iter_mut().zip(ys).zip(zs) {
            let mm = [f64::from(*x), f64::from(*y), f64::from(*z)];
            let [a, b, c] = linear.map(|row| row[0] * mm[0] + row[1] * mm[1] + row[2] * mm[2]);
            (*x, *y, *z) = (a as f32, b as f32, c as f32);
        }
    });
}
