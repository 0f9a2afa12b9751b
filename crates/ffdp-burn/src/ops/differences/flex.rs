//! Differences on the CPU: a sum of eight neighbours, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{COEFFICIENTS, DifferencesOps};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

/// A volume and its extents along x, y, z.
struct Periodic<'a, T> {
    data: &'a [T],
    size: [usize; 3],
}

impl<T: Real> Periodic<'_, T> {
    fn row(&self, [y, z]: [usize; 2]) -> &[T] {
        &self.data[(z * self.size[1] + y) * self.size[0]..][..self.size[0]]
    }

    /// Adds the derivative along an axis, in voxels of `h`, to a row of sums.
    fn add_derivative(&self, [y, z]: [usize; 2], axis: usize, h: f64, sums: &mut [f64]) {
        let n = self.size[axis];
        let at = |k: usize| k % n;
        if axis == 0 {
            let row = self.row([y, z]);
            let reach = COEFFICIENTS.len();
            // Once around the circle, and as far as neighbours reach.
            let padded: Vec<f64> =
                (0..n + 2 * reach).map(|k| row[at(k + n * reach - reach)].wide()).collect();
            for (x, sum) in sums.iter_mut().enumerate() {
                let value = |k: usize| padded[x + k];
                let pair =
                    |(s, c): (usize, &f64)| c * (value(reach + s + 1) - value(reach - s - 1));
                *sum += COEFFICIENTS.iter().enumerate().map(pair).sum::<f64>() / h;
            }
            return;
        }
        let neighbour = |distance: usize| {
            let away = n - distance % n;
            let rows = match axis {
                1 => [[at(y + distance), z], [at(y + away), z]],
                _ => [[y, at(z + distance)], [y, at(z + away)]],
            };
            rows.map(|row| self.row(row))
        };
        let rows: [[&[T]; 2]; COEFFICIENTS.len()] = std::array::from_fn(|s| neighbour(s + 1));
        for (x, sum) in sums.iter_mut().enumerate() {
            let pair = |(c, [up, down]): (&f64, &[&[T]; 2])| c * (up[x].wide() - down[x].wide());
            *sum += COEFFICIENTS.iter().zip(&rows).map(pair).sum::<f64>() / h;
        }
    }
}

fn sizes(tensor: &FlexTensor) -> ([usize; 3], usize) {
    let shape = tensor.layout().shape();
    ([shape[4], shape[3], shape[2]], shape[2] * shape[3] * shape[4])
}

/// `[N, channels, D, H, W]` of `size`, each row of sums from the number of its volume and its place (y, z).
fn rows<T: Real>(
    volumes: usize,
    size: [usize; 3],
    of: impl Fn(usize, [usize; 2], &mut [f64]) + Sync,
) -> Vec<T> {
    let mut result = vec![T::of(0.0); volumes * size.iter().product::<usize>()];
    result.par_chunks_mut(size[0]).enumerate().for_each_init(
        || vec![0.0; size[0]],
        |sums, (place, row)| {
            let place = [place / (size[1] * size[2]), place % size[1], place / size[1] % size[2]];
            sums.fill(0.0);
            of(place[0], [place[1], place[2]], sums);
            row.iter_mut().zip(sums).for_each(|(value, sum)| *value = T::of(*sum));
        },
    );
    result
}

fn gradient<T: Real>(image: &FlexTensor, voxel: [f64; 3]) -> FlexTensor {
    let (size, len) = sizes(image);
    let data = elements::<T>(image);
    let of = |volume: usize, place: [usize; 2], sums: &mut [f64]| {
        let (n, axis) = (volume / 3, volume % 3);
        let image = Periodic { data: &data[n * len..][..len], size };
        image.add_derivative(place, axis, voxel[axis], sums);
    };
    let mut shape = image.layout().shape().clone();
    shape[1] = 3;
    tensor(rows::<T>(3 * data.len() / len, size, of), shape)
}

fn divergence<T: Real>(field: &FlexTensor, voxel: [f64; 3]) -> FlexTensor {
    let (size, len) = sizes(field);
    let data = elements::<T>(field);
    let of = |n: usize, place: [usize; 2], sums: &mut [f64]| {
        for axis in 0..3 {
            let part = Periodic { data: &data[(3 * n + axis) * len..][..len], size };
            part.add_derivative(place, axis, voxel[axis], sums);
        }
    };
    let mut shape = field.layout().shape().clone();
    shape[1] = 1;
    tensor(rows::<T>(data.len() / (3 * len), size, of), shape)
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
