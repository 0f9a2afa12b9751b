//! The CPU samples stretches of rows, and scatters slabs of planes: the pieces make the whole.

use std::ops::Range;

use super::*;

/// Sums of a few terms of order 1 in f64, in another order.
const REORDERED: f64 = 1e-12;

const IMAGE: [usize; 3] = [21, 7, 50];
/// More than two stretches along x, and more than two slabs along z.
const GRID: [usize; 3] = [37, 5, 75];

/// Samples, and the gradients of image and displacement, of the voxels in a range of x and of z.
fn piece(field: &Tensor<5>, z: Range<usize>, x: Range<usize>, padding: Padding) -> [Tensor<5>; 3] {
    let device = cpu().autodiff();
    let [d, h, w] = IMAGE;
    let image = tensor::<5>(&normal(2 * d * h * w, 50), [1, 2, d, h, w], &device, DType::F64);
    let image = image.require_grad();
    let part = |t: Tensor<5>| t.narrow(2, z.start, z.len()).narrow(4, x.start, x.len());
    let field = Tensor::from_inner(part(field.clone())).require_grad();
    let upstream = normal(2 * GRID.iter().product::<usize>(), 51);
    let [d, h, w] = GRID;
    let upstream = part(tensor(&upstream, [1, 2, d, h, w], &cpu(), DType::F64));
    let shift = [1., 0., 0., x.start as f64, 0., 1., 0., 0., 0., 0., 1., z.start as f64];
    let affine = tensor(&shift, [1, 3, 4], &device, DType::F64);
    let options = GridSampleOptions { padding, ..Default::default() };
    let samples = grid_sample(image.clone(), Some(affine), Some(field.clone()), &options);
    let gradients = (samples.clone() * Tensor::from_inner(upstream)).backward();
    let of = |t: &Tensor<5>| t.grad(&gradients).expect("both want a gradient");
    [samples.inner(), of(&image), of(&field)]
}

fn compare(label: &str, actual: Tensor<5>, expected: &Tensor<5>) {
    assert_close(label, &to_f64(actual), &to_f64(expected.clone()), REORDERED);
}

#[test]
fn pieces_along_x_and_z_make_the_whole() {
    let [d, h, w] = GRID;
    // Across the whole image, so that everything is added up at once; and by a few voxels.
    for (range, padding) in [30.0, 2.0]
        .into_iter()
        .flat_map(|range| [Padding::Zeros, Padding::Border].map(|padding| (range, padding)))
    {
        let field = uniform(3 * d * h * w, -range, range, 52);
        let field = tensor(&field, [1, 3, d, h, w], &cpu(), DType::F64);
        let label = format!("+-{range} {padding:?}");
        let [samples, to_image, to_field] = piece(&field, 0..d, 0..w, padding);
        let along_x = [0..1, 1..32, 32..69, 69..w].map(|x| piece(&field, 0..d, x, padding));
        let along_z = [0..3, 3..16, 16..d].map(|z| piece(&field, z, 0..w, padding));
        for (axis, pieces) in [(4, &along_x[..]), (2, &along_z[..])] {
            let joined =
                |i: usize| Tensor::cat(pieces.iter().map(|p| p[i].clone()).collect(), axis);
            compare(&label, joined(0), &samples);
            compare(&label, joined(2), &to_field);
            let sum = pieces.iter().map(|p| p[1].clone()).reduce(|a, b| a + b);
            compare(&label, sum.expect("there are pieces"), &to_image);
        }
    }
}
