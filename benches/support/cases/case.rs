//! What a case is: an operation with its inputs, its floor in bytes and its variants.

use burn::tensor::{Device, Tensor};

use super::super::inputs::{Input, Kind};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The value alone, without autodiff.
    Forward,
    /// The value and the gradients of the tracked inputs, the upstream gradient being ones.
    Both,
}

/// One way to compute an operation.
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// Whether it is ours.
    pub fused: bool,
    /// Memory beyond the inputs with both passes, bytes a voxel, as measured on the CPU: what a
    /// baseline is skipped by when it would not fit.
    pub stored: f64,
    /// The operation.
    pub run: fn(&[Tensor<5>]) -> Tensor<5>,
}

/// An operation.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The fewest bytes a voxel that it must move: forward, and forward with backward.
    pub floor: [f64; 2],
    pub inputs: Vec<Input>,
    /// Ours first.
    pub variants: Vec<Variant>,
}

impl Case {
    /// What is timed of it; an optimiser's step has no gradient.
    pub fn passes(&self) -> &'static [Pass] {
        match self.inputs.iter().any(|input| input.tracked) {
            true => &[Pass::Forward, Pass::Both],
            false => &[Pass::Forward],
        }
    }

    /// The inputs for a pass, on `device` without autodiff.
    pub fn inputs(&self, size: usize, device: &Device, pass: Pass) -> Vec<Tensor<5>> {
        let prepare = |input: &Input| {
            let tensor = input.kind.tensor(size, device);
            match (pass, input.tracked) {
                (Pass::Forward, _) => tensor,
                (Pass::Both, true) => tensor.autodiff().require_grad(),
                (Pass::Both, false) => tensor.autodiff(),
            }
        };
        self.inputs.iter().map(prepare).collect()
    }
}

pub const fn tracked(kind: Kind) -> Input {
    Input { kind, tracked: true }
}

pub const fn plain(kind: Kind) -> Input {
    Input { kind, tracked: false }
}

pub fn fused(name: &'static str, run: fn(&[Tensor<5>]) -> Tensor<5>) -> Variant {
    Variant { name, fused: true, stored: 0.0, run }
}

pub fn burn(name: &'static str, stored: f64, run: fn(&[Tensor<5>]) -> Tensor<5>) -> Variant {
    Variant { name, fused: false, stored, run }
}

pub fn scalar(loss: Tensor<1>) -> Tensor<5> {
    loss.reshape([1, 1, 1, 1, 1])
}
