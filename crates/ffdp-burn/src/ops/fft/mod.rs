//! The Fourier transform of real volumes, for operators that are diagonal in it.
//!
//! ```text
//! X(k) = sum_p x(p) exp(-2 pi i k p / n)     along each axis     x = 1 / (n_x n_y n_z) sum_k X(k) exp(+..)
//! ```
//! The spectrum of a real volume is known from half of it: `W / 2 + 1` modes along x. Real and imaginary parts are
//! planes of their own, so that neighbouring units of a GPU read neighbouring numbers.
//!
//! On the CPU any size (`realfft`); on the GPU axes whose lengths are products of 2, 3, 5 and 7, by Stockham's
//! transform in shared memory ([`smooth_size`] is the next such length). Sources: Cooley and Tukey 1965; Govindaraju
//! et al., High performance discrete Fourier transforms on graphics processors, 2008.

use burn::Tensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};

mod autodiff;
#[cfg(feature = "cube")]
pub(crate) mod cube;
pub(crate) mod flex;
#[cfg(test)]
mod tests;

/// Backend operations; images `[N, C, D, H, W]`, spectra `[N, 2 C, D, H, W / 2 + 1]`.
#[backend_extension(Cube: cfg(feature = "cube"), Flex, Autodiff, Fusion: cfg(feature = "cube"))]
pub trait FftOps: Backend {
    /// The modes of a real volume.
    #[fusion(dtype = image, shape = burn::tensor::Shape::from(spectrum_dims(dims_of(image))))]
    fn fft_3d(image: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The real volume of `width` voxels along x with these modes.
    #[fusion(dtype = spectrum, shape = burn::tensor::Shape::from(image_dims(dims_of(spectrum), *width)))]
    fn inverse_fft_3d(spectrum: FloatTensor<Self>, width: usize) -> FloatTensor<Self>;

    /// The modes of rows.
    #[fusion(dtype = image, shape = burn::tensor::Shape::from(spectrum_dims(dims_of(image))))]
    fn fft_rows_3d(image: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Real rows of `width` voxels with these modes, times `scale`.
    #[fusion(dtype = spectrum, shape = burn::tensor::Shape::from(image_dims(dims_of(spectrum), *width)))]
    fn inverse_fft_rows_3d(
        spectrum: FloatTensor<Self>,
        width: usize,
        scale: f64,
    ) -> FloatTensor<Self>;

    /// Complex lines along y (axis 3) or z (axis 2), not scaled.
    #[fusion(dtype = spectrum, shape = spectrum)]
    fn fft_lines_3d(
        spectrum: FloatTensor<Self>,
        axis: usize,
        direction: Direction,
    ) -> FloatTensor<Self>;
}

/// Which way a transform goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the modes.
    Forward,
    /// From the modes.
    Inverse,
}

/// The dimensions of a shape of five axes.
pub(crate) fn dims_of(shape: &burn::tensor::Shape) -> [usize; 5] {
    [0, 1, 2, 3, 4].map(|axis| shape[axis])
}

/// Those of the spectrum of a volume.
pub(crate) fn spectrum_dims([n, c, d, h, w]: [usize; 5]) -> [usize; 5] {
    [n, 2 * c, d, h, w / 2 + 1]
}

/// Those of the volume of a spectrum.
pub(crate) fn image_dims([n, c, d, h, _]: [usize; 5], width: usize) -> [usize; 5] {
    [n, c / 2, d, h, width]
}

/// The modes of real volumes. Not differentiable ([`spectral`](crate::ops::spectral()) is).
///
/// # Shapes
/// image `[N, C, D, H, W]`; result `[N, 2 C, D, H, W / 2 + 1]`: of each channel the real, then the imaginary part.
///
/// # Errors of the result
/// In f32 some 3e-7 of the largest mode at 256^3.
///
/// # Panics
/// If an axis is empty; on a GPU if the length of an axis has a prime factor above 7 or is longer than its shared
/// memory holds; if the tensor is on the autodiff tape.
pub fn fft(image: Tensor<5>) -> Tensor<5> {
    let dims = image.dims();
    assert!(!dims.contains(&0), "fft: an axis is empty, got {dims:?}");
    Tensor::from_dispatch(<Dispatch as FftOps>::fft_3d(image.into_dispatch()))
}

/// The real volumes with these modes, of which those that a real volume cannot have (imaginary parts of the mode 0
/// and of half the sampling frequency along x) are left out. Not differentiable.
///
/// # Shapes
/// spectrum `[N, 2 C, D, H, width / 2 + 1]`; result `[N, C, D, H, width]`.
///
/// # Panics
/// As [`fft`], and if the width does not fit the spectrum.
pub fn inverse_fft(spectrum: Tensor<5>, width: usize) -> Tensor<5> {
    check_modes("inverse_fft", spectrum.dims(), width);
    Tensor::from_dispatch(<Dispatch as FftOps>::inverse_fft_3d(spectrum.into_dispatch(), width))
}

/// The modes of the rows of real volumes, where no other axis is transformed: the first step of [`fft`], for volumes
/// of which each device has a part. Not differentiable.
///
/// # Shapes
/// image `[N, C, D, H, W]`; result `[N, 2 C, D, H, W / 2 + 1]`, as of [`fft`].
///
/// # Panics
/// As [`fft`].
pub fn fft_rows(image: Tensor<5>) -> Tensor<5> {
    let dims = image.dims();
    assert!(!dims.contains(&0), "fft_rows: an axis is empty, got {dims:?}");
    Tensor::from_dispatch(<Dispatch as FftOps>::fft_rows_3d(image.into_dispatch()))
}

/// The real rows with these modes times `scale`: the last step of [`inverse_fft`], which scales by one over the
/// number of voxels. Not differentiable.
///
/// # Shapes
/// spectrum `[N, 2 C, D, H, width / 2 + 1]`; result `[N, C, D, H, width]`.
///
/// # Panics
/// As [`inverse_fft`].
pub fn inverse_fft_rows(spectrum: Tensor<5>, width: usize, scale: f64) -> Tensor<5> {
    check_modes("inverse_fft_rows", spectrum.dims(), width);
    let spectrum = spectrum.into_dispatch();
    Tensor::from_dispatch(<Dispatch as FftOps>::inverse_fft_rows_3d(spectrum, width, scale))
}

/// The transform of a spectrum along y (`axis` 3) or z (2), not scaled either way. Not differentiable.
///
/// # Shapes
/// spectrum and result `[N, 2 C, D, H, W / 2 + 1]`.
///
/// # Panics
/// As [`fft`], and for another axis or an odd number of parts.
pub fn fft_lines(spectrum: Tensor<5>, axis: usize, direction: Direction) -> Tensor<5> {
    let dims = spectrum.dims();
    assert!(
        !dims.contains(&0) && dims[1].is_multiple_of(2) && (axis == 2 || axis == 3),
        "fft_lines: a spectrum [N, 2 C, D, H, W / 2 + 1] along axis 2 or 3, got {dims:?} along {axis}"
    );
    let spectrum = spectrum.into_dispatch();
    Tensor::from_dispatch(<Dispatch as FftOps>::fft_lines_3d(spectrum, axis, direction))
}

/// That a spectrum is one of `width` voxels along x.
fn check_modes(op: &str, dims: [usize; 5], width: usize) {
    assert!(
        !dims.contains(&0) && dims[1].is_multiple_of(2) && width > 0 && dims[4] == width / 2 + 1,
        "{op}: a width of {width} voxels needs a spectrum [N, 2 C, D, H, {}], got {dims:?}",
        width / 2 + 1
    );
}

/// The smallest product of 2, 3, 5 and 7 that is not below `size`, which is not 0.
pub fn smooth_size(size: usize) -> usize {
    (size..).find(|&n| radices(n).is_some()).expect("a power of two is not far")
}

/// The lengths of the transforms that one of `n` is made of, the longest first: 8, 7, 5, 4, 3, 2. `None` if other
/// factors are left.
pub(crate) fn radices(mut n: usize) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for radix in [7, 5, 3, 8, 4, 2] {
        while n > 0 && n.is_multiple_of(radix) {
            found.push(radix);
            n /= radix;
        }
    }
    (n == 1).then_some(found)
}
