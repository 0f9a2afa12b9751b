//! The control grid on the CPU: one pass an axis, sums in `f64`. Read `pass` first: both directions are it.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use rayon::prelude::*;

use super::{Axis, BsplineOps, Lattice};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// For each element of the output along an axis: which elements of the input, with which weights.
pub(crate) type Rows = Vec<Vec<(usize, f64)>>;

fn rows(axis: &Axis) -> Rows {
    let row = |taps: super::taps::Taps| {
        let pairs = (taps.first..).zip(taps.weights);
        pairs.filter(|(control, _)| *control < axis.controls).collect()
    };
    axis.taps().into_iter().map(row).collect()
}

/// One pass: lines of `len` elements, `stride` apart, in blocks of `len * stride`, become lines of one
/// element a row.
pub(crate) fn pass<T: Real>(data: &[T], rows: &Rows, len: usize, stride: usize) -> Vec<T> {
    if stride == 1 {
        return pass_along_lines(data, rows, len);
    }
    let blocks = data.len() / (len * stride);
    let mut output = vec![T::default(); blocks * rows.len() * stride];
    // Neighbouring lines at one position: contiguous, so that one instruction adds several.
    output.par_chunks_mut(stride).enumerate().for_each(|(chunk, output)| {
        let (block, row) = (chunk / rows.len(), chunk % rows.len());
        let source = &data[block * len * stride..][..len * stride];
        let mut sums = vec![0.0f64; stride];
        for &(from, weight) in &rows[row] {
            let values = &source[from * stride..][..stride];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value.wide());
        }
        output.iter_mut().zip(&sums).for_each(|(value, sum)| *value = T::of(*sum));
    });
    output
}

/// The pass along x, where lines are contiguous.
fn pass_along_lines<T: Real>(data: &[T], rows: &Rows, len: usize) -> Vec<T> {
    let mut output = vec![T::default(); data.len() / len * rows.len()];
    let lines = output.par_chunks_mut(rows.len()).zip(data.par_chunks(len));
    lines.with_min_len(64).for_each(|(output, line)| {
        for (value, row) in output.iter_mut().zip(rows) {
            *value = T::of(row.iter().map(|&(from, weight)| weight * line[from].wide()).sum());
        }
    });
    output
}

/// Three passes along x, y, z: lines grow as late, or shrink as early, as they can in this order, and
/// the last pass works on whole planes.
fn run<T: Real>(
    x: &FlexTensor,
    [along_x, along_y, along_z]: [Rows; 3],
    [d, h, w]: [usize; 3],
    shape: Shape,
) -> FlexTensor {
    let (wide, high) = (along_x.len(), along_y.len());
    let data = pass(elements::<T>(x), &along_x, w, 1);
    let data = pass(&data, &along_y, h, wide);
    tensor(pass(&data, &along_z, d, high * wide), shape)
}

impl BsplineOps for Flex {
    fn bspline_3d(coefficients: FloatTensor<Self>, lattice: Lattice) -> FloatTensor<Self> {
        let coefficients = coefficients.to_contiguous();
        let rows = lattice.axes.each_ref().map(rows);
        let shape = lattice.output(coefficients.layout().shape());
        let dtype = coefficients.dtype();
        by_dtype!("bspline", dtype, run(&coefficients, rows, lattice.controls(), shape))
    }

    fn bspline_3d_backward(grad: FloatTensor<Self>, lattice: Lattice) -> FloatTensor<Self> {
        let grad = grad.to_contiguous();
        let rows = lattice.axes.each_ref().map(Axis::transposed);
        let shape = lattice.input(grad.layout().shape());
        by_dtype!("bspline", grad.dtype(), run(&grad, rows, lattice.size(), shape))
    }
}
