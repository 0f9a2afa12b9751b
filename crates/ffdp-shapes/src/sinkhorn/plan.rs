//! Where the mass of each point goes.

use burn::tensor::Tensor;

use super::{Measure, SinkhornSettings, Transport, TransportCost};
use crate::formula::Formula;
use crate::tensors::column;

impl Transport {
    /// `sum_j P_ij v_j / sum_j P_ij`: the mean of what the mass of each point of `a` meets, its barycentre for
    /// `v = b.points`. The plan itself is never stored.
    ///
    /// # Shapes
    /// values `[M, E]`; result `[N, E]`.
    pub fn carried(
        &self,
        a: &Measure,
        b: &Measure,
        settings: &SinkhornSettings,
        values: Tensor<2>,
    ) -> Tensor<2> {
        let eps = settings.blur.powf(settings.cost.p());
        let (dim, width) = (a.points.dims()[1], values.dims()[1]);
        let place = (a.points.device(), a.points.dtype());
        let inverse = column(&[1.0 / eps], (&place.0, place.1));
        let h = b.weights.clone().log() + self.potentials[1].clone() / eps;
        let exponent = super::descent::exponent(settings.cost, dim);
        // The logarithm of each row's mass first: no exponential overflows.
        let tensors = [a.points.clone(), b.points.clone(), h.clone(), inverse.clone()];
        let total = exponent.log_sum_exp(&tensors);
        let share = Formula::new(|v| {
            let (x, y, h, w) = (v.rows(dim), v.columns(dim), v.columns(1), v.columns(width));
            let (inverse, total) = (v.parameters(1), v.rows(1));
            let c = match settings.cost {
                TransportCost::Distance => (&x - &y).norm(),
                TransportCost::HalfSquare => (&x - &y).norm2() * 0.5,
            };
            (h.at(0) - c * inverse.at(0) - total.at(0)).exp() * w
        });
        share.sum(&[a.points.clone(), b.points.clone(), h, values, inverse, total])
    }
}
