//! Data on stdout; talk on stderr: failures, warnings, notes.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

use ffdp_image::Error;

use crate::failure::{Failure, Result};

/// Writes a result. A reader that has closed its end (`| head`) is no failure.
pub fn print_to_stdout(text: &str) -> Result<()> {
    print_bytes_to_stdout(text.as_bytes())
}

/// Writes a result that is made as bytes.
pub fn print_bytes_to_stdout(bytes: &[u8]) -> Result<()> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::io(Path::new("stdout"), "write to", error).into())
        }
        _ => Ok(()),
    }
}

/// Writes a line to stderr, in one piece. A reader that has closed its end (`2>&1 | head`) is no reason to end the
/// work: nothing more is said.
pub fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Shows why a command failed: drawn on a terminal, plain lines elsewhere.
pub fn failure(failure: Failure) {
    if std::io::stderr().is_terminal() {
        say(&format!("{:?}", miette::Report::new(failure)));
        return;
    }
    say(&format!("error: {failure}"));
    if let Some(help) = failure.help_text() {
        say(&format!("help: {help}"));
    }
}

/// Says why one of several pairs failed, in plain lines: what comes after it goes on.
pub fn failure_line(pair: &str, failure: &Failure) {
    let help = failure.help_text().map(|help| format!("\nhelp: {help}")).unwrap_or_default();
    say(&format!("error: {pair}: {failure}{help}"));
}

/// A summary on stdout, where one is wanted: not with -q.
pub fn summarise(quiet: bool, text: impl FnOnce() -> String) -> Result<()> {
    if quiet { Ok(()) } else { print_to_stdout(&text()) }
}

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors only.
    Quiet,
    /// Warnings, the progress, where the results are.
    Normal,
    /// Everything.
    Verbose,
}

/// Says things on stderr, if they are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    verbosity: Verbosity,
    /// The number of the pair that it speaks of, from 1, where there are several.
    pair: Option<usize>,
}

impl Printer {
    /// A printer for the flags `-q` and `-v`.
    pub fn new(quiet: bool, verbose: bool) -> Self {
        let verbosity = match (quiet, verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        };
        Self { verbosity, pair: None }
    }

    /// A printer of one of several pairs, by its number from 0: it names it, and says less.
    pub fn of_pair(self, number: usize) -> Self {
        Self { pair: Some(number + 1), ..self }
    }

    /// Whether there are several pairs.
    pub fn is_of_several(&self) -> bool {
        self.pair.is_some()
    }

    /// How much is said.
    pub fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    /// Something the user should look at.
    pub fn warning(&self, text: &str) {
        self.say_at(Verbosity::Normal, &format!("warning: {text}"));
    }

    /// Something that is good to know; of one of several pairs, for the curious.
    pub fn note(&self, text: &str) {
        let needed = if self.is_of_several() { Verbosity::Verbose } else { Verbosity::Normal };
        self.say_at(needed, text);
    }

    /// Something for the curious.
    pub fn detail(&self, text: &str) {
        self.say_at(Verbosity::Verbose, text);
    }

    fn say_at(&self, needed: Verbosity, text: &str) {
        if self.verbosity < needed {
            return;
        }
        match self.pair {
            Some(number) => say(&format!("pair {number}: {text}")),
            None => say(text),
        }
    }
}
