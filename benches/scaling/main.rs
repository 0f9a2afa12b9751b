//! Sharded registration: time, memory and exactness of iterations, and a whole registration of a pair
//! that exists on devices only.
//!
//! ```text
//! cargo bench --bench scaling -- iterate --size 64x64x64 --shards 1,2,4           on the CPU
//! cargo bench --bench scaling --features cuda -- --device cuda --gpus 2 iterate --size 700x700x1400 --shards 2
//! cargo bench --bench scaling --features cuda -- --device cuda --gpus 4 iterate --size 400x400x1600 --shards 4 --method gnk
//! cargo bench --bench scaling --features cuda -- --device cuda --gpus 4 iterate --size 700x700x2800 --shards 4 --without-ring
//! cargo bench --bench scaling --features cuda -- --device cuda register --size 1760x1760x1278 --shards 16 --bf16
//! cargo bench --bench scaling --features cuda -- --device cuda slabs --size 1024x1024x1024 --memory-gb 30
//! cargo bench --bench scaling --features cuda -- --device cuda splines --size 512x512x296
//! cargo bench --bench scaling --features cuda -- --device cuda links
//! ```
//! Sizes are x, y, z. The pair is made of a seed, slab by slab (`scene.rs`). Memory is what the pools hold
//! at the end of a phase, of which they give nothing back by themselves; the driver's own figure
//! (`nvidia-smi`) is somewhat higher. `scripts/many-gpus` runs all that is measured on several GPUs.

use std::process::ExitCode;

use burn::tensor::Device;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ffdp::ops::{
    AdamOptions, DeformOptions, LnccFloor, LnccOptions, Measure, MomentStorage, Optimizer,
};
use ffdp::parallel::DeviceMesh;

mod iterate;
mod links;
mod newton;
mod pictures;
mod register;
mod scene;
mod slabs;
mod splines;

/// Times sharded registration.
#[derive(Parser, Debug)]
pub struct Cli {
    /// Where to compute.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    device: Backend,
    /// Number of GPUs.
    #[arg(long, default_value_t = 1)]
    gpus: usize,
    /// Largest single buffer that will be asked for, GB: pools cut all others out of pages of that size.
    #[arg(long)]
    page_gb: Option<f64>,
    #[command(subcommand)]
    what: What,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Times iterations at full size by number of shards, and compares the fields.
    Iterate(iterate::Settings),
    /// Registers the pair from coarse to fine.
    Register(register::Settings),
    /// Registers the pair as `ffdp register --slabs` does: what the device has no room for rests in host memory.
    Slabs(slabs::Settings),
    /// Times free-form deformation by mutual information, and its operations.
    Splines(splines::Settings),
    /// Times transfers of tensors to host memory and between devices.
    Links(links::Settings),
}

/// What both measure.
#[derive(Args, Clone, Debug)]
struct Common {
    /// Size (x, y, z) of the fixed image, as 512x512x512.
    #[arg(long, value_parser = size)]
    size: [usize; 3],
    /// Size (x, y, z) of the moving image [that of the fixed one]
    #[arg(long, value_parser = size)]
    moving: Option<[usize; 3]>,
    /// Store the moments in bf16.
    #[arg(long)]
    bf16: bool,
    /// Longest vector of the known displacement, voxels.
    #[arg(long, default_value_t = 16.0)]
    displacement: f64,
    /// Seed of the pair.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Common {
    fn options(&self) -> DeformOptions {
        let storage = if self.bf16 { MomentStorage::Bf16 } else { MomentStorage::Full };
        // As `ffdp register` has it.
        let lncc = LnccOptions { floor: LnccFloor::Common, ..LnccOptions::default() };
        let options = DeformOptions::greedy(Measure::Lncc(lncc));
        let Optimizer::Adam(adam) = options.optimizer else { unreachable!("greedy takes Adam") };
        let optimizer = Optimizer::Adam(AdamOptions { storage, ..adam });
        DeformOptions { optimizer, ..options }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Backend {
    Cpu,
    Cuda,
    Wgpu,
}

impl Backend {
    fn devices(self, count: usize) -> Result<Vec<Device>, String> {
        let _ = count;
        match self {
            Self::Cpu => Ok(vec![Device::flex()]),
            #[cfg(feature = "cuda")]
            Self::Cuda => Ok((0..count).map(Device::cuda).collect()),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => {
                let device = ffdp_kit::wgpu_device(Default::default());
                device.map(|device| vec![device]).map_err(|none| none.to_string())
            }
            #[allow(unreachable_patterns)]
            missing => Err(format!("this binary was built without {missing:?}")),
        }
    }
}

fn size(text: &str) -> Result<[usize; 3], String> {
    let parts: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    let parts = parts.map_err(|reason| format!("{reason}; a size is written 512x512x512"))?;
    <[usize; 3]>::try_from(parts).map_err(|_| "a size has three extents, as 512x512x512".into())
}

/// GB in use, and held, by the pools of each device; nothing on the CPU.
fn memory(devices: &[Device]) -> String {
    let of = |device: &Device| {
        let usage = device.memory_pool_usage()?;
        let gb = |bytes: u64| bytes as f64 / 1e9;
        Some(format!("{:.1}/{:.1}", gb(usage.bytes_in_use), gb(usage.bytes_reserved)))
    };
    let all: Vec<String> = devices.iter().filter_map(of).collect();
    all.join(" ")
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let run = cli.device.devices(cli.gpus).and_then(|devices| {
        println!("on {devices:?}");
        // Connected GPUs hold the memory of their connections: what is free afterwards can be divided.
        DeviceMesh::new(&devices, devices.len()).map_err(|error| error.to_string())?;
        let fit = match &cli.what {
            // Memory of the host is not divided in advance.
            What::Register(settings) if cli.device != Backend::Cpu => {
                Some(settings.fit(devices.len(), cli.page_gb).map_err(|error| error.to_string())?)
            }
            What::Register(settings) => Some(settings.as_asked()),
            _ => None,
        };
        if let Some(gb) = fit.as_ref().map_or(cli.page_gb, |fit| fit.page_gb) {
            let values = (gb * 1e9 / 4.0) as usize;
            for device in &devices {
                drop(burn::tensor::Tensor::<1>::empty([values], device));
                device.sync().map_err(|reason| reason.to_string())?;
                device.memory_cleanup();
            }
        }
        let done = match &cli.what {
            What::Iterate(settings) => iterate::run(settings, &devices),
            What::Register(settings) => {
                let fit = fit.as_ref().expect("made above");
                register::run(settings, fit, &devices)
            }
            What::Slabs(settings) => slabs::run(settings, &devices),
            What::Splines(settings) => splines::run(settings, &devices),
            What::Links(settings) => links::run(settings, &devices),
        };
        done.map_err(|error| error.to_string())
    });
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
