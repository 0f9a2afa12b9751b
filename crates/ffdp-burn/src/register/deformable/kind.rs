//! The methods: which field each improves, how it begins, and what map it means in the end.

use burn::tensor::{DType, Device, Tensor};

use super::Field;
use crate::error::Result;
use crate::image::Geometry;
use crate::ops::{Accumulation, ComposeOptions, Method, compose, dense_zeros, exp_with, inverse};
use crate::register::settings::{Descent, GreedySettings, SvfSettings, SynSettings};
use crate::transform::Displacement;

/// A deformable method with its settings.
pub(in crate::register) enum Kind<'a> {
    /// The field is `w` itself.
    Greedy(&'a GreedySettings),
    /// The field is `u_1`, `u_2` with `id + w = (id + u_2) o (id + u_1)^-1`: from the fixed image to
    /// the middle, from there to the moving image. The inverse takes the halves in the other order.
    Syn(&'a SynSettings),
    /// The field is `v` with `id + w = exp(v)`, and `exp(-v)` is the inverse.
    Svf(&'a SvfSettings),
}

impl Kind<'_> {
    pub(in crate::register) fn name(&self) -> &'static str {
        match self {
            Self::Greedy(_) => "greedy",
            Self::Syn(_) => "syn",
            Self::Svf(_) => "svf",
        }
    }

    pub(in crate::register) fn descent(&self) -> Descent<'_> {
        match self {
            Self::Greedy(settings) => settings.descent(),
            Self::Syn(settings) => settings.descent(),
            Self::Svf(settings) => settings.descent(),
        }
    }

    /// As the operation takes it.
    pub(in crate::register) fn method(&self) -> Method {
        match self {
            Self::Greedy(_) => Method::Greedy,
            Self::Syn(_) => Method::Syn,
            Self::Svf(SvfSettings { squarings, deterministic, .. }) => {
                let accumulation = match deterministic {
                    true => Accumulation::Reproducible,
                    false => Accumulation::Fast,
                };
                Method::Svf { squarings: *squarings, accumulation }
            }
        }
    }

    /// The field that means `warp`, or no motion. A half of SyN takes all of it.
    ///
    /// # Panics
    /// If there is a warp for a velocity: such stages do not validate.
    pub(super) fn start(
        &self,
        warp: Option<&Displacement>,
        grid: &Geometry,
        device: &Device,
    ) -> Field {
        let [d, h, w] = grid.dims();
        let still = || dense_zeros([1, 3, d, h, w], device, DType::F32);
        let moved = warp.map(|warp| warp.resampled(grid).into_field());
        let tensor = match self {
            Self::Greedy(_) => moved.unwrap_or_else(still),
            Self::Syn(_) => Tensor::cat(vec![still(), moved.unwrap_or_else(still)], 0),
            Self::Svf(_) => {
                assert!(warp.is_none(), "svf: a displacement has no velocity");
                still()
            }
        };
        Field { tensor, geometry: grid.clone() }
    }

    /// `w` and, where the method gives it, its inverse.
    pub(super) fn maps(&self, field: &Field) -> Result<(Displacement, Option<Displacement>)> {
        let on_grid = |tensor| Displacement::new(tensor, field.geometry.clone());
        match self {
            Self::Greedy(_) => Ok((on_grid(field.tensor.clone())?, None)),
            Self::Syn(_) => {
                let [u1, u2] = [0, 1].map(|half| field.tensor.clone().narrow(0, half, 1));
                let back = |half: &Tensor<5>| inverse(half.clone(), None);
                let forth = compose(u2.clone(), back(&u1));
                Ok((on_grid(forth)?, Some(on_grid(compose(u1, back(&u2)))?)))
            }
            Self::Svf(settings) => {
                let flow = |velocity: Tensor<5>| {
                    exp_with(velocity, settings.squarings, &ComposeOptions::default())
                };
                let velocity = &field.tensor;
                let back = on_grid(flow(velocity.clone().neg()))?;
                Ok((on_grid(flow(velocity.clone()))?, Some(back)))
            }
        }
    }
}
