//! A command for every line of a list.

use std::fs;
use std::path::Path;

use ffdp_image::Error;
use ffdp_image::io::FileRow;
use ffdp_train::user_flags::{UserFlags, WithoutEffect};
use serde::Serialize;
use serde_json::Value;

use super::ledger::{Column, Ledger};
use super::pipeline::{Steps, run};
use crate::failure::{Failure, Result};
use crate::pairs::{note_unread, read_named};
use crate::printer::Printer;

/// A list, and what becomes of its pairs.
pub struct Cohort<'a> {
    pub list: &'a Path,
    /// Columns in which every line must name something.
    pub required: &'a [&'a str],
    /// Further columns that are read.
    pub optional: &'a [&'a str],
    /// The flags of the command, and the columns of which some line must fill one for a flag to have an effect.
    pub flags: (&'a UserFlags, &'a [(&'a str, &'a [&'a str])]),
    pub title: &'static str,
    pub columns: &'static [Column],
    /// Where the table and the page go, next to the folders of the pairs, if they have some.
    pub folder: Option<&'a Path>,
    /// The file of a pair that the page links to.
    pub report: Option<&'a str>,
    /// Whether a pair that has failed by its verdict is a failure of the command.
    pub strict: bool,
    pub devices: usize,
    pub json: bool,
    pub quiet: bool,
    pub verbose: bool,
}

/// A pair before anything is read.
pub enum Pair<P> {
    /// Its results are there, with these metrics.
    Kept(Value),
    /// It is to be done.
    Open(P),
}

impl Cohort<'_> {
    /// Does the steps of all pairs. `pair` makes one of a line, its name, and a printer that speaks of it alone.
    ///
    /// # Errors
    /// When the list cannot be used, a device does not open, or a pair has failed, with `strict` also by its verdict.
    pub fn run<S: Steps<Done: Serialize>>(
        &self,
        steps: &S,
        pair: impl Fn(&FileRow, &str, Printer) -> Result<Pair<S::Pair>>,
    ) -> Result<()> {
        let printer = Printer::new(self.quiet, self.verbose);
        let rows = read_named(self.list, self.required, printer)?;
        note_unread(self.list, &rows, &[self.required, self.optional].concat(), printer);
        self.refuse_without_effect(&rows)?;
        if let Some(folder) = self.folder {
            fs::create_dir_all(folder)
                .map_err(|e| Error::io(folder, "create the output folder", e))?;
        }
        let names = rows.iter().map(|(name, _)| name.clone());
        let mut ledger = Ledger::new(self.title, self.columns, names, printer);
        let (mut pairs, mut numbers) = (Vec::new(), Vec::new());
        for (number, (name, row)) in rows.iter().enumerate() {
            match pair(row, name, printer.of_pair(number)) {
                Err(failure) => ledger.end(number, Err(failure)),
                Ok(Pair::Kept(metrics)) => ledger.kept(number, &metrics),
                Ok(Pair::Open(pair)) => {
                    pairs.push(pair);
                    numbers.push(number);
                }
            }
        }
        printer.note(&format!("{} of {} pairs are to be done", pairs.len(), rows.len()));
        let opened = run(steps, &pairs, self.devices, |pair, done| {
            let metrics = done.and_then(|done| {
                serde_json::to_value(&done).map_err(|reason| Failure::defect(reason.to_string()))
            });
            ledger.end(numbers[pair], metrics);
        });
        if let Some(folder) = self.folder {
            ledger.write(folder, self.report)?;
            printer.note(&format!("results are in {}", folder.display()));
        }
        ledger.print(self.json, self.quiet)?;
        opened.and_then(|()| ledger.outcome(self.strict))
    }
}

impl Cohort<'_> {
    /// Refuses flags for columns that no line fills.
    fn refuse_without_effect(&self, rows: &[(String, FileRow)]) -> Result<()> {
        let (given, flags) = self.flags;
        for (flag, columns) in flags {
            let fills = |row: &FileRow| columns.iter().any(|column| row.text(column).is_some());
            let because = format!("no line of the list fills {}", columns.join(" or "));
            let when = !rows.iter().any(|(_, row)| fills(row));
            let fix = "fill in the column";
            let rule = WithoutEffect { flags: &[flag], when, because: &because, fix };
            given.refuse(&[rule]).map_err(|refused| Failure::from(refused).about(self.list))?;
        }
        Ok(())
    }
}

/// Does the steps of one pair: a cohort of one.
///
/// # Errors
/// Those of the pair, else of the device.
pub fn run_one<S: Steps>(steps: &S, pair: S::Pair) -> Result<S::Done> {
    let mut done = None;
    let opened = run(steps, &[pair], 1, |_, ended| done = Some(ended));
    match (done, opened) {
        (Some(ended), _) => ended,
        (None, Err(failure)) => Err(failure),
        (None, Ok(())) => Err(Failure::defect("the pair did not end")),
    }
}
