//! Products on tensor cores: factors in TF32, sums in f32, sixteen by eight by eight at a time.
//!
//! A plane of 32 lanes multiplies `[16 x 8]` by `[8 x 8]`. Lane `4 g + t` holds
//! ```text
//! a: (g, t) (g + 8, t) (g, t + 4) (g + 8, t + 4)      b: (t, g) (t + 4, g)
//! sums: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
//! ```
//! (NVIDIA, PTX ISA, `mma.m16n8k8` with `.tf32`.)

// The macros of CubeCL make items of their own, without documentation.
#![allow(missing_docs)]

use cubecl::client::Client;
use cubecl::features::MmaConfig;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::*;

/// Lanes of a plane.
pub const LANES: u32 = 32;

/// A fragment of the left factor, as bits.
pub type Left = Vector<u32, Const<4>>;
/// A fragment of the right factor, as bits.
pub type Right = Vector<u32, Const<2>>;
/// A fragment of the sums.
pub type Sums = Vector<f32, Const<4>>;

/// Whether the device multiplies TF32 so.
pub fn available(client: &Client) -> bool {
    let [a_type, b_type] = [ElemType::Float(FloatKind::TF32); 2];
    let cd_type = ElemType::Float(FloatKind::F32);
    let product = MmaConfig { a_type, b_type, cd_type, m: 16, n: 8, k: 8 };
    client.properties().features.matmul.mma.contains(&product)
}

/// `a b + c`; all lanes of a plane take part.
#[cube]
pub fn add_product(a: Left, b: Right, c: Sums) -> Sums {
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
pub fn rounded(value: f32) -> u32 {
    let bits: u32;
    gpu_asm!(
        "cvt.rna.tf32.f32 {bits}, {value};",
        value = in(_) f32::reinterpret(value), bits = out(_) bits,
        options(pure, nomem),
    );
    bits
}
