//! qform and sform: the two ways in which a header places the voxel grid.

use crate::image::{Affine, Matrix3, Physical, Voxel};

/// `1 - (b^2 + c^2 + d^2)` below this is rounding of f32: the rotation is by 180 degrees (a = 0).
const HALF_TURN: f64 = 1e-7;

/// The qform's map. `quatern` is (b, c, d) of a unit quaternion with a >= 0; the first entry of
/// `pixdim` is the sign of the third axis (0 counts as +1), the next three the spacing.
pub(super) fn qform_to_affine(
    quatern: [f64; 3],
    offset: [f64; 3],
    pixdim: [f64; 4],
) -> Affine<Voxel, Physical> {
    let rotation = quaternion_to_rotation(quatern);
    let sign = if pixdim[0] < 0.0 { -1.0 } else { 1.0 };
    let lengths = [pixdim[1], pixdim[2], sign * pixdim[3]];
    let linear = rotation.map(|row| std::array::from_fn(|j| row[j] * lengths[j]));
    Affine::from_parts(linear, offset)
}

fn quaternion_to_rotation([b, c, d]: [f64; 3]) -> Matrix3 {
    let squares = b * b + c * c + d * d;
    let (a, b, c, d) = if 1.0 - squares < HALF_TURN {
        let norm = squares.sqrt();
        (0.0, b / norm, c / norm, d / norm)
    } else {
        ((1.0 - squares).sqrt(), b, c, d)
    };
    [
        [a * a + b * b - c * c - d * d, 2.0 * (b * c - a * d), 2.0 * (b * d + a * c)],
        [2.0 * (b * c + a * d), a * a + c * c - b * b - d * d, 2.0 * (c * d - a * b)],
        [2.0 * (b * d - a * c), 2.0 * (c * d + a * b), a * a + d * d - b * b - c * c],
    ]
}

/// (b, c, d) of the unit quaternion with a >= 0 of a rotation matrix (determinant +1).
///
/// The largest of the four components is computed from the diagonal, the others by division, so
/// that nothing small is divided by (Shepperd 1978).
pub(super) fn rotation_to_quaternion(r: &Matrix3) -> [f64; 3] {
    let trace = r[0][0] + r[1][1] + r[2][2];
    // Four times the square of a, b, c, d.
    let squares = [
        1.0 + trace,
        1.0 + 2.0 * r[0][0] - trace,
        1.0 + 2.0 * r[1][1] - trace,
        1.0 + 2.0 * r[2][2] - trace,
    ];
    let largest = (0..4).max_by(|&i, &j| squares[i].total_cmp(&squares[j])).expect("four");
    let double = squares[largest].sqrt();
    let (difference, sum) =
        (|i: usize, j: usize| r[i][j] - r[j][i], |i: usize, j: usize| r[i][j] + r[j][i]);
    let half = 0.5 / double;
    let [a, b, c, d] = match largest {
        0 => [
            double / 2.0,
            difference(2, 1) * half,
            difference(0, 2) * half,
            difference(1, 0) * half,
        ],
        1 => [difference(2, 1) * half, double / 2.0, sum(0, 1) * half, sum(0, 2) * half],
        2 => [difference(0, 2) * half, sum(0, 1) * half, double / 2.0, sum(1, 2) * half],
        _ => [difference(1, 0) * half, sum(0, 2) * half, sum(1, 2) * half, double / 2.0],
    };
    let sign = if a < 0.0 { -1.0 } else { 1.0 };
    [sign * b, sign * c, sign * d]
}
