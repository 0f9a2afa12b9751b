//! A network on the devices of a mesh, one tape over all of them: its weights on each, the gradients of all in
//! one sum.
//!
//! What travels does so in one piece, all parameters in a line (`lines.rs`): the gradients once a step as a sum
//! over the devices, the weights once a step from the first device. On GPUs that NCCL joins both are sums
//! (`exchange.rs`), and the host waits for none. A device that holds several places has one copy.

use burn::Tensor;
use burn::backend::Dispatch;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Gradients};

use super::collective::all_reduce;
use super::device_mesh::DeviceMesh;
use super::exchange::Reduction;
pub use super::lines::{gradients_of_line, line_of_gradients};
use super::lines::{line_of_weights, with_weights};
use super::travel::wait_for_all;

/// One copy of a module for each device of a mesh; the first is the one that is trained.
#[derive(Clone, Debug)]
pub struct Replicas<M> {
    copies: Vec<M>,
    /// The copy of every place.
    of_place: Vec<usize>,
    devices: Vec<Device>,
}

impl<M: Module> Replicas<M> {
    /// Copies of `module`, whose own device must be that of the first place.
    pub fn new(module: &M, mesh: &DeviceMesh) -> Self {
        let mut devices: Vec<Device> = Vec::new();
        let mut of_place = Vec::with_capacity(mesh.count());
        for device in mesh.devices() {
            let known = devices.iter().position(|known| known == device);
            of_place.push(known.unwrap_or(devices.len()));
            if known.is_none() {
                devices.push(device.clone());
            }
        }
        Self { copies: copies(module, &devices), of_place, devices }
    }

    /// The copy on the device of place `k`.
    pub fn at(&self, k: usize) -> &M {
        &self.copies[self.of_place[k]]
    }

    /// Waits for all devices, and so for the sums of a step: before something is computed for the first time, whose
    /// kernels would be loaded concurrently (`travel.rs`).
    pub fn wait(&self) {
        let devices: Vec<_> =
            self.devices.iter().map(|device| device.as_dispatch().clone()).collect();
        wait_for_all::<Dispatch>(&devices);
    }

    /// The gradients of one backward pass over all devices: the sum over the copies, on the first device.
    pub fn gradients(&self, mut gradients: Gradients) -> GradientsParams {
        if let [copy] = &self.copies[..] {
            return GradientsParams::from_module(&mut gradients, copy);
        }
        let line =
            |copy: &M| line_of_gradients(copy, GradientsParams::from_module(&mut gradients, copy));
        let lines = self.copies.iter().map(line).collect();
        let sum = all_reduce(lines, Reduction::Sum).swap_remove(0);
        gradients_of_line(&self.copies[0], sum)
    }

    /// Every copy takes the weights of `module`, on the first device, which replaces the first copy.
    pub fn follow(&mut self, module: M) {
        if self.copies.len() > 1 {
            let weights = line_of_weights(&module);
            let lines = self.devices.iter().enumerate().map(|(i, device)| match i {
                0 => weights.clone(),
                // x + 0 is x.
                _ => {
                    let place = (&device.clone().inner(), weights.dtype());
                    Tensor::zeros([weights.dims()[0]], place)
                }
            });
            let lines = all_reduce(lines.collect(), Reduction::Sum);
            let copies = std::mem::take(&mut self.copies).into_iter().zip(lines);
            self.copies = copies.map(|(copy, line)| with_weights(copy, line)).collect();
        }
        self.copies[0] = module;
    }
}

/// `module`, then a copy on each further device.
fn copies<M: Module>(module: &M, devices: &[Device]) -> Vec<M> {
    let further = devices[1..].iter().map(|device| {
        // Burn's own transfer is not ordered with the computations of both (`transfer.rs`).
        let _ = devices[0].sync();
        let copy = module.clone().fork(device);
        let _ = device.sync();
        copy
    });
    std::iter::once(module.clone()).chain(further).collect()
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::*;
    use ffdp_kit::testing::{assert_close, to_f64};

    fn loss(layer: &Linear, seed: f32) -> Tensor<1> {
        let x = Tensor::<2>::from_floats([[seed, 2.0, -1.0]], &layer.weight.val().device());
        (layer.forward(x.clone()) * layer.forward(x)).sum()
    }

    /// Two copies on one device, as if it were two.
    fn two(layer: &Linear, device: &Device) -> Replicas<Linear> {
        let devices = vec![device.clone(); 2];
        Replicas { copies: copies(layer, &devices), of_place: vec![0, 1], devices }
    }

    #[test]
    fn gradients_are_added_and_weights_follow() {
        let device = Device::flex().autodiff();
        let layer = LinearConfig::new(3, 2).init(&device);
        let mut replicas = two(&layer, &device);
        let total = loss(replicas.at(0), 0.5) + loss(replicas.at(1), 3.0);
        let sum = replicas.gradients(total.backward());
        let total = loss(&layer, 0.5) + loss(&layer, 3.0);
        let expected = GradientsParams::from_grads(total.backward(), &layer);
        let of_weight =
            |g: &GradientsParams| to_f64(g.get::<2>(layer.weight.id).expect("it has one"));
        // Two f32 terms.
        assert_close("weight", &of_weight(&sum), &of_weight(&expected), 1e-6);
        let bias = layer.bias.as_ref().expect("by default").id;
        let of_bias = |g: &GradientsParams| to_f64(g.get::<1>(bias).expect("it has one"));
        assert_close("bias", &of_bias(&sum), &of_bias(&expected), 1e-6);

        let other = LinearConfig::new(3, 2).init(&device);
        let ids = other.weight.id;
        replicas.follow(other.clone());
        for copy in &replicas.copies {
            copy.weight.val().into_data().assert_eq(&other.weight.val().into_data(), true);
            assert!(copy.weight.val().is_require_grad());
        }
        assert_eq!(replicas.at(0).weight.id, ids);
    }

    #[test]
    fn what_a_copy_did_not_see_counts_as_nothing() {
        let device = Device::flex().autodiff();
        let layer = LinearConfig::new(3, 2).init(&device);
        let replicas = two(&layer, &device);
        let sum = replicas.gradients(loss(replicas.at(1), 3.0).backward());
        let expected = GradientsParams::from_grads(loss(&layer, 3.0).backward(), &layer);
        let [a, b] = [sum, expected].map(|g| g.get::<2>(layer.weight.id).expect("one saw it"));
        a.into_data().assert_eq(&b.into_data(), true);
    }
}
