//! Operators that are diagonal in the modes of a periodic volume: a regularisation of velocities, its inverse, the
//! projection on fields without divergence, smoothing, and volumes of other sizes.
//!
//! With `k` the wavenumbers in radians per mm, `k = 2 pi m / (n h)` for mode `m` of `n` voxels of `h` mm:
//! ```text
//! A       = beta |k|^2 I + gamma k k^T          beta / 2 |grad v|^2 + gamma / 2 (div v)^2
//! A^-1    = (I - gamma k k^T / (beta |k|^2 + gamma |k|^2)) / (beta |k|^2),   A^-1 = 1 / beta for the mean
//! Leray   = I - k k^T / |k|^2
//! smooth  = exp(-sigma^2 |k|^2 / 2)
//! ```
//! `k k^T` comes of first derivatives, which half the sampling frequency of an even size has not: there `k` counts as
//! 0. Wavenumbers are computed in f64. All are symmetric, so each is its own gradient. Sources: Mang and Biros 2016;
//! Brunn et al., Fast GPU 3D diffeomorphic image registration, 2021.

use std::f64::consts::TAU;
use std::ops::Range;

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

use super::fft::{fft, inverse_fft};

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
mod flex;
#[cfg(test)]
mod tests;

/// What the modes of a volume are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Symbol {
    /// `A` of the module: `beta` weighs gradients, `gamma` the divergence.
    Regularizer {
        /// `beta`, positive.
        beta: f64,
        /// `gamma`, not negative.
        gamma: f64,
    },
    /// `A^-1`; the mean, of which `A` knows nothing, is divided by `beta`.
    InverseRegularizer {
        /// `beta`, positive.
        beta: f64,
        /// `gamma`, not negative.
        gamma: f64,
    },
    /// The projection on fields without divergence.
    Leray,
    /// Convolution with a Gaussian.
    Smooth {
        /// Its standard deviation.
        sigma_mm: f64,
    },
}

impl Symbol {
    /// `[a, b]` of `a I + b k k^T`, from `|k|^2` with all modes, and without those that odd derivatives drop.
    pub(crate) fn factors(self, all: f64, odd: f64) -> [f64; 2] {
        match self {
            Self::Regularizer { beta, gamma } => [beta * all, gamma],
            Self::InverseRegularizer { beta, .. } if all == 0.0 => [1.0 / beta, 0.0],
            Self::InverseRegularizer { beta, gamma } => {
                let stiff = beta * all;
                [1.0 / stiff, -gamma / (stiff * (stiff + gamma * odd))]
            }
            Self::Leray if odd == 0.0 => [1.0, 0.0],
            Self::Leray => [1.0, -1.0 / odd],
            Self::Smooth { sigma_mm } => [(-0.5 * sigma_mm * sigma_mm * all).exp(), 0.0],
        }
    }

    /// Whether components are mixed.
    fn is_of_vectors(self) -> bool {
        !matches!(self, Self::Smooth { .. })
    }
}

/// The wavenumbers of some of the `n` modes along an axis: of all, and of those that odd derivatives have.
fn wavenumbers(n: usize, modes: Range<usize>, voxel_mm: f64) -> [Vec<f64>; 2] {
    let of = |mode: usize| {
        let signed = if 2 * mode > n { mode as f64 - n as f64 } else { mode as f64 };
        TAU * signed / (n as f64 * voxel_mm)
    };
    let odd = |mode: usize| if 2 * mode == n { 0.0 } else { of(mode) };
    [modes.clone().map(of).collect(), modes.map(odd).collect()]
}

/// Backend operation on volumes `[N, C, D, H, W]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait SpectralOps: Backend {
    /// The volume with its modes multiplied; `voxel_mm` (x, y, z).
    #[fusion(dtype = field, shape = field)]
    fn spectral_3d(
        field: FloatTensor<Self>,
        symbol: Symbol,
        voxel_mm: [f64; 3],
    ) -> FloatTensor<Self>;

    /// Modes, multiplied; a block of them.
    #[fusion(dtype = modes, shape = modes)]
    fn multiply_modes_3d(
        modes: FloatTensor<Self>,
        symbol: Symbol,
        voxel_mm: [f64; 3],
        block: ModeBlock,
    ) -> FloatTensor<Self>;
}

/// Which modes of a volume a tensor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModeBlock {
    /// Voxels (D, H, W) of the volume.
    pub size: [usize; 3],
    /// The first mode along z and y; along x it has all.
    pub first: [usize; 2],
}

impl ModeBlock {
    /// All modes of a volume.
    pub fn all(size: [usize; 3]) -> Self {
        Self { size, first: [0; 2] }
    }

    /// The wavenumbers along x, y, z of a block of `[d, h]` lines: of all modes, and of those that odd derivatives have.
    pub(crate) fn wavenumbers(self, [d, h]: [usize; 2], voxel_mm: [f64; 3]) -> [[Vec<f64>; 2]; 3] {
        let [depth, height, width] = self.size;
        let [z, y] = self.first;
        [(width, 0..width / 2 + 1, 0), (height, y..y + h, 1), (depth, z..z + d, 2)]
            .map(|(n, modes, axis)| wavenumbers(n, modes, voxel_mm[axis]))
    }
}

/// The modes of a periodic volume multiplied by a symbol. Differentiable (first order).
///
/// # Shapes
/// field `[N, 3, D, H, W]`, components (x, y, z); any number of channels for [`Symbol::Smooth`]; `voxel_mm` (x, y, z);
/// result as the field, in its unit times that of the symbol (per mm^2 for the regulariser).
///
/// # Errors of the result
/// f32 against f64: 1e-6 of the largest value.
///
/// # Panics
/// If there are not 3 components, a voxel or `beta` is not positive, `gamma` or `sigma_mm` is negative; on a GPU for
/// lengths that [`fft`] refuses there.
pub fn spectral(field: Tensor<5>, symbol: Symbol, voxel_mm: [f64; 3]) -> Tensor<5> {
    check("spectral", field.dims(), 1, symbol, voxel_mm);
    let field = field.into_dispatch();
    Tensor::from_dispatch(<Dispatch as SpectralOps>::spectral_3d(field, symbol, voxel_mm))
}

/// [`spectral`] in the middle: modes of a volume, or of a part of one, multiplied by a symbol. Not differentiable.
///
/// # Shapes
/// modes `[N, 6, D, H, W / 2 + 1]` of a field, as [`fft`] gives them, any number of channels for [`Symbol::Smooth`];
/// of those that `block` says. Result as the modes.
///
/// # Panics
/// As [`spectral`], and if the modes are not in the block's volume.
pub fn multiply_modes(
    modes: Tensor<5>,
    symbol: Symbol,
    voxel_mm: [f64; 3],
    block: ModeBlock,
) -> Tensor<5> {
    let dims = modes.dims();
    check("multiply_modes", dims, 2, symbol, voxel_mm);
    let ([depth, height, width], [z, y]) = (block.size, block.first);
    assert!(
        z + dims[2] <= depth && y + dims[3] <= height && dims[4] == width / 2 + 1,
        "multiply_modes: {dims:?} are not modes of {block:?}"
    );
    let modes = modes.into_dispatch();
    Tensor::from_dispatch(<Dispatch as SpectralOps>::multiply_modes_3d(
        modes, symbol, voxel_mm, block,
    ))
}

/// `parts` of a channel.
fn check(op: &str, dims: [usize; 5], parts: usize, symbol: Symbol, voxel_mm: [f64; 3]) {
    assert!(!dims.contains(&0), "{op}: an axis is empty, got {dims:?}");
    let fits = match symbol.is_of_vectors() {
        true => dims[1] == 3 * parts,
        false => dims[1].is_multiple_of(parts),
    };
    assert!(fits, "{op}: {symbol:?} takes a field [N, {}, D, H, W], got {dims:?}", 3 * parts);
    assert!(
        voxel_mm.iter().all(|mm| *mm > 0.0 && mm.is_finite()),
        "{op}: voxels must have a positive size, got {voxel_mm:?} mm"
    );
    let is_valid = match symbol {
        Symbol::Regularizer { beta, gamma } | Symbol::InverseRegularizer { beta, gamma } => {
            beta > 0.0 && gamma >= 0.0
        }
        Symbol::Smooth { sigma_mm } => sigma_mm >= 0.0,
        Symbol::Leray => true,
    };
    assert!(is_valid, "{op}: beta must be positive, gamma and sigma not negative: {symbol:?}");
}

/// A periodic volume at another size, by the modes that both sizes have: the lowest, without half the sampling
/// frequency of the smaller size. The first voxels coincide. Not differentiable.
///
/// From a size to a smaller one and back is a projection; the one is the other's transpose, times the ratio of the
/// numbers of voxels.
///
/// # Shapes
/// volume `[N, C, D, H, W]`; `size` (D, H, W); result `[N, C, size]`.
///
/// # Panics
/// As [`fft`].
pub fn spectral_resize(volume: Tensor<5>, size: [usize; 3]) -> Tensor<5> {
    let [n, c, d, h, w] = volume.dims();
    if [d, h, w] == size {
        return volume;
    }
    let ratio = size.iter().product::<usize>() as f64 / (d * h * w) as f64;
    let mut modes = fft(volume).mul_scalar(ratio);
    for (axis, (old, new)) in [(2, (d, size[0])), (3, (h, size[1])), (4, (w, size[2]))] {
        modes = with_modes(modes, axis, old, new);
    }
    let dims = modes.dims();
    let [_, _, depth, height, width] = [n, c, size[0], size[1], size[2]];
    assert_eq!(dims, [n, 2 * c, depth, height, width / 2 + 1], "all axes were resized");
    inverse_fft(modes, size[2])
}

/// A spectrum of `old` voxels along an axis (2, 3 or 4) as one of `new`, not scaled: what [`spectral_resize`] does
/// between the transforms. Along x there are `old / 2 + 1` modes, `new / 2 + 1` of the result.
pub fn with_modes(modes: Tensor<5>, axis: usize, old: usize, new: usize) -> Tensor<5> {
    if old == new {
        return modes;
    }
    // Modes -low..=low are below half of both sampling frequencies.
    let low = (old.min(new) - 1) / 2;
    let dims = modes.dims();
    let zeros = |count: usize| {
        let mut dims = dims;
        dims[axis] = count;
        Tensor::zeros(dims, (&modes.device(), modes.dtype()))
    };
    let mut parts = vec![modes.clone().narrow(axis, 0, low + 1)];
    if axis == 4 {
        parts.extend((new / 2 > low).then(|| zeros(new / 2 - low)));
    } else {
        parts.extend((new > 2 * low + 1).then(|| zeros(new - 2 * low - 1)));
        parts.extend((low > 0).then(|| modes.clone().narrow(axis, old - low, low)));
    }
    Tensor::cat(parts, axis)
}
