//! `metrics.jsonl`: one JSON object for every step and every epoch, appended as it happens.
//!
//! ```text
//! {"kind":"step","split":"train","epoch":1,"step":1,"loss":0.74,"similarity":0.74,..}
//! {"kind":"epoch","split":"valid","epoch":1,"loss":0.61,..,"dice":0.66,"folds":0.0}
//! ```
//! An epoch's numbers are the means of its steps. This is Burn's `MetricLogger`, so that the choice
//! of the best checkpoint reads the same numbers.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use burn::train::logger::MetricLogger;
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split};
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};
use ffdp_image::io::write_text;
use ffdp_image::{Error, Result};
use serde_json::{Map, Value};

/// One line of the journal.
pub type Record = Map<String, Value>;

/// The journal of a run.
pub struct Journal {
    file: File,
    path: PathBuf,
    names: HashMap<MetricId, String>,
    steps: HashMap<(String, usize), usize>,
    epochs: HashMap<(String, String, usize), f64>,
}

impl Journal {
    /// Opens `path`, keeping the records of the first `epochs` epochs; a resumed run writes the
    /// others again.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn open(path: &Path, epochs: usize) -> Result<Self> {
        let mut kept = if epochs == 0 { Vec::new() } else { read_lines(path)? };
        kept.retain(|(record, _)| number(record, "epoch") <= epochs as f64);
        // As they were written: numbers that are read and printed again may differ in the last bit.
        let lines: String = kept.iter().map(|(_, line)| format!("{line}\n")).collect();
        write_text(path, &lines)?;
        let file = File::options().append(true).open(path);
        let mut journal = Self {
            file: file.map_err(|error| Error::io(path, "write", error))?,
            path: path.to_path_buf(),
            names: HashMap::new(),
            steps: HashMap::new(),
            epochs: HashMap::new(),
        };
        kept.iter().for_each(|(record, _)| journal.remember(record));
        Ok(journal)
    }

    fn write(&mut self, record: &Record) {
        // One write a line: a reader, or a run that is killed, sees whole ones.
        if let Err(error) = self.file.write_all(line(record).as_bytes()) {
            crate::stderr::say(&format!(
                "warning: could not write {}: {error}",
                self.path.display()
            ));
        }
    }

    /// Keeps the numbers of an epoch for [`MetricLogger::read_numeric`].
    fn remember(&mut self, record: &Record) {
        if record.get("kind").and_then(Value::as_str) != Some("epoch") {
            return;
        }
        let split = record.get("split").and_then(Value::as_str).unwrap_or_default().to_string();
        let epoch = number(record, "epoch") as usize;
        for (name, value) in record {
            if let Some(value) = value.as_f64() {
                self.epochs.insert((split.clone(), name.clone(), epoch), value);
            }
        }
    }
}

impl MetricLogger for Journal {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: &Split) {
        let is_epoch = update
            .entries_numeric
            .iter()
            .any(|entry| matches!(entry.numeric_entry, Some(NumericEntry::Final(_))));
        let mut record = Record::new();
        record.insert("kind".into(), if is_epoch { "epoch" } else { "step" }.into());
        record.insert("split".into(), split.to_string().into());
        record.insert("epoch".into(), epoch.into());
        if !is_epoch {
            let step = self.steps.entry((split.to_string(), epoch)).or_insert(0);
            *step += 1;
            record.insert("step".into(), (*step).into());
        }
        for entry in &update.entries_numeric {
            let name = self.names.get(&entry.entry.metric_id);
            if let (Some(name), Some(value)) = (name, &entry.numeric_entry) {
                record.insert(name.clone(), value.current().into());
            }
        }
        self.remember(&record);
        self.write(&record);
    }

    fn read_numeric(
        &mut self,
        name: &str,
        epoch: usize,
        split: &Split,
    ) -> Result<Vec<NumericEntry>, String> {
        let key = (split.to_string(), key(name), epoch);
        Ok(self.epochs.get(&key).map(|value| NumericEntry::Final(*value)).into_iter().collect())
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, key(&definition.name));
    }

    fn log_epoch_summary(&mut self, _summary: EpochSummary) {}
}

/// A metric's name as a JSON key.
fn key(name: &str) -> String {
    name.replace(' ', "_")
}

/// A number of a record, NaN if there is none.
pub fn number(record: &Record, name: &str) -> f64 {
    record.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

fn line(record: &Record) -> String {
    format!("{}\n", serde_json::to_string(record).expect("a map of numbers is JSON"))
}

/// All records of a journal; a last line that was not finished is left out.
///
/// # Errors
/// A file that cannot be read, or a line that is no JSON object.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    Ok(read_lines(path)?.into_iter().map(|(record, _)| record).collect())
}

/// [`read`], each record with its line.
fn read_lines(path: &Path) -> Result<Vec<(Record, String)>> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, "read", error))?;
    let parse = |(index, line): (usize, &str)| {
        let record = serde_json::from_str(line).map_err(|error| {
            let what = format!("{} line {}: {error}", path.display(), index + 1);
            Error::invalid(what, line, "remove the line, or start a new run in another --output")
        })?;
        Ok((record, line.to_string()))
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().enumerate().map(parse).collect()
}
