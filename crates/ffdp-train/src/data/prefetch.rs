//! Preparing images in the background, in order.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use ffdp_image::{Error, Result};

use super::order::Task;
use super::{Preparation, Prepared};

/// How many pairs a thread may be ahead.
const AHEAD: usize = 2;

/// The prepared pairs of a list of tasks, in its order. Thread `w` of W prepares the tasks
/// w, w + W, ..; dropping the queue ends them.
pub struct Queue {
    threads: Vec<Receiver<Result<Prepared>>>,
    next: usize,
}

impl Queue {
    /// Starts the threads.
    pub fn start(preparation: &Arc<Preparation>, tasks: &[Task], threads: usize) -> Self {
        let thread = |first: usize| {
            let (sender, receiver) = sync_channel(AHEAD);
            let tasks: Vec<Task> = tasks.iter().skip(first).step_by(threads).cloned().collect();
            let preparation = preparation.clone();
            thread::spawn(move || {
                for task in tasks {
                    let prepared = preparation.prepare(&task.pair, task.draw.as_ref());
                    // Nobody listens any more: the training has ended early.
                    if sender.send(prepared).is_err() {
                        return;
                    }
                }
            });
            receiver
        };
        Self { threads: (0..threads).map(thread).collect(), next: 0 }
    }

    /// The next pair; waits until it is there.
    ///
    /// # Errors
    /// What went wrong while it was prepared.
    pub fn next(&mut self) -> Result<Prepared> {
        let thread = self.next % self.threads.len();
        self.next += 1;
        self.threads[thread].recv().unwrap_or_else(|_| {
            Err(Error::device("preparing images", "a thread has ended; its message is above"))
        })
    }
}
