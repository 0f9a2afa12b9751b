//! The definition, step by step, invariants, and GPU against CPU.

use burn::tensor::{DType, Device, Tensor};

use super::part::AdamPartOps;
use super::*;
use ffdp_kit::testing::{assert_close, gpu_devices, normal, tensor, to_f64};

/// The same f64 operations in another order.
const F64_ROUNDING: f64 = 1e-13;
/// A dozen f32 operations an entry, over a few steps.
const GPU: f64 = 2e-6;
/// An entry may be rounded to the neighbouring bf16 where f32 and f64 lie on either side of a tie: 2^-8 of
/// a moment, and of the direction about as much.
const BF16_TIES: f64 = 1e-2;
const OPTIONS: AdamOptions = AdamOptions {
    beta: [0.8, 0.95],
    epsilon: 1e-20,
    gradient_floor: 0.3,
    storage: MomentStorage::Full,
};
const WITHOUT_FLOOR: AdamOptions = AdamOptions { gradient_floor: 0.0, ..OPTIONS };
const BF16: AdamOptions = AdamOptions { storage: MomentStorage::Bf16, ..OPTIONS };

/// Direction, longest vectors, mean and mean square.
type Numbers = [Vec<f64>; 4];

/// The last of several steps with the given gradients.
fn run(
    gradients: &[Vec<f64>],
    shape: [usize; 5],
    (device, dtype): (&Device, DType),
    options: &AdamOptions,
) -> Numbers {
    let mut moments = Moments::default();
    let mut last = None;
    for gradient in gradients {
        last = Some(adam(tensor(gradient, shape, device, dtype), &mut moments, options));
    }
    let AdamStep { direction, longest } = last.expect("at least one gradient");
    let [mean, square] = moments.values().expect("has seen gradients").clone().map(to_f64);
    assert_eq!(direction.dims(), shape);
    assert_eq!(longest.dims(), [shape[0]]);
    [to_f64(direction), to_f64(longest), mean, square]
}

/// The formulas of the module, literally.
fn definition(gradients: &[Vec<f64>], batch: usize, options: &AdamOptions) -> Numbers {
    let AdamOptions { beta: [b1, b2], epsilon, gradient_floor, .. } = *options;
    let (total, steps) = (gradients[0].len(), gradients.len() as i32);
    let len = total / batch;
    let mut mean = vec![0.0; total];
    let mut square = vec![0.0; total];
    for g in gradients {
        for i in 0..total {
            mean[i] = b1 * mean[i] + (1.0 - b1) * g[i];
            square[i] = b2 * square[i] + (1.0 - b2) * g[i] * g[i];
        }
    }
    let (c1, c2) = (1.0 - b1.powi(steps), 1.0 - b2.powi(steps));
    let mut direction = vec![0.0; total];
    let mut longest = vec![];
    for n in 0..batch {
        let field = n * len..(n + 1) * len;
        let rms = (square[field.clone()].iter().sum::<f64>() / len as f64 / c2).sqrt();
        for i in field {
            let scale = (square[i] / c2).sqrt() + gradient_floor * rms + epsilon;
            direction[i] = mean[i] / c1 / scale;
        }
        let squared = |p: usize| -> f64 {
            (0..3).map(|c| direction[n * len + c * len / 3 + p].powi(2)).sum()
        };
        longest.push((0..len / 3).map(squared).fold(0.0, f64::max).sqrt());
    }
    [direction, longest, mean, square]
}

fn gradients(shape: [usize; 5], steps: u64) -> Vec<Vec<f64>> {
    (0..steps).map(|step| normal(shape.iter().product(), 10 + step)).collect()
}

const SHAPES: [[usize; 5]; 4] =
    [[1, 3, 1, 1, 1], [2, 3, 1, 7, 1], [3, 3, 5, 7, 11], [1, 3, 47, 48, 49]];

#[test]
fn steps_follow_the_definition() {
    for shape in SHAPES {
        for (steps, options) in [(1, OPTIONS), (2, OPTIONS), (5, OPTIONS), (3, WITHOUT_FLOOR)] {
            let gradients = gradients(shape, steps);
            let actual = run(&gradients, shape, (&Device::flex(), DType::F64), &options);
            let expected = definition(&gradients, shape[0], &options);
            for (actual, expected) in actual.iter().zip(expected) {
                let label = format!("{shape:?} step {steps} {options:?}");
                assert_close(&label, actual, &expected, F64_ROUNDING);
            }
        }
    }
}

/// `m`, `v` and the longest vector after the gradients, in the pieces of a part that is the whole field: all
/// at once, or with the moments read twice.
fn in_pieces(
    gradients: &[Vec<f64>],
    shape: [usize; 5],
    (device, dtype): (&Device, DType),
    (options, at_once): (&AdamOptions, bool),
) -> [Vec<f64>; 3] {
    let gradient = |values: &Vec<f64>| tensor(values, shape, device, dtype);
    let (moments, power, _) = Moments::default().take(&gradient(&gradients[0]), options);
    let [mut mean, mut square] = moments.map(Tensor::into_dispatch);
    let mut power = power.into_dispatch();
    let mut longest = None;
    for (seen, values) in gradients.iter().enumerate() {
        let gradient = gradient(values).into_dispatch();
        let constants = AdamConstants::new(options, seen as i32 + 1);
        let length;
        if at_once {
            power = <Dispatch as AdamPartOps>::adam_power_3d(gradient.clone(), power, constants);
            (mean, square, length) = <Dispatch as AdamPartOps>::adam_advance_3d(
                gradient,
                mean,
                square,
                power.clone(),
                constants,
            );
        } else {
            (mean, square, power) =
                <Dispatch as AdamPartOps>::adam_take_3d(gradient, mean, square, power, constants);
            let [mean, square, power] = [&mean, &square, &power].map(Clone::clone);
            length = <Dispatch as AdamPartOps>::adam_longest_3d(mean, square, power, constants);
        }
        longest = Some(Tensor::<1>::from_dispatch(length));
    }
    let [mean, square] = [mean, square].map(|field| to_f64(Tensor::<5>::from_dispatch(field)));
    [mean, square, to_f64(longest.expect("at least one gradient"))]
}

#[test]
fn a_part_that_is_the_whole_field_takes_its_gradient_as_that_does() {
    let on_cpu = ("cpu".to_string(), Device::flex(), DType::F64, F64_ROUNDING);
    let on_gpus = gpu_devices();
    let on_gpus = on_gpus.into_iter().map(|(name, gpu)| (name.to_string(), gpu, DType::F32, GPU));
    for (name, device, dtype, tolerance) in std::iter::once(on_cpu).chain(on_gpus) {
        for shape in SHAPES {
            for options in [OPTIONS, WITHOUT_FLOOR] {
                let gradients = gradients(shape, 3);
                let [_, longest, mean, square] = run(&gradients, shape, (&device, dtype), &options);
                for at_once in [false, true] {
                    let found = in_pieces(&gradients, shape, (&device, dtype), (&options, at_once));
                    let label = format!("{name} {shape:?} {options:?} at once {at_once}");
                    for (found, expected) in found.iter().zip([&mean, &square, &longest]) {
                        assert_close(&label, found, expected, tolerance);
                    }
                }
            }
        }
    }
}

#[test]
fn plain_adam_begins_with_the_signs_and_zero_stays_zero() {
    let gradient = [2.0, -1e-3, 0.0, 5.0, -3.0, 0.0];
    let gradient = tensor(&gradient, [1, 3, 1, 1, 2], &Device::flex(), DType::F64);
    let AdamStep { direction, longest } =
        adam(gradient, &mut Moments::default(), &AdamOptions::default());
    let signs = [1.0, -1.0, 0.0, 1.0, -1.0, 0.0];
    assert_close("signs", &to_f64(direction), &signs, F64_ROUNDING);
    assert_close("longest", &to_f64(longest), &[2f64.sqrt()], F64_ROUNDING);
    let zero = tensor(&[0.0; 6], [1, 3, 1, 1, 2], &Device::flex(), DType::F64);
    let AdamStep { direction, longest } = adam(zero, &mut Moments::default(), &OPTIONS);
    assert_eq!((to_f64(direction), to_f64(longest)), (vec![0.0; 6], vec![0.0]));
}

#[test]
fn directions_do_not_depend_on_the_unit_of_the_gradient() {
    let shape = [1, 3, 3, 4, 5];
    let gradients = gradients(shape, 3);
    let scaled: Vec<Vec<f64>> =
        gradients.iter().map(|g| g.iter().map(|g| 1e-6 * g).collect()).collect();
    let on_cpu = (&Device::flex(), DType::F64);
    let [expected, ..] = run(&gradients, shape, on_cpu, &OPTIONS);
    let [actual, ..] = run(&scaled, shape, on_cpu, &OPTIONS);
    assert_close("unit", &actual, &expected, F64_ROUNDING);
}

#[test]
fn moments_that_something_else_holds_are_not_overwritten() {
    let mut devices = gpu_devices();
    devices.push(("cpu", Device::flex()));
    for (name, device) in devices {
        // CUDA pads rows of 80 voxels where it may.
        for width in [2, 80] {
            let shape = [1, 3, 2, 2, width];
            let gradient = |seed| tensor(&normal(12 * width, seed), shape, &device, DType::F32);
            let mut moments = Moments::default();
            adam(gradient(1), &mut moments, &OPTIONS);
            let mut alone = Moments::default();
            adam(gradient(1), &mut alone, &OPTIONS);
            let held = moments.clone();
            let before = held.values().expect("has seen one").clone().map(to_f64);
            let step = adam(gradient(2), &mut moments, &OPTIONS);
            assert_eq!(held.values().expect("has seen one").clone().map(to_f64), before, "{name}");
            let expected = to_f64(adam(gradient(2), &mut alone, &OPTIONS).direction);
            assert_eq!(to_f64(step.direction), expected, "{name} {width}");
            let [after, expected] =
                [moments, alone].map(|m| m.values().expect("has seen two").clone().map(to_f64));
            assert_eq!(after, expected, "{name} {width}");
        }
    }
}

#[test]
fn strided_gradients_give_the_same_result() {
    let mut devices = gpu_devices();
    devices.push(("cpu", Device::flex()));
    for (name, device) in devices {
        let gradient = tensor(&normal(180, 2), [1, 3, 3, 4, 5], &device, DType::F32);
        let stored = gradient.clone().permute([4, 3, 2, 1, 0]).into_data();
        let strided = Tensor::<5>::from_data(stored, &device).permute([4, 3, 2, 1, 0]);
        let step = |g| to_f64(adam(g, &mut Moments::default(), &OPTIONS).direction);
        assert_eq!(step(strided), step(gradient), "{name}");
    }
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        for shape in SHAPES {
            let gradients = gradients(shape, 4);
            for (options, tolerance) in [(OPTIONS, GPU), (WITHOUT_FLOOR, GPU), (BF16, BF16_TIES)] {
                if options.storage == MomentStorage::Bf16 && !device.supports_dtype(DType::BF16) {
                    println!("adam {name}: no bf16");
                    continue;
                }
                let on_cpu = (&Device::flex(), DType::F64);
                let expected = run(&gradients, shape, on_cpu, &options);
                let actual = run(&gradients, shape, (&device, DType::F32), &options);
                let label = format!("{name} {shape:?} {:?}", options.storage);
                print!("adam {label}: direction, longest, moments");
                for (actual, expected) in actual.iter().zip(&expected) {
                    print!(" {:.1e}", assert_close(&label, actual, expected, tolerance));
                }
                println!();
            }
        }
    }
}

#[test]
fn bf16_moments_keep_three_digits() {
    let shape = [2, 3, 5, 7, 11];
    let gradients = gradients(shape, 10);
    let full = run(&gradients, shape, (&Device::flex(), DType::F32), &OPTIONS);
    let stored = run(&gradients, shape, (&Device::flex(), DType::F32), &BF16);
    // Ten roundings of 2^-9, of which the older ones have decayed.
    for (actual, expected) in stored.iter().zip(&full) {
        let error = assert_close("bf16", actual, expected, 2e-2);
        assert!(error > 1e-5, "nothing was rounded: {error:e}");
    }
    let mut moments = Moments::default();
    adam(tensor(&gradients[0], shape, &Device::flex(), DType::F32), &mut moments, &BF16);
    assert!(moments.values().expect("has seen one").iter().all(|m| m.dtype() == DType::BF16));
}

#[test]
fn a_floor_may_come_later() {
    let shape = [2, 3, 3, 4, 5];
    let third = |before: &AdamOptions| {
        let mut moments = Moments::default();
        let mut step = |seed, options: &AdamOptions| {
            let gradient = tensor(&normal(360, seed), shape, &Device::flex(), DType::F64);
            to_f64(adam(gradient, &mut moments, options).direction)
        };
        step(1, before);
        step(2, before);
        step(3, &OPTIONS)
    };
    // The moments themselves do not depend on the floor; their mean is caught up with.
    assert_close("direction", &third(&WITHOUT_FLOOR), &third(&OPTIONS), F64_ROUNDING);
}

#[test]
#[should_panic(expected = "a gradient [1, 3, 1, 1, 2] for moments of [1, 3, 1, 1, 1]")]
fn a_gradient_of_another_shape_is_refused() {
    let gradient = |w| Tensor::<5>::zeros([1, 3, 1, 1, w], &Device::flex());
    let mut moments = Moments::default();
    adam(gradient(1), &mut moments, &OPTIONS);
    adam(gradient(2), &mut moments, &OPTIONS);
}

#[test]
#[should_panic(expected = "not differentiable")]
fn a_gradient_on_the_tape_is_refused() {
    let gradient = Tensor::<5>::zeros([1, 3, 1, 1, 1], &Device::flex().autodiff()).require_grad();
    adam(gradient, &mut Moments::default(), &OPTIONS);
}
