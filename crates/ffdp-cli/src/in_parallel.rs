//! Two steps in parallel, each of which may take long.

use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Of a thread that does a step, as the main thread of a process has it: kernels are expanded recursively.
pub const STACK_BYTES: usize = 8 << 20;

/// Threads of the pool from which on steps have threads of their own.
const MANY: usize = 4;

/// Whether steps have threads of their own.
pub fn has_many_cores() -> bool {
    rayon::current_num_threads() >= MANY
}

/// Does both, the second in a thread of its own: a thread of rayon that waits for its part of a loop may take any step
/// that waits as well, a whole file among them, before it goes on, and others have nothing left to do. In a pool of
/// rayon, where pairs of a list are read and written, both are done by the pool; so they are on few cores, which have
/// enough to do, since what a thread has released stays with it (a fifth to a half more memory for a pair of 2 mm).
pub fn in_parallel<A: Send, B: Send>(
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> (A, B) {
    if rayon::current_thread_index().is_some() || !has_many_cores() {
        return rayon::join(first, second);
    }
    thread::scope(|scope| {
        let second = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, second);
        let second = second.expect("the system has threads to give, as for any parallel work");
        let first = first();
        (first, second.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// What a panic has left behind is whole: nothing is changed in two steps under a lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_done_and_a_panic_is_passed_on() {
        assert_eq!(in_parallel(|| 1, || 2), (1, 2));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("threads");
        assert_eq!(pool.install(|| in_parallel(|| 3, || 4)), (3, 4));
        let failing = || -> () { panic!("expected by the test") };
        assert!(std::panic::catch_unwind(|| in_parallel(|| (), failing)).is_err());
    }
}
