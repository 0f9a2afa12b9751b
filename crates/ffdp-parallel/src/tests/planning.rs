//! The planner's arithmetic, and what it refuses.

use super::*;
use ffdp_burn::ops::{AdamOptions, DeformOptions, LnccOptions, Measure, MomentStorage, Optimizer};
use ffdp_image::Error;

const GIB: u64 = 1 << 30;

fn problem(size: [usize; 3], storage: MomentStorage) -> DeformProblem {
    let adam = AdamOptions { storage, ..AdamOptions::default() };
    let options = DeformOptions {
        optimizer: Optimizer::Adam(adam),
        ..DeformOptions::greedy(Measure::Lncc(LnccOptions::default()))
    };
    DeformProblem::plain([size; 2], Axis::Z, options)
}

fn memory(bytes: u64) -> DeviceMemory {
    DeviceMemory { bytes, largest_buffer: bytes / 4 }
}

#[test]
fn buffers_are_counted_by_hand() {
    // 40 planes of 100 voxels on one device and on two, in any number of equal parts each.
    for devices in [1, 2] {
        let plan =
            plan(&problem([40, 10, 10], MomentStorage::Full), devices, memory(0)).unwrap_err();
        let Error::TooLarge { needed_bytes, .. } = plan else { panic!("{plan}") };
        let planes = 40 / devices as u64;
        let bytes = |each: u64| {
            let thick = planes / each;
            // Windows look 6 planes far, and smoothing 3.
            let [own, seen] = [0, 18].map(|planes: u64| (thick + planes).min(40) * 100);
            let at_work = (16 * seen).max(4 * seen + 24 * own);
            let rest = match (devices, each) {
                // The whole: a field before and after a step, and smoothed.
                (1, 1) => 36 * own,
                // What the block reaches of the moving image travels: here that is all of it.
                (1, _) => at_work + 4 * 40 * 100,
                // What is around the parts of the fixed image is kept, and all parts of the moving one.
                _ => at_work + each * (4 * (seen - own) + 4 * own),
            };
            planes * 100 * (4 + 4 + 12 + 24) + rest
        };
        let best = (1..=planes).filter(|each| planes.is_multiple_of(*each)).map(bytes).min();
        assert_eq!(Some(needed_bytes), best, "{devices} devices");
    }
}

#[test]
fn what_travels_of_a_moving_image_is_counted_in_its_own_planes() {
    // As finely cut as the fixed one, coarser, and finer.
    let mut problem = problem([400, 10, 10], MomentStorage::Full);
    for moving in [400, 100, 1600] {
        problem.moving[0] = moving;
        let Err(Error::TooLarge { needed_bytes, .. }) = plan(&problem, 1, memory(0)) else {
            panic!("nothing fits into nothing")
        };
        // Margins are of 32 planes, or as many as the block has.
        let bytes = |thick: usize| {
            let [own, seen] = [0, 18].map(|planes| (thick + planes).min(400));
            let [shard, block] = [own, seen].map(|planes| (planes * moving).div_ceil(400));
            let parcel = (2 * shard).max(block + 2 * block.min(32)).min(moving);
            let at_work = (16 * seen).max(4 * seen + 24 * own);
            100 * (400 * (4 + 12 + 24) + 4 * moving + at_work + 4 * parcel)
        };
        let best = (1..=200).map(bytes).min();
        assert_eq!(Some(needed_bytes as usize), best, "{moving} planes");
    }
}

#[test]
fn a_problem_that_fits_is_cut_no_more_than_needed() {
    let small = problem([192, 160, 160], MomentStorage::Full);
    let plan_on = |devices| plan(&small, devices, memory(80 * GIB)).unwrap();
    assert_eq!(plan_on(1).layout.count(), 1);
    assert_eq!(plan_on(4).layout.count(), 4);
    assert!(plan_on(4).device_bytes < plan_on(1).device_bytes / 3);
}

#[test]
fn shards_keep_buffers_within_one_allocation() {
    // 3.96 G voxels: one field is 47.5 GB, more than a quarter of 140 GiB, on four devices with bf16.
    let large = problem([1760, 1760, 1278], MomentStorage::Bf16);
    let plan = plan(&large, 4, memory(140 * GIB)).unwrap();
    assert!(plan.largest_buffer <= 35 * GIB && plan.device_bytes <= 140 * GIB);
    assert_eq!(plan.layout.count() % 4, 0);
    // 32 of state, 4 of the moving image kept in parts, 28 at work, and the planes around.
    let per_voxel = plan.device_bytes as f64 / (large.fixed.iter().product::<usize>() as f64 / 4.0);
    assert!((64.0..65.0).contains(&per_voxel), "{per_voxel}");
}

#[test]
fn what_fits_nowhere_is_refused_with_the_bytes_it_needs() {
    let large = problem([1760, 1760, 1278], MomentStorage::Full);
    let error = plan(&large, 1, memory(140 * GIB)).unwrap_err();
    let Error::TooLarge { needed_bytes, available_bytes, .. } = &error else { panic!("{error}") };
    assert!(*needed_bytes > *available_bytes && error.to_string().contains("more devices"));
    let error = plan(&large, 0, memory(140 * GIB)).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}

#[test]
fn what_does_not_fit_rests_in_host_memory() {
    let large = problem([656, 656, 656], MomentStorage::Full);
    let voxels = 656u64.pow(3);
    // All of it rests in 44 bytes a voxel.
    for part in [1, 2, 3, 6, 8] {
        let given = 44 * voxels / part;
        let plan = plan_offloaded(&large, memory(given)).unwrap();
        assert!(plan.device_bytes <= given, "{part}: {plan:?}");
        let shards = plan.layout.count();
        assert!(plan.resident < shards, "{part}: {} of {shards} stay", plan.resident);
        // The moving image stays where half of the memory is left next to it, and one buffer may hold it.
        assert_eq!(plan.moving_stays, part < 3, "{part}: {plan:?}");
        // What stays and what rests is all, but for the rounding of uneven shards.
        let each = if plan.moving_stays { 40 } else { 44 };
        let rests = each * voxels * (shards - plan.resident) as u64 / shards as u64;
        assert!((rests..rests * 11 / 10).contains(&plan.host_bytes), "{part}: {plan:?}");
        // With room for one eighth of it, most of that is for shards that stay.
        assert!(plan.device_bytes > given * 8 / 10, "{part}: {plan:?}");
        // In an eighth, one of these and the next on its way have no room.
        let thickest = plan.layout.thickest();
        assert!(thickest >= 18 || part == 8, "{part}: thinner than what is computed twice");
    }
    let whole = plan_offloaded(&large, memory(200 * voxels)).unwrap();
    assert_eq!((whole.layout.count(), whole.resident, whole.host_bytes), (1, 1, 0));
    let error = plan_offloaded(&large, memory(voxels / 100)).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

/// `scaling register --size 1760x1760x1278 --shards 16 --bf16` ended out of memory on an H200 (150.1 GB free), whatever its pages were, and
/// takes 22 s with pages of 24.4 GB and its moving image cut.
#[test]
fn a_registration_that_nearly_fills_a_gpu_is_given_pages_that_fill_it() {
    let problem = problem([1278, 1760, 1760], MomentStorage::Bf16);
    let needed = problem.cut(1, 16).expect("more planes than shards").device_bytes;
    let free = 150_100_000_000;
    let page = page_bytes(needed, free).expect("it fits").expect("it hardly fits");
    assert!((24_300_000_000..24_500_000_000).contains(&page), "{page}");
    let refused = page_bytes(needed, 85_000_000_000).expect_err("an H100");
    assert!(refused.to_string().contains(&needed.to_string()), "{refused}");
    let whole = problem.cut(1, 1).expect("one shard").device_bytes;
    assert!(page_bytes(whole, free).is_err(), "its work does not fit next to its state");
    assert_eq!(page_bytes(needed, 3 * needed).expect("it fits"), None);
}

/// `scaling --gpus 2 register --size 1760x1760x1278 --bf16 --shards 16` planned 80.3 GB of 85.0 that were free on each of two
/// H100s, and did not end when the memory of one of them was full.
#[test]
fn a_registration_that_would_fill_two_gpus_is_refused_with_the_figures() {
    let problem = problem([1278, 1760, 1760], MomentStorage::Bf16);
    let needed = |shards| problem.cut(2, shards).expect("more planes than shards").device_bytes;
    assert_eq!(needed(16) / 100_000_000, 803);
    let free = 85_000_000_000;
    let refused = page_bytes(needed(16), free).expect_err("it nearly fills them").to_string();
    for word in ["85.0 GB", &needed(16).to_string(), "76950000000", "more devices"] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    // Nor would more shards help; on two H200s there is room.
    assert!((17..200).all(|each| page_bytes(needed(2 * each), free).is_err()));
    assert!(page_bytes(needed(16), 150_100_000_000).is_ok());
}
