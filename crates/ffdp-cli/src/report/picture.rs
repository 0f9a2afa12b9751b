//! `report.png`: three planes through the fixed image, before and after.
//!
//! Columns: fixed, moving as the headers place it, moving warped, difference before and after
//! (absolute, intensities scaled to 0..1), warped with a grid that was regular in the moving image.
//! Rows: axial, coronal, sagittal, through the centre of mass of the fixed image. To the right is
//! the patient's right (axial, coronal) or front (sagittal); up is the front (axial) or the head.

use ffdp_burn::image::{Affine, Geometry, Physical, Volume, Voxel};

use super::letters::{LETTER, rows};
use crate::failure::{Failure, Outcome};

/// Pixels along the longest side of the fixed image's box.
const PANEL: usize = 240;
const GAP: usize = 6;
const TITLE: usize = 20;
/// Mesh width of the grid as a part of the longest side.
const MESHES: f64 = 24.0;
const TITLES: [&str; 6] = ["FIXED", "MOVING", "WARPED", "DIFF BEFORE", "DIFF AFTER", "WARPED GRID"];
/// RAS axes along which a plane's pixels run: to the right, up.
const PLANES: [[usize; 2]; 3] = [[0, 1], [0, 2], [1, 2]];

type Rgb = [u8; 3];

/// The images of a report, all on the fixed grid.
pub struct Slices<'a> {
    pub fixed: &'a Volume,
    /// The moving image by the headers alone.
    pub before: &'a Volume,
    pub warped: &'a Volume,
    /// Displacement `[3, D, H, W]` in RAS mm.
    pub displacement_mm: &'a [f32],
}

/// The picture as an encoded PNG.
///
/// # Errors
/// An image without a finite voxel.
pub fn draw(slices: &Slices) -> Outcome<Vec<u8>> {
    let scene = Scene::new(slices)?;
    let panels: Vec<[Panel; 6]> = PLANES.map(|plane| scene.row(plane)).into();
    let width = panels.iter().map(|row| row[0].width).max().unwrap_or(0);
    let height: usize = panels.iter().map(|row| row[0].height + GAP).sum();
    let mut canvas = Panel::new(6 * (width + GAP) + GAP, TITLE + height);
    for (column, title) in TITLES.iter().enumerate() {
        canvas.write(title, [GAP + column * (width + GAP), (TITLE - LETTER[1]) / 2]);
    }
    let mut top = TITLE;
    for row in &panels {
        for (column, panel) in row.iter().enumerate() {
            let left = GAP + column * (width + GAP) + (width - panel.width) / 2;
            canvas.paste(panel, [left, top]);
        }
        top += row[0].height + GAP;
    }
    canvas.encode()
}

/// A rectangle of pixels, from the top left.
struct Panel {
    width: usize,
    height: usize,
    pixels: Vec<Rgb>,
}

impl Panel {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![[24; 3]; width * height] }
    }

    fn paste(&mut self, panel: &Panel, [left, top]: [usize; 2]) {
        for (y, line) in panel.pixels.chunks(panel.width).enumerate() {
            let start = (top + y) * self.width + left;
            self.pixels[start..start + panel.width].copy_from_slice(line);
        }
    }

    fn write(&mut self, text: &str, [left, top]: [usize; 2]) {
        for (i, letter) in text.chars().enumerate() {
            for (y, bits) in rows(letter).into_iter().enumerate() {
                for x in (0..LETTER[0]).filter(|x| bits >> (LETTER[0] - 1 - x) & 1 == 1) {
                    let column = left + i * (LETTER[0] + 1) + x;
                    if column < self.width {
                        self.pixels[(top + y) * self.width + column] = [230; 3];
                    }
                }
            }
        }
    }

    fn encode(&self) -> Outcome<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(self.pixels.as_flattened()));
        written.map_err(|reason| {
            let size = (self.width, self.height);
            Failure::user(format!("report.png of {size:?} pixels: {reason}"), "report this")
        })?;
        Ok(bytes)
    }
}

/// The images with what is needed to look them up in space.
struct Scene<'a> {
    slices: &'a Slices<'a>,
    geometry: &'a Geometry,
    to_voxel: Affine<Physical, Voxel>,
    /// Low and high corner of the fixed grid, mm.
    bounds: [[f64; 3]; 2],
    centre: [f64; 3],
    pixel_mm: f64,
    mesh_mm: f64,
    fixed_window: Window,
    moving_window: Window,
}

/// The intensities shown as black and white.
#[derive(Clone, Copy)]
struct Window {
    low: f64,
    high: f64,
}

impl Window {
    fn of(image: &Volume) -> Outcome<Self> {
        let [mut low, mut high] = image.percentiles([1.0, 99.9])?;
        if low >= high {
            (low, high) = image.min_max().unwrap_or((0.0, 1.0));
        }
        Ok(Self { low: f64::from(low), high: f64::from(high).max(f64::from(low) + 1e-30) })
    }

    fn scale(self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

fn gray(value: f64) -> Rgb {
    [(255.0 * value.clamp(0.0, 1.0)).round() as u8; 3]
}

/// Black over red and yellow to white.
fn heat(value: f64) -> Rgb {
    [0.0, 1.0, 2.0].map(|from| gray(3.0 * value - from)[0])
}

impl<'a> Scene<'a> {
    fn new(slices: &'a Slices<'a>) -> Outcome<Self> {
        let geometry = &slices.fixed.geometry;
        let bounds = geometry.bounding_box_mm();
        let longest = (0..3).map(|i| bounds[1][i] - bounds[0][i]).fold(0.0, f64::max);
        let fixed_window = Window::of(slices.fixed)?;
        Ok(Self {
            slices,
            geometry,
            to_voxel: geometry.mm_to_voxel(),
            bounds,
            centre: centre_of_mass_mm(slices.fixed, fixed_window),
            pixel_mm: longest / (PANEL - 1) as f64,
            mesh_mm: longest / MESHES,
            fixed_window,
            moving_window: Window::of(slices.before)?,
        })
    }

    /// The six panels of a plane.
    fn row(&self, [right, up]: [usize; 2]) -> [Panel; 6] {
        let pixels = |axis: usize| {
            ((self.bounds[1][axis] - self.bounds[0][axis]) / self.pixel_mm).round() as usize + 1
        };
        let (width, height) = (pixels(right), pixels(up));
        let mut panels: [Panel; 6] = std::array::from_fn(|_| Panel::new(width, height));
        for y in 0..height {
            for x in 0..width {
                let point = |x: usize, y: usize| {
                    let mut p = self.centre;
                    p[right] = self.bounds[0][right] + x as f64 * self.pixel_mm;
                    p[up] = self.bounds[1][up] - y as f64 * self.pixel_mm;
                    p
                };
                let Some(mut colours) = self.colours(point(x, y)) else { continue };
                let here = self.mesh(point(x, y), [right, up]);
                let neighbours = [point(x + 1, y), point(x, y + 1)];
                if neighbours.iter().any(|&p| {
                    let there = self.mesh(p, [right, up]);
                    there.is_some() && there != here
                }) {
                    colours[5] = [255, 210, 40];
                }
                for (panel, colour) in panels.iter_mut().zip(colours) {
                    panel.pixels[y * width + x] = colour;
                }
            }
        }
        panels
    }

    /// What the six columns show at a point; `None` outside the fixed grid.
    fn colours(&self, point: [f64; 3]) -> Option<[Rgb; 6]> {
        let value = |data: &[f32]| self.value(data, point);
        let fixed = self.fixed_window.scale(value(&self.slices.fixed.data)?);
        let before = self.moving_window.scale(value(&self.slices.before.data)?);
        let warped = self.moving_window.scale(value(&self.slices.warped.data)?);
        let difference = |moved: f64| heat((fixed - moved).abs());
        Some([
            gray(fixed),
            gray(before),
            gray(warped),
            difference(before),
            difference(warped),
            gray(0.7 * warped),
        ])
    }

    /// The mesh of the moving image's regular grid that a point is carried into.
    fn mesh(&self, point: [f64; 3], axes: [usize; 2]) -> Option<[i64; 2]> {
        let count = self.geometry.len();
        let mut mesh = [0; 2];
        for (mesh, axis) in mesh.iter_mut().zip(axes) {
            let component = &self.slices.displacement_mm[axis * count..][..count];
            *mesh = ((point[axis] + self.value(component, point)?) / self.mesh_mm).floor() as i64;
        }
        Some(mesh)
    }

    /// A component's value at a point in mm, trilinear; `None` outside the grid.
    fn value(&self, data: &[f32], point: [f64; 3]) -> Option<f64> {
        let size = self.geometry.size;
        let index = self.to_voxel.apply(point);
        let mut taps = [(0usize, 0usize, 0.0); 3];
        for i in 0..3 {
            let last = (size[i] - 1) as f64;
            // Half a voxel beyond the centres still belongs to the image.
            if !(index[i] >= -0.5 && index[i] <= last + 0.5) {
                return None;
            }
            let at = index[i].clamp(0.0, last);
            let low = at as usize;
            taps[i] = (low, (low + 1).min(size[i] - 1), at - low as f64);
        }
        let mut sum = 0.0;
        for corner in 0..8usize {
            let mut weight = 1.0;
            let mut offset = 0;
            for i in (0..3).rev() {
                let (low, high, t) = taps[i];
                let upper = corner >> i & 1 == 1;
                weight *= if upper { t } else { 1.0 - t };
                offset = offset * size[i] + if upper { high } else { low };
            }
            sum += weight * f64::from(data[offset]);
        }
        Some(sum)
    }
}

/// Centre of the scaled intensities; that of the grid when there are none.
fn centre_of_mass_mm(image: &Volume, window: Window) -> [f64; 3] {
    let (mut sum, mut weight) = ([0.0; 3], 0.0);
    for (offset, &value) in image.data.iter().enumerate() {
        let w = window.scale(f64::from(value));
        let index = image.geometry.index_of(offset);
        (0..3).for_each(|i| sum[i] += w * index[i] as f64);
        weight += w;
    }
    match weight > 0.0 {
        true => image.geometry.voxel_to_mm().apply(sum.map(|s| s / weight)),
        false => image.geometry.center_mm(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ramp along RAS x on a grid that runs the other way, with a step of 3 mm.
    fn flipped_ramp() -> Volume {
        let direction = [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let geometry = Geometry::new([8, 9, 10], [3.0, 2.0, 1.0])
            .and_then(|g| g.with_direction(direction))
            .expect("valid");
        let value = |offset: usize| 1.0 + (7 - geometry.index_of(offset)[0]) as f32;
        let data = (0..geometry.len()).map(value).collect();
        Volume::new(data, geometry).expect("sizes match")
    }

    fn scene_row(fixed: &Volume, displacement_mm: &[f32]) -> [Panel; 6] {
        let slices = Slices { fixed, before: fixed, warped: fixed, displacement_mm };
        Scene::new(&slices).expect("finite").row([0, 1])
    }

    #[test]
    fn right_is_right_whatever_the_voxel_order() {
        let image = flipped_ramp();
        let still = vec![0.0; 3 * image.data.len()];
        let panel = &scene_row(&image, &still)[0];
        assert_eq!(
            (panel.width, panel.height),
            (PANEL, (16.0f64 / 21.0 * 239.0).round() as usize + 1)
        );
        let middle = panel.height / 2 * panel.width;
        let line: Vec<u8> = (0..panel.width).map(|x| panel.pixels[middle + x][0]).collect();
        assert!(line.is_sorted(), "brighter to the patient's right: {line:?}");
        assert!(line[0] < 10 && line[panel.width - 1] > 245);
    }

    #[test]
    fn equal_images_have_no_difference_and_no_motion_a_regular_grid() {
        let image = flipped_ramp();
        let still = vec![0.0; 3 * image.data.len()];
        let panels = scene_row(&image, &still);
        assert!(panels[3].pixels.iter().all(|p| *p == [0, 0, 0]));
        // The line of pixels that runs between two horizontal lines of the grid.
        let lines = |panel: &Panel| -> Vec<usize> {
            let rows = panel.pixels.chunks(panel.width);
            let columns = |row: &[Rgb]| -> Vec<usize> {
                (0..panel.width).filter(|&x| row[x] == [255, 210, 40]).collect()
            };
            rows.map(columns).min_by_key(Vec::len).expect("the panel has rows")
        };
        let regular = lines(&panels[5]);
        let steps: Vec<usize> = regular.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(regular.len() >= 20 && steps.iter().all(|s| (9..=11).contains(s)), "{regular:?}");
        // Everything is carried by half a mesh to the right: lines come half a mesh earlier.
        let mut moved = still;
        moved[..image.data.len()].fill((21.0 / MESHES / 2.0) as f32);
        let shifted = lines(&scene_row(&image, &moved)[5]);
        let offset = (regular[3] as i64 - shifted[3] as i64).rem_euclid(10);
        assert!((4..=6).contains(&offset), "{regular:?} {shifted:?}");
    }

    #[test]
    fn every_letter_of_the_titles_is_drawn() {
        for letter in TITLES.iter().flat_map(|title| title.chars()).filter(|c| *c != ' ') {
            assert_ne!(rows(letter), [0; 7], "{letter}");
        }
    }
}
