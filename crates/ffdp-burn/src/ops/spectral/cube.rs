//! Symbols on the GPU: a unit a mode, all components of it, in place. Wavenumbers come as tables, computed in f64.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{ModeBlock, SpectralOps, Symbol};
use crate::ops::fft::{cube as fft, dims_of};
use ffdp_kit::launch::{UNITS, assert_f32, buffer, upload, wide_address, writable};

/// [`Symbol`] without its numbers, for which one kernel serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Regularizer,
    Inverse,
    Leray,
    Smooth,
}

/// `beta` or `sigma`, and `gamma`.
fn parts(symbol: Symbol) -> (Kind, [f32; 2]) {
    match symbol {
        Symbol::Regularizer { beta, gamma } => (Kind::Regularizer, [beta as f32, gamma as f32]),
        Symbol::InverseRegularizer { beta, gamma } => (Kind::Inverse, [beta as f32, gamma as f32]),
        Symbol::Leray => (Kind::Leray, [0.0; 2]),
        Symbol::Smooth { sigma_mm } => (Kind::Smooth, [sigma_mm as f32, 0.0]),
    }
}

/// `data` `[volumes, 2, modes]`: of each mode of each volume both parts times `exp(-sigma^2 |k|^2 / 2)`, or of each
/// three volumes both parts of all components times `a I + b k k^T`. `waves`: along x, y, z of all modes, and again
/// of those that odd derivatives have.
#[cube(launch_unchecked, address_type = "dynamic")]
fn symbol_kernel(
    data: &mut [f32],
    waves: &[f32],
    modes: usize,
    half: usize,
    h: usize,
    d: usize,
    beta: f32,
    gamma: f32,
    #[comptime] kind: Kind,
) {
    let mode = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    if mode >= modes {
        terminate!();
    }
    let odd = half + h + d;
    let at_x = mode % half;
    let at_y = half + mode / half % h;
    let at_z = half + h + mode / half / h;
    let (ax, ay, az) = (waves[at_x], waves[at_y], waves[at_z]);
    let all = ax * ax + ay * ay + az * az;
    if comptime!(kind == Kind::Smooth) {
        let a = (-0.5f32 * beta * beta * all).exp();
        let re = CUBE_POS_Y as usize * 2 * modes + mode;
        data[re] *= a;
        data[re + modes] *= a;
    } else {
        let (x, y, z) = (waves[odd + at_x], waves[odd + at_y], waves[odd + at_z]);
        let square = x * x + y * y + z * z;
        let mut a = 1.0f32;
        let mut b = 0.0f32;
        if comptime!(kind == Kind::Regularizer) {
            a = beta * all;
            b = gamma;
        }
        if comptime!(kind == Kind::Inverse) {
            if all == 0.0f32 {
                a = 1.0f32 / beta;
            } else {
                let stiff = beta * all;
                a = 1.0f32 / stiff;
                b = -gamma * a / (stiff + gamma * square);
            }
        }
        if comptime!(kind == Kind::Leray) {
            b = select(square > 0.0f32, -1.0f32 / square, 0.0f32);
        }
        #[unroll]
        for part in 0..2usize {
            let at = CUBE_POS_Y as usize * 6 * modes + part * modes + mode;
            let (u, v, w) = (data[at], data[at + 2 * modes], data[at + 4 * modes]);
            let along = b * (x * u + y * v + z * w);
            data[at] = a * u + x * along;
            data[at + 2 * modes] = a * v + y * along;
            data[at + 4 * modes] = a * w + z * along;
        }
    }
}

/// The tables of [`symbol_kernel`].
fn waves(modes: &CubeTensor, block: ModeBlock, voxel_mm: [f64; 3]) -> CubeTensor {
    let [_, _, d, h, pitch] = dims_of(modes.meta.shape());
    let [mut x, y, z] = block.wavenumbers([d, h], voxel_mm);
    // What fills up rows may be anything.
    x.iter_mut().for_each(|k| k.resize(pitch, 0.0));
    let both = [0, 1].map(|which: usize| [&x[which], &y[which], &z[which]]);
    let table: Vec<f32> = both.iter().flatten().flat_map(|k| k.iter().map(|k| *k as f32)).collect();
    upload(modes, &table)
}

/// Multiplies contiguous modes, which nothing else holds, in place.
fn multiply(spectrum: &CubeTensor, symbol: Symbol, voxel_mm: [f64; 3], block: ModeBlock) {
    let [n, parts, d, h, half] = dims_of(spectrum.meta.shape());
    let modes = d * h * half;
    let (kind, [beta, gamma]) = self::parts(symbol);
    let volumes = if kind == Kind::Smooth { n * parts / 2 } else { n };
    unsafe {
        symbol_kernel::launch_unchecked(
            &spectrum.client,
            CubeCount::Static(modes.div_ceil(UNITS as usize) as u32, volumes as u32, 1),
            CubeDim::new_1d(UNITS),
            wide_address(&[spectrum]),
            buffer(spectrum),
            buffer(&waves(spectrum, block, voxel_mm)),
            modes,
            half,
            h,
            d,
            beta,
            gamma,
            kind,
        );
    }
}

fn multiplied(field: &CubeTensor, symbol: Symbol, voxel_mm: [f64; 3]) -> CubeTensor {
    let [_, _, d, h, w] = dims_of(field.meta.shape());
    let spectrum = fft::forward(field, fft::pitch(w));
    multiply(&spectrum, symbol, voxel_mm, ModeBlock::all([d, h, w]));
    fft::inverse(&spectrum, w)
}

impl SpectralOps for CubeBackend {
    fn spectral_3d(
        field: FloatTensor<Self>,
        symbol: Symbol,
        voxel_mm: [f64; 3],
    ) -> FloatTensor<Self> {
        assert_f32("spectral", &[&field]);
        multiplied(&into_contiguous(field), symbol, voxel_mm)
    }

    fn multiply_modes_3d(
        modes: FloatTensor<Self>,
        symbol: Symbol,
        voxel_mm: [f64; 3],
        block: ModeBlock,
    ) -> FloatTensor<Self> {
        assert_f32("multiply_modes", &[&modes]);
        let modes = writable(modes);
        multiply(&modes, symbol, voxel_mm, block);
        modes
    }
}
