//! The gradient to the image: right for every kind of field, and the same bits where that is asked.

use super::*;

/// A contribution is rounded to 2^-20 of a block's largest; sums of eight and more.
const FIXED_POINT: f64 = 2e-5;

/// More than one block of the kernels along every axis, none of them full at the end.
const SIZE: [usize; 3] = [19, 21, 40];
const LEN: usize = 19 * 21 * 40;

/// A displacement `[2, 3, D, H, W]` and what it stands for.
fn fields() -> Vec<(&'static str, Vec<f64>)> {
    let field = |u: &dyn Fn(usize, [f64; 3]) -> [f64; 3]| {
        let mut values = vec![0.0; 2 * 3 * LEN];
        for (n, voxel) in (0..2).flat_map(|n| (0..LEN).map(move |voxel| (n, voxel))) {
            let p = [voxel % 40, voxel / 40 % 21, voxel / 840].map(|i| i as f64);
            u(n, p).into_iter().enumerate().for_each(|(c, u)| {
                values[(n * 3 + c) * LEN + voxel] = u;
            });
        }
        values
    };
    let wave = |a: f64, b: f64| (0.15 * a).sin() * (0.2 * b).cos();
    vec![
        ("smooth", field(&|_, [x, y, z]| [4.0 * wave(y, z), 0.3 - 3.0 * wave(x, z), wave(x, y)])),
        ("far", field(&|n, [x, ..]| [7.3 - 9.0 * n as f64, 0.02 * x, 5.6])),
        ("folded", field(&|_, [x, y, _]| [20.3 - 1.7 * x, -0.9 * y, 0.4])),
        ("to one point", field(&|_, [x, y, z]| [20.25 - x, 10.5 - y, 9.125 - z])),
        ("rough", uniform(6 * LEN, -1.5, 1.5, 70)),
        ("wild", uniform(6 * LEN, -40.0, 40.0, 71)),
    ]
}

/// Weights of the outputs of two batch entries with two channels.
fn weights() -> Vec<f64> {
    normal(4 * LEN, 72)
}

fn gradient(
    field: &[f64],
    weights: &[f64],
    device: &Device,
    dtype: DType,
    options: &GridSampleOptions,
) -> Vec<f64> {
    let device = device.clone().autodiff();
    let [d, h, w] = SIZE;
    let (images, volumes) = ([2, 2, d, h, w], [2, 3, d, h, w]);
    // Linear in the image, so its values do not matter.
    let image = Tensor::<5>::zeros(images, (&device, dtype)).require_grad();
    let y = grid_sample(image.clone(), None, Some(tensor(field, volumes, &device, dtype)), options);
    let gradients = (y * tensor(weights, images, &device, dtype)).backward();
    to_f64(image.grad(&gradients).expect("the image wants one"))
}

fn options(padding: Padding, accumulation: Accumulation) -> GridSampleOptions {
    GridSampleOptions { padding, accumulation, ..Default::default() }
}

const BOTH: [Accumulation; 2] = [Accumulation::Fast, Accumulation::Reproducible];

#[test]
fn any_field_scatters_right() {
    for (name, device) in gpu_devices() {
        for (kind, field) in fields() {
            for padding in [Padding::Zeros, Padding::Border] {
                let fast = options(padding, Accumulation::Fast);
                let expected = gradient(&field, &weights(), &cpu(), DType::F64, &fast);
                for accumulation in BOTH {
                    let options = options(padding, accumulation);
                    let actual = gradient(&field, &weights(), &device, DType::F32, &options);
                    let label = format!("{name} {kind} {padding:?} {accumulation:?}");
                    let error = assert_close(&label, &actual, &expected, FIXED_POINT);
                    println!("grid_sample to the image, {label}: {error:.1e}");
                }
            }
        }
    }
}

#[test]
fn the_nearest_voxel_takes_it_all() {
    for (name, device) in gpu_devices() {
        let (_, field) = &fields()[0];
        let nearest = |accumulation| GridSampleOptions {
            interpolation: Interpolation::Nearest,
            ..options(Padding::Zeros, accumulation)
        };
        let fast = nearest(Accumulation::Fast);
        let expected = gradient(field, &weights(), &cpu(), DType::F64, &fast);
        for accumulation in BOTH {
            let nearest = nearest(accumulation);
            let actual = gradient(field, &weights(), &device, DType::F32, &nearest);
            assert_close(&format!("{name} {accumulation:?}"), &actual, &expected, FIXED_POINT);
        }
    }
}

#[test]
fn reproducible_gradients_have_the_same_bits() {
    for (name, device) in gpu_devices() {
        for (kind, field) in fields() {
            let options = options(Padding::Border, Accumulation::Reproducible);
            let run = |field: &[f64], weights: &[f64]| {
                gradient(field, weights, &device, DType::F32, &options)
            };
            let first = run(&field, &weights());
            assert_eq!(run(&field, &weights()), first, "{name} {kind}: a second run");
            let swap = |values: &[f64]| {
                let (a, b) = values.split_at(values.len() / 2);
                [b, a].concat()
            };
            let swapped = run(&swap(&field), &swap(&weights()));
            assert_eq!(swap(&swapped), first, "{name} {kind}: the batch in another order");
        }
    }
}

#[test]
fn powers_of_two_scale_the_gradient_exactly() {
    // The units of the whole numbers move along with the gradient.
    let (_, field) = &fields()[0];
    for (name, device) in gpu_devices() {
        for accumulation in BOTH {
            let options = options(Padding::Zeros, accumulation);
            let plain = gradient(field, &weights(), &device, DType::F32, &options);
            for factor in [2f64.powi(-60), 2f64.powi(60)] {
                let scaled: Vec<f64> = weights().iter().map(|w| w * factor).collect();
                let scaled = gradient(field, &scaled, &device, DType::F32, &options);
                let back: Vec<f64> = scaled.iter().map(|g| g / factor).collect();
                match accumulation {
                    Accumulation::Reproducible => assert_eq!(back, plain, "{name} {factor}"),
                    // Up to the order of the blocks.
                    Accumulation::Fast => {
                        assert_close(&format!("{name} {factor}"), &back, &plain, 1e-6);
                    }
                }
            }
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_stays_in_its_volume() {
    let (_, field) = &fields()[0];
    for (name, device) in gpu_devices() {
        for accumulation in BOTH {
            let options = options(Padding::Zeros, accumulation);
            let good = gradient(field, &weights(), &device, DType::F32, &options);
            for bad in [f64::NAN, f64::INFINITY] {
                let mut weights = weights();
                weights[LEN + 10 * 840 + 10 * 40 + 20] = bad;
                let found = gradient(field, &weights, &device, DType::F32, &options);
                let hit = found[LEN..2 * LEN].iter().filter(|g| !g.is_finite()).count();
                assert!(hit > 0, "{name} {accumulation:?}: {bad} got lost");
                let label = format!("{name} {accumulation:?} {bad}");
                assert_close(&label, &found[..LEN], &good[..LEN], 1e-6);
                assert_close(&label, &found[2 * LEN..], &good[2 * LEN..], 1e-6);
            }
        }
    }
}
