//! Who follows a template: lines on stderr, the log, and pictures of the rounds.

use std::ops::ControlFlow;

use ffdp_groups::ImageReport;
use ffdp_groups::template::{Excluded, RoundKind, RoundReport, TemplateObserver};
use ffdp_image::image::Volume;
use ffdp_register::verdict::Assessment;
use serde_json::json;

use crate::failure::Failure;
use crate::output::OutputFolder;
use crate::printer::Printer;
use crate::report::slices::{Panels, Pictures, Quantity};
use crate::report::template::name_of_round;

/// Everybody who follows it.
pub struct Watch {
    pub output: OutputFolder,
    /// Of each round, its name and the template.
    pub rounds: Vec<(String, Pictures)>,
    /// Why it was ended.
    pub failure: Option<Failure>,
    printer: Printer,
    /// Images that take part, and of them those that are registered in this round.
    used: usize,
    registered: usize,
    /// The name of the round, of how many at most.
    round: String,
}

impl Watch {
    pub fn new(output: OutputFolder, printer: Printer) -> Self {
        let (rounds, failure, round) = (Vec::new(), None, String::new());
        Self { output, rounds, failure, printer, used: 0, registered: 0, round }
    }

    fn end_if(&mut self, failed: Result<(), Failure>) -> ControlFlow<()> {
        match failed {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failure = Some(failure);
                ControlFlow::Break(())
            }
        }
    }
}

impl TemplateObserver for Watch {
    fn surveyed(&mut self, used: usize, excluded: &[Excluded]) -> ControlFlow<()> {
        self.used = used;
        // From now on files are written.
        let begun = self.output.begin();
        for Excluded { name, reason, .. } in excluded {
            self.printer.warning(&format!("{name} is left out: {reason}"));
            self.output.journal().event("left_out", json!({"name": name, "reason": reason}));
        }
        self.end_if(begun)
    }

    fn round_started(&mut self, round: usize, rounds: usize, kind: RoundKind) -> ControlFlow<()> {
        self.registered = 0;
        self.round = format!("round {round}/{rounds} ({})", name_of_kind(kind));
        self.output
            .journal()
            .event("round", json!({"round": round, "rounds": rounds, "kind": kind}));
        ControlFlow::Continue(())
    }

    fn registered(&mut self, report: &ImageReport, _: Option<&Assessment>) -> ControlFlow<()> {
        self.registered += 1;
        let ImageReport { name, is_used, reasons, loss, seconds, .. } = report;
        let loss = loss
            .map_or(String::new(), |[before, after]| format!(", loss {before:.5} -> {after:.5}"));
        let (round, number, of) = (&self.round, self.registered, self.used);
        self.printer.note(&format!("{round}: [{number}/{of}] {name}{loss}, {seconds:.1} s"));
        if !is_used {
            let reasons = reasons.join("; ");
            self.printer.warning(&format!("{name} is left out of this round: {reasons}"));
        }
        self.output.journal().event("registered", json!(report));
        ControlFlow::Continue(())
    }

    fn round_finished(&mut self, report: &RoundReport, template: &Volume) -> ControlFlow<()> {
        let RoundReport { change, mean_map_mm, sharpness, spread, seconds, .. } = report;
        let change = change.map_or(String::new(), |change| format!("change {change:.4}, "));
        let name = name_of_round(report);
        self.printer.note(&format!(
            "{name}: {change}mean map {mean_map_mm:.2} mm, sharpness {:.4}, spread {spread:.3}, {seconds:.1} s",
            sharpness[1]
        ));
        self.output.journal().event("round_end", json!(report));
        // All rounds through the same planes.
        let drawn = drawn(template);
        match drawn {
            Ok(pictures) => {
                self.rounds.push((name, pictures));
                ControlFlow::Continue(())
            }
            Err(failure) => self.end_if(Err(failure)),
        }
    }
}

fn drawn(template: &Volume) -> Result<Pictures, Failure> {
    let grid = &template.geometry;
    let mut panels = Panels::new(grid, grid.center_mm(), "middle");
    panels.add(Quantity::Fixed, 0, &template.data);
    Ok(panels.draw())
}

fn name_of_kind(kind: RoundKind) -> &'static str {
    match kind {
        RoundKind::Start => "start",
        RoundKind::Linear => "linear",
        RoundKind::Deformable => "deformable",
    }
}
