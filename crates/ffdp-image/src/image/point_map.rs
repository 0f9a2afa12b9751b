//! Maps of physical space that other crates bring: the flow of a shape, a network, a formula.

use std::fmt;
use std::sync::Arc;

use burn::tensor::Tensor;

/// An invertible map of physical space that is evaluated at the very points where it is needed.
///
/// A transform takes it as a step (`ffdp_burn::transform::Step::Map`) and asks for many points at once: the voxels of
/// a grid, or a list.
pub trait PointMap: fmt::Debug + Send + Sync {
    /// Where points go, in RAS mm.
    ///
    /// # Shapes
    /// points `[N, 3]`, f32 or f64, on any device; result the same.
    fn map(&self, points: Tensor<2>) -> Tensor<2>;

    /// The inverse map.
    fn inverse(&self) -> Arc<dyn PointMap>;
}
