//! Progress as plain lines on stderr, for pipes and log files; terminals get Burn's dashboard.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining,
};

use crate::stderr::say;

/// Between two lines within an epoch.
const QUIET: Duration = Duration::from_secs(15);

/// What an epoch's line says of the training.
const SHOWN: [&str; 7] =
    ["loss", "similarity", "smoothness", "seconds", "waiting", "peak memory", "device memory"];

/// Prints a line per epoch, and one every 15 seconds within an epoch.
pub struct PlainLines {
    names: Vec<(MetricId, String)>,
    train: BTreeMap<String, f64>,
    valid: BTreeMap<String, f64>,
    started: Instant,
    last_line: Instant,
    first_epoch: usize,
    epoch: usize,
    epochs: usize,
    split: String,
    items: usize,
}

impl PlainLines {
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            names: Vec::new(),
            train: BTreeMap::new(),
            valid: BTreeMap::new(),
            started: now,
            last_line: now,
            first_epoch: 1,
            epoch: 1,
            epochs: 0,
            split: String::new(),
            items: 0,
        }
    }

    fn name(&self, id: &MetricId) -> Option<String> {
        self.names.iter().find(|(known, _)| known == id).map(|(_, name)| name.clone())
    }

    fn value(&self, state: &MetricState) -> Option<(String, f64)> {
        let MetricState::Numeric(entry, Some(number)) = state else { return None };
        Some((self.name(&entry.metric_id)?, NumericEntry::current(number)))
    }

    fn remaining(&self) -> String {
        let done = self.epoch + 1 - self.first_epoch;
        let left = self.epochs.saturating_sub(self.epoch);
        let seconds = self.started.elapsed().as_secs_f64() / done as f64 * left as f64;
        format!("{}:{:02} left", seconds as u64 / 60, seconds as u64 % 60)
    }
}

fn show(values: &BTreeMap<String, f64>, names: &[&str]) -> String {
    let shown = names.iter().filter_map(|name| {
        let value = values.get(*name).filter(|value| !value.is_nan())?;
        Some(match *name {
            "seconds" => format!("{value:.3} s/step"),
            "waiting" => format!("{value:.3} of it for images"),
            "device memory" => format!("device {value:.0} MiB"),
            "folds" => format!("folds {value:.3} %"),
            "peak memory" => format!("{value:.0} MiB"),
            _ => format!("{name} {value:.4}"),
        })
    });
    shown.collect::<Vec<_>>().join("  ")
}

impl MetricsRendererTraining for PlainLines {
    fn update_train(&mut self, state: MetricState) {
        self.train.extend(self.value(&state));
    }

    fn update_valid(&mut self, state: MetricState) {
        self.valid.extend(self.value(&state));
    }
}

impl TrainingProgressLogger for PlainLines {
    fn start(&mut self, epochs: usize, first: usize, _items: Option<usize>, _label: Option<&str>) {
        (self.epochs, self.first_epoch, self.epoch) = (epochs, first, first);
        self.started = Instant::now();
    }

    fn start_split(&mut self, split: &str, items: usize) {
        (self.split, self.items) = (split.to_string(), items);
    }

    fn update_split(&mut self, done: usize) {
        if self.last_line.elapsed() > QUIET && self.split == "train" {
            let values = show(&self.train, &["loss", "seconds", "waiting"]);
            let (epoch, epochs, items) = (self.epoch, self.epochs, self.items);
            say(&format!("epoch {epoch}/{epochs}  step {done}/{items}  {values}"));
            self.last_line = Instant::now();
        }
    }

    fn update_epoch(&mut self, epoch: usize) {
        self.epoch = epoch;
        say(&format!(
            "epoch {epoch}/{}  train: {}  validation: {}  {}",
            self.epochs,
            show(&self.train, &SHOWN),
            show(&self.valid, &["loss", "dice", "folds", "sd log j"]),
            self.remaining()
        ));
        self.epoch += 1;
        self.last_line = Instant::now();
    }

    fn end_split(&mut self) {}

    fn end(&mut self) {}

    fn log_event_training(&mut self, _event: String) {}
}

impl MetricsRendererEvaluation for PlainLines {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}
}

impl EvaluationProgressLogger for PlainLines {
    fn start_global_progress(&mut self, _tests: usize) {}

    fn start_test(&mut self, _name: &str, _items: usize) {}

    fn update_test_progress(&mut self, _done: usize) {}

    fn end_test(&mut self) {}

    fn end_global_progress(&mut self) {}

    fn log_event_evaluation(&mut self, _event: String) {}
}

impl MetricsRenderer for PlainLines {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.names.push((definition.metric_id, definition.name.to_string()));
    }
}
