//! Images in half precision: the ops against the widened images.

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, Tensor};

    use crate::ops::{
        AdamOptions, DeformImages, DeformOptions, DeformState, GridSampleOptions, HistogramMode,
        HistogramOptions, LnccOptions, Measure, Moments, ParzenKernel, deform, grid_sample,
        joint_histogram, lncc, mse,
    };
    use ffdp_kit::testing::{assert_close, gpu_devices, tensor, to_f64, uniform};

    /// Widening is exact, and what follows is the same arithmetic; only what a compiler contracts may differ.
    const SAME: f64 = 2e-6;
    /// Of a rounding to 11 bits, and to 8.
    const ROUNDED: [(DType, f64); 2] = [(DType::F16, 1e-3), (DType::BF16, 8e-3)];

    fn devices() -> Vec<(&'static str, Device)> {
        std::iter::once(("cpu", Device::flex())).chain(gpu_devices()).collect()
    }

    /// The same images in half precision and widened again.
    fn images(device: &Device, half: DType, shape: [usize; 5]) -> [[Tensor<5>; 2]; 2] {
        [3, 4].map(|seed| {
            let values = uniform(shape.iter().product(), 0.0, 1.0, seed);
            let stored = tensor::<5>(&values, shape, device, DType::F32).cast(half);
            [stored.clone(), stored.cast(DType::F32)]
        })
    }

    type Loss<'a> = &'a dyn Fn(Tensor<5>, Tensor<5>) -> Tensor<1>;

    /// A value and its gradient to the first image.
    fn with_gradient(moved: Tensor<5>, fixed: Tensor<5>, loss: Loss<'_>) -> (Vec<f64>, Tensor<5>) {
        let moved = moved.autodiff().require_grad();
        let value = loss(moved.clone(), fixed.autodiff());
        assert_eq!(value.dtype(), DType::F32, "results are single");
        let gradients = value.backward();
        let gradient = moved.grad(&gradients).expect("the moved image wants a gradient");
        (to_f64(value.inner()), gradient)
    }

    /// Halves of odd rows too, which no vector fits.
    const SHAPES: [[usize; 5]; 2] = [[1, 1, 9, 10, 12], [2, 1, 6, 7, 9]];

    #[test]
    fn measures_of_half_images_are_those_of_the_widened_ones() {
        let measures: [(&str, Loss<'_>); 4] = [
            ("lncc", &|m, f| lncc(m, f, &LnccOptions { window: 5, ..Default::default() })),
            ("mse", &|m, f| mse(m, f)),
            ("histogram", &|a, b| {
                let table = joint_histogram(a, b, &HistogramOptions::default());
                table.powi_scalar(2).sum()
            }),
            ("hard histogram", &|a, b| {
                let mode = HistogramMode::Approximate;
                let options = HistogramOptions { mode, ..Default::default() };
                joint_histogram(a, b, &options).powi_scalar(2).sum()
            }),
        ];
        for (name, device) in devices() {
            for (half, rounded) in ROUNDED.into_iter().filter(|(t, _)| device.supports_dtype(*t)) {
                for (shape, (measure, loss)) in
                    SHAPES.iter().flat_map(|s| measures.iter().map(move |m| (*s, *m)))
                {
                    let label = format!("{name} {measure} {half:?} {shape:?}");
                    let [[stored_m, moved], [stored_f, fixed]] = images(&device, half, shape);
                    let expected = with_gradient(moved.clone(), fixed, loss);
                    let mixed = with_gradient(moved, stored_f.clone(), loss);
                    assert_close(&label, &mixed.0, &expected.0, SAME);
                    assert_close(&label, &to_f64(mixed.1), &to_f64(expected.1.clone()), SAME);
                    let actual = with_gradient(stored_m, stored_f, loss);
                    assert_eq!(actual.1.dtype(), half, "{label}: a gradient is as its image");
                    assert_close(&label, &actual.0, &expected.0, SAME);
                    assert_close(&label, &to_f64(actual.1), &to_f64(expected.1), rounded);
                }
            }
        }
    }

    #[test]
    fn samples_of_half_images_are_those_of_the_widened_ones() {
        for (name, device) in devices() {
            for (half, _) in ROUNDED.into_iter().filter(|(t, _)| device.supports_dtype(*t)) {
                for shape in SHAPES {
                    let label = format!("{name} {half:?} {shape:?}");
                    let [[stored, wide], [_, upstream]] = images(&device, half, shape);
                    let [n, _, d, h, w] = shape;
                    let u = uniform(3 * n * d * h * w, -2.0, 2.0, 8);
                    let u = tensor::<5>(&u, [n, 3, d, h, w], &device, DType::F32);
                    let rows = [1.01, 0.02, 0., 0.3, -0.01, 0.98, 0.02, 0.1, 0., 0.01, 1., -0.2];
                    let map = tensor::<3>(&rows, [1, 3, 4], &device, DType::F32);
                    let sampled = |image: Tensor<5>| {
                        let u = u.clone().autodiff().require_grad();
                        let map = map.clone().autodiff().require_grad();
                        let (image, options) = (image.autodiff(), GridSampleOptions::default());
                        let moved =
                            grid_sample(image, Some(map.clone()), Some(u.clone()), &options);
                        assert_eq!(moved.dtype(), DType::F32, "{label}: samples are single");
                        let loss = (moved.clone() * upstream.clone().autodiff()).sum();
                        let gradients = loss.backward();
                        let to_u = u.grad(&gradients).expect("the field wants a gradient");
                        let to_map = map.grad(&gradients).expect("the map wants a gradient");
                        [to_f64(moved.inner()), to_f64(to_u), to_f64(to_map)]
                    };
                    for (actual, expected) in sampled(stored).iter().zip(sampled(wide)) {
                        assert_close(&label, actual, &expected, SAME);
                    }
                }
            }
        }
    }

    /// Images are constants of a registration: nothing else changes its type.
    #[test]
    fn registrations_of_half_images_are_those_of_the_widened_ones() {
        let shape = [1, 1, 10, 12, 14];
        for (name, device) in devices() {
            if !device.supports_dtype(DType::F16) {
                continue;
            }
            let [[stored_m, moving], [stored_f, fixed]] = images(&device, DType::F16, shape);
            for measure in [
                Measure::Lncc(LnccOptions::default()),
                Measure::SquaredDifference,
                Measure::MutualInformation(HistogramOptions {
                    kernel: ParzenKernel::BSpline3,
                    ..Default::default()
                }),
            ] {
                for masked in [false, true] {
                    let run = |fixed: &Tensor<5>, moving: &Tensor<5>| {
                        let identity = [1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0.];
                        let affine = tensor::<3>(&identity, [1, 3, 4], &device, DType::F32);
                        let mask = masked.then(|| Tensor::ones(shape, (&device, DType::F32)));
                        let images = DeformImages {
                            fixed: fixed.clone(),
                            moving: moving.clone(),
                            affine,
                            masks: [mask, None],
                        };
                        let field = Tensor::zeros([1, 3, 10, 12, 14], (&device, DType::F32));
                        let state = DeformState { field, moments: Moments::default() };
                        let optimizer = crate::ops::Optimizer::Adam(AdamOptions {
                            // Else the direction of a vanishing gradient depends on its last bits.
                            gradient_floor: 0.1,
                            ..AdamOptions::default()
                        });
                        let options = DeformOptions { optimizer, ..DeformOptions::greedy(measure) };
                        let (values, states) = deform(&images, vec![state], &options, 3);
                        assert_eq!(values.dtype(), DType::F32);
                        [to_f64(values), to_f64(states[0].field.clone())]
                    };
                    let (actual, expected) = (run(&stored_f, &stored_m), run(&fixed, &moving));
                    for (actual, expected) in actual.iter().zip(&expected) {
                        let label = format!("{name} {measure:?} masked {masked}");
                        // Three steps pass on what the last bits of a gradient differ by.
                        assert_close(&label, actual, expected, 1e-4);
                    }
                }
            }
        }
    }
}
