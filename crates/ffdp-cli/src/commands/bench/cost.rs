//! What a registration costs: time, processor time, memory.

use std::time::Instant;

use burn::tensor::Device;

use crate::failure::Outcome;
use crate::memory::{peak_memory_bytes, reset_peak_memory};
use crate::time::process_cpu_seconds;

/// Of one registration, from images in host memory to the warped image in host memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub seconds: f64,
    /// Of all threads, when the CPU is the device.
    pub cpu_seconds: Option<f64>,
    /// Of the device: what its pool of memory grew by; on the CPU the most that the process had
    /// resident, images and labels included.
    pub peak_memory_bytes: Option<u64>,
}

/// Does the work and says what it took.
pub fn measured<T>(device: &Device, work: impl FnOnce() -> Outcome<T>) -> Outcome<(T, Cost)> {
    device.memory_cleanup();
    let pool = || device.memory_pool_usage().map(|usage| usage.bytes_reserved);
    let before = pool();
    reset_peak_memory();
    let (start, cpu_start) = (Instant::now(), process_cpu_seconds());
    let result = work()?;
    let seconds = start.elapsed().as_secs_f64();
    let cost = match (before, pool()) {
        (Some(before), Some(after)) => {
            let peak_memory_bytes = Some(after.saturating_sub(before));
            Cost { seconds, cpu_seconds: None, peak_memory_bytes }
        }
        _ => {
            let both = cpu_start.zip(process_cpu_seconds());
            let cpu_seconds = both.map(|(start, end)| end - start);
            Cost { seconds, cpu_seconds, peak_memory_bytes: peak_memory_bytes() }
        }
    };
    Ok((result, cost))
}
