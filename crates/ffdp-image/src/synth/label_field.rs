//! Labels as a function of position, and slices of any grid through it.

use std::ops::Range;

use rayon::prelude::*;

use super::anatomy::Anatomy;
use super::structure::Structure;
use super::warp::Diffeomorphism;
use crate::image::Geometry;

/// A label for every point of space; 0 is background.
pub trait LabelField: Sync {
    /// Every label that occurs, ascending.
    fn ids(&self) -> Vec<i32>;

    /// The labels of a line of neighbouring points, RAS mm.
    ///
    /// # Panics
    /// May panic when the slices differ in length.
    fn label_line(&self, points_mm: &[[f64; 3]], labels: &mut [i32]);
}

impl LabelField for Anatomy {
    fn ids(&self) -> Vec<i32> {
        (0..=Structure::COUNT as i32).collect()
    }

    fn label_line(&self, points_mm: &[[f64; 3]], labels: &mut [i32]) {
        for (label, &point) in labels.iter_mut().zip(points_mm) {
            *label = self.structure(point).map_or(0, Structure::id);
        }
    }
}

/// The labels of the slices `z` of a grid: those of the field at `warp(p)`, p the voxel's centre.
pub fn label_slices(
    field: &dyn LabelField,
    warp: Option<&Diffeomorphism>,
    geometry: &Geometry,
    z: Range<usize>,
) -> Vec<i32> {
    let [nx, ny, _] = geometry.size;
    let to_mm = geometry.voxel_to_mm();
    let mut labels = vec![0; nx * ny * z.len()];
    labels.par_chunks_mut(nx).enumerate().for_each_init(Vec::new, |points, (row, line)| {
        let (y, z) = ((row % ny) as f64, (z.start + row / ny) as f64);
        let place = |x| {
            let point = to_mm.apply([x as f64, y, z]);
            warp.map_or(point, |warp| warp.apply(point))
        };
        points.clear();
        points.extend((0..nx).map(place));
        field.label_line(points, line);
    });
    labels
}
