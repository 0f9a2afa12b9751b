//! ITK's physical space: LPS millimetres, NIfTI's RAS with the signs of x and y turned.

use crate::image::Affine;

/// From RAS to LPS, and back.
pub(super) const LPS_SIGNS: [f64; 3] = [-1.0, -1.0, 1.0];

/// A point or vector in the other of the two spaces.
pub(super) fn flip(v: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|i| LPS_SIGNS[i] * v[i])
}

/// The rows of a map into LPS as those of a map into RAS, or the other way round.
fn flip_rows(rows: &[[f64; 4]; 3]) -> [[f64; 4]; 3] {
    std::array::from_fn(|i| rows[i].map(|v| LPS_SIGNS[i] * v))
}

/// A map into LPS as a map into RAS, or the other way round.
pub(super) fn flip_target<From, To>(map: &Affine<From, To>) -> Affine<From, To> {
    Affine::from_rows(flip_rows(map.rows()))
}

/// A map within LPS as a map within RAS, or the other way round.
pub(super) fn flip_both<Space>(map: &Affine<Space, Space>) -> Affine<Space, Space> {
    let rows = flip_rows(map.rows());
    let columns =
        |[x, y, z, t]: [f64; 4]| [LPS_SIGNS[0] * x, LPS_SIGNS[1] * y, LPS_SIGNS[2] * z, t];
    Affine::from_rows(rows.map(columns))
}
