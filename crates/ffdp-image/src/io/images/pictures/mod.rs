//! Pictures: PNG and JPEG, the pages of TIFF, and folders of planes; read. Such files say nothing of the size of a voxel
//! (the dots per inch that some have are those of a printer): it is 1 mm, with a warning. x grows to the left, y to the
//! back, z upwards, as ITK reads them. Colours become their luminance, with a warning.
//!
//! Read `folder.rs` for what the planes of a folder have to share, `tiff/` for pages, `luminance.rs` for colours.

mod folder;
mod jpeg;
mod luminance;
mod png;
mod tiff;

use std::path::Path;

use super::data_type::DataType;
use super::decoded_planes::DecodedPlanes;
use super::format::ImageFormat;
use super::header::{Format, Header};
use super::source::Source;
use crate::error::{Error, Result};
use crate::image::Geometry;
use luminance::LeftOut;

pub(super) use folder::PictureFolder;
pub(super) use jpeg::{Jpeg, decode_jpeg};
pub(super) use png::Png;
pub(super) use tiff::Tiff;

/// The warning of an image whose file has no size of voxels.
pub(super) const NO_SPACING: &str =
    "the file does not say how large voxels are; 1 mm is taken along every axis";
const DAMAGED: &str = "it is damaged: copy or download it again";

/// What planes of one image share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Columns and rows.
    pub size: [usize; 2],
    pub data_type: DataType,
}

impl Form {
    pub fn bytes(&self) -> usize {
        self.size[0] * self.size[1] * self.data_type.bytes()
    }
}

/// What the header of a file says of its plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane {
    pub form: Form,
    pub left_out: LeftOut,
}

/// A format whose files have one plane each.
pub(super) trait PlaneFormat: Sync {
    /// The plane of a file, from its header.
    ///
    /// # Errors
    /// [`Error::File`] for what is damaged or of a kind that is not read, [`Error::Io`].
    fn plane(&self, path: &Path) -> Result<Plane>;

    /// Fills the voxels, least significant byte first.
    ///
    /// # Errors
    /// As [`PlaneFormat::plane`].
    fn decode(&self, path: &Path, bytes: &mut [u8]) -> Result<()>;
}

/// The grid of voxels of 1 mm, or of another spacing: x to the left, y to the back, z upwards.
pub(super) fn grid_as_itk(size: [usize; 3], spacing_mm: [f64; 3]) -> Result<Geometry> {
    Geometry::new(size, spacing_mm)?.with_direction([
        [-1.0, 0.0, 0.0],
        [0.0, -1.0, 0.0],
        [0.0, 0.0, 1.0],
    ])
}

/// An image of one plane in a file.
fn open_plane(
    path: &Path,
    name: &'static str,
    format: &'static dyn PlaneFormat,
) -> Result<(Source, Header)> {
    let Plane { form, left_out } = format.plane(path)?;
    let [x, y] = form.size;
    let geometry = grid_as_itk([x, y, 1], [1.0; 3]).map_err(Error::in_file(path))?;
    let mut header = Header::new(Format::named(name), form.data_type, vec![x, y, 1], geometry);
    header.warnings.push(NO_SPACING.to_string());
    left_out.note(&mut header);
    let file = path.to_path_buf();
    let decode = move |_, bytes: &mut [u8]| format.decode(&file, bytes);
    Ok((Source::decoded(path, DecodedPlanes::new(path, form.bytes(), decode)), header))
}

/// Demands sizes whose voxels could be in a file of its length, which `most` voxels a byte bound.
fn check_size(path: &Path, form: Form, most: u64) -> Result<()> {
    let length = std::fs::metadata(path).map_err(|e| Error::io(path, "read", e))?.len();
    let [x, y] = form.size.map(|n| n as u64);
    if x == 0 || y == 0 || x.saturating_mul(y) > length.saturating_mul(most) {
        let what = format!("a file of {length} bytes cannot have the pixels of its header");
        return Err(Error::file(path, &what, format!("{x} x {y}"), DAMAGED));
    }
    Ok(())
}
