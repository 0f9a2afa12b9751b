//! `log.jsonl`: what happens, one JSON object per line, readable while it happens.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use ffdp_image::Error;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::printer::Printer;
use crate::time::{unix_seconds, utc};

/// Appends events to a file, once there is one: until then it keeps them. Every line has `time` (UTC),
/// `seconds` since the start of this process, and `event`.
pub struct Journal {
    file: Option<File>,
    kept: String,
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
    /// A log without a file.
    pub fn new(printer: Printer) -> Self {
        Self { file: None, kept: String::new(), start: Instant::now(), printer, broken: false }
    }

    /// Opens the file, and writes what has happened so far.
    pub fn open(&mut self, path: &Path, opening: Opening) -> Result<()> {
        let mut options = OpenOptions::new();
        match opening {
            Opening::Anew => options.write(true).truncate(true),
            Opening::Continued => options.append(true),
        };
        let file =
            options.create(true).open(path).map_err(|source| Error::io(path, "write", source))?;
        self.file = Some(file);
        let kept = std::mem::take(&mut self.kept);
        self.write(&kept);
        Ok(())
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
        self.write(&format!("{line}\n"));
    }

    /// One write per line, so that a reader never sees half of one.
    fn write(&mut self, lines: &str) {
        let Some(file) = &mut self.file else { return self.kept.push_str(lines) };
        if let Err(reason) = file.write_all(lines.as_bytes())
            && !self.broken
        {
            self.broken = true;
            self.printer.warning(&format!("log.jsonl cannot be written: {reason}"));
        }
    }
}
