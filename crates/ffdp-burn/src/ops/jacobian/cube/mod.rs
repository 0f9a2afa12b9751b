//! The Jacobian determinant on the GPU: one march along z for the value, one for the gradient (see
//! `march.rs` of `ffdp-kit`).

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use self::gradient::{HingeLaunch, gradient_kernel};
use self::value::determinant_kernel;
use super::{Determinant, JacobianOps};
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty, extent, sum_rows};
use ffdp_kit::march::grid;

mod gradient;
mod matrix;
mod value;

/// Planes that a cube marches over, at least: it reads up to four on top.
const SHORTEST: usize = 8;

fn batch_and_size(field: &CubeTensor) -> (usize, [usize; 3]) {
    let shape = field.meta.shape();
    (shape[0], [shape[2], shape[3], shape[4]])
}

/// One over the number of voxels.
fn mean(batch: usize, size: [usize; 3]) -> f32 {
    (1.0 / (batch * size.iter().product::<usize>()) as f64) as f32
}

fn forward(field: &CubeTensor, output: Determinant) -> CubeTensor {
    let (batch, size) = batch_and_size(field);
    let grid = grid("jacobian", value::TILE, batch, size, SHORTEST);
    let (margin, is_penalty, result) = match output {
        Determinant::Field => (0.0, false, empty(field, output.output_shape(field.meta.shape()))),
        Determinant::Penalty { margin } => (margin, true, empty(field, [grid.cubes()])),
    };
    unsafe {
        determinant_kernel::launch_unchecked(
            &field.client,
            grid.launch(),
            CubeDim::new_1d(UNITS),
            address(&[field]),
            buffer(field),
            buffer(&result),
            extent(size),
            grid.chunk,
            margin as f32,
            is_penalty,
        );
    }
    match is_penalty {
        true => sum_rows(&result, 1, grid.cubes(), mean(batch, size)),
        false => result,
    }
}

fn backward(field: &CubeTensor, grad: &CubeTensor, output: Determinant) -> CubeTensor {
    let (batch, size) = batch_and_size(field);
    let (margin, is_penalty) = match output {
        Determinant::Field => (0.0, false),
        Determinant::Penalty { margin } => (margin, true),
    };
    let grid = grid("jacobian", gradient::TILE, batch, size, SHORTEST);
    let gradient = empty(field, field.meta.shape().clone());
    unsafe {
        gradient_kernel::launch_unchecked(
            &field.client,
            grid.launch(),
            CubeDim::new_1d(UNITS),
            address(&[field]),
            buffer(field),
            buffer(grad),
            buffer(&gradient),
            extent(size),
            grid.chunk,
            HingeLaunch::new(margin as f32, mean(batch, size)),
            is_penalty,
        );
    }
    gradient
}

impl JacobianOps for CubeBackend {
    fn jacobian_3d(field: FloatTensor<Self>, output: Determinant) -> FloatTensor<Self> {
        assert_f32("jacobian", &[&field]);
        forward(&into_contiguous(field), output)
    }

    fn jacobian_3d_backward(
        field: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        output: Determinant,
    ) -> FloatTensor<Self> {
        assert_f32("jacobian", &[&field, &grad]);
        backward(&into_contiguous(field), &into_contiguous(grad), output)
    }
}
