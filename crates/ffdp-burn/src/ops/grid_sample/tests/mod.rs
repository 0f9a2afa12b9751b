//! Exact cases, invariants, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, normal, tensor, to_f64, uniform};

mod block;
mod labels;
mod scatter;
mod stretches;

/// The gradients are sums of products of exact f64 terms; differences reach about 1e-9.
const FINITE_DIFFERENCES: f64 = 1e-7;
/// f32 rounding of coordinates (up to ~50 here) moves a sample by a few 1e-6 voxel.
const GPU_FORWARD: f64 = 1e-5;
/// As above; a slope is a difference of neighbours, and affine entries sum p-weighted terms.
const GPU_GRADIENT: f64 = 1e-4;

fn cpu() -> Device {
    Device::flex()
}

fn image(shape: [usize; 5], seed: u64) -> Tensor<5> {
    tensor(&normal(shape.iter().product(), seed), shape, &cpu(), DType::F64)
}

/// The same displacement at every voxel.
fn constant(batch: usize, size: [usize; 3], u: [f64; 3]) -> Tensor<5> {
    let len = size.iter().product();
    let field: Vec<f64> =
        (0..batch).flat_map(|_| u).flat_map(|u| std::iter::repeat_n(u, len)).collect();
    tensor(&field, [batch, 3, size[0], size[1], size[2]], &cpu(), DType::F64)
}

#[test]
fn zero_displacement_returns_the_image() {
    let image = image([2, 3, 4, 5, 6], 1);
    let moved = warp(image.clone(), constant(2, [4, 5, 6], [0.0; 3]));
    assert_eq!(to_f64(moved), to_f64(image));
}

#[test]
fn integer_shift_moves_voxels_and_fills_with_zeros() {
    let image = image([1, 1, 3, 4, 5], 2);
    let moved = warp(image.clone(), constant(1, [3, 4, 5], [1.0, -1.0, 0.0]));
    let (moved, image) = (to_f64(moved), to_f64(image));
    for (z, y, x) in (0..3).flat_map(|z| (0..4).flat_map(move |y| (0..5).map(move |x| (z, y, x)))) {
        let expected = if x + 1 < 5 && y >= 1 { image[(z * 4 + y - 1) * 5 + x + 1] } else { 0.0 };
        assert_eq!(moved[(z * 4 + y) * 5 + x], expected, "voxel ({x}, {y}, {z})");
    }
}

#[test]
fn border_padding_repeats_the_last_voxel() {
    let image = image([1, 1, 1, 1, 4], 3);
    let options = GridSampleOptions { padding: Padding::Border, ..Default::default() };
    let shift = constant(1, [1, 1, 4], [2.5, 7.0, -3.0]);
    let moved = to_f64(grid_sample(image.clone(), None, Some(shift), &options));
    let v = to_f64(image);
    assert_eq!(moved, vec![(v[2] + v[3]) / 2.0, v[3], v[3], v[3]]);
}

#[test]
fn half_a_voxel_averages_neighbours() {
    let image = image([1, 1, 1, 1, 3], 4);
    let moved = to_f64(warp(image.clone(), constant(1, [1, 1, 3], [0.5, 0.0, 0.0])));
    let v = to_f64(image);
    assert_eq!(moved, vec![(v[0] + v[1]) / 2.0, (v[1] + v[2]) / 2.0, v[2] / 2.0]);
}

#[test]
fn nearest_reads_one_voxel() {
    let image = image([1, 1, 1, 1, 4], 5);
    let options = GridSampleOptions { interpolation: Interpolation::Nearest, ..Default::default() };
    let shift = constant(1, [1, 1, 4], [0.6, 0.4, -0.4]);
    let moved = to_f64(grid_sample(image.clone(), None, Some(shift), &options));
    let v = to_f64(image);
    assert_eq!(moved, vec![v[1], v[2], v[3], 0.0]);
}

#[test]
fn affine_map_equals_the_displacement_it_induces() {
    let image = image([1, 2, 5, 4, 6], 6);
    let rows = [[0.9, 0.1, -0.05, 0.3], [-0.1, 1.1, 0.02, -0.4], [0.03, 0.0, 0.95, 0.2]];
    let affine: Vec<f64> = rows.iter().flatten().copied().collect();
    let affine = tensor(&affine, [1, 3, 4], &cpu(), DType::F64);
    let mut field = vec![0.0; 3 * 120];
    for voxel in 0..120 {
        let p = [(voxel % 6) as f64, (voxel / 6 % 4) as f64, (voxel / 24) as f64];
        for (i, row) in rows.iter().enumerate() {
            field[i * 120 + voxel] = row[0] * p[0] + row[1] * p[1] + row[2] * p[2] + row[3] - p[i];
        }
    }
    let field = tensor(&field, [1, 3, 5, 4, 6], &cpu(), DType::F64);
    let by_affine = grid_sample(image.clone(), Some(affine), None, &GridSampleOptions::default());
    // The induced displacement is rounded once more than the map: 1e-14 of the range.
    assert_close("affine", &to_f64(by_affine), &to_f64(warp(image, field)), 1e-13);
}

#[test]
fn slabs_of_the_image_add_up_to_the_whole() {
    // What makes the ring sampler exact: with zero padding, corners outside add nothing.
    let image = image([1, 1, 7, 4, 5], 7);
    let field = tensor(&uniform(3 * 140, -3.0, 3.0, 8), [1, 3, 7, 4, 5], &cpu(), DType::F64);
    let whole = to_f64(warp(image.clone(), field.clone()));
    let mut sum = vec![0.0; 140];
    for (start, stop) in [(0usize, 2usize), (2, 3), (3, 7)] {
        let slab = image.clone().slice([0..1, 0..1, start..stop, 0..4, 0..5]);
        let offset = -(start as f64);
        let shift = [1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., offset];
        let affine = tensor(&shift, [1, 3, 4], &cpu(), DType::F64);
        let options = GridSampleOptions::default();
        let part = to_f64(grid_sample(slab, Some(affine), Some(field.clone()), &options));
        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    assert_close("slabs", &sum, &whole, 1e-14);
}

/// One case of the tables below.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    channels: usize,
    input: [usize; 3],
    output: [usize; 3],
    affines: usize,
    displaced: bool,
    padding: Padding,
}

const fn case(batch: usize, channels: usize, input: [usize; 3], output: [usize; 3]) -> Case {
    let (affines, displaced, padding) = (1, true, Padding::Zeros);
    Case { batch, channels, input, output, affines, displaced, padding }
}

impl Case {
    /// Image, affine and displacement. Positions off the lattice keep differences meaningful.
    fn inputs(&self) -> [Vec<f64>; 3] {
        let [input, output] = [self.input, self.output].map(|s| s.iter().product::<usize>());
        let mut affine = Vec::new();
        for n in 0..self.affines {
            let noise = uniform(12, -0.02, 0.02, 30 + n as u64);
            for (entry, noise) in noise.iter().enumerate() {
                let (i, j) = (entry / 4, entry % 4);
                let fit = self.input[2 - i] as f64 / self.output[2 - i] as f64;
                affine.push(noise + if i == j { fit } else { 0.0 } + f64::from(j == 3) * 0.137);
            }
        }
        let fields = if self.displaced { self.batch * 3 * output } else { 0 };
        [normal(self.batch * self.channels * input, 20), affine, uniform(fields, -1.4, 1.4, 21)]
    }

    /// The loss `sum(y * weights)` and the gradients of image, affine and displacement.
    fn evaluate(&self, inputs: &[Vec<f64>], device: &Device, dtype: DType) -> ValueAndGradients {
        let device = device.clone().autodiff();
        let ([d, h, w], [di, hi, wi]) = (self.output, self.input);
        let shape = [self.batch, self.channels, di, hi, wi];
        let image = tensor(&inputs[0], shape, &device, dtype).require_grad();
        let affine = tensor(&inputs[1], [self.affines, 3, 4], &device, dtype).require_grad();
        let field = self
            .displaced
            .then(|| tensor(&inputs[2], [self.batch, 3, d, h, w], &device, dtype).require_grad());
        let options = GridSampleOptions {
            padding: self.padding,
            displacement_scale: [[0.9, 0.1, 0.0], [-0.1, 1.2, 0.05], [0.02, 0.0, 0.8]],
            size: Some(self.output),
            ..Default::default()
        };
        let y = grid_sample(image.clone(), Some(affine.clone()), field.clone(), &options);
        let shape = [self.batch, self.channels, d, h, w];
        assert_eq!(y.dims(), shape, "{self:?}");
        let weights = tensor(&normal(shape.iter().product(), 22), shape, &device, dtype);
        let loss = (y.clone() * weights).sum();
        let gradients = loss.backward();
        ValueAndGradients {
            output: to_f64(y.inner()),
            loss: to_f64(loss.inner())[0],
            gradients: vec![
                to_f64(image.grad(&gradients).expect("image")),
                to_f64(affine.grad(&gradients).expect("affine")),
                field.map_or(vec![], |f| to_f64(f.grad(&gradients).expect("field"))),
            ],
        }
    }
}

struct ValueAndGradients {
    output: Vec<f64>,
    loss: f64,
    gradients: Vec<Vec<f64>>,
}

#[test]
fn gradients_agree_with_finite_differences() {
    let cases = [
        case(1, 1, [4, 5, 3], [4, 5, 3]),
        Case { affines: 2, ..case(2, 3, [3, 4, 5], [5, 3, 2]) },
        Case { padding: Padding::Border, ..case(2, 2, [3, 2, 4], [3, 2, 4]) },
        Case { displaced: false, ..case(1, 2, [4, 3, 5], [3, 3, 4]) },
        case(1, 1, [1, 3, 1], [2, 1, 3]),
    ];
    for case in cases {
        let inputs = case.inputs();
        let names: &[&str] = if case.displaced {
            &["image", "affine", "displacement"]
        } else {
            &["image", "affine"]
        };
        // A step that rarely crosses a cell border; the loss is piecewise a cubic polynomial.
        let checks = gradcheck(names, &inputs, 1e-6, |inputs| {
            let outcome = case.evaluate(inputs, &cpu(), DType::F64);
            (outcome.loss, outcome.gradients)
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "{case:?}: {check:?}");
        }
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    let cases = [
        case(1, 1, [1, 1, 1], [1, 1, 1]),
        case(1, 1, [1, 7, 1], [1, 7, 1]),
        case(1, 1, [17, 13, 37], [17, 13, 37]),
        Case { affines: 2, ..case(2, 3, [9, 10, 11], [35, 5, 33]) },
        Case { affines: 1, ..case(3, 2, [9, 10, 11], [19, 5, 7]) },
        Case { padding: Padding::Border, ..case(2, 1, [5, 6, 7], [8, 9, 10]) },
        Case { displaced: false, ..case(1, 2, [8, 9, 10], [11, 12, 13]) },
        // Pairs along x.
        Case { displaced: false, affines: 2, ..case(2, 2, [8, 9, 10], [11, 12, 14]) },
        Case { displaced: false, ..case(2, 1, [17, 13, 37], [37, 9, 70]) },
        // Volumes enough for columns of 16 and of 32 voxels in the gradient of the map.
        Case { affines: 200, ..case(200, 1, [5, 4, 3], [33, 9, 1]) },
        case(300, 1, [5, 4, 3], [33, 9, 1]),
    ];
    for (name, device) in gpu_devices() {
        for case in cases {
            let inputs = case.inputs();
            let expected = case.evaluate(&inputs, &cpu(), DType::F64);
            let actual = case.evaluate(&inputs, &device, DType::F32);
            let label = format!("{name} {case:?}");
            let forward = assert_close(&label, &actual.output, &expected.output, GPU_FORWARD);
            print!("grid_sample {label}: forward {forward:.1e}");
            for (actual, expected) in actual.gradients.iter().zip(&expected.gradients) {
                print!(" gradient {:.1e}", assert_close(&label, actual, expected, GPU_GRADIENT));
            }
            println!();
        }
    }
}

#[test]
fn strided_inputs_give_the_same_result() {
    let mut devices = gpu_devices();
    devices.push(("cpu", cpu()));
    for (name, device) in devices {
        let image = tensor(&normal(120, 40), [1, 2, 3, 4, 5], &device, DType::F32);
        let field = tensor(&uniform(180, -1., 1., 41), [1, 3, 3, 4, 5], &device, DType::F32);
        let expected = to_f64(warp(image.clone(), field.clone()));
        // Stored in another order, seen in the usual one.
        let stored = |t: Tensor<5>| {
            let dense = t.permute([4, 3, 2, 1, 0]);
            let data = dense.clone().into_data();
            Tensor::<5>::from_data(data, &device).permute([4, 3, 2, 1, 0])
        };
        let sliced = Tensor::cat(vec![image.clone(), image.clone()], 1)
            .slice([0..1, 1..3, 0..3, 0..4, 0..5])
            .flip([1]);
        assert_eq!(to_f64(warp(stored(image), stored(field.clone()))), expected, "{name}");
        assert_eq!(to_f64(warp(sliced, field)), expected, "{name}");
    }
}

#[test]
fn only_wanted_gradients_are_recorded() {
    let device = cpu().autodiff();
    let image = tensor(&normal(60, 50), [1, 1, 3, 4, 5], &device, DType::F32);
    let field = tensor(&uniform(180, -1., 1., 51), [1, 3, 3, 4, 5], &device, DType::F32);
    let field = field.require_grad();
    let gradients = warp(image.clone(), field.clone()).backward();
    assert!(image.grad(&gradients).is_none());
    assert_eq!(field.grad(&gradients).expect("the field wants one").dims(), [1, 3, 3, 4, 5]);
}

#[test]
#[should_panic(expected = "displacement must be [2, 3, D, H, W]")]
fn a_field_of_another_batch_is_refused() {
    warp(image([2, 1, 2, 2, 2], 1), constant(1, [2, 2, 2], [0.0; 3]));
}
