//! A network that predicts the affine map aligning a pair of volumes, to go before one that deforms.
//!
//! ```text
//! moving, fixed ─ mean of 2^3 ─ mean of 2^3 ─ (convolution, LeakyReLU, max) x 4 ─ mean ─ 12 numbers
//! ```
//! The numbers are `M` (3 x 3) and `t` of the displacement in coordinates that run from -1 to 1 over the
//! image: `u_i(p) = n_i / 2 * (sum_j M_ij q_j(p) + t_i)` voxels, `q_j(p) = (2 p_j + 1) / n_j - 1`, axes
//! (x, y, z), `n` the extents. So a map does not depend on the resolution at which it is predicted, and
//! zero is the identity, with which an untrained network begins.
//!
//! After Zhao et al., "Unsupervised 3D end-to-end medical image registration with Volume Tweening
//! Network", arXiv 1902.05020 (an affine network first, cascaded), with the units of VoxelMorph.

use std::ops::Range;

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};

use crate::layers::MaxPool3d;
use crate::layers::initializer::WeightInit;
use crate::ops::{Precision, mean_pool};
use crate::padding::padded_pair;
use crate::sharded;
use crate::voxelmorph::ConvUnit;
use ffdp_parallel::{Cuts, Sharded, collective::broadcast};

/// Convolutions, each followed by pooling.
const UNITS: usize = 4;

/// Extents are padded to a multiple of this: two halvings, then one a unit.
const SIZE_MULTIPLE: usize = 1 << (2 + UNITS);

/// Of so many voxels along an axis the network sees the mean.
const COARSE: usize = 4;

/// Numbers of an affine map.
const NUMBERS: usize = 12;

/// Deviation of the last layer's initial weights: the untrained map is the identity to about 1e-5.
const LAST_STD: f64 = 1e-5;

/// Which affine network to build.
#[derive(Config, Debug, PartialEq, Eq)]
pub struct AffineNetConfig {
    /// Channels of the convolutions, fine to coarse.
    #[config(default = "[16, 32, 64, 64]")]
    pub channels: [usize; UNITS],
    /// Seed of the initial weights.
    #[config(default = 0)]
    pub seed: u64,
}

impl AffineNetConfig {
    /// Builds the network on `device`; the weights depend on the seed alone.
    ///
    /// # Panics
    /// If a number of channels is 0.
    pub fn init(&self, device: &Device) -> AffineNet {
        let init = &mut WeightInit::new(self.seed, device);
        let mut c_in = 2;
        let mut units = Vec::with_capacity(UNITS);
        for c_out in self.channels {
            // A dozen numbers for a whole volume: exact products cost next to nothing.
            units.push(ConvUnit::new(c_in, c_out, Precision::Single, init));
            c_in = c_out;
        }
        let weight = init.normal([c_in, NUMBERS], LAST_STD);
        AffineNet { units, weight, bias: init.zeros([NUMBERS]) }
    }
}

/// A network that predicts an affine map. Built by [`AffineNetConfig::init`].
#[derive(Module, Debug)]
pub struct AffineNet {
    /// Fine to coarse; each is followed by pooling.
    pub units: Vec<ConvUnit>,
    /// `[C, 12]`, features to numbers.
    pub weight: Param<Tensor<2>>,
    /// `[12]`.
    pub bias: Param<Tensor<1>>,
}

impl AffineNet {
    /// The displacement of the affine map that brings `moving` onto `fixed`.
    ///
    /// Shapes: moving, fixed `[N, 1, D, H, W]` of any size, intensities in about `[0, 1]`; output
    /// `[N, 3, D, H, W]`, components (x, y, z), voxels.
    ///
    /// # Panics
    /// If the shapes differ, have more than one channel or an empty extent.
    pub fn forward(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<5> {
        let [_, _, d, h, w] = moving.dims();
        displacement(self.map(moving, fixed), [d, h, w], [0..d, 0..h, 0..w])
    }

    /// [`AffineNet::forward`] of images in parts, cut like them: their means of 4^3 voxels, a 64th, come together
    /// on the first device, whose network this is. Differentiable.
    ///
    /// # Panics
    /// If the images are cut differently or have more than one channel.
    pub(super) fn forward_sharded(&self, moving: &Sharded, fixed: &Sharded) -> Sharded {
        let layout = moving.layout();
        if let ([moving], [fixed]) = (moving.shards(), fixed.shards()) {
            let u = self.forward(moving.clone(), fixed.clone());
            return Sharded::new(vec![u], layout.clone());
        }
        let images = sharded::padded_pair("AffineNet", moving, fixed, SIZE_MULTIPLE, COARSE);
        let [half, quarter] = [COARSE / 2, COARSE].map(|stride| images.cuts().at(stride));
        let coarse = images.mean_pool(&half).mean_pool(&quarter);
        let planes = quarter.extent();
        let first = (0..=quarter.places()).map(|end| if end == 0 { 0 } else { planes });
        let coarse = coarse.recut(&Cuts::from_ends(first.collect()));
        let map = self.map_of_coarse(coarse.part(0).expect("it has all planes").clone());
        let maps = broadcast(&map, moving.mesh().devices());
        let shards = layout.all_planes().zip(maps).map(|(planes, map)| {
            let mut region = layout.size().map(|extent| 0..extent);
            region[layout.axis().dim() - 2] = planes;
            displacement(map, layout.size(), region)
        });
        Sharded::new(shards.collect(), layout.clone())
    }

    /// The numbers of the map, `[N, 12]`: the rows of `[M | t]`. Shapes and panics as
    /// [`AffineNet::forward`].
    pub fn map(&self, moving: Tensor<5>, fixed: Tensor<5>) -> Tensor<2> {
        let images = padded_pair("AffineNet", moving, fixed, SIZE_MULTIPLE);
        self.map_of_coarse(mean_pool(mean_pool(images)))
    }

    /// [`AffineNet::map`] of the means of 4^3 voxels of both images, `[N, 2, D/4, H/4, W/4]`.
    fn map_of_coarse(&self, images: Tensor<5>) -> Tensor<2> {
        let pooled = |x: Tensor<5>, unit: &ConvUnit| MaxPool3d.forward(unit.forward(x));
        let features = self.units.iter().fold(images, pooled);
        let [n, c, d, h, w] = features.dims();
        let features = features.reshape([n, c, d * h * w]).mean_dim(2);
        // A product of n x c by c x 12: as a sum, which needs no tuned matrix product.
        let products = features * self.weight.val().unsqueeze_dim::<3>(0);
        products.sum_dim(1).reshape([n, NUMBERS]) + self.bias.val().unsqueeze_dim::<2>(0)
    }
}

/// The displacement `[N, 3, D, H, W]` of maps `[N, 12]`, in voxels of a grid of `size` (D, H, W), for the voxels of a
/// region of it.
fn displacement(map: Tensor<2>, size: [usize; 3], region: [Range<usize>; 3]) -> Tensor<5> {
    let [n, _] = map.dims();
    let (device, dtype) = (map.device(), map.dtype());
    let rows = map.reshape([n, 3, 4]);
    let numbers = |values: Vec<f64>, shape: [usize; 5]| {
        let data = TensorData::new(values, shape).convert_dtype(dtype);
        Tensor::<5>::from_data(data, (&device, dtype))
    };
    let [d, h, w] = size;
    let half_extents = [w, h, d].map(|extent| extent as f64 / 2.0);
    let half_extents = numbers(half_extents.to_vec(), [1, 3, 1, 1, 1]);
    // Column k of [M | t], in voxels.
    let column = |k: usize| {
        let column = rows.clone().slice([0..n, 0..3, k..k + 1]).reshape([n, 3, 1, 1, 1]);
        column * half_extents.clone()
    };
    let along = |axis: usize| {
        let (extent, voxels) = (size[axis], region[axis].clone());
        let centred = |i: usize| (2 * i + 1) as f64 / extent as f64 - 1.0;
        let mut shape = [1; 5];
        shape[axis + 2] = voxels.len();
        numbers(voxels.map(centred).collect(), shape)
    };
    let x = column(0) * along(2);
    let y = column(1) * along(1);
    let z = column(2) * along(0);
    // The broadcast volume is made once: planes first.
    (x + y) + (z + column(3))
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;

    use super::*;
    use ffdp_kit::testing::{tensor, uniform};

    fn images(size: [usize; 3], device: &Device) -> [Tensor<5>; 2] {
        let [d, h, w] = size;
        [1, 2].map(|seed| {
            let values = uniform(2 * d * h * w, 0.0, 1.0, seed);
            tensor(&values, [2, 1, d, h, w], device, DType::F32)
        })
    }

    #[test]
    fn a_map_is_the_same_displacement_on_every_grid() {
        let device = Device::flex();
        // x' = x + 0.1 y - 0.3 of half the extents, z' = 1.2 z.
        let mut numbers = [0f32; 12];
        (numbers[1], numbers[3], numbers[10]) = (0.1, -0.3, 0.2);
        let map = || Tensor::<2>::from_data(TensorData::new(numbers.to_vec(), [1, 12]), &device);
        for size in [[4, 6, 8], [8, 12, 16]] {
            let u = displacement(map(), size, size.map(|extent| 0..extent));
            assert_eq!(u.dims(), [1, 3, size[0], size[1], size[2]]);
            let u: Vec<f32> = u.into_data().try_to_vec().expect("f32");
            let count: usize = size.iter().product();
            for (i, voxel) in [0, 17, count - 1].into_iter().enumerate() {
                let at = [voxel / size[2] / size[1], voxel / size[2] % size[1], voxel % size[2]];
                let q = |axis: usize| (2 * at[axis] + 1) as f32 / size[axis] as f32 - 1.0;
                let expected = [
                    size[2] as f32 / 2.0 * (0.1 * q(1) - 0.3),
                    0.0,
                    size[0] as f32 / 2.0 * 0.2 * q(0),
                ];
                for (component, expected) in expected.into_iter().enumerate() {
                    let found = u[component * count + voxel];
                    assert!((found - expected).abs() < 1e-5, "{size:?} {i}: {found}, {expected}");
                }
            }
        }
    }

    #[test]
    fn an_untrained_network_moves_nothing_and_every_parameter_learns() {
        let device = Device::flex().autodiff();
        let network = AffineNetConfig::new().with_seed(2).init(&device);
        let [moving, fixed] = images([24, 70, 32], &device);
        let u = network.forward(moving.clone(), fixed.clone());
        assert_eq!(u.dims(), [2, 3, 24, 70, 32]);
        let largest = u.clone().abs().max().into_scalar::<f32>();
        assert!(largest > 0.0 && largest < 0.01, "{largest}");
        let gradients = ffdp_burn::ops::mse(ffdp_burn::ops::warp(moving, u), fixed).backward();
        let weights = network.units.iter().map(|unit| unit.conv.weight.val().grad(&gradients));
        for gradient in weights {
            assert!(gradient.expect("tracked").abs().max().into_scalar::<f32>() > 0.0);
        }
        let last = network.weight.val().grad(&gradients).expect("tracked");
        assert!(last.abs().max().into_scalar::<f32>() > 0.0);
    }
}
