//! What a transform file says, in the units of this crate.

use crate::image::{Affine, Geometry, Physical};

/// One part of a transform: a map of physical space from fixed towards moving.
#[derive(Clone, Debug, PartialEq)]
pub enum TransformPart {
    /// `x -> L x + t`, in RAS mm.
    Affine(Affine<Physical, Physical>),
    /// `x -> x + u(x)`.
    Displacement {
        /// `[3, D, H, W]`: components x, y, z in voxels of the grid.
        values: Vec<f32>,
        /// Its grid.
        geometry: Geometry,
    },
    /// `x -> x + u(x)` with `u` a cubic B-spline; zero wherever one of the four control points of an axis is
    /// missing, as in ITK's `BSplineTransform`.
    Bspline {
        /// All x components, then y, then z, x fastest: RAS mm.
        coefficients: Vec<f64>,
        /// The grid of the control points.
        geometry: Geometry,
    },
}

/// A transform as ITK's files have it: a name and numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ItkTransform {
    /// For example `AffineTransform_double_3_3`.
    pub name: String,
    /// What ITK's optimisers change: matrix, translation, angles, vectors.
    pub parameters: Vec<f64>,
    /// What they do not: the centre, or a grid.
    pub fixed_parameters: Vec<f64>,
}
