//! Samples with room around them are the samples, at their place.

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
