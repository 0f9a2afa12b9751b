//! `ffdp.train`: a network that learns to register.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ffdp_train::team::{Share, Team};
use ffdp_train::{Finished, TrainingRun, carry_out};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::errors::{Refusal, Result};
use crate::flags::{TrainFlags, read};
use crate::json::to_python;

/// As the main thread of a process has it: kernels are expanded recursively.
const STACK_BYTES: usize = 8 << 20;
/// How long a signal may wait.
const POLL: Duration = Duration::from_millis(100);

/// What a training has found.
#[derive(Serialize)]
struct Summary<'a> {
    folder: String,
    epoch: usize,
    steps: usize,
    seconds_per_step: f64,
    evaluation: &'a ffdp_train::evaluate::Evaluation,
}

/// Trains a network by settings with the names of the flags of `ffdp train`; see the stubs of the module.
#[pyfunction]
#[pyo3(signature = (**settings))]
pub fn train<'py>(
    py: Python<'py>,
    settings: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let words = read::<TrainFlags>(settings)?;
    let flags = &words.flags;
    let run = TrainingRun::open(&flags.arguments).map_err(|error| words.named(error))?;
    let finished = py.detach(|| {
        let device = flags.computing.device.open()?;
        let team = Team::new(vec![device], Share::Pairs)?;
        interruptible(&run, &team)
    })?;
    let Finished { trained, evaluation } = &finished;
    to_python(
        py,
        &Summary {
            folder: flags.arguments.output.display().to_string(),
            epoch: trained.epoch,
            steps: trained.steps,
            seconds_per_step: trained.seconds_per_step,
            evaluation,
        },
    )
}

/// Trains in a thread of its own, since Python handles signals in this one: Ctrl-C ends the training after the step, and
/// the epochs that are done stay.
fn interruptible(run: &TrainingRun, team: &Team) -> Result<Finished> {
    thread::scope(|scope| {
        let (done, ended) = mpsc::channel();
        let worker = move || {
            let finished = carry_out(run, team);
            done.send(()).expect("it is waited for");
            finished
        };
        let worker = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, worker);
        let worker = worker.expect("the system has a thread to give");
        let mut raised = None;
        while ended.recv_timeout(POLL) == Err(mpsc::RecvTimeoutError::Timeout) {
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                run.ending.ask("interrupted");
                raised.get_or_insert(error);
            }
        }
        let finished = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match raised {
            Some(error) => Err(Refusal::Python(error)),
            None => Ok(finished?),
        }
    })
}
