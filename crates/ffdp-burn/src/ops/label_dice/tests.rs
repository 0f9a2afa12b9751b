//! Exact cases, one-hot tensors, finite differences, and GPU against CPU.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::*;
use crate::baseline;
use crate::losses::{memberships, soft_dice};
use crate::ops::warp;
use ffdp_kit::testing::{assert_close, gpu_devices, gradcheck, tensor, to_f64, uniform};

/// Rounding of the scores over a step of 1e-6, against gradients of about 1e-2.
const FINITE_DIFFERENCES: f64 = 1e-7;
/// The same f64 sums in another order.
const F64_ROUNDING: f64 = 1e-13;
/// Memberships are rounded to 2^-18 = 4e-6 each, their sums by less; coordinates as in the grid
/// sampler.
const GPU: f64 = 1e-5;
/// A gradient holds differences of scores and of weights.
const GPU_GRADIENT: f64 = 1e-4;
/// Neither ascending nor dense; 7 never occurs.
const IDS: [i32; 5] = [1002, -3, 7, 41, 1];

/// One case of the tables below.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    input: [usize; 3],
    size: [usize; 3],
    denominator: Denominator,
    /// Voxels along an edge of the blocks of one label: 1 has a border everywhere.
    block: usize,
}

const fn case(batch: usize, input: [usize; 3], size: [usize; 3], block: usize) -> Case {
    Case { batch, input, size, denominator: Denominator::Squared, block }
}

impl Case {
    /// Blocks of labels; 0 and 999 are among them and not asked for.
    fn labels(&self, [d, h, w]: [usize; 3], seed: usize, device: &Device) -> Tensor<5, Int> {
        let choice = [0, 1002, -3, 41, 1, 999];
        let label = |i: usize| {
            let p = [i % w, i / w % h, i / w / h % d, i / w / h / d].map(|p| p / self.block);
            choice[(p[0] * 7 + p[1] * 5 + p[2] * 3 + p[3] + seed * p[0] * p[1]) % 6]
        };
        let labels: Vec<i32> = (0..self.batch * d * h * w).map(label).collect();
        Tensor::from_data(TensorData::new(labels, [self.batch, 1, d, h, w]), (device, DType::I32))
    }

    fn displacement(&self) -> Vec<f64> {
        uniform(self.batch * 3 * self.size.iter().product::<usize>(), -1.3, 1.3, 7)
    }

    fn shape(&self) -> [usize; 5] {
        [self.batch, 3, self.size[0], self.size[1], self.size[2]]
    }

    /// Scores and the gradient of their weighted sum.
    fn evaluate(
        &self,
        displacement: &[f64],
        device: &Device,
        dtype: DType,
        op: Op,
    ) -> (Vec<f64>, f64, Vec<f64>) {
        let options = LabelDiceOptions { denominator: self.denominator, epsilon: 1e-5 };
        let (moving, fixed) =
            (self.labels(self.input, 1, device), self.labels(self.size, 2, device));
        let tracked = tensor(displacement, self.shape(), &device.clone().autodiff(), dtype);
        let tracked = tracked.require_grad();
        let scores = op(moving, fixed, tracked.clone(), &IDS, &options);
        assert_eq!(scores.dims(), [self.batch, IDS.len()], "{self:?}");
        let weights = uniform(self.batch * IDS.len(), 0.5, 1.5, 8);
        let weights = tensor(&weights, scores.dims(), &device.clone().autodiff(), dtype);
        let loss = (scores.clone() * weights).sum();
        let gradients = loss.backward();
        let gradient = tracked.grad(&gradients).expect("the displacement is tracked");
        (to_f64(scores.inner()), to_f64(loss.inner())[0], to_f64(gradient))
    }
}

type Op = fn(Tensor<5, Int>, Tensor<5, Int>, Tensor<5>, &[i32], &LabelDiceOptions) -> Tensor<2>;

const CASES: [Case; 6] = [
    case(1, [4, 5, 3], [4, 5, 3], 1),
    Case { denominator: Denominator::Plain, ..case(2, [3, 4, 5], [3, 4, 5], 2) },
    case(2, [5, 3, 4], [4, 5, 7], 2),
    case(1, [1, 1, 1], [1, 1, 1], 1),
    case(1, [1, 6, 1], [1, 6, 1], 2),
    case(1, [7, 6, 8], [7, 6, 8], 4),
];

fn map(labels: &[i32], shape: [usize; 5], device: &Device) -> Tensor<5, Int> {
    Tensor::from_data(TensorData::new(labels.to_vec(), shape), (device, DType::I32))
}

#[test]
fn hard_labels_have_the_usual_dice() {
    let a = [1, 1, 7, 7, 0, 0, 0, 3];
    let b = [1, 1, 1, 7, 0, 0, 3, 0];
    let shape = [1, 1, 1, 2, 4];
    let mut devices = gpu_devices();
    devices.push(("cpu", Device::flex()));
    for (name, device) in devices {
        let zero = Tensor::zeros([1, 3, 1, 2, 4], (&device, DType::F32));
        for denominator in [Denominator::Squared, Denominator::Plain] {
            let options = LabelDiceOptions { denominator, epsilon: 0.0 };
            let (a, b) = (map(&a, shape, &device), map(&b, shape, &device));
            // Labels 3, 1, 7 in that order; 0 is a label like any other when asked for.
            let scores = label_dice(a, b, zero.clone(), &[3, 1, 7, 0], &options);
            let expected = [0.0, 4.0 / 5.0, 2.0 / 3.0, 4.0 / 6.0];
            assert_close(name, &to_f64(scores), &expected, 1e-6);
        }
    }
}

#[test]
fn ids_may_be_any_integers() {
    // Too far apart to look their columns up.
    let ids = [7, i32::MIN, 41, i32::MAX];
    let labels = [7, 7, 40, i32::MIN, i32::MAX, i32::MAX, i32::MAX, 8];
    let shape = [1, 1, 2, 2, 2];
    let mut devices = gpu_devices();
    devices.push(("cpu", Device::flex()));
    for (name, device) in devices {
        for (ids, expected) in
            [(&ids[..], [1.0, 1.0, 0.0, 1.0]), (&[7, 8, 9, 6], [1.0, 1.0, 0.0, 0.0])]
        {
            let zero = Tensor::zeros([1, 3, 2, 2, 2], (&device, DType::F32));
            let of = || map(&labels, shape, &device);
            let options = LabelDiceOptions { epsilon: 1e-6, ..Default::default() };
            let scores = label_dice(of(), of(), zero, ids, &options);
            assert_close(name, &to_f64(scores), &expected, 1e-6);
        }
    }
}

#[test]
fn half_a_voxel_shares_a_label_between_neighbours() {
    let device = Device::flex();
    let moving = map(&[5, 5, 0, 0], [1, 1, 1, 1, 4], &device);
    let fixed = map(&[5, 0, 0, 0], [1, 1, 1, 1, 4], &device);
    let shift = [0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let shift = tensor(&shift, [1, 3, 1, 1, 4], &device, DType::F64);
    // a = [1, 1/2, 0, 0], b = [1, 0, 0, 0].
    let sums = label_sums(moving, fixed, shift, &[5], Denominator::Squared);
    assert_eq!(to_f64(sums), [1.0, 1.25, 1.0]);
}

#[test]
fn scores_and_gradients_are_those_of_one_hot_tensors() {
    for case in CASES {
        let u = case.displacement();
        let cpu = Device::flex();
        let (expected, _, gradient) = case.evaluate(&u, &cpu, DType::F64, baseline::label_dice);
        let (actual, _, other) = case.evaluate(&u, &cpu, DType::F64, label_dice);
        let value = assert_close(&format!("{case:?}"), &actual, &expected, F64_ROUNDING);
        let slope = assert_close(&format!("{case:?}"), &other, &gradient, F64_ROUNDING);
        println!("label_dice agrees with one-hot: value {value:.1e} gradient {slope:.1e}");
    }
}

#[test]
fn the_mean_is_that_of_soft_dice_of_warped_memberships() {
    // f32 sums of a few hundred terms in another order.
    const F32_ROUNDING: f64 = 1e-6;
    let case = case(1, [7, 6, 8], [7, 6, 8], 2);
    let device = Device::flex();
    let (moving, fixed) = (case.labels(case.size, 1, &device), case.labels(case.size, 2, &device));
    let u = tensor(&case.displacement(), case.shape(), &device, DType::F32);
    let ids = [1002, -3, 41, 1];
    let channels = |labels: &Tensor<5, Int>| {
        let labels = labels.clone().try_into_vec_as::<i32>().expect("read back");
        memberships(&labels, case.size, &ids, &device)
    };
    let expected = soft_dice(warp(channels(&moving), u.clone()), channels(&fixed));
    let scores = label_dice(moving, fixed, u, &ids, &LabelDiceOptions::default());
    let actual = 1.0 - to_f64(scores.mean())[0];
    assert_close("soft dice", &[actual], &to_f64(expected), F32_ROUNDING);
}

#[test]
fn gradients_agree_with_finite_differences() {
    for case in CASES {
        let checks = gradcheck(&["displacement"], &[case.displacement()], 1e-6, |inputs| {
            let (_, loss, gradient) =
                case.evaluate(&inputs[0], &Device::flex(), DType::F64, label_dice);
            (loss, vec![gradient])
        });
        for check in checks {
            assert!(check.error < FINITE_DIFFERENCES, "{case:?}: {check:?}");
        }
    }
}

#[test]
fn other_integers_are_converted_and_other_labels_ignored() {
    let device = Device::flex();
    let zero = Tensor::zeros([1, 3, 1, 1, 4], (&device, DType::F32));
    for dtype in [IntDType::I64, IntDType::U8] {
        let labels = map(&[1, 2, 3, 200], [1, 1, 1, 1, 4], &device).cast(dtype);
        let scores =
            label_dice(labels.clone(), labels, zero.clone(), &[200, 9], &Default::default());
        let scores = to_f64(scores);
        // eps against two voxels; an empty label scores 0.
        assert!((scores[0] - 1.0).abs() < 1e-5 && scores[1] == 0.0, "{dtype:?}: {scores:?}");
    }
}

#[test]
fn strided_inputs_give_the_same_result() {
    let mut devices = gpu_devices();
    devices.push(("cpu", Device::flex()));
    for (name, device) in devices {
        let case = CASES[2];
        let (moving, fixed) =
            (case.labels(case.input, 1, &device), case.labels(case.size, 2, &device));
        let u = tensor(&case.displacement(), case.shape(), &device, DType::F32);
        let dice = |m, f, u| to_f64(label_dice(m, f, u, &IDS, &Default::default()));
        let expected = dice(moving.clone(), fixed.clone(), u.clone());
        let turned = |t: Tensor<5, Int>| {
            let stored = t.permute([4, 3, 2, 1, 0]).into_data();
            Tensor::<5, Int>::from_data(stored, (&device, DType::I32)).permute([4, 3, 2, 1, 0])
        };
        let stored = u.permute([4, 3, 2, 1, 0]).into_data();
        let u = Tensor::<5>::from_data(stored, &device).permute([4, 3, 2, 1, 0]);
        assert_eq!(dice(turned(moving), turned(fixed), u), expected, "{name}");
    }
}

#[test]
fn gpu_agrees_with_cpu_and_repeats_its_bits() {
    let larger = [
        case(2, [35, 19, 40], [35, 19, 40], 3),
        case(1, [33, 20, 70], [66, 9, 35], 9),
        Case { denominator: Denominator::Plain, ..case(1, [64, 17, 33], [64, 17, 33], 5) },
    ];
    for (name, device) in gpu_devices() {
        for case in CASES.into_iter().chain(larger) {
            let u = case.displacement();
            let label = format!("{name} {case:?}");
            let expected = case.evaluate(&u, &Device::flex(), DType::F64, label_dice);
            let actual = case.evaluate(&u, &device, DType::F32, label_dice);
            assert_eq!(actual, case.evaluate(&u, &device, DType::F32, label_dice), "{label}");
            let value = assert_close(&label, &actual.0, &expected.0, GPU);
            let slope = assert_close(&label, &actual.2, &expected.2, GPU_GRADIENT);
            println!("label_dice {label}: value {value:.1e} gradient {slope:.1e}");
        }
    }
}

#[test]
fn many_labels_fit() {
    let mut devices = gpu_devices();
    devices.push(("cpu", Device::flex()));
    for (name, device) in devices {
        let ids: Vec<i32> = (0..MOST_LABELS as i32).collect();
        let labels = map(&ids, [1, 1, 4, 16, 16], &device);
        let zero = Tensor::zeros([1, 3, 4, 16, 16], (&device, DType::F32));
        let scores = label_dice(labels.clone(), labels, zero, &ids, &Default::default());
        let worst = to_f64(scores).into_iter().fold(0.0, |worst: f64, s| worst.max(1.0 - s));
        // eps against two voxels.
        assert!(worst < 1e-5, "{name}: {worst}");
    }
}

#[test]
#[should_panic(expected = "asked for twice")]
fn an_id_given_twice_is_refused() {
    let device = Device::flex();
    let labels = map(&[1], [1; 5], &device);
    let zero = Tensor::zeros([1, 3, 1, 1, 1], &device);
    label_dice(labels.clone(), labels, zero, &[1, 2, 1], &Default::default());
}

#[test]
#[should_panic(expected = "do not fit")]
fn labels_of_another_size_are_refused() {
    let device = Device::flex();
    let labels = map(&[1, 1], [1, 1, 1, 1, 2], &device);
    let zero = Tensor::zeros([1, 3, 1, 1, 3], &device);
    label_dice(labels.clone(), labels, zero, &[1], &Default::default());
}
