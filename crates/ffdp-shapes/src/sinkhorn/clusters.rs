//! Points of each cube of a grid as clusters, and the pairs of clusters that can exchange mass.
//!
//! A pair of points weighs `b_j exp(-s_ij / eps)` in the sum of its row, `s_ij = C_ij - f_i / d - g_j`. For
//! `C = r^2 / 2` and smooth potentials `sqrt(2 s)` is a distance: that of `y_j` from where `x_i` is carried to. It changes
//! within a cluster by its radius at most. For `C = r` so does `s`, where mass stays or moves on along the same ray; where
//! it moves the other way the bound is twice the radius, which is not used: it would keep more than it gains (errors of
//! the value below 1e-4 either way).

use std::sync::Arc;

use burn::tensor::{Int, Tensor, TensorData};
use rayon::prelude::*;

use super::descent::{Level, PAIRS, PARTNER};
use super::settings::{Multiscale, TransportCost};
use crate::ranges::Ranges;
use crate::tensors::TensorOptions;

/// Steps from one side to the next smaller one, in search of a number of clusters.
const SMALLER: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// Clusters of one cloud.
#[derive(Debug)]
struct Clusters {
    dim: usize,
    /// The points, cluster by cluster.
    order: Vec<usize>,
    /// Cluster `c` is `bounds[c]..bounds[c + 1]` of the order.
    bounds: Vec<usize>,
    /// Centres of mass, `dim` numbers each.
    centres: Vec<f64>,
    masses: Vec<f64>,
    /// The largest distance of a point from its centre.
    radii: Vec<f64>,
}

impl Clusters {
    fn new(points: &[f64], weights: &[f64], grid: &Grid) -> Self {
        let dim = grid.low.len();
        let keys: Vec<u128> = points.chunks(dim).map(|p| grid.cube_of(p)).collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|&i| (keys[i], i));
        let starts = (0..order.len()).filter(|&k| k == 0 || keys[order[k]] != keys[order[k - 1]]);
        let bounds: Vec<usize> = starts.chain([order.len()]).collect();
        let (mut centres, mut masses, mut radii) = (Vec::new(), Vec::new(), Vec::new());
        for bound in bounds.windows(2) {
            let of_cluster = &order[bound[0]..bound[1]];
            let point = |i: usize| &points[i * dim..][..dim];
            let mass: f64 = of_cluster.iter().map(|&i| weights[i]).sum();
            let moment =
                |c: usize| of_cluster.iter().map(|&i| weights[i] * point(i)[c]).sum::<f64>();
            let centre: Vec<f64> = (0..dim).map(|c| moment(c) / mass).collect();
            let far = of_cluster.iter().map(|&i| squared(point(i), &centre));
            radii.push(far.fold(0.0, f64::max).sqrt());
            masses.push(mass);
            centres.extend(centre);
        }
        Self { dim, order, bounds, centres, masses, radii }
    }

    fn count(&self) -> usize {
        self.masses.len()
    }

    fn centre(&self, cluster: usize) -> &[f64] {
        &self.centres[cluster * self.dim..][..self.dim]
    }

    /// The means of sorted values in the clusters.
    fn means(&self, values: &[f64]) -> Vec<f64> {
        let mean = |bound: &[usize]| {
            let values = &values[bound[0]..bound[1]];
            values.iter().sum::<f64>() / values.len() as f64
        };
        self.bounds.windows(2).map(mean).collect()
    }
}

fn squared(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

/// Cubes of space.
struct Grid {
    low: Vec<f64>,
    counts: Vec<u128>,
    side: f64,
}

impl Grid {
    fn new([low, high]: &[Vec<f64>; 2], side: f64) -> Self {
        let count = |(low, high): (&f64, &f64)| ((high - low) / side) as u128 + 1;
        Self { low: low.clone(), counts: low.iter().zip(high).map(count).collect(), side }
    }

    /// The number of the cube of a point, the last axis fastest: clusters that follow each other are neighbours. Cubes
    /// of one number, where numbers overflow, make one cluster.
    fn cube_of(&self, point: &[f64]) -> u128 {
        point.iter().zip(&self.low).zip(&self.counts).fold(0, |key: u128, ((x, low), count)| {
            key.wrapping_mul(*count).wrapping_add(((x - low) / self.side) as u128)
        })
    }

    fn filled(&self, points: &[f64]) -> usize {
        let mut keys: Vec<u128> =
            points.par_chunks(self.low.len()).map(|point| self.cube_of(point)).collect();
        keys.par_sort_unstable();
        keys.dedup();
        keys.len()
    }
}

/// The lowest and highest coordinates of all points.
fn extent(clouds: &[Vec<f64>; 2], dim: usize) -> [Vec<f64>; 2] {
    let along = |c: usize| clouds.iter().flat_map(move |points| points[c..].iter().step_by(dim));
    [f64::min, f64::max]
        .map(|least| (0..dim).map(|c| along(c).copied().reduce(least).unwrap_or(0.0)).collect())
}

/// The grid whose cubes hold about `N^(1/3)` of `N` points: from a side that fits a full box on to smaller ones.
fn grid_for(clouds: &[Vec<f64>; 2], dim: usize) -> Grid {
    let extent = extent(clouds, dim);
    let largest = &clouds[usize::from(clouds[1].len() > clouds[0].len())];
    let wanted = ((largest.len() / dim) as f64).powf(2.0 / 3.0);
    let diameter = squared(&extent[0], &extent[1]).sqrt();
    // Flat clouds have an extent of almost 0.
    let edges =
        extent[0].iter().zip(&extent[1]).map(|(low, high)| (high - low).max(diameter / 10.0));
    let mut side = (edges.product::<f64>() / wanted).powf(1.0 / dim as f64);
    // Points at one place fill one cube of any size.
    while side > 1e-6 * diameter {
        let grid = Grid::new(&extent, side);
        if grid.filled(largest) as f64 > wanted / 2.0 {
            return grid;
        }
        side *= SMALLER;
    }
    Grid::new(&extent, diameter.max(f64::MIN_POSITIVE))
}

/// The clusters of two clouds.
#[derive(Debug)]
pub(super) struct Clustering {
    /// Side of the cubes.
    pub side: f64,
    clouds: [Clusters; 2],
    truncation: f64,
    cost: TransportCost,
}

impl Clustering {
    /// None where points cannot be read back, or are no numbers.
    pub fn new(
        points: [&Tensor<2>; 2],
        weights: [&Tensor<2>; 2],
        settings: &Multiscale,
        cost: TransportCost,
    ) -> Option<Self> {
        let read = |t: &Tensor<2>| t.clone().try_into_vec_as::<f64>().ok();
        let clouds = [read(points[0])?, read(points[1])?];
        let masses = [read(weights[0])?, read(weights[1])?];
        if clouds.iter().any(|c| c.is_empty() || !c.iter().all(|v| v.is_finite())) {
            return None;
        }
        let dim = points[0].dims()[1];
        let grid = match settings.side {
            Some(side) => Grid::new(&extent(&clouds, dim), side),
            None => grid_for(&clouds, dim),
        };
        let of = |k: usize| Clusters::new(&clouds[k], &masses[k], &grid);
        let truncation = settings.truncation;
        Some(Self { side: grid.side, clouds: [of(0), of(1)], truncation, cost })
    }

    /// Rows of cloud `k` cluster by cluster, on the tape.
    pub fn sorted(&self, k: usize, rows: Tensor<2>) -> Tensor<2> {
        let device = rows.device();
        rows.select(0, indices(self.clouds[k].order.iter().copied(), &device))
    }

    /// Rows of cloud `k` as they were.
    pub fn unsorted(&self, k: usize, rows: Tensor<2>) -> Tensor<2> {
        let order = &self.clouds[k].order;
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &i)| places[i] = place);
        let device = rows.device();
        rows.select(0, indices(places.into_iter(), &device))
    }

    /// Centres of mass `[K, D]` and masses `[K, 1]` of cloud `k`.
    pub fn centres(&self, k: usize, (device, dtype): TensorOptions) -> [Tensor<2>; 2] {
        let cloud = &self.clouds[k];
        let tensor = |values: &[f64], width| {
            let data = TensorData::new(values.to_vec(), [cloud.count(), width]);
            Tensor::from_data(data.convert_dtype(dtype), (device, dtype))
        };
        [tensor(&cloud.centres, cloud.dim), tensor(&cloud.masses, 1)]
    }

    /// For every pair of [`PAIRS`] the clusters that count at a level, chosen among those that counted `before`. None
    /// where potentials cannot be read back.
    pub fn ranges(
        &self,
        potentials: &[Tensor<2>],
        level: Level,
        before: &[Arc<Ranges>],
    ) -> Option<Vec<Arc<Ranges>>> {
        let means = potentials.iter().zip(PAIRS).map(|(potential, [row, _])| {
            let values = potential.clone().try_into_vec_as::<f64>().ok()?;
            Some(self.clouds[row].means(&values))
        });
        let means = means.collect::<Option<Vec<_>>>()?;
        let ranges = (0..means.len()).map(|k| {
            let pair = [&means[k], &means[PARTNER[k]]];
            Arc::new(self.kept(PAIRS[k], pair, level, before.get(k).map(Arc::as_ref)))
        });
        Some(ranges.collect())
    }

    fn kept(
        &self,
        [row, col]: [usize; 2],
        [f, g]: [&Vec<f64>; 2],
        level: Level,
        before: Option<&Ranges>,
    ) -> Ranges {
        let (rows, cols) = (&self.clouds[row], &self.clouds[col]);
        let slack = |i: usize, j: usize| {
            let r2 = squared(rows.centre(i), cols.centre(j));
            let cost = match self.cost {
                TransportCost::Distance => r2.sqrt(),
                TransportCost::HalfSquare => r2 / 2.0,
            };
            (cost - f[i] / level.damping() - g[j]).max(0.0)
        };
        let limit = self.truncation * level.eps;
        let counts = |i: usize, j: usize| {
            let radius = rows.radii[i] + cols.radii[j];
            match self.cost {
                TransportCost::Distance => slack(i, j) <= radius + limit,
                TransportCost::HalfSquare => {
                    (2.0 * slack(i, j)).sqrt() <= radius + (2.0 * limit).sqrt()
                }
            }
        };
        let all: Vec<usize> = (0..cols.count()).collect();
        let kept = (0..rows.count()).into_par_iter().map(|i| {
            let among = before.map_or(&all[..], |before| before.kept(i));
            let kept: Vec<usize> = among.iter().copied().filter(|&j| counts(i, j)).collect();
            // A row without any column would have no potential.
            if kept.is_empty() { among.to_vec() } else { kept }
        });
        Ranges::new(rows.bounds.clone(), cols.bounds.clone(), kept.collect())
    }
}

fn indices(places: impl Iterator<Item = usize>, device: &burn::tensor::Device) -> Tensor<1, Int> {
    let places: Vec<i32> = places.map(|place| place as i32).collect();
    Tensor::from_data(TensorData::from(&places[..]), device)
}
