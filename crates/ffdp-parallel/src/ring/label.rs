//! Label maps through the ring: the vote of eight corners is no sum, so each sample belongs to one
//! parcel, which sees all of its corners.

use burn::Tensor;
use burn::tensor::TensorData;

use super::parcel::{Parcel, local_affine};
use super::{RingInputs, RingSampler};
use crate::transfer::to_device;

impl RingSampler {
    /// Shard `k` of a label map: of each parcel the samples that it owns.
    pub(super) fn label_shard(&self, k: usize, inputs: &RingInputs) -> Tensor<5> {
        if self.route[k].len() == 1 {
            return self.shard(k, inputs);
        }
        let coordinate = self.coordinate(k, inputs);
        let parts = self.route[k].iter().map(|parcel| {
            let labels = self.part(k, parcel, inputs);
            labels * owned(parcel, &coordinate)
        });
        parts.reduce(Tensor::add).expect("a route has at least one parcel")
    }

    /// The coordinate along the image's cut axis at which every voxel of shard `k` is sampled,
    /// `[N, 1, D, H, W]`.
    fn coordinate(&self, k: usize, inputs: &RingInputs) -> Tensor<5> {
        let image = inputs.moving.shards()[0].clone().detach();
        let (batch, dtype) = (image.dims()[0], image.dtype());
        let image = to_device(image.narrow(2, 0, 1), self.mesh.device(k));
        let device = image.device();
        let row = self.moving.axis().component();
        let affine = local_affine(inputs.affine, &image, [self.origin(k), [0.0; 3]]);
        let entry = |column: usize| match &affine {
            Some(map) => map.clone().detach().narrow(1, row, 1).narrow(2, column, 1),
            None => Tensor::full([1, 1, 1], u8::from(row == column), (&device, dtype)),
        };
        let entry = |column: usize| entry(column).unsqueeze_dims::<5>(&[3, 4]);
        let [d, h, w] = self.fixed.shard_size(k);
        let mut sum = entry(3).expand([batch, 1, d, h, w]);
        for (axis, n) in [w, h, d].into_iter().enumerate() {
            let mut shape = [1; 5];
            shape[4 - axis] = n;
            let index: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let index = TensorData::new(index, shape).convert_dtype(dtype);
            sum = sum + entry(axis) * Tensor::<5>::from_data(index, (&device, dtype));
        }
        if let Some(field) = inputs.displacement {
            let field = field.shards()[k].clone().detach();
            for (c, scale) in self.options.displacement_scale[row].into_iter().enumerate() {
                sum = sum + field.clone().narrow(1, c, 1).mul_scalar(scale);
            }
        }
        sum
    }
}

/// 1 where a coordinate lies between the cuts of the parcel, else 0. The coordinates are rounded in
/// another order than in the sampler, so that a sample next to a cut may be given to either side;
/// both hold its corners.
fn owned(parcel: &Parcel, coordinate: &Tensor<5>) -> Tensor<5> {
    let above = |cut: usize| coordinate.clone().greater_equal_elem(cut as f64).float();
    let above = |cut: usize| above(cut).cast(coordinate.dtype());
    let (planes, window) = (&parcel.planes, &parcel.window);
    let from = match planes.start > window.start {
        true => above(planes.start),
        false => coordinate.ones_like(),
    };
    match planes.end < window.end {
        true => from - above(planes.end),
        false => from,
    }
}
