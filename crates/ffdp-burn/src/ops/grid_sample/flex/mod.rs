//! The grid sampler on the CPU: rayon over rows, `f64` arithmetic, written to be read.
//!
//! This is the oracle for the GPU kernels; finite differences in `f64` prove it (see `tests/`).
//! `place.rs` where a sample lies and what is there · `lanes.rs` the same for several neighbours at a
//! time · `gather.rs` the samples and the gradients that
//! are sums of them · `scatter.rs` the gradient of the image.

mod gather;
mod lanes;
mod place;
mod scatter;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;

use super::block::GridSampleBlockOps;
use super::{GridSampleOps, Sampling};
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};

use gather::{forward, to_affine, to_displacement};
pub(crate) use place::{SamplePosition, Tap};
use scatter::to_image;

/// The inputs, borrowed, with everything needed to place a sample.
struct Sampler<'a, T> {
    image: &'a [T],
    affine: &'a [T],
    displacement: &'a [T],
    channels: usize,
    /// Image extent (D, H, W).
    input: [usize; 3],
    /// Elements between the affine maps of consecutive batch entries.
    affine_stride: usize,
    sampling: Sampling,
}

impl<T: Real> Sampler<'_, T> {
    fn channel(&self, n: usize, c: usize) -> &[T] {
        let len = self.input.iter().product::<usize>();
        &self.image[(n * self.channels + c) * len..][..len]
    }

    /// The places of a row of output voxels: index `A p + t + S u(p)`.
    fn row(&self, n: usize, y: usize, z: usize) -> Row<'_, T> {
        let [d, h, w] = self.sampling.size;
        let affine = &self.affine[n * self.affine_stride..];
        let entry = |i: usize, j: usize| affine[4 * i + j].wide();
        let start = |i| entry(i, 1) * y as f64 + entry(i, 2) * z as f64 + entry(i, 3);
        let displacement = self.sampling.has_displacement.then(|| {
            [0, 1, 2].map(|c| &self.displacement[(((n * 3 + c) * d + z) * h + y) * w..][..w])
        });
        Row {
            start: [0, 1, 2].map(start),
            step: [0, 1, 2].map(|i| entry(i, 0)),
            displacement,
            input: self.input,
            sampling: self.sampling,
        }
    }
}

/// One row of output voxels along x.
struct Row<'a, T> {
    /// Index of its first voxel without displacement.
    start: [f64; 3],
    /// From one voxel to the next.
    step: [f64; 3],
    /// The three components of `u` along it.
    displacement: Option<[&'a [T]; 3]>,
    input: [usize; 3],
    sampling: Sampling,
}

fn sampler<'a, T: Real>(
    image: &'a FlexTensor,
    affine: &'a FlexTensor,
    displacement: &'a FlexTensor,
    sampling: Sampling,
) -> Sampler<'a, T> {
    let shape = image.layout().shape();
    Sampler {
        image: elements(image),
        affine: elements(affine),
        displacement: elements(displacement),
        channels: shape[1],
        input: [shape[2], shape[3], shape[4]],
        affine_stride: if affine.layout().shape()[0] == 1 { 0 } else { 12 },
        sampling,
    }
}

fn run_forward<T: Real>(
    image: &FlexTensor,
    affine: &FlexTensor,
    displacement: &FlexTensor,
    sampling: Sampling,
) -> FlexTensor {
    let s = sampler::<T>(image, affine, displacement, sampling);
    let shape = image.layout().shape();
    tensor(forward(&s, shape[0]), sampling.output_shape(shape))
}

fn run_backward<T: Real>(
    inputs: [&FlexTensor; 3],
    grad: &FlexTensor,
    sampling: Sampling,
    needs: [bool; 3],
) -> [FlexTensor; 3] {
    let s = sampler::<T>(inputs[0], inputs[1], inputs[2], sampling);
    let grad = elements::<T>(grad);
    let batch = inputs[0].layout().shape()[0];
    let placeholder = || tensor(vec![T::default()], [1]);
    let shape = |i: usize| inputs[i].layout().shape().clone();
    let image = needs[0].then(|| tensor(to_image(&s, grad), shape(0)));
    let affine = needs[1].then(|| tensor(to_affine(&s, grad, batch), shape(1)));
    let field = needs[2].then(|| tensor(to_displacement(&s, grad, batch), shape(2)));
    [image, affine, field].map(|gradient| gradient.unwrap_or_else(placeholder))
}

/// The samples, and zeros on the planes around them.
fn run_block<T: Real>(
    inputs: [&FlexTensor; 3],
    sampling: Sampling,
    [low, high]: [usize; 2],
) -> FlexTensor {
    let [image, affine, displacement] = inputs;
    let shape = sampling.block_shape(image.layout().shape(), [low, high]);
    let samples = run_forward::<T>(image, affine, displacement, sampling);
    let [d, h, w] = sampling.size;
    let mut block = vec![T::default(); shape.num_elements()];
    let channels = block.chunks_mut((low + d + high) * h * w);
    for (channel, samples) in channels.zip(elements::<T>(&samples).chunks(d * h * w)) {
        channel[low * h * w..][..d * h * w].copy_from_slice(samples);
    }
    tensor(block, shape)
}

/// The gradient of the displacement from that of a block.
fn run_block_to_displacement<T: Real>(
    inputs: [&FlexTensor; 3],
    grad: &FlexTensor,
    sampling: Sampling,
    [low, high]: [usize; 2],
) -> FlexTensor {
    let [d, h, w] = sampling.size;
    let channels = elements::<T>(grad).chunks((low + d + high) * h * w);
    let own = channels.flat_map(|channel| &channel[low * h * w..][..d * h * w]);
    let shape = sampling.output_shape(inputs[0].layout().shape());
    let grad = tensor(own.copied().collect(), shape);
    let [_, _, field] = run_backward::<T>(inputs, &grad, sampling, [false, false, true]);
    field
}

impl GridSampleBlockOps for Flex {
    fn grid_sample_3d_block(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        sampling: Sampling,
        margins: [usize; 2],
    ) -> FloatTensor<Self> {
        let inputs = [image, affine, displacement].map(readable);
        let dtype = inputs[0].dtype();
        by_dtype!("grid_sample", dtype, run_block(inputs.each_ref(), sampling, margins))
    }

    fn grid_sample_3d_block_to_displacement(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        sampling: Sampling,
        margins: [usize; 2],
    ) -> FloatTensor<Self> {
        let [image, affine, displacement, grad] = [image, affine, displacement, grad].map(readable);
        let inputs = [&image, &affine, &displacement];
        by_dtype!(
            "grid_sample",
            image.dtype(),
            run_block_to_displacement(inputs, &grad, sampling, margins)
        )
    }
}

impl GridSampleOps for Flex {
    fn grid_sample_3d(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        sampling: Sampling,
    ) -> FloatTensor<Self> {
        let [image, affine, displacement] = [image, affine, displacement].map(readable);
        by_dtype!(
            "grid_sample",
            image.dtype(),
            run_forward(&image, &affine, &displacement, sampling)
        )
    }

    fn grid_sample_3d_backward(
        image: FloatTensor<Self>,
        affine: FloatTensor<Self>,
        displacement: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        sampling: Sampling,
        needs: [bool; 3],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [image, affine, displacement, grad] = [image, affine, displacement, grad].map(readable);
        let inputs = [&image, &affine, &displacement];
        let [image, affine, displacement] =
            by_dtype!("grid_sample", image.dtype(), run_backward(inputs, &grad, sampling, needs));
        (image, affine, displacement)
    }
}
