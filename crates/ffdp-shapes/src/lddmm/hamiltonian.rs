//! The energy of moving points, and how they move.
//!
//! Normalised kernels `K~ = diag(l) K diag(l)` have rows that sum to 1, whatever the density of the points:
//! ```text
//! l o (K l) = 1                                        l <- l / sqrt(l o K l), from 1 / sqrt(K 1)
//! dH/dq_i = sum_j grad k(q_i - q_j) (r_i . r_j - w_i l_i l_j - l_i w_j l_j)       r = l o p
//! (1 + K~) w = l o p . K r                             spectrum in [1, 2]: Chebyshev's iteration
//! ```
//! The second line is the implicit derivative of the first. `v(x) = l(x) sum_j k(x - q_j) r_j` with
//! `l(x) = 1 / sum_j k(x - q_j) l_j` is the velocity of the points at the points.

use burn::tensor::Tensor;
use ffdp_image::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::kernel::Kernel;
use crate::normalized::bistochastic_scaling;
use crate::product::{kernel_product, kernel_product_to_x};
use crate::tensors::{to_points, to_tensor};

/// The metric of moving points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// The kernel itself: points within its width move as cheaply as one.
    #[default]
    Classical,
    /// The kernel with rows that sum to 1: mass counts.
    Normalised,
}

/// Iterations to a bistochastic kernel: each more than halves the error of row sums (1e-6 after 15 to 17 in
/// [`bistochastic_scaling`]).
const NORMALISATION: usize = 24;

/// Deviation of row sums from 1 that is good enough; f32 does not reach it, and stops at the number of iterations.
const ROW_SUMS: f64 = 1e-8;

/// Iterations of the linear system: each divides the error by 5.8.
const CHEBYSHEV: usize = 10;

/// Points with momenta and what they cost.
#[derive(Clone, Debug)]
pub struct Hamiltonian {
    /// The kernel; its width says how far a point takes others along.
    pub kernel: Kernel,
    /// The metric.
    pub metric: Metric,
}

/// The velocities that moving points give to all of space.
#[derive(Clone, Debug)]
pub struct Field {
    kernel: Kernel,
    points: Tensor<2>,
    /// Momenta; of normalised kernels, `l o p` followed by `l`.
    momenta: Tensor<2>,
}

impl Field {
    /// The velocities at points `[M, 3]`.
    pub fn at(&self, x: Tensor<2>) -> Tensor<2> {
        let dim = self.points.dims()[1];
        let sums = kernel_product(&self.kernel, x, self.points.clone(), self.momenta.clone());
        match sums.dims()[1] - dim {
            0 => sums,
            _ => sums.clone().narrow(1, 0, dim) / sums.narrow(1, dim, 1),
        }
    }
}

impl Hamiltonian {
    /// `H(q, p)`, `[1]`.
    pub fn energy(&self, q: &Tensor<2>, p: &Tensor<2>) -> Tensor<1> {
        let r = match self.metric {
            Metric::Classical => p.clone(),
            Metric::Normalised => self.weights(q) * p.clone(),
        };
        (kernel_product(&self.kernel, q.clone(), q.clone(), r.clone()) * r).sum() * 0.5
    }

    /// The velocities everywhere.
    pub fn field(&self, q: &Tensor<2>, p: &Tensor<2>) -> Field {
        let momenta = match self.metric {
            Metric::Classical => p.clone(),
            Metric::Normalised => {
                let l = self.weights(q);
                Tensor::cat(vec![l.clone() * p.clone(), l], 1)
            }
        };
        Field { kernel: self.kernel.clone(), points: q.clone(), momenta }
    }

    /// The field, and `dq/dt`, `dp/dt`.
    pub fn motion(&self, q: &Tensor<2>, p: &Tensor<2>) -> (Field, [Tensor<2>; 2]) {
        let dim = q.dims()[1];
        let field = self.field(q, p);
        let to_x = |b: Tensor<2>, e: Tensor<2>| {
            -kernel_product_to_x(&self.kernel, q.clone(), q.clone(), b, e)
        };
        if self.metric == Metric::Classical {
            let force = to_x(p.clone(), p.clone());
            return (field.clone(), [field.at(q.clone()), force]);
        }
        let (r, l) =
            (field.momenta.clone().narrow(1, 0, dim), field.momenta.clone().narrow(1, dim, 1));
        let kr = self.product(q, r.clone());
        let velocity = l.clone() * kr.clone();
        let w = self.resolve(q, &l, l.clone() * (p.clone() * kr).sum_dim(1));
        let wl = w * l.clone();
        let e = Tensor::cat(vec![r.clone(), wl.clone(), l.clone()], 1);
        let b = Tensor::cat(vec![r, -l, -wl], 1);
        (field, [velocity, to_x(b, e)])
    }

    /// The matrix that takes momenta to velocities at points `[N, 3]`, row by row.
    ///
    /// # Errors
    /// A device that cannot be read.
    pub(super) fn matrix(&self, q: &Tensor<2>) -> Result<Vec<f64>> {
        let count = q.dims()[0];
        let place = (q.device(), q.dtype());
        let mut matrix = vec![0.0; count * count];
        // Three columns a product: those of other products have compiled kernels already.
        for first in (0..count).step_by(3) {
            let mut units = vec![[0.0; 3]; count];
            let columns = first..count.min(first + 3);
            columns.clone().for_each(|k| units[k][k - first] = 1.0);
            let rows = to_points(self.product(q, to_tensor(&units, (&place.0, place.1))))?;
            for (i, row) in rows.iter().enumerate() {
                columns.clone().for_each(|k| matrix[i * count + k] = row[k - first]);
            }
        }
        if self.metric == Metric::Normalised {
            let weights = self.weights(q).try_into_vec_as::<f64>();
            let l = weights.map_err(|reason| Error::device("reading back weights", reason))?;
            let factors = l.iter().flat_map(|a| l.iter().map(move |b| a * b));
            matrix.iter_mut().zip(factors).for_each(|(v, factor)| *v *= factor);
        }
        Ok(matrix)
    }

    fn product(&self, q: &Tensor<2>, b: Tensor<2>) -> Tensor<2> {
        kernel_product(&self.kernel, q.clone(), q.clone(), b)
    }

    /// `l` with `l o (K l) = 1`, `[N, 1]`.
    pub fn weights(&self, q: &Tensor<2>) -> Tensor<2> {
        bistochastic_scaling(&self.kernel, q.clone(), ROW_SUMS, NORMALISATION).scaling
    }

    /// `w` with `(1 + K~) w = b`: eigenvalues between 1 and 2 (Saad, Iterative methods, algorithm 12.1).
    fn resolve(&self, q: &Tensor<2>, l: &Tensor<2>, b: Tensor<2>) -> Tensor<2> {
        let apply = |w: &Tensor<2>| w.clone() + l.clone() * self.product(q, l.clone() * w.clone());
        let [centre, radius] = [1.5, 0.5];
        let sigma = centre / radius;
        let mut rho = 1.0 / sigma;
        let mut residual = b.clone();
        let mut step = b / centre;
        let mut w = step.clone();
        for _ in 1..CHEBYSHEV {
            residual = residual - apply(&step);
            let next = 1.0 / (2.0 * sigma - rho);
            step = step * (next * rho) + residual.clone() * (2.0 * next / radius);
            w = w + step.clone();
            rho = next;
        }
        w
    }
}
