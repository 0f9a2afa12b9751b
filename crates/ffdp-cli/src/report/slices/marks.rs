//! Borders of labels and landmarks on the fixed image: those of the fixed image, and where those of the moving image lie.

use ffdp_train::pictures::Canvas;

use super::{Panels, Quantity, Scene};
use crate::report::colours::{BOTH, FIXED_MARK, MOVING_MARK};

/// Width of a landmark in pixels, odd.
const DOT: usize = 5;

/// Corresponding landmarks on the fixed side, RAS mm.
#[derive(Clone, Debug)]
pub struct LandmarkMarks {
    /// The landmarks of the fixed image.
    pub fixed: Vec<[f64; 3]>,
    /// Where those of the moving image lie, as it is placed at the start and as it was registered.
    pub moving: [Vec<[f64; 3]>; 2],
}

impl Panels {
    /// Whether there is something to mark.
    pub(super) fn has_marks(&self) -> bool {
        self.has_labels || self.landmarks.is_some()
    }
}

impl Scene<'_> {
    /// Draws on the fixed image; `after` is 0 for the start, 1 for the result. Pixels run along `axes`.
    pub(super) fn draw_marks(&self, after: usize, axes: [usize; 2], canvas: &mut Canvas) {
        if self.panels.has_labels {
            self.draw_borders(after, canvas);
        }
        if let Some(landmarks) = &self.panels.landmarks {
            self.draw_landmarks(landmarks, after, axes, canvas);
        }
    }

    fn draw_borders(&self, after: usize, canvas: &mut Canvas) {
        let moving = [Quantity::LabelBefore, Quantity::LabelAfter][after];
        for (x, y) in (0..self.height).flat_map(|y| (0..self.width).map(move |x| (x, y))) {
            let ends = |quantity: Quantity| {
                let label = |at| Some(self.panels.values[quantity.index()][self.pixel(at)?]);
                let here = label([x, y]);
                let next = [[x + 1, y], [x, y + 1]].map(label);
                next.into_iter().any(|there| there.is_some() && here.is_some() && there != here)
            };
            let colour = match [Quantity::LabelFixed, moving].map(ends) {
                [true, true] => BOTH,
                [true, false] => FIXED_MARK,
                [false, true] => MOVING_MARK,
                [false, false] => continue,
            };
            canvas.set(x as i64, y as i64, colour);
        }
    }

    /// Those that are nearer to the plane than a mesh of the grid.
    fn draw_landmarks(
        &self,
        landmarks: &LandmarkMarks,
        after: usize,
        axes: [usize; 2],
        canvas: &mut Canvas,
    ) {
        let frame = &self.panels.frame;
        let corner = frame.points[self.first];
        let across = 3 - axes[0] - axes[1];
        let pixel = |p: [f64; 3]| {
            let [right, up] = axes.map(|axis| (p[axis] - corner[axis]) / frame.pixel_mm);
            [right, -up]
        };
        for (fixed, moving) in landmarks.fixed.iter().zip(&landmarks.moving[after]) {
            if (fixed[across] - corner[across]).abs() > frame.mesh_mm {
                continue;
            }
            let [from, to] = [*fixed, *moving].map(pixel);
            canvas.line(from, to, 1, MOVING_MARK);
            canvas.line(from, from, DOT, FIXED_MARK);
            canvas.line(to, to, DOT - 2, MOVING_MARK);
        }
    }
}
