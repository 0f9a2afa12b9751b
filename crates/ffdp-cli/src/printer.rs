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

/// Shows why a command failed: marked and in paragraphs on a terminal, plain lines elsewhere.
pub fn failure(failure: Failure) {
    let help = failure.help_text();
    if std::io::stderr().is_terminal() {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        return say(&paragraphs(&failure.to_string(), help, !is_set("NO_COLOR")));
    }
    say(&format!("error: {failure}"));
    if let Some(help) = help {
        say(&format!("help: {help}"));
    }
}

/// Characters of a line of a paragraph: those of a terminal's usual width.
const LINE: usize = 80;

/// A message behind a red cross, and a help text behind a blue word, in lines of 80 characters that begin below each
/// other.
fn paragraphs(message: &str, help: Option<&str>, coloured: bool) -> String {
    let mark = |code: u8, text: &str| match coloured {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text.to_string(),
    };
    let mut text = format!("  {} {}", mark(31, "\u{d7}"), wrapped(message, 4));
    if let Some(help) = help {
        text += &format!("\n  {} {}", mark(36, "help:"), wrapped(help, 8));
    }
    text
}

/// Words in lines of [`LINE`] characters, of which all but the first line begin with `indent` spaces.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("starts with one");
        let length = line.chars().count();
        if length == 0 {
            line.push_str(word);
        } else if indent + length + 1 + word.chars().count() <= LINE {
            *line += &format!(" {word}");
        } else {
            lines.push(word.to_string());
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_on_a_terminal_is_a_marked_paragraph_and_its_help() {
        let message =
            "spacing must lie in 1e-9..1e6 mm, got [1, 0, 1], in a file with a long name: scan.nii";
        let plain = paragraphs(message, Some("repair the header"), false);
        let expected = "  \u{d7} spacing must lie in 1e-9..1e6 mm, got [1, 0, 1], in a file with a long name:\n    \
                        scan.nii\n  help: repair the header";
        assert_eq!(plain, expected);
        assert!(plain.lines().all(|line| line.chars().count() <= LINE));
        assert_eq!(paragraphs("no", None, true), "  \x1b[31m\u{d7}\x1b[0m no");
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
