//! The discrete search on the CPU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{Cells, DiscreteOps, Window, pooled_shape};
use ffdp_kit::real::{Real, by_dtype, elements, tensor};

fn pool<T: Real>(features: &FlexTensor, cells: Cells) -> FlexTensor {
    let shape = features.layout().shape();
    let [d, h, w] = [shape[2], shape[3], shape[4]];
    let pooled = pooled_shape(shape, cells);
    let (rows, points) = (pooled[3], pooled[4]);
    let data = elements::<T>(features);
    let mut output = vec![T::default(); pooled.num_elements()];
    // A task a plane of points.
    output.par_chunks_mut(rows * points).enumerate().for_each(|(plane, output)| {
        let (volume, plane) = (plane / pooled[2], plane % pooled[2]);
        let cell = |point: usize, len: usize| {
            let first = point * cells.stride;
            first..(first + cells.width).min(len)
        };
        for (point, output) in output.iter_mut().enumerate() {
            let across = cell(point % points, w);
            let (mut sum, mut voxels) = (0.0f64, 0);
            for z in cell(plane, d) {
                for y in cell(point / points, h) {
                    let row = &data[((volume * d + z) * h + y) * w..][across.clone()];
                    sum += row.iter().map(|value| value.wide()).sum::<f64>();
                    voxels += row.len();
                }
            }
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

/// The rows of a grid, the values at the places `x` of each.
fn rows_at<T: Real>(data: &[T], w: usize, places: impl Iterator<Item = usize> + Clone) -> Vec<f64> {
    data.chunks(w).flat_map(|row| places.clone().map(|x| row[x].wide())).collect()
}

fn costs<T: Real>(fixed: &FlexTensor, moving: &FlexTensor, window: Window) -> FlexTensor {
    let shape = fixed.layout().shape();
    let [channels, d, h, w] = [shape[1], shape[2], shape[3], shape[4]];
    let (radius, steps, labels) = (window.radius, window.steps, window.labels());
    let of_moving = moving.layout().shape();
    let [depth, height, width] = [of_moving[2], of_moving[3], of_moving[4]];
    let fixed = elements::<T>(fixed);
    // For every displacement along x the values that the points of a row see.
    let shifted: Vec<Vec<f64>> = (-(radius as isize)..=radius as isize)
        .map(|dx| {
            let places = (0..w).map(move |x| clamped(x * steps, dx, width));
            rows_at(elements::<T>(moving), width, places)
        })
        .collect();
    let output = window.cost_shape(shape);
    let mut data = vec![T::default(); output.num_elements()];
    // A task a displacement.
    data.par_chunks_mut(window.planes * h * w).enumerate().for_each(|(task, costs)| {
        let (n, label) = (task / labels, task % labels);
        let [dx, dy, dz] = displacement(label, radius);
        let moving = &shifted[(radius as isize + dx) as usize];
        let mut sums = vec![0.0f64; w];
        for (row, costs) in costs.chunks_mut(w).enumerate() {
            let (z, y) = (window.first + row / h, row % h);
            let other = [(z, dz, depth), (y, dy, height)];
            let [other_z, other_y] = other.map(|(at, by, len)| clamped(at * steps, by, len));
            sums.fill(0.0);
            for c in 0..channels {
                let volume = n * channels + c;
                let fixed = &fixed[((volume * d + z) * h + y) * w..][..w];
                let moving = &moving[((volume * depth + other_z) * height + other_y) * w..][..w];
                for ((sum, f), m) in sums.iter_mut().zip(fixed).zip(moving) {
                    *sum += (f.wide() - m) * (f.wide() - m);
                }
            }
            costs.iter_mut().zip(&sums).for_each(|(cost, sum)| *cost = T::of(*sum));
        }
    });
    tensor(data, output)
}

/// The displacements of the points of a plane whose costs are least; `near` are the components of `v`, and `theta`.
fn least_of_plane<'a, T: Real>(
    labels: &[(usize, [f64; 3])],
    costs_of: impl Fn(usize) -> &'a [T],
    near: &[Vec<f64>; 4],
) -> Vec<[f64; 3]> {
    let points = near[0].len();
    let (mut least, mut found) = (vec![f64::INFINITY; points], vec![0usize; points]);
    for (which, (label, [dx, dy, dz])) in labels.iter().enumerate() {
        let costs = costs_of(*label);
        for p in 0..points {
            let apart = [dx - near[0][p], dy - near[1][p], dz - near[2][p]];
            let squared = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2];
            let cost = costs[p].wide() + near[3][p] * squared;
            let is_less = cost < least[p];
            least[p] = if is_less { cost } else { least[p] };
            found[p] = if is_less { which } else { found[p] };
        }
    }
    found.into_iter().map(|which| labels[which].1).collect()
}

fn least<T: Real>(costs: &FlexTensor, near: &FlexTensor, window: Window) -> FlexTensor {
    let shape = costs.layout().shape();
    let [batch, labels, planes, h, w] = [shape[0], shape[1], shape[2], shape[3], shape[4]];
    let (costs, near_field) = (elements::<T>(costs), elements::<T>(near));
    let depth = near.layout().shape()[2];
    // The shortest first: it stays where others cost as much.
    let mut by_length: Vec<(usize, [f64; 3])> = (0..labels)
        .map(|label| (label, displacement(label, window.radius).map(|d| d as f64)))
        .collect();
    by_length.sort_by_key(|(_, d)| d.iter().map(|d| d * d).sum::<f64>() as usize);
    // A task a plane of points.
    let area = h * w;
    let of_plane = |plane: usize| {
        let (n, z) = (plane / planes, plane % planes);
        let near: [Vec<f64>; 4] = std::array::from_fn(|c| {
            let plane = ((n * 4 + c) * depth + window.first + z) * area;
            near_field[plane..][..area].iter().map(|value| value.wide()).collect()
        });
        let costs_of = |label: usize| &costs[((n * labels + label) * planes + z) * area..][..area];
        least_of_plane(&by_length, costs_of, &near)
    };
    let found: Vec<Vec<[f64; 3]>> = (0..batch * planes).into_par_iter().map(of_plane).collect();
    let mut data = Vec::with_capacity(batch * 3 * planes * h * w);
    for entry in found.chunks(planes) {
        for c in 0..3 {
            data.extend(entry.iter().flatten().map(|displacement| T::of(displacement[c])));
        }
    }
    tensor(data, [batch, 3, planes, h, w])
}

impl DiscreteOps for Flex {
    fn pool_3d(features: FloatTensor<Self>, cells: Cells) -> FloatTensor<Self> {
        let features = features.to_contiguous();
        by_dtype!("discrete", features.dtype(), pool(&features, cells))
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
        window: Window,
    ) -> FloatTensor<Self> {
        let (costs, near) = (costs.to_contiguous(), near.to_contiguous());
        by_dtype!("discrete", costs.dtype(), least(&costs, &near, window))
    }
}
