//! Local normalised cross-correlation by the means of boxes, as VoxelMorph computes it.

use burn::Tensor;
use burn::tensor::TensorData;
use burn::tensor::module::{avg_pool2d, conv3d};
use burn::tensor::ops::{AvgPoolOptions, ConvOptions};

use crate::ops::{GradientMode, LnccFloor, LnccOptions};

/// How the means of the windows are taken.
///
/// Differences of cumulative sums along each axis would take fewer operations still, but in single
/// precision they lose a digit for every tenfold length of the axis, before the variances cancel
/// two more; that is why they are not offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BoxFilter {
    /// One convolution with `w^3` ones, as in VoxelMorph.
    #[default]
    Conv3d,
    /// Three poolings, one along each axis. They stay in f32, where convolutions on a GPU may round to TF32, which is
    /// too coarse for the variances: differences of nearly equal means.
    Separable,
}

impl BoxFilter {
    fn mean(self, x: Tensor<5>, window: usize) -> Tensor<5> {
        match self {
            Self::Separable => {
                let [n, c, d, h, w] = x.dims();
                let rows = pool(x.reshape([n * c * d, 1, h, w]), [1, window]);
                let planes = pool(rows, [window, 1]).reshape([n * c, 1, d, h * w]);
                pool(planes, [window, 1]).reshape([n, c, d, h, w])
            }
            Self::Conv3d => {
                let weights = vec![(window as f64).powi(-3); window.pow(3)];
                convolve_with(x, weights, [window; 3])
            }
        }
    }
}

/// The means of windows of these extents, zeros outside.
fn pool(x: Tensor<4>, window: [usize; 2]) -> Tensor<4> {
    let shape = x.dims();
    let options = AvgPoolOptions::new(window)
        .with_stride([1; 2])
        .with_padding(window.map(|extent| extent / 2))
        .with_count_include_pad(true);
    dense(avg_pool2d(x, options), shape)
}

/// The same values as a plain array of this shape. Convolutions and poolings on a GPU return channels that lie last in
/// memory; where there is one channel, operations that Burn 0.22.1 fuses with that read wrong values.
fn dense<const D: usize>(x: Tensor<D>, shape: [usize; D]) -> Tensor<D> {
    x.flatten::<1>(0, D as isize - 1).reshape(shape)
}

/// Local normalised cross-correlation loss; see [`crate::ops::lncc()`].
///
/// Five filtered volumes and about ten products of them are stored for the backward pass.
///
/// # Shapes
/// moved, fixed `[N, C, D, H, W]`; result `[1]`.
///
/// # Panics
/// If the approximate gradient is asked for: autodiff gives the exact one.
pub fn lncc(
    moved: Tensor<5>,
    fixed: Tensor<5>,
    options: &LnccOptions,
    filter: BoxFilter,
) -> Tensor<1> {
    assert!(
        options.gradient == GradientMode::Exact,
        "baseline lncc: autodiff gives the exact gradient, not {:?}",
        options.gradient
    );
    let mean = |x: Tensor<5>| filter.mean(x, options.window);
    let (f, m) = (mean(fixed.clone()), mean(moved.clone()));
    let ff = mean(fixed.clone() * fixed.clone());
    let mm = mean(moved.clone() * moved.clone());
    let fm = mean(fixed * moved);
    let a = fm - f.clone() * m.clone();
    let b = (ff - f.clone() * f).clamp_min(0.0);
    let c = (mm - m.clone() * m).clamp_min(0.0);
    let n = match options.floor {
        LnccFloor::Denominator => a.clone() * a / (b * c).add_scalar(options.epsilon),
        LnccFloor::Common => {
            let e = options.epsilon.sqrt();
            a.add_scalar(e).powi_scalar(2) / (b.add_scalar(e) * c.add_scalar(e))
        }
    };
    n.mean().neg().add_scalar(1.0)
}

/// Convolution of every channel along one dimension, zeros outside.
pub(super) fn convolve(x: Tensor<5>, kernel: Vec<f64>, dim: usize) -> Tensor<5> {
    let mut size = [1; 3];
    size[dim - 2] = kernel.len();
    convolve_with(x, kernel, size)
}

/// Convolution of every channel with a kernel of odd extents, zeros outside.
fn convolve_with(x: Tensor<5>, kernel: Vec<f64>, size: [usize; 3]) -> Tensor<5> {
    let [n, c, d, h, w] = x.dims();
    let kernel = TensorData::new(kernel, [1, 1, size[0], size[1], size[2]]);
    let kernel = Tensor::<5>::from_data(kernel, (&x.device(), x.dtype()));
    let options = ConvOptions::new([1; 3], size.map(|s| s / 2), [1; 3], 1);
    // Channels as batch entries: one filter serves all.
    dense(conv3d(x.reshape([n * c, 1, d, h, w]), kernel, None, options), [n, c, d, h, w])
}
