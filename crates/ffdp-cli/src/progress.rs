//! The progress of a registration on stderr: a bar on a terminal, a line per level elsewhere.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ffdp_register::{
    Observer,
    report::{LevelReport, LevelStart, NewtonStep, Progress, Stop},
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::printer::{Printer, Verbosity};

/// Shows what a registration is doing.
pub struct ProgressPrinter {
    printer: Printer,
    draw: bool,
    bar: Option<ProgressBar>,
    level: Option<LevelStart>,
    start: Instant,
    /// When the last line was written.
    said: Instant,
}

/// Without a bar, a line is written at least so often.
const SILENCE: Duration = Duration::from_secs(10);

impl ProgressPrinter {
    /// An observer that talks through `printer`.
    pub fn new(printer: Printer) -> Self {
        let draw = std::io::stderr().is_terminal()
            && printer.verbosity() == Verbosity::Normal
            && !printer.is_of_several();
        Self { printer, draw, bar: None, level: None, start: Instant::now(), said: Instant::now() }
    }

    fn title(&self) -> String {
        self.level.as_ref().map_or_else(String::new, |level| {
            let [x, y, z] = level.size;
            let (number, count, shrink) = (level.index + 1, level.count, level.shrink);
            format!("{} level {number}/{count} (shrink {shrink}, {x}x{y}x{z})", level.stage)
        })
    }
}

impl Observer for ProgressPrinter {
    fn level_started(&mut self, level: &LevelStart) -> ControlFlow<()> {
        self.start = Instant::now();
        self.said = self.start;
        self.level = Some(level.clone());
        if self.draw {
            let bar = ProgressBar::new(level.iterations as u64).with_message(self.title());
            let template = "{msg} [{bar:24}] {pos}/{len} {prefix} {per_sec} eta {eta}";
            let style = ProgressStyle::with_template(template).expect("the template is valid");
            bar.set_style(style.progress_chars("=> "));
            self.bar = Some(bar);
        }
        ControlFlow::Continue(())
    }

    fn losses_read(&mut self, progress: &Progress) -> ControlFlow<()> {
        if let Some(bar) = &self.bar {
            bar.set_prefix(format!("loss {:.5}", progress.loss));
            bar.set_position(progress.iteration as u64);
        }
        let &Progress { iteration, iterations, loss, .. } = progress;
        let rate = iteration as f64 / self.start.elapsed().as_secs_f64();
        let left = (iterations - iteration) as f64 / rate;
        let line = format!(
            "{}: iteration {iteration}/{iterations}, loss {loss:.6}, {rate:.2} it/s, at most \
             {left:.0} s left on this level",
            self.title()
        );
        if self.bar.is_none() && self.said.elapsed() >= SILENCE {
            self.said = Instant::now();
            self.printer.note(&line);
        } else {
            self.printer.detail(&line);
        }
        ControlFlow::Continue(())
    }

    fn newton_step(&mut self, step: &NewtonStep) {
        let (count, left) = (step.krylov_iterations(), step.residuals.last());
        self.printer.detail(&format!(
            "{}: beta {:.1e}, loss {:.6}, gradient {:.1e}, {count} iterations to {:.1e}, step {}",
            self.title(),
            step.beta,
            step.loss,
            step.gradient,
            left.copied().unwrap_or(1.0),
            step.step.map_or("none".to_string(), |step| format!("{step:.3}")),
        ));
    }

    fn level_finished(&mut self, level: &LevelReport) -> ControlFlow<()> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let why = match level.stop {
            Stop::Converged => "converged",
            Stop::IterationsSpent => "all iterations done",
            Stop::Cancelled => "ended early",
        };
        let (count, seconds) = (level.losses.len(), level.seconds);
        let losses = match (level.losses.first(), level.losses.last()) {
            (Some(first), Some(last)) => format!("loss {first:.5} -> {last:.5}, "),
            _ => String::new(),
        };
        let title = self.title();
        let text = format!("{title}: {losses}{count} iterations in {seconds:.1} s, {why}");
        self.printer.note(&text);
        ControlFlow::Continue(())
    }
}
