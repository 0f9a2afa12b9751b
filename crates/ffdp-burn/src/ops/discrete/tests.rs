//! Exact cases, tiles, symmetry, large displacements, and GPU against CPU.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor};

use super::*;
use crate::ops::{
    DeformImages, DeformOptions, DeformState, LnccOptions, Measure, MindOptions, Moments, deform,
    mind,
};
use ffdp_kit::testing::{assert_close, field, gpu_devices, normal, tensor, to_f64, uniform};

/// Sums of a few hundred terms in f32.
const GPU: f64 = 2e-6;

fn devices() -> Vec<(&'static str, Device)> {
    std::iter::once(("cpu", Device::flex())).chain(gpu_devices()).collect()
}

fn features(shape: [usize; 5], seed: u64, device: &Device, dtype: DType) -> Tensor<5> {
    tensor(&uniform(shape.iter().product(), 0.0, 1.0, seed), shape, device, dtype)
}

#[test]
fn cells_have_their_mean() {
    let values: Vec<f64> = (0..2 * 3 * 5).map(f64::from).collect();
    for (name, device) in devices() {
        let volume = tensor::<5>(&values, [1, 1, 2, 3, 5], &device, DType::F32);
        let pooled = <Dispatch as DiscreteOps>::pool_3d(
            volume.into_dispatch(),
            Cells { width: 2, stride: 2 },
        );
        let pooled = Tensor::<5>::from_dispatch(pooled);
        assert_eq!(pooled.dims(), [1, 1, 1, 2, 3], "{name}");
        // Of rows 0, 1 and of row 2 alone; of columns 0, 1 and 2, 3 and of 4 alone; of both planes, 15 apart.
        let expected = [10.5, 12.5, 14.0, 18.0, 20.0, 21.5];
        assert_eq!(to_f64(pooled), expected, "{name}");
    }
}

/// Whole numbers, and a theta that is exact in binary: the same choice on every device.
#[test]
fn the_least_cost_is_chosen() {
    let (n, c, [d, h, w]) = (2, 3, [4, 5, 6]);
    let window = Window { radius: 2, steps: 1, first: 1, planes: 2 };
    let whole = |seed| -> Vec<f64> {
        uniform(n * c * d * h * w, 0.0, 4.0, seed).into_iter().map(f64::floor).collect()
    };
    let (fixed, moving, mut near) = (whole(1), whole(2), Vec::new());
    let theta = 0.25;
    // `v` and `theta`.
    for entry in whole(3).chunks(3 * d * h * w) {
        near.extend(entry);
        near.extend(vec![theta; d * h * w]);
    }
    let at = |values: &[f64], volume: usize, p: [i64; 3]| {
        let p: Vec<usize> =
            (0..3).map(|a| p[a].clamp(0, [w, h, d][a] as i64 - 1) as usize).collect();
        values[((volume * d + p[2]) * h + p[1]) * w + p[0]]
    };
    let (mut expected_costs, mut expected) = (vec![0.0; n * 125 * 2 * h * w], Vec::new());
    let mut chosen = vec![[0.0; 3]; n * 2 * h * w];
    for entry in 0..n {
        for point in 0..2 * h * w {
            let p = [point % w, point / w % h, 1 + point / (w * h)].map(|i| i as i64);
            let mut best = (f64::INFINITY, i64::MAX);
            for label in 0..125 {
                let step = [label % 5, label / 5 % 5, label / 25].map(|i| i as i64 - 2);
                let q: [i64; 3] = std::array::from_fn(|a| p[a] + step[a]);
                let of = |c| at(&fixed, entry * 3 + c, p) - at(&moving, entry * 3 + c, q);
                let cost: f64 = (0..3).map(|c| of(c).powi(2)).sum();
                expected_costs[(entry * 125 + label) * 2 * h * w + point] = cost;
                let away = |a: usize| (step[a] as f64 - at(&near, entry * 4 + a, p)).powi(2);
                let total = (
                    cost + theta * (0..3).map(away).sum::<f64>(),
                    step.map(|s| s * s).iter().sum(),
                );
                if total < best {
                    best = total;
                    chosen[entry * 2 * h * w + point] = step.map(|s| s as f64);
                }
            }
        }
    }
    for entry in chosen.chunks(2 * h * w) {
        (0..3).for_each(|a| expected.extend(entry.iter().map(|step| step[a])));
    }
    for (name, device) in devices() {
        let on = |values: &[f64]| tensor::<5>(values, [n, c, d, h, w], &device, DType::F32);
        let [fixed, moving] = [&fixed, &moving].map(|v| on(v).into_dispatch());
        let near = tensor::<5>(&near, [n, 4, d, h, w], &device, DType::F32).into_dispatch();
        let costs = <Dispatch as DiscreteOps>::displacement_costs_3d(fixed, moving, window);
        assert_eq!(to_f64(Tensor::<5>::from_dispatch(costs.clone())), expected_costs, "{name}");
        let least = <Dispatch as DiscreteOps>::least_displacement_3d(costs, near, window);
        assert_eq!(to_f64(Tensor::<5>::from_dispatch(least)), expected, "{name}");
    }
}

#[test]
fn equal_images_are_not_moved() {
    let options = DiscreteOptions::coarse(2, 2);
    for (name, device) in devices() {
        let image = features([1, 3, 7, 8, 9], 4, &device, DType::F32);
        let found = discrete(image.clone(), image, &options);
        assert_eq!(found.forward.dims(), [1, 3, 4, 4, 5]);
        assert!(to_f64(found.forward).iter().all(|u| *u == 0.0), "{name}");
        // Nothing distinguishes one displacement from another: the shortest.
        let flat = Tensor::zeros([1, 3, 7, 8, 9], &device);
        let found = discrete(flat.clone(), flat, &options);
        assert!(to_f64(found.backward).iter().all(|u| *u == 0.0), "{name}");
    }
}

#[test]
fn odd_and_small_shapes_are_searched() {
    for (name, device) in devices() {
        for shape in [[1, 1, 1, 1, 1], [2, 2, 1, 6, 3], [1, 1, 13, 1, 5]] {
            let options = DiscreteOptions::coarse(4, 1);
            let [fixed, moving] = [5, 6].map(|seed| features(shape, seed, &device, DType::F32));
            let found = discrete(fixed, moving, &options);
            let field = found.dense_forward();
            assert_eq!(field.dims(), [shape[0], 3, shape[2], shape[3], shape[4]]);
            // At most the radius of the window, whatever is smoothed.
            assert!(to_f64(field).iter().all(|u| u.abs() <= 4.0 + 1e-4), "{name} {shape:?}");
        }
    }
}

#[test]
fn tiles_give_the_same_as_the_whole() {
    for (name, device) in devices() {
        let [fixed, moving] =
            [7, 8].map(|seed| features([1, 4, 20, 12, 14], seed, &device, DType::F32));
        let whole = DiscreteOptions::coarse(2, 2);
        let plane = 4 * 125 * 6 * 7;
        let expected = discrete(fixed.clone(), moving.clone(), &whole);
        for planes in [0, 1, 3, 9] {
            let options = DiscreteOptions { cost_bytes: planes * plane, ..whole };
            let found = discrete(fixed.clone(), moving.clone(), &options);
            let label = format!("{name}, {planes} planes");
            assert_eq!(to_f64(found.forward), to_f64(expected.forward.clone()), "{label}");
            assert_eq!(to_f64(found.backward), to_f64(expected.backward.clone()), "{label}");
        }
        assert_eq!(whole.all_cost_bytes([20, 12, 14]), 10 * plane);
        let at_once =
            |cost_bytes| DiscreteOptions { cost_bytes, ..whole }.cost_bytes_at_once([20, 12, 14]);
        assert_eq!([0, 3 * plane, 99 * plane].map(at_once), [plane, 3 * plane, 10 * plane]);
    }
}

#[test]
fn control_points_lie_in_the_middle_of_their_cells() {
    // A displacement that is linear in the place of the control points is that of the voxels between them.
    let spacing = 4;
    let size = [12, 16, 20];
    let middle = |point: f64| point * spacing as f64 + 1.5;
    let forward = field([3, 4, 5], |p| p.map(|point| 0.25 * middle(point)));
    let found =
        ControlDisplacement { backward: forward.clone(), forward, spacing_voxels: spacing, size };
    let expected = field(size, |p| {
        std::array::from_fn(|a| 0.25 * p[a].clamp(1.5, [20.0, 16.0, 12.0][a] - 2.5))
    });
    assert_close("dense", &to_f64(found.dense_forward()), &to_f64(expected), 1e-12);
}

/// Structure at several scales, as tissue has.
fn texture([d, h, w]: [usize; 3], seed: u64) -> Tensor<5> {
    let device = Device::flex();
    let noise = |seed| tensor::<5>(&normal(d * h * w, seed), [1, 1, d, h, w], &device, DType::F32);
    let smooth = |seed, sigma: f64, gain: f64| {
        gaussian(noise(seed), &GaussianOptions::isotropic(sigma)).mul_scalar(gain)
    };
    smooth(seed, 1.5, 4.0) + smooth(seed + 1, 4.0, 20.0)
}

/// The length of the difference of two fields, averaged over voxels at least `margin` from the border.
fn mean_distance(a: &Tensor<5>, b: &Tensor<5>, margin: usize) -> f64 {
    let [_, _, d, h, w] = a.dims();
    mean_distance_in(a, b, [d, h, w].map(|size| margin..size - margin))
}

/// The same over some voxels (D, H, W).
fn mean_distance_in(a: &Tensor<5>, b: &Tensor<5>, voxels: [Range<usize>; 3]) -> f64 {
    let [d, h, w] = voxels;
    let difference = a.clone().cast(DType::F32) - b.clone().cast(DType::F32);
    let difference = difference.slice([0..1, 0..3, d, h, w]);
    to_f64(difference.square().sum_dim(1).sqrt().mean())[0]
}

/// A fixed image that is the moving one, its contrast inverted, displaced by about 13 voxels.
fn displaced(size: [usize; 3]) -> (Tensor<5>, Tensor<5>, Tensor<5>) {
    let truth = field(size, |[x, y, z]| {
        let wave = |t: f64| (t / 64.0 * std::f64::consts::TAU).sin();
        [10.0 + 1.5 * wave(y), -7.0 + 1.5 * wave(z), 5.0 + 1.5 * wave(x)]
    })
    .cast(DType::F32);
    let moving = texture(size, 20);
    let fixed = warp(moving.clone(), truth.clone()).neg();
    (fixed, moving, truth)
}

#[test]
fn a_displacement_of_many_voxels_is_found() {
    /// About half a step.
    const WIDE: f64 = 1.2;
    const NARROW: f64 = 0.6;
    let size = [64; 3];
    let (fixed, moving, truth) = displaced(size);
    // What lies beyond the moving image is not there to be found.
    let margin = 15;
    let start = mean_distance(&truth.zeros_like(), &truth, margin);

    // Descent along the gradient, of the same contrast even, stays where it began.
    let state = DeformState { field: truth.zeros_like(), moments: Moments::default() };
    let identity = [1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0.];
    let images = DeformImages {
        fixed: fixed.clone().neg(),
        moving: moving.clone(),
        affine: tensor(&identity, [1, 3, 4], &Device::flex(), DType::F32),
        masks: [None, None],
    };
    let measure = Measure::Lncc(LnccOptions::default());
    let (_, states) = deform(&images, vec![state], &DeformOptions::greedy(measure), 30);
    let local = mean_distance(&states[0].field, &truth, margin);

    let describe = |image: Tensor<5>| mind(image, &MindOptions::default());
    let (fixed, moving) = (describe(fixed), describe(moving));
    let wide = DiscreteOptions { step_voxels: 2, ..DiscreteOptions::coarse(4, 6) };
    let found = discrete(fixed.clone(), moving.clone(), &wide);
    let once = mean_distance(&found.dense_forward(), &truth, margin);
    let narrow = DiscreteOptions { step_voxels: 1, ..DiscreteOptions::coarse(4, 3) };
    let twice = mean_distance(
        &discrete_rounds(fixed, moving, &Guide::default(), &[wide, narrow]),
        &truth,
        margin,
    );
    println!(
        "discrete: start {start:.2} local {local:.2} one round {once:.2} two {twice:.2} voxels"
    );
    assert!(start > 13.0 && local > 0.5 * start, "{start} {local}");
    assert!(once < WIDE && twice < NARROW, "{once} {twice}");
}

#[test]
fn what_a_mask_leaves_out_misleads_its_neighbours_less() {
    let size = [48; 3];
    let (fixed, moving, truth) = displaced(size);
    // Something else in a third of the fixed image.
    let third = |image: &Tensor<5>| image.clone().narrow(4, 0, 16);
    let rest = |image: &Tensor<5>| image.clone().narrow(4, 16, 32);
    let other = texture(size, 90);
    let spoilt = Tensor::cat(vec![third(&other), rest(&fixed)], 4);
    let mask = Tensor::cat(vec![third(&fixed).zeros_like(), rest(&fixed).ones_like()], 4);
    let describe = |image: Tensor<5>| mind(image, &MindOptions::default());
    let (fixed, moving) = (describe(spoilt), describe(moving));
    let rounds = [DiscreteOptions { step_voxels: 2, ..DiscreteOptions::coarse(4, 6) }];
    // Next to what is spoilt, 6 voxels from the other ends; and there, of which nothing is known but what lies around.
    let search = |weights| {
        let guide = Guide { weights, pairs: None };
        discrete_rounds(fixed.clone(), moving.clone(), &guide, &rounds)
    };
    let off = |mask| {
        let found = search([mask, None]);
        [16..30, 6..16].map(|x| mean_distance_in(&found, &truth, [8..40, 8..40, x]))
    };
    let (without, with) = (off(None), off(Some(mask)));
    println!("discrete: {without:.2?} voxels off without the mask, {with:.2?} with it");
    // Not all of it: the search back from the moving image, which has no mask here, still finds what is spoilt.
    for (with, without) in with.iter().zip(without) {
        assert!(*with < 0.8 * without, "{with} {without}");
    }
    // A mask of ones is none, but for rounding, which decides between some equal costs.
    let all = Some(Tensor::ones([1, 1, 48, 48, 48], (&Device::flex(), DType::F32)));
    let (everything, plain) = (search([all.clone(), all]), search([None, None]));
    assert!(mean_distance(&everything, &plain, 0) < 0.01);
}

#[test]
fn points_draw_where_the_images_say_nothing() {
    // Nothing but one pair of points, 17 voxels apart, at no control point.
    let size = [40, 44, 48];
    let pairs = PointPairs {
        fixed: vec![[21.0, 18.5, 19.0]],
        moving: vec![[33.0, 9.5, 27.0]],
        precision: 1.0,
    };
    let rounds = [
        DiscreteOptions::coarse(6, 4),
        DiscreteOptions { step_voxels: 2, ..DiscreteOptions::coarse(4, 3) },
    ];
    for (name, device) in devices() {
        let flat = Tensor::<5>::zeros([1, 2, size[0], size[1], size[2]], &device);
        let guide = Guide { pairs: Some(pairs.clone()), ..Guide::default() };
        let found = discrete_rounds(flat.clone(), flat, &guide, &rounds);
        let [x, y, z] = [21, 18, 19];
        let there = to_f64(found.slice([0..1, 0..3, z..z + 1, y..y + 1, x..x + 1]));
        println!("discrete {name}: at the point {there:.2?}");
        // Half of the last step, and what smoothing takes off.
        let near = there.iter().zip([12.0, -9.0, 8.0]).all(|(u, t)| (u - t).abs() < 1.1);
        assert!(near, "{name}: {there:?}");
    }
}

#[test]
fn points_are_constants_of_a_tape_and_none_of_them_are_nothing() {
    let device = Device::flex().autodiff();
    let image = features([1, 2, 16, 16, 16], 3, &device, DType::F32);
    let rounds = [DiscreteOptions::coarse(4, 1), DiscreteOptions::coarse(2, 1)];
    let search = |fixed, moving| {
        let pairs = Some(PointPairs { fixed, moving, precision: 0.1 });
        let guide = Guide { pairs, ..Guide::default() };
        to_f64(discrete_rounds(image.clone(), image.clone(), &guide, &rounds))
    };
    let drawn = search(vec![[8.0; 3]], vec![[10.0, 8.0, 8.0]]);
    assert!(drawn.iter().any(|u| *u > 0.5) && drawn.iter().all(|u| u.is_finite()));
    assert!(search(Vec::new(), Vec::new()).iter().all(|u| *u == 0.0));
}

#[test]
#[should_panic(expected = "discrete: 1 points of the fixed image belong to 0 of the moving one")]
fn points_without_a_counterpart_are_refused() {
    let image = Tensor::zeros([1, 1, 3, 3, 3], &Device::flex());
    let pairs = PointPairs { fixed: vec![[1.0; 3]], moving: Vec::new(), precision: 1.0 };
    let guide = Guide { pairs: Some(pairs), ..Guide::default() };
    discrete_rounds(image.clone(), image, &guide, &[DiscreteOptions::coarse(2, 1)]);
}

#[test]
fn points_lead_images_that_show_no_motion_and_bend_only_what_lies_around() {
    // The same image twice: without points nothing moves.
    let size = [48; 3];
    let image = mind(texture(size, 33), &MindOptions::default());
    let rounds = [DiscreteOptions { step_voxels: 2, ..DiscreteOptions::coarse(4, 4) }];
    let at_once = |precision| {
        let fixed = vec![[23.5; 3]];
        let pairs = PointPairs { fixed, moving: vec![[27.5, 23.5, 23.5]], precision };
        let guide = Guide { pairs: Some(pairs), ..Guide::default() };
        let found = discrete_rounds(image.clone(), image.clone(), &guide, &rounds);
        let of = |x: usize| to_f64(found.clone().slice([0..1, 0..1, 23..24, 23..24, x..x + 1]))[0];
        (of(23), of(2))
    };
    let (weak, strong) = (at_once(1e-6), at_once(0.1));
    println!("discrete: at the point and far from it {weak:.3?}, {strong:.3?} voxels");
    // Four voxels are asked for.
    assert!(weak.0.abs() < 0.1, "{weak:?}");
    assert!(strong.0 > 2.0 && strong.1.abs() < 0.1, "{strong:?}");
}

#[test]
fn points_between_control_points_draw_those_around_by_their_weights() {
    let options = DiscreteOptions::coarse(4, 2);
    let grid = Tensor::<5>::zeros([1, 1, 2, 3, 3], (&Device::flex(), DType::F64));
    let counted = || Tensor::ones([1; 5], (&Device::flex(), DType::F64)).mul_scalar(18.0);
    // Control points lie at 1.5, 5.5 and 9.5; the second pair lies beyond them.
    let pairs = PointPairs {
        fixed: vec![[2.5, 5.5, 1.5], [30.0, -3.0, 9.0]],
        moving: vec![[6.5, 1.5, 1.5], [30.0, 5.0, 9.0]],
        precision: 0.5,
    };
    let drawn = pairs.drawing(&grid, counted(), &options);
    // 18 points, steps of 4 voxels.
    let all = 18.0 * 16.0 * 0.5;
    let mut expected = vec![0.0; 18];
    (expected[3], expected[4], expected[9 + 2]) = (0.75 * all, 0.25 * all, all);
    assert_close("weights", &to_f64(drawn.weight.clone()), &expected, 1e-12);
    // Half of them alone, with another half of `v`: in the middle of what both want.
    let v = Tensor::<5>::ones([1, 3, 2, 3, 3], (&Device::flex(), DType::F64));
    let near = to_f64(drawn.with(v, 0.75 * all));
    let of = |point: usize| [0, 1, 2, 3].map(|c| near[c * 18 + point]);
    assert_close("between", &of(3), &[1.0, 0.0, 0.5, 1.5 * all], 1e-12);
    assert_close("beyond", &of(11)[1..2], &[(0.75 + 2.0) / 1.75], 1e-12);
    assert_close("elsewhere", &of(0), &[1.0, 1.0, 1.0, 0.75 * all], 1e-12);
    // Swapped, they draw the other image back; seen through what they say, nothing is left.
    assert_eq!(pairs.swapped().swapped(), pairs);
    let shift = field([12; 3], |_| [4.0, -4.0, 0.0]);
    let left = PointPairs { moving: pairs.moving[..1].to_vec(), ..pairs }.seen_through(shift);
    assert_close("left", &left.moving[0], &[2.5, 5.5, 1.5], 1e-6);
}

#[test]
fn both_directions_are_each_others_inverse() {
    let (fixed, moving, _) = displaced([48; 3]);
    let describe = |image: Tensor<5>| mind(image, &MindOptions::default());
    let (fixed, moving) = (describe(fixed), describe(moving));
    let left_of = |consistency_iterations| {
        let options = DiscreteOptions { consistency_iterations, ..DiscreteOptions::coarse(4, 4) };
        let found = discrete(fixed.clone(), moving.clone(), &options);
        // Swapped, the two change their places.
        let swapped = discrete(moving.clone(), fixed.clone(), &options);
        assert_eq!(to_f64(found.forward.clone()), to_f64(swapped.backward));
        let grid = |field: Tensor<5>| field.mul_scalar(0.25);
        let (forward, backward) = (grid(found.forward), grid(found.backward));
        let zero = forward.zeros_like();
        4.0 * mean_distance(&compose(backward, forward), &zero, 0)
    };
    let (before, after) = (left_of(0), left_of(15));
    println!("discrete: inverse consistency {before:.3} before, {after:.3} voxels after");
    assert!(after < 0.1 && after < 0.2 * before, "{before} {after}");
}

#[test]
fn gpu_agrees_with_cpu() {
    for (name, device) in gpu_devices() {
        let shape = [1, 12, 20, 22, 25];
        let of = |device: &Device| {
            let [fixed, moving] = [9, 10].map(|seed| features(shape, seed, device, DType::F32));
            let window = Window { radius: 2, steps: 2, first: 1, planes: 3 };
            let pool = |features: Tensor<5>, stride| {
                let cells = Cells { width: 4, stride };
                <Dispatch as DiscreteOps>::pool_3d(features.into_dispatch(), cells)
            };
            let (fixed, moving) = (pool(fixed, 4), pool(moving, 2));
            let costs = <Dispatch as DiscreteOps>::displacement_costs_3d(fixed, moving, window);
            to_f64(Tensor::<5>::from_dispatch(costs))
        };
        let error = assert_close(name, &of(&device), &of(&Device::flex()), GPU);
        println!("discrete {name}: costs {error:.1e}");
    }
}

#[test]
#[should_panic(expected = "discrete: fixed [1, 2, 3, 3, 3] and moving [1, 1, 3, 3, 3]")]
fn features_of_different_channels_are_refused() {
    let device = Device::flex();
    let of = |channels| Tensor::zeros([1, channels, 3, 3, 3], &device);
    discrete(of(2), of(1), &DiscreteOptions::default());
}
