//! The volume penalty on the CPU: a determinant a point.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::BsplineVolumeOps;
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// The derivatives along x, y, z of a batch.
struct Columns<'a, T> {
    data: [&'a [T]; 3],
    /// Points of a volume.
    points: usize,
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// `log^2` and its derivative, along the tangent below `least`.
fn square_of_log(det: f64, least: f64) -> [f64; 2] {
    let log = det.max(least).ln();
    let slope = 2.0 * log / det.max(least);
    [log * log + slope * (det - least).min(0.0), slope]
}

impl<'a, T: Real> Columns<'a, T> {
    fn new(tensors: [&'a FlexTensor; 3]) -> Self {
        let shape = tensors[0].layout().shape();
        Self { data: tensors.map(elements), points: shape[2] * shape[3] * shape[4] }
    }

    fn len(&self) -> usize {
        self.data[0].len() / 3
    }

    /// The columns of `J` at a point.
    fn at(&self, point: usize) -> [[f64; 3]; 3] {
        let first = point / self.points * 3 * self.points + point % self.points;
        [0, 1, 2].map(|a| {
            [0, 1, 2].map(|c| {
                let unit = f64::from(u8::from(a == c));
                unit + self.data[a][first + c * self.points].wide()
            })
        })
    }
}

fn value<T: Real>(tensors: [&FlexTensor; 3], least: f64) -> FlexTensor {
    let columns = Columns::<T>::new(tensors);
    let at = |point| {
        let [x, y, z] = columns.at(point);
        square_of_log(dot(x, cross(y, z)), least)[0]
    };
    // Parts of a fixed size: the sum does not depend on the threads.
    let starts: Vec<usize> = (0..columns.len()).step_by(PART).collect();
    let part = |start: &usize| (*start..(start + PART).min(columns.len())).map(at).sum::<f64>();
    let parts: Vec<f64> = starts.par_iter().map(part).collect();
    tensor(vec![T::of(parts.iter().sum::<f64>() / columns.len() as f64)], [1])
}

/// Points that one thread adds.
const PART: usize = 1 << 12;

fn gradients<T: Real>(
    tensors: [&FlexTensor; 3],
    grad: &FlexTensor,
    least: f64,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let columns = Columns::<T>::new(tensors);
    let scale = elements::<T>(grad)[0].wide() / columns.len() as f64;
    let shape = tensors[0].layout().shape().clone();
    // By column: the cofactors, times the slope.
    let along = |a: usize| {
        let at = |element: usize| {
            let (volume, rest) = (element / (3 * columns.points), element % (3 * columns.points));
            let (c, point) = (rest / columns.points, rest % columns.points);
            let j = columns.at(volume * columns.points + point);
            let cofactors = cross(j[(a + 1) % 3], j[(a + 2) % 3]);
            let [_, slope] = square_of_log(dot(j[a], cofactors), least);
            T::of(scale * slope * cofactors[c])
        };
        let data: Vec<T> = (0..shape.num_elements()).into_par_iter().map(at).collect();
        tensor(data, shape.clone())
    };
    (along(0), along(1), along(2))
}

impl BsplineVolumeOps for Flex {
    fn log_volume_3d(
        along_x: FloatTensor<Self>,
        along_y: FloatTensor<Self>,
        along_z: FloatTensor<Self>,
        least: f64,
    ) -> FloatTensor<Self> {
        let tensors = [along_x, along_y, along_z].map(|t| t.to_contiguous());
        by_dtype!("bspline_volume", tensors[0].dtype(), value(tensors.each_ref(), least))
    }

    fn log_volume_3d_backward(
        along_x: FloatTensor<Self>,
        along_y: FloatTensor<Self>,
        along_z: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        least: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let tensors = [along_x, along_y, along_z].map(|t| t.to_contiguous());
        let grad = grad.to_contiguous();
        let dtype = tensors[0].dtype();
        by_dtype!("bspline_volume", dtype, gradients(tensors.each_ref(), &grad, least))
    }
}
