//! How fast a tensor travels: to where it rests in host memory and back, and between two devices.
//!
//! What a registration with offloaded shards can reach at most; the first rounds pay for the memory.

use std::time::Instant;

use burn::tensor::{Device, Tensor};
use clap::Args;
use ffdp::parallel::{
    Axis, DeviceMesh, Layout, Sharded,
    memory::{ExactMemory, put_away},
};
use ffdp::{Error, Result};

use super::iterate::wait;

#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Sizes of the tensor, MB.
    #[arg(long, value_delimiter = ',', default_value = "16,128,512,1024")]
    mb: Vec<usize>,
    /// Transfers there and back.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
}

pub fn run(settings: &Settings, devices: &[Device]) -> Result<()> {
    let host = Device::flex();
    if devices[0] == host {
        let what = "links are measured between a GPU and the host";
        return Err(Error::invalid(what, &devices[0], "give --device cuda or --device wgpu"));
    }
    println!("GB/s of each round, there / back");
    for &mb in &settings.mb {
        for (name, is_exact) in [("pools", false), ("exact", true)] {
            let exact = is_exact.then(|| ExactMemory::on(&devices[0], 0));
            let rates = travel(mb, settings.rounds, [&devices[0], &host])?;
            println!("{mb:>6} MB  host, {name:<6} {}", rates.join("  "));
            drop(exact);
            devices[0].memory_cleanup();
        }
        if let [one, two, ..] = devices {
            let rates = travel(mb, settings.rounds, [one, two])?;
            println!("{mb:>6} MB  device       {}", rates.join("  "));
        }
    }
    Ok(())
}

/// GB/s of each round between the first place and the second.
fn travel(mb: usize, rounds: usize, [here, there]: [&Device; 2]) -> Result<Vec<String>> {
    let planes = (mb << 20) / (4 << 16);
    let layout = Layout::balanced([planes, 256, 256], Axis::Z, 1)?;
    let on = DeviceMesh::one(here);
    let mut tensor = Tensor::<5>::ones([1, 1, planes, 256, 256], here);
    wait(&on)?;
    let gb = (mb << 20) as f64 / 1e9;
    let mut rates = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let clock = Instant::now();
        let resting = put_away(tensor, there);
        wait(&DeviceMesh::one(there))?;
        let away = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        tensor = Sharded::new(vec![resting], layout.clone()).window(0..planes, here);
        wait(&on)?;
        rates.push(format!("{:.1}/{:.1}", gb / away, gb / clock.elapsed().as_secs_f64()));
    }
    let ends = [tensor.clone().min(), tensor.max()].map(Tensor::into_scalar::<f32>);
    assert_eq!(ends, [1.0; 2], "every one came back");
    Ok(rates)
}
