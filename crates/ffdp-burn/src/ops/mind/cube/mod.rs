//! The descriptors on the GPU. `march.rs` walks through the planes with the distances in registers and makes of them
//! the mean of `V`, the descriptors, their difference from others or `dL/dD`; `pass.rs` takes the latter back to the
//! image. This file launches them.

use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use self::march::{Purpose, TILE, march_kernel};
use self::pass::{collect_kernel, pass_kernel};
use super::{CHANNELS, MindCall, MindOps, MindStorage, Patch, descriptor_shape};
use crate::ops::grid_sample::cube::{COLUMNS, columns};
use ffdp_kit::launch::{
    UNITS, address, assert_f32, buffer, empty_f32, extent, kind, readable, sum_rows,
};
use ffdp_kit::march::grid;

mod march;
mod pass;

/// Planes that a cube marches over, at least: it sums those of a patch's radius on either side once more.
const SHORTEST: usize = 8;

fn batch_and_size(image: &CubeTensor) -> (usize, [usize; 3]) {
    let shape = image.meta.shape();
    (shape[0], [shape[2], shape[3], shape[4]])
}

/// What a march reads, and what for. Tensors that its purpose does not read may be any.
#[derive(Clone, Copy)]
struct March<'a> {
    image: &'a CubeTensor,
    bounds: &'a CubeTensor,
    /// A gradient of descriptors, or those of another image.
    given: &'a CubeTensor,
    weights: &'a CubeTensor,
    patch: Patch,
    purpose: Purpose,
}

impl March<'_> {
    /// The twelve values of each voxel, stored as `dtype`, and the sums of the cubes, image after image; a placeholder
    /// of what the purpose does not make.
    fn launch(self, dtype: DType) -> (CubeTensor, CubeTensor) {
        let Self { image, bounds, given, weights, patch, purpose } = self;
        let (batch, size) = batch_and_size(image);
        let grid = grid("mind", TILE, batch, size, SHORTEST);
        let shape = match purpose.writes() {
            true => descriptor_shape(image.meta.shape()),
            false => [1].into(),
        };
        let (client, device) = (image.client.clone(), image.device.clone());
        let output = empty_device_contiguous_dtype(client, device, shape, dtype);
        let sums = empty_f32(image, [if purpose.sums() { grid.cubes() } else { 1 }]);
        let known = image.client.properties().supports_type(kind(&output));
        assert!(known, "mind: this device knows no {dtype:?}; store descriptors in full");
        unsafe {
            march_kernel::launch_unchecked(
                &image.client,
                grid.launch(),
                CubeDim::new_1d(UNITS),
                address(&[image, given, &output]),
                buffer(image),
                buffer(bounds),
                buffer(given),
                buffer(weights),
                buffer(&output),
                buffer(&sums),
                extent(size),
                grid.chunk,
                patch,
                purpose,
                [kind(image), kind(given), kind(&output)],
            );
        }
        (output, sums)
    }
}

/// The gradient of the image from the `slopes` of the distances.
fn to_image(image: &CubeTensor, slopes: &CubeTensor, patch: Patch) -> CubeTensor {
    let (batch, size) = batch_and_size(image);
    let [d, h, w] = size;
    let grid = grid("mind", TILE, batch, size, SHORTEST);
    let passed = empty_f32(image, [batch, 6, d, h, w]);
    let output = empty_f32(image, image.meta.shape().clone());
    unsafe {
        pass_kernel::launch_unchecked(
            &image.client,
            grid.launch(),
            CubeDim::new_1d(UNITS),
            address(&[slopes, &passed]),
            buffer(image),
            buffer(slopes),
            buffer(&passed),
            extent(size),
            grid.chunk,
            patch,
            kind(image),
        );
        collect_kernel::launch_unchecked(
            &image.client,
            columns("mind", batch, size, 1),
            COLUMNS.into(),
            address(&[&passed]),
            buffer(&passed),
            buffer(&output),
            extent(size),
            patch,
        );
    }
    output
}

impl MindOps for CubeBackend {
    fn mind_variance_3d(image: FloatTensor<Self>, patch: Patch) -> FloatTensor<Self> {
        let image = readable("mind", image);
        let (batch, _) = batch_and_size(&image);
        // Bound, but not read.
        let unread = &empty_f32(&image, [1]);
        let (bounds, given, weights) = (unread, unread, unread);
        let purpose = Purpose::Variance;
        let march = March { image: &image, bounds, given, weights, patch, purpose };
        let (_, sums) = march.launch(DType::F32);
        sum_rows(&sums, batch, sums.meta.shape()[0] / batch, 1.0)
    }

    fn mind_3d(
        image: FloatTensor<Self>,
        bounds: FloatTensor<Self>,
        patch: Patch,
        storage: MindStorage,
    ) -> FloatTensor<Self> {
        assert_f32("mind", &[&bounds]);
        let (image, bounds) = (&readable("mind", image), &into_contiguous(bounds));
        let (given, weights, purpose) = (bounds, bounds, Purpose::Descriptors);
        let march = March { image, bounds, given, weights, patch, purpose };
        march.launch(storage.dtype(DType::F32)).0
    }

    fn mind_3d_backward(
        image: FloatTensor<Self>,
        bounds: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        patch: Patch,
    ) -> FloatTensor<Self> {
        assert_f32("mind", &[&bounds, &grad]);
        let image = &readable("mind", image);
        let (bounds, given) = (&into_contiguous(bounds), &into_contiguous(grad));
        let (weights, purpose) = (bounds, Purpose::Slopes);
        let march = March { image, bounds, given, weights, patch, purpose };
        to_image(image, &march.launch(DType::F32).0, patch)
    }

    fn mind_difference_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        moved_bounds: FloatTensor<Self>,
        fixed_bounds: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: MindCall,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let MindCall { patch, storage, weighted } = call;
        assert_f32("mind", &[&moved_bounds, &fixed_bounds]);
        let images = [moved, fixed].map(|image| readable("mind", image));
        let bounds = [moved_bounds, fixed_bounds].map(into_contiguous);
        let weights = match weighted {
            true => into_contiguous(weights),
            false => empty_f32(&images[0], [1]),
        };
        assert_f32("mind", &[&weights]);
        // The sum, and the gradient to one image where it is needed.
        let march_over = |side: usize| {
            let (image, other) = (&images[side], 1 - side);
            let (of_other, bounds_of_other) = (images[other].clone(), bounds[other].clone());
            let given = &Self::mind_3d(of_other, bounds_of_other, patch, storage);
            let purpose = Purpose::Difference { weighted, gradient: needs[side] };
            let bounds = &bounds[side];
            let march = March { image, bounds, given, weights: &weights, patch, purpose };
            let (slopes, sums) = march.launch(DType::F32);
            let sum = sum_rows(&sums, 1, sums.meta.shape()[0], 1.0 / CHANNELS as f32);
            (sum, slopes)
        };
        let gradient = |side: usize, slopes: CubeTensor| match needs[side] {
            true => to_image(&images[side], &slopes, patch),
            false => slopes,
        };
        // Either march gives the sum.
        let first = usize::from(needs == [false, true]);
        let (sum, slopes) = march_over(first);
        let to_first = gradient(first, slopes);
        let to_second = match needs[1 - first] {
            true => gradient(1 - first, march_over(1 - first).1),
            false => empty_f32(&images[0], [1]),
        };
        match first {
            0 => (sum, to_first, to_second),
            _ => (sum, to_second, to_first),
        }
    }
}
