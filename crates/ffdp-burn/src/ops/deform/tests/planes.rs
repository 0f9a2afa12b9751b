//! Images of one plane: two-dimensional registration.

use super::*;
use ffdp_kit::testing::assert_close;

#[test]
fn a_plane_does_not_leave_itself() {
    for measure in measures() {
        for method in [DeformMethod::Greedy, DeformMethod::Syn, svf()] {
            let fields = method.fields();
            let setting = Setting { fields, ..Setting::of([1, 16, 15], 1) };
            let (images, mut state) = setting.problem(&Device::flex(), DType::F64);
            state.field = state.field.zeros_like();
            let update = if method == svf() { Update::Additive } else { Update::Compositive };
            let options = DeformOptions { method, update, ..options(measure) };
            let field = deform(&images, state, &options, 5).1.field;
            let [x, y, z] = [0, 1, 2].map(|c| to_f64(field.clone().narrow(1, c, 1).abs().max())[0]);
            assert!(x > 0.1 && y > 0.1 && z == 0.0, "{measure:?} {method:?}: {x} {y} {z}");
        }
    }
}

#[test]
fn with_weights_of_ones_a_plane_is_compared_as_if_it_went_on_along_z() {
    // Constant along z and thicker than the window, the middle of a volume is such a plane.
    let (images, state) = problem([1, 16, 15], 1, &Device::flex(), DType::F64);
    let ones = |image: &Tensor<5>| Tensor::ones(image.dims(), (&image.device(), image.dtype()));
    let flat = |map: &Tensor<3>| {
        let still = Tensor::zeros([1, 1, 4], (&map.device(), map.dtype()));
        Tensor::cat(vec![map.clone().narrow(1, 0, 2), still], 1)
    };
    let mask = Some(ones(&images.fixed));
    let moving = images.moving.narrow(2, 0, 1);
    let affine = flat(&images.affine);
    let plane = DeformImages { moving, affine, masks: [mask, None], ..images };
    let measure = measures()[0];
    let scale = [[1.1, 0.1, 0.0], [0.0, 0.9, 0.0], [0.0, 0.0, 1.0]];
    let off = GaussianOptions::isotropic(0.0);
    let options =
        DeformOptions { displacement_scale: scale, smooth_gradient: off, ..options(measure) };
    let value = to_f64(deform(&plane, state, &options, 1).0)[0];
    // The composed reference on 9 equal planes, of which the middle one has all planes in its windows.
    let thick = |image: &Tensor<5>| image.clone().repeat_dim(2, 9);
    let (images, state) = problem([1, 16, 15], 1, &Device::flex(), DType::F64);
    let grid = crate::ops::GridSampleOptions { displacement_scale: scale, ..Default::default() };
    let in_plane = state.field.clone().slice([0..1, 0..2]);
    let still = state.field.narrow(1, 2, 1).zeros_like();
    let field = Tensor::cat(vec![in_plane, still], 1);
    let moved = crate::ops::grid_sample(
        plane.moving.clone(),
        Some(plane.affine.clone()),
        Some(field),
        &grid,
    );
    let Measure::Lncc(lncc) = measure else { unreachable!("the first of them") };
    let (moved, fixed) = (thick(&moved), thick(&images.fixed));
    let weights = Tensor::ones(fixed.dims(), (&fixed.device(), fixed.dtype()));
    // All planes of the thick volume are alike, those at its faces too: their windows renormalise.
    let loss = to_f64(crate::ops::weighted_lncc(moved, fixed, weights, &lncc))[0];
    let expected = (1.0 - loss) * (16 * 15) as f64;
    assert_close("measure", &[value], &[expected], 1e-12);
}
