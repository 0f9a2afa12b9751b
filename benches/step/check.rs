//! The layers on the device against the same on the CPU, values and gradients: a fast answer is worth
//! nothing if it is wrong.

use burn::tensor::{Device, Distribution, Tensor, TensorData};
use ffdp::nets::{TransMorphConfig, Variant};
use ffdp::ops::{
    Activation, InstanceNormOptions, Precision, WindowCut, conv3d_with, cut_windows, instance_norm,
    join_windows, layer_norm, linear, position_bias, upsample_x2_join, window_attention,
};

/// Largest difference of any element, relative to the largest element.
fn error(a: &TensorData, b: &TensorData) -> f64 {
    let [a, b] = [a, b].map(|data| data.clone().convert::<f64>().try_to_vec::<f64>().expect("f64"));
    let scale = b.iter().fold(f64::MIN_POSITIVE, |scale, b| scale.max(b.abs()));
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale
}

/// A layer of two inputs, of the shapes `left` and `right`; prints the errors of the value and both gradients.
fn compare<const D: usize, const E: usize, const F: usize>(
    name: &str,
    device: &Device,
    left: [usize; D],
    right: [usize; E],
    layer: impl Fn(Tensor<D>, Tensor<E>) -> Tensor<F>,
) {
    let normal = Distribution::Normal(0.0, 1.0);
    let a = Tensor::<D>::random(left, normal, &Device::flex()).into_data();
    let b = Tensor::<E>::random(right, normal, &Device::flex()).into_data();
    let run = |device: &Device| {
        let device = device.clone().autodiff();
        let a = Tensor::<D>::from_data(a.clone(), &device).require_grad();
        let b = Tensor::<E>::from_data(b.clone(), &device).require_grad();
        let y = layer(a.clone(), b.clone());
        // Not constant, so that misplaced gradients show.
        let gradients = (y.clone() * y.clone().detach().sin()).sum().backward();
        let to_b = b.grad(&gradients).unwrap_or_else(|| b.inner());
        let to_a = a.grad(&gradients).unwrap_or_else(|| a.inner());
        [y.into_data(), to_a.into_data(), to_b.into_data()]
    };
    let (actual, expected) = (run(device), run(&Device::flex()));
    let errors: Vec<String> =
        actual.iter().zip(&expected).map(|(a, b)| format!("{:.1e}", error(a, b))).collect();
    println!("{name:<52} {}", errors.join(" "));
}

/// Prints relative errors: value, gradient of the first input, gradient of the second.
pub fn check(device: &Device) {
    println!("relative errors against the CPU: value, gradients");
    convolutions(device);
    for shape in [[1, 3, 9, 10, 11], [2, 2, 24, 32, 40]] {
        compare(&format!("instance norm {shape:?}"), device, shape, [1, 1], |x, _| {
            instance_norm(x, &InstanceNormOptions::default())
        });
    }
    compare("upsampling", device, [1, 3, 5, 6, 35], [1, 2, 10, 12, 70], upsample_x2_join);
    attention(device);
    linear_layers(device);
    for shape in [[1, 5, 6, 7, 6], [1, 8, 9, 10, 96], [2, 3, 3, 3, 1536]] {
        compare(&format!("layer norm {shape:?}"), device, shape, [shape[4]], |x, gamma| {
            layer_norm(x, gamma.clone(), gamma, 1e-5)
        });
    }
    let cut = WindowCut { grid: [7, 9, 20], window: [5, 6, 7], shift: [2, 3, 3] };
    compare("windows", device, [2, 7, 9, 20, 5], [1], |x, _| {
        join_windows(cut_windows(x, cut).powi_scalar(2), cut)
    });
    compare("position bias", device, [9 * 11 * 13, 4], [1, 1], |table, _| {
        position_bias(table, [5, 6, 7])
    });
    networks(device);
}

fn convolutions(device: &Device) {
    for precision in [Precision::Single, Precision::TensorFloat] {
        for (shape, outputs) in [
            ([1, 16, 12, 20, 40], 16),
            ([2, 9, 5, 9, 17], 19),
            ([1, 24, 8, 12, 14], 40),
            ([1, 2, 9, 33, 31], 3),
        ] {
            let name = format!("conv3d {shape:?} -> {outputs} {precision:?}");
            compare(&name, device, shape, [outputs, shape[1], 3, 3, 3], |x, w| {
                conv3d_with(x, w, [1; 3], precision)
            });
        }
    }
}

fn attention(device: &Device) {
    for (tokens, heads, channels) in [(60, 2, 6), (210, 4, 24)] {
        let name = format!("attention, {tokens} tokens, {heads} heads of {channels}");
        let (qkv, bias) = ([4, tokens, 3 * heads * channels], [heads, tokens, tokens]);
        compare(&name, device, qkv, bias, |qkv, bias| {
            let [_, tokens, _] = qkv.dims();
            let regions: Vec<f32> =
                (0..2 * tokens).map(|i| (i % 3 * (i / tokens)) as f32).collect();
            let regions = TensorData::new(regions, [2, tokens]);
            let regions = Tensor::<2>::from_data(regions, &qkv.device());
            window_attention(qkv, bias, regions)
        });
    }
}

fn linear_layers(device: &Device) {
    for (rows, inputs, outputs) in
        [(210, 6, 18), (1000, 24, 6), (6720, 96, 288), (300, 33, 70), (210, 768, 256)]
    {
        for (activation, precision) in [
            (Activation::Identity, Precision::TensorFloat),
            (Activation::Gelu, Precision::TensorFloat),
            (Activation::Gelu, Precision::Single),
        ] {
            let name =
                format!("linear {rows} x {inputs} -> {outputs}, {activation:?}, {precision:?}");
            compare(&name, device, [rows, inputs], [inputs, outputs], |x, weight| {
                let bias = weight.clone().slice([0..1, 0..outputs]).reshape([outputs]);
                linear(x, weight / (inputs as f64).sqrt(), Some(bias), activation, precision)
            });
        }
    }
}

fn networks(device: &Device) {
    let size = [64, 96, 128];
    let images = [1, 1, size[0], size[1], size[2]];
    for precision in [Precision::Single, Precision::TensorFloat] {
        let name = format!("TransMorph Tiny {size:?}, {precision:?}");
        compare(&name, device, images, images, |moving, fixed| {
            let config = TransMorphConfig::new(Variant::Tiny).for_size(size).with_drop_path(0.0);
            let network = config.with_precision(precision).init(&moving.device());
            network.forward(moving, fixed)
        });
    }
}
