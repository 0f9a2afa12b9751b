//! Attention within windows of tokens, with a bias for each pair and regions that do not mix.
//!
//! For each window and head, with queries `q`, keys `k` and values `v` of its `T` tokens:
//! ```text
//! s_ij = q_i . k_j / sqrt(head channels) + bias_ij - 100 [region_i != region_j]
//! p_ij = exp(s_ij - l_i)        l_i = log sum_j exp(s_ij)        y_i = sum_j p_ij v_j
//! ```
//! Backward, with `g = dL/dy`, `s` and `p` recomputed from the inputs and `l`:
//! ```text
//! dL/dv_j = sum_i p_ij g_i        dL/ds_ij = p_ij (g_i . v_j - d_i)        d_i = sum_j p_ij g_i . v_j
//! dL/dq_i = sum_j dL/ds_ij k_j / sqrt(..)        dL/dk_j = sum_i dL/ds_ij q_i / sqrt(..)
//! dL/dbias_ij = sum over windows of dL/ds_ij
//! ```
//! On a GPU the matrices `[windows, heads, T, T]` exist only piece by piece in shared memory; what
//! is kept between the passes is `l`. (As in FlashAttention: Dao et al. 2022, arXiv 2205.14135; a
//! window is small enough to be held as a whole, so nothing is rescaled.)

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Shape;

mod autodiff;
#[cfg(feature = "cube")]
mod compose;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// Subtracted from the score of tokens of different regions.
const APART: f64 = 100.0;

/// Backend operations of attention; qkv `[B, T, 3 C]`, bias `[heads, T, T]`, regions `[W, T]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait WindowAttentionOps: Backend {
    /// The result, `[B, T, C]`.
    #[fusion(dtype = qkv, shape = result_shape(qkv, bias, regions))]
    fn attend_windows(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// The result and `l`, `[B, heads, T]`.
    #[fusion(meta = specs)]
    fn attend_windows_with_logs(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradients of qkv and bias.
    #[fusion(meta = backward_specs)]
    fn attend_windows_backward(
        qkv: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        regions: FloatTensor<Self>,
        logs: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

fn result_shape(qkv: &Shape, _bias: &Shape, _regions: &Shape) -> Shape {
    Shape::from([qkv[0], qkv[1], qkv[2] / 3])
}

#[cfg(feature = "cube")]
use burn::backend::fusion::custom::TensorSpec;

#[cfg(feature = "cube")]
fn specs(qkv: &TensorSpec, bias: &TensorSpec, regions: &TensorSpec) -> (TensorSpec, TensorSpec) {
    let logs = Shape::from([qkv.shape[0], bias.shape[0], qkv.shape[1]]);
    let result = result_shape(&qkv.shape, &bias.shape, &regions.shape);
    (TensorSpec::new(result, qkv.dtype), TensorSpec::new(logs, qkv.dtype))
}

#[cfg(feature = "cube")]
fn backward_specs(
    qkv: &TensorSpec,
    bias: &TensorSpec,
    _regions: &TensorSpec,
    _logs: &TensorSpec,
    _grad: &TensorSpec,
) -> (TensorSpec, TensorSpec) {
    (qkv.clone(), bias.clone())
}

/// Attention of the tokens of each window to each other. Differentiable in qkv and bias (first
/// order).
///
/// # Shapes
/// - qkv `[N W, T, 3 C]`: windows of all samples, tokens, and queries, keys and values side by side,
///   each `heads x C / heads`;
/// - bias `[heads, T, T]`: of queries, then of keys;
/// - regions `[W, T]`: a number for each token of each window of a sample; tokens with different
///   numbers score 100 less. One window of equal numbers, `[1, T]`, where there are no regions;
/// - result `[N W, T, C]`.
///
/// # Panics
/// If the shapes disagree, or nothing is left for a head.
pub fn window_attention(qkv: Tensor<3>, bias: Tensor<3>, regions: Tensor<2>) -> Tensor<3> {
    let ([all, tokens, c3], [heads, rows, columns]) = (qkv.dims(), bias.dims());
    let [windows, region_tokens] = regions.dims();
    assert!(
        heads > 0 && c3 > 0 && c3.is_multiple_of(3 * heads),
        "window_attention: {c3} channels of qkv are not three for each of {heads} heads"
    );
    assert!(
        [rows, columns, region_tokens] == [tokens; 3],
        "window_attention: windows of {tokens} tokens, bias {rows}x{columns}, regions of \
         {region_tokens}"
    );
    assert!(
        windows > 0 && all.is_multiple_of(windows),
        "window_attention: {all} windows are not whole samples of {windows}"
    );
    Tensor::from_dispatch(<Dispatch as WindowAttentionOps>::attend_windows(
        qkv.into_dispatch(),
        bias.into_dispatch(),
        regions.into_dispatch(),
    ))
}
