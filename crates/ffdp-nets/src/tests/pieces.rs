//! Networks in pieces.

use std::collections::BTreeSet;

use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};

use super::named;
use crate::{Network, NetworkConfig, Pieces, Resolution, TransMorphConfig, VoxelMorphConfig};
use ffdp_kit::testing::{tensor, uniform};

fn configurations(size: [usize; 3]) -> Vec<(&'static str, NetworkConfig)> {
    let transmorph = || TransMorphConfig::tiny().for_size(size);
    let full = transmorph().with_resolution(Resolution::Full);
    let voxelmorph = VoxelMorphConfig::new().with_encoder([2, 3, 4, 5]).with_decoder([5, 4, 3, 2]);
    let voxelmorph = voxelmorph.with_last([4, 3, 2]);
    vec![
        ("half", transmorph().into()),
        ("full, integrated", full.with_integration_steps(Some(2)).into()),
        ("TransMorph, splines", transmorph().with_control_spacing(Some(4)).into()),
        ("VoxelMorph, integrated", voxelmorph.clone().with_integration_steps(Some(2)).into()),
        ("VoxelMorph, splines", voxelmorph.with_control_spacing(Some(8)).into()),
    ]
}

/// The weights that have gradients after a backward pass from `x`.
fn reached(network: &Network, x: Tensor<5>) -> BTreeSet<String> {
    let gradients = GradientsParams::from_grads(x.backward(), network);
    named(network, &gradients).into_keys().collect()
}

#[test]
fn pieces_by_themselves_reach_every_weight_that_the_whole_pass_reaches() {
    let device = Device::flex().autodiff();
    // Padded, so that the last piece crops.
    let size = [32, 30, 40];
    let [d, h, w] = size;
    for (case, config) in configurations(size) {
        let network = config.init(&device);
        let [moving, fixed] = [1, 2].map(|seed| {
            let values = uniform(d * h * w, 0.0, 1.0, seed);
            tensor(&values, [1, 1, d, h, w], &device, DType::F32)
        });
        let mut all = Pieces::all();
        let whole = network.deformation.forward_in(moving.clone(), fixed.clone(), &mut all);
        let (count, shape, expected) = (all.count(), whole.dims(), reached(&network, whole));
        assert!(count > 10 && expected.len() > 10, "{case}: {count} pieces, {expected:?}");
        let mut found = BTreeSet::new();
        for which in 0..count {
            let mut computed = 0;
            let mut each = |made| {
                computed += 1;
                found.extend(reached(&network, made));
            };
            let mut one = Pieces::some(which, count, &mut each);
            let u = network.deformation.forward_in(moving.clone(), fixed.clone(), &mut one);
            assert_eq!((one.count(), u.dims()), (count, shape), "{case}");
            assert_eq!(computed, 1, "{case}: piece {which}");
        }
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn processes_share_all_pieces() {
    let device = Device::flex();
    let x = Tensor::<5>::ones([1; 5], &device);
    for of in 1..=8 {
        let mut computed = Vec::new();
        for which in 0..of {
            let mut each = |made: Tensor<5>| computed.push(made.into_scalar::<f32>());
            let mut pieces = Pieces::some(which, of, &mut each);
            for number in 0..7 {
                let made = pieces.compute(x.clone(), [1; 5], |x| x * f64::from(number));
                assert_eq!(made.into_scalar::<f32>(), 0.0, "the result means nothing");
            }
        }
        computed.sort_by(f32::total_cmp);
        assert_eq!(computed, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "of {of}");
    }
    let mut all = Pieces::all();
    assert_eq!(all.compute(x, [1; 5], |x| x * 3.0).into_scalar::<f32>(), 3.0);
}
