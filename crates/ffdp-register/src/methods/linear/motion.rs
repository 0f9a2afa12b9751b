//! Linear maps as functions of few parameters, all of them lengths.
//!
//! A motion turns, stretches and moves space about a centre `c`, and is measured where the object
//! ends, at the radius `r`: a parameter that grows by 1 moves points at that distance by about 1 mm,
//! whether it is a translation, an angle or a stretch. So one step length suits all of them, and the
//! second derivatives of a loss are of one size.

use ffdp_image::image::{Affine, Matrix3, Physical};

/// A map of physical space.
pub(super) type Map = Affine<Physical, Physical>;

/// What parameters are measured against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame {
    /// `c`, RAS mm: the object's centre of mass, about which turning it does not move it.
    pub centre_mm: [f64; 3],
    /// `r`.
    pub radius_mm: f64,
}

impl Frame {
    /// `x -> L (x - c) + c + t`.
    pub fn about_centre(&self, linear: Matrix3, translation: [f64; 3]) -> Map {
        let c = self.centre_mm;
        let turned = Map::from_parts(linear, [0.0; 3]).apply(c);
        Map::from_parts(linear, std::array::from_fn(|i| c[i] + translation[i] - turned[i]))
    }

    /// From the gradient to the rows of such a map those to `L` and `t`: its constant part
    /// `c + t - L c` depends on `L` too.
    pub fn to_parts(self, rows: &[[f64; 4]; 3]) -> (Matrix3, [f64; 3]) {
        let translation = rows.map(|row| row[3]);
        let linear = std::array::from_fn(|i| {
            std::array::from_fn(|j| rows[i][j] - translation[i] * self.centre_mm[j])
        });
        (linear, translation)
    }
}

/// A family of maps with `N` parameters in mm; all zero is the identity.
pub(super) trait Motion<const N: usize> {
    /// The map of a point of parameter space.
    fn map(frame: &Frame, at: &[f64; N]) -> Map;

    /// The gradient to the parameters, from that to the rows of the map.
    fn gradient(frame: &Frame, at: &[f64; N], to_rows: &[[f64; 4]; 3]) -> [f64; N];
}
