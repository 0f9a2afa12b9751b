//! The grid sampler by tensor operations: positions are stored, and eight corners gathered.

use burn::Tensor;
use burn::tensor::{FloatDType, Int};

use crate::ops::{GridSampleOptions, Interpolation, Padding};

/// Warps `image` by a displacement, trilinear, zeros outside; see [`crate::ops::warp`].
///
/// # Shapes
/// image `[N, C, Di, Hi, Wi]`, displacement `[N, 3, D, H, W]` in voxels, result `[N, C, D, H, W]`.
pub fn warp(image: Tensor<5>, displacement: Tensor<5>) -> Tensor<5> {
    grid_sample(image, None, Some(displacement), &GridSampleOptions::default())
}

/// Samples `image` at `A p + t + S u(p)`; see [`crate::ops::grid_sample()`].
///
/// # Shapes
/// image `[N, C, Di, Hi, Wi]` · affine `[1 or N, 3, 4]` · displacement `[N, 3, D, H, W]` · result
/// `[N, C, D, H, W]`.
///
/// # Panics
/// If the interpolation is not linear.
pub fn grid_sample(
    image: Tensor<5>,
    affine: Option<Tensor<3>>,
    displacement: Option<Tensor<5>>,
    options: &GridSampleOptions,
) -> Tensor<5> {
    assert!(
        options.interpolation == Interpolation::Linear,
        "baseline grid_sample: linear interpolation only, got {:?}",
        options.interpolation
    );
    let [batch, channels, di, hi, wi] = image.dims();
    let [d, h, w] = match &displacement {
        Some(field) => [field.dims()[2], field.dims()[3], field.dims()[4]],
        None => options.size.unwrap_or([di, hi, wi]),
    };
    let positions = positions(&image, affine, displacement, options, [d, h, w]);
    let taps: Vec<[Tap; 2]> = positions
        .into_iter()
        .zip([wi, hi, di])
        .map(|(position, size)| taps(position, size, options.padding))
        .collect();
    let flat = image.reshape([batch, channels, di * hi * wi]);
    let mut sum: Option<Tensor<5>> = None;
    for corner in 0..8usize {
        let [x, y, z] = [0, 1, 2].map(|axis| taps[axis][corner >> axis & 1].clone());
        let index = (z.index * hi as i64 + y.index) * wi as i64 + x.index;
        let index = index.reshape([batch, 1, d * h * w]).expand([batch, channels, d * h * w]);
        let values = flat.clone().gather(2, index).reshape([batch, channels, d, h, w]);
        let weight = (x.weight * y.weight * z.weight).reshape([batch, 1, d, h, w]);
        let term = values * weight;
        sum = Some(match sum {
            Some(sum) => sum + term,
            None => term,
        });
    }
    sum.expect("a cell has eight corners")
}

/// The stored grid: sampled indices along x, y and z, each `[N, D, H, W]`.
fn positions(
    image: &Tensor<5>,
    affine: Option<Tensor<3>>,
    displacement: Option<Tensor<5>>,
    options: &GridSampleOptions,
    size: [usize; 3],
) -> [Tensor<4>; 3] {
    let batch = image.dims()[0];
    let full = [batch, size[0], size[1], size[2]];
    let (device, dtype) = (image.device(), FloatDType::from(image.dtype()));
    // x, y, z of every voxel, by broadcasting.
    let p: [Tensor<4>; 3] = [0, 1, 2].map(|axis| {
        let mut shape = [1; 4];
        shape[3 - axis] = size[2 - axis];
        Tensor::<1, Int>::arange(0..size[2 - axis] as i64, &device).cast(dtype).reshape(shape)
    });
    [0, 1, 2].map(|i| {
        let mut position = match &affine {
            None => p[i].clone().expand(full),
            Some(affine) => {
                let entry = |j: usize| -> Tensor<4> {
                    let all = 0..affine.dims()[0];
                    affine.clone().slice([all, i..i + 1, j..j + 1]).reshape([-1, 1, 1, 1])
                };
                let linear = (0..3).map(|j| p[j].clone() * entry(j));
                linear.fold(entry(3), |sum, term| sum + term).expand(full)
            }
        };
        if let Some(field) = &displacement {
            for (j, scale) in options.displacement_scale[i].iter().enumerate() {
                if *scale != 0.0 {
                    let component = field.clone().narrow(1, j, 1).reshape(full);
                    position = position + component.mul_scalar(*scale);
                }
            }
        }
        position
    })
}

/// One of the two voxels along an axis between which a position lies.
#[derive(Clone)]
struct Tap {
    index: Tensor<4, Int>,
    weight: Tensor<4>,
}

fn taps(position: Tensor<4>, size: usize, padding: Padding) -> [Tap; 2] {
    let last = (size - 1) as f64;
    let position = match padding {
        Padding::Zeros => position,
        Padding::Border => position.clamp(0.0, last),
    };
    let low = position.clone().detach().floor();
    let t = position - low.clone();
    let tap = |index: Tensor<4>, weight: Tensor<4>| {
        let nearest = index.clone().clamp(0.0, last);
        let weight = match padding {
            Padding::Zeros => weight.mask_fill(index.not_equal(nearest.clone()), 0.0),
            Padding::Border => weight,
        };
        Tap { index: nearest.int(), weight }
    };
    [tap(low.clone(), t.clone().neg().add_scalar(1.0)), tap(low.add_scalar(1.0), t)]
}
