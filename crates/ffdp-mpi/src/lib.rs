//! Ranks that are processes of MPI, on one host or many: a transport of `ffdp-parallel`.
//!
//! One thread speaks MPI, and only that one (`speaker.rs`): what the others want to say or hear goes to it as a
//! `Job`. While a job is under way, or none is, it reports to the next rank that this one is alive, and listens to
//! the one before (`watch.rs`). A rank that is silent for `SILENCE` ends the run everywhere, with its name; one
//! that is killed is noticed by `mpirun` sooner.

#![cfg(feature = "mpi")]

mod speaker;
mod watch;

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use ffdp_image::error::{Error, Result};
use ffdp_parallel::hosts::Ranks;
use speaker::{Job, serve};
pub use watch::SILENCE;

/// This process among those that `mpirun` (or another launcher) has started together.
///
/// All end together: by [`MpiRanks::leave`] when all is done, by [`MpiRanks::abort`] when one cannot go on. One that
/// is dropped before aborts.
#[derive(Debug)]
pub struct MpiRanks {
    rank: usize,
    hosts: Vec<String>,
    jobs: Mutex<Sender<Job>>,
}

/// As the thread that speaks MPI introduces itself.
struct Hello {
    rank: usize,
    hosts: Vec<String>,
}

impl MpiRanks {
    /// Joins the processes that were started with this one, as MPI knows them; `None` if it is alone. Once in a
    /// process.
    ///
    /// # Errors
    /// [`Error::Device`] when MPI was left before, or cannot be started.
    pub fn join() -> Result<Option<Self>> {
        let (hello, hears) = channel();
        let (jobs, queue) = channel();
        let speaker = thread::Builder::new().name("mpi".to_string());
        let spawned = speaker.spawn(move || serve(&queue, &hello));
        spawned.map_err(|reason| Error::device("starting the thread that speaks MPI", reason))?;
        let Ok(Hello { rank, hosts }) = hears.recv() else {
            return Err(Error::device("joining MPI", "it can be joined once in a process"));
        };
        let jobs = Mutex::new(jobs);
        Ok((hosts.len() > 1).then_some(Self { rank, hosts, jobs }))
    }

    /// Waits for all ranks, and ends MPI. What talks afterwards gets an error.
    ///
    /// # Errors
    /// [`Error::Device`] when MPI was left before.
    pub fn leave(&self) -> Result<()> {
        self.ask(Job::Leave)
    }

    /// Ends the processes of all ranks; this one with `code`, `mpirun` with that as well.
    pub fn abort(&self, code: i32) -> ! {
        // The answer is the end.
        let _ = self.ask(|answer| Job::Abort(code, answer));
        std::process::exit(code)
    }

    /// Has the thread that speaks MPI do something, and waits for what comes of it.
    fn ask<T>(&self, job: impl FnOnce(Sender<T>) -> Job) -> Result<T> {
        let gone = || Error::device("talking to other ranks", "MPI has been left");
        let (answer, answers): (Sender<T>, Receiver<T>) = channel();
        self.jobs.lock().expect("a sender does not panic").send(job(answer)).map_err(|_| gone())?;
        answers.recv().map_err(|_| gone())
    }
}

impl Drop for MpiRanks {
    fn drop(&mut self) {
        // After `leave` nobody is there to be notified.
        let _ = self.ask(|answer| Job::Abort(ENDED_EARLY, answer));
    }
}

/// The exit code of a rank that was dropped without a word.
const ENDED_EARLY: i32 = 2;

impl Ranks for MpiRanks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn hosts(&self) -> &[String] {
        &self.hosts
    }

    fn all_gather(&self, numbers: &[f64]) -> Result<Vec<f64>> {
        self.ask(|answer| Job::AllGather(numbers.to_vec(), answer))
    }

    fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let length = self.all_gather(&[bytes.len() as f64])?[0] as usize;
        let buffer = if self.rank == 0 { bytes } else { vec![0; length] };
        self.ask(|answer| Job::Broadcast(buffer, answer))
    }

    fn exchange(
        &self,
        sends: Vec<(usize, Vec<u8>)>,
        receives: &[(usize, usize)],
    ) -> Result<Vec<Vec<u8>>> {
        let receives = receives.to_vec();
        self.ask(|answer| Job::Exchange { sends, receives, answer })
    }
}
