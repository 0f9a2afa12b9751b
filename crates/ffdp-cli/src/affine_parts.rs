//! An affine map as people think of it: turned, scaled, sheared, moved.

use ffdp_image::image::{Affine, Matrix3, Physical};
use serde::Serialize;

/// The parts of `x -> L x + t` (RAS mm), with `L = R Z S`: sheared first, then scaled, then turned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AffineParts {
    /// Turns about x (to the right), y (to the front) and z (to the head), right-handed and in this order, in degrees:
    /// `R = Rz Ry Rx`.
    pub turns_degrees: [f64; 3],
    /// Factors along x, y and z; the last is negative where the map mirrors.
    pub scales: [f64; 3],
    /// Shears of x by y, x by z, y by z.
    pub shears: [f64; 3],
    /// How far the map moves a point, mm.
    pub shift_mm: [f64; 3],
}

impl AffineParts {
    /// Of a map; the shift is that of the point `at` (RAS mm): far from what is looked at, turns move points most.
    pub fn of(map: &Affine<Physical, Physical>, at: [f64; 3]) -> Self {
        let linear = map.linear();
        let column = |k: usize| [0, 1, 2].map(|row| linear[row][k]);
        let (a, mut b, mut c) = (column(0), column(1), column(2));
        let sx = length(a);
        let rx = a.map(|v| v / sx);
        let mut xy = dot(rx, b);
        b = without(b, rx, xy);
        let sy = length(b);
        let ry = b.map(|v| v / sy);
        let (mut xz, mut yz) = (dot(rx, c), dot(ry, c));
        c = without(without(c, rx, xz), ry, yz);
        let mut sz = length(c);
        let mut rz = c.map(|v| v / sz);
        (xy, xz, yz) = (xy / sx, xz / sx, yz / sy);
        if map.determinant() < 0.0 {
            (sz, rz) = (-sz, rz.map(|v| -v));
        }
        let turn: Matrix3 = [0, 1, 2].map(|row| [rx[row], ry[row], rz[row]]);
        let moved = map.apply(at);
        Self {
            turns_degrees: angles(&turn).map(f64::to_degrees),
            scales: [sx, sy, sz],
            shears: [xy, xz, yz],
            shift_mm: [0, 1, 2].map(|i| moved[i] - at[i]),
        }
    }
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    (0..3).map(|i| a[i] * b[i]).sum()
}

fn length(a: [f64; 3]) -> f64 {
    dot(a, a).sqrt()
}

fn without(a: [f64; 3], direction: [f64; 3], part: f64) -> [f64; 3] {
    std::array::from_fn(|i| a[i] - part * direction[i])
}

/// Of a rotation `Rz Ry Rx`, about x, y and z.
fn angles(turn: &Matrix3) -> [f64; 3] {
    let y = (-turn[2][0]).clamp(-1.0, 1.0).asin();
    [turn[2][1].atan2(turn[2][2]), y, turn[1][0].atan2(turn[0][0])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(a: Matrix3, b: Matrix3) -> Matrix3 {
        a.map(|row| [0, 1, 2].map(|k| (0..3).map(|j| row[j] * b[j][k]).sum()))
    }

    #[test]
    fn a_map_is_taken_apart_into_what_it_was_made_of() {
        for (degrees, scales, shears) in [
            ([10.0, -20.0, 30.0], [1.1, 0.9, 1.25], [0.05, -0.1, 0.2]),
            ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]),
            ([-170.0, 45.0, 5.0], [0.5, 2.0, -1.0], [0.3, 0.0, 0.0]),
        ] {
            let [x, y, z] = degrees.map(|d: f64| d.to_radians());
            let about_x = [[1.0, 0.0, 0.0], [0.0, x.cos(), -x.sin()], [0.0, x.sin(), x.cos()]];
            let about_y = [[y.cos(), 0.0, y.sin()], [0.0, 1.0, 0.0], [-y.sin(), 0.0, y.cos()]];
            let about_z = [[z.cos(), -z.sin(), 0.0], [z.sin(), z.cos(), 0.0], [0.0, 0.0, 1.0]];
            let scale = [[scales[0], 0.0, 0.0], [0.0, scales[1], 0.0], [0.0, 0.0, scales[2]]];
            let shear = [[1.0, shears[0], shears[1]], [0.0, 1.0, shears[2]], [0.0, 0.0, 1.0]];
            let turn = product(product(about_z, about_y), about_x);
            let linear = product(product(turn, scale), shear);
            let map = Affine::from_parts(linear, [1.0, 2.0, 3.0]);
            let parts = AffineParts::of(&map, [0.0; 3]);
            let expected = [degrees, scales, shears, [1.0, 2.0, 3.0]];
            let found = [parts.turns_degrees, parts.scales, parts.shears, parts.shift_mm];
            for (found, expected) in found.as_flattened().iter().zip(expected.as_flattened()) {
                assert!((found - expected).abs() < 1e-9, "{parts:?} of {expected:?}");
            }
        }
    }
}
