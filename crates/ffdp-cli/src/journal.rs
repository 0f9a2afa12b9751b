//! `log.jsonl`: what happens, one JSON object per line, readable while it happens.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use ffdp_burn::Error;
use serde_json::{Value, json};

use crate::failure::Outcome;
use crate::printer::Printer;
use crate::time::{unix_seconds, utc};

/// Appends events to a file. Every line has `time` (UTC), `seconds` since the start of this process,
/// and `event`.
pub struct Journal {
    file: File,
    start: Instant,
    printer: Printer,
    broken: bool,
}

/// What becomes of the events of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// They are dropped.
    Anew,
    /// New ones follow them.
    Continued,
}

impl Journal {
    /// Opens the file.
    pub fn open(path: &Path, opening: Opening, printer: Printer) -> Outcome<Self> {
        let mut options = OpenOptions::new();
        match opening {
            Opening::Anew => options.write(true).truncate(true),
            Opening::Continued => options.append(true),
        };
        let file =
            options.create(true).open(path).map_err(|source| Error::io(path, "write", source))?;
        Ok(Self { file, start: Instant::now(), printer, broken: false })
    }

    /// Writes one line: `fields`, an object, with what every line has. A log that cannot be written
    /// is no reason to end the work: it is said once.
    pub fn event(&mut self, event: &str, fields: Value) {
        let mut line = json!({
            "time": utc(unix_seconds()),
            "seconds": (self.start.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            "event": event,
        });
        if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
            line.extend(fields);
        }
        // One write per line, so that a reader never sees half of one.
        if let Err(reason) = self.file.write_all(format!("{line}\n").as_bytes())
            && !self.broken
        {
            self.broken = true;
            self.printer.warning(&format!("log.jsonl cannot be written: {reason}"));
        }
    }
}
