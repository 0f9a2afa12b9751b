//! Three planes through an image pair, sampled in physical space: what the report shows.
//!
//! Axial, coronal and sagittal planes through the centre of mass of the fixed image; where images are read slab by
//! slab, through the middle of its grid. To the right
//! is the patient's right (axial, coronal) or front (sagittal); up is the front (axial) or the head.

use std::ops::Range;

use ffdp_image::image::{Geometry, Volume};
use ffdp_image::metrics::{FieldPlanes, determinant_of};
use ffdp_train::pictures::{Canvas, Rgb};
use rayon::prelude::*;

use super::colours::{FOLD, GRID, diverging, gray, heat};
use crate::failure::Result;

mod controls;
mod marks;

pub use marks::LandmarkMarks;

/// Pixels along the longest side of the fixed image's box.
const PANEL: usize = 300;
/// DeviceMesh width of the grid, and of the checkerboard, as parts of the longest side.
const MESHES: f64 = 24.0;
const CHECKS: f64 = 9.0;
/// Around the image.
const OUTSIDE: Rgb = [255; 3];
/// RAS axes along which a plane's pixels run: to the right, up.
const PLANES: [[usize; 2]; 3] = [[0, 1], [0, 2], [1, 2]];
/// Range of ln det J that always has colours of its own, and the largest that is shown.
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
    /// The fixed image with the control points of a spline, each where it is carried to.
    Controls,
    /// The fixed image with borders of labels and landmarks of both images.
    MarksBefore,
    MarksAfter,
}

const VIEWS: usize = 12;

/// What is looked up at every pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Fixed,
    Before,
    Warped,
    /// A component of the displacement, in voxels as it comes, in RAS mm as it is drawn.
    Displacement(usize),
    Determinant,
    LabelFixed,
    LabelBefore,
    LabelAfter,
}

const QUANTITIES: usize = 10;

impl Quantity {
    fn index(self) -> usize {
        match self {
            Self::Fixed => 0,
            Self::Before => 1,
            Self::Warped => 2,
            Self::Displacement(component) => 3 + component,
            Self::Determinant => 6,
            Self::LabelFixed => 7,
            Self::LabelBefore => 8,
            Self::LabelAfter => 9,
        }
    }
}

/// The pictures.
pub struct Pictures {
    planes: [[Canvas; VIEWS]; 3],
    /// What the planes go through.
    pub centre: &'static str,
    /// `ln det J` at the ends of the colours.
    pub log_jacobian_range: f64,
    /// Whether there are control points to be seen.
    pub has_controls: bool,
    /// Whether there are labels or landmarks to be seen.
    pub has_marks: bool,
}

impl Pictures {
    /// A view of a plane: 0 axial, 1 coronal, 2 sagittal.
    pub fn get(&self, plane: usize, view: View) -> &Canvas {
        &self.planes[plane][view as usize]
    }

    /// One that shows at a glance whether the images are aligned.
    pub fn thumbnail(&self) -> &Canvas {
        self.get(0, View::ChecksAfter)
    }
}

/// Three planes through a grid, and what is found at their pixels as planes of the grid come along.
pub struct Panels {
    frame: Frame,
    /// Of every quantity, by pixel.
    values: [Vec<f64>; QUANTITIES],
    /// The control points of the displacement, where it is a spline.
    pub controls: Option<Geometry>,
    pub landmarks: Option<LandmarkMarks>,
    has_labels: bool,
}

/// Where the pixels lie.
struct Frame {
    /// Voxels along x, and in a plane of the grid.
    row: usize,
    plane: usize,
    /// From voxels to RAS mm.
    linear: [[f64; 3]; 3],
    /// Width and height of each picture.
    sizes: [[usize; 2]; 3],
    points: Vec<[f64; 3]>,
    inside: Vec<bool>,
    /// By plane of the grid: the pixels that read it, trilinear, and those that it is the nearest of.
    taps: Vec<Vec<Tap>>,
    nearest: Vec<Vec<(u32, u32)>>,
    mesh_mm: f64,
    pixel_mm: f64,
    centre: &'static str,
}

/// What a pixel reads of a plane.
struct Tap {
    pixel: u32,
    /// The lower of the four voxels around, by its place in the plane.
    voxel: u32,
    /// The part of the way from it to the next one, along x and y.
    t: [f32; 2],
    /// The plane's part of the value.
    part: f32,
}

impl Frame {
    fn new(geometry: &Geometry, centre: [f64; 3], name: &'static str) -> Self {
        let bounds = geometry.bounding_box_mm();
        let longest = (0..3).map(|i| bounds[1][i] - bounds[0][i]).fold(0.0, f64::max);
        let pixel_mm = longest / (PANEL - 1) as f64;
        let pixels =
            |axis: usize| ((bounds[1][axis] - bounds[0][axis]) / pixel_mm).round() as usize + 1;
        let sizes = PLANES.map(|[right, up]| [pixels(right), pixels(up)]);
        let mut points = Vec::new();
        for ([width, height], [right, up]) in sizes.into_iter().zip(PLANES) {
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                let mut p = centre;
                p[right] = bounds[0][right] + x as f64 * pixel_mm;
                p[up] = bounds[1][up] - y as f64 * pixel_mm;
                points.push(p);
            }
        }
        let [nx, ny, planes] = geometry.size;
        let mut frame = Self {
            row: nx,
            plane: nx * ny,
            linear: geometry.voxel_to_mm().linear(),
            sizes,
            inside: vec![false; points.len()],
            points,
            taps: (0..planes).map(|_| Vec::new()).collect(),
            nearest: vec![Vec::new(); planes],
            mesh_mm: longest / MESHES,
            pixel_mm,
            centre: name,
        };
        let to_voxel = geometry.mm_to_voxel();
        for pixel in 0..frame.points.len() {
            frame.place(pixel, to_voxel.apply(frame.points[pixel]), geometry.size);
        }
        frame
    }

    /// Notes what a pixel at a position in voxels reads; nothing outside the grid.
    fn place(&mut self, pixel: usize, index: [f64; 3], size: [usize; 3]) {
        let last = size.map(|n| (n - 1) as f64);
        // Half a voxel beyond the centres still belongs to the image.
        if !(0..3).all(|i| index[i] >= -0.5 && index[i] <= last[i] + 0.5) {
            return;
        }
        self.inside[pixel] = true;
        let at: [f64; 3] = std::array::from_fn(|i| index[i].clamp(0.0, last[i]));
        let [x, y, z] = at.map(|at| at as usize);
        let [tx, ty, tz] = at.map(|at| at - at.floor());
        let place = |x: usize, y: usize| (y * size[0] + x) as u32;
        let (pixel, voxel, t) = (pixel as u32, place(x, y), [tx as f32, ty as f32]);
        for (plane, part) in [(z, 1.0 - tz), (z + 1, tz)] {
            if part > 0.0 {
                self.taps[plane].push(Tap { pixel, voxel, t, part: part as f32 });
            }
        }
        let [x, y, z] = at.map(|at| at.round() as usize);
        self.nearest[z].push((pixel, place(x, y)));
    }

    /// The values at the nearest voxels, by plane of the grid and place in it.
    fn add_nearest(
        &self,
        values: &mut [f64],
        planes: Range<usize>,
        value: impl Fn(usize, usize) -> f32,
    ) {
        for z in planes {
            for &(pixel, voxel) in &self.nearest[z] {
                values[pixel as usize] = f64::from(value(z, voxel as usize));
            }
        }
    }

    /// Adds what planes from `first` on give to the values of a quantity.
    fn add(&self, values: &mut [f64], first: usize, planes: &[f32]) {
        for (k, plane) in planes.chunks(self.plane).enumerate() {
            for &Tap { pixel, voxel, t, part } in &self.taps[first + k] {
                let voxel = voxel as usize;
                // Beyond the last one the weight is 0.
                let at = |offset: usize| {
                    f64::from(
                        plane[if voxel + offset < plane.len() { voxel + offset } else { voxel }],
                    )
                };
                let [tx, ty] = t.map(f64::from);
                let below = (1.0 - tx) * at(0) + tx * at(1);
                let above = (1.0 - tx) * at(self.row) + tx * at(self.row + 1);
                values[pixel as usize] += f64::from(part) * ((1.0 - ty) * below + ty * above);
            }
        }
    }
}

impl Panels {
    /// Planes through a point in RAS mm, which has a name.
    pub fn new(geometry: &Geometry, centre: [f64; 3], name: &'static str) -> Self {
        let frame = Frame::new(geometry, centre, name);
        let values = std::array::from_fn(|_| vec![0.0; frame.points.len()]);
        Self { frame, values, controls: None, landmarks: None, has_labels: false }
    }

    /// Planes through the centre of mass of an image, on its grid.
    ///
    /// # Errors
    /// An image without a finite voxel.
    pub fn through_mass(image: &Volume) -> Result<Self> {
        let centre = centre_of_mass_mm(image, Window::of(image)?);
        Ok(Self::new(&image.geometry, centre, "centre of mass"))
    }

    /// Takes what is needed of planes of the grid, from `first` on; each plane comes once.
    pub fn add(&mut self, quantity: Quantity, first: usize, planes: &[f32]) {
        self.frame.add(&mut self.values[quantity.index()], first, planes);
    }

    /// The same of a displacement in voxels.
    ///
    /// # Errors
    /// When the planes are not of the grid's size.
    pub fn add_displacement(&mut self, planes: &FieldPlanes) -> ffdp_image::Result<()> {
        let FieldPlanes { displacement, first, own } = planes;
        let plane = self.frame.plane;
        let held = displacement.len() / (3 * plane);
        for component in 0..3 {
            let start = component * held + own.start - first;
            let values = &displacement[start * plane..(start + own.len()) * plane];
            self.add(Quantity::Displacement(component), own.start, values);
        }
        let size = [self.frame.row, plane / self.frame.row, held];
        let determinant = determinant_of(displacement, size)?;
        self.add_determinants(own.clone(), |z, voxel| determinant((z - first) * plane + voxel));
        Ok(())
    }

    /// The same of labels, at the nearest voxels.
    pub fn add_labels(&mut self, quantity: Quantity, first: usize, labels: &[i32]) {
        let plane = self.frame.plane;
        let planes = first..first + labels.len() / plane;
        let of = |z: usize, voxel: usize| labels[(z - first) * plane + voxel] as f32;
        self.frame.add_nearest(&mut self.values[quantity.index()], planes, of);
        self.has_labels = true;
    }

    /// Only the voxels that are seen have a determinant: by plane and place in it.
    fn add_determinants(&mut self, planes: Range<usize>, of: impl Fn(usize, usize) -> f32) {
        let values = &mut self.values[Quantity::Determinant.index()];
        self.frame.add_nearest(values, planes, of);
    }

    /// Brings the displacement to mm: only what was read of it.
    fn convert_to_mm(&mut self) {
        let first = Quantity::Displacement(0).index();
        let [x, y, z, ..] = &mut self.values[first..] else {
            unreachable!("a displacement has three")
        };
        for ((x, y), z) in x.iter_mut().zip(y).zip(z) {
            let voxels = [*x, *y, *z];
            [*x, *y, *z] = self.frame.linear.map(|row| (0..3).map(|k| row[k] * voxels[k]).sum());
        }
    }

    /// Values inside the grid, ascending.
    fn seen(&self, quantity: Quantity) -> Vec<f64> {
        let values = self.values[quantity.index()].iter().zip(&self.frame.inside);
        let mut seen: Vec<f64> =
            values.filter(|(_, inside)| **inside).map(|(value, _)| *value).collect();
        seen.sort_by(f64::total_cmp);
        seen
    }

    /// The pictures, with intensities between those that are seen.
    pub fn draw(mut self) -> Pictures {
        self.convert_to_mm();
        let windows = [Quantity::Fixed, Quantity::Before].map(|q| Window::of_seen(self.seen(q)));
        let log_jacobian_range = log_jacobian_range(self.seen(Quantity::Determinant));
        let draw = |plane: usize| {
            let pixels = |[width, height]: [usize; 2]| width * height;
            let first = self.frame.sizes[..plane].iter().copied().map(pixels).sum();
            let [width, height] = self.frame.sizes[plane];
            let scene = Scene { panels: &self, first, width, height, windows, log_jacobian_range };
            scene.views(PLANES[plane])
        };
        let (axial, (coronal, sagittal)) =
            rayon::join(|| draw(0), || rayon::join(|| draw(1), || draw(2)));
        let planes = [axial, coronal, sagittal];
        let has_controls = self.controls.is_some();
        let (centre, has_marks) = (self.frame.centre, self.has_marks());
        Pictures { planes, centre, log_jacobian_range, has_controls, has_marks }
    }
}

/// One plane, whose pixels begin at `first`.
struct Scene<'a> {
    panels: &'a Panels,
    first: usize,
    width: usize,
    height: usize,
    /// Of the fixed and the moving image.
    windows: [Window; 2],
    log_jacobian_range: f64,
}

impl Scene<'_> {
    fn views(&self, axes: [usize; 2]) -> [Canvas; VIEWS] {
        let mut views: [Canvas; VIEWS] =
            std::array::from_fn(|_| Canvas::new(self.width, self.height, OUTSIDE));
        for y in 0..self.height {
            for x in 0..self.width {
                let check = [x, y].map(|i| (i as f64 / (PANEL as f64 / CHECKS)) as usize);
                let odd = (check[0] + check[1]) % 2 == 1;
                let Some(mut colours) = self.colours([x, y], odd) else { continue };
                let here = self.mesh([x, y], axes);
                if [[x + 1, y], [x, y + 1]].into_iter().any(|next| {
                    let there = self.mesh(next, axes);
                    there.is_some() && there != here
                }) {
                    colours[View::Grid as usize] = GRID;
                }
                for (view, colour) in views.iter_mut().zip(colours) {
                    view.pixels[y * self.width + x] = colour;
                }
            }
        }
        if let Some(grid) = &self.panels.controls {
            self.draw_controls(grid, axes, &mut views[View::Controls as usize]);
        }
        for (after, view) in [View::MarksBefore, View::MarksAfter].into_iter().enumerate() {
            self.draw_marks(after, axes, &mut views[view as usize]);
        }
        views
    }

    /// The number of a pixel inside the grid.
    fn pixel(&self, [x, y]: [usize; 2]) -> Option<usize> {
        let pixel = self.first + y * self.width + x;
        (x < self.width && y < self.height && self.panels.frame.inside[pixel]).then_some(pixel)
    }

    /// What the views show, in their order; `None` outside the fixed grid.
    fn colours(&self, at: [usize; 2], odd: bool) -> Option<[Rgb; VIEWS]> {
        let pixel = self.pixel(at)?;
        let value = |quantity: Quantity| self.panels.values[quantity.index()][pixel];
        let fixed = self.windows[0].scale(value(Quantity::Fixed));
        let [before, warped] = [Quantity::Before, Quantity::Warped]
            .map(|quantity| self.windows[1].scale(value(quantity)));
        let check = |moved: f64| gray(if odd { moved } else { fixed });
        let difference = |moved: f64| heat((fixed - moved).abs());
        let det = value(Quantity::Determinant);
        // Of the nearest voxel: a fold must not be smoothed away.
        let volume = if det > 0.0 { diverging(det.ln() / self.log_jacobian_range) } else { FOLD };
        Some([
            gray(fixed),
            gray(before),
            gray(warped),
            check(before),
            check(warped),
            difference(before),
            difference(warped),
            gray(0.7 * warped),
            volume,
            gray(0.7 * fixed),
            gray(0.8 * fixed),
            gray(0.8 * fixed),
        ])
    }

    /// The mesh of the moving image's regular grid that a point is carried into.
    fn mesh(&self, at: [usize; 2], axes: [usize; 2]) -> Option<[i64; 2]> {
        let pixel = self.pixel(at)?;
        let Panels { frame, values, .. } = self.panels;
        Some(axes.map(|axis| {
            let shift = values[Quantity::Displacement(axis).index()][pixel];
            ((frame.points[pixel][axis] + shift) / frame.mesh_mm).floor() as i64
        }))
    }
}

/// The intensities shown as black and white.
#[derive(Clone, Copy)]
struct Window {
    low: f64,
    high: f64,
}

impl Window {
    fn of(image: &Volume) -> Result<Self> {
        let [mut low, mut high] = image.percentiles([1.0, 99.9])?;
        if low >= high {
            (low, high) = image.min_max().unwrap_or((0.0, 1.0));
        }
        Ok(Self { low: f64::from(low), high: f64::from(high).max(f64::from(low) + 1e-30) })
    }

    /// The same of values, ascending.
    fn of_seen(seen: Vec<f64>) -> Self {
        let at = |part: f64| {
            let place = (part * seen.len().saturating_sub(1) as f64).round() as usize;
            seen.get(place).copied().unwrap_or(0.0)
        };
        let [mut low, mut high] = [at(0.01), at(0.999)];
        if low >= high {
            (low, high) = (at(0.0), at(1.0));
        }
        Self { low, high: high.max(low + 1e-30) }
    }

    fn scale(self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// The range of colours: the 98th percentile of |ln det J|, folds left out.
fn log_jacobian_range(determinants: Vec<f64>) -> f64 {
    let mut lengths: Vec<f64> =
        determinants.into_iter().filter(|det| *det > 0.0).map(|det| det.ln().abs()).collect();
    lengths.sort_by(f64::total_cmp);
    let [least, most] = LOG_JACOBIAN_RANGE;
    let place = (0.98 * lengths.len().saturating_sub(1) as f64).round() as usize;
    // To one digit after the point, so that the legend is readable.
    let range = lengths.get(place).map_or(least, |length| (length * 10.0).ceil() / 10.0);
    range.clamp(least, most)
}

/// Centre of the scaled intensities; that of the grid when there are none.
fn centre_of_mass_mm(image: &Volume, window: Window) -> [f64; 3] {
    let [nx, ny, _] = image.geometry.size;
    let of_plane = |(z, plane): (usize, &[f32])| {
        let mut sums = [0.0; 4];
        for (y, row) in plane.chunks(nx).enumerate() {
            let (mut moment, mut weight) = (0.0, 0.0);
            for (x, &value) in row.iter().enumerate() {
                let w = window.scale(f64::from(value));
                moment += w * x as f64;
                weight += w;
            }
            let of_row = [moment, weight * y as f64, weight * z as f64, weight];
            sums.iter_mut().zip(of_row).for_each(|(sum, of_row)| *sum += of_row);
        }
        sums
    };
    // Added in order: the same bits on any number of threads.
    let planes: Vec<[f64; 4]> = image.data.par_chunks(nx * ny).enumerate().map(of_plane).collect();
    let [x, y, z, weight] = planes
        .into_iter()
        .fold([0.0; 4], |sum: [f64; 4], plane| std::array::from_fn(|i| sum[i] + plane[i]));
    let sum = [x, y, z];
    match weight > 0.0 {
        true => image.geometry.voxel_to_mm().apply(sum.map(|s| s / weight)),
        false => image.geometry.center_mm(),
    }
}

#[cfg(test)]
mod tests;
