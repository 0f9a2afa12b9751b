//! All affine maps: `x -> (1 + G/r) (x - c) + c + t`.
//!
//! The matrix itself, not an exponential of one or a product of turns, scales and shears: the map is
//! linear in its parameters, so that the gradient is exact by one product, no order of factors
//! distinguishes an axis, and a quadratic model of the loss is as good as it can be. What an exponential
//! would add, that no map reflects, is of no use where the search starts from a rigid alignment.

use super::motion::{Frame, Map, Motion};

/// Turns, stretches, shears and shifts: `G` row by row, and `t`, in mm.
pub(super) struct General;

impl Motion<12> for General {
    fn map(frame: &Frame, at: &[f64; 12]) -> Map {
        let linear = std::array::from_fn(|i| {
            std::array::from_fn(|j| f64::from(u8::from(i == j)) + at[3 * i + j] / frame.radius_mm)
        });
        frame.about_centre(linear, [at[9], at[10], at[11]])
    }

    fn gradient(frame: &Frame, _: &[f64; 12], to_rows: &[[f64; 4]; 3]) -> [f64; 12] {
        let (linear, translation) = frame.to_parts(to_rows);
        std::array::from_fn(|k| match k {
            0..9 => linear[k / 3][k % 3] / frame.radius_mm,
            _ => translation[k - 9],
        })
    }
}
