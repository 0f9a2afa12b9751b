//! Heads that predict control points, alone and in their networks.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor};

use crate::layers::Conv3d;
use crate::layers::initializer::WeightInit;
use crate::ops::Precision;
use crate::spline_head::spline_flow;
use crate::{NetworkConfig, Resolution, TransMorphConfig, VoxelMorphConfig};
use ffdp_kit::testing::{assert_close, tensor, to_f64, uniform};

/// 64 products in f32.
const F32: f64 = 1e-5;

fn head(device: &Device) -> Conv3d {
    Conv3d::near_zero(2, 3, 0.1, Precision::Single, &mut WeightInit::new(1, device))
}

#[test]
fn a_bias_is_a_shift_everywhere() {
    let device = Device::flex();
    let mut head = head(&device);
    head.weight = Param::from_tensor(head.weight.val().zeros_like());
    head.bias = Some(Param::from_tensor(Tensor::from_floats([1.5, -2.0, 0.25], &device)));
    // Features of every voxel, and of every second one; images smaller than what was padded.
    for (voxel, spacing, size) in [(1, 4, [13, 16, 9]), (2, 8, [30, 32, 17]), (2, 2, [5, 6, 7])] {
        let features = Tensor::zeros([1, 2, 32 / voxel, 32 / voxel, 32 / voxel], &device);
        let u = spline_flow(&head, features, voxel, spacing, size);
        let count: usize = size.iter().product();
        let expected: Vec<f64> = [1.5, -2.0, 0.25].iter().flat_map(|c| vec![*c; count]).collect();
        assert_close("shift", &to_f64(u), &expected, F32);
    }
}

#[test]
fn a_control_point_moves_the_voxels_around_its_feature() {
    let device = Device::flex();
    let mut head = head(&device);
    // The centre of the kernel alone: no convolution, and of the first channel.
    let mut weights = vec![0.0; 3 * 2 * 27];
    weights[13] = 1.0;
    let weight = tensor(&weights, [3, 2, 3, 3, 3], &device, DType::F32);
    head.weight = Param::from_tensor(weight);
    let mut features = vec![0.0; 2 * 8 * 8 * 8];
    features[(4 * 8 + 3) * 8 + 5] = 1.0;
    let features = tensor(&features, [1, 2, 8, 8, 8], &device, DType::F32);
    let u = to_f64(spline_flow(&head, features, 2, 2, [16; 3]));
    // B(t) B(t) B(t) of a cubic about the centre of feature (5, 3, 4): voxel 2 i + 1/2.
    let spline = |t: f64| match t.abs() {
        t if t < 1.0 => 2.0 / 3.0 - t * t + t.powi(3) / 2.0,
        t => (2.0 - t).max(0.0).powi(3) / 6.0,
    };
    let at =
        |voxel: usize, feature: usize| spline((voxel as f64 - 0.5 - 2.0 * feature as f64) / 2.0);
    let value = |v: usize| at(v % 16, 5) * at(v / 16 % 16, 3) * at(v / 256, 4);
    let mut expected: Vec<f64> = (0..16 * 16 * 16).map(value).collect();
    expected.resize(3 * 16 * 16 * 16, 0.0);
    assert_close("basis", &u, &expected, F32);
}

#[test]
fn networks_learn_through_it() {
    let device = Device::flex().autodiff();
    let small = VoxelMorphConfig::new().with_encoder([2; 4]).with_decoder([2; 4]);
    let morph = TransMorphConfig::tiny().with_drop_path(0.0).for_size([32; 3]);
    for config in [
        NetworkConfig::from(small.with_last([2; 3]).with_control_spacing(Some(4))),
        morph.clone().with_control_spacing(Some(4)).into(),
        morph.with_resolution(Resolution::Full).with_control_spacing(Some(8)).into(),
    ] {
        let network = config.init(&device);
        let image = |seed| -> Tensor<5> {
            let values = uniform(20 * 32 * 27, 0.0, 1.0, seed);
            tensor(&values, [1, 1, 20, 32, 27], &device, DType::F32)
        };
        let (moving, fixed) = (image(1), image(2));
        let u = network.forward(moving.clone(), fixed.clone());
        assert_eq!(u.dims(), [1, 3, 20, 32, 27]);
        let gradients = ffdp_burn::ops::mse(ffdp_burn::ops::warp(moving, u), fixed).backward();
        let head = match &network.deformation {
            crate::Deformation::VoxelMorph(network) => &network.head,
            crate::Deformation::TransMorph(network) => &network.head.conv,
        };
        let gradient = head.weight.val().grad(&gradients).expect("it learns");
        assert!(gradient.abs().max().into_scalar::<f32>() > 0.0, "{config:?}");
    }
}

#[test]
#[should_panic(expected = "control points lie 2, .. or 16 voxels apart, got 3")]
fn other_spacings_are_refused() {
    VoxelMorphConfig::new().with_control_spacing(Some(3)).init(&Device::flex());
}
