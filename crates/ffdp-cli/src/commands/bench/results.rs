//! `results.json` and `results.csv`: one row for each pair, resolution and method; `labels.csv`: one for each label of
//! theirs.
//!
//! The list grows row by row, so that a comparison can be interrupted; other programs append rows of
//! the same form (`scripts/peers`).

use std::path::{Path, PathBuf};

use ffdp_image::Error;
use ffdp_image::io::{csv_line, write_text};
use serde::{Deserialize, Serialize};

use super::cost::Cost;
use super::scores::{LabelScore, Scores};
use crate::failure::{Failure, Result};
use crate::file_version::FileVersion;
use crate::json::to_json;
use crate::label_names::{LabelLine, LabelNames, label_table};
use crate::manifest::Inputs;

/// One registration. Null where there is nothing to measure, or no way to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// `moving to fixed`.
    pub pair: String,
    pub spacing_mm: f64,
    pub method: String,
    pub device: String,
    /// Name and version.
    pub program: String,
    /// Labels that count.
    pub labels: usize,
    pub dice: f64,
    pub inverse_volume_dice: f64,
    /// Null when the map has lost every label.
    pub hd90_cumulative_mm: Option<f64>,
    pub folds: Option<u64>,
    pub fold_fraction: Option<f64>,
    pub sd_log_jacobian: Option<f64>,
    pub seconds: Option<f64>,
    /// The part of the time that iterations took.
    #[serde(default)]
    pub iteration_seconds: Option<f64>,
    pub cpu_seconds: Option<f64>,
    pub peak_memory_bytes: Option<u64>,
    pub gb_hours: Option<f64>,
    /// The method ended sooner and sooner, the shortest run first; nothing unless it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurvePoint>,
    /// The files that it was made of; nothing in rows of other programs and of older versions.
    #[serde(default, skip_serializing_if = "Inputs::is_empty")]
    pub inputs: Inputs,
    /// Each label; nothing in rows of other programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_labels: Vec<LabelScore>,
}

/// A run that was ended sooner than that of its row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// As the row has them, all of the run.
    pub seconds: f64,
    pub dice: f64,
}

/// What identifies a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key<'a> {
    pub pair: &'a str,
    pub spacing_mm: f64,
    pub method: &'a str,
    pub device: &'a str,
}

impl Row {
    pub fn new(key: Key, scores: &Scores, cost: Option<Cost>, inputs: Inputs) -> Self {
        let Key { pair, spacing_mm, method, device } = key;
        let regularity = scores.regularity;
        let peak_memory_bytes = cost.and_then(|cost| cost.peak_memory_bytes);
        let seconds = cost.map(|cost| cost.seconds);
        let both = peak_memory_bytes.zip(seconds);
        Self {
            pair: pair.to_string(),
            spacing_mm,
            method: method.to_string(),
            device: device.to_string(),
            program: concat!("ffdp ", env!("CARGO_PKG_VERSION")).to_string(),
            labels: scores.labels,
            dice: scores.dice,
            inverse_volume_dice: scores.inverse_volume_dice,
            hd90_cumulative_mm: Some(scores.hd90_cumulative_mm).filter(|mm| mm.is_finite()),
            folds: regularity.map(|r| r.true_folds),
            fold_fraction: regularity.map(|r| r.true_fold_fraction),
            sd_log_jacobian: regularity.map(|r| r.sd_log),
            seconds,
            iteration_seconds: cost.and_then(|cost| cost.iteration_seconds),
            cpu_seconds: cost.and_then(|cost| cost.cpu_seconds),
            peak_memory_bytes,
            gb_hours: both.map(|(bytes, seconds)| bytes as f64 / 1e9 * seconds / 3600.0),
            curve: Vec::new(),
            inputs,
            of_labels: scores.of_labels.clone(),
        }
    }

    /// The files that were changed since the row was made.
    fn changed(&self) -> Vec<&str> {
        let now = |file: &str| FileVersion::of(Path::new(file));
        let is_changed =
            |(file, then): &(&String, &FileVersion)| now(file).is_some_and(|now| now != **then);
        self.inputs.iter().filter(is_changed).map(|(file, _)| file.as_str()).collect()
    }

    pub fn key(&self) -> Key<'_> {
        let Self { pair, spacing_mm, method, device, .. } = self;
        Key { pair, spacing_mm: *spacing_mm, method, device }
    }

    /// Gives the labels the names of a table; those that it does not have keep theirs.
    fn name_labels(&mut self, names: &LabelNames) {
        for label in &mut self.of_labels {
            label.name = names.get(label.id).map(str::to_string).or(label.name.take());
        }
    }
}

const OTHER_LABELS: &str = "use the --labels of the earlier run, or another output folder";

/// The rows of an output folder.
pub struct Results {
    path: PathBuf,
    rows: Vec<Row>,
    /// What labels are called.
    names: LabelNames,
}

impl Results {
    /// Reads what an earlier run has left in the folder, if anything. Its labels get these names as well, in the file too.
    ///
    /// # Errors
    /// When the file holds no rows, or cannot be read or written.
    pub fn open(folder: &Path, names: LabelNames) -> Result<Self> {
        let path = folder.join("results.json");
        if !path.exists() {
            return Ok(Self { path, rows: Vec::new(), names });
        }
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, "read", e))?;
        let rows: Vec<Row> = serde_json::from_str(&text).map_err(|reason| {
            Failure::user(
                format!("{}: not the rows of a comparison: {reason}", path.display()),
                "choose another output folder, or remove the file to start anew",
            )
        })?;
        let mut results = Self { path, rows: rows.clone(), names };
        results.rows.iter_mut().for_each(|row| row.name_labels(&results.names));
        if results.rows != rows {
            results.write()?;
        }
        Ok(results)
    }

    /// Writes the list, whole or not at all, and the table of labels.
    fn write(&self) -> Result<()> {
        write_text(&self.path, &to_json(&self.rows)?)?;
        self.write_labels()
    }

    /// Writes `labels.csv`.
    pub fn write_labels(&self) -> Result<()> {
        Ok(write_text(&self.path.with_file_name("labels.csv"), &self.labels_csv())?)
    }

    /// # Errors
    /// When a row counts a label that is not among the `asked` ones.
    pub fn check_labels(&self, asked: &[i32]) -> Result<()> {
        for Row { pair, of_labels, .. } in &self.rows {
            if let Some(LabelScore { id, .. }) = of_labels.iter().find(|l| !asked.contains(&l.id)) {
                let path = self.path.display();
                let what = format!("{path}: a row of {pair} counts label {id}, --labels does not");
                return Err(Failure::user(what, OTHER_LABELS));
            }
        }
        Ok(())
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether there is a row, of these files as they are now.
    ///
    /// # Errors
    /// When it is of other files.
    pub fn has(&self, key: Key, inputs: &Inputs) -> Result<bool> {
        let Some(row) = self.rows.iter().find(|row| row.key() == key) else { return Ok(false) };
        let is_known = |file: &&String| row.inputs.contains_key(*file);
        match inputs.keys().find(|file| !is_known(file)).filter(|_| !row.inputs.is_empty()) {
            None => Ok(row.inputs.is_empty() || row.inputs == *inputs),
            Some(other) => {
                let Key { pair, method, .. } = key;
                let there = row.inputs.keys().find(|file| !inputs.contains_key(*file));
                let there = there.map_or("other files", String::as_str);
                Err(Failure::user(
                    format!(
                        "{}: there is a row of {pair} with {method} already, of {there} in place of {other}",
                        self.path.display()
                    ),
                    "rows are identified by their names: use another output folder",
                ))
            }
        }
    }

    /// The rows of files that were changed since: their pair and method, and the files.
    pub fn outdated(&self) -> Vec<(Key<'_>, Vec<&str>)> {
        let changed = self.rows.iter().map(|row| (row.key(), row.changed()));
        changed.filter(|(_, files)| !files.is_empty()).collect()
    }

    /// Adds a row, in place of one that is called as it is, and writes the list, whole or not at all. Rows of a pair must
    /// count the same labels, but for those of files that were changed since.
    pub fn push(&mut self, mut row: Row) -> Result<()> {
        row.name_labels(&self.names);
        self.rows.retain(|other| other.key() != row.key());
        let same = |other: &&Row| other.pair == row.pair && other.spacing_mm == row.spacing_mm;
        let mut others = self.rows.iter().filter(same).filter(|other| other.labels != row.labels);
        if let Some(other) = others.find(|other| other.changed().is_empty()) {
            return Err(Failure::user(
                format!(
                    "{}: the rows of {} count {} labels, the new one {}",
                    self.path.display(),
                    row.pair,
                    other.labels,
                    row.labels
                ),
                OTHER_LABELS,
            ));
        }
        self.rows.push(row);
        self.write()
    }

    /// The rows as a table of comma-separated values; an empty field for null.
    pub fn csv(&self) -> String {
        let mut text = csv_line([
            "pair",
            "spacing_mm",
            "method",
            "device",
            "program",
            "labels",
            "dice",
            "inverse_volume_dice",
            "hd90_cumulative_mm",
            "folds",
            "fold_fraction",
            "sd_log_jacobian",
            "seconds",
            "iteration_seconds",
            "cpu_seconds",
            "peak_memory_bytes",
            "gb_hours",
        ]);
        let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
        let count = |value: Option<u64>| value.map_or(String::new(), |v| v.to_string());
        for row in &self.rows {
            text += &csv_line([
                row.pair.clone(),
                row.spacing_mm.to_string(),
                row.method.clone(),
                row.device.clone(),
                row.program.clone(),
                row.labels.to_string(),
                row.dice.to_string(),
                row.inverse_volume_dice.to_string(),
                number(row.hd90_cumulative_mm),
                count(row.folds),
                number(row.fold_fraction),
                number(row.sd_log_jacobian),
                number(row.seconds),
                number(row.iteration_seconds),
                number(row.cpu_seconds),
                count(row.peak_memory_bytes),
                number(row.gb_hours),
            ]);
        }
        text
    }

    /// The labels of all rows as a table of comma-separated values; an empty field for null.
    fn labels_csv(&self) -> String {
        let lines = self.rows.iter().flat_map(|row| {
            let Row { pair, spacing_mm, method, device, .. } = row;
            row.of_labels.iter().map(move |label| LabelLine {
                keys: [pair.clone(), spacing_mm.to_string(), method.clone(), device.clone()],
                id: label.id,
                name: label.name.as_deref(),
                measures: [Some(label.dice), label.hd90_cumulative_mm],
            })
        });
        let keys = ["pair", "spacing_mm", "method", "device"];
        label_table(keys, ["dice", "hd90_cumulative_mm"], lines)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::manifest::inputs;

    /// A row with these results, of a method that takes 3.6 s and 2 GB.
    pub fn row(pair: &str, spacing_mm: f64, method: &str, dice: f64) -> Row {
        let scores = Scores {
            labels: 3,
            dice,
            inverse_volume_dice: dice / 2.0,
            hd90_cumulative_mm: 0.5,
            regularity: None,
            of_labels: vec![LabelScore { id: 7, name: None, dice, hd90_cumulative_mm: None }],
        };
        let cost = Cost {
            seconds: 3.6,
            iteration_seconds: Some(1.5),
            cpu_seconds: None,
            peak_memory_bytes: Some(2_000_000_000),
        };
        let key = Key { pair, spacing_mm, method, device: "cpu" };
        Row::new(key, &scores, Some(cost), Inputs::new())
    }

    #[test]
    fn rows_are_found_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut results =
            Results::open(folder.path(), LabelNames::default()).expect("nothing there yet");
        let mut first = row("a to b", 0.1, "greedy", 0.5);
        assert_eq!(first.gb_hours, Some(2.0 * 3.6 / 3600.0));
        first.hd90_cumulative_mm = None;
        results.push(first.clone()).expect("writable");
        results.push(row("a to b", 1.0, "x, y", 0.25)).expect("writable");
        let again = Results::open(folder.path(), LabelNames::default()).expect("well formed");
        assert_eq!(again.rows(), results.rows());
        let has = |key| again.has(key, &Inputs::new()).expect("nothing is known of its files");
        assert!(has(first.key()));
        let other_labels = Row { labels: 2, ..row("a to b", 1.0, "other", 0.5) };
        let refused = results.push(other_labels).expect_err("2 labels and 3").to_string();
        assert!(refused.contains("count 3 labels, the new one 2"), "{refused}");
        assert!(!has(Key { spacing_mm: 0.25, ..first.key() }));
        let csv = again.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[1].starts_with("a to b,0.1,greedy,cpu,"), "{csv}");
        assert!(lines[1].contains(",3,0.5,0.25,,,,,3.6,1.5,,2000000000,0.002"), "{csv}");
        assert!(lines[2].contains(",\"x, y\","), "{csv}");
    }

    #[test]
    fn labels_of_earlier_rows_have_the_names_of_a_later_table() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let table = folder.path().join("names.csv");
        std::fs::write(&table, "id,name\n7,\"Cortex, left\"\n").expect("writable");
        let names = || LabelNames::read(&table).expect("a table");
        let mut results =
            Results::open(folder.path(), LabelNames::default()).expect("nothing there yet");
        results.push(row("a to b", 1.0, "greedy", 0.5)).expect("writable");
        assert!(results.labels_csv().ends_with("a to b,1,greedy,cpu,7,,0.5,\n"));
        let named = "a to b,1,greedy,cpu,7,\"Cortex, left\",0.5,\n";
        let mut later = Results::open(folder.path(), names()).expect("well formed");
        assert!(later.labels_csv().ends_with(named), "{}", later.labels_csv());
        later.push(row("a to b", 1.0, "svf", 0.5)).expect("writable");
        let again = Results::open(folder.path(), LabelNames::default()).expect("well formed");
        assert_eq!(again.labels_csv().matches("\"Cortex, left\"").count(), 2);
        // Rows of other programs have no labels of their own.
        let text = std::fs::read_to_string(folder.path().join("results.json")).expect("written");
        let mut rows: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for row in rows.as_array_mut().expect("rows") {
            row.as_object_mut().expect("a row").remove("of_labels");
        }
        std::fs::write(folder.path().join("results.json"), rows.to_string()).expect("writable");
        let others = Results::open(folder.path(), names()).expect("well formed");
        assert_eq!((others.rows().len(), others.labels_csv().lines().count()), (2, 1));
    }

    #[test]
    fn labels_of_rows_that_are_there_are_named_at_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let open = |names| Results::open(folder.path(), names).expect("well formed");
        open(LabelNames::default()).push(row("a to b", 1.0, "greedy", 0.5)).expect("writable");
        let table = folder.path().join("names.csv");
        std::fs::write(&table, "id,name\n7,Cortex\n").expect("writable");
        let named = open(LabelNames::read(&table).expect("a table"));
        let csv = std::fs::read_to_string(folder.path().join("labels.csv")).expect("written");
        assert!(csv == named.labels_csv() && csv.contains(",7,Cortex,"), "{csv}");
        let again = open(LabelNames::default());
        assert_eq!(again.rows()[0].of_labels[0].name.as_deref(), Some("Cortex"));
    }

    #[test]
    fn rows_of_files_that_were_changed_are_made_again_and_of_other_files_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [file, other] = ["a.nii", "b.nii"].map(|name| folder.path().join(name));
        for file in [&file, &other] {
            std::fs::write(file, "before").expect("writable");
        }
        let mut results = Results::open(folder.path(), LabelNames::default()).expect("nothing yet");
        let made = |labels| Row {
            inputs: inputs([&*file]),
            labels,
            ..row("a to b", 1.0, "VoxelMorph", 0.5)
        };
        results.push(made(3)).expect("writable");
        let first = made(3);
        let again = Results::open(folder.path(), LabelNames::default()).expect("well formed");
        assert_eq!(again.rows(), results.rows());
        assert!(results.has(first.key(), &inputs([&*file])).expect("its own files"));
        assert!(results.outdated().is_empty());
        let refused = results.has(first.key(), &inputs([&*other])).expect_err("other files");
        let refused = refused.to_string();
        assert!(refused.contains("a.nii in place of") && refused.contains("b.nii"), "{refused}");
        std::fs::write(&file, "after it").expect("writable");
        assert!(!results.has(first.key(), &inputs([&*file])).expect("its own files"));
        assert_eq!(results.outdated().len(), 1);
        // In the place of the old one, which counted other labels.
        results.push(made(2)).expect("the other row is outdated");
        assert_eq!((results.rows().len(), results.rows()[0].labels), (1, 2));
        assert!(results.outdated().is_empty());
    }

    #[test]
    fn rows_with_a_label_that_is_not_asked_for_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut results = Results::open(folder.path(), LabelNames::default()).expect("nothing yet");
        results.push(row("a to b", 1.0, "greedy", 0.5)).expect("writable");
        results.check_labels(&[3, 7]).expect("its label is 7");
        let refused = results.check_labels(&[3]).expect_err("another label").to_string();
        assert!(refused.contains("a to b counts label 7"), "{refused}");
    }

    #[test]
    fn what_is_no_list_of_rows_is_refused_by_its_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("results.json"), "[{\"pair\": 1}]").expect("writable");
        let failure = Results::open(folder.path(), LabelNames::default());
        let failure = failure.err().expect("no row").to_string();
        assert!(failure.contains("results.json: not the rows"), "{failure}");
    }
}
