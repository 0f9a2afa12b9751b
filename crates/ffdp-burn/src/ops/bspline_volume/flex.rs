//! The volume penalty on the CPU: a determinant a point, in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{BsplineVolumeOps, Millimetres, POINTS, points, weights};
use crate::ops::bspline::flex::{Rows, pass};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

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

/// From control points to the points of their cells.
fn rows(controls: usize, slope: bool) -> Rows {
    let row = |point: usize| {
        let weights = weights(controls == 1, slope, point % POINTS).into_iter().enumerate();
        let taps = weights.take(controls);
        taps.map(|(tap, weight)| (point / POINTS + tap, weight)).collect()
    };
    (0..points(controls)).map(row).collect()
}

/// And back.
fn transposed(rows: &Rows, controls: usize) -> Rows {
    let mut output = vec![Vec::new(); controls];
    for (point, row) in rows.iter().enumerate() {
        row.iter().for_each(|(control, weight)| output[*control].push((point, *weight)));
    }
    output
}

/// Points that one thread adds: parts of a fixed size, so that the sum does not depend on the threads.
const PART: usize = 1 << 12;

fn with_gradient<T: Real>(
    coefficients: &FlexTensor,
    mm: Millimetres,
    least: f64,
) -> (FlexTensor, FlexTensor) {
    let shape = coefficients.layout().shape().clone();
    let controls = [shape[4], shape[3], shape[2]];
    let [x, y, z] = controls;
    let [px, py, pz] = controls.map(points);
    let volume = px * py * pz;
    let count = shape[0] * volume;
    let phi: Vec<f64> = elements::<T>(coefficients).iter().map(|v| v.wide()).collect();
    let tables = |a: usize| [0, 1, 2].map(|axis| rows(controls[axis], axis == a));
    // Derivatives along each axis, per spacing.
    let columns = [0, 1, 2].map(|a| {
        let [along_x, along_y, along_z] = tables(a);
        let rows = pass(&phi, &along_x, x, 1);
        let planes = pass(&rows, &along_y, y, px);
        pass(&planes, &along_z, z, px * py)
    });
    let factor = |a: usize, c: usize| mm.unit[c] / mm.spacing[a];
    let jacobian = |point: usize| {
        let first = point / volume * 3 * volume + point % volume;
        [0, 1, 2].map(|a: usize| {
            [0, 1, 2].map(|c: usize| {
                f64::from(u8::from(a == c)) + factor(a, c) * columns[a][first + c * volume]
            })
        })
    };
    let value = |point: usize| {
        let [x, y, z] = jacobian(point);
        square_of_log(dot(x, cross(y, z)), least)[0]
    };
    let starts: Vec<usize> = (0..count).step_by(PART).collect();
    let part = |start: &usize| (*start..(start + PART).min(count)).map(value).sum::<f64>();
    let parts: Vec<f64> = starts.par_iter().map(part).collect();
    let mean = parts.iter().sum::<f64>() / count as f64;

    // Through one column of the Jacobian: its cofactors times the slope.
    let through = |a: usize| {
        let at = |element: usize| {
            let (batch, rest) = (element / (3 * volume), element % (3 * volume));
            let (c, point) = (rest / volume, rest % volume);
            let j = jacobian(batch * volume + point);
            let cofactors = cross(j[(a + 1) % 3], j[(a + 2) % 3]);
            let [_, slope] = square_of_log(dot(j[a], cofactors), least);
            slope * cofactors[c] * factor(a, c) / count as f64
        };
        let to_column: Vec<f64> = (0..3 * count).into_par_iter().map(at).collect();
        to_controls(&to_column, &tables(a), controls)
    };
    let mut gradient = vec![0.0; phi.len()];
    for a in 0..3 {
        gradient.iter_mut().zip(through(a)).for_each(|(sum, value)| *sum += value);
    }
    let gradient = gradient.into_iter().map(T::of).collect();
    (tensor(vec![T::of(mean)], [1]), tensor(gradient, shape))
}

/// The adjoint of the passes by `tables`, one a direction: from the points of fields to their controls.
fn to_controls(at_points: &[f64], tables: &[Rows; 3], controls: [usize; 3]) -> Vec<f64> {
    let [px, py, pz] = controls.map(points);
    let [along_x, along_y, along_z] =
        [0, 1, 2].map(|axis| transposed(&tables[axis], controls[axis]));
    let planes = pass(at_points, &along_z, pz, px * py);
    let rows = pass(&planes, &along_y, py, px);
    pass(&rows, &along_x, px, 1)
}

impl BsplineVolumeOps for Flex {
    fn bspline_volume_3d(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
        least: f64,
    ) -> FloatTensor<Self> {
        Self::bspline_volume_3d_with_gradient(coefficients, mm, least).0
    }

    fn bspline_volume_3d_with_gradient(
        coefficients: FloatTensor<Self>,
        mm: Millimetres,
        least: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let coefficients = coefficients.to_contiguous();
        by_dtype!("bspline_volume", coefficients.dtype(), with_gradient(&coefficients, mm, least))
    }
}
