//! Labels against the definition: sampled indicators of every label, then the largest.

use super::*;

/// Labels of the maps, not consecutive, not all positive.
const LABELS: [f64; 5] = [-2.0, 0.0, 3.0, 7.0, 1000.0];

/// A map of [`LABELS`] in runs of up to two voxels.
fn map([n, c, d, h, w]: [usize; 5], seed: u64) -> Vec<f64> {
    let coarse = uniform(n * c * d * h * w, 0.0, LABELS.len() as f64, seed);
    (0..n * c * d * h * w)
        .map(|voxel| {
            let (x, y, z) = (voxel % w / 2 * 2, voxel / w % h / 2 * 2, voxel / (w * h) % d);
            LABELS[coarse[voxel / (w * h * d) * (w * h * d) + (z * h + y) * w + x] as usize]
        })
        .collect()
}

/// Displacements in quarters of a voxel: sums of weights are exact in f32, so that equal ones are
/// equal on every device.
fn quarters(len: usize, reach: f64, seed: u64) -> Vec<f64> {
    uniform(len, -4.0 * reach, 4.0 * reach, seed).into_iter().map(|u| u.round() / 4.0).collect()
}

/// The label with the largest sampled indicator, the smallest of equal ones.
fn by_indicators(map: &[f64], shape: [usize; 5], field: &Tensor<5>, padding: Padding) -> Vec<f64> {
    let [n, c, ..] = shape;
    let options = GridSampleOptions { padding, ..Default::default() };
    let sampled: Vec<Vec<f64>> = LABELS
        .iter()
        .map(|label| {
            let indicator: Vec<f64> = map.iter().map(|l| f64::from(l == label)).collect();
            let indicator = tensor(&indicator, shape, &cpu(), DType::F64);
            to_f64(grid_sample(indicator, None, Some(field.clone()), &options))
        })
        .collect();
    let len = sampled[0].len();
    assert_eq!(len % (n * c), 0);
    (0..len)
        .map(|voxel| {
            let outside = 1.0 - sampled.iter().map(|share| share[voxel]).sum::<f64>();
            let share = |k: usize| sampled[k][voxel] + if LABELS[k] == 0.0 { outside } else { 0.0 };
            let first_largest = |best: usize, k| if share(k) > share(best) { k } else { best };
            LABELS[(0..LABELS.len()).fold(0, first_largest)]
        })
        .collect()
}

#[test]
fn the_label_with_most_weight_wins_on_every_device() {
    let cases = [
        ([1, 1, 6, 7, 9], [6, 7, 9], 1.5),
        ([2, 2, 5, 4, 6], [3, 8, 5], 1.5),
        ([1, 1, 1, 1, 1], [2, 1, 3], 1.0),
        ([1, 1, 1, 8, 1], [3, 8, 2], 3.0),
    ];
    let mut devices = gpu_devices();
    devices.push(("cpu", cpu()));
    for (shape, [d, h, w], reach) in cases {
        let map = map(shape, 60);
        let size = [shape[0], 3, d, h, w];
        let field = quarters(size.iter().product(), reach, 61);
        for padding in [Padding::Zeros, Padding::Border] {
            let on_cpu = tensor(&field, size, &cpu(), DType::F64);
            let expected = by_indicators(&map, shape, &on_cpu, padding);
            for (name, device) in &devices {
                let labels = tensor(&map, shape, device, DType::F32);
                let field = tensor(&field, size, device, DType::F32);
                let interpolation = Interpolation::Label;
                let options = GridSampleOptions { interpolation, padding, ..Default::default() };
                let moved = grid_sample(labels, None, Some(field), &options);
                assert_eq!(to_f64(moved), expected, "{name} {shape:?} {padding:?}");
            }
        }
    }
}

#[test]
fn of_equal_labels_the_smallest_wins() {
    let labels = tensor(&[5.0, 2.0, 2.0, -1.0], [1, 1, 1, 1, 4], &cpu(), DType::F32);
    let options = GridSampleOptions { interpolation: Interpolation::Label, ..Default::default() };
    let shift = constant(1, [1, 1, 4], [0.5, 0.0, 0.0]);
    let shift = shift.cast(DType::F32);
    // Between 5 and 2; between two 2s; between 2 and -1; between -1 and the background.
    assert_eq!(to_f64(grid_sample(labels, None, Some(shift), &options)), [2.0, 2.0, -1.0, -1.0]);
}

#[test]
fn two_neighbours_outvote_the_nearest() {
    // Seen from 0.4, 0.4 of a 2 x 2 slice: 9 has 0.36, the 4s have 0.24 + 0.24.
    let labels = tensor(&[9.0, 4.0, 4.0, 1.0], [1, 1, 1, 2, 2], &cpu(), DType::F64);
    let field = constant(1, [1, 2, 2], [0.4, 0.4, 0.0]);
    let at = |interpolation| {
        let options = GridSampleOptions { interpolation, ..Default::default() };
        to_f64(grid_sample(labels.clone(), None, Some(field.clone()), &options))[0]
    };
    assert_eq!(at(Interpolation::Nearest), 9.0);
    assert_eq!(at(Interpolation::Label), 4.0);
}

#[test]
fn labels_carry_no_gradient() {
    let device = cpu().autodiff();
    let labels = tensor(&map([1, 1, 3, 4, 5], 62), [1, 1, 3, 4, 5], &device, DType::F32);
    let field = tensor(&quarters(180, 1.0, 63), [1, 3, 3, 4, 5], &device, DType::F32);
    let (labels, field) = (labels.require_grad(), field.require_grad());
    let options = GridSampleOptions { interpolation: Interpolation::Label, ..Default::default() };
    let moved = grid_sample(labels.clone(), None, Some(field.clone()), &options);
    let gradients = (moved.sum() + field.clone().sum()).backward();
    assert!(labels.grad(&gradients).is_none());
    assert_eq!(to_f64(field.grad(&gradients).expect("of its own sum")), vec![1.0; 180]);
}
