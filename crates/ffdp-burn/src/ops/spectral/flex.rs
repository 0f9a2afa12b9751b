//! Symbols on the CPU: mode by mode, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;
use realfft::FftNum;

use super::{ModeBlock, SpectralOps, Symbol};
use crate::ops::fft::{dims_of, flex};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

fn multiplied<T: Real + FftNum>(
    field: &FlexTensor,
    symbol: Symbol,
    voxel_mm: [f64; 3],
) -> FlexTensor {
    let [_, _, d, h, w] = dims_of(field.layout().shape());
    let spectrum = flex::forward::<T>(field);
    let spectrum = modes_multiplied::<T>(&spectrum, symbol, voxel_mm, ModeBlock::all([d, h, w]));
    flex::inverse::<T>(&spectrum, w)
}

fn modes_multiplied<T: Real + FftNum>(
    spectrum: &FlexTensor,
    symbol: Symbol,
    voxel_mm: [f64; 3],
    block: ModeBlock,
) -> FlexTensor {
    let [_, _, d, h, half] = dims_of(spectrum.layout().shape());
    let modes = d * h * half;
    let [x, y, z] = block.wavenumbers([d, h], voxel_mm);
    let old = elements::<T>(spectrum);
    // Both parts of every component of a mode are multiplied by the same real numbers.
    let value = |element: usize| {
        let (plane, mode) = (element / modes, element % modes);
        let (channel, part) = (plane / 2, plane % 2);
        let at = [mode % half, mode / half % h, mode / half / h];
        let wave = |which: usize| [x[which][at[0]], y[which][at[1]], z[which][at[2]]];
        let square = |k: [f64; 3]| k.iter().map(|k| k * k).sum::<f64>();
        let k = wave(1);
        let [a, b] = symbol.factors(square(wave(0)), square(k));
        let of = |channel: usize| old[(2 * channel + part) * modes + mode].wide();
        if b == 0.0 {
            return T::of(a * of(channel));
        }
        let first = channel / 3 * 3;
        let along: f64 = (0..3).map(|c| k[c] * of(first + c)).sum();
        T::of(a * of(channel) + b * k[channel - first] * along)
    };
    let data: Vec<T> = (0..old.len()).into_par_iter().map(value).collect();
    tensor(data, spectrum.layout().shape().clone())
}

impl SpectralOps for Flex {
    fn spectral_3d(
        field: FloatTensor<Self>,
        symbol: Symbol,
        voxel_mm: [f64; 3],
    ) -> FloatTensor<Self> {
        let field = field.to_contiguous();
        by_dtype!("spectral", field.dtype(), multiplied(&field, symbol, voxel_mm))
    }

    fn multiply_modes_3d(
        modes: FloatTensor<Self>,
        symbol: Symbol,
        voxel_mm: [f64; 3],
        block: ModeBlock,
    ) -> FloatTensor<Self> {
        let modes = modes.to_contiguous();
        let (by, in_) = ((symbol, voxel_mm), block);
        by_dtype!("multiply_modes", modes.dtype(), modes_multiplied(&modes, by.0, by.1, in_))
    }
}
