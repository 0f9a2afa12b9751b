//! How densely a shape is sampled, and which widths of kernels go with it.

use rayon::prelude::*;
use serde::Serialize;

use super::tree::ShapeTree;
use super::{Position, Shape, norm, sub};

/// Distances from points to their nearest neighbours, in mm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spacing {
    /// Median.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

/// The distances from points to their nearest neighbours; zero for a single point. Coinciding points count as one.
pub fn spacing(points: &[Position]) -> Spacing {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("points are finite"));
    sorted.dedup();
    let cloud = Shape { points: sorted, ..Shape::default() };
    let tree = ShapeTree::new(&cloud);
    let mut nearest: Vec<f64> =
        (0..cloud.points.len()).into_par_iter().filter_map(|i| tree.neighbour(i)).collect();
    nearest.sort_by(f64::total_cmp);
    match nearest.last() {
        None => Spacing { median: 0.0, max: 0.0 },
        Some(&max) => Spacing { median: nearest[nearest.len() / 2], max },
    }
}

/// A width that does not go with the shapes, and which one would.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WidthAdvice {
    /// What to do about it.
    pub text: String,
    /// A width in mm that goes with them.
    pub width_mm: f64,
}

/// Whether a kernel of a width (in mm) sees the neighbours of points, and does not take them all for one.
///
/// `None` if so. A deformation of a width below twice the spacing tears neighbours apart; above the size of the
/// shape it can only move it as a whole.
pub fn width_advice(name: &str, width_mm: f64, shape: &Shape) -> Option<WidthAdvice> {
    let Spacing { median, .. } = spacing(&shape.points);
    let size = shape.diameter();
    let (least, most) = (2.0 * median, size);
    let (problem, advised) = if width_mm < least {
        (format!("neighbouring points lie {median:.3} mm apart and do not feel each other"), least)
    } else if width_mm > most && most > least {
        (format!("the shape measures {size:.3} mm and moves only as a whole"), size / 4.0)
    } else {
        return None;
    };
    let text = format!("the {name} width is {width_mm} mm: {problem}; try {advised:.2} mm");
    Some(WidthAdvice { text, width_mm: advised })
}

impl ShapeTree<'_> {
    /// Distance of a point of a cloud to the next one.
    fn neighbour(&self, index: usize) -> Option<f64> {
        let (points, here) = (self.points(), self.points()[index]);
        let mut best = f64::INFINITY;
        self.within(here, &mut best, |cell, best| {
            if cell != index {
                *best = best.min(norm(sub(points[cell], here)));
            }
        });
        best.is_finite().then_some(best)
    }
}
