//! How far two shapes lie apart.

use rayon::prelude::*;
use serde::Serialize;

use super::{Cells, Shape, ShapeTree};

/// How far two shapes lie apart, in mm. The points of each are looked up on the other: on its surface, on its
/// curves, or among its points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SurfaceDistance {
    /// Mean over both shapes, each weighted by its area or length (by its points, for clouds).
    pub mean: f64,
    /// Root of the mean square, likewise.
    pub rms: f64,
    /// 95th percentile, the larger of the two directions.
    pub p95: f64,
    /// Hausdorff's: the largest.
    pub max: f64,
}

/// The distances from the points of `from` to the nearest place of `to`, in mm.
pub(crate) fn distances(from: &Shape, to: &Shape) -> Vec<f64> {
    let tree = ShapeTree::new(to);
    from.points.par_iter().map(|&p| tree.nearest(p).distance_mm).collect()
}

/// The distances between two shapes, in both directions.
pub fn surface_distance(a: &Shape, b: &Shape) -> SurfaceDistance {
    let directed = [[a, b], [b, a]].map(|[from, to]| (distances(from, to), point_weights(from)));
    let total: f64 = directed.iter().flat_map(|(_, weights)| weights).sum();
    let mean_of = |f: fn(f64) -> f64| {
        let sum = |(d, w): &(Vec<f64>, Vec<f64>)| -> f64 {
            d.iter().zip(w).map(|(&d, w)| f(d) * w).sum()
        };
        directed.iter().map(sum).sum::<f64>() / total
    };
    let largest = |d: &[f64]| d.iter().copied().fold(0.0, f64::max);
    SurfaceDistance {
        mean: mean_of(|d| d),
        rms: mean_of(|d| d * d).sqrt(),
        p95: directed.iter().map(|(d, w)| percentile_95(d, w)).fold(0.0, f64::max),
        max: directed.iter().map(|(d, _)| largest(d)).fold(0.0, f64::max),
    }
}

/// The part of its cells' length or area that each point stands for; 1 in a cloud.
pub(crate) fn point_weights(shape: &Shape) -> Vec<f64> {
    let (indices, corners) = shape.cells.indices();
    if matches!(shape.cells, Cells::None) || indices.is_empty() {
        return vec![1.0; shape.points.len()];
    }
    let mut weights = vec![0.0; shape.points.len()];
    for (cell, measure) in indices.chunks_exact(corners).zip(shape.cell_measures()) {
        cell.iter().for_each(|&i| weights[i as usize] += measure / corners as f64);
    }
    weights
}

fn percentile_95(distances: &[f64], weights: &[f64]) -> f64 {
    let mut order: Vec<usize> = (0..distances.len()).collect();
    order.sort_by(|&a, &b| distances[a].total_cmp(&distances[b]));
    let limit = 0.95 * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    for &i in &order {
        sum += weights[i];
        if sum >= limit {
            return distances[i];
        }
    }
    order.last().map_or(0.0, |&i| distances[i])
}
