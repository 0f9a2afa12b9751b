//! The bias of attention within a window, from a table with a row for each relative position.
//!
//! For tokens `i`, `j` of a window of sides `w` and their offset `(a, b, c) = i - j`:
//! ```text
//! bias[h](i, j) = table[row(a, b, c), h]
//! row(a, b, c) = ((a + wd - 1)(2 wh - 1) + b + wh - 1)(2 ww - 1) + c + ww - 1
//! dL/dtable[row(a, b, c), h] = sum over the pairs i - j = (a, b, c) of dL/dbias[h](i, j)
//! ```
//! Why not a selection of rows: its gradient in Burn 0.22 adds the `T^2` rows one after the other, 30
//! ms a table on an H200. Here each row of the table gathers its own pairs, at most `T`.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Shape;

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Backend operations of the bias; `window` along (D, H, W).
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait PositionBiasOps: Backend {
    /// `[heads, T, T]` from the table `[rows, heads]`.
    #[fusion(dtype = table, shape = bias_shape(table, *window))]
    fn spread_positions(table: FloatTensor<Self>, window: [usize; 3]) -> FloatTensor<Self>;

    /// The gradient of the table from that of the bias.
    #[fusion(dtype = grad, shape = table_shape(grad, *window))]
    fn gather_positions(grad: FloatTensor<Self>, window: [usize; 3]) -> FloatTensor<Self>;
}

/// Rows of the table of a window.
fn rows(window: [usize; 3]) -> usize {
    window.iter().map(|side| 2 * side - 1).product()
}

fn bias_shape(table: &Shape, window: [usize; 3]) -> Shape {
    let tokens = window.iter().product();
    Shape::from([table[1], tokens, tokens])
}

fn table_shape(grad: &Shape, window: [usize; 3]) -> Shape {
    Shape::from([rows(window), grad[0]])
}

/// The bias of each pair of tokens. Differentiable (first order).
///
/// # Shapes
/// table `[(2 wd - 1)(2 wh - 1)(2 ww - 1), heads]`, window (D, H, W); result `[heads, T, T]` of
/// queries, then of keys, `T = wd wh ww`.
///
/// # Panics
/// If the table has another number of rows, or a side is 0.
pub fn position_bias(table: Tensor<2>, window: [usize; 3]) -> Tensor<3> {
    assert!(!window.contains(&0), "position_bias: the window {window:?} has an empty side");
    let (found, expected) = (table.dims()[0], rows(window));
    assert_eq!(found, expected, "position_bias: rows of the table for a window of {window:?}");
    let table = table.into_dispatch();
    Tensor::from_dispatch(<Dispatch as PositionBiasOps>::spread_positions(table, window))
}
