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

/// A voxel, and its place in a channel.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    index: Index,
    offset: usize,
}

impl<T: Real> Field<'_, T> {
    fn place(&self, index: Index) -> Place {
        let [w, h, _] = self.size;
        Place { index, offset: (index[2] * h + index[1]) * w + index[0] }
    }

    /// The voxels that a difference along an axis is taken between, and one over their distance.
    fn ends(&self, p: Place, axis: usize) -> (Place, Place, f64) {
        let [w, h, _] = self.size;
        let (mut back, mut ahead) = (p, p);
        let (i, stride) = (p.index[axis], [1, w, w * h][axis]);
        if i > 0 {
            back.index[axis] -= 1;
            back.offset -= stride;
        }
        if i + 1 < self.size[axis] {
            ahead.index[axis] += 1;
            ahead.offset += stride;
        }
        (back, ahead, [0.0, 1.0, 0.5][ahead.index[axis] - back.index[axis]])
    }

    fn matrix(&self, p: Place) -> Matrix {
        let len = self.data.len() / 3;
        let channels = [0, 1, 2].map(|c| &self.data[c * len..(c + 1) * len]);
        [0, 1, 2].map(|axis| {
            let (back, ahead, scale) = self.ends(p, axis);
            let identity = |c| if c == axis { 1.0 } else { 0.0 };
            [0, 1, 2].map(|c: usize| {
                let u = channels[c];
                identity(c) + scale * (u[ahead.offset].wide() - u[back.offset].wide())
            })
        })
    }

    /// `dL/du(p)`, with `g` the gradient of a determinant: its voxel and its value are given.
    fn gradient(&self, p: Place, g: &impl Fn(Place, f64) -> f64) -> [f64; 3] {
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
                voxels.map(|p| T::of(determinant(&field.matrix(field.place(p)))))
            });
            tensor(dets.collect::<Vec<T>>(), shape)
        }
        Determinant::Penalty { margin } => {
            let sums: Vec<f64> = slices
                .map(|(n, voxels)| {
                    let det = |p| determinant(&fields[n].matrix(fields[n].place(p)));
                    voxels.map(|p| (margin - det(p)).max(0.0)).sum()
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
        let g = |q: Place, det: f64| match output {
            Determinant::Field => grad[n * d * slice + q.offset].wide(),
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
                let p = field.place([voxel % w, voxel / w, z]);
                [ux[voxel], uy[voxel], uz[voxel]] = field.gradient(p, &g).map(T::of);
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
