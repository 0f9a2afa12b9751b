//! Roughness on the CPU: rows of differences, sums in `f64`, added in order; written to be read.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{RegularityOps, Roughness, Weights};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// An offset along x, y, z.
type Offset = [isize; 3];

/// A difference of neighbours: factors at offsets, and the weight of its square.
struct Difference {
    taps: Vec<(f64, Offset)>,
    weight: f64,
}

const UNIT: [Offset; 3] = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
const HERE: Offset = [0; 3];

/// `d_a u`.
fn first(axis: usize, weight: f64) -> Difference {
    Difference { taps: vec![(1.0, UNIT[axis]), (-1.0, HERE)], weight }
}

/// `u(p + e) - 2 u(p) + u(p - e)`.
fn second(axis: usize, weight: f64) -> Difference {
    let taps = vec![(1.0, UNIT[axis]), (-2.0, HERE), (1.0, UNIT[axis].map(|o| -o))];
    Difference { taps, weight }
}

/// `d_a d_b u`.
fn mixed([a, b]: [usize; 2], weight: f64) -> Difference {
    let (a, b) = (UNIT[a], UNIT[b]);
    let both = [0, 1, 2].map(|axis| a[axis] + b[axis]);
    Difference { taps: vec![(1.0, both), (-1.0, a), (-1.0, b), (1.0, HERE)], weight }
}

impl Roughness {
    fn differences(self, weights: &Weights) -> Vec<Difference> {
        let Weights { along, across } = *weights;
        match self {
            Self::Diffusion | Self::DiffusionOf(_) | Self::TotalVariation { .. } => {
                (0..3).map(|axis| first(axis, along[axis])).collect()
            }
            Self::Bending | Self::BendingOf(_) => {
                let straight = (0..3).map(|axis| second(axis, along[axis]));
                let pairs = [[0, 1], [0, 2], [1, 2]].into_iter().zip(across);
                straight.chain(pairs.map(|(pair, weight)| mixed(pair, weight))).collect()
            }
        }
    }
}

/// The field of one batch entry.
struct Field<'a, T> {
    data: &'a [T],
    /// Extents along x, y, z.
    size: [usize; 3],
    differences: &'a [Difference],
    roughness: Roughness,
}

impl<T: Real> Field<'_, T> {
    /// The row of a component at `[y, z]`, if there is one.
    fn row(&self, c: usize, [y, z]: [isize; 2]) -> Option<&[T]> {
        let [w, h, d] = self.size;
        let inside = (0..h as isize).contains(&y) && (0..d as isize).contains(&z);
        inside.then(|| &self.data[((c * d + z as usize) * h + y as usize) * w..][..w])
    }

    /// A difference along the row at `[y, z]`, 0 where it does not exist; `false` if it is 0 all
    /// along.
    fn difference(
        &self,
        c: usize,
        [y, z]: [isize; 2],
        difference: &Difference,
        out: &mut [f64],
    ) -> bool {
        let w = self.size[0] as isize;
        let taps = &difference.taps;
        let row = |o: &Offset| self.row(c, [y + o[1], z + o[2]]);
        let first = taps.iter().map(|(_, o)| -o[0]).fold(0, isize::max);
        let last = taps.iter().map(|(_, o)| w - o[0]).fold(w, isize::min);
        if first >= last || taps.iter().any(|(_, o)| row(o).is_none()) {
            return false;
        }
        out.fill(0.0);
        let out = &mut out[first as usize..last as usize];
        for (factor, o) in taps {
            let Some(row) = row(o) else { continue };
            let values = &row[(first + o[0]) as usize..(last + o[0]) as usize];
            out.iter_mut().zip(values).for_each(|(out, value)| *out += factor * value.wide());
        }
        true
    }

    /// The squares of all differences along the row at `[y, z]`, weighted, all components added.
    fn squares(&self, at: [isize; 2], scratch: &mut [f64], out: &mut [f64]) {
        out.fill(0.0);
        for difference in self.differences {
            for c in 0..3 {
                if self.difference(c, at, difference, scratch) {
                    let weight = difference.weight;
                    out.iter_mut().zip(&*scratch).for_each(|(out, d)| *out += weight * d * d);
                }
            }
        }
    }

    /// What a slice adds to the roughness.
    fn slice(&self, z: usize) -> f64 {
        let [w, h, _] = self.size;
        let (mut scratch, mut squares) = (vec![0.0; w], vec![0.0; w]);
        let mut row = |y: usize| -> f64 {
            self.squares([y as isize, z as isize], &mut scratch, &mut squares);
            match self.roughness {
                // sqrt(s + e^2) - e, without the cancellation. All axes have one weight.
                Roughness::TotalVariation { epsilon } => {
                    let weight = self.differences[0].weight;
                    let length = |s: f64| s / ((s + epsilon * epsilon).sqrt() + epsilon);
                    squares.iter().map(|s| weight * length(s / weight)).sum()
                }
                _ => squares.iter().sum(),
            }
        };
        (0..h).map(&mut row).sum()
    }

    /// The derivative of the energy of a difference by the difference, over the difference: twice
    /// its weight, or one over the length for total variation.
    fn stiffness(&self, at: [isize; 2], scratch: &mut [f64], out: &mut [f64]) {
        if let Roughness::TotalVariation { epsilon } = self.roughness {
            let weight = self.differences[0].weight;
            self.squares(at, scratch, out);
            let stiff = |s: f64| weight / (s / weight + epsilon * epsilon).sqrt();
            out.iter_mut().for_each(|value| *value = stiff(*value));
        }
    }

    /// The gradient along the row at `[y, z]`, one component after the other.
    fn gradient(&self, [y, z]: [isize; 2], rows: &mut Rows) {
        let [w, ..] = self.size;
        let Rows { scratch, stiffness, gradient } = rows;
        gradient.fill(0.0);
        for difference in self.differences {
            for &(factor, [dx, dy, dz]) in &difference.taps {
                // The differences at `p - o` read `p` with this factor.
                let at = [y - dy, z - dz];
                stiffness.fill(2.0 * difference.weight);
                self.stiffness(at, scratch, stiffness);
                for (c, sum) in gradient.chunks_mut(w).enumerate() {
                    if !self.difference(c, at, difference, scratch) {
                        continue;
                    }
                    let terms = scratch.iter().zip(&*stiffness).map(|(d, k)| factor * k * d);
                    let skipped = (-dx).max(0) as usize;
                    let begin = dx.max(0) as usize;
                    let sums = sum.iter_mut().skip(begin);
                    sums.zip(terms.skip(skipped)).for_each(|(sum, term)| *sum += term);
                }
            }
        }
    }
}

/// Rows that a task works in.
struct Rows {
    scratch: Vec<f64>,
    stiffness: Vec<f64>,
    /// Of all three components.
    gradient: Vec<f64>,
}

/// The fields of a batch.
fn fields<'a, T: Real>(
    field: &'a FlexTensor,
    differences: &'a [Difference],
    roughness: Roughness,
) -> Vec<Field<'a, T>> {
    let shape = field.layout().shape();
    let size = [shape[4], shape[3], shape[2]];
    let len = 3 * size.iter().product::<usize>();
    let entries = elements::<T>(field).chunks(len);
    entries.map(|data| Field { data, size, differences, roughness }).collect()
}

fn value<T: Real>(field: &FlexTensor, roughness: Roughness) -> FlexTensor {
    let differences = roughness.differences(&roughness.weights(field.layout().shape()));
    let mut total = 0.0;
    for field in fields::<T>(field, &differences, roughness) {
        let slices = (0..field.size[2]).into_par_iter().map(|z| field.slice(z));
        total += slices.collect::<Vec<f64>>().iter().sum::<f64>();
    }
    tensor(vec![T::of(total)], [1])
}

fn gradient<T: Real>(field: &FlexTensor, grad: &FlexTensor, roughness: Roughness) -> FlexTensor {
    let shape = field.layout().shape().clone();
    let differences = roughness.differences(&roughness.weights(&shape));
    let scale = elements::<T>(grad)[0].wide();
    let mut output = vec![T::default(); shape.num_elements()];
    let fields = fields::<T>(field, &differences, roughness);
    let [w, h, d] = fields[0].size;
    let slice = h * w;
    for (field, output) in fields.iter().zip(output.chunks_mut(3 * d * slice)) {
        let (ux, rest) = output.split_at_mut(d * slice);
        let (uy, uz) = rest.split_at_mut(d * slice);
        let slices = ux.par_chunks_mut(slice).zip(uy.par_chunks_mut(slice));
        slices.zip(uz.par_chunks_mut(slice)).enumerate().for_each(|(z, ((ux, uy), uz))| {
            let (scratch, stiffness) = (vec![0.0; w], vec![0.0; w]);
            let mut rows = Rows { scratch, stiffness, gradient: vec![0.0; 3 * w] };
            for y in 0..h {
                field.gradient([y as isize, z as isize], &mut rows);
                for (output, row) in
                    [&mut *ux, &mut *uy, &mut *uz].into_iter().zip(rows.gradient.chunks(w))
                {
                    let output = output[y * w..].iter_mut();
                    output.zip(row).for_each(|(value, sum)| *value = T::of(scale * sum));
                }
            }
        });
    }
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
