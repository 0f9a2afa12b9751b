//! A network on several devices: its weights on each, the gradients of all in one sum.
//!
//! What travels does so in one piece, all parameters in a line: the gradients once a step as a sum over the
//! devices, the weights once a step from the first device. On GPUs that NCCL joins both are sums
//! (`exchange.rs`), and the host waits for none. A device that holds several places has one copy.

use std::collections::BTreeSet;

use burn::Tensor;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Gradients};

use super::collective::all_reduce;
use super::exchange::Reduction;
use super::mesh::Mesh;

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
    pub fn new(module: &M, mesh: &Mesh) -> Self {
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

    /// A copy for each of `devices`, also where one occurs twice; the first is `module`, whose own device it
    /// must be.
    ///
    /// # Panics
    /// If there is no device.
    pub fn one_each(module: &M, devices: &[Device]) -> Self {
        assert!(!devices.is_empty(), "replicas: there must be a device");
        let (copies, of_place) = (copies(module, devices), (0..devices.len()).collect());
        Self { copies, of_place, devices: devices.to_vec() }
    }

    /// The copy on the device of place `k`.
    pub fn at(&self, k: usize) -> &M {
        &self.copies[self.of_place[k]]
    }

    /// The copies, one for each device, the trained one first.
    pub fn copies(&self) -> &[M] {
        &self.copies
    }

    /// The gradients of one backward pass over all devices: the sum over the copies, on the first device.
    pub fn gradients(&self, mut gradients: Gradients) -> GradientsParams {
        let of = |copy: &M| GradientsParams::from_module(&mut gradients, copy);
        let parts = self.copies.iter().map(of).collect();
        self.sum(parts)
    }

    /// The sum of the gradients of the copies, in their order, on the first device. What one of them lacks
    /// counts as 0.
    ///
    /// # Panics
    /// If there is not one for each copy.
    pub fn sum(&self, mut parts: Vec<GradientsParams>) -> GradientsParams {
        let (got, expected) = (parts.len(), self.copies.len());
        assert!(got == expected, "replicas: {got} sets of gradients for {expected} copies");
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let mut known = Known { parts: &parts, found: BTreeSet::new() };
        self.copies[0].visit(&mut known);
        let found = known.found;
        let lines = self.copies.iter().zip(&parts).map(|(copy, part)| {
            let mut line = GradientLine { part, found: &found, pieces: Vec::new() };
            copy.visit(&mut line);
            Tensor::cat(line.pieces, 0)
        });
        let sum = all_reduce(lines.collect(), Reduction::Sum).swap_remove(0);
        let sums = GradientsParams::new();
        let mut cut = CutGradients { line: sum, first: 0, found: &found, gradients: sums };
        self.copies[0].visit(&mut cut);
        cut.gradients
    }

    /// Every copy takes the weights of `module`, on the first device, which replaces the first copy.
    pub fn follow(&mut self, module: M) {
        if self.copies.len() > 1 {
            let mut line = WeightLine::default();
            module.visit(&mut line);
            let weights = Tensor::cat(line.pieces, 0);
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
            let follow =
                |(copy, line): (M, Tensor<1>)| copy.map(&mut CutWeights { line, first: 0 });
            self.copies = copies.map(follow).collect();
        }
        self.copies[0] = module;
    }
}

/// `module`, then a copy on each further device.
fn copies<M: Module>(module: &M, devices: &[Device]) -> Vec<M> {
    let further = devices[1..].iter().map(|device| {
        let copy = module.clone().fork(device);
        // Burn's own transfer is not ordered with the receiver's computations (`transfer.rs`).
        let _ = device.sync();
        copy
    });
    std::iter::once(module.clone()).chain(further).collect()
}

/// Which parameters have a gradient somewhere.
struct Known<'a> {
    parts: &'a [GradientsParams],
    found: BTreeSet<ParamId>,
}

impl ModuleVisitor for Known<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if self.parts.iter().any(|part| part.get::<D>(parameter.id).is_some()) {
            self.found.insert(parameter.id);
        }
    }
}

/// The gradients of a copy, one after the other.
struct GradientLine<'a> {
    part: &'a GradientsParams,
    found: &'a BTreeSet<ParamId>,
    pieces: Vec<Tensor<1>>,
}

impl ModuleVisitor for GradientLine<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if self.found.contains(&parameter.id) {
            let gradient = self.part.get::<D>(parameter.id);
            let gradient = gradient.unwrap_or_else(|| parameter.val().inner().zeros_like());
            self.pieces.push(in_line(gradient));
        }
    }
}

/// The way back.
struct CutGradients<'a> {
    line: Tensor<1>,
    first: usize,
    found: &'a BTreeSet<ParamId>,
    gradients: GradientsParams,
}

impl ModuleVisitor for CutGradients<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if self.found.contains(&parameter.id) {
            let dims = parameter.val().dims();
            let gradient = next_piece(&self.line, &mut self.first, dims);
            self.gradients.register(parameter.id, gradient);
        }
    }
}

/// The weights of a copy, one after the other, off the tape.
#[derive(Default)]
struct WeightLine {
    pieces: Vec<Tensor<1>>,
}

impl ModuleVisitor for WeightLine {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        self.pieces.push(in_line(parameter.val().inner()));
    }
}

/// The way back.
struct CutWeights {
    line: Tensor<1>,
    first: usize,
}

impl ModuleMapper for CutWeights {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, old, mapper) = parameter.consume();
        let mut weights: Tensor<D> = next_piece(&self.line, &mut self.first, old.dims());
        if old.is_autodiff() {
            weights = weights.autodiff().set_require_grad(old.is_require_grad());
        }
        Param::from_mapped_value(id, weights, mapper)
    }
}

fn in_line<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let values = tensor.shape().num_elements();
    tensor.reshape([values])
}

fn next_piece<const D: usize>(line: &Tensor<1>, first: &mut usize, dims: [usize; D]) -> Tensor<D> {
    let values: usize = dims.iter().product();
    let piece = line.clone().narrow(0, *first, values).reshape(dims);
    *first += values;
    piece
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::*;
    use crate::testing::{assert_close, to_f64};

    fn loss(layer: &Linear, seed: f32) -> Tensor<1> {
        let x = Tensor::<2>::from_floats([[seed, 2.0, -1.0]], &layer.weight.val().device());
        (layer.forward(x.clone()) * layer.forward(x)).sum()
    }

    /// Two copies on one device, as if it were two.
    fn two(layer: &Linear, device: &Device) -> Replicas<Linear> {
        Replicas::one_each(layer, &[device.clone(), device.clone()])
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
        for copy in replicas.copies() {
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
