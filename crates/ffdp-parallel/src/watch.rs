//! What ends a run whose devices deadlock.
//!
//! A sum over devices runs on each of them until all have joined it. If one cannot (NCCL has no memory left for its own
//! buffers, a driver call of one waits for a kernel of another), the others wait without an error, and so does the host
//! when it next asks for a number. Nothing calls such a sum back: the process ends, with an error that names the devices.
//! Of several processes, `mpirun` then ends the others; that a whole process is silent its neighbour notices
//! (`ffdp-mpi`), by the same [`Silence`].

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use std::{iter, slice, thread};

use burn::tensor::{Device, StreamId};

use super::joined::{fences, name_of};

/// How long devices may wait for each other while nothing proceeds. What a GPU has ahead of it when it joins a sum are
/// the at most some thousand launches of CubeCL's and CUDA's queues: seconds at 4 G voxels.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);

/// How often is asked whether what devices do together has ended. Each question is a wait in the driver, which launches
/// of the same device are slower for.
const ASK: Duration = Duration::from_millis(100);

/// Who did not look for so long was itself stopped or suspended, and says nothing about others.
const AWAY: Duration = Duration::from_secs(6);

/// Exit code of a run that was ended.
const STALLED: i32 = 2;

/// What exit handlers of the driver may take.
const EXIT: Duration = Duration::from_secs(5);

/// How long somebody has given no sign of life, without the time in which this process was stopped itself.
#[derive(Clone, Debug)]
pub struct Silence {
    limit: Duration,
    heard: Instant,
    looked: Instant,
}

impl Silence {
    /// It may last as long as `limit`, from `now` on.
    pub fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, heard: now, looked: now }
    }

    /// A sign of life.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When [`Silence::is_too_long`] was asked last.
    pub fn looked(&self) -> Instant {
        self.looked
    }

    /// Whether it has lasted too long; ask often.
    pub fn is_too_long(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.looked) > AWAY {
            self.heard = now;
        }
        self.looked = now;
        now.saturating_duration_since(self.heard) > self.limit
    }
}

/// What devices do together and has not ended.
struct Waiting {
    next: u64,
    /// By number, in the order in which they began.
    all: BTreeMap<u64, String>,
    silence: Silence,
}

impl Waiting {
    fn new(limit: Duration, now: Instant) -> Self {
        Self { next: 0, all: BTreeMap::new(), silence: Silence::new(limit, now) }
    }

    fn begin(&mut self, what: String, now: Instant) -> u64 {
        if self.all.is_empty() {
            self.silence.heard(now);
        }
        self.next += 1;
        self.all.insert(self.next, what);
        self.next
    }

    fn end(&mut self, number: u64, now: Instant) {
        self.all.remove(&number);
        self.silence.heard(now);
    }

    /// What has waited too long.
    fn stalled(&mut self, now: Instant) -> Option<String> {
        let is_too_long = self.silence.is_too_long(now);
        let (_, what) = self.all.first_key_value().filter(|_| is_too_long)?;
        Some(format!(
            "{what} did not proceed for {} s: one of the devices does not take part, and the others wait for it. \
             Memory that is nearly full is the usual reason: use more devices or shards, or give less of it away",
            self.silence.limit.as_secs_f64()
        ))
    }
}

/// The watch over all that devices of this process do together.
#[derive(Clone)]
struct Watch {
    waiting: Arc<Mutex<Waiting>>,
    /// What ends when devices have done what they were given.
    ends: Sender<Enqueued>,
}

/// What has a number, and how to wait for its end: until devices have done what they were given on a stream.
struct Enqueued {
    number: u64,
    stream: StreamId,
    devices: Vec<Device>,
}

/// Until the devices have done all that they were given before; each is asked once for each of its streams.
fn wait_for(given: &[Enqueued]) {
    let mut asked: Vec<(StreamId, &Device)> = Vec::new();
    for Enqueued { stream, devices, .. } in given {
        for device in devices.iter().map(|device| (*stream, device)) {
            if !asked.contains(&device) {
                asked.push(device);
            }
        }
    }
    let fence =
        |(stream, device): (StreamId, &Device)| stream.executes(|| fences(slice::from_ref(device)));
    let fences: Vec<_> = asked.into_iter().flat_map(fence).collect();
    fences.into_iter().for_each(|pass| pass());
}

/// How often a watch does what, and how long something may last.
struct Times {
    limit: Duration,
    look: Duration,
    ask: Duration,
}

impl Watch {
    /// `wait` waits for the end of what was given; `end` is called with what waits longer than the limit, once.
    fn start(
        Times { limit, look, ask }: Times,
        wait: impl Fn(&[Enqueued]) + Send + 'static,
        end: impl FnOnce(String) + Send + 'static,
    ) -> Self {
        let waiting = Arc::new(Mutex::new(Waiting::new(limit, Instant::now())));
        let (ends, given) = channel::<Enqueued>();
        let watch = Self { waiting, ends };
        let (ended, looking) = (watch.clone(), Arc::downgrade(&watch.waiting));
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.to_string());
            thread.spawn(work).expect("a process has room for a thread");
        };
        // A fence of a device that does not proceed is never passed: who looks is another.
        let waiting = ended.waiting;
        let pass = move || {
            while let Ok(first) = given.recv() {
                thread::sleep(ask);
                let given: Vec<Enqueued> = iter::once(first).chain(given.try_iter()).collect();
                // Whatever fails there is said by who reads numbers.
                let _ = catch_unwind(AssertUnwindSafe(|| wait(&given)));
                let mut waiting = lock(&waiting);
                given.iter().for_each(|given| waiting.end(given.number, Instant::now()));
            }
        };
        spawn("ffdp-fences", Box::new(pass));
        let look = move || {
            while let Some(waiting) = looking.upgrade() {
                if let Some(what) = lock(&waiting).stalled(Instant::now()) {
                    return end(what);
                }
                drop(waiting);
                thread::sleep(look);
            }
        };
        spawn("ffdp-watch", Box::new(look));
        watch
    }

    fn begin(&self, what: String) -> Ticket {
        let number = lock(&self.waiting).begin(what, Instant::now());
        Ticket { watch: self.clone(), number: Some(number) }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().expect("nobody panics with it")
}

/// Something that devices do together; it has ended when this is dropped.
#[must_use]
pub(super) struct Ticket {
    watch: Watch,
    number: Option<u64>,
}

impl Ticket {
    /// It ends a little after the devices have done all that this thread has given them so far; nobody waits for that
    /// here.
    pub fn ends_after(mut self, devices: &[Device]) {
        if let Some(number) = self.number.take() {
            let (stream, devices) = (StreamId::current(), devices.to_vec());
            if let Err(unsent) = self.watch.ends.send(Enqueued { number, stream, devices }) {
                lock(&self.watch.waiting).end(unsent.0.number, Instant::now());
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            lock(&self.watch.waiting).end(number, Instant::now());
        }
    }
}

/// Begins something that these devices do together, such as "a sum"; it is watched until the ticket ends.
pub(super) fn watched<D: std::fmt::Debug + 'static>(what: &str, devices: &[D]) -> Ticket {
    static WATCH: OnceLock<Watch> = OnceLock::new();
    let names: Vec<String> = devices.iter().map(name_of).collect();
    let watch = WATCH.get_or_init(|| {
        let times = Times { limit: PATIENCE, look: LOOK, ask: ASK };
        Watch::start(times, wait_for, end_process)
    });
    watch.begin(format!("{what} of {}", names.join(" and ")))
}

fn end_process(what: String) {
    eprintln!("error: {what}");
    // What is done at exit may wait for the devices as well.
    thread::spawn(|| std::process::exit(STALLED));
    thread::sleep(EXIT);
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Looks once a second, from second `from` to second `to`; the second in which something was stalled.
    fn look(waiting: &mut Waiting, start: Instant, [from, to]: [u32; 2]) -> Option<u32> {
        (from..to).find(|second| waiting.stalled(start + *second * SECOND).is_some())
    }

    #[test]
    fn a_sum_that_never_ends_is_named_after_a_minute() {
        let start = Instant::now();
        let mut waiting = Waiting::new(PATIENCE, start);
        assert_eq!(look(&mut waiting, start, [0, 300]), None, "nothing waits");
        waiting.begin("a sum of cuda:0 and cuda:1".into(), start + 300 * SECOND);
        assert_eq!(look(&mut waiting, start, [300, 600]), Some(361));
        let message = waiting.stalled(start + 362 * SECOND).expect("it still waits");
        for word in ["cuda:0 and cuda:1", "60 s", "Memory"] {
            assert!(message.contains(word), "{word}: {message}");
        }
    }

    #[test]
    fn sums_that_end_one_after_the_other_may_take_hours() {
        let start = Instant::now();
        let mut waiting = Waiting::new(PATIENCE, start);
        let mut before = waiting.begin("first".into(), start);
        for minute in 1..200 {
            // Two of them overlap, 50 s each.
            let now = 50 * minute;
            let next = waiting.begin("next".into(), start + now * SECOND);
            assert_eq!(look(&mut waiting, start, [now, now + 50]), None, "{minute}");
            waiting.end(before, start + (now + 50) * SECOND);
            before = next;
        }
        assert!(look(&mut waiting, start, [10_000, 10_100]).is_some(), "the last one never ends");
    }

    #[test]
    fn a_process_that_was_suspended_blames_nobody() {
        let start = Instant::now();
        let mut waiting = Waiting::new(PATIENCE, start);
        waiting.begin("a sum".into(), start);
        assert_eq!(look(&mut waiting, start, [0, 30]), None);
        // An hour of sleep.
        assert_eq!(look(&mut waiting, start, [3630, 3690]), None);
        assert_eq!(look(&mut waiting, start, [3690, 3700]), Some(3691));
    }

    #[test]
    fn the_watch_ends_what_does_not_proceed_and_nothing_else() {
        let (said, hears) = channel();
        let limit = Duration::from_millis(200);
        let end = move |what| said.send(what).expect("the test listens");
        let ten = Duration::from_millis(10);
        // The third of all never ends.
        let (_open, never) = channel::<()>();
        let wait = move |given: &[Enqueued]| {
            if given.iter().any(|given| given.number == 3) {
                let _ = never.recv();
            }
        };
        let watch = Watch::start(Times { limit, look: ten, ask: ten }, wait, end);
        // One that ends here, and one that ends somewhere else.
        drop(watch.begin("a transfer".into()));
        watch.begin("a sum".into()).ends_after(&[Device::flex()]);
        assert!(hears.recv_timeout(3 * limit).is_err(), "both have ended");
        watch.begin("a stuck sum".into()).ends_after(&[]);
        let what = hears.recv_timeout(100 * limit).expect("it is noticed");
        assert!(what.starts_with("a stuck sum did not proceed for 0.2 s"), "{what}");
    }
}
