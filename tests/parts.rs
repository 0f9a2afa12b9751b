//! A network on a volume in parts holds no more than on the whole, of which each device then has its part. The only
//! test of its process: it counts what the process allocates.

use burn::tensor::{Device, Distribution, Tensor};
use ffdp::nets::{Network, NetworkConfig, Resolution, TransMorphConfig};
use ffdp::parallel::{Axis, DeviceMesh, Layout, Sharded};

#[path = "../benches/support/memory.rs"]
mod memory;

use memory::{Counting, peak_of};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIZE: [usize; 3] = [64; 3];

/// The most that a forward and a backward pass hold, in bytes.
fn held(network: &Network, images: &[Tensor<5>; 2], shards: usize) -> u64 {
    let device = images[0].device();
    let layout = Layout::balanced(SIZE, Axis::Z, shards).expect("many planes");
    let mesh = DeviceMesh::new(std::slice::from_ref(&device), shards).expect("as many places");
    peak_of(&device, || {
        let [moving, fixed] =
            images.each_ref().map(|image| Sharded::from_tensor(image.clone(), &layout, &mesh));
        let [displacement, _] =
            Network::forward_sharded(&vec![network; shards], &moving, &fixed).expect("it computes");
        let squares = displacement.shards().iter().map(|u| u.clone().square().sum());
        let gradients = squares.reduce(Tensor::add).expect("there are shards").backward();
        drop(gradients);
    })
}

#[test]
fn a_network_in_parts_holds_no_more_than_the_whole() {
    let device = Device::flex().autodiff();
    let tiny = TransMorphConfig::tiny().with_resolution(Resolution::Full).for_size(SIZE);
    let network = NetworkConfig::from(tiny).init(&device);
    let [d, h, w] = SIZE;
    let noise = || Tensor::random([1, 1, d, h, w], Distribution::Uniform(0.0, 1.0), &device);
    let images = [noise(), noise()];
    // What is made once.
    held(&network, &images, 1);
    let [whole, two, four] = [1, 2, 4].map(|shards| held(&network, &images, shards));
    println!(
        "MB: {}, in two parts {}, in four {}",
        whole / 1_000_000,
        two / 1_000_000,
        four / 1_000_000
    );
    // One volume of the decoder's 16 channels that outlived its use would be 17 MB.
    assert!(two <= whole && four <= whole, "{whole} bytes, in two parts {two}, in four {four}");
}
