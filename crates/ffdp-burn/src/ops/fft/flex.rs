//! Fourier transforms on the CPU: rows by `realfft`, columns and lines by `rustfft`, of any length.

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;
use realfft::num_complex::Complex;
use realfft::{FftNum, RealFftPlanner};
use rustfft::{Fft, FftDirection, FftPlanner};

use super::{Direction, FftOps, dims_of, image_dims, spectrum_dims};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// The sizes of a spectrum.
#[derive(Clone, Copy)]
struct Modes {
    d: usize,
    h: usize,
    /// Along x: half of them, and mode 0.
    half: usize,
}

impl Modes {
    fn plane(&self) -> usize {
        self.h * self.half
    }
}

/// Transforms the columns of all slices `[h, half]`: lines along y.
fn along_y<T: FftNum>(data: &mut [Complex<T>], modes: Modes, to: FftDirection) {
    if modes.h == 1 {
        return;
    }
    let fft: Arc<dyn Fft<T>> = FftPlanner::new().plan_fft(modes.h, to);
    let zero = Complex::new(T::zero(), T::zero());
    let buffers = || (vec![zero; modes.h], vec![zero; fft.get_inplace_scratch_len()]);
    let slices = data.par_chunks_mut(modes.plane());
    slices.for_each_init(buffers, |(column, scratch), slice| {
        for x in 0..modes.half {
            let of = slice[x..].iter().step_by(modes.half);
            column.iter_mut().zip(of).for_each(|(to, from)| *to = *from);
            fft.process_with_scratch(column, scratch);
            let to = slice[x..].iter_mut().step_by(modes.half);
            to.zip(column.iter()).for_each(|(to, from)| *to = *from);
        }
    });
}

/// Transforms lines that lie one after the other.
fn lines<T: FftNum>(data: &mut [Complex<T>], fft: &Arc<dyn Fft<T>>) {
    data.par_chunks_mut(fft.len()).for_each_init(
        || vec![Complex::new(T::zero(), T::zero()); fft.get_inplace_scratch_len()],
        |scratch, line| fft.process_with_scratch(line, scratch),
    );
}

/// `[rows, columns]` to `[columns, rows]`.
fn transposed<V: Copy + Send + Sync>(data: &[V], columns: usize) -> Vec<V> {
    let rows = data.len() / columns;
    (0..data.len()).into_par_iter().map(|i| data[i % rows * columns + i / rows]).collect()
}

/// The transform along z: lines are laid side by side for it.
fn along_z<T: FftNum>(data: Vec<Complex<T>>, modes: Modes, to: FftDirection) -> Vec<Complex<T>> {
    if modes.d == 1 {
        return data;
    }
    let fft = FftPlanner::new().plan_fft(modes.d, to);
    let mut side_by_side = transposed(&data, modes.plane());
    lines(&mut side_by_side, &fft);
    transposed(&side_by_side, modes.d)
}

/// The modes of the rows of a volume.
fn row_modes<T: Real + FftNum>(volume: &[T], width: usize) -> Vec<Complex<T>> {
    let (fft, half) = (RealFftPlanner::new().plan_fft_forward(width), width / 2 + 1);
    let mut spectrum = vec![Complex::new(T::zero(), T::zero()); volume.len() / width * half];
    let rows = spectrum.par_chunks_mut(half).zip(volume.par_chunks(width));
    rows.for_each_init(
        || (fft.make_input_vec(), fft.make_scratch_vec()),
        |(row, scratch), (to, from)| {
            row.copy_from_slice(from);
            fft.process_with_scratch(row, to, scratch).expect("planned for the row");
        },
    );
    spectrum
}

/// Rows of these modes, times `scale`.
fn rows_of<T: Real + FftNum>(spectrum: &mut [Complex<T>], width: usize, scale: f64) -> Vec<T> {
    let (fft, half) = (RealFftPlanner::new().plan_fft_inverse(width), width / 2 + 1);
    let scale = T::of(scale);
    let mut volume = vec![T::zero(); spectrum.len() / half * width];
    let rows = volume.par_chunks_mut(width).zip(spectrum.par_chunks_mut(half));
    rows.for_each_init(
        || fft.make_scratch_vec(),
        |scratch, (to, from)| {
            // Parts that the row of a real volume has not, beyond rounding.
            from[0].im = T::zero();
            if width.is_multiple_of(2) {
                from[half - 1].im = T::zero();
            }
            fft.process_with_scratch(from, to, scratch).expect("planned for the row");
            to.iter_mut().for_each(|value| *value = *value * scale);
        },
    );
    volume
}

/// The parts of a spectrum, as tensors hold them.
fn planar<T: Real + FftNum>(spectrum: &[Complex<T>]) -> impl Iterator<Item = T> + '_ {
    spectrum.iter().map(|mode| mode.re).chain(spectrum.iter().map(|mode| mode.im))
}

/// From the parts of one.
fn joined<T: Real + FftNum>(parts: &[T]) -> Vec<Complex<T>> {
    let (re, im) = parts.split_at(parts.len() / 2);
    re.iter().zip(im).map(|(re, im)| Complex::new(*re, *im)).collect()
}

/// The modes of real volumes, and what `then` makes of each.
fn from_real<T: Real + FftNum>(
    image: &FlexTensor,
    then: impl Fn(Vec<Complex<T>>, Modes) -> Vec<Complex<T>>,
) -> FlexTensor {
    let dims = dims_of(image.layout().shape());
    let to = spectrum_dims(dims);
    let [_, _, d, h, w] = dims;
    let modes = Modes { d, h, half: to[4] };
    let mut data = Vec::with_capacity(to.iter().product());
    for volume in elements::<T>(image).chunks(d * h * w) {
        data.extend(planar(&then(row_modes(volume, w), modes)));
    }
    tensor(data, to)
}

/// The way back.
fn to_real<T: Real + FftNum>(
    spectrum: &FlexTensor,
    width: usize,
    scale: f64,
    first: impl Fn(Vec<Complex<T>>, Modes) -> Vec<Complex<T>>,
) -> FlexTensor {
    let dims = dims_of(spectrum.layout().shape());
    let to = image_dims(dims, width);
    let [_, _, d, h, half] = dims;
    let modes = Modes { d, h, half };
    let mut data = Vec::with_capacity(to.iter().product());
    for parts in elements::<T>(spectrum).chunks(2 * d * modes.plane()) {
        data.extend(rows_of(&mut first(joined(parts), modes), width, scale));
    }
    tensor(data, to)
}

pub(crate) fn forward<T: Real + FftNum>(image: &FlexTensor) -> FlexTensor {
    from_real::<T>(image, |mut spectrum, modes| {
        along_y(&mut spectrum, modes, FftDirection::Forward);
        along_z(spectrum, modes, FftDirection::Forward)
    })
}

pub(crate) fn inverse<T: Real + FftNum>(spectrum: &FlexTensor, width: usize) -> FlexTensor {
    let [_, _, d, h, _] = dims_of(spectrum.layout().shape());
    let scale = 1.0 / (d * h * width) as f64;
    to_real::<T>(spectrum, width, scale, |spectrum, modes| {
        let mut spectrum = along_z(spectrum, modes, FftDirection::Inverse);
        along_y(&mut spectrum, modes, FftDirection::Inverse);
        spectrum
    })
}

fn along_axis<T: Real + FftNum>(
    spectrum: &FlexTensor,
    axis: usize,
    direction: Direction,
) -> FlexTensor {
    let dims = dims_of(spectrum.layout().shape());
    let modes = Modes { d: dims[2], h: dims[3], half: dims[4] };
    let to = match direction {
        Direction::Forward => FftDirection::Forward,
        Direction::Inverse => FftDirection::Inverse,
    };
    let mut data = Vec::with_capacity(dims.iter().product());
    for parts in elements::<T>(spectrum).chunks(2 * modes.d * modes.plane()) {
        let mut volume = joined(parts);
        if axis == 2 {
            volume = along_z(volume, modes, to);
        } else {
            along_y(&mut volume, modes, to);
        }
        data.extend(planar(&volume));
    }
    tensor(data, dims)
}

impl FftOps for Flex {
    fn fft_3d(image: FloatTensor<Self>) -> FloatTensor<Self> {
        let image = image.to_contiguous();
        by_dtype!("fft", image.dtype(), forward(&image))
    }

    fn inverse_fft_3d(spectrum: FloatTensor<Self>, width: usize) -> FloatTensor<Self> {
        let spectrum = spectrum.to_contiguous();
        by_dtype!("inverse_fft", spectrum.dtype(), inverse(&spectrum, width))
    }

    fn fft_rows_3d(image: FloatTensor<Self>) -> FloatTensor<Self> {
        let image = image.to_contiguous();
        by_dtype!("fft_rows", image.dtype(), modes_of_rows(&image))
    }

    fn inverse_fft_rows_3d(
        spectrum: FloatTensor<Self>,
        width: usize,
        scale: f64,
    ) -> FloatTensor<Self> {
        let spectrum = spectrum.to_contiguous();
        by_dtype!("inverse_fft_rows", spectrum.dtype(), rows_of_modes(&spectrum, width, scale))
    }

    fn fft_lines_3d(
        spectrum: FloatTensor<Self>,
        axis: usize,
        direction: Direction,
    ) -> FloatTensor<Self> {
        let spectrum = spectrum.to_contiguous();
        by_dtype!("fft_lines", spectrum.dtype(), along_axis(&spectrum, axis, direction))
    }
}

fn modes_of_rows<T: Real + FftNum>(image: &FlexTensor) -> FlexTensor {
    from_real::<T>(image, |spectrum, _| spectrum)
}

fn rows_of_modes<T: Real + FftNum>(spectrum: &FlexTensor, width: usize, scale: f64) -> FlexTensor {
    to_real::<T>(spectrum, width, scale, |spectrum, _| spectrum)
}
