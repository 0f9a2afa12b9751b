//! Attention on the GPU: a cube has a window and head, 32 rows of its matrix at a time.
//!
//! The rows of one side (queries, or keys in the backward pass to them) are taken four by four: a
//! vector holds a number for each of four rows, a warp's worth of units has four rows, and each
//! unit every 32nd column. The other side lies in shared memory as a whole, in rows of odd length,
//! so that neighbouring columns are in different banks.
//!
//! `block.rs` the pieces · `kernels.rs` the kernels · this file launches them.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{WindowAttentionOps, compose, result_shape};
use ffdp_kit::cubes::CUBES_ALONG_AXIS;
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty, sum_columns};

mod block;
mod kernels;

use block::Size;
use kernels::{forward_kernel, to_keys_kernel, to_queries_kernel};

/// Cubes wanted by the kernel that sums over windows: several for each of some 130 multiprocessors.
const CUBES_WANTED: usize = 528;

/// The sizes of a call.
struct Call {
    size: Size,
    all: u32,
    heads: u32,
    windows: u32,
}

impl Call {
    /// `None` where the kernels do not suit the device or the sizes.
    fn new(qkv: &CubeTensor, bias: &CubeTensor, regions: &CubeTensor) -> Option<Self> {
        let shape = qkv.meta.shape();
        let [all, tokens, heads] = [shape[0], shape[1], bias.meta.shape()[0]];
        let size = Size { tokens: tokens as u32, channels: (shape[2] / 3 / heads) as u32 };
        let hardware = &qkv.client.properties().hardware;
        let fits = size.shared_bytes() <= hardware.max_shared_memory_size
            && size.columns() <= 16
            && all * heads * tokens <= u32::MAX as usize / 2
            && all * heads <= CUBES_ALONG_AXIS;
        let windows = regions.meta.shape()[0] as u32;
        fits.then_some(Self { size, all: all as u32, heads: heads as u32, windows })
    }

    /// A cube for each window and head, or for each block of them where they are few.
    fn cubes(&self) -> CubeCount {
        let pairs = self.all * self.heads;
        let share = if pairs as usize >= CUBES_WANTED { 1 } else { self.size.blocks() };
        CubeCount::Static(pairs, share, 1)
    }
}

fn forward(call: Call, [qkv, bias, regions]: [CubeTensor; 3]) -> (CubeTensor, CubeTensor) {
    let shapes = [&qkv, &bias, &regions].map(|tensor| tensor.meta.shape());
    let y = empty(&qkv, result_shape(shapes[0], shapes[1], shapes[2]));
    let logs = empty(&qkv, [call.all as usize, call.heads as usize, call.size.tokens as usize]);
    unsafe {
        forward_kernel::launch_unchecked(
            &qkv.client,
            call.cubes(),
            CubeDim::new_1d(UNITS),
            address(&[&qkv]),
            buffer(&qkv),
            buffer(&bias),
            buffer(&regions),
            buffer(&y),
            buffer(&logs),
            call.heads,
            call.windows,
            call.size,
        );
    }
    (y, logs)
}

fn backward(
    call: Call,
    [qkv, bias, regions, logs, grad]: [CubeTensor; 5],
) -> (CubeTensor, CubeTensor) {
    let to_qkv = empty(&qkv, qkv.meta.shape().clone());
    let dots = empty(&qkv, logs.meta.shape().clone());
    let blocks = call.size.blocks();
    let share = CUBES_WANTED.div_ceil((call.heads * blocks) as usize).min(call.all as usize);
    let pairs = bias.meta.shape().num_elements();
    let partials = empty(&qkv, [share, pairs]);
    let width = address(&[&qkv, &partials]);
    unsafe {
        to_queries_kernel::launch_unchecked(
            &qkv.client,
            CubeCount::Static(call.heads, blocks, share as u32),
            CubeDim::new_1d(UNITS),
            width,
            buffer(&qkv),
            buffer(&bias),
            buffer(&regions),
            buffer(&logs),
            buffer(&grad),
            buffer(&to_qkv),
            buffer(&dots),
            buffer(&partials),
            call.all,
            call.windows,
            call.size,
        );
        to_keys_kernel::launch_unchecked(
            &qkv.client,
            call.cubes(),
            CubeDim::new_1d(UNITS),
            width,
            buffer(&qkv),
            buffer(&bias),
            buffer(&regions),
            buffer(&logs),
            buffer(&dots),
            buffer(&grad),
            buffer(&to_qkv),
            call.heads,
            call.windows,
            call.size,
        );
    }
    let to_bias = sum_columns(&partials, share, empty(&bias, bias.meta.shape().clone()));
    (to_qkv, to_bias)
}

impl WindowAttentionOps for CubeBackend {
    fn attend_windows(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        Self::attend_windows_with_logs(qkv, bias, regions).0
    }

    fn attend_windows_with_logs(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("window_attention", &[&qkv, &bias, &regions]);
        let inputs = [qkv, bias, regions].map(into_contiguous);
        match Call::new(&inputs[0], &inputs[1], &inputs[2]) {
            Some(call) => forward(call, inputs),
            None => compose::forward::<Self>(inputs),
        }
    }

    fn attend_windows_backward(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
        logs: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("window_attention", &[&qkv, &bias, &regions, &logs, &grad]);
        let inputs = [qkv, bias, regions, logs, grad].map(into_contiguous);
        match Call::new(&inputs[0], &inputs[1], &inputs[2]) {
            Some(call) => backward(call, inputs),
            None => compose::backward::<Self>(inputs),
        }
    }
}
