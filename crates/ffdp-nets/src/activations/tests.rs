//! Layers on parts of activations.

use burn::tensor::{DType, Device};
use ffdp_kit::testing::{assert_close, tensor, to_f64, uniform};
use ffdp_parallel::{Axis, parts::narrow};

use super::*;
use crate::layers::MaxPool3d;
use crate::ops::{InstanceNormOptions, Precision, conv3d, instance_norm, mean_pool, upsample_x2};

/// f64, divided by a deviation of a few dozen voxels.
const NORMALISED: f64 = 1e-10;

const AXES: [Axis; 3] = [Axis::X, Axis::Y, Axis::Z];

/// A random number in `low..=high`, the same for the same seed.
fn number(low: usize, high: usize, seed: u64) -> usize {
    low + uniform(1, 0.0, (high - low + 1) as f64, seed)[0] as usize
}

/// Two volumes of three channels of random values, in f64.
fn random([d, h, w]: [usize; 3], seed: u64) -> Tensor<5> {
    let values = uniform(2 * 3 * d * h * w, -1.0, 1.0, seed);
    tensor(&values, [2, 3, d, h, w], &Device::flex(), DType::F64)
}

/// A tensor on the tape.
fn tracked(tensor: &Tensor<5>) -> Tensor<5> {
    tensor.clone().autodiff().require_grad()
}

/// A number of which every gradient entry differs: the sum of the values times weights.
fn weighted_sum(values: Tensor<5>, weights: &Tensor<5>) -> Tensor<1> {
    (values * weights.clone().autodiff()).sum()
}

type Serial = fn(Tensor<5>, Tensor<5>) -> Tensor<5>;
type Parts = fn(&Slabs, Tensor<5>, &Cuts) -> Slabs;

/// A kernel of 5^3 out of one of 3^3.
fn wide(w: Tensor<5>) -> Tensor<5> {
    (2..5).fold(w, |w, dim| Tensor::cat(vec![w.clone(), w.narrow(dim, 0, 2)], dim))
}

const SLOPED: InstanceNormOptions = InstanceNormOptions { epsilon: 1e-5, slope: 0.2 };

/// A layer of the whole, the same of parts, and how many of its planes make one of the result, if fewer
/// (positive) or more (negative).
const LAYERS: [(&str, Serial, Parts, i32); 6] = [
    (
        "conv3d",
        |x, w| conv3d(x, w, [1; 3]),
        |x, w, _| x.conv3d(|_| w.clone(), Precision::Single),
        1,
    ),
    // Looks past thin parts.
    (
        "conv3d of 5^3",
        |x, w| conv3d(x, wide(w), [2; 3]),
        |x, w, _| x.conv3d(|_| wide(w.clone()), Precision::Single),
        1,
    ),
    (
        "instance_norm",
        |x, _| instance_norm(x, &SLOPED),
        |x, _, _| x.clone().instance_norm(&SLOPED),
        1,
    ),
    ("mean_pool", |x, _| mean_pool(x), |x, _, cuts| x.mean_pool(cuts), 2),
    (
        "max_pool",
        |x, _| MaxPool3d.forward(x),
        |x, _, cuts| x.in_pairs(cuts, |_, x| MaxPool3d.forward(x)),
        2,
    ),
    ("upsample", |x, _| upsample_x2(x), |x, _, cuts| x.doubled(cuts, upsample_x2), -2),
];

/// Cuts in random places, some of which have no plane.
fn cuts(extent: usize, places: usize, seed: u64) -> Cuts {
    let mut ends: Vec<usize> =
        (1..places as u64).map(|k| number(0, extent, 31 * seed + k)).collect();
    ends.sort_unstable();
    Cuts::from_ends([vec![0], ends, vec![extent]].concat())
}

fn at_first_place(slabs: &Slabs) -> Tensor<5> {
    let (extent, places) = (slabs.cuts().extent(), slabs.cuts().places());
    let mut ends = vec![extent; places + 1];
    ends[0] = 0;
    slabs.recut(&Cuts::from_ends(ends)).part(0).expect("it has all planes").clone()
}

#[test]
fn layers_of_parts_are_those_of_the_whole() {
    for (name, serial, parts, stride) in LAYERS {
        for (a, axis) in AXES.into_iter().enumerate() {
            for places in 1..=5 {
                let seed = 100 * a as u64 + places as u64;
                let mut size = [0, 1, 2].map(|i| 2 * number(2, 4, seed + i));
                size[axis.dim() - 2] = 2 * number(5, 8, seed + 7);
                let extent = size[axis.dim() - 2];
                let x = tracked(&random(size, seed));
                let w = tensor(
                    &uniform(4 * 81, -1.0, 1.0, 9),
                    [4, 3, 3, 3, 3],
                    &Device::flex(),
                    DType::F64,
                );
                let w = tracked(&w);
                let expected = serial(x.clone(), w.clone());
                let dims = expected.dims();
                let weights = uniform(expected.shape().num_elements(), -1.0, 1.0, 5);
                let weights = tensor(&weights, dims, &Device::flex(), DType::F64);
                let gradients = weighted_sum(expected.clone(), &weights).backward();
                let mesh = DeviceMesh::new(&[Device::flex().autodiff()], places).unwrap();
                let (own, out) =
                    (cuts(extent, places, seed), cuts(dims[axis.dim()], places, seed + 1));
                let dim = axis.dim();
                let input =
                    Slabs::build(&own, &mesh, dim, |_, planes| narrow(x.clone(), dim, planes));
                let result = parts(&input, w.clone(), &out);
                assert_eq!(result.dims(), dims);
                assert!(stride == 1 || *result.cuts() == out, "{name}: cut as asked for");
                let result = at_first_place(&result);
                let case = format!("{name} along {axis:?}, {own:?} to {out:?}");
                let values = to_f64(result.clone().inner());
                assert_close(&case, &values, &to_f64(expected.inner()), NORMALISED);
                let found = weighted_sum(result, &weights).backward();
                for leaf in [&x, &w] {
                    if let Some(expected) = leaf.grad(&gradients) {
                        let got = to_f64(leaf.grad(&found).expect("it matters"));
                        assert_close(&case, &got, &to_f64(expected), NORMALISED);
                    }
                }
            }
        }
    }
}
