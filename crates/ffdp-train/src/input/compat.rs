//! The sampling convention of a checkpoint's own warp.

use burn::tensor::{DType, Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// Where the network's own training saw the moving image at a displacement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum GridCompat {
    /// At `p + u(p)`: networks trained here, and checkpoints whose warp aligns corners.
    #[default]
    Consistent,
    /// At `(p + u(p)) n / (n - 1) - 1/2` along an axis of n voxels: the published half-resolution
    /// TransMorph normalises coordinates by n - 1 and samples without aligned corners, so that a
    /// displacement of zero is not the identity.
    Published,
}

impl GridCompat {
    /// The displacement that [`warp`](ffdp_burn::ops::warp) needs to see what the network meant.
    /// Shapes: displacement `[N, 3, D, H, W]`, components (x, y, z) in voxels; output the same.
    pub fn displacement(self, displacement: Tensor<5>) -> Tensor<5> {
        if self == Self::Consistent {
            return displacement;
        }
        let [_, _, d, h, w] = displacement.dims();
        let device = displacement.device();
        let component = |axis: usize| {
            let n = [w, h, d][axis];
            let ratio = n as f64 / (n as f64 - 1.0);
            // u' = (p + u) r - 1/2 - p = u r + p (r - 1) - 1/2
            let offsets =
                (0..n).map(|p| (p as f64 * (ratio - 1.0) - 0.5) as f32).collect::<Vec<_>>();
            let mut shape = [1; 5];
            shape[4 - axis] = n;
            let offsets =
                Tensor::<5>::from_data(TensorData::new(offsets, shape), (&device, DType::F32));
            displacement.clone().slice_dim(1, axis..axis + 1) * ratio + offsets
        };
        Tensor::cat(vec![component(0), component(1), component(2)], 1)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn zero_is_the_identity_only_where_grids_are_consistent() {
        let zero = Tensor::<5>::zeros([1, 3, 5, 3, 9], &Device::flex());
        let same = GridCompat::Consistent.displacement(zero.clone());
        assert_eq!(same.abs().max().into_scalar::<f32>(), 0.0);
        let theirs = GridCompat::Published.displacement(zero);
        let along_x: Vec<f32> = theirs
            .clone()
            .slice([0..1, 0..1, 0..1, 0..1, 0..9])
            .into_data()
            .try_to_vec()
            .expect("f32");
        // The first voxel is seen half a voxel outside, the last one too, the middle one where it is.
        assert_eq!([along_x[0], along_x[4], along_x[8]], [-0.5, 0.0, 0.5]);
    }
}
