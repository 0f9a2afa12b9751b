//! `ffdp register --pairs`: the pairs of a list, each in its own folder.

use std::fs;
use std::path::Path;

use ffdp_burn::Error;
use serde_json::Value;

use super::args::RegisterArguments;
use super::pair::{Case, Registrations};
use crate::cohort::{Column, Ledger, run as run_cohort};
use crate::failure::{Failure, Outcome};
use crate::pairs;
use crate::printer::Printer;

/// What the summary has of a pair.
const COLUMNS: [Column; 13] = [
    Column { name: "outcome", pointer: "/outcome", digits: Some(0) },
    Column { name: "dice_before", pointer: "/dice/mean/before", digits: Some(4) },
    Column { name: "dice", pointer: "/dice/mean/after", digits: Some(4) },
    Column {
        name: "local_ncc_before",
        pointer: "/similarity/before/local_ncc_foreground",
        digits: None,
    },
    Column {
        name: "local_ncc",
        pointer: "/similarity/after/local_ncc_foreground",
        digits: Some(4),
    },
    Column { name: "folds", pointer: "/folds/voxels", digits: Some(0) },
    Column { name: "displacement_mm", pointer: "/displacement_mm/mean", digits: Some(2) },
    Column { name: "read_s", pointer: "/seconds/read", digits: None },
    Column { name: "start_s", pointer: "/seconds/start", digits: None },
    Column { name: "register_s", pointer: "/seconds/register", digits: Some(2) },
    Column { name: "iterations_s", pointer: "/seconds/iterations", digits: None },
    Column { name: "results_s", pointer: "/seconds/results", digits: Some(2) },
    Column { name: "total_s", pointer: "/seconds/total", digits: Some(2) },
];

/// Registers the pairs of a list that are not done.
///
/// # Errors
/// When the list or the settings cannot be used, a device does not open, or a pair has failed.
pub fn run(request: &RegisterArguments, list: &Path) -> Outcome<()> {
    let printer = Printer::new(request.quiet, request.verbose);
    let registrations = Registrations::new(request, request.mesh.each())?;
    let rows = pairs::read_named(list, &["fixed", "moving"])?;
    let folder = &request.output;
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, "create the output folder", e))?;
    let names = rows.iter().map(|(name, _)| name.clone());
    let mut ledger = Ledger::new("Registrations", &COLUMNS, names, printer);
    let (mut cases, mut numbers) = (Vec::new(), Vec::new());
    for (number, (name, row)) in rows.iter().enumerate() {
        let request = request.of_pair(row, name);
        let case = Case::new(request, &registrations, printer.of_pair(number));
        match case.and_then(|case| Ok((metrics_if_done(&case)?, case))) {
            Err(failure) => ledger.end(number, Err(failure)),
            Ok((Some(metrics), _)) => ledger.kept(number, &metrics),
            Ok((None, case)) => {
                cases.push(case);
                numbers.push(number);
            }
        }
    }
    printer.note(&format!("{} of {} pairs are to be registered", cases.len(), rows.len()));
    let opened = run_cohort(&registrations, &cases, request.mesh.each().len(), |case, done| {
        let metrics = done.and_then(|measures| {
            serde_json::to_value(&measures).map_err(|reason| Failure::defect(reason.to_string()))
        });
        ledger.end(numbers[case], metrics);
    });
    ledger.write(folder, Some("report.html"))?;
    ledger.print(request.json, request.quiet)?;
    printer.note(&format!("results are in {}", folder.display()));
    opened.and_then(|()| ledger.outcome())
}

/// The measures of a pair whose results are there; what cannot be read is done again.
fn metrics_if_done(case: &Case) -> Outcome<Option<Value>> {
    if !case.is_done()? {
        return Ok(None);
    }
    let text = fs::read(&case.files.metrics).ok();
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
}
