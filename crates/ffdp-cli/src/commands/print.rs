//! The flags that say what a registration prints.

use clap::{ArgAction, Args};

use crate::printer::Printer;

/// What is printed.
#[derive(Clone, Copy, Debug, Args)]
pub struct PrintArguments {
    /// Print the predicted memory and disk space only.
    #[arg(long)]
    pub plan: bool,
    /// Print metrics.json (or the plan) instead of a summary.
    #[arg(long)]
    pub json: bool,
    /// Print errors only, and what --json asks for.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more: of a registration every loss that is read, and the settings.
    #[arg(short, long, action = ArgAction::SetTrue)]
    pub verbose: bool,
}

impl PrintArguments {
    pub fn printer(&self) -> Printer {
        Printer::new(self.quiet, self.verbose)
    }
}
