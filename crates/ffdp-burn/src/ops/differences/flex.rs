//! Differences on the CPU: a sum of eight neighbours, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{COEFFICIENTS, DifferencesOps};
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// A volume and its extents along x, y, z.
struct Periodic<'a, T> {
    data: &'a [T],
    size: [usize; 3],
}

impl<T: Real> Periodic<'_, T> {
    /// The derivative along an axis at a voxel.
    fn derivative(&self, voxel: usize, axis: usize, h: f64) -> f64 {
        let (n, stride) = (self.size[axis], self.size[..axis].iter().product::<usize>());
        let at = voxel / stride % n;
        let line = voxel - at * stride;
        // Neighbours closer than the size need no division.
        let wrap = |i: usize| {
            if i < n {
                i
            } else if i < 2 * n {
                i - n
            } else {
                i % n
            }
        };
        let value = |i: usize| self.data[line + wrap(i) * stride].wide();
        let pair = |(s, c): (usize, &f64)| {
            let distance = s + 1;
            c * (value(at + distance) - value(at + n - distance % n))
        };
        COEFFICIENTS.iter().enumerate().map(pair).sum::<f64>() / h
    }
}

fn sizes(tensor: &FlexTensor) -> ([usize; 3], usize) {
    let shape = tensor.layout().shape();
    ([shape[4], shape[3], shape[2]], shape[2] * shape[3] * shape[4])
}

fn gradient<T: Real>(image: &FlexTensor, voxel: [f64; 3]) -> FlexTensor {
    let (size, len) = sizes(image);
    let data = elements::<T>(image);
    let value = |element: usize| {
        let (n, axis, at) = (element / (3 * len), element / len % 3, element % len);
        let volume = Periodic { data: &data[n * len..][..len], size };
        T::of(volume.derivative(at, axis, voxel[axis]))
    };
    let mut shape = image.layout().shape().clone();
    shape[1] = 3;
    tensor((0..3 * data.len()).into_par_iter().map(value).collect::<Vec<T>>(), shape)
}

fn divergence<T: Real>(field: &FlexTensor, voxel: [f64; 3]) -> FlexTensor {
    let (size, len) = sizes(field);
    let data = elements::<T>(field);
    let value = |element: usize| {
        let (n, at) = (element / len, element % len);
        let along = |axis: usize| {
            let volume = Periodic { data: &data[(3 * n + axis) * len..][..len], size };
            volume.derivative(at, axis, voxel[axis])
        };
        T::of((0..3).map(along).sum())
    };
    let mut shape = field.layout().shape().clone();
    shape[1] = 1;
    tensor((0..data.len() / 3).into_par_iter().map(value).collect::<Vec<T>>(), shape)
}

impl DifferencesOps for Flex {
    fn periodic_gradient_3d(image: FloatTensor<Self>, voxel: [f64; 3]) -> FloatTensor<Self> {
        let image = image.to_contiguous();
        by_dtype!("periodic_gradient", image.dtype(), gradient(&image, voxel))
    }

    fn periodic_divergence_3d(field: FloatTensor<Self>, voxel: [f64; 3]) -> FloatTensor<Self> {
        let field = field.to_contiguous();
        by_dtype!("periodic_divergence", field.dtype(), divergence(&field, voxel))
    }
}
