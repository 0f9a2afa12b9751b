//! The command line, as clap reads it.

use clap::{CommandFactory, Parser};

pub use crate::commands::Command;
use crate::help::laid_out;

/// Registration of 3-D images: finds the deformation that carries one image onto another.
#[derive(Debug, Parser)]
#[command(name = "ffdp", version, about, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The command line, its help laid out.
pub fn command() -> clap::Command {
    laid_out(Arguments::command())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// With labels for the variable, on a device that every build has.
    fn filled<'a>(words: &[&'a str]) -> Vec<&'a str> {
        let is_given = |at: usize| at > 0 && ["--device", "--devices"].contains(&words[at - 1]);
        let word = |(at, word): (usize, &&'a str)| match is_given(at) {
            true if word.contains(',') => "cpu,cpu",
            true => "cpu",
            false if *word == "$STRUCTURES" => "10,11",
            false => word,
        };
        words.iter().enumerate().map(word).collect()
    }

    #[test]
    fn every_command_of_the_measurements_is_taken() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks");
        let mut count = 0;
        for file in std::fs::read_dir(folder).expect("a folder of the repository") {
            let path = file.expect("it can be listed").path();
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a file of text");
            let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            for command in found["command"].as_array().into_iter().flatten() {
                let command = command.as_str().expect("a command is text");
                let words: Vec<&str> = command.split_whitespace().collect();
                if words[0] != "ffdp" {
                    continue;
                }
                count += 1;
                if let Err(reason) = Arguments::try_parse_from(filled(&words)) {
                    panic!("{}: {command}\n{reason}", path.display());
                }
            }
        }
        assert!(count > 25, "{count} commands");
    }
}
