//! Fourier transforms on the GPU: a cube transforms several lines by Stockham's method, one stage a radix, without a pass
//! over memory in between. Numbers are in registers; between two stages they change hands through shared memory. The
//! first stage reads where the numbers are, the last writes where they go.
//!
//! Along x two real rows are the real and the imaginary part of one complex line: the spectrum of either follows by
//! symmetry, for even and odd lengths alike. Along y and z the lines of a cube are neighbours along x.
//!
//! Of `M` modes a pass reads and writes `16 M` bytes, of `V` voxels that along x `4 V + 8 M`: both ways some 48 bytes a
//! voxel.
//!
//! Read `stages` first, then `kernels`.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Direction, FftOps, dims_of, image_dims, spectrum_dims};
use butterfly::root;
use ffdp_kit::cubes::{cubes_in_lines, launched};
use ffdp_kit::launch::{assert_f32, buffer, empty, upload, wide_address, writable};
use kernels::{lines_kernel, modes_kernel, real_rows_kernel};
use plan::{Plan, plan};

mod butterfly;
mod kernels;
mod plan;
mod stages;

/// `cos`, then `sin` of the parts of a circle.
fn roots(like: &CubeTensor, n: usize) -> CubeTensor {
    let [cos, sin] = [0, 1].map(|part| (0..n as u32).map(move |k| root(k, n as u32)[part]));
    upload(like, &cos.chain(sin).collect::<Vec<f32>>())
}

/// Cubes for `lines` lines, of `volumes` volumes.
fn cubes(plan: Plan, lines: usize, volumes: usize) -> CubeCount {
    let [x, y] = cubes_in_lines(lines.div_ceil(plan.lines as usize));
    launched([x, y, volumes as u32])
}

/// Transforms a spectrum along y, `axis` 3, or z, 2, in place.
fn along(spectrum: &CubeTensor, axis: usize, direction: Direction) {
    let [n, c, d, h, half] = dims_of(spectrum.meta.shape());
    let len = [d, h][axis - 2];
    if len == 1 {
        return;
    }
    let plan = plan(spectrum, len, false, Direction::Forward);
    let (plane, inner) = (d * h * half, if axis == 2 { h * half } else { half });
    let lines = plane / len;
    let [re_at, im_at] = match direction {
        Direction::Forward => [0, plane],
        Direction::Inverse => [plane, 0],
    };
    unsafe {
        lines_kernel::launch_unchecked(
            &spectrum.client,
            cubes(plan, lines, n * c / 2),
            CubeDim::new_1d(plan.units),
            wide_address(&[spectrum]),
            buffer(spectrum),
            buffer(&roots(spectrum, len)),
            plane,
            re_at,
            im_at,
            inner,
            lines,
            plan,
        );
    }
}

/// The modes of the rows of a contiguous volume; the rows of the result lie `pitch` apart.
fn rows(image: &CubeTensor, pitch: usize) -> CubeTensor {
    let dims = dims_of(image.meta.shape());
    let mut of_spectrum = spectrum_dims(dims);
    of_spectrum[4] = pitch;
    let spectrum = empty(image, of_spectrum);
    let [n, c, d, h, w] = dims;
    let plan = plan(image, w, true, Direction::Forward);
    let count = n * c * d * h;
    unsafe {
        real_rows_kernel::launch_unchecked(
            &image.client,
            cubes(plan, count.div_ceil(2), 1),
            CubeDim::new_1d(plan.units),
            wide_address(&[image, &spectrum]),
            buffer(image),
            buffer(&roots(image, w)),
            buffer(&spectrum),
            d * h,
            count,
            pitch,
            plan,
        );
    }
    spectrum
}

/// The rows with these modes, times `scale`.
fn inverse_rows(spectrum: &CubeTensor, width: usize, scale: f64) -> CubeTensor {
    let dims = image_dims(dims_of(spectrum.meta.shape()), width);
    let image = empty(spectrum, dims);
    let [n, c, d, h, w] = dims;
    let plan = plan(spectrum, w, true, Direction::Inverse);
    let count = n * c * d * h;
    unsafe {
        modes_kernel::launch_unchecked(
            &image.client,
            cubes(plan, count.div_ceil(2), 1),
            CubeDim::new_1d(plan.units),
            wide_address(&[spectrum, &image]),
            buffer(spectrum),
            buffer(&roots(spectrum, w)),
            buffer(&image),
            d * h,
            count,
            dims_of(spectrum.meta.shape())[4],
            scale as f32,
            plan,
        );
    }
    image
}

/// Numbers that a row of modes is filled up to where nobody else sees it: reads of several lines then are whole
/// sectors of memory.
pub(crate) fn pitch(width: usize) -> usize {
    let half = width / 2 + 1;
    if half < 32 { half } else { half.next_multiple_of(8) }
}

/// The modes of a contiguous volume; its rows lie `pitch` apart.
pub(crate) fn forward(image: &CubeTensor, pitch: usize) -> CubeTensor {
    let spectrum = rows(image, pitch);
    along(&spectrum, 3, Direction::Forward);
    along(&spectrum, 2, Direction::Forward);
    spectrum
}

/// The volume of a contiguous spectrum, of any pitch, which nothing else holds and which is spent.
pub(crate) fn inverse(spectrum: &CubeTensor, width: usize) -> CubeTensor {
    along(spectrum, 2, Direction::Inverse);
    along(spectrum, 3, Direction::Inverse);
    let [_, _, d, h, _] = dims_of(spectrum.meta.shape());
    inverse_rows(spectrum, width, 1.0 / (d * h * width) as f64)
}

impl FftOps for CubeBackend {
    fn fft_3d(image: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("fft", &[&image]);
        let image = into_contiguous(image);
        let width = image.meta.shape()[4];
        forward(&image, width / 2 + 1)
    }

    fn inverse_fft_3d(spectrum: FloatTensor<Self>, width: usize) -> FloatTensor<Self> {
        assert_f32("inverse_fft", &[&spectrum]);
        inverse(&writable(spectrum), width)
    }

    fn fft_rows_3d(image: FloatTensor<Self>) -> FloatTensor<Self> {
        assert_f32("fft_rows", &[&image]);
        let image = into_contiguous(image);
        let width = image.meta.shape()[4];
        rows(&image, width / 2 + 1)
    }

    fn inverse_fft_rows_3d(
        spectrum: FloatTensor<Self>,
        width: usize,
        scale: f64,
    ) -> FloatTensor<Self> {
        assert_f32("inverse_fft_rows", &[&spectrum]);
        inverse_rows(&into_contiguous(spectrum), width, scale)
    }

    fn fft_lines_3d(
        spectrum: FloatTensor<Self>,
        axis: usize,
        direction: Direction,
    ) -> FloatTensor<Self> {
        assert_f32("fft_lines", &[&spectrum]);
        let spectrum = writable(spectrum);
        along(&spectrum, axis, direction);
        spectrum
    }
}
