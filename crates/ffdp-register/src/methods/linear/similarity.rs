//! Rotations, translations and one scale: `x -> exp(s/r) exp([w/r]) (x - c) + c + t`.
//!
//! The scale is an exponential, so that it is positive, as much up as down, and a step of 1 mm stretches points at the radius
//! by about 1 mm. It commutes with the rotation: the gradient to `w` is the rotation's, scaled.

use super::motion::{Frame, Map, Motion};
use super::rigid::{derivatives, dot, rotation};
use ffdp_image::image::Matrix3;

/// Turns, shifts and one stretch: `w`, `t` and `s` in mm.
pub(super) struct Similar;

/// `exp(s/r)` and the rotation vector.
fn scale_and_turn(frame: &Frame, [wx, wy, wz, _, _, _, s]: &[f64; 7]) -> (f64, [f64; 3]) {
    ((s / frame.radius_mm).exp(), [wx, wy, wz].map(|w| w / frame.radius_mm))
}

fn scaled(scale: f64, matrix: &Matrix3) -> Matrix3 {
    matrix.map(|row| row.map(|v| scale * v))
}

impl Motion<7> for Similar {
    fn map(frame: &Frame, at: &[f64; 7]) -> Map {
        let (scale, v) = scale_and_turn(frame, at);
        frame.about_centre(scaled(scale, &rotation(v)), [at[3], at[4], at[5]])
    }

    fn gradient(frame: &Frame, at: &[f64; 7], to_rows: &[[f64; 4]; 3]) -> [f64; 7] {
        let (scale, v) = scale_and_turn(frame, at);
        let (to_linear, t) = frame.to_parts(to_rows);
        let along = |slope: &Matrix3| scale * dot(slope, &to_linear) / frame.radius_mm;
        let [x, y, z] = derivatives(v).each_ref().map(along);
        [x, y, z, t[0], t[1], t[2], along(&rotation(v))]
    }
}
