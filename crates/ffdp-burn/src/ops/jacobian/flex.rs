//! The Jacobian determinant on the CPU, in `f64`; written to be read.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{Determinant, JacobianOps};
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// A voxel (x, y, z).
type Index = [usize; 3];

/// `J`, one row an axis.
type Matrix = [[f64; 3]; 3];

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

    /// The voxels that a difference along an axis is taken between, and one over their distance.
    fn ends(&self, p: Index, axis: usize) -> (Index, Index, f64) {
        let (mut back, mut ahead) = (p, p);
        back[axis] = p[axis].saturating_sub(1);
        ahead[axis] = (p[axis] + 1).min(self.size[axis] - 1);
        let distance = ahead[axis] - back[axis];
        (back, ahead, if distance == 0 { 0.0 } else { 1.0 / distance as f64 })
    }

    fn matrix(&self, p: Index) -> Matrix {
        [0, 1, 2].map(|axis| {
            let (back, ahead, scale) = self.ends(p, axis);
            let identity = |c| if c == axis { 1.0 } else { 0.0 };
            [0, 1, 2].map(|c| identity(c) + scale * (self.read(c, ahead) - self.read(c, back)))
        })
    }

    /// `dL/du(p)`, with `g` the gradient of a determinant: its voxel and its value are given.
    fn gradient(&self, p: Index, g: &impl Fn(Index, f64) -> f64) -> [f64; 3] {
        let mut sum = [0.0; 3];
        for axis in 0..3 {
            let (back, ahead, _) = self.ends(p, axis);
            // Between two neighbours a voxel does not take part in its own difference; at the border
            // it is one of the two.
            for q in [back, ahead] {
                let (first, last, scale) = self.ends(q, axis);
                let role = f64::from(u8::from(last == p)) - f64::from(u8::from(first == p));
                let matrix = self.matrix(q);
                let cofactors = cofactors(&matrix, axis);
                let det = dot(matrix[axis], cofactors);
                (0..3).for_each(|c| sum[c] += g(q, det) * role * scale * cofactors[c]);
            }
        }
        sum
    }
}

/// The cofactors of one row.
fn cofactors(matrix: &Matrix, row: usize) -> [f64; 3] {
    let (a, b) = (matrix[(row + 1) % 3], matrix[(row + 2) % 3]);
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn determinant(matrix: &Matrix) -> f64 {
    dot(matrix[0], cofactors(matrix, 0))
}

/// The fields of a batch.
fn fields<T: Real>(field: &FlexTensor) -> Vec<Field<'_, T>> {
    let shape = field.layout().shape();
    let size = [shape[4], shape[3], shape[2]];
    let len = 3 * size.iter().product::<usize>();
    elements::<T>(field).chunks(len).map(|data| Field { data, size }).collect()
}

fn forward<T: Real>(field: &FlexTensor, output: Determinant) -> FlexTensor {
    let shape = output.output_shape(field.layout().shape());
    let fields = fields::<T>(field);
    let [w, h, d] = fields[0].size;
    let slice = |index: usize| {
        let (n, z) = (index / d, index % d);
        let voxels = (0..h).flat_map(move |y| (0..w).map(move |x| [x, y, z]));
        (n, voxels)
    };
    let slices = (0..fields.len() * d).into_par_iter().map(slice);
    match output {
        Determinant::Field => {
            let dets = slices.flat_map_iter(|(n, voxels)| {
                let field = &fields[n];
                voxels.map(|p| T::of(determinant(&field.matrix(p))))
            });
            tensor(dets.collect::<Vec<T>>(), shape)
        }
        Determinant::Penalty { margin } => {
            let sums: Vec<f64> = slices
                .map(|(n, voxels)| {
                    voxels.map(|p| (margin - determinant(&fields[n].matrix(p))).max(0.0)).sum()
                })
                .collect();
            let count = (fields.len() * w * h * d) as f64;
            tensor(vec![T::of(sums.iter().sum::<f64>() / count)], shape)
        }
    }
}

fn backward<T: Real>(field: &FlexTensor, grad: &FlexTensor, output: Determinant) -> FlexTensor {
    let shape = field.layout().shape().clone();
    let grad = elements::<T>(grad);
    let mut gradients = vec![T::default(); shape.num_elements()];
    let fields = fields::<T>(field);
    let (batch, [w, h, d]) = (fields.len(), fields[0].size);
    let slice = h * w;
    for (n, (field, gradients)) in
        fields.iter().zip(gradients.chunks_mut(3 * d * slice)).enumerate()
    {
        let g = |[x, y, z]: Index, det: f64| match output {
            Determinant::Field => grad[((n * d + z) * h + y) * w + x].wide(),
            Determinant::Penalty { margin } if det < margin => {
                -grad[0].wide() / (batch * d * slice) as f64
            }
            Determinant::Penalty { .. } => 0.0,
        };
        let (ux, rest) = gradients.split_at_mut(d * slice);
        let (uy, uz) = rest.split_at_mut(d * slice);
        let slices = ux.par_chunks_mut(slice).zip(uy.par_chunks_mut(slice));
        slices.zip(uz.par_chunks_mut(slice)).enumerate().for_each(|(z, ((ux, uy), uz))| {
            for voxel in 0..slice {
                let gradient = field.gradient([voxel % w, voxel / w, z], &g).map(T::of);
                [ux[voxel], uy[voxel], uz[voxel]] = gradient;
            }
        });
    }
    tensor(gradients, shape)
}

impl JacobianOps for Flex {
    fn jacobian_3d(field: FloatTensor<Self>, output: Determinant) -> FloatTensor<Self> {
        let field = field.to_contiguous();
        by_dtype!("jacobian", field.dtype(), forward(&field, output))
    }

    fn jacobian_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        output: Determinant,
    ) -> FloatTensor<Self> {
        let (field, grad) = (field.to_contiguous(), grad.to_contiguous());
        by_dtype!("jacobian", field.dtype(), backward(&field, &grad, output))
    }
}
