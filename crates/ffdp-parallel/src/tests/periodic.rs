//! Operators of periodic volumes on shards and on ranks, against the operation on the whole.

use std::ops::Range;

use super::hosts::{cuts_of, in_ranks, part, shards_of};
use super::*;
use ffdp_burn::ops::{
    Symbol, cubic_coefficients, cubic_sample, inner_product, periodic_divergence,
    periodic_gradient, spectral, spectral_resize,
};
use ffdp_image::error::Result;

const VOXEL: [f64; 3] = [0.8, 1.5, 2.0];

/// Positions are rounded in f32 to 5e-7 voxels, and noise has splines of slopes up to 30 a voxel.
const F32_SPLINE: f64 = 1e-5;

const SYMBOLS: [Symbol; 4] = [
    Symbol::Regularizer { beta: 0.3, gamma: 0.7 },
    Symbol::InverseRegularizer { beta: 0.3, gamma: 0.7 },
    Symbol::Leray,
    Symbol::Smooth { sigma_mm: 1.2 },
];

/// Voxels along (x, y, z), either way: around the volume, too.
const REACHES: [[f64; 3]; 3] = [[2.5, 2.5, 2.5], [0.4, 9.0, 0.4], [30.0, 2.0, 45.0]];

/// One operator: its inputs' channels, on the whole, and on a grid; `true` for splines.
type OnWhole = fn(&[Tensor<5>]) -> Tensor<5>;
type OnGrid = fn(&PeriodicGrid, &[Sharded]) -> Result<Sharded>;

fn operators() -> Vec<(&'static str, usize, OnWhole, OnGrid)> {
    vec![
        ("gradient", 1, |x| periodic_gradient(x[0].clone(), VOXEL), |grid, x| grid.gradient(&x[0])),
        (
            "divergence",
            3,
            |x| periodic_divergence(x[0].clone(), VOXEL),
            |grid, x| grid.divergence(&x[0]),
        ),
        (
            "regulariser",
            3,
            |x| spectral(x[0].clone(), SYMBOLS[0], VOXEL),
            |grid, x| grid.spectral(&x[0], SYMBOLS[0]),
        ),
        (
            "inverse regulariser",
            3,
            |x| spectral(x[0].clone(), SYMBOLS[1], VOXEL),
            |grid, x| grid.spectral(&x[0], SYMBOLS[1]),
        ),
        (
            "leray",
            3,
            |x| spectral(x[0].clone(), SYMBOLS[2], VOXEL),
            |grid, x| grid.spectral(&x[0], SYMBOLS[2]),
        ),
        (
            "smooth",
            2,
            |x| spectral(x[0].clone(), SYMBOLS[3], VOXEL),
            |grid, x| grid.spectral(&x[0], SYMBOLS[3]),
        ),
        (
            "coefficients",
            2,
            |x| cubic_coefficients(x[0].clone()),
            |grid, x| grid.coefficients(&x[0]),
        ),
        (
            "sampling, short",
            2,
            |x| cubic_sample(x[0].clone(), x[1].clone()),
            |grid, x| grid.sample(&x[0], &x[1], &grid.bounds(&x[1])?),
        ),
        (
            "sampling, along y",
            1,
            |x| cubic_sample(x[0].clone(), x[2].clone()),
            |grid, x| grid.sample(&x[0], &x[2], &grid.bounds(&x[2])?),
        ),
        (
            "sampling, around",
            3,
            |x| cubic_sample(x[0].clone(), x[3].clone()),
            |grid, x| grid.sample(&x[0], &x[3], &grid.bounds(&x[3])?),
        ),
    ]
}

/// The volume that an operator is tried on, and displacements of the reaches.
fn inputs(channels: usize, size: [usize; 3], dtype: DType) -> Vec<Tensor<5>> {
    let mut inputs = vec![random(channels, size, [-1.0, 1.0], dtype, 60)];
    for (reach, seed) in REACHES.iter().zip(61..) {
        let u = random(3, size, [-1.0, 1.0], dtype, seed);
        let part = |(c, reach): (usize, &f64)| u.clone().narrow(1, c, 1).mul_scalar(*reach);
        inputs.push(Tensor::cat(reach.iter().enumerate().map(part).collect(), 1));
    }
    inputs
}

fn grid(layout: &Layout) -> PeriodicGrid {
    PeriodicGrid::new(layout.clone(), mesh(layout), VOXEL, Holders::ALONE).unwrap()
}

fn allowed(dtype: DType) -> f64 {
    if dtype == DType::F64 { F64_ROUNDING } else { F32_SPLINE }
}

#[test]
fn operators_are_those_of_the_whole() {
    for (i, layout) in layouts(30).into_iter().enumerate() {
        for (j, (name, channels, on_whole, on_grid)) in operators().into_iter().enumerate() {
            // In turn of pairs of layouts, of which one is cut evenly.
            let dtype = [DType::F64, DType::F32][(i / 8 + i / 2 + j) % 2];
            let inputs = inputs(channels, layout.size(), dtype);
            let shards: Vec<_> = inputs.iter().map(|x| split(x, &layout)).collect();
            let got = on_grid(&grid(&layout), &shards).unwrap();
            assert_eq!(*got.layout(), layout);
            let label = format!("{name} {layout:?} {dtype:?}");
            let expected = on_whole(&inputs);
            assert_close(&label, &to_f64(whole(&got)), &to_f64(expected), allowed(dtype));
        }
    }
}

#[test]
fn one_shard_is_the_operation_itself() {
    let layout = Layout::balanced([7, 6, 5], Axis::Z, 1).unwrap();
    for (name, channels, on_whole, on_grid) in operators() {
        let inputs = inputs(channels, layout.size(), DType::F32);
        let shards: Vec<_> = inputs.iter().map(|x| split(x, &layout)).collect();
        let got = on_grid(&grid(&layout), &shards).unwrap();
        assert_eq!(bits(whole(&got)), bits(on_whole(&inputs)), "{name}");
    }
}

#[test]
fn other_sizes_are_those_of_the_whole() {
    for layout in layouts(31) {
        let [d, h, w] = layout.size();
        // Coarser, finer, and as many: thin shards are left out of coarse grids.
        for size in [[d.div_ceil(2), h.div_ceil(2), w.div_ceil(2)], [d + 3, h, 2 * w], [d, h, w]] {
            let fine = grid(&layout);
            let other = fine.resized(size).unwrap();
            assert_eq!(other.size(), size);
            let x = random(2, layout.size(), [-1.0, 1.0], DType::F64, 70);
            let got = fine.resize(&split(&x, &layout), &other).unwrap();
            let label = format!("{layout:?} to {:?}", other.layout());
            let there = spectral_resize(x, size);
            assert_close(&label, &to_f64(whole(&got)), &to_f64(there.clone()), F64_ROUNDING);
            let back = other.resize(&got, &fine).unwrap();
            let expected = spectral_resize(there, layout.size());
            assert_close(&label, &to_f64(whole(&back)), &to_f64(expected), F64_ROUNDING);
        }
    }
}

#[test]
fn inner_products_are_those_of_the_whole() {
    for layout in layouts(32) {
        let [a, b] = [80, 81].map(|seed| random(3, layout.size(), [-1.0, 1.0], DType::F64, seed));
        let got = grid(&layout).inner_product(&split(&a, &layout), &split(&b, &layout)).unwrap();
        let expected = to_f64(inner_product(a, b))[0];
        assert!((got - expected).abs() < 1e-10, "{layout:?}: {got} {expected}");
    }
}

#[test]
fn ranks_have_the_results_of_one_process() {
    for (seed, axis) in AXES.into_iter().enumerate() {
        for (cuts, shards) in [
            (&[9, 8][..], &[1, 1][..]),
            (&[8, 1, 8], &[1, 1, 1]),
            (&[3, 1, 6, 2, 5], &[1, 1, 3]),
            (&[4, 1, 1, 1, 1, 1, 1, 7], &[1, 1, 1, 1, 1, 1, 1, 1]),
        ] {
            let mut size = [number(4, 6, seed as u64), 5, 6];
            size[axis.dim() - 2] = 17;
            let layout = Layout::uneven(size, axis, cuts).unwrap();
            for (name, channels, on_whole, on_grid) in operators() {
                let inputs = inputs(channels, size, DType::F64);
                let found = on_ranks(&layout, shards, |grid, own| {
                    let inputs: Vec<_> =
                        inputs.iter().map(|x| part(x, &layout, own.clone())).collect();
                    let got = on_grid(grid, &inputs).unwrap();
                    assert_eq!(got.layout(), grid.layout());
                    got.gather(&Device::flex())
                });
                let got = Tensor::cat(found, axis.dim());
                let label = format!("{name} {layout:?} on {shards:?}");
                assert_close(&label, &to_f64(got), &to_f64(on_whole(&inputs)), F64_ROUNDING);
            }
            let x = random(3, size, [-1.0, 1.0], DType::F64, 90);
            let expected = to_f64(inner_product(x.clone(), x.clone()))[0];
            let sums = on_ranks(&layout, shards, |grid, own| {
                let x = part(&x, &layout, own);
                grid.inner_product(&x, &x).unwrap()
            });
            assert!(sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()), "{sums:?}");
            assert!((sums[0] - expected).abs() < 1e-10, "{sums:?} {expected}");
            // Each rank has a plane of the coarser one where these are not single planes.
            if cuts.len() < 3 {
                let size = size.map(|n| n.div_ceil(2));
                let found = on_ranks(&layout, shards, |grid, own| {
                    let coarse = grid.resized(size).unwrap();
                    let there = grid.resize(&part(&x, &layout, own), &coarse).unwrap();
                    there.gather(&Device::flex())
                });
                let expected = spectral_resize(x, size);
                let got = Tensor::cat(found, axis.dim());
                assert_close(&format!("{layout:?}"), &to_f64(got), &to_f64(expected), F64_ROUNDING);
            }
        }
    }
}

/// What every rank makes of its shards on its part of a grid.
fn on_ranks<T: Send>(
    layout: &Layout,
    shards: &[usize],
    each: impl Fn(&PeriodicGrid, Range<usize>) -> T + Sync,
) -> Vec<T> {
    in_ranks(shards.len(), |ranks| {
        let own = shards_of(shards, ranks.rank());
        let holders = Holders::new(ranks, cuts_of(layout, shards));
        let layout = layout.part(own.clone());
        let grid = PeriodicGrid::new(layout.clone(), mesh(&layout), VOXEL, holders).unwrap();
        each(&grid, own)
    })
}

#[test]
fn what_does_not_fit_the_grid_is_refused() {
    let layout = Layout::balanced([8, 6, 5], Axis::Z, 2).unwrap();
    let other = Layout::balanced([8, 6, 5], Axis::Y, 2).unwrap();
    let x = random(3, layout.size(), [-1.0, 1.0], DType::F32, 1);
    let grid = grid(&layout);
    let error = grid.gradient(&split(&x, &layout)).unwrap_err().to_string();
    assert!(error.contains("[N, 1, D, H, W]"), "{error}");
    let error = grid.divergence(&split(&x, &other)).unwrap_err().to_string();
    assert!(error.contains("layout"), "{error}");
    let error = PeriodicGrid::new(layout.clone(), mesh(&layout), [1.0, 0.0, 1.0], Holders::ALONE);
    assert!(error.unwrap_err().to_string().contains("spacing"));
    let error = PeriodicGrid::on(mesh(&layout), [1, 6, 5], VOXEL).unwrap_err().to_string();
    assert!(error.contains("1..=1"), "{error}");
}
