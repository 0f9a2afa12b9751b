//! An image file through transforms to another file, a run of planes at a time: what the result is made of is read as far as
//! these planes look at it, and they are written before the next ones come.
//!
//! ```
//! use burn::tensor::Device;
//! use ffdp_image::image::{Geometry, Volume};
//! use ffdp_image::io::images::{read_volume, write_volume};
//! use ffdp_parallel::chain::PlaneChain;
//! use ffdp_register::file_warp::FileWarp;
//!
//! let folder = tempfile::tempdir()?;
//! let (from, to) = (folder.path().join("image.nii"), folder.path().join("finer.nii"));
//! let grid = Geometry::new([4, 4, 4], [2.0; 3])?;
//! write_volume(&from, &Volume::new(vec![1.0; 64], grid)?)?;
//! let finer = Geometry::new([7, 7, 7], [1.0; 3])?;
//! let warp = FileWarp::open(&from)?;
//! warp.write(PlaneChain::default(), &finer, &Device::flex(), &to)?.finish()?;
//! assert_eq!(read_volume(&to)?.data, [1.0; 343]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod finite;
mod in_memory;
mod labels;
mod outside;
mod result;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;

use self::finite::Finite;
pub use self::in_memory::{warp_labels, warp_volume};
use self::labels::looks_like_labels;
use self::result::{FileResult, ResultWriter, Values};
use ffdp_burn::ops::Interpolation;
use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Geometry, OneOf, SmoothKernel, runs};
use ffdp_image::io::images::{Header, header};
use ffdp_parallel::chain::PlaneChain;

/// Voxels of the result that are computed and written at a time, unless that is fewer planes than the next number.
pub const FILE_WARP_VOXELS: usize = 1 << 23;
/// With each piece the planes that are held for it are put together anew.
const PIECE_PLANES: usize = 8;

/// How values of an image file are read between voxels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileInterpolation {
    /// Weighted mean of the eight voxels around, as float32.
    #[default]
    Linear,
    /// A cubic B-spline through the voxels.
    Cubic,
    /// A sinc in a Lanczos window of three voxels to either side.
    Sinc,
    /// The nearest voxel; integers stay what they are, in the same type.
    Nearest,
    /// The label with most weight among the eight voxels around.
    Label,
}

impl FileInterpolation {
    /// The sampler, and the kernel that takes its place.
    fn samplers(self) -> (Interpolation, Option<SmoothKernel>) {
        match self {
            Self::Linear => (Interpolation::Linear, None),
            Self::Cubic => (Interpolation::Linear, Some(SmoothKernel::Cubic)),
            Self::Sinc => (Interpolation::Linear, Some(SmoothKernel::Lanczos)),
            Self::Nearest => (Interpolation::Nearest, None),
            Self::Label => (Interpolation::Label, None),
        }
    }
}

/// What becomes of NaN and infinite voxels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFiniteVoxels {
    /// The image is refused.
    #[default]
    Refused,
    /// They are 0.
    Zero,
}

/// An image file that is yet to be warped; all of its volumes, unless one is chosen.
#[derive(Clone, Debug)]
pub struct FileWarp {
    path: PathBuf,
    header: Header,
    volume: Option<usize>,
    interpolation: FileInterpolation,
    background: f32,
    non_finite: NonFiniteVoxels,
}

impl FileWarp {
    /// Reads the header.
    ///
    /// # Errors
    /// As [`header()`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self {
            path: path.as_ref().to_path_buf(),
            header: header(path.as_ref())?,
            volume: None,
            interpolation: FileInterpolation::default(),
            background: 0.0,
            non_finite: NonFiniteVoxels::default(),
        })
    }

    /// The only volume to warp, from 0.
    pub fn volume(self, volume: Option<usize>) -> Self {
        Self { volume, ..self }
    }

    /// How values are read between voxels.
    pub fn interpolation(self, interpolation: FileInterpolation) -> Self {
        Self { interpolation, ..self }
    }

    /// The value of voxels that the image does not reach.
    pub fn background(self, background: f32) -> Self {
        Self { background, ..self }
    }

    /// What becomes of voxels that are not finite.
    pub fn non_finite(self, non_finite: NonFiniteVoxels) -> Self {
        Self { non_finite, ..self }
    }

    /// What is unusual about the file.
    pub fn warnings(&self) -> &[String] {
        &self.header.warnings
    }

    /// Whether labels are about to be mixed as intensities: the file says that it has labels, or seems to.
    ///
    /// # Errors
    /// Those of reading.
    pub fn mixes_labels(&self) -> Result<bool> {
        let mixes = self.interpolation == FileInterpolation::Linear;
        Ok(mixes && looks_like_labels(&self.path, &self.header)?)
    }

    /// Bytes of the voxels of the result on a grid.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a background that is no label where labels are warped.
    pub fn result_bytes(&self, grid: &Geometry) -> Result<u64> {
        let result = FileResult::of(self)?;
        let bytes =
            if result.form.is_some() { self.header.data_type.bytes() } else { size_of::<f32>() };
        Ok(bytes as u64 * result.volumes as u64 * grid.len() as u64)
    }

    /// Warps the image onto a grid, on a device: `map` leads from the grid to the image. Writes all but the last piece, which
    /// is left for the time when the device has other things to do.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a background that is no label, or several label maps that have no type of integers,
    /// [`Error::NonFinite`], [`Error::NotLabels`], [`Error::NoOverlap`] where nothing of the image is seen, those of reading
    /// and writing, and [`Error::Device`] when values cannot be read back.
    pub fn write(
        &self,
        map: PlaneChain,
        grid: &Geometry,
        device: &Device,
        output: impl AsRef<Path>,
    ) -> Result<LastPiece> {
        self.write_pieces(Maps::One(map), grid, &pieces_of(grid), device, output.as_ref())
    }

    /// The same where each volume has a map of its own, which `map` gives by the number of the volume in the file, in
    /// ascending order.
    ///
    /// # Errors
    /// As [`FileWarp::write`], and those of `map`.
    pub fn write_each(
        &self,
        map: &mut dyn FnMut(usize) -> Result<PlaneChain>,
        grid: &Geometry,
        device: &Device,
        output: impl AsRef<Path>,
    ) -> Result<LastPiece> {
        self.write_pieces(Maps::Each(map), grid, &pieces_of(grid), device, output.as_ref())
    }

    /// Volumes that are warped.
    pub fn volumes(&self) -> usize {
        if self.volume.is_some() { 1 } else { self.header.volumes() }
    }

    fn write_pieces(
        &self,
        mut maps: Maps,
        grid: &Geometry,
        pieces: &[Range<usize>],
        device: &Device,
        output: &Path,
    ) -> Result<LastPiece> {
        let Self { path, header, non_finite, .. } = self;
        let mut result = FileResult::of(self)?;
        let (mut stack, known) = result.open(self)?;
        let mut writer = result.writer(output, grid, header, known)?;
        let (mut evaluated, mut is_met, mut computed) = (None, false, None);
        let mut warnings = Vec::new();
        for k in 0..result.volumes {
            let name = match result.volumes {
                1 => path.display().to_string(),
                _ => format!("{}, volume {k}", path.display()),
            };
            let of_volume = OneOf::new(&mut stack, &header.geometry, k);
            let mut finite = Finite::new(of_volume, name, *non_finite);
            let mut reading = result.reading(&mut finite)?;
            let mut own = match &mut maps {
                Maps::One(_) => None,
                Maps::Each(map) => {
                    evaluated = None;
                    Some(map(self.volume.unwrap_or(k))?)
                }
            };
            for z in pieces {
                let map = match evaluated.take() {
                    Some(map) => map,
                    None => {
                        let map = match (&mut own, &mut maps) {
                            (Some(map), _) | (None, Maps::One(map)) => map,
                            (None, Maps::Each(_)) => unreachable!("each volume has its own"),
                        };
                        map.on_planes(grid, z.clone(), device)?
                    }
                };
                // Where all planes are one piece, the next volume goes the same way.
                evaluated = (pieces.len() == 1).then(|| map.clone());
                is_met = is_met || map.percent_inside(&header.geometry)? > 0.0;
                let piece = result.piece(&mut reading, &map)?;
                if let Some(before) = computed.replace(piece) {
                    writer.write(before)?;
                }
            }
            drop(reading);
            warnings.extend(finite.warning());
        }
        let values =
            computed.filter(|_| is_met).ok_or_else(|| nothing_seen(grid, &header.geometry))?;
        Ok(LastPiece { writer, values, warnings })
    }
}

/// That a grid sees nothing of an image.
fn nothing_seen(grid: &Geometry, image: &Geometry) -> Error {
    Error::NoOverlap {
        fixed_box_mm: grid.bounding_box_mm(),
        moving_box_mm: image.bounding_box_mm(),
        overlap_percent: 0.0,
        required_percent: 0.0,
    }
}

/// What leads from the grid of the result to the volumes.
enum Maps<'a> {
    One(PlaneChain),
    /// By the number of the volume.
    Each(&'a mut dyn FnMut(usize) -> Result<PlaneChain>),
}

/// The runs of planes in which a result is computed.
fn pieces_of(grid: &Geometry) -> Vec<Range<usize>> {
    let [x, y, _] = grid.size;
    runs(grid, FILE_WARP_VOXELS.max(PIECE_PLANES * x * y)).collect()
}

/// A warped file but for its last planes.
pub struct LastPiece {
    writer: ResultWriter,
    values: Values,
    /// What was changed of the image.
    pub warnings: Vec<String>,
}

impl LastPiece {
    /// Writes them.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<()> {
        self.writer.write(self.values)?;
        self.writer.finish()
    }
}
