//! Tokens of a grid, cut into (shifted) windows and joined again.
//!
//! The grid is padded with zeros at its far ends to a multiple of the window, rolled back by the
//! shift and cut. With `P` the padded extent, `w` the window's side and `s` the shift along an axis:
//! ```text
//! windows[a](i) = tokens(p),  p = (a w + i + s) mod P        0 where p lies in the padding
//! tokens(p) = windows[a](i)                                   each token is in one window
//! ```
//! Each is the adjoint of the other. Composed of Burn's operations it is a padding, a roll axis by
//! axis and a permutation, each with a copy of all tokens; here it is one.

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

/// How a grid of tokens is cut, each along (D, H, W).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowCut {
    /// Extents of the grid.
    pub grid: [usize; 3],
    /// Sides of a window in tokens.
    pub window: [usize; 3],
    /// Tokens by which the padded grid is rolled towards its origin, less than its extent.
    pub shift: [usize; 3],
}

impl WindowCut {
    /// Windows along each axis.
    pub fn counts(&self) -> [usize; 3] {
        std::array::from_fn(|axis| self.grid[axis].div_ceil(self.window[axis]))
    }

    /// Extents of the padded grid.
    pub fn padded(&self) -> [usize; 3] {
        let counts = self.counts();
        std::array::from_fn(|axis| counts[axis] * self.window[axis])
    }

    /// Tokens in a window.
    pub fn tokens(&self) -> usize {
        self.window.iter().product()
    }

    fn windows_shape(&self, tokens: &Shape) -> Shape {
        let windows: usize = self.counts().iter().product();
        Shape::from([tokens[0] * windows, self.tokens(), tokens[4]])
    }

    fn tokens_shape(&self, windows: &Shape) -> Shape {
        let [d, h, w] = self.grid;
        let count: usize = self.counts().iter().product();
        Shape::from([windows[0] / count, d, h, w, windows[2]])
    }

    fn assert_sound(&self) {
        let padded = self.padded_or_zero();
        assert!(
            (0..3).all(|axis| self.grid[axis] > 0 && self.shift[axis] < padded[axis]),
            "windows: {self:?} has an empty side or a shift beyond the grid"
        );
    }

    /// [`WindowCut::padded`], with 0 instead of a division by an empty side.
    fn padded_or_zero(&self) -> [usize; 3] {
        if self.window.contains(&0) { [0; 3] } else { self.padded() }
    }
}

/// Backend operations of the windows; tokens `[N, D, H, W, C]`, windows `[N windows, T, C]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait WindowOps: Backend {
    /// Tokens to windows.
    #[fusion(dtype = tokens, shape = cut.windows_shape(tokens))]
    fn cut_tokens(tokens: FloatTensor<Self>, cut: WindowCut) -> FloatTensor<Self>;

    /// Windows to tokens.
    #[fusion(dtype = windows, shape = cut.tokens_shape(windows))]
    fn join_tokens(windows: FloatTensor<Self>, cut: WindowCut) -> FloatTensor<Self>;
}

/// The windows of a grid of tokens. Differentiable (first order).
///
/// # Shapes
/// tokens `[N, D, H, W, C]`; result `[N windows, tokens of a window, C]`.
///
/// # Panics
/// If the grid is not that of `cut`, or `cut` has an empty side or a shift beyond the grid.
pub fn cut_windows(tokens: Tensor<5>, cut: WindowCut) -> Tensor<3> {
    cut.assert_sound();
    let [_, d, h, w, _] = tokens.dims();
    assert_eq!([d, h, w], cut.grid, "cut_windows: the grid of the tokens");
    Tensor::from_dispatch(<Dispatch as WindowOps>::cut_tokens(tokens.into_dispatch(), cut))
}

/// Undoes [`cut_windows`]; what lies in the padding is dropped. Differentiable (first order).
///
/// # Shapes
/// windows `[N windows, tokens of a window, C]`; result `[N, D, H, W, C]`.
///
/// # Panics
/// If the windows are not those of `cut`, or `cut` has an empty side or a shift beyond the grid.
pub fn join_windows(windows: Tensor<3>, cut: WindowCut) -> Tensor<5> {
    cut.assert_sound();
    let ([all, tokens, _], count) = (windows.dims(), cut.counts().iter().product::<usize>());
    assert!(
        tokens == cut.tokens() && all > 0 && all.is_multiple_of(count),
        "join_windows: {all} windows of {tokens} tokens are not {count} of {} for each sample",
        cut.tokens()
    );
    Tensor::from_dispatch(<Dispatch as WindowOps>::join_tokens(windows.into_dispatch(), cut))
}
