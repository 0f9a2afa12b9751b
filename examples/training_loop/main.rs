//! A training loop of one's own with a loss of one's own: VoxelMorph learns to register synthetic brains by the
//! correlation of their edges. `ffdp train` and the crate `ffdp-train` do more (files, checkpoints, reports); this is
//! what it takes without them.
//!
//! ```text
//! L = 1 - mean over edges (grad M . grad F / (|grad M| |grad F| + e)) + lambda mean |grad u|^2
//! ```
//! `cargo run --example training_loop`

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Tensor};
use ffdp::Result;
use ffdp::losses::diffusion;
use ffdp::nets::VoxelMorphConfig;
use ffdp::ops::warp;
use ffdp::synth::{PhantomSettings, pair};

const SIZE: usize = 32;
const LAMBDA: f64 = 0.02;
const LEARNING_RATE: f64 = 2e-3;
/// Edges fainter than this, in intensity a voxel, count less.
const EDGE: f64 = 0.02;

/// Forward differences along x, y, z, `[N, 3, D - 1, H - 1, W - 1]`, of an image of one channel.
fn slope(image: &Tensor<5>) -> Tensor<5> {
    let [_, _, d, h, w] = image.dims();
    let part = |[z, y, x]: [usize; 3]| {
        image.clone().narrow(2, z, d - 1).narrow(3, y, h - 1).narrow(4, x, w - 1)
    };
    let steps = [[0, 0, 1], [0, 1, 0], [1, 0, 0]];
    Tensor::cat(steps.map(|step| part(step) - part([0; 3])).to_vec(), 1)
}

/// How unlike the edges of two images are, `[1]`. Shapes: both `[N, 1, D, H, W]`.
pub fn edges(moved: Tensor<5>, fixed: Tensor<5>) -> Tensor<1> {
    let (m, f) = (slope(&moved), slope(&fixed));
    let length = |slope: &Tensor<5>| {
        (slope.clone() * slope.clone()).sum_dim(1).add_scalar(EDGE * EDGE).sqrt()
    };
    let aligned = (m.clone() * f.clone()).sum_dim(1) / (length(&m) * length(&f));
    aligned.mean().neg().add_scalar(1.0)
}

/// Trains for so many steps and returns the loss of each.
///
/// # Errors
/// None with these settings.
pub fn run(steps: usize) -> Result<Vec<f32>> {
    let device = Device::flex().autodiff();
    let mut network = VoxelMorphConfig::new().init(&device);
    let mut optimizer = AdamConfig::new().with_epsilon(1e-8).init();
    let mut losses = Vec::with_capacity(steps);
    for step in 0..steps {
        // Four pairs in turn.
        let pair = pair(&PhantomSettings::with_size([SIZE; 3]), 10 * (step as u64 % 4))?;
        let [fixed, moving] = [pair.fixed, pair.moving].map(|side| side.image.to_tensor(&device));
        let displacement = network.forward(moving.clone(), fixed.clone());
        let moved = warp(moving, displacement.clone());
        let loss = edges(moved, fixed) + diffusion(displacement).mul_scalar(LAMBDA);
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(LEARNING_RATE, network, gradients);
    }
    println!("{} parameters", network.num_params());
    Ok(losses)
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    for (step, loss) in run(40)?.iter().enumerate().step_by(4) {
        println!("step {step:>3}: loss {loss:.4}");
    }
    Ok(())
}
