//! The discrete search on the CPU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{DiscreteOps, Window, pooled_shape};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

fn pool<T: Real>(features: &FlexTensor, spacing: usize) -> FlexTensor {
    let shape = features.layout().shape();
    let [d, h, w] = [shape[2], shape[3], shape[4]];
    let pooled = pooled_shape(shape, spacing);
    let (rows, points) = (pooled[3], pooled[4]);
    let data = elements::<T>(features);
    let mut output = vec![T::default(); pooled.num_elements()];
    // A task a plane of points.
    output.par_chunks_mut(rows * points).enumerate().for_each(|(plane, output)| {
        let (volume, plane) = (plane / pooled[2], plane % pooled[2]);
        let planes = plane * spacing..((plane + 1) * spacing).min(d);
        let mut sums = vec![0.0f64; rows * points];
        for z in planes.clone() {
            for y in 0..h {
                let row = &data[((volume * d + z) * h + y) * w..][..w];
                let sums = &mut sums[y / spacing * points..][..points];
                for (sum, cell) in sums.iter_mut().zip(row.chunks(spacing)) {
                    *sum += cell.iter().map(|value| value.wide()).sum::<f64>();
                }
            }
        }
        let cell = |point: usize, len: usize| ((point + 1) * spacing).min(len) - point * spacing;
        for (point, (output, sum)) in output.iter_mut().zip(sums).enumerate() {
            let voxels = planes.len() * cell(point / points, h) * cell(point % points, w);
            *output = T::of(sum / voxels as f64);
        }
    });
    tensor(output, pooled)
}

/// A displacement of the window.
fn displacement(label: usize, radius: usize) -> [isize; 3] {
    let width = 2 * radius + 1;
    [label % width, label / width % width, label / (width * width)]
        .map(|step| step as isize - radius as isize)
}

fn clamped(position: usize, offset: isize, len: usize) -> usize {
    position.saturating_add_signed(offset).min(len - 1)
}

fn costs<T: Real>(fixed: &FlexTensor, moving: &FlexTensor, window: Window) -> FlexTensor {
    let shape = fixed.layout().shape();
    let [channels, d, h, w] = [shape[1], shape[2], shape[3], shape[4]];
    let (radius, labels) = (window.radius, window.labels());
    let fixed = elements::<T>(fixed);
    // Rows continued by their ends, so that a displacement along x is another start.
    let wide = w + 2 * radius;
    let rows = elements::<T>(moving).chunks(w);
    let at = |row: &[T], x: usize| row[x.saturating_sub(radius).min(w - 1)].wide();
    let moving: Vec<f64> = rows.flat_map(|row| (0..wide).map(move |x| at(row, x))).collect();
    let output = window.cost_shape(shape);
    let mut data = vec![T::default(); output.num_elements()];
    // A task a displacement.
    data.par_chunks_mut(window.planes * h * w).enumerate().for_each(|(task, costs)| {
        let (n, label) = (task / labels, task % labels);
        let [dx, dy, dz] = displacement(label, radius);
        let start = (radius as isize + dx) as usize;
        let mut sums = vec![0.0f64; w];
        for (row, costs) in costs.chunks_mut(w).enumerate() {
            let (z, y) = (window.first + row / h, row % h);
            let (other_z, other_y) = (clamped(z, dz, d), clamped(y, dy, h));
            sums.fill(0.0);
            for c in 0..channels {
                let volume = (n * channels + c) * d;
                let fixed = &fixed[((volume + z) * h + y) * w..][..w];
                let moving = &moving[((volume + other_z) * h + other_y) * wide + start..][..w];
                for ((sum, f), m) in sums.iter_mut().zip(fixed).zip(moving) {
                    *sum += (f.wide() - m) * (f.wide() - m);
                }
            }
            costs.iter_mut().zip(&sums).for_each(|(cost, sum)| *cost = T::of(*sum));
        }
    });
    tensor(data, output)
}

/// The best displacement of a point so far.
#[derive(Clone, Copy)]
struct Best {
    cost: f64,
    squared: isize,
    displacement: [isize; 3],
}

fn least<T: Real>(costs: &FlexTensor, near: &FlexTensor, theta: f64, window: Window) -> FlexTensor {
    let shape = costs.layout().shape();
    let [batch, labels, planes, h, w] = [shape[0], shape[1], shape[2], shape[3], shape[4]];
    let (costs, near_field) = (elements::<T>(costs), elements::<T>(near));
    let depth = near.layout().shape()[2];
    let none = Best { cost: f64::INFINITY, squared: isize::MAX, displacement: [0; 3] };
    // A task a row of points.
    let of_row = |row: usize| {
        let (n, z, y) = (row / (planes * h), row / h % planes, row % h);
        let near: [&[T]; 3] = std::array::from_fn(|c| {
            &near_field[(((n * 3 + c) * depth + window.first + z) * h + y) * w..][..w]
        });
        let mut best = vec![none; w];
        for label in 0..labels {
            let displacement = displacement(label, window.radius);
            let squared = displacement.iter().map(|d| d * d).sum();
            let costs = &costs[(((n * labels + label) * planes + z) * h + y) * w..][..w];
            for (x, (best, cost)) in best.iter_mut().zip(costs).enumerate() {
                let apart = |c: usize| (displacement[c] as f64 - near[c][x].wide()).powi(2);
                let cost = cost.wide() + theta * (apart(0) + apart(1) + apart(2));
                if cost < best.cost || (cost == best.cost && squared < best.squared) {
                    *best = Best { cost, squared, displacement };
                }
            }
        }
        best
    };
    let rows: Vec<Vec<Best>> = (0..batch * planes * h).into_par_iter().map(of_row).collect();
    let entries = rows.chunks(planes * h);
    let component = |rows: &[Vec<Best>], c: usize| -> Vec<T> {
        rows.iter().flatten().map(|best| T::of(best.displacement[c] as f64)).collect()
    };
    let data = entries.flat_map(|rows| (0..3).flat_map(|c| component(rows, c)).collect::<Vec<T>>());
    tensor(data.collect::<Vec<T>>(), [batch, 3, planes, h, w])
}

impl DiscreteOps for Flex {
    fn pool_3d(features: FloatTensor<Self>, spacing: usize) -> FloatTensor<Self> {
        let features = features.to_contiguous();
        by_dtype!("discrete", features.dtype(), pool(&features, spacing))
    }

    fn displacement_costs_3d(
        fixed: FloatTensor<Self>,
        moving: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self> {
        let (fixed, moving) = (fixed.to_contiguous(), moving.to_contiguous());
        by_dtype!("discrete", fixed.dtype(), costs(&fixed, &moving, window))
    }

    fn least_displacement_3d(
        costs: FloatTensor<Self>,
        near: FloatTensor<Self>,
        theta: f64,
        window: Window,
    ) -> FloatTensor<Self> {
        let (costs, near) = (costs.to_contiguous(), near.to_contiguous());
        by_dtype!("discrete", costs.dtype(), least(&costs, &near, theta, window))
    }
}
