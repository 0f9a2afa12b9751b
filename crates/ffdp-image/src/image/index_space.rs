//! The small matrices that fold physical space into the index space in which kernels work.
//!
//! A sampling kernel evaluates `moving(A p + t + S u(p))` for a fixed voxel `p` and a displacement
//! `u` in fixed voxels. With `F`, `M` the voxel-to-mm maps of fixed and moving and `T` a transform
//! in mm: `[A | t] = M^-1 T F` and `S = M_lin^-1 F_lin`.

use super::geometry::Geometry;
use super::space::{Affine, Matrix3, Physical, Voxel, product3};

/// `M^-1 . T . F`: from a voxel of `fixed` to the voxel index of `moving` that `transform` (RAS mm,
/// fixed to moving) sends it to.
pub fn index_affine(
    fixed: &Geometry,
    moving: &Geometry,
    transform: &Affine<Physical, Physical>,
) -> Affine<Voxel, Voxel> {
    fixed.voxel_to_mm().then(transform).then(&moving.mm_to_voxel())
}

/// `M_lin^-1 . F_lin`: from a displacement in voxels of `fixed` to the same displacement in voxels
/// of `moving`. The displacement is added after the affine transform, in mm.
pub fn index_linear(fixed: &Geometry, moving: &Geometry) -> Matrix3 {
    product3(&moving.mm_to_voxel().linear(), &fixed.voxel_to_mm().linear())
}
