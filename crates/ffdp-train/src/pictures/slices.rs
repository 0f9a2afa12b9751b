//! A pair before and after registration, in three planes.

use std::path::Path;

use ffdp_image::Result;
use ffdp_image::image::LabelMap;

use super::canvas::{Canvas, Rgb};
use super::plane::{self, Plane};
use crate::data::Prepared;

const BACKGROUND: Rgb = [24, 24, 28];
const INK: Rgb = [230, 230, 230];
const CONTOUR: Rgb = [255, 200, 40];
const GRID: Rgb = [120, 200, 255];
/// Wanted width of a panel, pixels.
const PANEL: usize = 224;
const MARGIN: usize = 8;
const HEADING: usize = 24;
/// Lines of the warped grid, in voxels.
const GRID_STEP: usize = 4;

/// Draws fixed, moving and moved image (the outlines are the fixed image's labels), the absolute
/// differences before and after, and the warped grid.
///
/// # Errors
/// A file that cannot be written.
pub fn draw(path: &Path, pair: &Prepared, moved: &[f32], displacement: &[f32]) -> Result<()> {
    let (fixed, moving) = (&pair.fixed.image, &pair.moving.image);
    let planes = plane::middle(&fixed.geometry);
    let longest = fixed.geometry.size.into_iter().max().unwrap_or(1);
    let scale = (PANEL / longest).max(1);
    let width = scale * longest + MARGIN;
    let heights = planes.map(|plane| scale * plane.extent()[1] + MARGIN);
    let mut canvas =
        Canvas::new(6 * width + MARGIN, HEADING + heights.iter().sum::<usize>(), BACKGROUND);
    let headings =
        ["fixed", "moving", "moved", "|moving - fixed|", "|moved - fixed|", "warped grid"];
    for (column, heading) in headings.into_iter().enumerate() {
        canvas.text(MARGIN + column * width, MARGIN, heading, 2, INK);
    }
    let before: Vec<f32> = difference(&moving.data, &fixed.data);
    let after: Vec<f32> = difference(moved, &fixed.data);
    let white = fixed.data.iter().copied().fold(1e-6, f32::max);
    let labels = pair.fixed.labels.as_ref();
    let mut top = HEADING;
    for (plane, height) in planes.iter().zip(heights) {
        let images: [(&[f32], Option<&LabelMap>); 5] = [
            (&fixed.data, None),
            (&moving.data, labels),
            (moved, labels),
            (&before, None),
            (&after, None),
        ];
        for (column, (image, labels)) in images.into_iter().enumerate() {
            let at = Panel { left: MARGIN + column * width, top, scale };
            at.image(&mut canvas, plane, image, white);
            if let Some(labels) = labels {
                at.outlines(&mut canvas, plane, labels);
            }
        }
        let at = Panel { left: MARGIN + 5 * width, top, scale };
        at.grid(&mut canvas, plane, displacement);
        canvas.text(MARGIN + 2, top + 2, plane.name, 1, INK);
        top += height;
    }
    canvas.save(path)
}

fn difference(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).collect()
}

/// A place on the canvas and the pixels of a voxel.
struct Panel {
    left: usize,
    top: usize,
    scale: usize,
}

impl Panel {
    fn image(&self, canvas: &mut Canvas, plane: &Plane, image: &[f32], white: f32) {
        let [columns, rows] = plane.extent();
        for row in 0..rows {
            for column in 0..columns {
                let value = (image[plane.offset(column, row)] / white).clamp(0.0, 1.0);
                let gray = (255.0 * value).round() as u8;
                let (x, y) = (self.left + column * self.scale, self.top + row * self.scale);
                canvas.fill(x, y, self.scale, self.scale, [gray; 3]);
            }
        }
    }

    /// Lines along the borders between labels.
    fn outlines(&self, canvas: &mut Canvas, plane: &Plane, labels: &LabelMap) {
        let [columns, rows] = plane.extent();
        let label = |column: usize, row: usize| labels.data[plane.offset(column, row)];
        for row in 0..rows {
            for column in 0..columns {
                let (x, y) = (self.left + column * self.scale, self.top + row * self.scale);
                if column + 1 < columns && label(column, row) != label(column + 1, row) {
                    canvas.fill(x + self.scale - 1, y, 1, self.scale, CONTOUR);
                }
                if row + 1 < rows && label(column, row) != label(column, row + 1) {
                    canvas.fill(x, y + self.scale - 1, self.scale, 1, CONTOUR);
                }
            }
        }
    }

    /// Every fourth line of the fixed grid, at the positions it is mapped to.
    fn grid(&self, canvas: &mut Canvas, plane: &Plane, displacement: &[f32]) {
        let [columns, rows] = plane.extent();
        let scale = self.scale as f64;
        let point = |column: usize, row: usize| {
            let [du, dv] = plane.in_plane(displacement, column, row);
            let inside = |v: f64, extent: usize| v.clamp(0.0, extent as f64) * scale;
            [
                self.left as f64 + inside(column as f64 + 0.5 + du, columns),
                self.top as f64 + inside(row as f64 + 0.5 + dv, rows),
            ]
        };
        for row in 0..rows {
            for column in 0..columns {
                if row % GRID_STEP == 0 && column + 1 < columns {
                    canvas.line(point(column, row), point(column + 1, row), 1, GRID);
                }
                if column % GRID_STEP == 0 && row + 1 < rows {
                    canvas.line(point(column, row), point(column, row + 1), 1, GRID);
                }
            }
        }
    }
}
