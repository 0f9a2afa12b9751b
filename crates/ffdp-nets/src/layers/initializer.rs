//! Seeded initial weights, drawn on the host.
//!
//! Burn's own initialisers are lazy and draw from a generator shared by the whole process, so the
//! weights would depend on the order of first use, on other threads and on the device. Here one
//! ChaCha stream per network is drawn in the order in which its layers are built: the same seed
//! gives the same network on a CPU and on a GPU.

use burn::module::Param;
use burn::nn::conv::{Conv3d, Conv3dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig3d};
use burn::tensor::{Device, Tensor, TensorData};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Where PyTorch's `trunc_normal_` cuts by default: an absolute value, not a number of deviations.
const TRUNCATION: f64 = 2.0;

/// Draws parameters for one network.
pub struct WeightInit {
    rng: ChaCha8Rng,
    device: Device,
}

impl WeightInit {
    /// A generator for one network whose parameters live on `device`.
    pub fn new(seed: u64, device: &Device) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), device: device.clone() }
    }

    /// The device on which the parameters are put.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Uniform in `[-bound, bound)`.
    pub fn uniform<const D: usize>(&mut self, shape: [usize; D], bound: f64) -> Param<Tensor<D>> {
        self.fill(shape, |rng| bound * (2.0 * rng.random::<f64>() - 1.0))
    }

    /// Normal with mean 0 and deviation `std`.
    pub fn normal<const D: usize>(&mut self, shape: [usize; D], std: f64) -> Param<Tensor<D>> {
        self.fill(shape, |rng| std * rng.sample::<f64, _>(StandardNormal))
    }

    /// Normal with mean 0 and deviation `std`, redrawn until it lies in `[-2, 2]`
    /// (the default cut of PyTorch's `trunc_normal_`).
    pub fn truncated_normal<const D: usize>(
        &mut self,
        shape: [usize; D],
        std: f64,
    ) -> Param<Tensor<D>> {
        self.fill(shape, |rng| {
            loop {
                let value = std * Distribution::<f64>::sample(&StandardNormal, rng);
                if value.abs() <= TRUNCATION {
                    return value;
                }
            }
        })
    }

    /// All zeros.
    pub fn zeros<const D: usize>(&mut self, shape: [usize; D]) -> Param<Tensor<D>> {
        self.fill(shape, |_| 0.0)
    }

    /// A linear layer with PyTorch's default initial values, U(+-1/sqrt(fan_in)).
    pub fn linear(&mut self, d_input: usize, d_output: usize, bias: bool) -> Linear {
        let bound = 1.0 / (d_input as f64).sqrt();
        let mut layer = LinearConfig::new(d_input, d_output).with_bias(bias).init(&self.device);
        layer.weight = self.uniform([d_input, d_output], bound);
        layer.bias = bias.then(|| self.uniform([d_output], bound));
        layer
    }

    /// A convolution whose kernel is its stride (patches), with PyTorch's default initial values.
    pub fn patch_conv(&mut self, c_in: usize, c_out: usize, patch: usize) -> Conv3d {
        let bound = 1.0 / ((c_in * patch.pow(3)) as f64).sqrt();
        let mut layer = Conv3dConfig::new([c_in, c_out], [patch; 3])
            .with_stride([patch; 3])
            .with_padding(PaddingConfig3d::Valid)
            .init(&self.device);
        layer.weight = self.uniform([c_out, c_in, patch, patch, patch], bound);
        layer.bias = Some(self.uniform([c_out], bound));
        layer
    }

    fn fill<const D: usize>(
        &mut self,
        shape: [usize; D],
        mut draw: impl FnMut(&mut ChaCha8Rng) -> f64,
    ) -> Param<Tensor<D>> {
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| draw(&mut self.rng) as f32).collect();
        Param::from_data(TensorData::new(values, shape), &self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values<const D: usize>(param: Param<Tensor<D>>) -> Vec<f32> {
        param.val().into_data().try_to_vec().expect("weights are f32")
    }

    fn deviation(values: &[f32]) -> f64 {
        let n = values.len() as f64;
        let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n;
        (values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n).sqrt()
    }

    #[test]
    fn uniform_stays_within_and_fills_its_bound() {
        let drawn = values(WeightInit::new(1, &Device::flex()).uniform([10_000], 0.25));
        assert!(drawn.iter().all(|v| v.abs() <= 0.25));
        // Deviation of U(-b, b) is b / sqrt(3); 10 000 draws estimate it to about 1 %.
        assert!((deviation(&drawn) - 0.25 / 3f64.sqrt()).abs() < 0.005);
    }

    #[test]
    fn normals_have_the_requested_deviation() {
        let mut init = WeightInit::new(2, &Device::flex());
        for std in [1e-5, 0.02] {
            let (plain, cut) = (init.normal([20_000], std), init.truncated_normal([20_000], std));
            for drawn in [values(plain), values(cut)] {
                assert!((deviation(&drawn) / std - 1.0).abs() < 0.03, "std {std}");
            }
        }
        let wide = values(init.truncated_normal([5_000], 2.0));
        assert!(wide.iter().all(|v| v.abs() <= 2.0), "the cut is at an absolute 2");
    }

    #[test]
    fn layers_use_their_fan_in() {
        let mut init = WeightInit::new(3, &Device::flex());
        let linear = init.linear(16, 500, true);
        let weights = values(linear.weight);
        assert!(weights.iter().all(|v| v.abs() <= 0.25) && weights.iter().any(|v| v.abs() > 0.24));
        let bound = 1.0 / 128f32.sqrt();
        let kernel = values(init.patch_conv(2, 40, 4).weight);
        assert!(kernel.iter().all(|v| v.abs() <= bound));
        assert!(kernel.iter().any(|v| v.abs() > 0.98 * bound));
    }

    #[test]
    fn a_seed_names_one_sequence() {
        let draw = |seed| values(WeightInit::new(seed, &Device::flex()).uniform([64], 1.0));
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
