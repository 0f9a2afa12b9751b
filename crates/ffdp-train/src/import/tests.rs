//! Against numbers of a PyTorch model with the published names: `scripts/golden/transmorph.py`.

use std::collections::HashMap;

use burn::tensor::{Device, Tensor, TensorData};
use ffdp_burn::ops::warp;
use ffdp_nets::{Resolution, TransMorph, TransMorphConfig};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Map, Value};

use crate::input::GridCompat;

/// Two f32 networks of ten blocks and nine normalised convolutions, summed in different orders, on
/// fields of about a voxel.
const TOLERANCE: f32 = 1e-4;

/// The script's generator: numbers in [-1, 1).
fn numbers(seed: u32, count: usize) -> Vec<f64> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 23) - 1.0
    };
    (0..count).map(next).collect()
}

fn crc32(text: &str) -> u32 {
    let step = |crc: u32, byte: u8| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 }
        })
    };
    !text.bytes().fold(!0, step)
}

/// The script's weights of a tensor.
pub(crate) fn weights(name: &str, shape: &[usize]) -> Vec<f32> {
    let count: usize = shape.iter().product();
    let change: Box<dyn Fn(f64) -> f64> = if name.contains("norm") && name.ends_with("weight") {
        Box::new(|v| 1.0 + 0.2 * v)
    } else if shape.len() > 1 && !name.contains("table") {
        let bound = ((count / shape[0]) as f64).sqrt();
        Box::new(move |v| v / bound)
    } else {
        Box::new(|v| 0.2 * v)
    };
    numbers(crc32(name), count).into_iter().map(|v| change(v) as f32).collect()
}

/// The script's image, `[1, 1, D, H, W]`.
fn image(seed: u32, [nd, nh, nw]: [usize; 3]) -> Tensor<5> {
    let blocks = numbers(seed, nd / 8 * (nh / 8) * (nw / 8));
    let mut values = Vec::with_capacity(nd * nh * nw);
    for d in 0..nd {
        for h in 0..nh {
            for w in 0..nw {
                let block = blocks[(d / 8 * (nh / 8) + h / 8) * (nw / 8) + w / 8];
                let ramp = (d % 8 + h % 8 + w % 8) as f64 / 24.0;
                values.push((0.25 + 0.25 * block + 0.5 * ramp) as f32);
            }
        }
    }
    Tensor::from_data(TensorData::new(values, [1, 1, nd, nh, nw]), &Device::flex())
}

fn golden() -> Value {
    serde_json::from_str(include_str!("golden.json")).expect("the script wrote JSON")
}

pub(crate) fn floats(value: &Value) -> Vec<f32> {
    let values = value.as_array().expect("a list").iter();
    values.map(|v| v.as_f64().expect("a number") as f32).collect()
}

pub(crate) fn size(golden: &Value) -> [usize; 3] {
    [0, 1, 2].map(|i| golden["size_dhw"][i].as_u64().expect("a size") as usize)
}

/// TransMorph-Tiny with the script's weights, through a file; without random draws.
pub(crate) fn imported(
    shapes: &Map<String, Value>,
    size: [usize; 3],
    resolution: Resolution,
    leave_out: Option<&str>,
    device: &Device,
) -> super::Result<TransMorph> {
    let mut bytes: HashMap<String, (Vec<usize>, Vec<u8>)> = HashMap::new();
    for (name, shape) in shapes.iter().filter(|(name, _)| leave_out != Some(name.as_str())) {
        let shape: Vec<usize> = shape
            .as_array()
            .expect("a list")
            .iter()
            .map(|n| n.as_u64().expect("a size") as usize)
            .collect();
        let values = weights(name, &shape);
        let values = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes.insert(name.clone(), (shape, values));
    }
    let index = vec![0u8; 8];
    let mut views: HashMap<String, TensorView> = bytes
        .iter()
        .map(|(name, (shape, values))| {
            let view = TensorView::new(Dtype::F32, shape.clone(), values).expect("as many bytes");
            (name.clone(), view)
        })
        .collect();
    let ignored = TensorView::new(Dtype::I64, vec![1], &index).expect("eight bytes");
    views.insert("transformer.layers.0.blocks.0.attn.relative_position_index".into(), ignored);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("weights.safetensors");
    let content = serialize(&views, None).expect("consistent");
    std::fs::write(&file, content).expect("writable");
    let config = TransMorphConfig::tiny().with_resolution(resolution).for_size(size);
    super::load(&file, config.with_drop_path(0.0).init(device))
}

/// The tensors of a network of the script.
fn shapes<'a>(golden: &'a Value, name: &str) -> &'a Map<String, Value> {
    golden[name]["shapes"].as_object().expect("shapes by name")
}

#[test]
fn imported_networks_predict_what_pytorch_predicts() {
    let golden = golden();
    let size = size(&golden);
    let count: usize = size.iter().product();
    let (moving, fixed) = (image(1, size), image(2, size));
    for (name, resolution) in [("half", Resolution::Half), ("full", Resolution::Full)] {
        let network = imported(shapes(&golden, name), size, resolution, None, &Device::flex());
        let network = network.expect("all tensors are there");
        let flow = network.forward(moving.clone(), fixed.clone());
        let values: Vec<f32> = flow.clone().into_data().try_to_vec().expect("f32");
        let compare = |what: &str, expected: &Value, values: &[f32]| {
            let expected = floats(expected);
            assert_eq!(expected.len(), 40, "{name} {what}");
            for (k, expected) in expected.into_iter().enumerate() {
                let value = values[(k * 7919 + 13) % count];
                let difference = (value - expected).abs();
                assert!(difference < TOLERANCE, "{name} {what} {k}: {value} for {expected}");
            }
        };
        for component in 0..3 {
            // (D, H, W) there is (z, y, x) here.
            let ours = &values[(2 - component) * count..(3 - component) * count];
            compare("flow", &golden[name]["flow_dhw"][component], ours);
        }
        let seen = warp(moving.clone(), GridCompat::Published.displacement(flow));
        let seen: Vec<f32> = seen.into_data().try_to_vec().expect("f32");
        compare("moved", &golden[name]["moved_published"], &seen);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let golden = golden();
    let shapes = shapes(&golden, "half");
    let import = |size, leave_out| {
        let network = imported(shapes, size, Resolution::Half, leave_out, &Device::flex());
        network.expect_err("it does not fit").to_string()
    };
    let missing = "transformer.layers.2.blocks.3.attn.qkv.weight";
    let error = import(size(&golden), Some(missing));
    assert!(error.contains(missing), "{error}");
    // The half-resolution weights in a network of another window.
    let error = import([160, 192, 224], None);
    assert!(
        error.contains("relative_position_bias_table must have the shape [1287, 2]"),
        "{error}"
    );
}
