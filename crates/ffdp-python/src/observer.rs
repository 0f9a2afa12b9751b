//! Who follows a registration: the caller's function, and Ctrl-C.

use std::ops::ControlFlow;

use ffdp_register::Observer;
use ffdp_register::report::{LevelReport, LevelStart, NewtonStep, Progress};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Result;

/// Calls a function of Python with what is known, and ends the run where that raises, returns `False`, or a signal came.
pub struct Watch {
    progress: Option<Py<PyAny>>,
    level: Option<LevelStart>,
    raised: Option<PyErr>,
}

impl Watch {
    /// # Errors
    /// `TypeError` for what cannot be called.
    pub fn new(progress: Option<&Bound<PyAny>>) -> Result<Self> {
        if progress.is_some_and(|progress| !progress.is_callable()) {
            return Err(PyTypeError::new_err("progress must be a function of one argument").into());
        }
        Ok(Self { progress: progress.map(|f| f.clone().unbind()), level: None, raised: None })
    }

    /// What the function raised, or a signal's handler: `KeyboardInterrupt`, as a rule.
    ///
    /// # Errors
    /// That.
    pub fn check(self) -> Result<()> {
        self.raised.map_or(Ok(()), |raised| Err(raised.into()))
    }

    fn report(&mut self, iteration: usize, loss: Option<f64>) -> ControlFlow<()> {
        let goes_on = Python::attach(|py| -> PyResult<bool> {
            py.check_signals()?;
            let (Some(progress), Some(level)) = (&self.progress, &self.level) else {
                return Ok(true);
            };
            let event = PyDict::new(py);
            event.set_item("stage", level.stage)?;
            event.set_item("level", level.index + 1)?;
            event.set_item("levels", level.count)?;
            event.set_item("shrink", level.shrink)?;
            event.set_item("iteration", iteration)?;
            event.set_item("iterations", level.iterations)?;
            event.set_item("loss", loss)?;
            let answer = progress.bind(py).call1((event,))?;
            Ok(answer.is_none() || answer.is_truthy()?)
        });
        match goes_on {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(raised) => {
                // The first one is the reason.
                self.raised.get_or_insert(raised);
                ControlFlow::Break(())
            }
        }
    }
}

impl Observer for Watch {
    fn level_started(&mut self, level: &LevelStart) -> ControlFlow<()> {
        self.level = Some(level.clone());
        self.report(0, None)
    }

    fn losses_read(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.report(progress.iteration, Some(progress.loss))
    }

    fn newton_step(&mut self, _: &NewtonStep) {}

    fn level_finished(&mut self, level: &LevelReport) -> ControlFlow<()> {
        self.report(level.losses.len(), level.losses.last().copied())
    }
}
