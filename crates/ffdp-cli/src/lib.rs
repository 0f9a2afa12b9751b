//! What the command line is made of: `ffdp` is [`main`]. The Python package uses it; its API is not stable.
//!
//! parse > run > exit code. Data goes to stdout, talk to stderr. Exit codes: 0 all is well,
//! 1 the input or the request cannot be worked with, 2 a defect of this program or the device, 3 (with --strict) a
//! registration that failed.
//! One file per command in `commands/`; what they share is next to it.
//!
//! # Map of the crate
//! From the command line to the exit code:
//! ```text
//! args > help              the command line, as clap reads it; the layout of its help
//! commands                 the commands, one file or folder each
//! words, nan_policy        arguments of several commands; numbers as other programs write them
//! settings                 stages from a file, from flags, by default
//! pairs, label_names       lists of pairs; names of labels
//! device > mesh            where kernels run; in how many shards
//! hosts                    processes that `mpirun` starts
//! memory, disk             what a run needs, before it starts
//! output > manifest        the folder of a run; which files belong to it
//! checkpoint               what a run has reached, for `--resume`
//! hash, file_version       whether an input is still the same
//! cohort                   many pairs in one process
//! in_parallel              two steps concurrently
//! watch                    progress, log and checkpoints of a registration
//! progress, journal        lines on stderr; `log.jsonl`
//! interrupt, leftovers     Ctrl-C; files of a process that was killed
//! result                   what was found, measured
//! affine_parts             rotation, scale, shear and shift of an affine map
//! report                   `metrics.json`, `report.html`
//! json, names, time        what files and reports are written with
//! printer, failure         stdout and stderr; messages and exit codes
//! ```
//! `main.rs` has the allocator (`huge_pages.rs`). A command of your own is a file of `commands/` and a line in each list
//! of its `mod.rs`. A figure or a table of the report is a file of `report/`.

mod affine_parts;
mod args;
mod checkpoint;
mod cohort;
mod commands;
mod device;
mod disk;
mod failure;
mod file_version;
mod hash;
mod help;
mod hosts;
mod in_parallel;
mod interrupt;
mod journal;
mod json;
mod label_names;
mod leftovers;
mod manifest;
mod memory;
mod mesh;
mod names;
mod nan_policy;
mod output;
mod pairs;
mod printer;
mod progress;
mod report;
mod result;
mod settings;
mod time;
mod watch;
mod words;

pub use commands::apply::InterpolationChoice;
pub use commands::input::{Reading, label_ids, settle_nan, stored_image, weights_where_finite};
pub use commands::register::Drivers;
pub use device::DeviceChoice;
pub use failure::Failure;
pub use nan_policy::NanPolicy;
pub use result::{
    HeldResult, PairVolumes, PredictInputs, Prediction, PredictionMeasures, ResultMeasures,
    ResultRequest,
};
pub use settings::SettingsArguments;
pub use words::in_any_case;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use args::Arguments;
use clap::FromArgMatches;

/// What the user asks for; words of a choice in any case.
fn arguments() -> Result<Arguments, clap::Error> {
    let mut command = words::in_any_case(args::command());
    let found = command.try_get_matches_from_mut(std::env::args_os())?;
    Arguments::from_arg_matches(&found).map_err(|error| error.format(&mut command))
}

/// Reads the words of the command line, does what they ask for, and says how it ended.
pub fn main() -> ExitCode {
    // A layer of Mesa's asks the desktop for the order of GPUs, and complains on stderr where there is no desktop.
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: there is no other thread yet.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
    if let Err(failure) = device::DeviceChoice::of_environment() {
        let code = failure.exit_code();
        printer::failure(failure);
        return ExitCode::from(code);
    }
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version go to stdout and are no failure; clap would exit with 2 otherwise.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    if let Some(note) = device::DeviceChoice::fallback() {
        printer::say(&format!("note: {note}"));
    }
    let run = || arguments.command.run(args::command);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            let code = failure.exit_code();
            printer::failure(failure);
            ExitCode::from(code)
        }
        // The panic's own message is on stderr already.
        Err(_) => {
            printer::say("error: this is a defect of ffdp; please report it with the lines above");
            ExitCode::from(2)
        }
    }
}
