//! An affine map between sharded images has the loss and the gradient that it has between the whole ones.

use std::sync::Arc;

use super::*;
use ffdp_burn::losses::{self, Pair, SimilarityLoss};
use ffdp_burn::ops::{GridSampleOptions, HistogramOptions, LnccOptions, Padding, grid_sample};

const MOVING: [usize; 3] = [14, 11, 16];

/// A turn, a stretch and a shift of more than a voxel, none of them along an axis; some of the fixed grid
/// falls outside. No voxel is sent onto a voxel, where the slope of a trilinear image jumps.
const MAP: [[f64; 4]; 3] = [
    [1.030_471_3, 0.110_293_7, -0.060_718_9, 1.370_123_1],
    [-0.090_386_1, 0.960_257_9, 0.050_149_3, -0.830_611_7],
    [0.070_532_9, -0.040_871_1, 1.080_364_7, 1.610_957_3],
];

fn similarities() -> Vec<Arc<dyn SimilarityLoss>> {
    let bins = HistogramOptions::default();
    vec![
        Arc::new(losses::MutualInformation(bins)),
        Arc::new(losses::NormalizedMutualInformation(bins)),
        Arc::new(losses::Lncc(LnccOptions { window: 5, ..Default::default() })),
        Arc::new(losses::Mse),
    ]
}

/// Loss and gradient of whole images by Burn's tape, `[A|t]` row by row after the loss.
fn by_tape(
    [fixed, moving]: [&Tensor<5>; 2],
    masks: [Option<&Tensor<5>>; 2],
    similarity: &dyn SimilarityLoss,
    outside: Outside,
) -> Vec<f64> {
    let (dtype, [_, _, d, h, w]) = (fixed.dtype(), fixed.dims());
    let map = tracked(&tensor::<3>(&MAP.concat(), [1, 3, 4], &Device::flex(), dtype));
    let sample = |image: &Tensor<5>, padding| {
        let options =
            GridSampleOptions { padding, size: Some([d, h, w]), ..GridSampleOptions::default() };
        grid_sample(image.clone().autodiff(), Some(map.clone()), None, &options)
    };
    let (padding, inside) = match outside {
        Outside::Background => (Padding::Zeros, None),
        Outside::Ignored => (Padding::Border, Some(moving.clone().narrow(1, 0, 1).ones_like())),
    };
    let moved = masks[1].cloned().or(inside).map(|mask| sample(&mask, Padding::Zeros));
    let stays = masks[0].map(|mask| mask.clone().autodiff());
    let weights = match (stays, moved) {
        (Some(a), Some(b)) => Some(a * b),
        (a, b) => a.or(b),
    };
    let pair = Pair::weighted(sample(moving, padding), fixed.clone().autodiff(), weights);
    let loss = similarity.loss_of(&pair);
    let rows = map.grad(&loss.backward()).expect("the map is tracked");
    [to_f64(loss.inner()), to_f64(rows)].concat()
}

fn image([d, h, w]: [usize; 3], channels: usize, seed: u64, dtype: DType) -> Tensor<5> {
    let values = uniform(channels * d * h * w, 0.0, 1.0, seed);
    tensor(&values, [1, channels, d, h, w], &Device::flex(), dtype)
}

/// Turns about z through the middle, of so many steps of a tenth of a turn.
fn turned(step: usize) -> [[f64; 4]; 3] {
    let (sin, cos) = (step as f64 * 0.1 * std::f64::consts::TAU).sin_cos();
    [
        [cos, -sin, 0.03, 8.0 * (1.0 - cos) + 5.0 * sin],
        [sin, cos, 0.0, 5.0 * (1.0 - cos) - 8.0 * sin],
        [0.0, -0.02, 1.1, 0.7],
    ]
}

/// Demands that maps have in batches the losses and gradients that each has alone.
fn check_batches(label: &str, pair: &ShardedAlignment, maps: &[[[f64; 4]; 3]], rounding: f64) {
    let got = pair.losses(maps).expect("readable");
    let each = maps.iter().map(|map| pair.loss(map).expect("readable"));
    // Information is a small difference of entropies, which are added in another order here.
    assert_close(label, &got, &each.collect::<Vec<_>>(), 3.0 * rounding);
    let got = pair.gradients(maps).expect("readable");
    let each = maps.iter().map(|map| pair.gradient(map).expect("readable"));
    let [got, each] = [got, each.collect()].map(|all: Vec<Aligned>| {
        let numbers = |(loss, rows): &Aligned| [&[*loss][..], rows.as_flattened()].concat();
        all.iter().flat_map(numbers).collect::<Vec<f64>>()
    });
    assert_close(label, &got, &each, 3.0 * rounding);
}

#[test]
fn a_batch_of_maps_is_judged_as_one_after_the_other() {
    let maps: Vec<_> = (0..7).map(turned).collect();
    let size = [9, 12, 10];
    for (dtype, rounding) in PRECISIONS {
        for (channels, parts, masked) in
            [(1, 1, [false; 2]), (2, 1, [true, true]), (2, 1, [false, true]), (1, 3, [false; 2])]
        {
            let volume =
                |i: usize, size| image(size, channels + usize::from(masked[i]), i as u64, dtype);
            let (fixed, moving) = (volume(0, size), volume(1, MOVING));
            let mesh = DeviceMesh::of(vec![Device::flex(); parts]);
            let layout = Layout::balanced(size, Axis::Z, parts).expect("enough planes");
            let images = [Sharded::from_tensor(fixed, &layout, &mesh), Sharded::whole(moving)];
            for similarity in similarities() {
                for outside in [Outside::Background, Outside::Ignored] {
                    let (images, measure) = (images.clone(), similarity.clone());
                    let pair = ShardedAlignment::new(images, masked, measure, outside, &mesh);
                    let label = format!("{dtype:?} {parts} {masked:?} {similarity:?} {outside:?}");
                    check_batches(&label, &pair, &maps, rounding);
                }
            }
        }
    }
}

#[test]
fn maps_that_need_several_batches_are_judged_as_one_after_the_other() {
    // Two maps a batch, and one in the last.
    let (maps, moving): (Vec<_>, _) = ((0..5).map(turned).collect(), [128; 3]);
    assert_eq!(BATCH_VALUES / moving.into_iter().product::<usize>(), 2);
    let mesh = DeviceMesh::of(vec![Device::flex()]);
    for (dtype, rounding) in PRECISIONS {
        let images = [([9, 12, 10], 0), (moving, 1)];
        let images = images.map(|(size, seed)| Sharded::whole(image(size, 1, seed, dtype)));
        for similarity in similarities() {
            let label = format!("{dtype:?} {similarity:?}");
            let (images, outside) = (images.clone(), Outside::Ignored);
            let pair = ShardedAlignment::new(images, [false; 2], similarity, outside, &mesh);
            check_batches(&label, &pair, &maps, rounding);
        }
    }
}

#[test]
fn an_affine_map_is_judged_as_between_whole_images() {
    for (dtype, rounding) in PRECISIONS {
        for (seed, layout) in layouts(8).into_iter().enumerate() {
            let (channels, seed) = (1 + seed % 2, seed as u64);
            let fixed = image(layout.size(), channels, seed, dtype);
            let moving = image(MOVING, channels, 100 + seed, dtype);
            let masks =
                [image(layout.size(), 1, 200 + seed, dtype), image(MOVING, 1, 300 + seed, dtype)];
            let mesh = DeviceMesh::of(vec![Device::flex(); layout.count()]);
            for masked in [[false, false], [true, seed % 3 == 0]] {
                let with = |image: &Tensor<5>, i: usize| match masked[i] {
                    false => image.clone(),
                    true => Tensor::cat(vec![image.clone(), masks[i].clone()], 1),
                };
                let cut = Layout::balanced(MOVING, layout.axis(), 3).expect("enough planes");
                let parts = DeviceMesh::of(vec![Device::flex(); 3]);
                let images = [
                    Sharded::from_tensor(with(&fixed, 0), &layout, &mesh),
                    Sharded::from_tensor(with(&moving, 1), &cut, &parts),
                ];
                for similarity in similarities() {
                    for outside in [Outside::Background, Outside::Ignored] {
                        let mask = |i: usize| masked[i].then_some(&masks[i]);
                        let of = [mask(0), mask(1)];
                        let expected = by_tape([&fixed, &moving], of, &*similarity, outside);
                        let (images, measure) = (images.clone(), similarity.clone());
                        let sharded =
                            ShardedAlignment::new(images, masked, measure, outside, &mesh);
                        let (got, found) = sharded.gradient(&MAP).expect("readable");
                        let label =
                            format!("{dtype:?} {layout:?}, {masked:?} {similarity:?} {outside:?}");
                        assert_close(&label, &[got], &expected[..1], rounding);
                        // Positions are counted from a shard's first plane, and rounded so; between images of noise
                        // and weights of noise that moves a gradient of parts that cancel by more than the order of sums does
                        // (4.2e-5 in f32).
                        assert_close(&label, &found.concat(), &expected[1..], 6.0 * rounding);
                        let alone = sharded.loss(&MAP).expect("readable");
                        assert_close(&label, &[alone], &[got], rounding);
                    }
                }
            }
        }
    }
}
