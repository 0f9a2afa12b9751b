//! What a mask leaves out neither counts nor moves.

use super::*;

/// LNCC reads an image relative to its mean, to which what is masked still belongs: rounding of f64
/// against variances that are a thousandth of it, over three steps.
const OTHER_CENTRE: f64 = 1e-9;

/// The first voxels along x count.
fn left_half(size: [usize; 3], width: usize, dtype: DType) -> Tensor<5> {
    let [d, h, w] = size;
    let values: Vec<f64> = (0..d * h * w).map(|i| if i % w < width { 1.0 } else { 0.0 }).collect();
    tensor(&values, [1, 1, d, h, w], &Device::flex(), dtype)
}

/// No smoothing, so that a gradient stays where it arises.
fn unsmoothed(method: DeformMethod, measure: Measure) -> DeformOptions {
    let off = GaussianOptions::isotropic(0.0);
    let update = if method == svf() { Update::Additive } else { Update::Compositive };
    DeformOptions { method, update, smooth_gradient: off, smooth_field: off, ..options(measure) }
}

#[test]
fn nothing_moves_outside_the_fixed_mask() {
    let size = [8, 9, 20];
    for measure in measures() {
        let (mut images, mut state) = problem(size, 1, &Device::flex(), DType::F64);
        state.field = state.field.zeros_like();
        images.masks[0] = Some(left_half(size, 10, DType::F64));
        let field = deform(&images, state, &unsmoothed(DeformMethod::Greedy, measure), 3).1.field;
        let [inside, outside] =
            [0, 10].map(|x| to_f64(field.clone().narrow(4, x, 10).abs().max())[0]);
        assert_eq!(outside, 0.0, "{measure:?}");
        assert!(inside > 0.1, "{measure:?}: {inside}");
    }
}

#[test]
fn what_lies_outside_the_masks_does_not_count() {
    let size = [8, 9, 20];
    for measure in measures() {
        for method in [DeformMethod::Greedy, DeformMethod::Syn, svf()] {
            let fields = method.fields();
            let setting = Setting { fields, ..Setting::of(size, 1) };
            let run = |corrupt: bool| {
                let (mut images, mut state) = setting.problem(&Device::flex(), DType::F64);
                state.field = state.field.zeros_like();
                let mask = left_half(size, 10, DType::F64);
                images.masks = [Some(mask), Some(left_half([10, 9, 21], 12, DType::F64))];
                if corrupt {
                    // Beyond the reach of the last voxel's interpolation while steps are short.
                    let spoil = |image: Tensor<5>, from| {
                        let [.., w] = image.dims();
                        let rest = image.clone().narrow(4, from, w - from).mul_scalar(-3.0);
                        Tensor::cat(vec![image.narrow(4, 0, from), rest.add_scalar(5.0)], 4)
                    };
                    images.fixed = spoil(images.fixed, 13);
                    images.moving = spoil(images.moving, 14);
                }
                let (values, state) = deform(&images, state, &unsmoothed(method, measure), 3);
                (to_f64(values), to_f64(state.field))
            };
            let (clean, corrupted) = (run(false), run(true));
            let off = |a: &[f64], b: &[f64]| {
                a.iter().zip(b).map(|(a, b)| (a - b).abs() / a.abs().max(1.0)).fold(0.0, f64::max)
            };
            let off = [off(&clean.0, &corrupted.0), off(&clean.1, &corrupted.1)];
            assert!(off.iter().all(|off| *off < OTHER_CENTRE), "{measure:?} {method:?}: {off:?}");
        }
    }
}

#[test]
fn masks_that_do_not_meet_measure_nothing_and_move_nothing() {
    let size = [8, 9, 20];
    for measure in measures() {
        let (mut images, mut state) = problem(size, 1, &Device::flex(), DType::F64);
        state.field = state.field.zeros_like();
        images.masks = [
            Some(left_half(size, 6, DType::F64)),
            Some(left_half([10, 9, 21], 12, DType::F64).neg().add_scalar(1.0)),
        ];
        let (values, state) = deform(&images, state, &unsmoothed(DeformMethod::Greedy, measure), 2);
        assert_eq!(to_f64(values), [0.0; 2], "{measure:?}");
        assert!(to_f64(state.field).iter().all(|u| *u == 0.0), "{measure:?}");
    }
}
