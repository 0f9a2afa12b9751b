//! A command that several processes do together, as `mpirun` starts them, and how it ends on all of them.
//!
//! What all know of ends it everywhere with one message, of rank 0; what only one has met is said by that one, with its
//! name, and MPI ends the others. Without the feature `mpi` a process is alone.

use std::fmt::Display;
use std::sync::Arc;

use ffdp_parallel::hosts::{Ranks, agree};

use crate::failure::{Failure, Result};

/// This process among those that were started together.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    ranks: Option<Arc<dyn Ranks>>,
}

impl Hosts {
    /// The others, if there are any.
    pub fn ranks(&self) -> Option<&Arc<dyn Ranks>> {
        self.ranks.as_ref()
    }

    /// Whether this is the one that writes and speaks.
    pub fn is_first(&self) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| ranks.rank() == 0)
    }

    /// What this process has, if none has failed.
    ///
    /// # Errors
    /// That of the first process that has one, on all of them.
    pub fn agree<T>(&self, mine: Result<T>) -> Result<T> {
        match &self.ranks {
            Some(ranks) => {
                Ok(agree(ranks.as_ref(), mine.map_err(|failure| WithHelp(failure).to_string()))?)
            }
            None => mine,
        }
    }

    /// The numbers of all processes.
    ///
    /// # Errors
    /// When one is lost.
    pub fn all_gather(&self, numbers: &[f64]) -> Result<Vec<f64>> {
        match &self.ranks {
            Some(ranks) => Ok(ranks.all_gather(numbers)?),
            None => Ok(numbers.to_vec()),
        }
    }
}

/// In one line, as errors of the library are.
struct WithHelp(Failure);

impl Display for WithHelp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.help_text() {
            Some(help) => write!(f, "{}; {help}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Does a command with the processes that were started together with this one.
///
/// # Errors
/// Those of the command where this process is alone; others end here.
#[cfg(not(feature = "mpi"))]
pub fn together(command: impl FnOnce(&Hosts) -> Result<()>) -> Result<()> {
    command(&Hosts { ranks: None })
}

/// Does a command with the processes that were started together with this one.
///
/// # Errors
/// Those of the command where this process is alone; others end here.
#[cfg(feature = "mpi")]
pub fn together(command: impl FnOnce(&Hosts) -> Result<()>) -> Result<()> {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use ffdp_mpi::MpiRanks;

    let Some(ranks) = MpiRanks::join()? else { return command(&Hosts { ranks: None }) };
    let ranks = Arc::new(ranks);
    let hosts = Hosts { ranks: Some(ranks.clone()) };
    let me = ranks.name(ranks.rank());
    match catch_unwind(AssertUnwindSafe(|| command(&hosts))) {
        Ok(Ok(())) => Ok(ranks.leave()?),
        Ok(Err(failure)) if failure.is_of_all() => {
            let code = failure.exit_code();
            if hosts.is_first() {
                // Before any process ends: then the launcher ends the others.
                crate::printer::failure(failure);
            }
            ranks.leave()?;
            std::process::exit(i32::from(code))
        }
        Ok(Err(failure)) => {
            let code = failure.exit_code();
            crate::printer::failure(failure.on_rank(&me));
            ranks.abort(i32::from(code))
        }
        // The panic's own message is on stderr already.
        Err(_) => {
            crate::printer::say(&format!(
                "error: {me}: this is a defect of ffdp; please report it with the lines above"
            ));
            ranks.abort(2)
        }
    }
}
