//! Who is still there: every rank reports to the next one, in a ring, and listens to the one before.

use std::thread;
use std::time::{Duration, Instant};

use ffdp_parallel::hosts::Silence;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};

/// A rank that has sent nothing for so long is lost. Beats come from a thread that does not compute, so that a
/// busy machine delays them by far less.
pub const SILENCE: Duration = Duration::from_secs(20);

/// Between two beats.
const BEAT: Duration = Duration::from_secs(2);

/// How often the watch looks, where nothing else is done.
const LOOK: Duration = Duration::from_millis(250);

/// Exit code where another rank is lost.
const LOST: i32 = 2;

/// Tags of a sign of life, and of the last one.
const ALIVE: i32 = 2;
const BYE: i32 = 3;

/// The ring, as this rank sees it.
pub(super) struct Watch {
    hosts: Vec<String>,
    next: i32,
    before: i32,
    beaten: Instant,
    before_is: Silence,
}

impl Watch {
    pub fn new(world: &SimpleCommunicator, hosts: Vec<String>) -> Self {
        let (rank, count) = (world.rank(), world.size());
        let now = Instant::now();
        let (next, before) = ((rank + 1) % count, (rank + count - 1) % count);
        Self { hosts, next, before, beaten: now, before_is: Silence::new(SILENCE, now) }
    }

    /// How long nothing need be looked at.
    pub fn pause(&self) -> Duration {
        LOOK
    }

    /// Looks now and then, until something is done.
    pub fn wait(&mut self, world: &SimpleCommunicator, mut is_done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_done() {
            if self.before_is.looked().elapsed() >= LOOK {
                self.keep(world);
            }
            pause(start);
        }
    }

    /// Reports and listens; ends all processes if a rank is lost.
    pub fn keep(&mut self, world: &SimpleCommunicator) {
        let now = Instant::now();
        if now - self.beaten >= BEAT {
            self.beaten = now;
            // A byte is on its way at once, whether the other listens or not.
            world.process_at_rank(self.next).send_with_tag(&0u8, ALIVE);
        }
        let before = world.process_at_rank(self.before);
        while before.immediate_probe_with_tag(ALIVE).is_some() {
            let _: (u8, _) = before.receive_with_tag(ALIVE);
            self.before_is.heard(now);
        }
        if self.before_is.is_too_long(now) {
            let (rank, count) = (self.before, self.hosts.len());
            eprintln!(
                "error: rank {rank} of {count} on {} is lost: nothing was received from it for {} s",
                self.hosts[rank as usize],
                SILENCE.as_secs()
            );
            world.abort(LOST);
        }
    }

    /// The last word, after which no message is left: all ranks are here.
    pub fn end(&mut self, world: &SimpleCommunicator) {
        world.process_at_rank(self.next).send_with_tag(&0u8, BYE);
        let before = world.process_at_rank(self.before);
        let start = Instant::now();
        while before.immediate_probe_with_tag(BYE).is_none() {
            self.keep(world);
            pause(start);
        }
        let _: (u8, _) = before.receive_with_tag(BYE);
        while before.immediate_probe_with_tag(ALIVE).is_some() {
            let _: (u8, _) = before.receive_with_tag(ALIVE);
        }
    }
}

/// How long to sleep before asking again, after so much waiting: a message within a host takes microseconds,
/// another rank's computation seconds, and a sleeping thread takes no core from it.
pub(super) fn pause(start: Instant) {
    match start.elapsed() {
        waited if waited < Duration::from_millis(1) => thread::yield_now(),
        waited if waited < Duration::from_millis(100) => thread::sleep(Duration::from_micros(50)),
        _ => thread::sleep(Duration::from_micros(500)),
    }
}
