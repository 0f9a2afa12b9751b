//! Samples with room around them are the samples, at their place; so are their gradients.

use burn::backend::Dispatch;

use super::*;
use crate::ops::grid_sample::block::GridSampleBlockOps;

#[test]
fn samples_lie_between_the_margins_to_the_bit() {
    let on_gpus = gpu_devices().into_iter().map(|(name, gpu)| (name, gpu, DType::F32));
    for (name, device, dtype) in std::iter::once(("cpu", cpu(), DType::F64)).chain(on_gpus) {
        for ([batch, channels], size) in
            [([1, 1], [5, 3, 4]), ([2, 3], [1, 7, 6]), ([1, 2], [9, 1, 1])]
        {
            let [d, h, w] = size;
            let values = |shape: [usize; 5], seed| {
                tensor(&normal(shape.iter().product(), seed), shape, &device, dtype)
            };
            let image = values([batch, channels, 6, 5, 4], 1);
            let field = values([batch, 3, d, h, w], 2);
            let samples = to_f64(warp(image.clone(), field.clone()));
            let options = GridSampleOptions::default();
            let sampling = resolve(&image, None, Some(&field), &options);
            let identity = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
            let affine = tensor(&identity, [1, 3, 4], &device, dtype);
            for [low, high] in [[0, 0], [2, 0], [0, 3], [1, 4]] {
                let block = <Dispatch as GridSampleBlockOps>::grid_sample_3d_block(
                    image.clone().into_dispatch(),
                    affine.clone().into_dispatch(),
                    field.clone().into_dispatch(),
                    sampling,
                    [low, high],
                );
                let block = Tensor::<5>::from_dispatch(block);
                assert_eq!(block.dims(), [batch, channels, low + d + high, h, w]);
                let found = to_f64(block.narrow(2, low, d));
                assert_eq!(found, samples, "{name} {size:?} margins {low} and {high}");
            }
        }
    }
}

#[test]
fn gradients_are_read_between_the_margins_to_the_bit() {
    let on_gpus = gpu_devices().into_iter().map(|(name, gpu)| (name, gpu, DType::F32));
    for (name, device, dtype) in std::iter::once(("cpu", cpu(), DType::F64)).chain(on_gpus) {
        for ([batch, channels], size) in
            [([1, 1], [5, 3, 4]), ([2, 3], [1, 7, 6]), ([1, 2], [9, 1, 1])]
        {
            let [d, h, w] = size;
            let values = |shape: [usize; 5], seed| -> Tensor<5> {
                tensor(&normal(shape.iter().product(), seed), shape, &device, dtype)
            };
            let image = values([batch, channels, 6, 5, 4], 1);
            let field = values([batch, 3, d, h, w], 2);
            let grad = values([batch, channels, d + 5, h, w], 3);
            let sampling = resolve(&image, None, Some(&field), &GridSampleOptions::default());
            let identity = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
            let affine: Tensor<3> = tensor(&identity, [1, 3, 4], &device, dtype);
            let inputs = || {
                let (image, affine) =
                    (image.clone().into_dispatch(), affine.clone().into_dispatch());
                (image, affine, field.clone().into_dispatch())
            };
            for [low, high] in [[0, 0], [2, 0], [0, 3], [1, 4]] {
                let block = grad.clone().narrow(2, 0, low + d + high);
                let own = block.clone().narrow(2, low, d).into_dispatch();
                let (a, b, c) = inputs();
                let needs = [false, false, true];
                let (_, _, expected) = <Dispatch as GridSampleOps>::grid_sample_3d_backward(
                    a, b, c, own, sampling, needs,
                );
                let (a, b, c) = inputs();
                let found = <Dispatch as GridSampleBlockOps>::grid_sample_3d_block_to_displacement(
                    a,
                    b,
                    c,
                    block.into_dispatch(),
                    sampling,
                    [low, high],
                );
                let [found, expected] =
                    [found, expected].map(|values| to_f64(Tensor::<5>::from_dispatch(values)));
                assert_eq!(found, expected, "{name} {size:?} margins {low} and {high}");
            }
        }
    }
}
