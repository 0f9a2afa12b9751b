//! A thread for each device: that of the caller for the first, one more for each other.
//!
//! What one thread enqueues on several devices does not run on all of them at once: CubeCL (0.11.3) takes at
//! most 64 operations ahead for a device, then whoever enqueues waits until they are launched. So a thread
//! that records a long piece of work for one device and then for the next keeps one of them idle. With a
//! thread for each, all are fed. The threads take over the stream of the one that calls: for the device it
//! is as if that one had recorded everything, so tensors go from one to the other without another stream to
//! wait for.

use std::panic::resume_unwind;
use std::thread;

use burn::tensor::{Device, StreamId};

/// `work` for each part, which is about the device of the same place; the results in the order of the parts.
/// Parts on different devices are worked on at the same time, those of one device, or of a CPU, one after the
/// other: two threads would mix what they record on it.
///
/// # Panics
/// If there is not a part for each device, and with what `work` panics with.
pub fn on_each_device<P: Send, R: Send>(
    devices: &[Device],
    parts: Vec<P>,
    work: impl Fn(usize, P) -> R + Sync,
) -> Vec<R> {
    let (count, places) = (parts.len(), devices.len());
    assert!(count == places, "on_each_device: {count} parts for {places} devices");
    let mut parts = parts.into_iter().enumerate();
    if distinct(devices).len() < count || devices.len() < 2 {
        return parts.map(|(k, part)| work(k, part)).collect();
    }
    let (stream, work) = (StreamId::current(), &work);
    thread::scope(|scope| {
        let start = |(k, part)| scope.spawn(move || stream.executes(|| work(k, part)));
        let first = parts.next();
        // All are started before one is waited for; the first is worked on here.
        let threads: Vec<_> = parts.map(start).collect();
        let first = first.map(|(k, part)| work(k, part));
        let others = threads.into_iter();
        let others = others.map(|thread| thread.join().unwrap_or_else(|p| resume_unwind(p)));
        first.into_iter().chain(others).collect()
    })
}

/// Each device once, in order.
pub(super) fn distinct(devices: &[Device]) -> Vec<Device> {
    let mut found: Vec<Device> = Vec::new();
    for device in devices {
        if !found.contains(device) {
            found.push(device.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_order_and_one_device_has_one_thread() {
        let devices = vec![Device::flex(); 3];
        let here = thread::current().id();
        let found = on_each_device(&devices, vec!["a", "b", "c"], |k, part| {
            assert_eq!(thread::current().id(), here, "one device");
            format!("{k}{part}")
        });
        assert_eq!(found, ["0a", "1b", "2c"]);
        assert_eq!(on_each_device(&devices[..1], vec![7], |_, part| part + 1), [8]);
    }
}
