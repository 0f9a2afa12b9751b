//! `ffdp register --pairs`: the pairs of a list, each in its own folder.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::args::RegisterArguments;
use super::case::{Case, Registrations};
use super::rehearsal::help;
use crate::cohort::{Cohort, Column, Pair};
use crate::failure::Result;
use crate::hosts::Hosts;
use crate::interrupt::of_command;

/// What the summary has of a pair.
const COLUMNS: [Column; 15] = [
    Column { name: "verdict", pointer: "/verdict", digits: Some(0) },
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
    Column { name: "motion_mm", pointer: "/motion_mm/mean", digits: Some(2) },
    Column { name: "displacement_mm", pointer: "/displacement_mm/mean", digits: Some(2) },
    Column { name: "landmarks_mm", pointer: "/landmarks_mm/after/mean", digits: Some(2) },
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
pub fn run(request: &RegisterArguments, list: &Path) -> Result<()> {
    if let Some(helped) = help(request) {
        return helped;
    }
    let meshes = request.mesh.each();
    let cohort = Cohort {
        list,
        required: &["fixed", "moving"],
        optional: &[
            "fixed_labels",
            "moving_labels",
            "fixed_mask",
            "moving_mask",
            "fixed_channels",
            "moving_channels",
            "initial",
            "fixed_landmarks",
            "moving_landmarks",
        ],
        flags: (
            &request.given,
            &[
                ("label_names", &["fixed_labels"]),
                ("label_terms", &["fixed_labels"]),
                ("landmark_sigma", &["fixed_landmarks"]),
            ],
        ),
        title: "Registrations",
        columns: &COLUMNS,
        folder: Some(&request.output),
        report: Some("report.html"),
        strict: request.strict,
        devices: meshes.len(),
        json: request.print.json,
        quiet: request.print.quiet,
        verbose: request.print.verbose,
    };
    let registrations = Registrations::new(request, meshes, &Hosts::default())?;
    of_command(
        "interrupted: pairs that are done stay; the same command goes on with the others, with --resume also inside a pair",
    );
    cohort.run(&registrations, |row, name, printer| {
        let case = Case::new(request.of_pair(row, name)?, &registrations, printer)?;
        Ok(match metrics_if_done(&case)? {
            Some(metrics) => Pair::Kept(metrics),
            None => Pair::Open(case),
        })
    })
}

/// The measures of a pair whose results are there; what cannot be read is done again.
fn metrics_if_done(case: &Case) -> Result<Option<Value>> {
    if !case.is_done()? {
        return Ok(None);
    }
    let text = fs::read(&case.files.metrics).ok();
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
}
