//! The next pairs are read and the last ones written while one is computed.
//!
//! Every device has a thread, which opens it and computes on it (a thread's memory on a device is its own).
//! Concurrently one thread reads ahead, and two write what is done. Nothing waits between them: a pair that was read
//! waits in its thread until a device is free, so that what is in memory does not grow with the number of pairs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Scope};

use ffdp_image::io::available_memory_bytes;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::failure::{Failure, Result};
use crate::in_parallel::{STACK_BYTES, lock};

/// Threads that write what a device has computed: measuring and compressing takes longer than a GPU needs for the next pair.
const WRITERS: usize = 2;

/// What is done with every pair.
pub trait Steps: Sync {
    type Pair: Sync;
    /// Stays in the thread that has opened it.
    type Device;
    type Read: Send;
    type Computed: Send;
    type Done: Send;

    /// Opens the device with this number, before its first pair, which may be the one that is given. Meanwhile pairs
    /// are read.
    fn open(&self, device: usize, pair: &Self::Pair) -> Result<Self::Device>;
    /// Host memory that a pair takes, at its peak.
    fn host_bytes(&self, pair: &Self::Pair) -> u64;
    /// What is done on the host before a device is needed.
    fn read(&self, pair: &Self::Pair) -> Result<Self::Read>;
    /// What is done on the device.
    fn compute(
        &self,
        pair: &Self::Pair,
        read: Self::Read,
        device: &mut Self::Device,
    ) -> Result<Self::Computed>;
    /// What is done on the host when the device is no longer needed.
    fn finish(&self, pair: &Self::Pair, computed: Self::Computed) -> Result<Self::Done>;
}

/// Does all steps of all pairs on so many devices, and says of each pair how it ended, in the order in which they end.
///
/// # Errors
/// When a device cannot be opened; pairs that were not begun by then are not done. A pair that fails, or panics, is
/// reported to `ended`.
pub fn run<S: Steps>(
    steps: &S,
    pairs: &[S::Pair],
    devices: usize,
    ended: impl FnMut(usize, Result<S::Done>) + Send,
) -> Result<()> {
    let Some(first) = pairs.first() else { return Ok(()) };
    let devices = devices.min(pairs.len());
    let line = Line {
        steps,
        pairs,
        pools: (pairs.len() > 1).then(Pools::new).transpose()?,
        next: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        memory: Memory::new(),
    };
    let line = &line;
    let (ended, unopened) = (Mutex::new(ended), Mutex::new(None));
    let (to_devices, read) = sync_channel(0);
    let (to_writers, computed) = sync_channel(0);
    let (read, computed) = (Mutex::new(read), Mutex::new(computed));
    thread::scope(|scope| {
        for number in 0..devices {
            let to_devices = to_devices.clone();
            spawn(scope, move || line.reads(&to_devices));
            let (read, to_writers, unopened) = (&read, to_writers.clone(), &unopened);
            spawn(scope, move || {
                let opened = caught(|| line.steps.open(number, first));
                let device = opened.map_err(|failure| {
                    line.stopped.store(true, Ordering::Relaxed);
                    lock(unopened).get_or_insert(failure);
                });
                line.computes(device.ok(), read, &to_writers);
            });
        }
        // Theirs are the last ones: when they end, so does who listens to them.
        drop((to_devices, to_writers));
        for _ in 0..(WRITERS * devices).min(pairs.len()) {
            spawn(scope, || line.writes(&computed, &ended));
        }
    });
    lock(&unopened).take().map_or(Ok(()), Err)
}

/// What the threads share.
struct Line<'a, S: Steps> {
    steps: &'a S,
    pairs: &'a [S::Pair],
    /// `None` of one pair, none of whose steps waits for another.
    pools: Option<Pools>,
    /// The pair that is read next.
    next: AtomicUsize,
    stopped: AtomicBool,
    memory: Memory,
}

/// A pair by its number, with what a step has made of it.
type Handed<T> = (usize, Result<T>);

impl<S: Steps> Line<'_, S> {
    fn reads(&self, to_devices: &SyncSender<Handed<S::Read>>) {
        while !self.stopped.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(pair) = self.pairs.get(number) else { return };
            self.memory.take(self.steps.host_bytes(pair));
            let read = || caught(|| self.steps.read(pair));
            let read = self.pools.as_ref().map_or_else(read, |pools| pools.reading.install(read));
            let _ = to_devices.send((number, read));
        }
    }

    /// Without a device what was read is dropped.
    fn computes(
        &self,
        mut device: Option<S::Device>,
        read: &Mutex<Receiver<Handed<S::Read>>>,
        to_writers: &SyncSender<Handed<S::Computed>>,
    ) {
        loop {
            let Ok((number, read)) = lock(read).recv() else { return };
            let pair = &self.pairs[number];
            let computed = match (read, &mut device) {
                (Err(failure), _) => Err(failure),
                (Ok(read), Some(device)) => caught(|| self.steps.compute(pair, read, device)),
                (Ok(_), None) => {
                    self.memory.give_back(self.steps.host_bytes(pair));
                    continue;
                }
            };
            let _ = to_writers.send((number, computed));
        }
    }

    fn writes(
        &self,
        computed: &Mutex<Receiver<Handed<S::Computed>>>,
        ended: &Mutex<impl FnMut(usize, Result<S::Done>)>,
    ) {
        loop {
            let Ok((number, computed)) = lock(computed).recv() else { return };
            let pair = &self.pairs[number];
            let finish = || computed.and_then(|done| caught(|| self.steps.finish(pair, done)));
            let done = match &self.pools {
                Some(pools) => pools.writing.install(finish),
                None => finish(),
            };
            self.memory.give_back(self.steps.host_bytes(pair));
            lock(ended)(number, done);
        }
    }
}

/// Threads of their own for what is done during a computation: in one pool it would wait until a file is unpacked.
struct Pools {
    reading: ThreadPool,
    writing: ThreadPool,
}

impl Pools {
    fn new() -> Result<Self> {
        let pool = || {
            let built = ThreadPoolBuilder::new().num_threads(rayon::current_num_threads()).build();
            built.map_err(|reason| {
                Failure::user(
                    format!("threads could not be started: {reason}"),
                    "allow for more of them",
                )
            })
        };
        Ok(Self { reading: pool()?, writing: pool()? })
    }
}

/// Host memory: a pair is not begun while those under way need so much that it might not fit.
struct Memory {
    available: Option<u64>,
    /// What pairs under way take, and how many there are.
    taken: Mutex<(u64, usize)>,
    given_back: Condvar,
}

impl Memory {
    fn new() -> Self {
        let available = available_memory_bytes();
        Self { available, taken: Mutex::default(), given_back: Condvar::new() }
    }

    /// Waits until there is room. A pair that is alone always has it: what does not fit at all is refused elsewhere.
    fn take(&self, bytes: u64) {
        let short = |&mut (taken, pairs): &mut (u64, usize)| {
            pairs > 0 && self.available.is_some_and(|available| taken + bytes > available)
        };
        let taken = self.given_back.wait_while(lock(&self.taken), short);
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        *taken = (taken.0 + bytes, taken.1 + 1);
    }

    fn give_back(&self, bytes: u64) {
        let mut taken = lock(&self.taken);
        *taken = (taken.0 - bytes, taken.1 - 1);
        self.given_back.notify_all();
    }
}

/// A panic is the failure of its pair; its message is on stderr already.
fn caught<T>(step: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
        Err(Failure::defect("this is a defect of ffdp, with the message above")
            .with_help("please report it with that message"))
    })
}

fn spawn<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
    let spawned = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
    spawned.expect("the system has threads to give, as for any parallel work");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Pairs are numbers; what is read of one counts until it is done.
    #[derive(Default)]
    struct Counted {
        alive: AtomicUsize,
        most: AtomicUsize,
        bytes: u64,
        no_device: bool,
    }

    /// Bytes in memory.
    struct Held<'a>(&'a Counted, u32);

    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.alive.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl<'a> Steps for &'a Counted {
        type Pair = u32;
        type Device = usize;
        type Read = Held<'a>;
        type Computed = Held<'a>;
        type Done = (u32, thread::ThreadId);

        fn open(&self, device: usize, _: &u32) -> Result<usize> {
            match self.no_device && device == 1 {
                true => Err(Failure::user("no such device", "use another")),
                false => Ok(device),
            }
        }

        fn host_bytes(&self, _: &u32) -> u64 {
            self.bytes
        }

        fn read(&self, &pair: &u32) -> Result<Held<'a>> {
            let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(alive, Ordering::SeqCst);
            let held = Held(self, pair);
            match pair % 10 {
                3 => Err(Failure::user("unreadable", "read another")),
                4 => panic!("while reading (expected by the test)"),
                _ => Ok(held),
            }
        }

        fn compute(&self, &pair: &u32, read: Held<'a>, _: &mut usize) -> Result<Held<'a>> {
            assert_eq!(read.1, pair);
            match pair % 10 {
                5 => panic!("while computing (expected by the test)"),
                _ => Ok(read),
            }
        }

        fn finish(&self, &pair: &u32, computed: Held<'a>) -> Result<(u32, thread::ThreadId)> {
            thread::sleep(Duration::from_millis(1));
            match pair % 10 {
                6 => Err(Failure::user("the disk is full", "empty it")),
                _ => Ok((computed.1, thread::current().id())),
            }
        }
    }

    #[test]
    fn what_fails_or_panics_in_any_step_is_reported_and_the_others_go_on() {
        let pairs: Vec<u32> = (0..30).collect();
        for devices in [1, 3] {
            let counted = Counted::default();
            let mut seen = vec![0; pairs.len()];
            run(&&counted, &pairs, devices, |number, done| {
                seen[number] += 1;
                let failed = matches!(number % 10, 3..=6);
                assert_eq!(done.is_err(), failed, "pair {number}");
                if let Ok((pair, _)) = done {
                    assert_eq!(pair, pairs[number]);
                }
            })
            .expect("devices open");
            assert_eq!(seen, [1; 30]);
            assert_eq!(counted.alive.load(Ordering::SeqCst), 0, "nothing stays in memory");
        }
    }

    #[test]
    fn what_is_in_memory_does_not_grow_with_the_pairs() {
        let count = |pairs: u32, bytes| {
            let counted = Counted { bytes, ..Counted::default() };
            run(&&counted, &(0..pairs).map(|k| 10 * k).collect::<Vec<_>>(), 1, |_, _| ())
                .expect("devices open");
            counted.most.into_inner()
        };
        // One waits, one is computed, and each writer has one.
        assert!(count(60, 0) <= 2 + WRITERS);
        if available_memory_bytes().is_some() {
            assert_eq!(count(10, u64::MAX / 4), 1, "one after the other where memory is short");
        }
    }

    #[test]
    fn a_device_that_does_not_open_ends_the_run_and_every_thread() {
        let counted = Counted { no_device: true, ..Counted::default() };
        let pairs: Vec<u32> = (0..50).map(|k| 10 * k).collect();
        let failure = run(&&counted, &pairs, 2, |_, _| ()).expect_err("one of two");
        assert!(failure.to_string().contains("no such device"), "{failure}");
        assert_eq!(counted.alive.load(Ordering::SeqCst), 0);
    }
}
