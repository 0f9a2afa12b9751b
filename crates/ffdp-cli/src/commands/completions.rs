//! `ffdp completions`: what a shell needs to complete our flags.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::failure::Result;
use crate::printer::print_bytes_to_stdout;

/// `ffdp completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script.
pub fn run(request: &CompletionsArguments, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    generate(request.shell, &mut command, "ffdp", &mut script);
    print_bytes_to_stdout(&script)
}
