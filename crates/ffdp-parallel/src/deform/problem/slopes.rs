//! How steep images are, for the step of Gauss and Newton.

use burn::Tensor;

use super::{FixedVisit, Problem, Side, Visit};
use crate::deform::block::{Block, Pieces};

impl Problem {
    /// Gradients to displacements divided by the slope of the images.
    pub(super) fn over_slopes(
        &self,
        gradients: Vec<Pieces>,
        visit: &Visit,
        inner: &Block,
        mean: Option<&Tensor<1>>,
        weights: Option<Tensor<5>>,
    ) -> Vec<Pieces> {
        let damping = self.options.optimizer.slope_damping();
        let (Some(mean), Some(damping)) = (mean, damping) else { return gradients };
        let steep = self.steepness(visit, inner, &weights);
        let over = |g: Tensor<5>, h: Tensor<5>| over_slope(g, h, mean, damping);
        gradients.into_iter().map(|g| g.zip(steep.clone(), over)).collect()
    }

    /// `h = |d shown / du|^2` of the images that are displaced, summed, times the weights, on the planes of `inner`.
    pub(super) fn steepness(
        &self,
        visit: &Visit,
        inner: &Block,
        weights: &Option<Tensor<5>>,
    ) -> Pieces {
        let blocks = [&visit.block, inner];
        let moving = self.steepness_of(&visit.moving, 1, blocks, weights);
        match &visit.fixed {
            FixedVisit::Block(_) => moving,
            FixedVisit::Shown(fixed) => {
                moving.zip(self.steepness_of(fixed, 0, blocks, weights), Tensor::add)
            }
        }
    }

    /// That of one image, summed over its channels.
    fn steepness_of(
        &self,
        side: &Side,
        image: usize,
        [block, inner]: [&Block; 2],
        weights: &Option<Tensor<5>>,
    ) -> Pieces {
        let masked = self.comparison.masked[image];
        let all =
            self.moving.channels - usize::from(self.comparison.masked[1]) + usize::from(masked);
        let own = &side.pieces.own;
        let mut dims = own.dims();
        (dims[1], dims[block.axis.dim()]) = (1, block.all.len());
        let like = (own.device(), own.dtype());
        let of = |channel: usize| {
            let plane = |c: usize| match c == channel {
                true => Tensor::<5>::ones(dims, (&like.0, like.1)),
                false => Tensor::zeros(dims, (&like.0, like.1)),
            };
            let ones = Tensor::cat((0..all).map(plane).collect(), 1);
            let slope = side.pieces.pull_back([block, inner], &side.sampler, &ones);
            slope.map(|slope| (slope.clone() * slope).sum_dim(1))
        };
        let channels = (0..all - usize::from(masked)).map(of);
        let steep = channels.reduce(|a, b| a.zip(b, Tensor::add));
        let steep = steep.expect("an image has a channel");
        let Some(weights) = weights else { return steep };
        let weights = block.narrow(&weights.clone().narrow(1, 0, 1), &inner.all);
        steep.zip(Pieces::of(&weights, inner), Tensor::mul)
    }
}

/// `g / 2 (h + damping mean h)`: the gradient of squares is twice the residual times the slope.
fn over_slope(g: Tensor<5>, h: Tensor<5>, mean: &Tensor<1>, damping: f64) -> Tensor<5> {
    /// Keeps the division defined where nothing has a slope.
    const NO_SLOPE: f64 = 1e-30;
    let batch = g.dims()[0];
    let floor = mean.clone().mul_scalar(damping).add_scalar(NO_SLOPE);
    g / (h + floor.reshape([batch, 1, 1, 1, 1])).mul_scalar(2.0)
}
