//! A finished gradient times the upstream gradient, a number that only the device knows.

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use ffdp_kit::launch::{UNITS, address, buffer};
use ffdp_kit::vjp;

/// Enough to keep a large GPU busy, few enough that to start them in vain takes no time.
const CUBES: u32 = 2048;

/// Multiplies `values` by `factor[0]`, in place; by 1 they are not touched.
#[cube(launch_unchecked, address_type = "dynamic")]
fn scale_kernel(values: &mut [f32], factor: &[f32], elements: usize) {
    let factor = factor[0];
    if factor == 1.0f32 {
        terminate!();
    }
    let mut at = ABSOLUTE_POS;
    while at < elements {
        values[at] *= factor;
        at += comptime!((CUBES * UNITS) as usize);
    }
}

/// `factor` `[1]` times a contiguous `gradient`, in its memory unless something else holds that, too.
pub(super) fn scaled(gradient: CubeTensor, factor: CubeTensor) -> CubeTensor {
    if !gradient.can_mut() {
        return vjp::scaled::<CubeBackend>(gradient, factor);
    }
    let elements = gradient.meta.shape().num_elements();
    unsafe {
        scale_kernel::launch_unchecked(
            &gradient.client,
            CubeCount::Static(CUBES, 1, 1),
            CubeDim::new_1d(UNITS),
            address(&[&gradient]),
            buffer(&gradient),
            buffer(&factor),
            elements,
        );
    }
    gradient
}
