//! Displacement fields: shapes to try, fields by formula, and numbers made of them.

use burn::tensor::{DType, Device, Tensor};

use super::{tensor, to_f64};

/// Awkward shapes of fields: two batch entries, odd extents, axes of one and of two voxels.
pub const FIELD_SHAPES: [[usize; 5]; 6] = [
    [1, 3, 4, 5, 3],
    [2, 3, 3, 2, 4],
    [1, 3, 1, 1, 1],
    [1, 3, 1, 6, 1],
    [1, 3, 2, 2, 2],
    [2, 3, 1, 3, 5],
];

/// A field of f64 on the CPU, by its value at each voxel (x, y, z).
pub fn field([d, h, w]: [usize; 3], value: impl Fn([f64; 3]) -> [f64; 3]) -> Tensor<5> {
    let mut data = vec![0.0; 3 * d * h * w];
    for voxel in 0..d * h * w {
        let u = value([voxel % w, voxel / w % h, voxel / w / h].map(|i| i as f64));
        (0..3).for_each(|c| data[c * d * h * w + voxel] = u[c]);
    }
    tensor(&data, [1, 3, d, h, w], &Device::flex(), DType::F64)
}

/// A number made of a field, and its gradient.
///
/// # Panics
/// If the number does not depend on the field.
pub fn value_and_gradient(
    field: &[f64],
    shape: [usize; 5],
    device: &Device,
    dtype: DType,
    number: impl Fn(Tensor<5>) -> Tensor<1>,
) -> (f64, Vec<f64>) {
    let field = tensor(field, shape, &device.clone().autodiff(), dtype).require_grad();
    let number = number(field.clone());
    assert_eq!(number.dims(), [1]);
    let gradients = number.backward();
    let gradient = to_f64(field.grad(&gradients).expect("the number depends on the field"));
    (to_f64(number.inner())[0], gradient)
}
