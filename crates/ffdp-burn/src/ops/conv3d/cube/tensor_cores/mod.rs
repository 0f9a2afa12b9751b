//! The convolution on tensor cores, factors in TF32, sums in f32: an implicit matrix product.
//!
//! ```text
//! forward     sum over (c, k):  [16 outputs x 8 inputs] of w(k)  times  [8 inputs x 8 voxels] of x(. + k)
//! to weight   sum over voxels:  [16 outputs x 8 voxels] of dL/dy  times  [8 voxels x 8 inputs] of x(. + k)
//! ```
//! A cube keeps eight channels of a tile of voxels and of its rim in shared memory. A tap of the
//! kernel is then an offset into it: nothing is unrolled in memory, and a fragment that was read for
//! one row of voxels serves three taps along y. Products are `m16n8k8`; a lane `4 g + t` holds
//!
//! ```text
//! a: (g, t) (g + 8, t) (g, t + 4) (g + 8, t + 4)      b: (t, g) (t + 4, g)
//! sums: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
//! ```
//! Strides of channels in shared memory are such that the 32 lanes read 32 different banks.

use burn_cubecl::tensor::CubeTensor;
use cubecl::features::MmaConfig;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::*;

mod forward;
mod to_weight;

pub(super) use forward::forward;
pub(super) use to_weight::to_weight;

/// Taps of a kernel.
const TAPS: u32 = 27;
/// Rows of a product: outputs.
const ROWS: u32 = 16;
/// Depth of a product in the forward pass, columns in the other: inputs.
const INPUTS: u32 = 8;
/// Lanes of a plane.
const LANES: u32 = 32;

/// A fragment of the left factor, as bits.
type Left = Vector<u32, Const<4>>;
/// A fragment of the right factor, as bits.
type Right = Vector<u32, Const<2>>;
/// A fragment of the sums.
type Sums = Vector<f32, Const<4>>;

/// Whether the device multiplies TF32 so, and reaches all voxels of a channel with 31 bits.
pub(super) fn apply(x: &CubeTensor) -> bool {
    let [a_type, b_type] = [ElemType::Float(FloatKind::TF32); 2];
    let cd_type = ElemType::Float(FloatKind::F32);
    let product = MmaConfig { a_type, b_type, cd_type, m: 16, n: 8, k: 8 };
    let voxels: usize = super::size(x).iter().product();
    voxels < 1 << 31 && x.client.properties().features.matmul.mma.contains(&product)
}

/// `a b + c`; all lanes of a plane take part.
#[cube]
fn add_product(a: Left, b: Right, c: Sums) -> Sums {
    let d: Sums;
    // `reinterpret` reads the variable: an operand that is one would be its address.
    gpu_asm!(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {d}, {a}, {b}, {c};",
        a = in(_) Left::reinterpret(a),
        b = in(_) Right::reinterpret(b),
        c = in(_) Sums::reinterpret(c),
        d = out(_) d,
        options(pure, nomem),
    );
    d
}

/// The nearest TF32, as bits.
#[cube]
fn rounded(value: f32) -> u32 {
    let bits: u32;
    gpu_asm!(
        "cvt.rna.tf32.f32 {bits}, {value};",
        value = in(_) f32::reinterpret(value), bits = out(_) bits,
        options(pure, nomem),
    );
    bits
}
