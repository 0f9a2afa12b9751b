//! A registration in shards: the images are cut along one axis, and each device holds its shards. Here three shards lie
//! on one device, as they do where a level does not fit in one piece; the result is that of one shard.
//!
//! `cargo run --example sharded`

use burn::tensor::Device;
use ffdp::prelude::*;
use ffdp::synth::{PhantomSettings, pair};

/// Registers two synthetic brains in so many shards. `[Device::cuda(0), Device::cuda(1)]` in place of one device shares
/// them among GPUs.
///
/// # Errors
/// Those of a registration.
pub fn run(shards: usize) -> Result<Registration> {
    let pair = pair(&PhantomSettings::with_size([40; 3]), 3)?;
    let levels = [(2.0, 30), (1.0, 15)]
        .map(|(shrink, iterations)| LevelSettings { shrink, iterations })
        .to_vec();
    let greedy = GreedySettings { levels, ..GreedySettings::default() };
    let settings = Settings { stages: vec![Stage::Greedy(greedy)], ..Settings::default() };
    let mesh = DeviceMesh::new(&[Device::flex()], shards)?;
    Register::new(&pair.fixed.image, &pair.moving.image).settings(&settings).on(&mesh).run()
}

#[allow(dead_code)] // A test includes this file.
fn main() -> Result<()> {
    for shards in [1, 3] {
        let found = run(shards)?;
        println!("{shards} shards: loss {:.6} -> {:.6}", found.loss_before, found.loss_after);
    }
    Ok(())
}
