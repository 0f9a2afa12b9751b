//! What rests in host memory, and what is sent from there.

use std::ops::Range;

use burn::tensor::Distribution;

use super::*;
use crate::parallel::ahead::bring_ahead;
use crate::parallel::rest::put_away;
use crate::parallel::transfer::wake;
use crate::testing::gpu_devices;

/// What rests shares its memory with what is sent from it; planes of three channels are three lines of it.
#[test]
fn planes_of_channels_wake_from_where_they_rest() {
    for (name, device) in gpu_devices() {
        let noise = Distribution::Uniform(-1.0, 1.0);
        let there = Tensor::<5>::random([1, 3, 9, 4, 5], noise, &device);
        let resting = put_away(there.clone(), &Device::flex());
        let all = to_f64(there);
        for (planes, first) in [(9, 0), (4, 2), (1, 8)] {
            let part = resting.clone().narrow(2, first, planes);
            let woken = wake(&part, &device).unwrap_or_else(|| panic!("{name}: it rests"));
            let channel = |c: usize| &all[(c * 9 + first) * 20..(c * 9 + first + planes) * 20];
            assert_eq!(to_f64(woken), [channel(0), channel(1), channel(2)].concat(), "{name}");
        }
        // Rows of all planes are too many lines, and a tensor of the device does not rest.
        assert!(wake(&resting.narrow(3, 1, 2), &device).is_none(), "{name}");
        assert!(wake(&Tensor::<1>::zeros([4], &device), &device).is_none(), "{name}");
    }
}

/// Of three channels, out of one and of several shards; where the first shard is on the device, and along an axis
/// where they are too many lines, they are not sent ahead but are the same.
#[test]
fn windows_that_are_sent_ahead_are_those_of_the_whole() {
    for (name, device) in gpu_devices() {
        let host = Device::flex();
        let noise = Distribution::Uniform(-1.0, 1.0);
        let whole = Tensor::<5>::random([1, 3, 12, 13, 5], noise, &device);
        for axis in [Axis::Z, Axis::Y] {
            let layout = Layout::balanced([12, 13, 5], axis, 5).unwrap();
            for first in [&host, &device] {
                let shard = |(k, planes): (usize, Range<usize>)| {
                    let shard = whole.clone().narrow(axis.dim(), planes.start, planes.len());
                    put_away(shard, if k == 0 { first } else { &host })
                };
                let shards = layout.all_planes().enumerate().map(shard).collect();
                let volume = Sharded::new(shards, layout.clone());
                for window in [0..12, 0..2, 1..4, 3..4, 5..12] {
                    let bring = || volume.window(window.clone(), &device);
                    let (planes, sent) = bring_ahead(&device, bring);
                    sent.wait();
                    let (start, count) = (window.start, window.len());
                    let wanted = whole.clone().narrow(axis.dim(), start, count);
                    assert_eq!(to_f64(planes), to_f64(wanted), "{name}: {axis:?} {window:?}");
                }
            }
        }
    }
}
