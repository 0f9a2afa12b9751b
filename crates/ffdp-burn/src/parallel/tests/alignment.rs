//! An affine map between sharded images has the loss and the gradient that it has between the whole ones.

use super::*;
use crate::ops::{
    AlignmentImages, AlignmentLoss, HistogramOptions, Information, LnccOptions, Outside, alignment,
};

const MOVING: [usize; 3] = [14, 11, 16];

/// A turn, a stretch and a shift of more than a voxel, none of them along an axis; some of the fixed grid
/// falls outside. No voxel is sent onto a voxel, where the slope of a trilinear image jumps.
const MAP: [[f64; 4]; 3] = [
    [1.030_471_3, 0.110_293_7, -0.060_718_9, 1.370_123_1],
    [-0.090_386_1, 0.960_257_9, 0.050_149_3, -0.830_611_7],
    [0.070_532_9, -0.040_871_1, 1.080_364_7, 1.610_957_3],
];

fn rules() -> Vec<(AlignmentLoss, Outside)> {
    let information = |which| {
        [Outside::Background, Outside::Ignored]
            .map(|outside| {
                (AlignmentLoss::Information(which, HistogramOptions::default()), outside)
            })
            .to_vec()
    };
    let mut rules = [Information::Mutual, Information::Normalized].map(information).concat();
    rules.push((
        AlignmentLoss::Lncc(LnccOptions { window: 5, ..Default::default() }),
        Outside::Background,
    ));
    rules.push((AlignmentLoss::SquaredDifference, Outside::Background));
    rules
}

fn image([d, h, w]: [usize; 3], seed: u64, dtype: DType, device: &Device) -> Tensor<5> {
    let values = uniform(d * h * w, 0.0, 1.0, seed);
    tensor(&values, [1, 1, d, h, w], device, dtype)
}

#[test]
fn an_affine_map_is_judged_as_between_whole_images() {
    for (dtype, rounding) in PRECISIONS {
        for (seed, layout) in layouts(8).into_iter().enumerate() {
            let device = Device::flex();
            let fixed = image(layout.size(), seed as u64, dtype, &device);
            let moving = image(MOVING, 100 + seed as u64, dtype, &device);
            let mesh = Mesh::of(vec![device.clone(); layout.count()]);
            for shards in [1, 3] {
                let cut = Layout::balanced(MOVING, layout.axis(), shards).expect("enough planes");
                let parts = Mesh::of(vec![device.clone(); shards]);
                let images = [
                    Sharded::from_tensor(fixed.clone(), &layout, &mesh),
                    Sharded::from_tensor(moving.clone(), &cut, &parts),
                ];
                for rule in rules() {
                    let (loss, outside) = rule;
                    let whole = AlignmentImages {
                        fixed: fixed.clone(),
                        moving: moving.clone(),
                        masks: [None, None],
                    };
                    let map = tensor(&MAP.concat(), [1, 3, 4], &device, dtype);
                    let (value, rows) = alignment(&whole, map, &loss, outside);
                    let sharded = ShardedAlignment::new(images.clone(), rule, &mesh);
                    let (got, found) = sharded.gradient(&MAP).expect("readable");
                    let label = format!("{dtype:?} {layout:?}, moving in {shards}: {rule:?}");
                    let expected = [to_f64(value), to_f64(rows)].concat();
                    let found = [vec![got], found.concat()].concat();
                    assert_close(&label, &found[..1], &expected[..1], rounding);
                    // Positions are counted from a shard's first plane, and rounded so; between images of noise that
                    // moves a gradient of parts that cancel by more than the order of sums does (1.2e-5 in f32).
                    assert_close(&label, &found[1..], &expected[1..], 3.0 * rounding);
                }
            }
        }
    }
}
