//! The gradients of the B-spline from its polynomial pieces.
//!
//! While an intensity moves between two bins, `f` beyond the lower, the kernel is a cubic, and so is
//! what the `4 x 4` cells of a voxel give, along either axis:
//! ```text
//! q(f, g) = sum_(i, j) grad[m + i, n + j] k_i(f) k_j(g) = sum_(p, q) C[m, n, p, q] f^p g^q
//! dL/da = (B - 2R) dq/df        dL/db = (B - 2R) dq/dg
//! ```
//! A cube first computes all `C`: three rows of four for `a` alone, four for `b`. Then a voxel reads
//! three or four vectors instead of 16 numbers, which is what it waits for, and needs no shares.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::Plan;
use super::images::{read, write};
use super::parzen::{clamped, place};

/// `k_i(f)` at tap `i`: its coefficients, the constant first.
const PIECES: [[f32; 4]; 4] = [
    [1.0 / 6.0, -0.5, 0.5, -1.0 / 6.0],
    [2.0 / 3.0, 0.0, -1.0, 0.5],
    [1.0 / 6.0, 0.5, 0.5, -0.5],
    [0.0, 0.0, 0.0, 1.0 / 6.0],
];

pub(in crate::ops) type Row = Vector<f32, Const<4>>;

/// The rows `C[m, n, p, ..]` from power `skipped` of `f` on.
#[cube]
pub(in crate::ops) fn fill(
    rows: &mut Shared<[Row]>,
    grad: &[f32],
    base: usize,
    #[comptime] skipped: u32,
    #[comptime] plan: Plan,
) {
    let side = comptime!(plan.inner() + 1);
    let mut piece = UNIT_POS;
    while piece < side * side {
        let corner = base + (piece / side * comptime!(plan.bins) + piece % side) as usize;
        // Along b, for each of the four rows of cells.
        let mut along = Array::<f32>::new(16usize);
        #[unroll]
        for i in 0..4usize {
            #[unroll]
            for q in 0..4usize {
                let mut sum = 0.0f32;
                #[unroll]
                for j in 0..4usize {
                    sum += grad[corner + comptime!(i * plan.bins as usize + j)]
                        * comptime!(PIECES[j][q]);
                }
                along[comptime!(4 * i + q)] = sum;
            }
        }
        #[unroll]
        for p in skipped..4u32 {
            let mut row = Row::new(0.0f32);
            #[unroll]
            for q in 0..4usize {
                let mut sum = 0.0f32;
                #[unroll]
                for i in 0..4usize {
                    sum += along[comptime!(4 * i + q)] * comptime!(PIECES[i][p as usize]);
                }
                row.insert(q, sum);
            }
            rows[(piece * comptime!(4 - skipped) + comptime!(p - skipped)) as usize] = row;
        }
        piece += comptime!(plan.units);
    }
}

/// A cubic in `g`.
#[cube]
fn cubic(row: Row, g: f32) -> f32 {
    row.extract(0usize)
        + g * (row.extract(1usize) + g * (row.extract(2usize) + g * row.extract(3usize)))
}

/// Its derivative.
#[cube]
fn slope(row: Row, g: f32) -> f32 {
    row.extract(1usize) + g * (2.0f32 * row.extract(2usize) + g * (3.0f32 * row.extract(3usize)))
}

/// `dq/df`, of the rows of the powers 1 to 3 of `f`.
#[cube]
fn steep_a(c1: Row, c2: Row, c3: Row, f: f32, g: f32) -> f32 {
    cubic(c1, g) + f * (2.0f32 * cubic(c2, g) + f * (3.0f32 * cubic(c3, g)))
}

/// `dL/da` of a voxel, from rows that begin with the power 1 of `f`.
#[cube]
pub(in crate::ops) fn to_first(
    rows: &Shared<[Row]>,
    a: f32,
    b: f32,
    #[comptime] plan: Plan,
) -> f32 {
    let row = place(a, plan);
    let column = place(b, plan);
    let piece = ((row.first * comptime!(plan.inner() + 1) + column.first) * 3) as usize;
    let (c1, c2, c3) = (rows[piece], rows[piece + 1], rows[piece + 2]);
    moves(a, plan) * steep_a(c1, c2, c3, row.fraction, column.fraction)
}

/// How much bins move with an intensity: not at all where it was clamped.
#[cube]
fn moves(intensity: f32, #[comptime] plan: Plan) -> f32 {
    let inside = clamped(intensity) == intensity;
    select(inside, comptime!(plan.inner() as f32), 0.0f32)
}

/// The wanted gradients of the voxels of one volume, `CUBE_POS_Y`, of `len` vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn pieces_kernel<N: Size, A: Float, B: Float>(
    a: &[Vector<A, N>],
    b: &[Vector<B, N>],
    weights: &[Vector<f32, N>],
    grad: &[f32],
    to_a: &mut [Vector<f32, N>],
    to_b: &mut [Vector<f32, N>],
    len: usize,
    #[comptime] plan: Plan,
    #[comptime] needs: [bool; 2],
    #[define(A, B)] _kinds: [ElemType; 2],
) {
    let (wants_a, wants_b) = comptime!((needs[0], needs[1]));
    let skipped = comptime!(if needs[1] { 0u32 } else { 1u32 });
    let stored = comptime!(if needs[1] { 4u32 } else { 3u32 });
    let side = comptime!(plan.inner() + 1);
    let mut rows = Shared::<[Row]>::new_slice(comptime!((side * side * stored) as usize));
    fill(&mut rows, grad, CUBE_POS_Y as usize * comptime!(plan.cells() as usize), skipped, plan);
    sync_cube();
    let volume = CUBE_POS_Y as usize * len;
    let step = CUBE_COUNT_X as usize * comptime!(plan.span() as usize);
    let mut start = CUBE_POS_X as usize * comptime!(plan.span() as usize);
    let mut first = Array::<f32>::new(4usize);
    let mut second = Array::<f32>::new(4usize);
    let mut weight = Array::<f32>::new(4usize);
    let mut output_a = Array::<f32>::new(4usize);
    let mut output_b = Array::<f32>::new(4usize);
    while start < len {
        read(a, &mut first, volume, start, len, plan);
        read(b, &mut second, volume, start, len, plan);
        if comptime!(plan.weighted) {
            read(weights, &mut weight, volume, start, len, plan);
        }
        #[unroll]
        for k in 0..4usize {
            let row = place(first[k], plan);
            let column = place(second[k], plan);
            let piece = ((row.first * side + column.first) * stored) as usize;
            let (f, g) = (row.fraction, column.fraction);
            let c1 = rows[piece + comptime!((1 - skipped) as usize)];
            let c2 = rows[piece + comptime!((2 - skipped) as usize)];
            let c3 = rows[piece + comptime!((3 - skipped) as usize)];
            let mut scale = 1.0f32;
            if comptime!(plan.weighted) {
                scale = clamped(weight[k]);
            }
            if wants_a {
                output_a[k] = scale * moves(first[k], plan) * steep_a(c1, c2, c3, f, g);
            }
            if wants_b {
                let c0 = rows[piece];
                let steep =
                    slope(c0, g) + f * (slope(c1, g) + f * (slope(c2, g) + f * slope(c3, g)));
                output_b[k] = scale * moves(second[k], plan) * steep;
            }
        }
        if wants_a {
            write(to_a, &output_a, volume, start, len, plan);
        }
        if wants_b {
            write(to_b, &output_b, volume, start, len, plan);
        }
        start += step;
    }
}
