//! Adam with AMSGrad, one operation for each parameter; checkpoints are those of Burn's Adam.

use burn::optim::{
    AdamState, AdaptiveMomentumState, LearningRate, ModuleOptimizer, Optimizer, RecordState,
    StateSink, StateSource,
};
use burn::tensor::{Device, Tensor};
use ffdp_nets::ops::{AmsGradMoments, AmsGradOptions, amsgrad};

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

/// The moments of a parameter, saved as those of Burn's Adam.
#[derive(Clone)]
pub struct Moments<const D: usize>(AdamState<D>);

impl<const D: usize> RecordState for Moments<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        self.0.state_flatten(prefix, out);
    }

    // Burn asks for its default device, which may not be there or be another one than that of the run. The
    // next step moves the moments to the parameter's.
    fn state_unflatten(prefix: &str, from: &mut StateSource, _: &Device) -> Option<Self> {
        AdamState::state_unflatten(prefix, from, &Device::flex()).map(Self)
    }
}

impl Optimizer for AmsGrad {
    type State<const D: usize> = Moments<D>;

    fn step<const D: usize>(
        &self,
        rate: LearningRate,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let moments = match state {
            None => AmsGradMoments::new(&parameter),
            Some(Moments(AdamState { momentum })) => {
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
        (parameter, Some(Moments(AdamState::new(momentum))))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        let Moments(AdamState { momentum }) = &state;
        if momentum.moment_1.device() == *device {
            return state;
        }
        // A run that is resumed: moments go to each device once. Burn's own transfer is not ordered with the
        // receiver's computations.
        let _ = device.sync();
        let moved = AdamState::new(momentum.clone().to_device(device));
        let _ = device.sync();
        Moments(moved)
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

    #[test]
    fn moments_are_loaded_into_host_memory_whatever_device_is_asked_for() {
        let x = Tensor::<1>::ones([4], &Device::flex());
        let step = AmsGrad::default().step(1e-2, x.clone(), x.clone(), None);
        let mut sink = StateSink::default();
        step.1.expect("it keeps moments").state_flatten("p", &mut sink);
        let mut source = StateSource::new(sink.scalars.into_iter().collect());
        sink.tensors.into_iter().for_each(|(name, data)| source.insert_tensor(name, data));
        // It stands for any device but the one they are loaded on.
        let other = Device::flex().autodiff();
        let Moments(AdamState { momentum }) =
            Moments::<1>::state_unflatten("p", &mut source, &other).expect("just saved");
        assert_eq!(momentum.moment_1.device(), Device::flex());
        assert_eq!(momentum.time, 1);
    }
}
