//! A training step of TransMorph, as a whole and layer by layer.
//!
//! ```text
//! cargo bench --bench transmorph_step                                       CPU, Tiny at 64^3
//! cargo bench --bench transmorph_step --features cuda -- --device cuda      160x192x224
//! cargo bench --bench transmorph_step --features cuda -- --device cuda base --layers
//! ```
//! A step is forward, backward and Adam (amsgrad) at batch 1, on random images: the median of
//! several after warm-up, the device synchronised inside the timed region. `in a row` is a step of as many
//! that nothing waits between, as a training takes them, and `host` what the calling thread spends on one of
//! those. `first s` is the first step, with everything that is compiled and tuned in it. `reserved GB` is what
//! the pools of the device hold after the steps, weights and moments included. `--layers` adds the time of
//! every layer of the network, alone: forward and backward, times its number in the network, and of its first
//! run (`first s`).
//!
//! `--gpus N` times the steps of `ffdp train` on N GPUs instead, with as many pairs a step (or one, with
//! `--share volume`). `--parts K` cuts the volume into more parts than there are GPUs.
//!
//! The same in PyTorch: `benches/peers/torch_transmorph.py`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use ffdp_train::team::Share;
use serde_json::json;

#[path = "support/backend.rs"]
mod backend;
mod step;

use backend::Backend;
use step::{CASES, Problem};

/// Benchmarks training steps of TransMorph.
#[derive(Parser, Debug)]
pub struct Args {
    /// Only cases whose name contains this text.
    filter: Option<String>,
    /// Where to run.
    #[arg(long, value_enum, default_value = "cpu")]
    device: Backend,
    /// Which GPU.
    #[arg(long, default_value_t = 0)]
    index: usize,
    /// Steps that so many GPUs share, from `--index` on
    #[arg(long)]
    gpus: Option<usize>,
    /// Parts of a shared volume, each GPU's next to one another [one a GPU]
    #[arg(long, requires = "gpus")]
    parts: Option<usize>,
    /// What they share
    #[arg(long, value_enum, default_value = "pairs")]
    share: ShareArg,
    /// Extents of the images, D,H,W or one edge [CPU: 64,64,64; GPU: 160,192,224]
    #[arg(long, value_delimiter = ',')]
    size: Vec<usize>,
    /// Timed steps; with 0, only the layers.
    #[arg(long, default_value_t = 10)]
    steps: usize,
    /// First compare the fused layers with the CPU, values and gradients.
    #[arg(long)]
    check: bool,
    /// Time the layers too.
    #[arg(long)]
    layers: bool,
    /// Write the tables to this file as well.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

/// `--share`
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum ShareArg {
    /// Each has a pair of its own.
    Pairs,
    /// Each has a part of the pair.
    Volume,
}

impl Args {
    fn size(&self) -> [usize; 3] {
        match (self.size.as_slice(), self.device) {
            (&[d, h, w], _) => [d, h, w],
            (&[edge], _) => [edge; 3],
            (_, Backend::Cpu) => [64; 3],
            _ => [160, 192, 224],
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let [d, h, w] = args.size();
    if d * h * w == 0 {
        return Err(format!("--size must be positive, got {d},{h},{w}"));
    }
    if args.check {
        step::check(&args.device.device(args.index)?);
    }
    if let Some(gpus) = args.gpus {
        return shared(args, [d, h, w], gpus);
    }
    let problem = Problem::new([d, h, w], args.device.device(args.index)?);
    println!("{d}x{h}x{w} on {:?}", args.device);
    let default = if args.device == Backend::Cpu { "tiny" } else { "" };
    let filter = args.filter.as_deref().unwrap_or(default);
    let (mut steps, mut layers) = (Vec::new(), Vec::new());
    step::print_header();
    for case in CASES.iter().filter(|case| args.steps > 0 && case.name.contains(filter)) {
        let figures = problem.measure(case, args.steps);
        println!("{:<34} {figures}", case.name);
        steps.push(json!({ "case": case.name, "figures": figures }));
    }
    if args.layers {
        for network in step::networks(filter) {
            layers.push(json!({ "network": network.name, "rows": problem.layers(network) }));
        }
        layers.push(json!({ "network": "losses", "rows": problem.losses() }));
        layers.push(json!({ "network": "convolutions", "rows": problem.convolutions() }));
        layers.push(json!({ "network": "linear layers", "rows": problem.linear_layers() }));
    }
    write(args, json!({ "steps": steps, "layers": layers }))
}

/// The steps of `ffdp train` on several GPUs.
fn shared(args: &Args, size: [usize; 3], gpus: usize) -> Result<(), String> {
    if gpus == 0 {
        return Err("--gpus must be at least 1, got 0".into());
    }
    let share = match args.share {
        ShareArg::Pairs => Share::Pairs,
        ShareArg::Volume => Share::Volume,
    };
    let parts = args.parts.unwrap_or(gpus);
    if parts < gpus || (share == Share::Pairs && parts > gpus) {
        return Err(format!(
            "--parts must be --gpus {gpus}, or more with --share volume, got {parts}"
        ));
    }
    let place = |part| args.device.device(args.index + part * gpus / parts);
    let devices = (0..parts).map(place).collect::<Result<Vec<_>, _>>()?;
    println!("{size:?} in {parts} parts on {gpus} of {:?}, {share:?} shared", args.device);
    println!("{:<34} {:>9} {:>9} reserved GB", "case", "s/step", "s/pair");
    let filter = args.filter.as_deref().unwrap_or("tiny");
    let mut rows = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(filter)) {
        let figures = step::measure_shared(case, size, &devices, share, args.steps)?;
        let gb: Vec<String> =
            figures.reserved_gb.iter().flatten().map(|gb| format!("{gb:.2}")).collect();
        println!(
            "{:<34} {:>9.4} {:>9.4} {}",
            case.name,
            figures.step_s,
            figures.pair_s,
            gb.join(" ")
        );
        rows.push(json!({ "case": case.name, "figures": figures }));
    }
    let share = format!("{share:?}").to_lowercase();
    write(args, json!({ "gpus": gpus, "parts": parts, "share": share, "steps": rows }))
}

fn write(args: &Args, figures: serde_json::Value) -> Result<(), String> {
    let Some(path) = &args.json else { return Ok(()) };
    let document = json!({
        "bench": "transmorph_step",
        "version": env!("CARGO_PKG_VERSION"),
        "device": format!("{:?}", args.device).to_lowercase(),
        "size": args.size(),
        "figures": figures,
    });
    let text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
