//! The distances of one surface's elements to another surface.

use rayon::prelude::*;

use super::codes::{Codes, is_surface};
use crate::metrics::distance_transform::Planes;

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
        let planes = Planes::new(to.size, spacing, |offset| to.is_surface(offset));
        let row = |y: usize| {
            let mut wanted = vec![false; nx];
            for z in 0..nz {
                let codes = from.row(y, z).iter();
                wanted
                    .iter_mut()
                    .zip(codes)
                    .for_each(|(wanted, &code)| *wanted |= is_surface(code));
            }
            let mut elements = Vec::new();
            planes.solve_columns(
                y,
                |x| wanted[x],
                |x, column| {
                    let code = |z: usize| from.data[(z * ny + y) * nx + x];
                    let surface = (0..nz).map(|z| (column[z].sqrt(), code(z)));
                    elements.extend(surface.filter(|&(_, code)| is_surface(code)));
                },
            );
            elements
        };
        let rows: Vec<Vec<(f32, u8)>> = (0..ny).into_par_iter().map(row).collect();
        drop(planes);
        let mut elements = rows.concat();
        elements.par_sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
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
