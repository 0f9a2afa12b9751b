//! The distances of one surface's elements to another surface.

use rayon::prelude::*;

use super::codes::{Codes, surface_of};
use super::rows::Rows;
use crate::metrics::distance_transform::Planes;

/// Rows that may be looked at for every corner of a box. Surfaces farther apart get a map of all distances: what that
/// costs does not grow with them.
const ROWS_PER_CORNER: usize = 16;

/// The elements of one y.
#[derive(Default)]
struct Slice {
    elements: Vec<(f32, u8)>,
    /// x, z and code of those that are too far away to be looked for.
    far: Vec<(usize, usize, u8)>,
}

impl Slice {
    fn solve_far(&mut self, y: usize, planes: &Planes) {
        let Self { elements, far } = self;
        far.sort_unstable();
        planes.solve_columns(
            y,
            |x| far.binary_search_by_key(&x, |&(x, ..)| x).is_ok(),
            |x, column| {
                let start = far.partition_point(|&(other, ..)| other < x);
                let here = far[start..].iter().take_while(|&&(other, ..)| other == x);
                elements.extend(here.map(|&(_, z, code)| (column[z].sqrt(), code)));
            },
        );
    }
}

/// The elements of a surface, by their distance to the other one.
pub(super) struct Directed {
    /// Distance and code of every element, in ascending order.
    elements: Vec<(f32, u8)>,
    /// Area of each code.
    areas: [f64; 256],
    /// Sum of the areas.
    pub area: f64,
    /// Sum of area times distance.
    pub moment: f64,
}

impl Directed {
    /// From the surface `from` to the surface `to`; infinite if there is no `to`.
    pub fn between(from: &Codes, to: &Codes, spacing: [f64; 3], areas: &[f64; 256]) -> Self {
        let [nx, ny, nz] = from.size;
        let rows = Rows::new(to, spacing);
        let near = |y: usize| {
            let mut left = ROWS_PER_CORNER * nx * nz;
            let mut found = Slice::default();
            for z in 0..nz {
                for (x, code) in surface_of(from.row(y, z)) {
                    match rows.squared_distance([x, y, z], &mut left) {
                        Some(squared) => found.elements.push((squared.sqrt(), code)),
                        None => found.far.push((x, z, code)),
                    }
                }
            }
            found
        };
        let mut slices: Vec<Slice> = (0..ny).into_par_iter().map(near).collect();
        drop(rows);
        if slices.iter().any(|slice| !slice.far.is_empty()) {
            let planes = Planes::new(to.size, spacing, |offset| to.is_surface(offset));
            slices.par_iter_mut().enumerate().for_each(|(y, slice)| slice.solve_far(y, &planes));
        }
        let mut elements: Vec<(f32, u8)> =
            slices.into_iter().flat_map(|slice| slice.elements).collect();
        elements.par_sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let area = elements.iter().map(|&(_, code)| areas[usize::from(code)]).sum();
        let weighted = |&(distance, code)| f64::from(distance) * areas[usize::from(code)];
        let moment = elements.iter().map(weighted).sum();
        Self { elements, areas: *areas, area, moment }
    }

    /// The smallest distance such that the elements up to it have `percent` of the area.
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut area = 0.0;
        let enough = self.elements.iter().find(|&&(_, code)| {
            area += self.areas[usize::from(code)];
            area / self.area >= percent / 100.0
        });
        // Rounding may leave the sum short of 100 %.
        enough.or(self.elements.last()).map_or(f64::NAN, |&(distance, _)| f64::from(distance))
    }

    /// Mean of the smallest `part` of the distances, whatever their areas.
    pub fn mean_of_smallest(&self, part: f64) -> f64 {
        let count = (part * self.elements.len() as f64).floor() as usize;
        self.elements[..count].iter().map(|&(distance, _)| f64::from(distance)).sum::<f64>()
            / count as f64
    }
}
