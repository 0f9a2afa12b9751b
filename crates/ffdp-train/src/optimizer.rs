//! Adam with AMSGrad, one operation for each parameter; checkpoints are those of Burn's Adam.

use burn::optim::{AdamState, AdaptiveMomentumState, LearningRate, ModuleOptimizer, Optimizer};
use burn::tensor::{Device, Tensor};
use ffdp_burn::ops::{AmsGradMoments, AmsGradOptions, amsgrad};

/// Adam with AMSGrad.
#[derive(Clone, Copy, Debug, Default)]
pub struct AmsGrad {
    /// Its decays and its epsilon.
    pub options: AmsGradOptions,
}

impl AmsGrad {
    /// With the usual decays and this epsilon, in units of the gradient.
    pub fn with_epsilon(epsilon: f64) -> Self {
        Self { options: AmsGradOptions { epsilon, ..AmsGradOptions::default() } }
    }

    /// For all parameters of a module.
    pub fn init(self) -> ModuleOptimizer {
        ModuleOptimizer::from(self)
    }
}

impl Optimizer for AmsGrad {
    type State<const D: usize> = AdamState<D>;

    fn step<const D: usize>(
        &self,
        rate: LearningRate,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let moments = match state {
            None => AmsGradMoments::new(&parameter),
            Some(AdamState { momentum }) => {
                // A state of Adam without AMSGrad has no largest mean square yet.
                let largest = momentum.max_moment_2.unwrap_or_else(|| momentum.moment_2.clone());
                let (mean, square) = (momentum.moment_1, momentum.moment_2);
                AmsGradMoments { mean, square, largest, time: momentum.time }
            }
        };
        let (parameter, moments) = amsgrad(parameter, gradient, moments, rate, &self.options);
        let AmsGradMoments { mean, square, largest, time } = moments;
        let mut momentum = AdaptiveMomentumState::new(time, mean, square);
        momentum.max_moment_2 = Some(largest);
        (parameter, Some(AdamState::new(momentum)))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        AdamState::new(state.momentum.to_device(device))
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::LinearConfig;
    use burn::optim::{AdamConfig, GradientsParams};

    use super::*;

    #[test]
    fn it_steps_as_burns_adam() {
        let device = Device::flex().autodiff();
        let layer = LinearConfig::new(5, 3).init(&device);
        let train = |mut optimizer: ModuleOptimizer| {
            let mut layer = layer.clone();
            for step in 0..6 {
                let x = Tensor::<2>::ones([4, 5], &device) * (6.0 - step as f64);
                let loss = (layer.forward(x) - 1.0).square().mean();
                let gradients = GradientsParams::from_grads(loss.backward(), &layer);
                layer = optimizer.step(1e-2, layer, gradients);
            }
            layer.valid().weight.val().into_data().try_to_vec::<f32>().expect("f32")
        };
        let ours = train(AmsGrad::with_epsilon(1e-8).init());
        let burns = train(AdamConfig::new().with_amsgrad(true).with_epsilon(1e-8).init());
        for (a, b) in ours.iter().zip(&burns) {
            // Six steps of 1e-2, their arithmetic in f64 and in f32.
            assert!((a - b).abs() < 1e-6, "{ours:?} {burns:?}");
        }
    }
}
