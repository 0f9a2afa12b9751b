//! What is measured at every step, as Burn's metrics.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, ExecutionError, TensorReadError};
use burn::train::metric::state::{FormatOptions, NumericMetricState};
use burn::train::metric::{
    Adaptor, ItemLazy, Metric, MetricAttributes, MetricMetadata, MetricName, Numeric,
    NumericAttributes, NumericEntry, SerializedEntry,
};

/// The numbers of one step; NaN where a step does not measure them.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    pub loss: f64,
    pub similarity: f64,
    pub smoothness: f64,
    /// The soft Dice loss of the labels; 0 when it is not trained.
    pub overlap: f64,
    /// Mean Dice over the evaluated labels.
    pub dice: f64,
    /// Voxels that fold, percent.
    pub folds_percent: f64,
    /// Deviation of the logarithm of det J.
    pub sd_log_jacobian: f64,
    /// Seconds that the step waited for its images: read, prepared, copied to the device.
    pub waited: f64,
    /// Host memory, the most so far.
    pub peak_memory_mib: f64,
    /// What the pools of the device hold, if it has any.
    pub device_memory_mib: f64,
    pub started: Instant,
    pub finished: Instant,
}

impl Scores {
    /// The numbers of a step whose terms (total, similarity, smoothness, overlap) were just
    /// read.
    pub fn of_terms(
        started: Instant,
        [loss, similarity, smoothness, overlap]: [f64; 4],
        waited: f64,
        device: &Device,
    ) -> Self {
        const MIB: f64 = (1 << 20) as f64;
        let pools = device.memory_pool_usage();
        Self {
            loss,
            similarity,
            smoothness,
            overlap,
            dice: f64::NAN,
            folds_percent: f64::NAN,
            sd_log_jacobian: f64::NAN,
            waited,
            peak_memory_mib: peak_memory_mib().unwrap_or(f64::NAN),
            device_memory_mib: pools.map_or(f64::NAN, |pools| pools.bytes_reserved as f64 / MIB),
            started,
            finished: Instant::now(),
        }
    }
}

/// What is left to measure on the host.
type Rest = Box<dyn FnOnce(&mut Scores) + Send>;

/// A step's numbers, perhaps with measurements that Burn's thread for metrics makes while the device
/// computes the next step. They must not touch tensors: what the two threads record on a device at
/// the same time would be fused in another way at every run.
pub struct Measured {
    scores: Scores,
    rest: Option<Rest>,
}

impl Measured {
    /// Nothing is left.
    pub fn now(scores: Scores) -> Self {
        Self { scores, rest: None }
    }

    /// `rest` adds its numbers later.
    pub fn later(scores: Scores, rest: impl FnOnce(&mut Scores) + Send + 'static) -> Self {
        Self { scores, rest: Some(Box::new(rest)) }
    }
}

impl ItemLazy for Measured {
    fn sync(mut self) -> Result<Self, ExecutionError> {
        if let Some(rest) = self.rest.take() {
            rest(&mut self.scores);
        }
        Ok(self)
    }
}

impl Adaptor<Scores> for Measured {
    fn adapt(&self) -> Scores {
        self.scores
    }
}

/// A number of [`Scores`] under its name.
#[derive(Clone)]
pub struct Scalar {
    name: MetricName,
    unit: Option<&'static str>,
    higher_is_better: bool,
    pick: fn(&Scores, &MetricMetadata) -> f64,
    state: NumericMetricState,
}

impl Scalar {
    fn new(name: &str, pick: fn(&Scores, &MetricMetadata) -> f64) -> Self {
        let name = Arc::new(name.to_string());
        Self { name, unit: None, higher_is_better: false, pick, state: NumericMetricState::new() }
    }

    fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    pub fn loss() -> Self {
        Self::new("loss", |scores, _| scores.loss)
    }

    pub fn similarity() -> Self {
        Self::new("similarity", |scores, _| scores.similarity)
    }

    pub fn smoothness() -> Self {
        Self::new("smoothness", |scores, _| scores.smoothness)
    }

    pub fn overlap() -> Self {
        Self::new("soft dice loss", |scores, _| scores.overlap)
    }

    pub fn dice() -> Self {
        Self { higher_is_better: true, ..Self::new("dice", |scores, _| scores.dice) }
    }

    pub fn folds() -> Self {
        Self::new("folds", |scores, _| scores.folds_percent).unit("%")
    }

    pub fn sd_log_jacobian() -> Self {
        Self::new("sd log j", |scores, _| scores.sd_log_jacobian)
    }

    pub fn waiting() -> Self {
        Self::new("waiting", |scores, _| scores.waited).unit("s/step")
    }

    pub fn device_memory() -> Self {
        Self::new("device memory", |scores, _| scores.device_memory_mib).unit("MiB")
    }

    pub fn peak_memory() -> Self {
        Self::new("peak memory", |scores, _| scores.peak_memory_mib).unit("MiB")
    }

    pub fn learning_rate() -> Self {
        Self::new("learning rate", |_, metadata| {
            metadata.lr.as_ref().map_or(f64::NAN, |rate| rate.base())
        })
    }

    fn format(&self) -> FormatOptions {
        let format = FormatOptions::new(self.name.clone()).precision(4);
        self.unit.iter().fold(format, |format, unit| format.unit(unit))
    }
}

impl Metric for Scalar {
    type Input = Scores;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        let unit = self.unit.map(str::to_string);
        NumericAttributes { unit, higher_is_better: self.higher_is_better }.into()
    }

    fn update(
        &mut self,
        scores: &Scores,
        metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        self.state.update((self.pick)(scores, metadata), 1);
        Ok(self.state.compute_update(self.format()))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.state.compute_final(self.format()))
    }

    fn clear(&mut self) {
        self.state.reset();
    }
}

impl Numeric for Scalar {
    fn value(&self) -> Option<NumericEntry> {
        Some(self.state.current_value())
    }

    fn running_value(&self) -> Option<NumericEntry> {
        Some(self.state.running_value())
    }

    fn final_value(&self) -> NumericEntry {
        self.state.final_value()
    }
}

/// Seconds from the end of one step to the end of the next: data, both passes and the optimiser.
#[derive(Clone)]
pub struct SecondsPerStep {
    scalar: Scalar,
    previous: Option<Instant>,
}

impl SecondsPerStep {
    pub fn new() -> Self {
        let scalar = Scalar::new("seconds", |_, _| f64::NAN).unit("s/step");
        Self { scalar, previous: None }
    }
}

impl Metric for SecondsPerStep {
    type Input = Scores;

    fn name(&self) -> MetricName {
        self.scalar.name()
    }

    fn attributes(&self) -> MetricAttributes {
        self.scalar.attributes()
    }

    fn update(
        &mut self,
        scores: &Scores,
        _metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        let since = self.previous.replace(scores.finished).unwrap_or(scores.started);
        self.scalar.state.update((scores.finished - since).as_secs_f64(), 1);
        Ok(self.scalar.state.compute_update(self.scalar.format()))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        self.scalar.compute()
    }

    fn clear(&mut self) {
        self.previous = None;
        self.scalar.clear();
    }
}

impl Numeric for SecondsPerStep {
    fn value(&self) -> Option<NumericEntry> {
        self.scalar.value()
    }

    fn running_value(&self) -> Option<NumericEntry> {
        self.scalar.running_value()
    }

    fn final_value(&self) -> NumericEntry {
        self.scalar.final_value()
    }
}

/// The most memory that this process has held, MiB; known on Linux only.
pub fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}
