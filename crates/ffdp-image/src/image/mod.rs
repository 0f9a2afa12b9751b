//! What an image is: intensities on a voxel grid placed in physical space.
//!
//! Two spaces exist here, and the types keep them apart: [`Voxel`] (continuous voxel index, axes
//! x, y, z with x fastest in memory, voxel centres at integers) and [`Physical`] (RAS+ mm).
//! A [`Geometry`] places a grid, an [`Affine`] maps between spaces, a [`Volume`] holds intensities
//! and a [`LabelMap`] integer labels. Everything a kernel needs is folded into index space by
//! [`index_affine`] and [`index_linear`]. Read `space.rs` first, then `geometry.rs`.

mod cubic_spline;
mod eigen;
mod geometry;
mod index_space;
mod labels;
mod moved_labels;
mod placement;
mod planes;
mod point_map;
mod ranks;
mod smooth;
mod space;
mod volume;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use cubic_spline::CubicSpline;
pub use eigen::symmetric_eigen;
pub use geometry::{Geometry, SAME_GRID_TOLERANCE_VOXELS, SPACING_LIMITS_MM};
pub use index_space::{index_affine, index_linear};
pub use labels::{LabelMap, label_ids};
pub use moved_labels::MovedLabels;
#[doc(hidden)]
pub use moved_labels::labels_of;
pub use planes::Planes;
#[doc(hidden)]
pub use planes::{
    Counted, OneOf, Statistics, check_finite, check_planes, finite_statistics, runs, statistics,
};
pub use point_map::PointMap;
#[doc(hidden)]
pub use ranks::Ranks;
pub(crate) use ranks::{Buckets, Counts, between, ranks_around};
pub use smooth::{SmoothImage, SmoothKernel};
pub use space::{Affine, MAX_CONDITION, Matrix3, Physical, Voxel, apply3, product3};
pub use volume::{Volume, download, upload};
#[doc(hidden)]
pub use volume::{rescaled, rescaling, upload_each};
