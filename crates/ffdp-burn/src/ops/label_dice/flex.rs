//! The label sums on the CPU: one table a slice, added in order; written to be read.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use rayon::prelude::*;

use super::{Denominator, LabelDiceOps, LabelTable};
use crate::ops::grid_sample::flex::Tap;
use crate::ops::grid_sample::{Interpolation, Padding};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// The column of a label that does not count.
const NONE: usize = usize::MAX;

impl LabelTable {
    fn column(&self, label: i32) -> usize {
        let found = self.columns.binary_search_by_key(&label, |(id, _)| *id);
        found.map_or(NONE, |at| self.columns[at].1 as usize)
    }
}

/// One of the eight voxels around a sampled position.
#[derive(Clone, Copy)]
struct Corner {
    column: usize,
    weight: f64,
    /// `grad w`, along x, y, z.
    slope: [f64; 3],
}

/// The membership of the label of `corners[i]`, or `None` where it does not count.
fn membership(corners: &[Corner; 8], i: usize) -> Option<f64> {
    let column = corners[i].column;
    let same = corners.iter().filter(|corner| corner.column == column);
    (column != NONE).then(|| same.map(|corner| corner.weight).sum())
}

/// The inputs, borrowed.
struct Sums<'a, T> {
    displacement: &'a [T],
    moving: &'a [i32],
    fixed: &'a [i32],
    /// Extents (D, H, W) of the moving and of the fixed labels.
    input: [usize; 3],
    size: [usize; 3],
    table: &'a LabelTable,
}

impl<T: Real> Sums<'_, T> {
    /// The corners of voxel `(x, y, z)` and the column of its fixed label.
    fn voxel(&self, n: usize, [x, y, z]: [usize; 3]) -> ([Corner; 8], usize) {
        let ([d, h, w], [di, hi, wi]) = (self.size, self.input);
        let len = d * h * w;
        let voxel = (z * h + y) * w + x;
        let tap = |component: usize, at: usize, size: usize| {
            let u = self.displacement[(n * 3 + component) * len + voxel].wide();
            Tap::new(at as f64 + u, size, Interpolation::Linear, Padding::Zeros)
        };
        let (x, y, z) = (tap(0, x, wi), tap(1, y, hi), tap(2, z, di));
        let labels = &self.moving[n * di * hi * wi..];
        let here = self.fixed[n * len + voxel];
        let fixed = self.table.column(here);
        // Mostly one label all around: looked up once.
        let mut known = (here, fixed);
        let corners = std::array::from_fn(|corner| {
            let [i, j, k] = [corner & 1, corner >> 1 & 1, corner >> 2];
            let (wx, wy, wz) = (x.weight[i], y.weight[j], z.weight[k]);
            let label = labels[(z.index[k] * hi + y.index[j]) * wi + x.index[i]];
            if label != known.0 {
                known = (label, self.table.column(label));
            }
            Corner {
                column: known.1,
                weight: wx * wy * wz,
                slope: [x.slope[i] * wy * wz, wx * y.slope[j] * wz, wx * wy * z.slope[k]],
            }
        });
        (corners, fixed)
    }

    /// The sums of one slice, `[3, K]`.
    fn slice(&self, n: usize, z: usize) -> Vec<f64> {
        let [_, h, w] = self.size;
        let count = self.table.len();
        let mut sums = vec![0.0; 3 * count];
        for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
            let (corners, fixed) = self.voxel(n, [x, y, z]);
            if fixed != NONE {
                sums[2 * count + fixed] += 1.0;
            }
            for i in 0..8 {
                let column = corners[i].column;
                if corners[..i].iter().any(|corner| corner.column == column) {
                    continue;
                }
                let Some(a) = membership(&corners, i) else { continue };
                sums[count + column] += match self.table.denominator {
                    Denominator::Squared => a * a,
                    Denominator::Plain => a,
                };
                if column == fixed {
                    sums[column] += a;
                }
            }
        }
        sums
    }

    /// `dL/du` at a voxel, from the gradients of the sums `[3, K]` of its batch entry.
    fn gradient(&self, grad: &[T], n: usize, at: [usize; 3]) -> [f64; 3] {
        let (corners, fixed) = self.voxel(n, at);
        let count = self.table.len();
        let mut sum = [0.0; 3];
        for (i, corner) in corners.iter().enumerate() {
            let Some(a) = membership(&corners, i) else { continue };
            let slope = match self.table.denominator {
                Denominator::Squared => 2.0 * a,
                Denominator::Plain => 1.0,
            };
            let mut g = grad[count + corner.column].wide() * slope;
            if corner.column == fixed {
                g += grad[fixed].wide();
            }
            (0..3).for_each(|axis| sum[axis] += g * corner.slope[axis]);
        }
        sum
    }
}

fn sums<'a, T: Real>(
    displacement: &'a FlexTensor,
    moving: &'a FlexTensor,
    fixed: &'a FlexTensor,
    table: &'a LabelTable,
) -> Sums<'a, T> {
    let extent = |tensor: &FlexTensor| {
        let shape = tensor.layout().shape();
        [shape[2], shape[3], shape[4]]
    };
    let labels = |tensor: &'a FlexTensor| tensor.as_slice().expect("contiguous 32-bit integers");
    Sums {
        displacement: elements(displacement),
        moving: labels(moving),
        fixed: labels(fixed),
        input: extent(moving),
        size: extent(displacement),
        table,
    }
}

fn forward<T: Real>(
    displacement: &FlexTensor,
    moving: &FlexTensor,
    fixed: &FlexTensor,
    table: &LabelTable,
) -> FlexTensor {
    let s = sums::<T>(displacement, moving, fixed, table);
    let (batch, depth) = (displacement.layout().shape()[0], s.size[0]);
    let mut output = Vec::with_capacity(batch * 3 * table.len());
    for n in 0..batch {
        let slices: Vec<_> = (0..depth).into_par_iter().map(|z| s.slice(n, z)).collect();
        let entry = |i: usize| T::of(slices.iter().map(|slice| slice[i]).sum());
        output.extend((0..3 * table.len()).map(entry));
    }
    tensor(output, table.sums_shape(displacement.layout().shape()))
}

fn backward<T: Real>(
    displacement: &FlexTensor,
    moving: &FlexTensor,
    fixed: &FlexTensor,
    grad: &FlexTensor,
    table: &LabelTable,
) -> FlexTensor {
    let s = sums::<T>(displacement, moving, fixed, table);
    let [d, h, w] = s.size;
    let slice = h * w;
    let shape = displacement.layout().shape();
    let mut output = vec![T::default(); shape.num_elements()];
    let entries = elements::<T>(grad).chunks(3 * table.len());
    for (n, (field, grad)) in output.chunks_mut(3 * d * slice).zip(entries).enumerate() {
        let (ux, rest) = field.split_at_mut(d * slice);
        let (uy, uz) = rest.split_at_mut(d * slice);
        let slices = ux.par_chunks_mut(slice).zip(uy.par_chunks_mut(slice));
        slices.zip(uz.par_chunks_mut(slice)).enumerate().for_each(|(z, ((ux, uy), uz))| {
            for voxel in 0..slice {
                let g = s.gradient(grad, n, [voxel % w, voxel / w, z]).map(T::of);
                [ux[voxel], uy[voxel], uz[voxel]] = g;
            }
        });
    }
    tensor(output, shape.clone())
}

impl LabelDiceOps for Flex {
    fn label_sums_3d(
        displacement: FloatTensor<Self>,
        moving: IntTensor<Self>,
        fixed: IntTensor<Self>,
        table: LabelTable,
    ) -> FloatTensor<Self> {
        let [u, moving, fixed] = [displacement, moving, fixed].map(|t| t.to_contiguous());
        by_dtype!("label_dice", u.dtype(), forward(&u, &moving, &fixed, &table))
    }

    fn label_sums_3d_backward(
        displacement: FloatTensor<Self>,
        moving: IntTensor<Self>,
        fixed: IntTensor<Self>,
        grad: FloatTensor<Self>,
        table: LabelTable,
    ) -> FloatTensor<Self> {
        let [u, moving, fixed, grad] =
            [displacement, moving, fixed, grad].map(|t| t.to_contiguous());
        by_dtype!("label_dice", u.dtype(), backward(&u, &moving, &fixed, &grad, &table))
    }
}
