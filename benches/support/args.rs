//! The command line.

use std::path::PathBuf;

use clap::Parser;

use super::{Backend, Bench, Case, Limits, Variant};

/// Benchmarks the fused operations against Burn's own.
#[derive(Parser, Debug)]
pub struct Args {
    /// Only rows whose "operation variant" contains one of these texts.
    filters: Vec<String>,
    /// Where to run.
    #[arg(long, value_enum, default_value = "cpu")]
    device: Backend,
    /// Which GPU.
    #[arg(long, default_value_t = 0)]
    index: usize,
    /// Edge of the cubic volumes in voxels; may be repeated or a list [CPU: 64,128; GPU:
    /// 128,256,512]
    #[arg(long = "size", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Timed runs a row, at most; slow rows take fewer, but three.
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// Seconds that the runs of a row may take together.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Skip a baseline of which one run would take longer, in seconds, judged by a smaller size.
    #[arg(long, default_value_t = 20.0)]
    patience: f64,
    /// Leave out the operations composed from Burn's own.
    #[arg(long)]
    no_baseline: bool,
    /// Skip a baseline that would take more memory than this, in GB [CPU: 6, GPU: 32]
    #[arg(long)]
    memory_gb: Option<f64>,
    /// Write the table to this file as well.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// The device and the settings of the measurement.
    pub fn bench(&self) -> Result<Bench, String> {
        let device = self.device.device(self.index)?;
        let name = format!("{:?}", self.device).to_lowercase();
        if let Some(size) = self.sizes().into_iter().find(|size| *size == 0) {
            return Err(format!("--size must be positive, got {size}"));
        }
        let limits = Limits {
            runs: self.runs.max(3),
            seconds: self.seconds,
            patience: self.patience,
            memory_gb: self.memory_gb.unwrap_or(if self.on_cpu() { 6.0 } else { 32.0 }),
        };
        Bench::new(name, device, limits)
    }

    fn on_cpu(&self) -> bool {
        self.device == Backend::Cpu
    }

    /// The edges of the volumes.
    pub fn sizes(&self) -> Vec<usize> {
        match (self.sizes.is_empty(), self.on_cpu()) {
            (false, _) => self.sizes.clone(),
            (true, true) => vec![64, 128],
            (true, false) => vec![128, 256, 512],
        }
    }

    /// Whether any row of the case is wanted.
    pub fn wants_case(&self, case: &Case) -> bool {
        case.variants.iter().any(|variant| self.wants(case, variant))
    }

    /// Whether the variant is wanted.
    pub fn wants(&self, case: &Case, variant: &Variant) -> bool {
        let named = format!("{} {}", case.name, variant.name);
        (variant.fused || !self.no_baseline)
            && (self.filters.is_empty() || self.filters.iter().any(|text| named.contains(text)))
    }
}
