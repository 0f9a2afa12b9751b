//! Timing one variant of one operation.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use serde::Serialize;

use super::memory::peak_of;
use super::{Case, Pass, Variant, copy};

/// A device and how long to measure on it.
pub struct Bench {
    /// Name of the device.
    pub name: String,
    /// Bandwidth of a copy on it, GB/s.
    pub copy: f64,
    device: Device,
    limits: Limits,
}

/// How long to measure, and what to leave out.
pub struct Limits {
    /// Timed runs of a row, at most.
    pub runs: usize,
    /// Seconds that they may take together.
    pub seconds: f64,
    /// Seconds that one run of a baseline may take.
    pub patience: f64,
    /// Memory that a baseline may take, GB.
    pub memory_gb: f64,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The operation.
    pub op: &'static str,
    /// Ours, or one of Burn's.
    pub variant: &'static str,
    /// Edge of the volume in voxels.
    pub size: usize,
    /// `forward` or `forward + backward`.
    pub pass: &'static str,
    /// What was measured; none where the row was skipped or failed, for the reason in `note`.
    pub figures: Option<Figures>,
    /// Why there are no figures.
    pub note: Option<String>,
}

/// The figures of one line.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Median, milliseconds.
    pub ms: f64,
    /// Fastest run, milliseconds.
    pub fastest_ms: f64,
    /// Runs behind the median.
    pub runs: usize,
    /// The fewest bytes a voxel that must be moved.
    pub bytes_per_voxel: f64,
    /// Those bytes over the median, GB/s.
    pub gb_per_s: f64,
    /// That over the bandwidth of a copy.
    pub of_copy: f64,
    /// Memory beyond the inputs at the peak, MB (1e6 bytes).
    pub extra_mb: f64,
}

impl Bench {
    /// Measures the bandwidth of a copy.
    pub fn new(name: String, device: Device, limits: Limits) -> Result<Self, String> {
        let copy = if name == "cpu" { copy::cpu() } else { copy::gpu(&device)? };
        Ok(Self { name, copy, device, limits })
    }

    /// Both passes of a variant at one size; `before` are the rows of smaller sizes.
    pub fn rows(&self, case: &Case, variant: &Variant, size: usize, before: &[Row]) -> Vec<Row> {
        let name = |pass| match pass {
            Pass::Forward => "forward",
            Pass::Both => "forward + backward",
        };
        case.passes()
            .iter()
            .zip(case.floor)
            .map(|(&pass, floor)| {
                let row = Row {
                    op: case.name,
                    variant: variant.name,
                    size,
                    pass: name(pass),
                    figures: None,
                    note: None,
                };
                let measured = match self.reason_to_skip(variant, &row, before) {
                    Some(reason) => Err(reason),
                    None => self.measure(case, variant, size, pass, floor),
                };
                match measured {
                    Ok(figures) => Row { figures: Some(figures), ..row },
                    Err(note) => Row { note: Some(note), ..row },
                }
            })
            .collect()
    }

    /// Why a baseline is not run.
    fn reason_to_skip(&self, variant: &Variant, row: &Row, before: &[Row]) -> Option<String> {
        if variant.fused {
            return None;
        }
        let needed_gb = variant.stored * (row.size as f64).powi(3) / 1e9;
        if needed_gb > self.limits.memory_gb {
            return Some(format!("skipped: takes about {needed_gb:.0} GB"));
        }
        let same = |other: &&Row| {
            (other.op, other.variant, other.pass) == (row.op, row.variant, row.pass)
                && other.figures.is_some()
        };
        let smaller = before.iter().rev().find(same)?;
        let voxels = (row.size as f64 / smaller.size as f64).powi(3);
        let seconds = smaller.figures?.ms / 1e3 * voxels;
        (seconds > self.limits.patience).then(|| format!("skipped: about {seconds:.0} s a run"))
    }

    /// Times a variant; a panic of a backend (out of memory, a launch that is refused) is a note.
    fn measure(
        &self,
        case: &Case,
        variant: &Variant,
        size: usize,
        pass: Pass,
        floor: f64,
    ) -> Result<Figures, String> {
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            let inputs = case.inputs(size, &self.device, pass);
            // Compiles, tunes and fills the pools.
            self.once(variant, pass, &inputs);
            let mut times = Vec::new();
            let peak = peak_of(&self.device, || times.push(self.once(variant, pass, &inputs)));
            if times[0] > 2.0 * self.limits.seconds {
                return (times, peak);
            }
            // A pool that was just emptied is slow to allocate.
            times.clear();
            let start = Instant::now();
            let more = |times: &[f64]| {
                times.len() < self.limits.runs
                    && start.elapsed().as_secs_f64() < self.limits.seconds
            };
            while times.len() < 3 || more(&times) {
                times.push(self.once(variant, pass, &inputs));
            }
            (times, peak)
        }));
        let (mut times, peak) = attempt.map_err(|cause| format!("failed: {}", reason(&*cause)))?;
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        let gb_per_s = floor * (size as f64).powi(3) / median / 1e9;
        Ok(Figures {
            ms: median * 1e3,
            fastest_ms: times[0] * 1e3,
            runs: times.len(),
            bytes_per_voxel: floor,
            gb_per_s,
            of_copy: gb_per_s / self.copy,
            extra_mb: peak as f64 / 1e6,
        })
    }

    /// Seconds of one synchronised run; the results live until the clock has stopped.
    fn once(&self, variant: &Variant, pass: Pass, inputs: &[Tensor<5>]) -> f64 {
        self.sync();
        let start = Instant::now();
        let output = (variant.run)(inputs);
        let gradients = (pass == Pass::Both).then(|| output.backward());
        self.sync();
        let time = start.elapsed().as_secs_f64();
        drop((output, gradients));
        time
    }

    fn sync(&self) {
        self.device.sync().expect("the device executes what it was given");
    }
}

fn reason(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no message");
    text.lines().next().unwrap_or_default().chars().take(90).collect()
}
