//! `ffdp register`: read, find the transform, measure, write.
//!
//! [`pair`] has the steps of a pair, held whole or read slab by slab; one pair and a list of them take the same way.

mod args;
mod case;
mod channels;
mod cohort;
mod files;
mod inputs;
mod pair;
mod rehearsal;
mod results;
mod series;

pub use self::args::{Drivers, ImageFormat, RegisterArguments};
pub use self::rehearsal::shortened;

use ffdp_register::verdict::{Assessment, Verdict};

use self::case::{Case, Registrations};
use self::rehearsal::help;
use crate::cohort::run_one;
use crate::failure::{Failure, Result};
use crate::hosts::{Hosts, together};
use crate::json::to_json;
use crate::memory::Held;
use crate::printer::{print_to_stdout, summarise};
use crate::report::summary;

/// Registers a pair or several and writes the results, with the processes that were started together with this one.
pub fn run(request: &RegisterArguments) -> Result<()> {
    request.check_slabs()?;
    if request.is_series()? {
        return series::run(request);
    }
    if request.print.plan {
        return predict(request);
    }
    together(|hosts| match (hosts.ranks(), &request.pairs) {
        (Some(ranks), _) if !request.slabs => {
            let refused = Failure::user(
                format!("{} processes register slab by slab, got no --slabs", ranks.count()),
                "add --slabs, or start one process",
            );
            hosts.agree(Err(refused))
        }
        (None, Some(list)) => cohort::run(request, list),
        _ => register(request, hosts),
    })
}

/// Prints what a run of one process would take, and refuses what names, headers and small files refuse of it.
fn predict(request: &RegisterArguments) -> Result<()> {
    let hosts = Hosts::default();
    let all = Registrations::new(request, vec![request.mesh.clone()], &hosts)?;
    let case = Case::new(request.clone(), &all, request.print.printer())?;
    let plan = match case.plan {
        Some(plan) => plan,
        None => {
            let placement = request.mesh.placement(&all.settings, &case.sizes, &hosts)?;
            request.planned(&all.settings, &case.sizes, Held::Slabs(&placement))?
        }
    };
    plan.asking(request.mesh.first()).print(request.print.json)
}

/// Registers one pair: a cohort of one or, slab by slab, step after step.
fn register(request: &RegisterArguments, hosts: &Hosts) -> Result<()> {
    if let Some(helped) = help(request) {
        return helped;
    }
    let printer = request.print.printer();
    let registrations = Registrations::new(request, vec![request.mesh.clone()], hosts);
    let registrations = hosts.agree(registrations)?;
    let measures = match request.slabs {
        true => registrations.run_in_turn(request)?,
        false => {
            let case = Case::new(request.clone(), &registrations, printer)?;
            Some(run_one(&registrations, case)?)
        }
    };
    let Some(measures) = measures else { return Ok(()) };
    printer.note(&format!("results are in {}", request.output.display()));
    match request.print.json {
        true => print_to_stdout(&to_json(&measures)?),
        false => summarise(request.print.quiet, || summary(&measures)),
    }?;
    let Assessment { verdict, reasons, .. } = &measures.result.assessment;
    strictly(request, *verdict, || format!("the registration failed: {}", reasons.join("; ")))
}

/// With --strict a result that failed is a failure of the command.
fn strictly(
    request: &RegisterArguments,
    verdict: Verdict,
    reason: impl FnOnce() -> String,
) -> Result<()> {
    match verdict {
        Verdict::Failed if request.strict => Err(Failure::result(
            reason(),
            format!("the results and a report are in {}", request.output.display()),
        )),
        _ => Ok(()),
    }
}
