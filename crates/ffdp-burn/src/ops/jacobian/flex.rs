//! The Jacobian determinant on the CPU, in `f64`; written to be read.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{Determinant, JacobianOps};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// `J`, one row an axis.
type Matrix = [[f64; 3]; 3];

/// A difference along an axis: the voxels that it is taken between, and one over their distance.
#[derive(Clone, Copy)]
struct Step {
    back: usize,
    ahead: usize,
    scale: f64,
}

impl Step {
    /// At voxel `i` of `len`: central, one-sided at the border, none along a single voxel.
    fn at(i: usize, len: usize) -> Self {
        let (back, ahead) = (i.saturating_sub(1), (i + 1).min(len - 1));
        Self { back, ahead, scale: [0.0, 1.0, 0.5][ahead - back] }
    }
}

/// The field of one batch entry.
struct Field<'a, T> {
    data: &'a [T],
    /// Extents along x, y, z.
    size: [usize; 3],
}

/// What the Jacobians along a row need: the row itself, and the rows that differences along y and z
/// are taken between; of every component.
struct Rows<'a, T> {
    here: [&'a [T]; 3],
    across: [[(&'a [T], &'a [T]); 3]; 2],
    y: Step,
    z: Step,
}

impl<'a, T: Real> Field<'a, T> {
    fn row(&self, c: usize, y: usize, z: usize) -> &'a [T] {
        let [w, h, d] = self.size;
        &self.data[((c * d + z) * h + y) * w..][..w]
    }

    fn rows(&self, y: usize, z: usize) -> Rows<'a, T> {
        let [_, h, d] = self.size;
        let (along_y, along_z) = (Step::at(y, h), Step::at(z, d));
        let here = [0, 1, 2].map(|c| self.row(c, y, z));
        let rows_y =
            [0, 1, 2].map(|c| (self.row(c, along_y.back, z), self.row(c, along_y.ahead, z)));
        let rows_z =
            [0, 1, 2].map(|c| (self.row(c, y, along_z.back), self.row(c, y, along_z.ahead)));
        Rows { here, across: [rows_y, rows_z], y: along_y, z: along_z }
    }

    /// The determinants along the row at `[y, z]`.
    fn determinants(&self, y: usize, z: usize) -> impl Iterator<Item = f64> {
        let rows = self.rows(y, z);
        let w = self.size[0];
        (0..w).map(move |x| {
            let matrix = rows.matrix(x, Step::at(x, w));
            dot(matrix[0], cofactors(&matrix, 0))
        })
    }

    /// Adds what the determinants of plane `z` pass on to the gradient: each to both ends of its
    /// three differences. `planes` are the gradients of planes `z - 1`, `z`, `z + 1`, component
    /// after component; `g(voxel, det)` is the gradient of a determinant.
    fn scatter(&self, z: usize, g: &impl Fn(usize, f64) -> f64, planes: &mut [Vec<f64>; 3]) {
        let [w, h, _] = self.size;
        for y in 0..h {
            let rows = self.rows(y, z);
            for x in 0..w {
                let along_x = Step::at(x, w);
                let matrix = rows.matrix(x, along_x);
                let of_x = cofactors(&matrix, 0);
                let g = g((z * h + y) * w + x, dot(matrix[0], of_x));
                if g == 0.0 {
                    continue;
                }
                let mut pass = |step: Step, cofactors: [f64; 3], ends: [(usize, usize); 2]| {
                    for (c, cofactor) in cofactors.into_iter().enumerate() {
                        let term = g * step.scale * cofactor;
                        let [(from, back), (to, ahead)] = ends;
                        planes[from][c * h * w + back] -= term;
                        planes[to][c * h * w + ahead] += term;
                    }
                };
                let row = y * w;
                pass(along_x, of_x, [(1, row + along_x.back), (1, row + along_x.ahead)]);
                let of_y = cofactors(&matrix, 1);
                pass(rows.y, of_y, [(1, rows.y.back * w + x), (1, rows.y.ahead * w + x)]);
                let of_z = cofactors(&matrix, 2);
                let plane = |end: usize| (end + 1 - z, row + x);
                pass(rows.z, of_z, [plane(rows.z.back), plane(rows.z.ahead)]);
            }
        }
    }
}

impl<T: Real> Rows<'_, T> {
    fn matrix(&self, x: usize, along_x: Step) -> Matrix {
        let mut matrix = [[0.0; 3]; 3];
        for (c, row) in self.here.iter().enumerate() {
            let [(below, above), (behind, before)] = [self.across[0][c], self.across[1][c]];
            matrix[0][c] = along_x.scale * (row[along_x.ahead].wide() - row[along_x.back].wide());
            matrix[1][c] = self.y.scale * (above[x].wide() - below[x].wide());
            matrix[2][c] = self.z.scale * (before[x].wide() - behind[x].wide());
            matrix[c][c] += 1.0;
        }
        matrix
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
    let rows = (0..fields.len() * d * h).into_par_iter().with_min_len(16);
    let row = |index: usize| fields[index / (d * h)].determinants(index % h, index / h % d);
    match output {
        Determinant::Field => {
            let dets = rows.flat_map_iter(|index| row(index).map(T::of));
            tensor(dets.collect::<Vec<T>>(), shape)
        }
        Determinant::Penalty { margin } => {
            let below = |det: f64| (margin - det).max(0.0);
            let sums: Vec<f64> = rows.map(|index| row(index).map(below).sum()).collect();
            let count = (fields.len() * w * h * d) as f64;
            tensor(vec![T::of(sums.iter().sum::<f64>() / count)], shape)
        }
    }
}

/// Planes of a task of the backward pass; two more are visited for the differences that reach in.
const PLANES: usize = 16;

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
        let g = |voxel: usize, det: f64| match output {
            Determinant::Field => grad[n * d * slice + voxel].wide(),
            Determinant::Penalty { margin } if det < margin => {
                -grad[0].wide() / (batch * d * slice) as f64
            }
            Determinant::Penalty { .. } => 0.0,
        };
        let (ux, rest) = gradients.split_at_mut(d * slice);
        let (uy, uz) = rest.split_at_mut(d * slice);
        let slabs = ux.par_chunks_mut(PLANES * slice).zip(uy.par_chunks_mut(PLANES * slice));
        slabs.zip(uz.par_chunks_mut(PLANES * slice)).enumerate().for_each(
            |(slab, ((ux, uy), uz))| {
                let (start, stop) = (slab * PLANES, (slab * PLANES + PLANES).min(d));
                let mut planes = [0; 3].map(|_| vec![0.0; 3 * slice]);
                // One plane beyond the slab completes its last; where there is none, it is complete.
                for z in start.saturating_sub(1)..=stop {
                    if z < d {
                        field.scatter(z, &g, &mut planes);
                    }
                    if z > start {
                        let at = (z - 1 - start) * slice;
                        for (c, output) in [&mut *ux, &mut *uy, &mut *uz].into_iter().enumerate() {
                            let output = output[at..at + slice].iter_mut();
                            let sums = planes[0][c * slice..].iter();
                            output.zip(sums).for_each(|(value, sum)| *value = T::of(*sum));
                        }
                    }
                    planes.rotate_left(1);
                    planes[2].fill(0.0);
                }
            },
        );
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
