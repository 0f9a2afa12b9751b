//! Losses of sharded images.

use burn::tensor::{Int, TensorData};

use super::*;
use ffdp_burn::losses::{
    self, Lncc, Mse, MutualInformation, NormalizedMutualInformation, SimilarityLoss,
};
use ffdp_burn::ops::{
    GradientMode, HistogramMode, HistogramOptions, LnccOptions, LnccWeights, joint_histogram,
};
use ffdp_kit::testing::{gpu_devices, several_gpus};

/// Sums of windows that are cut, which cancel; and logarithms of tables.
const F64_LOSS: f64 = 1e-11;
/// Memberships on a GPU are rounded to 2^-18 = 4e-6 each, their sums by less.
const GPU_OVERLAP: f64 = 1e-5;
/// Differences of scores and of weights.
const GPU_GRADIENT: f64 = 1e-4;

fn similarities() -> Vec<Box<dyn SimilarityLoss>> {
    let lncc = LnccOptions { window: 5, ..LnccOptions::default() };
    let bell = LnccWeights::Gaussian { sigma_voxels: 1.2 };
    let histogram = HistogramOptions { bins: 16, ..HistogramOptions::default() };
    let hard = HistogramOptions { mode: HistogramMode::Approximate, ..histogram };
    vec![
        Box::new(Lncc(lncc)),
        Box::new(Lncc(LnccOptions { weights: bell, window: 7, ..lncc })),
        Box::new(Lncc(LnccOptions { gradient: GradientMode::AntsApproximate, ..lncc })),
        Box::new(Mse),
        Box::new(MutualInformation(histogram)),
        Box::new(MutualInformation(hard)),
        Box::new(NormalizedMutualInformation(histogram)),
    ]
}

/// A loss and its gradients to both images.
fn evaluate(
    images: &[Tensor<5>; 2],
    loss: impl Fn([&Tensor<5>; 2]) -> Tensor<1>,
) -> (Vec<f64>, [Vec<f64>; 2]) {
    let leaves = images.each_ref().map(tracked);
    let loss = loss(leaves.each_ref());
    let gradients = loss.backward();
    let gradient = |leaf: &Tensor<5>| to_f64(leaf.grad(&gradients).expect("both are tracked"));
    (to_f64(loss.inner()), leaves.each_ref().map(gradient))
}

#[test]
fn losses_are_those_of_the_whole() {
    for similarity in similarities() {
        for layout in layouts(8) {
            for (dtype, tolerance) in [(DType::F64, F64_LOSS), (DType::F32, F32_ROUNDING)] {
                // One channel: a joint histogram takes no more.
                let images = [5, 6].map(|seed| random(1, layout.size(), [0.0, 1.0], dtype, seed));
                let part = |image: &Tensor<5>| {
                    Sharded::from_tensor(image.clone(), &layout, &mesh(&layout))
                };
                let (value, gradients) =
                    evaluate(&images, |[m, f]| loss(similarity.as_ref(), &part(m), &part(f)));
                let (expected, whole) =
                    evaluate(&images, |[m, f]| similarity.loss(m.clone(), f.clone()));
                let label = format!("{similarity:?} {layout:?} {dtype:?}");
                assert_close(&label, &value, &expected, tolerance);
                assert_close(&label, &gradients[0], &whole[0], tolerance);
                assert_close(&label, &gradients[1], &whole[1], tolerance);
            }
        }
    }
}

#[test]
fn a_mesh_of_one_has_the_serial_loss() {
    let layout = Layout::balanced([9, 8, 7], Axis::Y, 1).unwrap();
    let [moved, fixed] = [5, 6].map(|seed| random(1, layout.size(), [0.0, 1.0], DType::F32, seed));
    for similarity in similarities() {
        let parts = loss(similarity.as_ref(), &split(&moved, &layout), &split(&fixed, &layout));
        let serial = similarity.loss(moved.clone(), fixed.clone());
        assert_eq!(bits(parts), bits(serial), "{similarity:?}");
    }
}

#[test]
fn votes_are_those_of_the_whole() {
    let options = HistogramOptions { bins: 12, ..HistogramOptions::default() };
    for layout in layouts(9) {
        let [a, b] = [5, 6].map(|seed| random(1, layout.size(), [0.0, 1.0], DType::F64, seed));
        let votes = joint_histogram_votes(&split(&a, &layout), &split(&b, &layout), &options);
        let table = votes.mul_scalar(1.0 / layout.voxels() as f64);
        let expected = joint_histogram(a, b, &options);
        assert_close(&format!("{layout:?}"), &to_f64(table), &to_f64(expected), F64_ROUNDING);
    }
}

/// Labels of which some are negative or large, whole.
fn labels(size: [usize; 3], seed: u64, device: &Device) -> Tensor<5, Int> {
    const FOUND: [i32; 6] = [0, 3, -7, 1 << 30, 12, 4];
    let [d, h, w] = size;
    let values = uniform(2 * d * h * w, 0.0, 6.0, seed);
    let values: Vec<i32> = values.into_iter().map(|value| FOUND[value as usize]).collect();
    Tensor::from_data(TensorData::new(values, [2, 1, d, h, w]), device)
}

const IDS: [i32; 4] = [3, -7, 1 << 30, 99];

#[test]
fn overlap_of_labels_is_that_of_the_whole() {
    for layout in layouts(7) {
        // The moving labels have a grid of their own; the longest displacements leave it.
        let own = layout.size().map(|n| n + 2);
        for (dtype, tolerance) in PRECISIONS {
            for longest in [0.4, 1.7, 40.0] {
                // Positions are rounded relative to their size, of 10 voxels and more.
                let tolerance = tolerance * (1.0 + longest / 10.0);
                let cpu = Device::flex();
                let maps = || [labels(own, 3, &cpu), labels(layout.size(), 4, &cpu)];
                let field = random(3, layout.size(), [-longest, longest], dtype, 5);
                let [expected, parts] = [false, true].map(|cut| {
                    let leaf = tracked(&field);
                    let loss = if cut {
                        let parts = Sharded::from_tensor(leaf.clone(), &layout, &mesh(&layout));
                        let bounds = DisplacementBounds::read(&parts).expect("on the CPU");
                        label_dice_loss(maps(), &parts, &bounds, &IDS)
                    } else {
                        let [moving, fixed] = maps();
                        losses::label_dice_loss(moving, fixed, leaf.clone(), &IDS)
                    };
                    let gradients = loss.backward();
                    (to_f64(loss.inner()), to_f64(leaf.grad(&gradients).expect("tracked")))
                });
                let label = format!("{layout:?} {dtype:?} up to {longest} voxels");
                assert_close(&label, &parts.0, &expected.0, tolerance);
                assert_close(&label, &parts.1, &expected.1, tolerance);
            }
        }
    }
}

#[test]
fn gpus_score_labels_in_parts() {
    let mut meshes: Vec<_> = gpu_devices().into_iter().map(|(_, gpu)| vec![gpu]).collect();
    meshes.extend(Some(several_gpus()).filter(|gpus| !gpus.is_empty()));
    for gpus in meshes {
        for axis in AXES {
            let size = [13, 14, 17];
            let evaluate = |devices: &[Device], shards: usize| {
                let layout = Layout::balanced(size, axis, shards).expect("many planes");
                let tape: Vec<_> = devices.iter().map(|device| device.clone().autodiff()).collect();
                let mesh = DeviceMesh::new(&tape, shards).expect("a device");
                let maps = [3, 4].map(|seed| labels(size, seed, &devices[0]));
                let field = random(3, size, [-2.4, 2.4], DType::F32, 5).to_device(&devices[0]);
                let leaf = tracked(&field);
                let parts = Sharded::from_tensor(leaf.clone(), &layout, &mesh);
                let bounds = DisplacementBounds::read(&parts).expect("numbers");
                let loss = label_dice_loss(maps, &parts, &bounds, &IDS);
                let gradients = loss.backward();
                (to_f64(loss.inner()), to_f64(leaf.grad(&gradients).expect("tracked")))
            };
            let (value, gradient) = evaluate(&gpus, 4);
            let (expected, of_cpu) = evaluate(&[Device::flex()], 1);
            let label = format!("{gpus:?} {axis:?}");
            assert_close(&label, &value, &expected, GPU_OVERLAP);
            assert_close(&label, &gradient, &of_cpu, GPU_GRADIENT);
        }
    }
}
