//! What a registration costs: time, processor time, memory.

use std::ops::ControlFlow;
use std::time::Instant;

use burn::tensor::Device;
use ffdp_burn::transform::Composite;
use ffdp_register::{
    Observer, Registration,
    report::{LevelReport, LevelStart, Progress},
};

use crate::failure::Result;
use crate::memory::{peak_memory_bytes, reset_peak_memory};
use crate::time::process_cpu_seconds;

/// Of one registration, from images in host memory to the warped image in host memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub seconds: f64,
    /// Of its levels alone: without scaling, uploading and warping the full images. `None` of a network.
    pub iteration_seconds: Option<f64>,
    /// Of all threads, when the CPU is the device.
    pub cpu_seconds: Option<f64>,
    /// On a GPU the most that its pool of memory held, pages included that could not be given back
    /// before; on the CPU the most that the process had resident, images and labels included.
    pub peak_memory_bytes: Option<u64>,
}

/// What a method found.
pub struct TimedTransform {
    pub map: Composite,
    /// As [`Cost`] has it.
    pub iteration_seconds: Option<f64>,
}

impl TimedTransform {
    /// Of a registration by the engine.
    pub fn of(found: &Registration) -> Result<Self> {
        let levels = found.stages.iter().flat_map(|stage| &stage.levels);
        let iteration_seconds = Some(levels.map(|level| level.seconds).sum());
        Ok(Self { map: found.transform()?, iteration_seconds })
    }
}

/// Registers, and says what it took.
pub fn measured(
    device: &Device,
    register: impl FnOnce(&mut Meter) -> Result<TimedTransform>,
) -> Result<(Composite, Cost)> {
    device.memory_cleanup();
    reset_peak_memory();
    let mut meter = Meter { device, pool_peak: None };
    let (start, cpu_start) = (Instant::now(), process_cpu_seconds());
    let TimedTransform { map, iteration_seconds } = register(&mut meter)?;
    let seconds = start.elapsed().as_secs_f64();
    meter.look();
    let cost = match meter.pool_peak {
        Some(peak) => {
            Cost { seconds, iteration_seconds, cpu_seconds: None, peak_memory_bytes: Some(peak) }
        }
        None => {
            let both = cpu_start.zip(process_cpu_seconds());
            let cpu_seconds = both.map(|(start, end)| end - start);
            let peak_memory_bytes = peak_memory_bytes();
            Cost { seconds, iteration_seconds, cpu_seconds, peak_memory_bytes }
        }
    };
    Ok((map, cost))
}

/// Looks at the memory of a GPU whenever the registration says how it goes: its pool shrinks again
/// between levels.
pub struct Meter<'a> {
    device: &'a Device,
    /// Bytes; nothing on the CPU, which has no pool.
    pool_peak: Option<u64>,
}

impl Meter<'_> {
    fn look(&mut self) {
        let now = self.device.memory_pool_usage().map(|usage| usage.bytes_reserved);
        self.pool_peak = self.pool_peak.max(now);
    }
}

impl Observer for Meter<'_> {
    fn level_started(&mut self, _: &LevelStart) -> ControlFlow<()> {
        self.look();
        ControlFlow::Continue(())
    }

    fn losses_read(&mut self, _: &Progress) -> ControlFlow<()> {
        self.look();
        ControlFlow::Continue(())
    }

    fn level_finished(&mut self, _: &LevelReport) -> ControlFlow<()> {
        self.look();
        ControlFlow::Continue(())
    }
}
