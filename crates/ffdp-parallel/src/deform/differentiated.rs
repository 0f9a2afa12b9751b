//! A model that is written in Burn's operations: its gradient is theirs.

use std::ops::Range;

use burn::Tensor;
use burn::tensor::Device;
use ffdp_burn::ops::InnerProducts;
use ffdp_image::error::Result;

use super::maps::longest;
use super::objective::FieldModel;
use super::places::FieldPlaces;
use super::spline::{Coefficients, products};
use crate::sharded::Sharded;
use crate::transfer::to_device;

/// Parameters `[n, m]` that stand for a displacement by any of Burn's operations; what `start` has is added. Its
/// gradient is that of automatic differentiation, shard by shard.
pub struct DifferentiatedModel<F> {
    places: FieldPlaces,
    start: Option<Sharded>,
    begin: Coefficients,
    field: F,
}

impl<F: Fn(Tensor<2>, Range<usize>) -> Tensor<5>> DifferentiatedModel<F> {
    /// The model `field`, which makes of parameters a displacement on planes of the level, `[1, 3, n, H, W]` in voxels,
    /// where the parameters are; the search begins at `begin`.
    pub fn new(places: FieldPlaces, start: Option<Sharded>, begin: Tensor<2>, field: F) -> Self {
        let begin = Coefficients(to_device(begin.unsqueeze_dims(&[0, 0, 0]), places.home()));
        Self { places, start, begin, field }
    }

    /// Parameters as they are searched, `[n, m]`.
    pub fn parameters(at: &Coefficients) -> Tensor<2> {
        let [.., n, m] = at.0.dims();
        at.0.clone().reshape([n, m])
    }

    /// Whether the displacement is that of the parameters alone.
    pub fn is_alone(&self) -> bool {
        self.start.is_none()
    }

    fn shown(&self, at: &Coefficients, start: Option<&Sharded>) -> Sharded {
        let parameters = Self::parameters(at);
        self.places
            .field(start, |_, planes, device| (self.field)(moved(&parameters, device), planes))
    }
}

fn moved(parameters: &Tensor<2>, device: &Device) -> Tensor<2> {
    to_device(parameters.clone(), device)
}

impl<F: Fn(Tensor<2>, Range<usize>) -> Tensor<5>> FieldModel for DifferentiatedModel<F> {
    type Parameters = Coefficients;

    fn rest(&self) -> Coefficients {
        self.begin.clone()
    }

    fn fields(&self, at: &Coefficients) -> Result<Vec<Sharded>> {
        Ok(vec![self.shown(at, self.start.as_ref())])
    }

    fn pull_back(&self, at: &Coefficients, gradient: Vec<Sharded>) -> Result<Coefficients> {
        let parameters = Self::parameters(at);
        let sum = self.places.sum(&gradient[0], |_, planes, gradient| {
            let leaf = moved(&parameters, &gradient.device()).autodiff().require_grad();
            let displacement = (self.field)(leaf.clone(), planes);
            let gradients = (displacement * gradient.autodiff()).sum().backward();
            leaf.grad(&gradients).unwrap_or_else(|| leaf.inner().zeros_like())
        })?;
        Ok(Coefficients(sum.unsqueeze_dims(&[0, 0, 0])))
    }

    /// The longest vector that a step moves from where the search begins.
    fn length(&self, step: &Coefficients) -> Result<f64> {
        let there = Coefficients(self.begin.0.clone() + step.0.clone());
        let [there, here] = [&there, &self.begin].map(|at| self.shown(at, None));
        longest(self.places.holders(), &there.zip_map(&here, Tensor::sub))
    }

    fn products(&self, pairs: &[[&Coefficients; 2]]) -> Option<InnerProducts> {
        Some(products(pairs))
    }
}
