//! Transforms as files of ITK, ANTs, FSL and FreeSurfer, recognised by their content.
//!
//! | content | read | written |
//! |---|---|---|
//! | ITK text (`.txt`, `.tfm`), also with composites | yes | affine, cubic B-spline |
//! | MATLAB v4 as ITK writes it (`.mat`, ANTs' `0GenericAffine.mat`) | yes | affine |
//! | displacement field (`.nii`, `.nii.gz`, `.zarr`; read: `.nrrd`, `.mha`) | yes | see [`write_displacement`](super::images::write_displacement) |
//! | ITK composite (`.h5`) | yes | yes |
//! | matrices, displacements and sequences of them in OME-Zarr 0.6 (`.zarr`) | yes | yes |
//! | a 3x4 or 4x4 matrix as text, RAS mm, fixed to moving | yes | no |
//! | FreeSurfer's LTA (`.lta`), between RAS mm or voxels | yes | no |
//! | the output folder of `ffdp register` or ANTs | [`transform_files`] | no |
//! | FSL FLIRT's matrix (`.mat`, text), with both images | [`read_flirt`] | no |
//!
//! ITK keeps transforms in LPS mm and lists of them so that the last is applied first; here all is
//! RAS mm, the first part applied first. This module knows files and matrices; what a part does to an
//! image is `transform`'s. Read `parts.rs` first.

mod flirt;
mod folder;
mod hdf5;
mod kinds;
mod lta;
mod matlab;
mod matrix;
mod ngff;
mod parts;
mod text;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::image::{Affine, Geometry, Physical};
use crate::io::check_memory;
use crate::io::images::{DisplacementReader, is_image, read_displacement, write_displacement};
use crate::io::is_zarr_name;

pub use flirt::read_flirt;
pub use folder::transform_files;
pub use parts::TransformPart;

/// What some editors put before a text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Files of matrices are small; anything larger is none.
const LARGEST_TEXT_BYTES: u64 = 1 << 30;

/// Reads a transform of any kind in the table of this module: its parts, the first applied first.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read, [`Error::File`] when it is of no known kind, truncated,
/// has wrong counts or values that are not finite, or holds a transform that is not 3-D or of a kind
/// that cannot be converted; [`Error::InFile`] for a singular matrix or an impossible grid; and those
/// of [`read_displacement`].
pub fn read_transform_file(path: impl AsRef<Path>) -> Result<Vec<TransformPart>> {
    let files = transform_files(path)?;
    let parts = files.iter().map(|file| read_parts(file)).collect::<Result<Vec<_>>>()?;
    Ok(parts.concat())
}

/// Whether the transform in a file or a folder is no single matrix; a displacement field is not read for that.
///
/// # Errors
/// As [`read_transform_file`].
pub fn is_deforming(path: impl AsRef<Path>) -> Result<bool> {
    let is_deforming = |file: &PathBuf| match Content::of(file)? {
        Content::Image => Ok(true),
        _ => Ok(read_parts(file)?.iter().any(|part| !matches!(part, TransformPart::Affine(_)))),
    };
    transform_files(path)?.iter().try_fold(false, |any, file| Ok(any || is_deforming(file)?))
}

/// The parts of one file.
fn read_parts(path: &Path) -> Result<Vec<TransformPart>> {
    match Content::of(path)? {
        Content::Image => {
            let (values, geometry) = read_displacement(path)?;
            Ok(vec![TransformPart::Displacement { values, geometry }])
        }
        Content::Ngff => ngff::read(path),
        Content::Hdf5 => kinds::parts(hdf5::read(path)?, path),
        Content::ItkText => kinds::parts(text::read(path, &read_text(path)?)?, path),
        Content::Matlab => kinds::parts(vec![matlab::read(path, &read_bytes(path)?)?], path),
        Content::Text => {
            let text = read_text(path)?;
            let map =
                if lta::is_lta(&text) { lta::read(path, &text) } else { matrix::read(path, &text) };
            Ok(vec![TransformPart::Affine(map?)])
        }
        Content::Unknown => Err(Error::file(
            path,
            "a transform must be an ITK text or .mat file, a displacement field (NIfTI, NRRD, MetaImage, OME-Zarr), a \
             composite .h5, an .lta of FreeSurfer or a 4x4 matrix",
            "a file of another kind",
            "convert it with ANTs or SimpleITK",
        )),
    }
}

/// The displacement field in a file, to be read plane by plane; `None` for a transform of another kind.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read, and those of [`DisplacementReader::open`].
pub fn open_displacement(path: impl AsRef<Path>) -> Result<Option<DisplacementReader>> {
    let path = path.as_ref();
    let is_field = Content::of(path)? == Content::Image;
    is_field.then(|| DisplacementReader::open(path)).transpose()
}

/// Writes an affine map (RAS mm, fixed to moving) for ITK and ANTs: as MATLAB v4 when the name ends
/// in `.mat`, as text when it ends in `.txt` or `.tfm`; for OME-Zarr 0.6 when it ends in `.zarr`. The file appears whole
/// or not at all.
///
/// # Errors
/// [`Error::File`] for another name, [`Error::Singular`] for a map that readers would refuse,
/// [`Error::Io`] when writing fails.
pub fn write_affine(path: impl AsRef<Path>, map: &Affine<Physical, Physical>) -> Result<()> {
    let path = path.as_ref();
    map.inverse()?;
    let itk = kinds::from_affine(map);
    match extension(path).as_str() {
        "mat" => matlab::write(path, &itk),
        "txt" | "tfm" => text::write(path, &itk),
        "zarr" => ngff::write(path, &[TransformPart::Affine(*map)]),
        other => Err(Error::file(
            path,
            "the name of an affine transform must end in .txt, .tfm, .mat or .zarr",
            format!("{other:?}"),
            "rename the output",
        )),
    }
}

/// Writes a chain (the first part applied first) part by part, as a composite in HDF5 for ITK and ANTs (`.h5`), or for
/// OME-Zarr 0.6 (`.zarr`): matrices stay matrices. The file appears whole or not at all. In HDF5 it takes 24 bytes of memory
/// a voxel of its displacements, twice.
///
/// # Errors
/// [`Error::File`] for a name that does not end in `.h5`, `.hdf5` or `.zarr` or for a chain of no parts,
/// [`Error::Invalid`] for a B-spline in OME-Zarr, [`Error::Shape`] for a displacement that does not fit its grid, [`Error::Singular`] for a matrix that
/// readers would refuse, [`Error::TooLarge`] before memory is short, [`Error::Io`] when writing fails.
pub fn write_composite(path: impl AsRef<Path>, parts: &[TransformPart]) -> Result<()> {
    let path = path.as_ref();
    if !is_composite_name(path) {
        let (what, name) =
            ("the name of a composite must end in .h5, .hdf5 or .zarr", extension(path));
        return Err(Error::file(path, what, format!("{name:?}"), "rename the output"));
    }
    if parts.is_empty() {
        let what = "a composite must hold a transform";
        return Err(Error::file(path, what, "none", "write the identity as an affine transform"));
    }
    let is_zarr = is_zarr_name(path);
    for part in parts {
        match part {
            TransformPart::Affine(map) => drop(map.inverse()?),
            TransformPart::Displacement { values, geometry } => {
                check_values("values of a displacement", values.len(), geometry)?;
                let bytes = if is_zarr { 0 } else { 2 * 8 * values.len() as u64 };
                check_memory(&format!("{}: a displacement", path.display()), bytes)?;
            }
            TransformPart::Bspline { coefficients, geometry } => {
                check_values("coefficients of a B-spline", coefficients.len(), geometry)?;
            }
        }
    }
    match parts {
        // One of its own, which is an image as well.
        [TransformPart::Displacement { values, geometry }] if is_zarr => {
            write_displacement(path, values, geometry)
        }
        _ if is_zarr => ngff::write(path, parts),
        _ => hdf5::write(path, &kinds::from_parts(parts)),
    }
}

/// Writes a cubic B-spline for ITK as text: coefficients in the order of [`TransformPart::Bspline`], RAS mm. The
/// file appears whole or not at all.
///
/// # Errors
/// [`Error::File`] for a name that does not end in `.txt` or `.tfm`, [`Error::Shape`] for coefficients that
/// do not fit the grid, [`Error::Io`] when writing fails.
pub fn write_bspline(
    path: impl AsRef<Path>,
    coefficients: &[f64],
    geometry: &Geometry,
) -> Result<()> {
    let path = path.as_ref();
    if !["txt", "tfm"].contains(&extension(path).as_str()) {
        let what = "the name of a B-spline must end in .txt or .tfm, or in .h5 as a composite";
        return Err(Error::file(path, what, format!("{:?}", extension(path)), "rename the output"));
    }
    check_values("coefficients of a B-spline", coefficients.len(), geometry)?;
    text::write(path, &kinds::from_bspline(coefficients, geometry))
}

/// Three values a point of a grid.
fn check_values(what: &str, got: usize, geometry: &Geometry) -> Result<()> {
    let expected = 3 * geometry.len();
    if got == expected {
        return Ok(());
    }
    Err(Error::Shape {
        what: format!("number of {what}"),
        expected: vec![expected],
        got: vec![got],
    })
}

/// Whether a file of this name is written as a composite.
pub fn is_composite_name(path: impl AsRef<Path>) -> bool {
    ["h5", "hdf5", "zarr"].contains(&extension(path.as_ref()).as_str())
}

/// What kind of file it is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Ngff,
    Image,
    Hdf5,
    ItkText,
    Matlab,
    Text,
    Unknown,
}

impl Content {
    fn of(path: &Path) -> Result<Self> {
        if ngff::holds_transform(path) {
            return Ok(Self::Ngff);
        }
        if is_image(path) {
            return Ok(Self::Image);
        }
        let file = File::open(path).map_err(|source| Error::io(path, "open", source))?;
        let mut start = Vec::new();
        file.take(64).read_to_end(&mut start).map_err(|source| Error::io(path, "read", source))?;
        Ok(Self::of_bytes(&start))
    }

    fn of_bytes(start: &[u8]) -> Self {
        let start = start.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(start);
        let first = start.first_chunk().copied().map(u32::from_le_bytes);
        let is_text = |b: &u8| b.is_ascii_graphic() || b.is_ascii_whitespace();
        match first {
            _ if start.starts_with(&[0x1f, 0x8b]) => Self::Image,
            _ if start.starts_with(b"\x89HDF\r\n\x1a\n") => Self::Hdf5,
            _ if text::STARTS.iter().any(|word| start.starts_with(word.as_bytes())) => {
                Self::ItkText
            }
            Some(n) if matlab::is_type(n) => Self::Matlab,
            Some(_) if start.iter().all(is_text) => Self::Text,
            _ => Self::Unknown,
        }
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let failed = |source| Error::io(path, "read", source);
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > LARGEST_TEXT_BYTES {
        let what = format!("the file of a matrix has at most {LARGEST_TEXT_BYTES} bytes");
        return Err(Error::file(path, &what, bytes, "store displacement fields as NIfTI"));
    }
    std::fs::read(path).map_err(failed)
}

fn read_text(path: &Path) -> Result<String> {
    let text = String::from_utf8(read_bytes(path)?).map_err(|error| {
        let value = format!("other bytes after {}", error.utf8_error().valid_up_to());
        let fix = "it is damaged, or of a kind that is not read: copy it again, or convert it";
        Error::file(path, "a text file must be UTF-8", value, fix)
    })?;
    Ok(text.strip_prefix(BYTE_ORDER_MARK).map(str::to_string).unwrap_or(text))
}

/// The end of the name, in lower case.
fn extension(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default()
}
