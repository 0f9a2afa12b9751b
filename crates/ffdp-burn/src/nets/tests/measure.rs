//! Time and memory of training steps on several GPUs, by hand:
//! ```text
//! FFDP_TEST_DEVICES=cuda:0,cuda:1 FFDP_STEPS="volume voxelmorph 320x384x448 3 2; pairs tiny 160x192x224 9 1" \
//!     ffdp_burn training_steps --ignored
//! ```
//! Images are noise, so that nothing is learnt; the work does not depend on them.

use std::time::Instant;

use burn::optim::{AdamConfig, GradientsAccumulator};

use super::*;

/// What is asked for: `pairs` or `volume`, the network, the size as DxHxW, how many steps, on how many GPUs.
fn request(text: &str) -> (String, NetworkConfig, [usize; 3], [usize; 2]) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [share, network, size, steps, gpus] = words[..] else { panic!("five words, got {text}") };
    let size: Vec<usize> = size.split('x').map(|n| n.parse().expect("a number")).collect();
    let size = [size[0], size[1], size[2]];
    let transmorph = |config: TransMorphConfig, resolution| {
        config.with_resolution(resolution).with_drop_path(0.0).for_size(size).into()
    };
    let config = match network {
        "voxelmorph" => VoxelMorphConfig::new().into(),
        "tiny" => transmorph(TransMorphConfig::tiny(), Resolution::Full),
        "small" => transmorph(TransMorphConfig::small(), Resolution::Full),
        "small-half" => transmorph(TransMorphConfig::small(), Resolution::Half),
        "base" => transmorph(TransMorphConfig::base(), Resolution::Full),
        other => panic!("no network {other}"),
    };
    (share.into(), config, size, [steps, gpus].map(|n| n.parse().expect("a number")))
}

fn noise([d, h, w]: [usize; 3], device: &Device) -> Tensor<5> {
    let even = burn::tensor::Distribution::Uniform(0.0, 1.0);
    Tensor::random([1, 1, d, h, w], even, device)
}

fn loss_of_pair(network: &Network, size: [usize; 3], device: &Device) -> Tensor<1> {
    let [moving, fixed] = [noise(size, device), noise(size, device)];
    let u = network.forward(moving.clone(), fixed.clone());
    let moved = warp(moving, u.clone());
    Lncc::transmorph().loss(moved, fixed) + diffusion(u)
}

fn loss_of_parts(networks: &Replicas<Network>, layout: &Layout, mesh: &Mesh) -> Tensor<1> {
    let image = || {
        let part = |k: usize| noise(layout.shard_size(k), mesh.device(k));
        Sharded::new((0..layout.count()).map(part).collect(), layout.clone())
    };
    let (moving, fixed) = (image(), image());
    let copies: Vec<&Network> = (0..layout.count()).map(|k| networks.at(k)).collect();
    let u = Network::forward_sharded(&copies, &moving, &fixed).expect("nothing aligns first");
    let inputs = RingInputs { moving: &moving, affine: None, displacement: Some(&u) };
    let options = GridSampleOptions::default();
    let moved = ring_sample(&inputs, (layout, mesh), &options).expect("the GPUs hand back bounds");
    parallel::loss(&Lncc::transmorph(), &moved, &fixed) + parallel::diffusion(&u)
}

#[test]
#[ignore = "measures, on GPUs"]
fn training_steps() {
    let gpus: Vec<Device> = several_gpus().into_iter().map(Device::autodiff).collect();
    for text in std::env::var("FFDP_STEPS").unwrap_or_default().split(';') {
        measure(text, &gpus);
        for gpu in &gpus {
            gpu.memory_cleanup();
            gpu.sync().expect("the steps are over");
        }
    }
}

fn measure(text: &str, gpus: &[Device]) {
    let (share, config, size, [steps, count]) = request(text);
    let gpus = &gpus[..count];
    let mut network = config.init(&gpus[0]);
    let mesh = Mesh::new(gpus, gpus.len()).expect("GPUs");
    let longest = if size[2] >= size[1] && size[2] >= size[0] { Axis::X } else { Axis::Z };
    let layout = mesh.layout(size, longest).expect("planes");
    let mut networks = Replicas::new(&network, &mesh);
    let mut adam = AdamConfig::new().with_amsgrad(true).init();
    for step in 0..steps {
        let started = Instant::now();
        let (losses, gradients) = match share.as_str() {
            "volume" => {
                let loss = loss_of_parts(&networks, &layout, &mesh);
                (vec![loss.clone().inner()], networks.gradients(loss.backward()))
            }
            _ => {
                let of = |(copy, gpu): (&Network, &Device)| {
                    let loss = loss_of_pair(copy, size, gpu);
                    let value = loss.clone().inner();
                    let mut sum: GradientsAccumulator<Network> = GradientsAccumulator::new();
                    sum.accumulate(copy, GradientsParams::from_grads(loss.backward(), copy));
                    (value, sum.grads())
                };
                let (losses, parts) = networks.copies().iter().zip(gpus).map(of).unzip();
                (losses, networks.sum(parts))
            }
        };
        network = adam.step(1e-4, network, gradients);
        networks.follow(network.clone());
        let losses: Vec<f32> = losses.into_iter().map(|loss| loss.into_scalar::<f32>()).collect();
        gpus.iter().for_each(|gpu| gpu.sync().expect("a step"));
        let seconds = started.elapsed().as_secs_f64();
        let memory = gpus.iter().map(|gpu| {
            let usage = gpu.memory_pool_usage();
            usage.map_or(f64::NAN, |usage| usage.bytes_reserved as f64 / 1e9)
        });
        let memory: Vec<f64> = memory.collect();
        println!("{text} step {step}: {seconds:.3} s, loss {losses:?}, reserved GB {memory:.2?}");
    }
}
