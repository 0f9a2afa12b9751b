//! `ffdp bench`: methods compared on the same pairs, by the same measures.

mod cost;
mod method;
mod pairs;
mod plots;
mod registration;
mod results;
mod scores;
mod tables;

use clap::{Args, Subcommand};

use crate::failure::Result;
use registration::RegistrationArguments;

/// `ffdp bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// What is compared.
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Methods and resolutions on pairs with labels: accuracy, time and memory, as tables and plots.
    Registration(RegistrationArguments),
}

/// Compares.
pub fn run(request: &BenchArguments) -> Result<()> {
    match &request.command {
        BenchCommand::Registration(request) => registration::run(request),
    }
}
