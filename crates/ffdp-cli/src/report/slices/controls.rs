//! The control points of a spline over the fixed image: the lines between them, each pixel of a line where the
//! displacement carries it, and a dot at every point.

use ffdp_image::image::Geometry;
use ffdp_train::pictures::Canvas;

use super::{Quantity, Scene};
use crate::report::colours::{CONTROL, GRID};

/// Width of a control point in pixels, odd.
const DOT: usize = 3;

impl Scene<'_> {
    /// Draws the control points of `grid` that lie between the pixels of this plane, whose pixels run along `axes`.
    pub(super) fn draw_controls(&self, grid: &Geometry, axes: [usize; 2], canvas: &mut Canvas) {
        let to_index = grid.mm_to_voxel();
        let cell = |at: [usize; 2]| -> Option<[i64; 3]> {
            let point = self.panels.frame.points[self.pixel(at)?];
            Some(to_index.apply(point).map(|t| t.floor() as i64))
        };
        let mut dots = Vec::new();
        for (x, y) in (0..self.height).flat_map(|y| (0..self.width).map(move |x| (x, y))) {
            let Some(here) = cell([x, y]) else { continue };
            let ends = |next: [usize; 2]| cell(next).is_some_and(|there| there != here);
            // A line runs across the direction in which the cell ends.
            let lines = [ends([x + 1, y]), ends([x, y + 1])];
            for (is_line, along) in lines.into_iter().zip([[x, y + 1], [x + 1, y]]) {
                let (Some(from), Some(to)) =
                    (self.carried([x, y], axes), self.carried(along, axes))
                else {
                    continue;
                };
                if is_line {
                    canvas.line(from, to, 1, GRID);
                }
            }
            if lines == [true; 2] {
                dots.extend(self.carried([x, y], axes));
            }
        }
        for [x, y] in dots {
            canvas.line([x, y], [x, y], DOT, CONTROL);
        }
    }

    /// Where the displacement carries a pixel, in pixels.
    fn carried(&self, [x, y]: [usize; 2], [right, up]: [usize; 2]) -> Option<[f64; 2]> {
        let pixel = self.pixel([x, y])?;
        let shift = |axis: usize| {
            let values = &self.panels.values[Quantity::Displacement(axis).index()];
            values[pixel] / self.panels.frame.pixel_mm
        };
        Some([x as f64 + shift(right), y as f64 - shift(up)])
    }
}
