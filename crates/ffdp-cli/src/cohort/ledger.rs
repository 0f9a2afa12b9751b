//! How every pair ended: a line on stderr when it does, in the end a table.

use std::fmt::Write;

use ffdp_image::io::csv_line;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};
use crate::json::to_json;
use crate::printer::{Printer, failure_line, print_to_stdout, summarise};

/// A number of a pair, by where its `metrics.json` has it.
pub struct Column {
    /// Of the CSV and the page.
    pub name: &'static str,
    /// JSON pointer.
    pub pointer: &'static str,
    /// Digits after the point for people; `None` where the number is for programs alone.
    pub digits: Option<usize>,
}

/// How a pair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Done,
    /// Its results were there.
    Kept,
    /// Its results are of other inputs or settings, and are kept until they are to be replaced.
    Outdated,
    Failed,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Kept => "kept",
            Self::Outdated => "outdated",
            Self::Failed => "failed",
        }
    }
}

/// One pair.
pub(super) struct Entry {
    pub name: String,
    status: Status,
    /// One for each column; null where there is none.
    values: Vec<Value>,
    pub reason: Option<String>,
}

/// All pairs, in the order of the list.
pub struct Ledger {
    pub(super) title: &'static str,
    pub(super) columns: &'static [Column],
    pub(super) entries: Vec<Entry>,
    printer: Printer,
    /// How many have ended, and whether one failed by our fault.
    ended: usize,
    ours: bool,
}

impl Ledger {
    /// A ledger of pairs with these names, none of which has ended.
    pub fn new(
        title: &'static str,
        columns: &'static [Column],
        names: impl IntoIterator<Item = String>,
        printer: Printer,
    ) -> Self {
        let nothing = || vec![Value::Null; columns.len()];
        let reason = || Some("not begun".to_string());
        let entry =
            |name| Entry { name, status: Status::Failed, values: nothing(), reason: reason() };
        let entries = names.into_iter().map(entry).collect();
        Self { title, columns, entries, printer, ended: 0, ours: false }
    }

    /// A pair whose results were there, with its metrics.
    pub fn kept(&mut self, number: usize, metrics: &Value) {
        self.enter(number, Status::Kept, metrics);
    }

    /// A pair that is done, with its metrics, or has failed.
    pub fn end(&mut self, number: usize, done: Result<Value>) {
        match done {
            Ok(metrics) => {
                self.enter(number, Status::Done, &metrics);
                let entry = &self.entries[number];
                let values = self.columns.iter().zip(&entry.values);
                let values = values.filter_map(|(column, value)| {
                    Some(format!(", {} {}", column.name, shown(value, column.digits?)?))
                });
                let values: String = values.collect();
                let (ended, of, name) = (self.ended, self.entries.len(), &entry.name);
                self.printer.note(&format!("[{ended}/{of}] {name}{values}"));
            }
            Err(failure) => {
                self.ended += 1;
                self.ours |= failure.exit_code() == 2;
                let (ended, of) = (self.ended, self.entries.len());
                let entry = &mut self.entries[number];
                failure_line(&format!("[{ended}/{of}] {}", entry.name), &failure);
                let help = failure.help_text().map(|help| format!("; {help}")).unwrap_or_default();
                entry.reason = Some(format!("{failure}{help}"));
                if failure.is_outdated() {
                    entry.status = Status::Outdated;
                }
            }
        }
    }

    fn enter(&mut self, number: usize, status: Status, metrics: &Value) {
        self.ended += 1;
        let of = |column: &Column| metrics.pointer(column.pointer).cloned().unwrap_or_default();
        let entry = &mut self.entries[number];
        (entry.status, entry.reason) = (status, None);
        entry.values = self.columns.iter().map(of).collect();
    }

    /// To stdout, for people or as JSON.
    pub fn print(&self, json: bool, quiet: bool) -> Result<()> {
        match json {
            true => print_to_stdout(&self.json()?),
            false => summarise(quiet, || self.table()),
        }
    }

    /// # Errors
    /// When a pair has failed, or if `strict` a registration by its verdict.
    pub fn outcome(&self, strict: bool) -> Result<()> {
        let of = self.entries.len();
        let with = |status: Status| -> Vec<&str> {
            let all = self.entries.iter().filter(|entry| entry.status == status);
            all.map(|entry| entry.name.as_str()).collect()
        };
        let [failed, outdated] = [Status::Failed, Status::Outdated].map(with);
        let mut parts = Vec::new();
        if !failed.is_empty() {
            let names = failed.join(", ");
            parts.push(format!("{} of {of} pairs failed: {names}", failed.len()));
        }
        if !outdated.is_empty() {
            let (count, names) = (outdated.len(), outdated.join(", "));
            parts.push(format!(
                "{count} of {of} pairs have results of other inputs or settings: {names}"
            ));
        }
        if parts.is_empty() {
            return if strict { self.verdicts() } else { Ok(()) };
        }
        let help = match outdated.is_empty() {
            true => "the reasons are above; the same command again does these alone",
            false => "the reasons are above; the same command with --overwrite does these alone",
        };
        let what = parts.join("; ");
        Err(match self.ours {
            true => Failure::defect(what).with_help(help),
            false => Failure::user(what, help),
        })
    }

    /// # Errors
    /// When a pair has the verdict that its registration failed.
    fn verdicts(&self) -> Result<()> {
        let failed = |entry: &&Entry| {
            let mut values = self.columns.iter().zip(&entry.values);
            values.any(|(column, value)| column.name == "verdict" && value == "failed")
        };
        let failed: Vec<_> = self.entries.iter().filter(failed).map(|e| e.name.as_str()).collect();
        match failed.len() {
            0 => Ok(()),
            count => Err(Failure::result(
                format!(
                    "{count} of {} registrations failed: {}",
                    self.entries.len(),
                    failed.join(", ")
                ),
                "the results and a report of each are in its folder",
            )),
        }
    }

    pub(super) fn csv(&self) -> String {
        let heading = self.columns.iter().map(|column| column.name.to_string());
        let heading = ["name", "status"].map(String::from).into_iter().chain(heading);
        let mut text = csv_line(heading.chain(["error".to_string()]));
        for entry in &self.entries {
            let values = entry.values.iter().map(|value| match value {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            let fields = [entry.name.clone(), entry.status.name().to_string()].into_iter();
            text +=
                &csv_line(fields.chain(values).chain([entry.reason.clone().unwrap_or_default()]));
        }
        text
    }

    fn json(&self) -> Result<String> {
        let object = |entry: &Entry| {
            let mut object = Map::new();
            object.insert("name".to_string(), json!(entry.name));
            object.insert("status".to_string(), json!(entry.status.name()));
            let values = self.columns.iter().zip(&entry.values);
            object.extend(values.map(|(column, value)| (column.name.to_string(), value.clone())));
            object.insert("error".to_string(), json!(entry.reason));
            Value::Object(object)
        };
        let all: Vec<Value> = self.entries.iter().map(object).collect();
        to_json(&all)
    }

    /// The heading and the rows that people see, with the means of the numbers in the last one.
    pub(super) fn rows(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let columns = || {
            let all = self.columns.iter().enumerate();
            all.filter_map(|(k, column)| Some((k, column.name, column.digits?)))
        };
        let cell = |value: &Value, digits| shown(value, digits).unwrap_or_else(|| "-".to_string());
        let row = |entry: &Entry| {
            let values = columns().map(|(k, _, digits)| cell(&entry.values[k], digits));
            [entry.name.clone(), entry.status.name().to_string()]
                .into_iter()
                .chain(values)
                .collect()
        };
        let mean = |k: usize, digits| {
            let numbers: Vec<f64> =
                self.entries.iter().filter_map(|entry| entry.values[k].as_f64()).collect();
            match numbers.len() {
                0 => "-".to_string(),
                count => format!("{:.digits$}", numbers.iter().sum::<f64>() / count as f64),
            }
        };
        let means = columns().map(|(k, _, digits)| mean(k, digits));
        let means = ["mean", ""].map(String::from).into_iter().chain(means).collect();
        let rows = self.entries.iter().map(row).chain([means]).collect();
        (["pair", "status"].into_iter().chain(columns().map(|(_, name, _)| name)).collect(), rows)
    }

    fn table(&self) -> String {
        let (heading, rows) = self.rows();
        let width = |k: usize| {
            let cells = rows.iter().map(|row| row[k].chars().count());
            cells.chain([heading[k].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heading.len()).map(width).collect();
        let mut text = String::new();
        let mut add = |cells: &mut dyn Iterator<Item = &str>| {
            for (k, (cell, &width)) in cells.zip(&widths).enumerate() {
                let _ = match k {
                    0 => write!(text, "{cell:<width$}"),
                    _ => write!(text, "  {cell:>width$}"),
                };
            }
            text.push('\n');
        };
        add(&mut heading.iter().copied());
        rows.iter().for_each(|row| add(&mut row.iter().map(String::as_str)));
        text
    }
}

/// A value for people.
fn shown(value: &Value, digits: usize) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        // Counts are whole.
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        other => other.as_f64().map(|number| format!("{number:.digits$}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { name: "dice", pointer: "/dice/mean", digits: Some(3) },
        Column { name: "folds", pointer: "/folds", digits: Some(0) },
        Column { name: "seconds", pointer: "/seconds/total", digits: None },
    ];

    #[test]
    fn every_pair_has_a_row_and_numbers_have_means() {
        let names = ["a", "b", "c", "d"].map(String::from);
        let mut ledger = Ledger::new("test", &COLUMNS, names, Printer::new(true, false));
        ledger.end(2, Ok(json!({"dice": {"mean": 0.5}, "folds": 3, "seconds": {"total": 1.5}})));
        ledger.kept(0, &json!({"dice": {"mean": 0.75}}));
        ledger.end(1, Err(Failure::user("no, \"none\"", "look again")));
        let csv = ledger.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[0], "name,status,dice,folds,seconds,error");
        assert_eq!(lines[1], "a,kept,0.75,,,");
        assert_eq!(lines[2], "b,failed,,,,\"no, \"\"none\"\"; look again\"");
        assert_eq!(lines[3], "c,done,0.5,3,1.5,");
        assert_eq!(lines[4], "d,failed,,,,not begun");
        let (heading, rows) = ledger.rows();
        assert_eq!(heading, ["pair", "status", "dice", "folds"]);
        assert_eq!(rows[4], ["mean", "", "0.625", "3"]);
        assert_eq!(rows[0], ["a", "kept", "0.750", "-"]);
        ledger.end(
            3,
            Err(Failure::outdated("of an earlier run with other fixed_mask", "add --overwrite")),
        );
        assert!(ledger.csv().contains("\nd,outdated,,,,of an earlier run"), "{}", ledger.csv());
        let failure = ledger.outcome(false).expect_err("one failed, one is of other inputs");
        assert!(
            failure.to_string().contains(
                "1 of 4 pairs failed: b; 1 of 4 pairs have results of other inputs or settings: d"
            ),
            "{failure}"
        );
        assert_eq!(failure.exit_code(), 1);
        let json: Value = serde_json::from_str(&ledger.json().expect("plain")).expect("JSON");
        assert_eq!(json[2]["seconds"], 1.5);
    }

    #[test]
    fn a_list_with_strict_fails_by_the_verdict_of_a_pair_that_is_done_or_was_there() {
        const VERDICT: [Column; 1] =
            [Column { name: "verdict", pointer: "/verdict", digits: Some(0) }];
        let names = ["a", "b", "c"].map(String::from);
        let mut ledger = Ledger::new("test", &VERDICT, names, Printer::new(true, false));
        ledger.end(0, Ok(json!({"verdict": "failed"})));
        ledger.kept(1, &json!({"verdict": "failed"}));
        // The third is not begun.
        assert_eq!(ledger.outcome(true).expect_err("a failure").exit_code(), 1);
        ledger.end(2, Ok(json!({"verdict": "doubtful"})));
        assert!(ledger.outcome(false).is_ok());
        let failure = ledger.outcome(true).expect_err("two verdicts");
        assert!(failure.to_string().contains("2 of 3 registrations failed: a, b"), "{failure}");
        assert_eq!(failure.exit_code(), 3);
    }
}
