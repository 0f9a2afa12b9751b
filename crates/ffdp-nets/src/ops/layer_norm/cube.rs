//! The normalisation on the GPU: a few units for each token, its channels in their registers.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::LayerNormOps;
use ffdp_kit::cubes::lines_of_cubes;
use ffdp_kit::launch::{UNITS, address, assert_f32, buffer, empty, sum_columns};

/// Cubes of the backward kernel: eight for each of some 130 multiprocessors.
const CUBES_WANTED: usize = 1056;

/// How tokens are given to units.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Plan {
    tokens: u32,
    channels: u32,
    /// Units of a token; a power of two.
    lanes: u32,
}

/// The channels of a token that this unit has: `lane`, `lane + lanes`, ..; zeros beyond the last.
#[cube]
fn bring(values: &[f32], token: u32, plan: &Plan, #[comptime] count: u32) -> Array<f32> {
    let mut own = Array::<f32>::new(comptime!(count as usize));
    #[unroll]
    for k in 0..count {
        let c = UNIT_POS % plan.lanes + k * plan.lanes;
        let mut value = 0.0f32;
        if token < plan.tokens && c < plan.channels {
            value = values[token as usize * plan.channels as usize + c as usize];
        }
        own[k as usize] = value;
    }
    own
}

/// The sum of `value` over the units of a token; each of them gets it.
#[cube]
fn sum_over_token(tree: &mut Shared<[f32]>, value: f32, lanes: u32) -> f32 {
    let lane = UNIT_POS % lanes;
    sync_cube();
    tree[UNIT_POS as usize] = value;
    sync_cube();
    let mut stride = lanes / 2;
    while stride > 0 {
        if lane < stride {
            let other = tree[(UNIT_POS + stride) as usize];
            tree[UNIT_POS as usize] += other;
        }
        sync_cube();
        stride /= 2;
    }
    tree[(UNIT_POS - lane) as usize]
}

/// The sum of `value` over the tokens of a cube; the units of its first token get it.
#[cube]
fn sum_over_tokens(tree: &mut Shared<[f32]>, value: f32, lanes: u32) -> f32 {
    sync_cube();
    tree[UNIT_POS as usize] = value;
    sync_cube();
    let mut stride = 128u32;
    while stride >= lanes {
        if UNIT_POS < stride {
            let other = tree[(UNIT_POS + stride) as usize];
            tree[UNIT_POS as usize] += other;
        }
        sync_cube();
        stride /= 2;
    }
    tree[UNIT_POS as usize]
}

/// Replaces the channels of a token by `n`; gives `1 / sqrt(v + eps)`.
#[cube]
fn normalise(
    tree: &mut Shared<[f32]>,
    values: &mut Array<f32>,
    plan: &Plan,
    epsilon: f32,
    #[comptime] count: u32,
) -> f32 {
    let channels = f32::cast_from(plan.channels);
    let mut sum = 0.0f32;
    #[unroll]
    for k in 0..count {
        sum += values[k as usize];
    }
    let mean = sum_over_token(tree, sum, plan.lanes) / channels;
    let mut squares = 0.0f32;
    #[unroll]
    for k in 0..count {
        let c = UNIT_POS % plan.lanes + k * plan.lanes;
        let d = select(c < plan.channels, values[k as usize] - mean, 0.0f32);
        values[k as usize] = d;
        squares += d * d;
    }
    let variance = sum_over_token(tree, squares, plan.lanes) / channels;
    let scale = 1.0f32 / (variance + epsilon).sqrt();
    #[unroll]
    for k in 0..count {
        values[k as usize] *= scale;
    }
    scale
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_kernel(
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    y: &mut [f32],
    plan: Plan,
    epsilon: f32,
    #[comptime] count: u32,
) {
    let cube = CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X;
    let token = cube * (UNITS / plan.lanes) + UNIT_POS / plan.lanes;
    let mut tree = Shared::<[f32]>::new_slice(256usize);
    let mut values = bring(x, token, &plan, count);
    normalise(&mut tree, &mut values, &plan, epsilon, count);
    #[unroll]
    for k in 0..count {
        let c = UNIT_POS % plan.lanes + k * plan.lanes;
        if token < plan.tokens && c < plan.channels {
            y[token as usize * plan.channels as usize + c as usize] =
                gamma[c as usize] * values[k as usize] + beta[c as usize];
        }
    }
}

/// The gradient of `x`, and those of gamma and beta summed over the tokens of a cube,
/// `[cubes, C]`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn backward_kernel(
    x: &[f32],
    gamma: &[f32],
    grad: &[f32],
    to_x: &mut [f32],
    to_gamma: &mut [f32],
    to_beta: &mut [f32],
    plan: Plan,
    epsilon: f32,
    #[comptime] count: u32,
) {
    let together = UNITS / plan.lanes;
    let channels = f32::cast_from(plan.channels);
    let mut tree = Shared::<[f32]>::new_slice(256usize);
    let mut scales = Array::<f32>::new(comptime!(count as usize));
    let mut gammas = Array::<f32>::new(comptime!(count as usize));
    let mut betas = Array::<f32>::new(comptime!(count as usize));
    #[unroll]
    for k in 0..count {
        let c = UNIT_POS % plan.lanes + k * plan.lanes;
        scales[k as usize] = gamma[min(c, plan.channels - 1) as usize];
        gammas[k as usize] = 0.0f32;
        betas[k as usize] = 0.0f32;
    }
    let mut first = CUBE_POS_X * together;
    while first < plan.tokens {
        let token = first + UNIT_POS / plan.lanes;
        let mut n = bring(x, token, &plan, count);
        let scale = normalise(&mut tree, &mut n, &plan, epsilon, count);
        let g = bring(grad, token, &plan, count);
        let mut sum = 0.0f32;
        let mut products = 0.0f32;
        #[unroll]
        for k in 0..count {
            let h = g[k as usize] * scales[k as usize];
            sum += h;
            products += h * n[k as usize];
            gammas[k as usize] += g[k as usize] * n[k as usize];
            betas[k as usize] += g[k as usize];
        }
        let mean_h = sum_over_token(&mut tree, sum, plan.lanes) / channels;
        let mean_hn = sum_over_token(&mut tree, products, plan.lanes) / channels;
        #[unroll]
        for k in 0..count {
            let c = UNIT_POS % plan.lanes + k * plan.lanes;
            if token < plan.tokens && c < plan.channels {
                let h = g[k as usize] * scales[k as usize];
                to_x[token as usize * plan.channels as usize + c as usize] =
                    scale * (h - mean_h - n[k as usize] * mean_hn);
            }
        }
        first += CUBE_COUNT_X * together;
    }
    #[unroll]
    for k in 0..count {
        let c = UNIT_POS + k * plan.lanes;
        let gamma_sum = sum_over_tokens(&mut tree, gammas[k as usize], plan.lanes);
        let beta_sum = sum_over_tokens(&mut tree, betas[k as usize], plan.lanes);
        if UNIT_POS < plan.lanes && c < plan.channels {
            let at = CUBE_POS_X as usize * plan.channels as usize + c as usize;
            to_gamma[at] = gamma_sum;
            to_beta[at] = beta_sum;
        }
    }
}

/// The sizes of a launch.
struct Grid {
    tokens: usize,
    channels: usize,
    lanes: usize,
    /// Channels of a unit.
    count: usize,
}

impl Grid {
    fn of(x: &CubeTensor) -> Self {
        let shape = x.meta.shape();
        let channels = *shape.last().expect("a tensor has an axis");
        let tokens = shape.num_elements() / channels;
        assert!(
            tokens <= u32::MAX as usize / 2,
            "layer_norm: {tokens} tokens, more than 2^31; split the batch"
        );
        // Four channels a unit where that is enough units for a cube.
        let count = channels.div_ceil(UNITS as usize).next_power_of_two().max(4);
        Self { tokens, channels, lanes: channels.div_ceil(count).next_power_of_two(), count }
    }

    fn plan(&self) -> PlanLaunch {
        PlanLaunch::new(self.tokens as u32, self.channels as u32, self.lanes as u32)
    }

    /// Cubes that hold every token once.
    fn cubes(&self) -> usize {
        self.tokens.div_ceil(UNITS as usize / self.lanes)
    }
}

impl LayerNormOps for CubeBackend {
    fn normalise_tokens(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        assert_f32("layer_norm", &[&x, &gamma, &beta]);
        let [x, gamma, beta] = [x, gamma, beta].map(into_contiguous);
        let grid = Grid::of(&x);
        let y = empty(&x, x.meta.shape().clone());
        unsafe {
            forward_kernel::launch_unchecked(
                &x.client,
                lines_of_cubes(grid.cubes()),
                CubeDim::new_1d(UNITS),
                address(&[&x]),
                buffer(&x),
                buffer(&gamma),
                buffer(&beta),
                buffer(&y),
                grid.plan(),
                epsilon as f32,
                grid.count as u32,
            );
        }
        y
    }

    fn normalise_tokens_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        assert_f32("layer_norm", &[&x, &gamma, &grad]);
        let [x, gamma, grad] = [x, gamma, grad].map(into_contiguous);
        let grid = Grid::of(&x);
        let to_x = empty(&x, x.meta.shape().clone());
        let cubes = grid.cubes().min(CUBES_WANTED);
        let shares = [(); 2].map(|()| empty(&x, [cubes, grid.channels]));
        unsafe {
            backward_kernel::launch_unchecked(
                &x.client,
                CubeCount::Static(cubes as u32, 1, 1),
                CubeDim::new_1d(UNITS),
                address(&[&x, &shares[0]]),
                buffer(&x),
                buffer(&gamma),
                buffer(&grad),
                buffer(&to_x),
                buffer(&shares[0]),
                buffer(&shares[1]),
                grid.plan(),
                epsilon as f32,
                grid.count as u32,
            );
        }
        let [to_gamma, to_beta] =
            shares.map(|share| sum_columns(&share, cubes, empty(&x, [grid.channels])));
        (to_x, to_gamma, to_beta)
    }
}
