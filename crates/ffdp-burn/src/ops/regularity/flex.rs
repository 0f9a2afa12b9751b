//! Roughness on the CPU: sums in `f64`, one a slice, added in order; written to be read.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{RegularityOps, Roughness, Weights};
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// A voxel (x, y, z).
type Index = [usize; 3];

/// The pairs of axes of `Weights::across`.
const PAIRS: [[usize; 2]; 3] = [[0, 1], [0, 2], [1, 2]];

/// The field of one batch entry.
struct Field<'a, T> {
    data: &'a [T],
    /// Extents along x, y, z.
    size: Index,
}

impl<T: Real> Field<'_, T> {
    fn read(&self, c: usize, [x, y, z]: Index) -> f64 {
        let [w, h, d] = self.size;
        self.data[((c * d + z) * h + y) * w + x].wide()
    }

    /// The voxel `by` further along an axis, if it exists.
    fn moved(&self, p: Index, axis: usize, by: isize) -> Option<Index> {
        let mut q = p;
        q[axis] = p[axis].checked_add_signed(by).filter(|&i| i < self.size[axis])?;
        Some(q)
    }

    /// `d_a u_c(p)`, 0 where it does not exist.
    fn first(&self, c: usize, p: Index, axis: usize) -> f64 {
        self.moved(p, axis, 1).map_or(0.0, |q| self.read(c, q) - self.read(c, p))
    }

    /// `u_c(p + e) - 2 u_c(p) + u_c(p - e)`, 0 where it does not exist.
    fn second(&self, c: usize, p: Index, axis: usize) -> f64 {
        match (self.moved(p, axis, -1), self.moved(p, axis, 1)) {
            (Some(q), Some(r)) => self.read(c, q) - 2.0 * self.read(c, p) + self.read(c, r),
            _ => 0.0,
        }
    }

    /// `d_a d_b u_c(p)`, 0 where it does not exist.
    fn mixed(&self, c: usize, p: Index, [a, b]: [usize; 2]) -> f64 {
        let Some(q) = self.moved(p, a, 1).filter(|_| self.moved(p, b, 1).is_some()) else {
            return 0.0;
        };
        self.first(c, q, b) - self.first(c, p, b)
    }

    /// `sum_(a, c) (d_a u_c)^2`.
    fn squared_length(&self, p: Index) -> f64 {
        let axes = (0..3).flat_map(|c| (0..3).map(move |axis| (c, axis)));
        axes.map(|(c, axis)| self.first(c, p, axis).powi(2)).sum()
    }

    /// What a voxel adds to the roughness.
    fn density(&self, p: Index, roughness: Roughness, weights: &Weights) -> f64 {
        let Weights { along, across } = *weights;
        let components = |f: &dyn Fn(usize) -> f64| (0..3).map(|c| f(c).powi(2)).sum::<f64>();
        match roughness {
            Roughness::Diffusion => {
                (0..3).map(|a| along[a] * components(&|c| self.first(c, p, a))).sum()
            }
            Roughness::Bending => (0..3)
                .map(|i| {
                    along[i] * components(&|c| self.second(c, p, i))
                        + across[i] * components(&|c| self.mixed(c, p, PAIRS[i]))
                })
                .sum(),
            Roughness::TotalVariation { epsilon } => {
                let squares = self.squared_length(p);
                // sqrt(s + e^2) - e, without the cancellation.
                along[0] * squares / ((squares + epsilon * epsilon).sqrt() + epsilon)
            }
        }
    }

    /// The derivative of the roughness by `u_c(p)`.
    fn slope(&self, c: usize, p: Index, roughness: Roughness, weights: &Weights) -> f64 {
        let Weights { along, across } = *weights;
        let before = |axis: usize| self.moved(p, axis, -1);
        match roughness {
            Roughness::Diffusion => (0..3)
                .map(|axis| {
                    let back = before(axis).map_or(0.0, |q| self.first(c, q, axis));
                    2.0 * along[axis] * (back - self.first(c, p, axis))
                })
                .sum(),
            Roughness::Bending => {
                let straight = (0..3).map(|axis| {
                    let at = |by| self.moved(p, axis, by).map_or(0.0, |q| self.second(c, q, axis));
                    2.0 * along[axis] * (at(-1) - 2.0 * at(0) + at(1))
                });
                let crossed = PAIRS.iter().zip(across).map(|(&[a, b], weight)| {
                    let cell = |q: Option<Index>| q.map_or(0.0, |q| self.mixed(c, q, [a, b]));
                    let (down_a, down_b) = (before(a), before(b));
                    let down = down_a.and_then(|q| self.moved(q, b, -1));
                    let sum = cell(Some(p)) - cell(down_a) - cell(down_b) + cell(down);
                    2.0 * weight * sum
                });
                straight.sum::<f64>() + crossed.sum::<f64>()
            }
            Roughness::TotalVariation { epsilon } => {
                let length = |q| (self.squared_length(q) + epsilon * epsilon).sqrt();
                let out = (0..3).map(|axis| self.first(c, p, axis)).sum::<f64>() / length(p);
                let into = (0..3)
                    .filter_map(|axis| before(axis).map(|q| self.first(c, q, axis) / length(q)));
                along[0] * (into.sum::<f64>() - out)
            }
        }
    }
}

/// The fields of a batch.
fn fields<T: Real>(field: &FlexTensor) -> Vec<Field<'_, T>> {
    let shape = field.layout().shape();
    let size = [shape[4], shape[3], shape[2]];
    let len = 3 * size.iter().product::<usize>();
    elements::<T>(field).chunks(len).map(|data| Field { data, size }).collect()
}

fn value<T: Real>(field: &FlexTensor, roughness: Roughness) -> FlexTensor {
    let weights = roughness.weights(field.layout().shape());
    let mut total = 0.0;
    for field in fields::<T>(field) {
        let [w, h, d] = field.size;
        let slice = |z: usize| -> f64 {
            let voxels = (0..h).flat_map(|y| (0..w).map(move |x| [x, y, z]));
            voxels.map(|p| field.density(p, roughness, &weights)).sum()
        };
        let slices: Vec<f64> = (0..d).into_par_iter().map(slice).collect();
        total += slices.iter().sum::<f64>();
    }
    tensor(vec![T::of(total)], [1])
}

fn gradient<T: Real>(field: &FlexTensor, grad: &FlexTensor, roughness: Roughness) -> FlexTensor {
    let shape = field.layout().shape().clone();
    let weights = roughness.weights(&shape);
    let scale = elements::<T>(grad)[0].wide();
    let fields = fields::<T>(field);
    let mut output = vec![T::default(); shape.num_elements()];
    let [w, h, d] = fields[0].size;
    output.par_chunks_mut(h * w).enumerate().for_each(|(slice, output)| {
        let (z, c, n) = (slice % d, slice / d % 3, slice / d / 3);
        for (voxel, value) in output.iter_mut().enumerate() {
            let slope = fields[n].slope(c, [voxel % w, voxel / w, z], roughness, &weights);
            *value = T::of(scale * slope);
        }
    });
    tensor(output, shape)
}

impl RegularityOps for Flex {
    fn roughness_3d(field: FloatTensor<Self>, roughness: Roughness) -> FloatTensor<Self> {
        let field = field.to_contiguous();
        by_dtype!("regularity", field.dtype(), value(&field, roughness))
    }

    fn roughness_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        roughness: Roughness,
    ) -> FloatTensor<Self> {
        let (field, grad) = (field.to_contiguous(), grad.to_contiguous());
        by_dtype!("regularity", field.dtype(), gradient(&field, &grad, roughness))
    }
}
