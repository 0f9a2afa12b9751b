//! Networks on a mesh equal the whole ones: loss, gradients of every weight and of the images. The shards
//! are virtual, all on the CPU; the last tests take GPUs where there are any.
mod spline_head;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};
use std::collections::BTreeMap;

use super::transmorph::Decoder;
use super::*;
use crate::ops::Precision;
use ffdp_burn::losses::{Lncc, SimilarityLoss, diffusion};
use ffdp_burn::ops::{LnccOptions, compose, warp};
use ffdp_kit::testing::{gpu_devices, max_relative_error, several_gpus, tensor, to_f64, uniform};
use ffdp_parallel::{Axis, DeviceMesh, DisplacementBounds, Layout, Sharded, replicas::Replicas};

/// In f32: sums in another order, through some 40 layers, of which the normalisations divide
/// by deviations; and positions that are rounded relative to another origin. Relative to the largest entry of
/// a gradient, but of gradients that cancel (of a bias before a normalisation) to a share of the largest of
/// all ([`CANCELLED`]).
const TOLERANCE: f64 = 1e-4;

/// The same in f64, where 1e-13 is seen.
const EXACT: f64 = 1e-11;

/// The part of the largest gradient of all below which one is nothing but rounding.
const CANCELLED: f64 = 1e-3;

/// What a training step computes.
struct Step {
    loss: f64,
    /// By name, then those of the images.
    gradients: BTreeMap<String, Vec<f64>>,
}

impl Step {
    /// Asserts that it is `other`, and prints how near.
    fn assert_is(&self, other: &Self, case: &str, tolerance: f64) {
        let (error, name) = self.error(other);
        println!("{case}: {error:.1e} ({name})");
        assert!(
            error <= tolerance,
            "{case}: {name} differs by {error:.1e}, more than {tolerance:.1e}"
        );
    }

    /// How far it is from `other` where it is farthest, and where that is: of the loss relative to it, of a
    /// gradient to its largest entry.
    fn error<'a>(&self, other: &'a Self) -> (f64, &'a str) {
        let largest = |values: &[f64]| values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let all = other.gradients.values().map(|g| largest(g)).fold(0.0, f64::max);
        let mut worst = ((self.loss - other.loss).abs() / other.loss.abs(), "loss");
        assert!(self.gradients.keys().eq(other.gradients.keys()), "other parameters");
        for (name, expected) in &other.gradients {
            let scale = largest(expected) / largest(expected).max(CANCELLED * all);
            let error = scale * max_relative_error(&self.gradients[name], expected);
            if error >= worst.0 {
                worst = (error, name);
            }
        }
        worst
    }
}

/// Gradients of parameters by the order in which they are visited.
struct Named<'a> {
    gradients: &'a GradientsParams,
    path: Vec<String>,
    found: BTreeMap<String, Vec<f64>>,
}

impl ModuleVisitor for Named<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(parameter.id) {
            self.found.insert(self.path.join("."), to_f64(gradient));
        }
    }

    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}

fn named(network: &Network, gradients: &GradientsParams) -> BTreeMap<String, Vec<f64>> {
    let mut named = Named { gradients, path: Vec::new(), found: BTreeMap::new() };
    network.visit(&mut named);
    named.found
}

/// Of the network's type.
fn image(network: &Network, [d, h, w]: [usize; 3], seed: u64, device: &Device) -> Tensor<5> {
    let dtype = match &network.deformation {
        Deformation::TransMorph(network) => network.head.conv.weight.val().dtype(),
        Deformation::VoxelMorph(network) => network.head.weight.val().dtype(),
    };
    let values = uniform(d * h * w, 0.0, 1.0, seed);
    tensor(&values, [1, 1, d, h, w], device, dtype).require_grad()
}

/// All parameters in f64.
struct Wide;

impl ModuleMapper for Wide {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        parameter.map(|values| values.inner().cast(DType::F64).autodiff().require_grad())
    }
}

/// A network whose displacements scatter by a tenth of a voxel around a bias between the voxels: off the
/// lattice, where the gradient of the interpolation jumps. (With four times the scatter one voxel of a run lay
/// on it, and that to the moving image differed by 2e-3 there.)
fn network(config: impl Into<NetworkConfig>, device: &Device) -> Network {
    scattered(config, 7e2, device)
}

/// A network whose head has weights so many times as large as at the start of a training, and that bias.
fn scattered(config: impl Into<NetworkConfig>, times: f64, device: &Device) -> Network {
    let mut network = config.into().init(device);
    let head = match &mut network.deformation {
        Deformation::TransMorph(network) => &mut network.head.conv,
        Deformation::VoxelMorph(network) => &mut network.head,
    };
    let larger = |weight: Tensor<5>| (weight.inner() * times).autodiff().require_grad();
    head.weight = head.weight.clone().map(larger);
    let bias = Tensor::<1>::from_floats([0.4, -0.3, 0.35], device).require_grad();
    head.bias = head.bias.take().map(|old| old.map(|_| bias));
    if let Some(alignment) = &mut network.alignment {
        let larger = |weight: Tensor<2>| (weight.inner() * 1e2).autodiff().require_grad();
        alignment.weight = alignment.weight.clone().map(larger);
        let row = [3e-3, -2e-3, 4e-3, 3e-2];
        let bias = Tensor::<1>::from_floats([row; 3].as_flattened(), device).require_grad();
        alignment.bias = alignment.bias.clone().map(|_| bias);
    }
    network
}

fn similarity() -> Lncc {
    Lncc(LnccOptions { window: 5, ..LnccOptions::default() })
}

const SMOOTHNESS: f64 = 0.5;

fn whole(network: &Network, size: [usize; 3], device: &Device) -> Step {
    let [moving, fixed] = [1, 2].map(|seed| image(network, size, seed, device));
    let [u, deformation] = match &network.alignment {
        None => {
            let u = network.forward(moving.clone(), fixed.clone());
            [u.clone(), u]
        }
        Some(alignment) => {
            let affine = alignment.forward(moving.clone(), fixed.clone());
            let aligned = warp(moving.clone(), affine.clone());
            let deformation = network.deformation.forward(aligned, fixed.clone());
            [compose(affine, deformation.clone()), deformation]
        }
    };
    let moved = warp(moving.clone(), u);
    let loss =
        similarity().loss(moved, fixed.clone()) + diffusion(deformation).mul_scalar(SMOOTHNESS);
    let mut gradients = loss.backward();
    let of_images = [moving, fixed].map(|image| to_f64(image.grad(&gradients).expect("tracked")));
    let of_weights = GradientsParams::from_module(&mut gradients, network);
    step(loss, named(network, &of_weights), of_images)
}

fn in_parts(network: &Network, layout: &Layout, mesh: &DeviceMesh) -> Step {
    let device = mesh.device(0);
    let networks = Replicas::new(network, mesh);
    let leaves = [1, 2].map(|seed| image(network, layout.size(), seed, device));
    let [moving, fixed] = leaves.each_ref().map(|x| Sharded::from_tensor(x.clone(), layout, mesh));
    let copies: Vec<&Network> = (0..layout.count()).map(|k| networks.at(k)).collect();
    let [u, deformation] =
        Network::forward_sharded(&copies, &moving, &fixed).expect("the device hands back bounds");
    let bounds = DisplacementBounds::read(&u).expect("the device hands back bounds");
    let moved = ffdp_parallel::ops::warp(&moving, &u, &bounds);
    let loss = ffdp_parallel::ops::loss(&similarity(), &moved, &fixed)
        + ffdp_parallel::ops::diffusion(&deformation).mul_scalar(SMOOTHNESS);
    let mut gradients = loss.backward();
    let of_images = leaves.map(|image| to_f64(image.grad_remove(&mut gradients).expect("tracked")));
    let of_weights = networks.gradients(gradients);
    step(loss, named(network, &of_weights), of_images)
}

fn step(
    loss: Tensor<1>,
    mut gradients: BTreeMap<String, Vec<f64>>,
    [moving, fixed]: [Vec<f64>; 2],
) -> Step {
    gradients.insert("moving".into(), moving);
    gradients.insert("fixed".into(), fixed);
    Step { loss: to_f64(loss.inner())[0], gradients }
}

fn layouts(size: [usize; 3], axis: Axis) -> impl Iterator<Item = Layout> {
    (1..=4).map(move |shards| Layout::balanced(size, axis, shards).expect("many planes"))
}

/// In f64, where no value lies so near the bend of an activation that the order of a sum decides its side.
fn assert_shared(case: &str, network: &Network, size: [usize; 3], axis: Axis, device: &Device) {
    let network = &network.clone().map(&mut Wide);
    let expected = whole(network, size, device);
    for layout in layouts(size, axis) {
        let mesh = DeviceMesh::new(std::slice::from_ref(device), layout.count()).expect("a device");
        let case = format!("{case}, {size:?} in {} along {axis:?}", layout.count());
        let parts = in_parts(network, &layout, &mesh);
        parts.assert_is(&expected, &case, EXACT);
        if layout.count() == 1 {
            assert_eq!(
                parts.loss.to_bits(),
                expected.loss.to_bits(),
                "one shard: the serial network"
            );
        }
    }
}

#[test]
fn voxelmorph_on_a_mesh_is_the_whole_one() {
    let device = Device::flex().autodiff();
    let config = VoxelMorphConfig::new().with_encoder([3; 4]).with_decoder([4; 4]);
    let config = config.with_last([4, 3, 3]).with_seed(3);
    let cases = [([32, 16, 16], Axis::Z), ([16, 19, 40], Axis::X)];
    for (size, axis) in cases {
        assert_shared("voxelmorph", &network(config.clone(), &device), size, axis, &device);
    }
    let integrated = network(config.with_integration_steps(Some(3)), &device);
    assert_shared("diffeomorphic", &integrated, [16, 36, 16], Axis::Y, &device);
}

#[test]
fn a_network_that_aligns_first_on_a_mesh_is_the_whole_one() {
    let device = Device::flex().autodiff();
    let config = VoxelMorphConfig::new().with_encoder([3; 4]).with_decoder([4; 4]);
    let config = NetworkConfig::from(config.with_last([4, 3, 3]).with_seed(3));
    let config = config.with_alignment(Some(AffineNetConfig::new().with_channels([4; 4])));
    for (size, axis) in [([32, 16, 20], Axis::Z), ([16, 19, 40], Axis::X)] {
        assert_shared("aligned", &network(config.clone(), &device), size, axis, &device);
    }
}

#[test]
fn transmorph_tiny_on_a_mesh_is_the_whole_one() {
    let device = Device::flex().autodiff();
    let cases = [
        (Resolution::Half, [64, 32, 32], Axis::Z),
        (Resolution::Full, [64, 32, 32], Axis::Z),
        // Padded, with windows that are padded and cut by the shards.
        (Resolution::Half, [20, 30, 90], Axis::X),
    ];
    for (resolution, size, axis) in cases {
        let config = TransMorphConfig::tiny().with_resolution(resolution).with_drop_path(0.0);
        let network = network(config.for_size(size).with_seed(5), &device);
        assert_shared(&format!("{resolution:?}"), &network, size, axis, &device);
    }
}

#[test]
fn branches_are_dropped_for_all_parts_alike() {
    let device = Device::flex().autodiff();
    let size = [32, 32, 32];
    let config = TransMorphConfig::tiny().with_drop_path(0.9).for_size(size);
    let network = network(config, &device);
    let layout = Layout::balanced(size, Axis::Y, 2).expect("many planes");
    let mesh = DeviceMesh::new(std::slice::from_ref(&device), 2).expect("a device");
    let mut losses = Vec::new();
    for seed in [1, 2] {
        device.seed(seed);
        let expected = whole(&network, size, &device);
        device.seed(seed);
        let parts = in_parts(&network, &layout, &mesh);
        assert!((parts.loss - expected.loss).abs() <= TOLERANCE * expected.loss);
        losses.push(expected.loss);
    }
    assert_ne!(losses[0], losses[1], "the draws matter");
}

#[test]
fn a_gpu_holds_a_network_in_parts() {
    for (name, gpu) in gpu_devices() {
        parts_on_gpus_are_the_whole(&[gpu.autodiff()], [16, 48, 16], &[2], name);
    }
}

#[test]
fn several_gpus_share_a_network() {
    let gpus: Vec<Device> = several_gpus().into_iter().map(Device::autodiff).collect();
    if !gpus.is_empty() {
        let shards = [gpus.len(), 2 * gpus.len()];
        parts_on_gpus_are_the_whole(&gpus, [64, 96, 64], &shards, &format!("{} GPUs", gpus.len()));
    }
}

/// At the size that docs/performance.md has times of.
#[test]
#[ignore = "takes 60 GB of a GPU"]
fn gpus_hold_a_large_network_in_parts() {
    let mut teams: Vec<Vec<Device>> = gpu_devices().into_iter().map(|(_, gpu)| vec![gpu]).collect();
    teams.extend(Some(several_gpus()).filter(|gpus| !gpus.is_empty()));
    let size = [320, 384, 448];
    for team in teams {
        let gpus: Vec<Device> = team.into_iter().map(Device::autodiff).collect();
        for resolution in [Resolution::Half, Resolution::Full] {
            let small = TransMorphConfig::new(Variant::Small).with_resolution(resolution);
            // Scattered by some hundredths: of 165 million components, none comes near the lattice.
            let network = scattered(single(small, size), 1e2, &gpus[0]);
            let on = format!("{} GPUs, Small, {resolution:?}", gpus.len());
            let fewest = gpus.len().max(2);
            assert_parts_are_the_whole(network, &gpus, size, &[fewest, 2 * fewest], &on);
        }
    }
}

/// TransMorph without the bends of its decoder's activations, of which a value within rounding of zero takes one
/// side or the other: a single one moves gradients by 1e-3 and more (4e-3 at 64x96x64 between parts and whole, on the
/// CPU in f32; without bends 2e-6).
fn without_bends(network: &mut TransMorph) {
    let Decoder { c1, c2, up0, up1, up2, up3, up4 } = &mut network.decoder;
    let blocks = [up0, up1, up2, up3].into_iter().chain(up4.as_mut());
    let units = blocks.flat_map(|block| [&mut block.conv1, &mut block.conv2]);
    units.chain([c1, c2]).for_each(|unit| unit.norm.slope = 1.0);
}

/// With products in f32: where TF32 rounds, a difference in the last bit of a factor may become one of 1e-3.
fn parts_on_gpus_are_the_whole(gpus: &[Device], size: [usize; 3], shards: &[usize], on: &str) {
    let small = VoxelMorphConfig::new().with_encoder([3; 4]).with_decoder([4; 4]);
    let small = small.with_last([4, 3, 3]).with_precision(Precision::Single);
    assert_parts_are_the_whole(network(small, &gpus[0]), gpus, size, shards, on);
    let tiny = single(TransMorphConfig::tiny().with_resolution(Resolution::Full), size);
    assert_parts_are_the_whole(network(tiny, &gpus[0]), gpus, size, shards, on);
}

fn single(config: TransMorphConfig, size: [usize; 3]) -> TransMorphConfig {
    config.for_size(size).with_drop_path(0.0).with_precision(Precision::Single)
}

fn assert_parts_are_the_whole(
    mut network: Network,
    gpus: &[Device],
    size: [usize; 3],
    shards: &[usize],
    on: &str,
) {
    if let Deformation::TransMorph(network) = &mut network.deformation {
        without_bends(network);
    }
    let expected = whole(&network, size, &gpus[0]);
    for &shards in shards {
        let layout = Layout::balanced(size, Axis::Y, shards).expect("many planes");
        let mesh = DeviceMesh::new(gpus, shards).expect("as many shards");
        let parts = in_parts(&network, &layout, &mesh);
        parts.assert_is(&expected, &format!("{shards} shards, {on}"), TOLERANCE);
    }
}
