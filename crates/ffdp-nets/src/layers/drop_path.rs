use burn::module::{Flag, Module, Param};
use burn::tensor::{Device, Distribution, Tensor};

/// Stochastic depth: drops a whole residual branch, sample by sample, during training.
///
/// With probability `prob` a sample's branch is set to zero; the kept ones are scaled by
/// `1 / (1 - prob)`, so the expectation is unchanged. Like Burn's `Dropout` it acts only on an
/// autodiff device and while the module is not frozen: `model.valid()` turns it off.
///
/// Source: Huang et al., "Deep networks with stochastic depth", ECCV 2016.
#[derive(Module, Debug)]
pub struct DropPath {
    /// Probability that a sample's branch is dropped.
    pub prob: f64,
    /// Cleared when the module is frozen.
    pub training: Param<Flag>,
}

impl DropPath {
    /// # Panics
    /// Unless `0 <= prob < 1`.
    pub fn new(prob: f64) -> Self {
        assert!((0.0..1.0).contains(&prob), "DropPath: prob must lie in [0, 1), got {prob}");
        Self { prob, training: Param::from_bool(true) }
    }

    /// Shapes: branch `[N, ...]`; output the same. One draw for each of the N samples.
    pub fn forward<const D: usize>(&self, branch: Tensor<D>) -> Tensor<D> {
        match self.factor(branch.dims()[0], &branch.device()) {
            Some(factor) => branch * factor,
            None => branch,
        }
    }

    /// What the branch of each sample is multiplied by, `[N, 1, ..]`: a draw, or nothing where nothing is
    /// dropped.
    pub(crate) fn factor<const D: usize>(
        &self,
        samples: usize,
        device: &Device,
    ) -> Option<Tensor<D>> {
        if self.prob == 0.0 || !device.is_autodiff() || !self.training.is_enabled() {
            return None;
        }
        let keep = 1.0 - self.prob;
        let mut shape = [1; D];
        shape[0] = samples;
        Some(Tensor::<D>::random(shape, Distribution::Bernoulli(keep), device) / keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn per_sample(y: Tensor<3>) -> Vec<f32> {
        let [n, a, b] = y.dims();
        let y: Vec<f32> = y.into_data().try_to_vec().unwrap();
        (0..n)
            .map(|i| {
                let sample = &y[i * a * b..(i + 1) * a * b];
                assert!(sample.iter().all(|v| v == &sample[0]), "a sample is dropped as a whole");
                sample[0]
            })
            .collect()
    }

    #[test]
    fn does_nothing_outside_training() {
        let ones = Tensor::<3>::ones([64, 2, 2], &Device::flex());
        assert!(per_sample(DropPath::new(0.5).forward(ones)).iter().all(|&v| v == 1.0));
        let tracked = Tensor::<3>::ones([64, 2, 2], &Device::flex().autodiff());
        let frozen = DropPath::new(0.5).freeze();
        assert!(per_sample(frozen.forward(tracked.clone())).iter().all(|&v| v == 1.0));
        assert!(per_sample(DropPath::new(0.0).forward(tracked)).iter().all(|&v| v == 1.0));
    }

    #[test]
    fn drops_whole_samples_and_rescales_the_others() {
        const SAMPLES: usize = 4000;
        let ones = Tensor::<3>::ones([SAMPLES, 2, 2], &Device::flex().autodiff());
        let seen = per_sample(DropPath::new(0.25).forward(ones));
        let kept = seen.iter().filter(|&&v| v != 0.0).count() as f64;
        assert!(seen.iter().all(|&v| v == 0.0 || (v - 1.0 / 0.75).abs() < 1e-6));
        // Five deviations of a binomial of 4000 draws with p = 0.75: 5 sqrt(n p (1-p)) = 137.
        assert!((kept - 3000.0).abs() < 137.0, "{kept} of {SAMPLES} kept");
    }

    #[test]
    #[should_panic(expected = "prob must lie in [0, 1), got 1")]
    fn refuses_to_drop_everything() {
        DropPath::new(1.0);
    }
}
