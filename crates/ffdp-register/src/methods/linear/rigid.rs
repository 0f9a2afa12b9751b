//! Rotations and translations: `x -> exp([w/r]) (x - c) + c + t`.
//!
//! The rotation vector `w` (axis times angle) has no constraint to keep and no parameter too many,
//! unlike a quaternion; its chart is regular up to a full turn, which the search never comes near:
//! it starts from the placement found before. Rodrigues' formula gives the matrix, and
//! ```text
//! dR/dv_i = (v_i [v] + [v x (1 - R) e_i]) R / |v|^2                   -> [e_i] as v -> 0
//! ```
//! its derivative (Gallego and Yezzi 2015, "A compact formula for the derivative of a 3-D rotation in
//! exponential coordinates"). `[v]` the matrix of `v x`.

use super::motion::{Frame, Map, Motion};
use ffdp_image::image::{Matrix3, apply3, product3};

/// Turns and shifts: `w` and `t` in mm.
pub(super) struct Rigid;

/// Angles (rad) below this take the limit: the terms left out are its square.
const TINY_ANGLE: f64 = 1e-8;

impl Motion<6> for Rigid {
    fn map(frame: &Frame, &[wx, wy, wz, x, y, z]: &[f64; 6]) -> Map {
        let v = [wx, wy, wz].map(|w| w / frame.radius_mm);
        frame.about_centre(rotation(v), [x, y, z])
    }

    fn gradient(frame: &Frame, &[wx, wy, wz, ..]: &[f64; 6], to_rows: &[[f64; 4]; 3]) -> [f64; 6] {
        let v = [wx, wy, wz].map(|w| w / frame.radius_mm);
        let (to_linear, t) = frame.to_parts(to_rows);
        let w = derivatives(v).map(|slope| dot(&slope, &to_linear) / frame.radius_mm);
        [w[0], w[1], w[2], t[0], t[1], t[2]]
    }
}

/// `exp([v])`.
pub(super) fn rotation(v: [f64; 3]) -> Matrix3 {
    let angle = length(v);
    // sin(a)/a and (1 - cos(a))/a^2, free of cancellation.
    let (sine, versine) = match angle < TINY_ANGLE {
        true => (1.0, 0.5),
        false => (angle.sin() / angle, 2.0 * ((angle / 2.0).sin() / angle).powi(2)),
    };
    let k = cross(v);
    let kk = product3(&k, &k);
    std::array::from_fn(|i| {
        std::array::from_fn(|j| f64::from(u8::from(i == j)) + sine * k[i][j] + versine * kk[i][j])
    })
}

/// `d exp([v]) / d v_i`.
pub(super) fn derivatives(v: [f64; 3]) -> [Matrix3; 3] {
    let r = rotation(v);
    let square = v.iter().map(|v| v * v).sum::<f64>();
    std::array::from_fn(|i| {
        let unit: [f64; 3] = std::array::from_fn(|k| f64::from(u8::from(i == k)));
        if square < TINY_ANGLE * TINY_ANGLE {
            return product3(&cross(unit), &r);
        }
        let left: [f64; 3] = std::array::from_fn(|k| unit[k] - r[k][i]);
        let turned = cross(apply3(&cross(v), left));
        let straight = cross(v);
        let sum = std::array::from_fn(|a| {
            std::array::from_fn(|b| (v[i] * straight[a][b] + turned[a][b]) / square)
        });
        product3(&sum, &r)
    })
}

fn length(v: [f64; 3]) -> f64 {
    v[0].hypot(v[1]).hypot(v[2])
}

/// `[v]`.
fn cross([x, y, z]: [f64; 3]) -> Matrix3 {
    [[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]
}

pub(super) fn dot(a: &Matrix3, b: &Matrix3) -> f64 {
    a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| a * b).sum()
}
