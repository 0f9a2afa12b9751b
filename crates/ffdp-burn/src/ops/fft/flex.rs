//! Fourier transforms on the CPU: rows by `realfft`, columns and lines by `rustfft`, of any length.

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;
use realfft::num_complex::Complex;
use realfft::{FftNum, RealFftPlanner};
use rustfft::{Fft, FftDirection, FftPlanner};

use super::{FftOps, dims_of, image_dims, spectrum_dims};
use crate::ops::real::{Real, by_dtype, elements, tensor};

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

/// Transforms the columns of a slice `[h, half]`, one after the other.
fn columns<T: FftNum>(slice: &mut [Complex<T>], half: usize, fft: &dyn Fft<T>) {
    let zero = Complex::new(T::zero(), T::zero());
    let mut column = vec![zero; fft.len()];
    let mut scratch = vec![zero; fft.get_inplace_scratch_len()];
    for x in 0..half {
        let of = slice[x..].iter().step_by(half);
        column.iter_mut().zip(of).for_each(|(to, from)| *to = *from);
        fft.process_with_scratch(&mut column, &mut scratch);
        let to = slice[x..].iter_mut().step_by(half);
        to.zip(&column).for_each(|(to, from)| *to = *from);
    }
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

/// The modes of one volume `[D, H, W]`.
fn forward_volume<T: Real + FftNum>(volume: &[T], modes: Modes, width: usize) -> Vec<Complex<T>> {
    let rows = RealFftPlanner::new().plan_fft_forward(width);
    let fft = FftPlanner::new().plan_fft_forward(modes.h);
    let mut spectrum = vec![Complex::new(T::zero(), T::zero()); modes.d * modes.plane()];
    let slices = spectrum.par_chunks_mut(modes.plane()).zip(volume.par_chunks(modes.h * width));
    slices.for_each(|(to, from)| {
        let (mut row, mut scratch) = (rows.make_input_vec(), rows.make_scratch_vec());
        for (to, from) in to.chunks_mut(modes.half).zip(from.chunks(width)) {
            row.copy_from_slice(from);
            rows.process_with_scratch(&mut row, to, &mut scratch).expect("planned for the row");
        }
        columns(to, modes.half, &*fft);
    });
    along_z(spectrum, modes, FftDirection::Forward)
}

/// The volume of these modes, scaled.
fn inverse_volume<T: Real + FftNum>(
    spectrum: Vec<Complex<T>>,
    modes: Modes,
    width: usize,
) -> Vec<T> {
    let rows = RealFftPlanner::new().plan_fft_inverse(width);
    let fft = FftPlanner::new().plan_fft_inverse(modes.h);
    let scale = T::of(1.0 / (modes.d * modes.h * width) as f64);
    let mut spectrum = along_z(spectrum, modes, FftDirection::Inverse);
    let mut volume = vec![T::zero(); modes.d * modes.h * width];
    let slices = volume.par_chunks_mut(modes.h * width).zip(spectrum.par_chunks_mut(modes.plane()));
    slices.for_each(|(to, from)| {
        columns(from, modes.half, &*fft);
        let mut scratch = rows.make_scratch_vec();
        for (to, from) in to.chunks_mut(width).zip(from.chunks_mut(modes.half)) {
            // Parts that the row of a real volume has not, beyond rounding.
            from[0].im = T::zero();
            if width.is_multiple_of(2) {
                from[modes.half - 1].im = T::zero();
            }
            rows.process_with_scratch(from, to, &mut scratch).expect("planned for the row");
            to.iter_mut().for_each(|value| *value = *value * scale);
        }
    });
    volume
}

pub(crate) fn forward<T: Real + FftNum>(image: &FlexTensor) -> FlexTensor {
    let dims = dims_of(image.layout().shape());
    let to = spectrum_dims(dims);
    let [_, _, d, h, w] = dims;
    let modes = Modes { d, h, half: to[4] };
    let mut data = Vec::with_capacity(to.iter().product());
    for volume in elements::<T>(image).chunks(d * h * w) {
        let spectrum = forward_volume(volume, modes, w);
        data.extend(spectrum.iter().map(|mode| mode.re));
        data.extend(spectrum.iter().map(|mode| mode.im));
    }
    tensor(data, to)
}

pub(crate) fn inverse<T: Real + FftNum>(spectrum: &FlexTensor, width: usize) -> FlexTensor {
    let dims = dims_of(spectrum.layout().shape());
    let to = image_dims(dims, width);
    let [_, _, d, h, half] = dims;
    let modes = Modes { d, h, half };
    let mut data = Vec::with_capacity(to.iter().product());
    for volume in elements::<T>(spectrum).chunks(2 * d * h * half) {
        let (re, im) = volume.split_at(d * h * half);
        let spectrum = re.iter().zip(im).map(|(re, im)| Complex::new(*re, *im)).collect();
        data.extend(inverse_volume(spectrum, modes, width));
    }
    tensor(data, to)
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
}
