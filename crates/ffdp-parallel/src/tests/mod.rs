//! Sharded equals whole: every operation, on one to eight shards of random sizes, cut evenly and
//! unevenly along every axis, against the serial operation on the whole.
//!
//! The shards are virtual, all on the CPU.

mod adam;
mod alignment;
mod chain;
mod deform;
mod halos;
mod hosts;
mod layouts;
mod levels;
mod losses;
mod objective;
mod padding;
mod periodic;
mod planning;
#[cfg(feature = "cube")]
mod rest;
mod ring;
mod smoothing;

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::alignment::*;
use crate::chain::*;
use crate::collective::*;
use crate::deform::*;
use crate::halo::*;
use crate::hosts::*;
use crate::ops::*;
use crate::periodic::*;
use crate::planner::*;
use crate::ring::*;
use ffdp_kit::testing::{assert_close, tensor, to_f64, uniform};

/// f64 sums in another order.
const F64_ROUNDING: f64 = 1e-12;
/// The bound for f32: sums in another order, positions rounded relative to another origin.
const F32_ROUNDING: f64 = 1e-5;

/// The precisions and what is allowed in each.
const PRECISIONS: [(DType, f64); 2] = [(DType::F64, F64_ROUNDING), (DType::F32, F32_ROUNDING)];

const AXES: [Axis; 3] = [Axis::X, Axis::Y, Axis::Z];

/// A random number in `low..=high`, the same for the same seed.
fn number(low: usize, high: usize, seed: u64) -> usize {
    low + uniform(1, 0.0, (high - low + 1) as f64, seed)[0] as usize
}

/// Layouts of one to eight shards along every axis: sizes that no count divides, cut evenly for odd
/// counts and anyhow, down to single planes, for even ones.
fn layouts(seed: u64) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (a, axis) in AXES.into_iter().enumerate() {
        for shards in 1..=8 {
            let seed = 1000 * seed + 100 * a as u64 + 10 * shards as u64;
            let mut size = [0, 1, 2].map(|i| number(5, 9, seed + i));
            let extent = &mut size[axis.dim() - 2];
            *extent = number(11, 19, seed + 3);
            if *extent % shards == 0 && shards > 1 {
                *extent += 1;
            }
            let extent = *extent;
            layouts.push(match shards % 2 {
                1 => Layout::balanced(size, axis, shards).unwrap(),
                _ => Layout::uneven(size, axis, &parts(extent, shards, seed + 4)).unwrap(),
            });
        }
    }
    layouts
}

/// Random positive parts of `extent`, at least one of them 1.
fn parts(extent: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut parts = vec![1; count];
    for i in 0..extent - count {
        // Never the second one: it stays thin.
        let k = number(0, count - 1, seed + i as u64);
        parts[if k == 1 { 0 } else { k }] += 1;
    }
    parts
}

/// A tensor of random values, whole.
fn random(
    channels: usize,
    size: [usize; 3],
    range: [f64; 2],
    dtype: DType,
    seed: u64,
) -> Tensor<5> {
    let [d, h, w] = size;
    let batch = 2;
    let values = uniform(batch * channels * d * h * w, range[0], range[1], seed);
    tensor(&values, [batch, channels, d, h, w], &Device::flex(), dtype)
}

fn mesh(layout: &Layout) -> DeviceMesh {
    DeviceMesh::new(&[Device::flex()], layout.count()).unwrap()
}

fn split(whole: &Tensor<5>, layout: &Layout) -> Sharded {
    Sharded::from_tensor(whole.clone(), layout, &mesh(layout))
}

fn whole(sharded: &Sharded) -> Tensor<5> {
    sharded.gather(&Device::flex())
}

fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u64> {
    to_f64(tensor).into_iter().map(f64::to_bits).collect()
}

/// A tensor on the tape.
fn tracked<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    tensor.clone().autodiff().require_grad()
}

/// A number of which every gradient entry differs: the sum of the values times weights.
fn weighted_sum(values: Tensor<5>, weights: &Tensor<5>) -> Tensor<1> {
    (values * weights.clone().autodiff()).sum()
}
