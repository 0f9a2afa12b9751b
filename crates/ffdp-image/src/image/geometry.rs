//! Where a voxel grid lies in physical space.

use serde::Serialize;

use super::space::{Affine, MAX_CONDITION, Matrix3, Physical, Voxel};
use crate::error::{Error, Result};

/// Smallest and largest accepted voxel spacing in mm; anything else is a damaged header.
pub const SPACING_LIMITS_MM: [f64; 2] = [1e-9, 1e6];

/// Grids whose corners differ by less than this many voxels count as the same grid.
pub const SAME_GRID_TOLERANCE_VOXELS: f64 = 0.05;

/// How far a column of a direction matrix may be from unit length: headers hold few digits.
const UNIT_TOLERANCE: f64 = 1e-4;

/// A voxel grid in physical space (RAS+ mm): `mm = direction * diag(spacing_mm) * voxel + origin`.
///
/// All arrays are in the order (x, y, z), x fastest in memory. The columns of `direction` are the
/// unit vectors of the voxel axes; they need not be orthogonal, so a full affine with shear is
/// held exactly: its column lengths are the spacing, its normalised columns the direction. The
/// fields are public to be read; build one with the constructors, which validate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Geometry {
    /// Number of voxels along x, y, z.
    pub size: [usize; 3],
    /// Distance of neighbouring voxel centres along x, y, z in mm.
    pub spacing_mm: [f64; 3],
    /// Position of the centre of voxel (0, 0, 0) in RAS mm.
    pub origin_mm: [f64; 3],
    /// `direction[row][column]`: column j is the unit vector of voxel axis j in RAS.
    pub direction: Matrix3,
}

impl Geometry {
    /// A grid along the RAS axes with voxel (0, 0, 0) at the origin.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a zero size, a size whose product overflows, or a spacing that is
    /// not finite or outside [`SPACING_LIMITS_MM`].
    pub fn new(size: [usize; 3], spacing_mm: [f64; 3]) -> Result<Self> {
        let linear = std::array::from_fn(|i| {
            std::array::from_fn(|j| if i == j { spacing_mm[i] } else { 0.0 })
        });
        Self::check_spacing(spacing_mm)?;
        Self::from_affine(size, Affine::from_parts(linear, [0.0; 3]))
    }

    /// The grid of `size` voxels placed by a full affine, shear and reflection included.
    ///
    /// # Errors
    /// As [`Geometry::new`], and [`Error::Singular`] for an affine with a condition number over
    /// [`MAX_CONDITION`].
    pub fn from_affine(size: [usize; 3], voxel_to_mm: Affine<Voxel, Physical>) -> Result<Self> {
        let linear = voxel_to_mm.linear();
        let length = |j: usize| linear[0][j].hypot(linear[1][j]).hypot(linear[2][j]);
        let spacing_mm = [length(0), length(1), length(2)];
        let direction = linear.map(|row| std::array::from_fn(|j| row[j] / spacing_mm[j]));
        Self { size, spacing_mm, origin_mm: voxel_to_mm.translation(), direction }.validated()
    }

    /// The same grid with voxel (0, 0, 0) at `origin_mm` (RAS).
    ///
    /// # Errors
    /// [`Error::Invalid`] when a coordinate is not finite.
    pub fn with_origin(mut self, origin_mm: [f64; 3]) -> Result<Self> {
        self.origin_mm = origin_mm;
        self.validated()
    }

    /// The same grid with voxel axes along the columns of `direction`, which are normalised.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a column is not of unit length (to 1e-4), [`Error::Singular`] when
    /// the columns are nearly dependent.
    pub fn with_direction(mut self, direction: Matrix3) -> Result<Self> {
        let length = |j: usize| direction[0][j].hypot(direction[1][j]).hypot(direction[2][j]);
        let lengths = [length(0), length(1), length(2)];
        if !lengths.iter().all(|length| (length - 1.0).abs() <= UNIT_TOLERANCE) {
            return Err(Error::invalid(
                "the columns of a direction matrix must be unit vectors",
                direction,
                "normalise them, or pass the full matrix to Geometry::from_affine",
            ));
        }
        self.direction = direction.map(|row| std::array::from_fn(|j| row[j] / lengths[j]));
        self.validated()
    }

    /// Number of voxels.
    #[allow(clippy::len_without_is_empty)] // a grid has at least one voxel
    pub fn len(&self) -> usize {
        self.size.iter().product()
    }

    /// Size in the order of tensors, `[D, H, W]` = `[z, y, x]`.
    pub fn dims(&self) -> [usize; 3] {
        let [x, y, z] = self.size;
        [z, y, x]
    }

    /// The largest cosine between two voxel axes, without its sign; 0 where all are at right angles.
    pub fn largest_cosine(&self) -> f64 {
        let column = |j: usize| self.direction.map(|row| row[j]);
        let cosine = |(i, j)| -> f64 { column(i).iter().zip(column(j)).map(|(a, b)| a * b).sum() };
        [(0, 1), (0, 2), (1, 2)].map(cosine).into_iter().fold(0.0, |m: f64, c| m.max(c.abs()))
    }

    /// The map from voxel index to RAS mm.
    pub fn voxel_to_mm(&self) -> Affine<Voxel, Physical> {
        let linear = self.direction.map(|row| std::array::from_fn(|j| row[j] * self.spacing_mm[j]));
        Affine::from_parts(linear, self.origin_mm)
    }

    /// The map from RAS mm to voxel index.
    ///
    /// # Panics
    /// If the public fields were set by hand to something singular; constructors rule it out.
    pub fn mm_to_voxel(&self) -> Affine<Physical, Voxel> {
        self.voxel_to_mm().inverse().expect("a validated geometry can be inverted")
    }

    /// Volume of one voxel in mm^3.
    pub fn voxel_volume_mm3(&self) -> f64 {
        self.voxel_to_mm().determinant().abs()
    }

    /// Voxel index (x, y, z) of a position in memory.
    pub fn index_of(&self, offset: usize) -> [usize; 3] {
        let [nx, ny, _] = self.size;
        [offset % nx, offset / nx % ny, offset / nx / ny]
    }

    /// The part of the grid that starts at voxel `start` and has `size` voxels.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the part is empty or leaves the grid.
    pub fn cropped(&self, start: [usize; 3], size: [usize; 3]) -> Result<Self> {
        let inside =
            |i: usize| start[i].checked_add(size[i]).is_some_and(|end| end <= self.size[i]);
        if size.contains(&0) || !(0..3).all(inside) {
            return Err(Error::invalid(
                format!("a part must lie inside the grid of size {:?}", self.size),
                format_args!("start {start:?}, size {size:?}"),
                "choose a smaller range",
            ));
        }
        let origin_mm = self.voxel_to_mm().apply(start.map(|v| v as f64));
        Ok(Self { size, origin_mm, ..self.clone() })
    }

    /// A grid of another size over the same field of view (outer voxel faces coincide).
    ///
    /// # Errors
    /// As [`Geometry::new`].
    pub fn resized(&self, size: [usize; 3]) -> Result<Self> {
        Self::check_size(size)?;
        let ratio: [f64; 3] = std::array::from_fn(|i| self.size[i] as f64 / size[i] as f64);
        let origin_mm = self.voxel_to_mm().apply(ratio.map(|r| (r - 1.0) / 2.0));
        let spacing_mm = std::array::from_fn(|i| self.spacing_mm[i] * ratio[i]);
        Self { size, spacing_mm, origin_mm, direction: self.direction }.validated()
    }

    fn validated(self) -> Result<Self> {
        Self::check_size(self.size)?;
        Self::check_spacing(self.spacing_mm)?;
        if !self.origin_mm.iter().all(|v| v.is_finite()) {
            let what = "the origin of a grid must be finite (mm)";
            return Err(Error::invalid(what, self.origin_mm, "repair the header"));
        }
        let condition = self.voxel_to_mm().condition();
        if condition > MAX_CONDITION {
            let what = format!("the voxel-to-mm matrix {:?}", self.voxel_to_mm().rows());
            return Err(Error::Singular { what, condition, limit: MAX_CONDITION });
        }
        Ok(self)
    }

    fn check_size(size: [usize; 3]) -> Result<()> {
        // Byte counts of f32 data must fit a signed size: the limit of an allocation.
        let bytes = size.iter().try_fold(4usize, |n, &s| n.checked_mul(s));
        match bytes {
            Some(n) if n > 0 && n <= isize::MAX as usize => Ok(()),
            _ => Err(Error::invalid(
                "the size (x, y, z) of a grid must be positive and its voxels addressable",
                size,
                "repair the header",
            )),
        }
    }

    fn check_spacing(spacing_mm: [f64; 3]) -> Result<()> {
        let [low, high] = SPACING_LIMITS_MM;
        // NaN lies in no range.
        if spacing_mm.iter().all(|s| (low..=high).contains(s)) {
            return Ok(());
        }
        let what = "spacing must be positive, finite and within 1e-9..1e6 mm";
        Err(Error::invalid(what, spacing_mm, "repair the header or set the spacing by hand"))
    }
}
