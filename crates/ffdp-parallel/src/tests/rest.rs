//! What rests in host memory, and what is sent from there.

use std::ops::Range;

use burn::tensor::Distribution;

use super::deform::{FIELD_VOXELS, largest_difference, measures, options, phantoms, start};
use super::*;
use crate::ahead::bring_ahead;
use crate::rest::put_away;
use crate::transfer::wake;
use ffdp_burn::ops::Measure;
use ffdp_kit::testing::gpu_devices;

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

/// Shards that come and go, of which the first stays: as wide as what they exchange, and thinner ones.
#[test]
fn iterations_of_shards_at_rest_are_those_of_shards_that_stay() {
    for (name, device) in gpu_devices() {
        let images = phantoms([14, 13, 37], DType::F32);
        for cuts in [&[20, 17][..], &[10, 9, 12, 6], &[4, 12, 1, 2, 18]] {
            let layout = Layout::uneven([37, 13, 14], Axis::Z, cuts).unwrap();
            let mesh = DeviceMesh::new(std::slice::from_ref(&device), cuts.len()).unwrap();
            for measure in measures() {
                let run = |rest: &Device| {
                    let at_rest = |volume: &Tensor<5>| {
                        let shard = |(k, planes): (usize, Range<usize>)| {
                            let shard = volume.clone().narrow(2, planes.start, planes.len());
                            let home = if k == 0 { &device } else { rest };
                            put_away(shard.to_device(&device), home)
                        };
                        let shards = layout.all_planes().enumerate().map(shard).collect();
                        Sharded::new(shards, layout.clone())
                    };
                    let field = at_rest(&start(&images.fixed));
                    let images = ShardedImages {
                        fixed: at_rest(&images.fixed),
                        moving: at_rest(&images.moving),
                        affine: images.affine.clone().to_device(&device),
                        masked: [false; 2],
                        landmarks: None,
                    };
                    let state = ShardedState::new(vec![field]);
                    let options = options(measure);
                    let mut deform = ShardedDeform::new(images, state, &options, &mesh).unwrap();
                    let losses = to_f64(deform.iterate(10).unwrap());
                    let field = deform.into_state().fields.remove(0).into_shards().into_iter();
                    (losses, field.flat_map(to_f64).collect::<Vec<_>>())
                };
                let (losses, stayed) = run(&device);
                let (resting_losses, found) = run(&Device::flex());
                let (error, label) = (largest_difference(&found, &stayed), format!("{measure:?}"));
                println!("{name} {label} {cuts:?}: {error:.1e} voxel");
                // Histograms are sums in any order.
                let is_histogram = matches!(
                    measure,
                    Measure::MutualInformation(_) | Measure::NormalizedMutualInformation(_)
                );
                let most = if is_histogram { FIELD_VOXELS } else { 0.0 };
                assert!(error <= most, "{name} {label} {cuts:?}: {error:.1e} voxel");
                assert!(stayed.iter().any(|u| u.abs() > 0.5), "{name} {label}: nothing moved");
                assert_close(&label, &resting_losses, &losses, F32_ROUNDING);
            }
        }
    }
}
