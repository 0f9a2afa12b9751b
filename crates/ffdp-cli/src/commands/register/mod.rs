//! `ffdp register`: read, find the transform, measure, write.
//!
//! [`pair`] has the steps of a pair; one pair and a list of them take the same way, [`crate::cohort`]. `slabs` is the other one, for
//! images that are never whole in memory.

mod args;
mod cohort;
mod files;
mod inputs;
mod pair;
mod rehearsal;
mod results;
mod slabs;

pub use self::args::{ImageFormat, RegisterArguments};
pub use self::rehearsal::shortened;

use ffdp_register::{Assessment, Verdict};

use self::pair::{Case, Registrations};
use self::rehearsal::help;
use crate::cohort::run_one;
use crate::failure::{Failure, Result};
use crate::hosts::together;
use crate::memory::{Plan, Sizes};
use crate::printer::{Printer, print_to_stdout, summarise};
use crate::report::summary;

/// Registers a pair or several and writes the results, with the processes that were started together with this one.
pub fn run(request: &RegisterArguments) -> Result<()> {
    if request.plan {
        return if request.slabs { slabs::predict(request) } else { predict(request) };
    }
    together(|hosts| match hosts.ranks() {
        None if request.slabs => slabs::run(request, hosts),
        None => match &request.pairs {
            Some(list) => cohort::run(request, list),
            None => register_whole(request),
        },
        Some(ranks) if !request.slabs => {
            let refused = Failure::user(
                format!("{} processes register slab by slab, got no --slabs", ranks.count()),
                "add --slabs, or start one process",
            );
            hosts.agree(Err(refused))
        }
        Some(_) => slabs::run(request, hosts),
    })
}

/// Prints what a run would take.
fn predict(request: &RegisterArguments) -> Result<()> {
    let settings = request.resolve()?;
    let labels = request.moving_labels.is_some();
    let sizes = Sizes::of_files(request.fixed(), request.moving(), labels)?;
    let device = request.mesh.first();
    Plan::new(&settings, &sizes, device).asking(device).print(request.json)
}

/// Registers one pair whose images are read whole: a cohort of one.
fn register_whole(request: &RegisterArguments) -> Result<()> {
    if let Some(helped) = help(request) {
        return helped;
    }
    let printer = Printer::new(request.quiet, request.verbose);
    let registrations = Registrations::new(request, vec![request.mesh.clone()])?;
    let case = Case::new(request.clone(), &registrations, printer)?;
    let measures = run_one(&registrations, case)?;
    printer.note(&format!("results are in {}", request.output.display()));
    match request.json {
        true => print_to_stdout(&pair::json(&measures)?),
        false => summarise(request.quiet, || summary(&measures)),
    }?;
    strictly(request, &measures.record.assessment)
}

/// With --strict a result that failed is a failure of the command.
fn strictly(request: &RegisterArguments, assessment: &Assessment) -> Result<()> {
    match assessment.verdict {
        Verdict::Failed if request.strict => Err(Failure::result(
            format!("the registration failed: {}", assessment.reasons.join("; ")),
            format!("the results and a report are in {}", request.output.display()),
        )),
        _ => Ok(()),
    }
}
