//! The step on the GPU: a unit for each element, in place where nothing else holds the memory.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use cubecl::prelude::*;

use super::{AmsGradConstants, AmsGradOps};
use ffdp_kit::cubes::lines_of_cubes;
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, writable};

#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Constants {
    beta_mean: f32,
    beta_square: f32,
    /// `1 - beta`, rounded once.
    weight_mean: f32,
    weight_square: f32,
    rate: f32,
    correction: f32,
    epsilon: f32,
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn step_kernel(
    parameter: &mut [f32],
    gradient: &[f32],
    mean: &mut [f32],
    square: &mut [f32],
    largest: &mut [f32],
    count: u32,
    constants: Constants,
) {
    let at = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize) * UNITS as usize
        + UNIT_POS as usize;
    // Not the length of a slice: that is of the memory, which may be longer than a tensor.
    if at >= count as usize {
        terminate!();
    }
    let g = gradient[at];
    let m = constants.beta_mean * mean[at] + constants.weight_mean * g;
    let v = constants.beta_square * square[at] + constants.weight_square * g * g;
    let w = max(largest[at], v);
    mean[at] = m;
    square[at] = v;
    largest[at] = w;
    parameter[at] -= constants.rate * m / ((constants.correction * w).sqrt() + constants.epsilon);
}

impl AmsGradOps for CubeBackend {
    fn amsgrad_step(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        largest: FloatTensor<Self>,
        constants: AmsGradConstants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("amsgrad", &[&parameter, &gradient, &mean, &square, &largest]);
        let gradient = burn_cubecl::kernel::into_contiguous(gradient);
        let [parameter, mean, square, largest] = [parameter, mean, square, largest].map(writable);
        let count = parameter.meta.shape().num_elements();
        assert!(count <= u32::MAX as usize, "amsgrad: {count} elements, more than 2^32 - 1");
        let cubes = count.div_ceil(UNITS as usize).max(1);
        let AmsGradConstants { beta: [b1, b2], rate, correction, epsilon } = constants;
        let [b1, b2, w1, w2, rate, correction, epsilon] =
            [b1, b2, 1.0 - b1, 1.0 - b2, rate, correction, epsilon].map(|value| value as f32);
        unsafe {
            step_kernel::launch_unchecked(
                &parameter.client,
                lines_of_cubes(cubes),
                CubeDim::new_1d(UNITS),
                address(&[&parameter]),
                buffer(&parameter),
                buffer(&gradient),
                buffer(&mean),
                buffer(&square),
                buffer(&largest),
                count as u32,
                ConstantsLaunch::new(b1, b2, w1, w2, rate, correction, epsilon),
            );
        }
        (parameter, mean, square, largest)
    }
}
