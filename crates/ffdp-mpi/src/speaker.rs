//! The thread that speaks MPI.
//!
//! Nothing blocks: what is under way is asked about again and again, and in between the watch is kept.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};

use mpi::Threading;
use mpi::request::{multiple_scope, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Root, Source};

use super::Hello;
use super::watch::Watch;

/// What the speaker is asked for, and where the answer goes.
pub(super) enum Job {
    /// The numbers of all ranks.
    AllGather(Vec<f64>, Sender<Vec<f64>>),
    /// The bytes of rank 0, as many as these.
    Broadcast(Vec<u8>, Sender<Vec<u8>>),
    /// Bytes to ranks, and numbers of bytes from ranks.
    Exchange {
        sends: Vec<(usize, Vec<u8>)>,
        receives: Vec<(usize, usize)>,
        answer: Sender<Vec<Vec<u8>>>,
    },
    /// The end, once all have asked for it.
    Leave(Sender<()>),
    /// The end.
    Abort(i32, Sender<()>),
}

/// Bytes of a message: MPI counts in `i32`.
const LARGEST_MESSAGE: usize = 1 << 30;

/// Bytes of a host's name in the first message.
const NAME: usize = 256;

/// Tag of planes; beats of the watch have another.
const PLANES: i32 = 1;

/// Joins MPI, says hello and does jobs until it is asked to leave, or that nobody is there to leave.
pub(super) fn serve(jobs: &Receiver<Job>, hello: &Sender<Hello>) {
    // Others may compute meanwhile, but only this thread talks.
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else { return };
    let world = universe.world();
    let hosts = hosts(&world);
    let introduction = Hello { rank: world.rank() as usize, hosts: hosts.clone() };
    if hosts.len() == 1 {
        // MPI has ended before the process goes its way.
        drop(universe);
        let _ = hello.send(introduction);
        return;
    }
    if hello.send(introduction).is_err() {
        return;
    }
    let mut speaker = Speaker { watch: Watch::new(&world, hosts), world };
    loop {
        match jobs.recv_timeout(speaker.watch.pause()) {
            Ok(Job::Leave(answer)) => {
                speaker.leave();
                drop(universe);
                let _ = answer.send(());
                return;
            }
            Ok(job) => speaker.run(job),
            Err(RecvTimeoutError::Timeout) => speaker.watch.keep(&speaker.world),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The host of every rank.
fn hosts(world: &SimpleCommunicator) -> Vec<String> {
    let name = mpi::environment::processor_name().unwrap_or_else(|_| "an unnamed host".to_string());
    let mut mine = [0u8; NAME];
    let length = name.len().min(NAME);
    mine[..length].copy_from_slice(&name.as_bytes()[..length]);
    let mut all = vec![0u8; NAME * world.size() as usize];
    world.all_gather_into(&mine[..], &mut all[..]);
    let text = |name: &[u8]| String::from_utf8_lossy(name).trim_end_matches('\0').to_string();
    all.chunks_exact(NAME).map(text).collect()
}

struct Speaker {
    world: SimpleCommunicator,
    watch: Watch,
}

impl Speaker {
    /// Does a job; who asked for it may be gone.
    fn run(&mut self, job: Job) {
        match job {
            Job::AllGather(mine, answer) => drop(answer.send(self.all_gather(&mine))),
            Job::Broadcast(bytes, answer) => drop(answer.send(self.broadcast(bytes))),
            Job::Exchange { sends, receives, answer } => {
                drop(answer.send(self.exchange(&sends, &receives)));
            }
            Job::Abort(code, _answer) => self.world.abort(code),
            Job::Leave(_) => unreachable!("the loop ends with it"),
        }
    }

    fn all_gather(&mut self, mine: &[f64]) -> Vec<f64> {
        let mut all = vec![0.0; mine.len() * self.world.size() as usize];
        let Self { world, watch } = self;
        if mine.is_empty() {
            return all;
        }
        scope(|scope| {
            let mut request = Some(world.immediate_all_gather_into(scope, mine, &mut all[..]));
            watch.wait(world, || match request.take().map(|request| request.test()) {
                Some(Err(again)) => {
                    request = Some(again);
                    false
                }
                _ => true,
            });
        });
        all
    }

    fn broadcast(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let Self { world, watch } = self;
        for part in bytes.chunks_mut(LARGEST_MESSAGE) {
            scope(|scope| {
                let root = world.process_at_rank(0);
                let mut request = Some(root.immediate_broadcast_into(scope, part));
                watch.wait(world, || match request.take().map(|request| request.test()) {
                    Some(Err(again)) => {
                        request = Some(again);
                        false
                    }
                    _ => true,
                });
            });
        }
        bytes
    }

    fn exchange(
        &mut self,
        sends: &[(usize, Vec<u8>)],
        receives: &[(usize, usize)],
    ) -> Vec<Vec<u8>> {
        let mut came: Vec<Vec<u8>> = receives.iter().map(|(_, length)| vec![0; *length]).collect();
        let Self { world, watch } = self;
        multiple_scope(sends.len() + receives.len(), |scope, requests| {
            // Messages between two ranks arrive in the order in which they were sent.
            for ((rank, _), bytes) in receives.iter().zip(&mut came) {
                let from = world.process_at_rank(*rank as i32);
                for part in bytes.chunks_mut(LARGEST_MESSAGE) {
                    requests.add(from.immediate_receive_into_with_tag(scope, part, PLANES));
                }
            }
            for (rank, bytes) in sends {
                let to = world.process_at_rank(*rank as i32);
                for part in bytes.chunks(LARGEST_MESSAGE) {
                    requests.add(to.immediate_send_with_tag(scope, part, PLANES));
                }
            }
            let mut done = Vec::new();
            watch.wait(world, || requests.test_all(&mut done));
        });
        came
    }

    /// Waits until all ranks want to leave; then nobody is missed any more.
    fn leave(&mut self) {
        let Self { world, watch } = self;
        let mut request = Some(world.immediate_barrier());
        watch.wait(world, || match request.take().map(|request| request.test()) {
            Some(Err(again)) => {
                request = Some(again);
                false
            }
            _ => true,
        });
        watch.end(world);
    }
}
