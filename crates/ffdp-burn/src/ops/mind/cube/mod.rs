//! The descriptors on the GPU. `march.rs` walks through the planes with the distances in registers and makes of them
//! the mean of `V`, the descriptors or `dL/dD`; `pass.rs` takes the latter back to the image. This file launches them.

use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use self::march::{Purpose, TILE, march_kernel};
use self::pass::{collect_kernel, pass_kernel};
use super::{CHANNELS, MindOps, MindStorage, Patch, descriptor_shape};
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

/// Marches over `image`; without an output of its own the sums of the cubes, added up for each image.
fn march(
    image: &CubeTensor,
    bounds: &CubeTensor,
    grad: &CubeTensor,
    patch: Patch,
    (purpose, dtype): (Purpose, DType),
) -> CubeTensor {
    let (batch, size) = batch_and_size(image);
    let grid = grid("mind", TILE, batch, size, SHORTEST);
    let output = match purpose {
        Purpose::Variance => empty_f32(image, [grid.cubes()]),
        _ => {
            let (client, device) = (image.client.clone(), image.device.clone());
            let shape = descriptor_shape(image.meta.shape());
            empty_device_contiguous_dtype(client, device, shape, dtype)
        }
    };
    let known = image.client.properties().supports_type(kind(&output));
    assert!(known, "mind: this device knows no {dtype:?}; store descriptors in full");
    unsafe {
        march_kernel::launch_unchecked(
            &image.client,
            grid.launch(),
            CubeDim::new_1d(UNITS),
            address(&[image, &output]),
            buffer(image),
            buffer(bounds),
            buffer(grad),
            buffer(&output),
            extent(size),
            grid.chunk,
            patch,
            purpose,
            [kind(image), kind(&output)],
        );
    }
    match purpose {
        Purpose::Variance => sum_rows(&output, batch, grid.cubes() / batch, 1.0),
        _ => output,
    }
}

/// The gradient of the image from the `slopes` of the distances.
fn to_image(image: &CubeTensor, slopes: &CubeTensor, patch: Patch) -> CubeTensor {
    let (batch, size) = batch_and_size(image);
    let [d, h, w] = size;
    let passed = empty_f32(image, [batch, 6, d, h, w]);
    let output = empty_f32(image, image.meta.shape().clone());
    unsafe {
        pass_kernel::launch_unchecked(
            &image.client,
            columns("mind", batch, size, 1),
            COLUMNS.into(),
            address(&[slopes, &passed]),
            buffer(image),
            buffer(slopes),
            buffer(&passed),
            extent(size),
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
        // Bound, but not read.
        let unread = empty_f32(&image, [CHANNELS]);
        march(&image, &unread, &unread, patch, (Purpose::Variance, DType::F32))
    }

    fn mind_3d(
        image: FloatTensor<Self>,
        bounds: FloatTensor<Self>,
        patch: Patch,
        storage: MindStorage,
    ) -> FloatTensor<Self> {
        assert_f32("mind", &[&bounds]);
        let (image, bounds) = (readable("mind", image), into_contiguous(bounds));
        let dtype = storage.dtype(DType::F32);
        march(&image, &bounds, &bounds, patch, (Purpose::Descriptors, dtype))
    }

    fn mind_3d_backward(
        image: FloatTensor<Self>,
        bounds: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        patch: Patch,
    ) -> FloatTensor<Self> {
        assert_f32("mind", &[&bounds, &grad]);
        let image = readable("mind", image);
        let (bounds, grad) = (into_contiguous(bounds), into_contiguous(grad));
        let slopes = march(&image, &bounds, &grad, patch, (Purpose::Slopes, DType::F32));
        to_image(&image, &slopes, patch)
    }
}
