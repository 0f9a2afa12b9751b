//! One step of a transform.

use std::sync::Arc;

use super::bspline::BsplineTransform;
use super::displacement::Displacement;
use ffdp_image::image::{Affine, Physical, PointMap};

/// One map of physical space.
#[derive(Clone, Debug)]
pub enum Step {
    /// `x -> L x + t`, in RAS mm.
    Affine(Affine<Physical, Physical>),
    /// `x -> x + u(x)`; beyond its grid, by the values at the border.
    Displacement(Displacement),
    /// `x -> z` with `z + u(z) = x`: the inverse of a displacement, solved at the very points where
    /// it is needed.
    Inverse(Displacement),
    /// `x -> x + u(x)` with `u` a cubic B-spline, evaluated exactly wherever it is needed.
    Bspline(BsplineTransform),
    /// `x -> z` with `z + u(z) = x`: the inverse of a cubic B-spline.
    InverseBspline(BsplineTransform),
    /// A map of another crate, such as the flow of a shape (`ffdp_shapes::lddmm::Flow::as_map`), evaluated wherever it is
    /// needed.
    Map(Arc<dyn PointMap>),
}
