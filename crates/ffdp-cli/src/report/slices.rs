//! Three planes through an image pair, sampled in physical space: what the report shows.
//!
//! Axial, coronal and sagittal planes through the centre of mass of the fixed image. To the right
//! is the patient's right (axial, coronal) or front (sagittal); up is the front (axial) or the head.

use ffdp_burn::image::{Affine, Geometry, Physical, Volume, Voxel};
use rayon::prelude::*;

use super::canvas::Canvas;
use super::colours::{FOLD, GRID, Rgb, diverging, gray, heat};
use crate::failure::Outcome;

/// Pixels along the longest side of the fixed image's box.
const PANEL: usize = 300;
/// DeviceMesh width of the grid, and of the checkerboard, as parts of the longest side.
const MESHES: f64 = 24.0;
const CHECKS: f64 = 9.0;
/// Around the image.
const OUTSIDE: Rgb = [255; 3];
/// RAS axes along which a plane's pixels run: to the right, up.
const PLANES: [[usize; 2]; 3] = [[0, 1], [0, 2], [1, 2]];
/// Range of ln det J that is always told apart, and the largest that is shown.
const LOG_JACOBIAN_RANGE: [f64; 2] = [0.1, 1.5];

/// What there is to see of a plane, in the order of the canvases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Fixed,
    /// The moving image by the headers alone.
    Moving,
    Warped,
    ChecksBefore,
    ChecksAfter,
    DifferenceBefore,
    DifferenceAfter,
    /// The warped image with a grid that was regular in the moving image.
    Grid,
    /// ln det J.
    LogJacobian,
}

const VIEWS: usize = 9;

/// The images of a report, all on the fixed grid.
pub struct Slices<'a> {
    pub fixed: &'a Volume,
    /// The moving image by the headers alone.
    pub before: &'a Volume,
    pub warped: &'a Volume,
    /// Displacement `[3, D, H, W]` in RAS mm.
    pub displacement_mm: &'a [f32],
    /// det J, `[D, H, W]`.
    pub determinants: &'a [f32],
}

/// The pictures.
pub struct Pictures {
    planes: [[Canvas; VIEWS]; 3],
    /// `ln det J` at the ends of the colours.
    pub log_jacobian_range: f64,
}

impl Pictures {
    /// # Errors
    /// An image without a finite voxel.
    pub fn draw(slices: &Slices) -> Outcome<Self> {
        let scene = Scene::new(slices)?;
        let mut planes: [Option<[Canvas; VIEWS]>; 3] = [const { None }; 3];
        let drawn = planes.par_iter_mut().zip(PLANES);
        drawn.for_each(|(canvases, plane)| *canvases = Some(scene.plane(plane)));
        let planes = planes.map(|canvases| canvases.expect("every plane was drawn"));
        Ok(Self { planes, log_jacobian_range: scene.log_jacobian_range })
    }

    /// A view of a plane: 0 axial, 1 coronal, 2 sagittal.
    pub fn get(&self, plane: usize, view: View) -> &Canvas {
        &self.planes[plane][view as usize]
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
    log_jacobian_range: f64,
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

/// The range of colours for the 1st and 99th percentile of ln det J, folds left out.
fn log_jacobian_range(determinants: &[f32], geometry: &Geometry) -> Outcome<f64> {
    let length = |&det: &f32| if det > 0.0 { det.ln().abs() } else { f32::NAN };
    let data: Vec<f32> = determinants.par_iter().map(length).collect();
    let [least, most] = LOG_JACOBIAN_RANGE;
    if !data.par_iter().any(|length| length.is_finite()) {
        return Ok(least);
    }
    // Percentiles pass over what is not finite.
    let [range] = Volume::new(data, geometry.clone())?.percentiles([98.0])?;
    // To one digit after the point, so that the legend is readable.
    Ok(((f64::from(range) * 10.0).ceil() / 10.0).clamp(least, most))
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
            log_jacobian_range: log_jacobian_range(slices.determinants, geometry)?,
        })
    }

    /// The views of a plane.
    fn plane(&self, [right, up]: [usize; 2]) -> [Canvas; VIEWS] {
        let pixels = |axis: usize| {
            ((self.bounds[1][axis] - self.bounds[0][axis]) / self.pixel_mm).round() as usize + 1
        };
        let (width, height) = (pixels(right), pixels(up));
        let mut views: [Canvas; VIEWS] =
            std::array::from_fn(|_| Canvas::new(width, height, OUTSIDE));
        let point = |x: usize, y: usize| {
            let mut p = self.centre;
            p[right] = self.bounds[0][right] + x as f64 * self.pixel_mm;
            p[up] = self.bounds[1][up] - y as f64 * self.pixel_mm;
            p
        };
        for y in 0..height {
            for x in 0..width {
                let check = [x, y].map(|i| (i as f64 / (PANEL as f64 / CHECKS)) as usize);
                let odd = (check[0] + check[1]) % 2 == 1;
                let Some(mut colours) = self.colours(point(x, y), odd) else { continue };
                let here = self.mesh(point(x, y), [right, up]);
                let neighbours = [point(x + 1, y), point(x, y + 1)];
                if neighbours.iter().any(|&p| {
                    let there = self.mesh(p, [right, up]);
                    there.is_some() && there != here
                }) {
                    colours[View::Grid as usize] = GRID;
                }
                for (view, colour) in views.iter_mut().zip(colours) {
                    view.pixels[y * width + x] = colour;
                }
            }
        }
        views
    }

    /// What the views show at a point, in their order; `None` outside the fixed grid.
    fn colours(&self, point: [f64; 3], odd: bool) -> Option<[Rgb; VIEWS]> {
        let value = |data: &[f32]| self.value(data, point);
        let fixed = self.fixed_window.scale(value(&self.slices.fixed.data)?);
        let before = self.moving_window.scale(value(&self.slices.before.data)?);
        let warped = self.moving_window.scale(value(&self.slices.warped.data)?);
        let check = |moved: f64| gray(if odd { moved } else { fixed });
        let difference = |moved: f64| heat((fixed - moved).abs());
        Some([
            gray(fixed),
            gray(before),
            gray(warped),
            check(before),
            check(warped),
            difference(before),
            difference(warped),
            gray(0.7 * warped),
            self.volume_change(point)?,
        ])
    }

    /// The colour of ln det J at the nearest voxel: a fold must not be smoothed away.
    fn volume_change(&self, point: [f64; 3]) -> Option<Rgb> {
        let size = self.geometry.size;
        let index = self.to_voxel.apply(point);
        let mut offset = 0;
        for i in (0..3).rev() {
            let nearest = index[i].round().clamp(0.0, (size[i] - 1) as f64);
            offset = offset * size[i] + nearest as usize;
        }
        let det = f64::from(*self.slices.determinants.get(offset)?);
        Some(if det > 0.0 { diverging(det.ln() / self.log_jacobian_range) } else { FOLD })
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

    fn drawn(fixed: &Volume, displacement_mm: &[f32], determinants: &[f32]) -> Pictures {
        let (before, warped) = (fixed, fixed);
        Pictures::draw(&Slices { fixed, before, warped, displacement_mm, determinants })
            .expect("finite")
    }

    fn still(image: &Volume) -> (Vec<f32>, Vec<f32>) {
        (vec![0.0; 3 * image.data.len()], vec![1.0; image.data.len()])
    }

    #[test]
    fn right_is_right_whatever_the_voxel_order() {
        let image = flipped_ramp();
        let (displacement, determinants) = still(&image);
        let pictures = drawn(&image, &displacement, &determinants);
        let axial = pictures.get(0, View::Fixed);
        let height = (16.0f64 / 21.0 * (PANEL - 1) as f64).round() as usize + 1;
        assert_eq!((axial.width, axial.height), (PANEL, height));
        let middle = axial.height / 2 * axial.width;
        let line: Vec<u8> = (0..axial.width).map(|x| axial.pixels[middle + x][0]).collect();
        assert!(line.is_sorted(), "brighter to the patient's right: {line:?}");
        assert!(line[0] < 10 && line[axial.width - 1] > 245);
    }

    #[test]
    fn equal_images_have_no_difference_and_a_seamless_checkerboard() {
        let image = flipped_ramp();
        let (displacement, determinants) = still(&image);
        let pictures = drawn(&image, &displacement, &determinants);
        for plane in 0..3 {
            let black = &pictures.get(plane, View::DifferenceAfter).pixels;
            assert!(black.iter().all(|pixel| *pixel == [0, 0, 0]));
            let checks = &pictures.get(plane, View::ChecksBefore).pixels;
            assert!(*checks == pictures.get(plane, View::Fixed).pixels);
            let volume = &pictures.get(plane, View::LogJacobian).pixels;
            assert!(volume.iter().all(|pixel| *pixel == diverging(0.0)));
        }
    }

    #[test]
    fn a_checkerboard_has_both_images() {
        let image = flipped_ramp();
        let (displacement, determinants) = still(&image);
        let mut other = image.clone();
        other.data.reverse();
        let slices = Slices {
            fixed: &image,
            before: &other,
            warped: &image,
            displacement_mm: &displacement,
            determinants: &determinants,
        };
        let pictures = Pictures::draw(&slices).expect("finite");
        let [fixed, moving, checks] = [View::Fixed, View::Moving, View::ChecksBefore]
            .map(|view| &pictures.get(0, view).pixels);
        let same = |image: &[Rgb]| image.iter().zip(checks).filter(|(a, b)| a == b).count();
        let count = checks.len();
        for part in [same(fixed), same(moving)] {
            // Half, but for the middle where the ramps cross and tiles that the border cuts.
            assert!(part > count * 2 / 5 && part < count * 3 / 5, "{part} of {count}");
        }
    }

    #[test]
    fn folds_are_marked_and_expansion_is_red() {
        let image = flipped_ramp();
        let (displacement, mut determinants) = still(&image);
        determinants.fill(2.0);
        let pictures = drawn(&image, &displacement, &determinants);
        assert_eq!(pictures.log_jacobian_range, 0.7);
        let [r, _, b] = pictures.get(1, View::LogJacobian).pixels[0];
        assert!(r > b);
        determinants.fill(-0.1);
        let pictures = drawn(&image, &displacement, &determinants);
        assert!(pictures.get(1, View::LogJacobian).pixels.iter().all(|pixel| *pixel == FOLD));
    }

    #[test]
    fn no_motion_is_a_regular_grid() {
        let image = flipped_ramp();
        let (still, determinants) = still(&image);
        // The line of pixels that runs between two horizontal lines of the grid.
        let lines = |displacement: &[f32]| -> Vec<usize> {
            let pictures = drawn(&image, displacement, &determinants);
            let panel = pictures.get(0, View::Grid);
            let columns = |row: &[Rgb]| -> Vec<usize> {
                (0..panel.width).filter(|&x| row[x] == GRID).collect()
            };
            let rows = panel.pixels.chunks(panel.width);
            rows.map(columns).min_by_key(Vec::len).expect("the panel has rows")
        };
        let regular = lines(&still);
        let width = PANEL as f64 / MESHES;
        let steps = regular.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
        assert!(regular.len() >= 20 && steps.clone().all(|s| (s - width).abs() <= 1.0));
        // Everything is carried by half a mesh to the right: lines come half a mesh earlier.
        let mut moved = still.clone();
        moved[..image.data.len()].fill((21.0 / MESHES / 2.0) as f32);
        let shifted = lines(&moved);
        let offset = (regular[3] as f64 - shifted[3] as f64).rem_euclid(width);
        assert!((offset - width / 2.0).abs() <= 1.5, "{regular:?} {shifted:?}");
    }
}
