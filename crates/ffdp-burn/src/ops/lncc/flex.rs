//! LNCC on the CPU: one sweep along z per chunk of planes.
//!
//! Plane `z` of the five products enters a ring of `w` box-filtered planes; with it the windows
//! centred on `z - r` are complete and give `n` and the gamma planes, which enter a second ring;
//! with that the gradient of plane `z - 2r` is complete. Chunks run in parallel and repeat the
//! `2r` planes of their margins.

use std::collections::VecDeque;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{GradientMode, LnccOps, LnccOptions};
use crate::ops::real::{Real, by_dtype, elements, tensor};

/// Planes of `f64`, one per quantity.
type Planes = Vec<Vec<f64>>;

/// One volume, read relative to a constant.
struct Centred<'a, T> {
    data: &'a [T],
    centre: f64,
}

impl<'a, T: Real> Centred<'a, T> {
    fn new(data: &'a [T]) -> Self {
        let sum: f64 = data.iter().map(|v| v.wide()).sum();
        Self { data, centre: sum / data.len() as f64 }
    }
}

/// The box mean over planes that arrive in the order of z.
struct Ring {
    planes: VecDeque<Planes>,
    window: usize,
}

impl Ring {
    fn new(window: usize) -> Self {
        Self { planes: VecDeque::with_capacity(window), window }
    }

    /// Adds box-filtered planes; once `w` have arrived, returns the means of their windows.
    fn push(&mut self, planes: Planes) -> Option<Planes> {
        if self.planes.len() == self.window {
            self.planes.pop_front();
        }
        self.planes.push_back(planes);
        (self.planes.len() == self.window).then(|| {
            let mut mean = self.planes[0].clone();
            for planes in self.planes.iter().skip(1) {
                for (mean, plane) in mean.iter_mut().zip(planes) {
                    mean.iter_mut().zip(plane).for_each(|(mean, value)| *mean += value);
                }
            }
            let scale = 1.0 / (self.window as f64).powi(3);
            mean.iter_mut().flatten().for_each(|value| *value *= scale);
            mean
        })
    }
}

/// Box sums along x, then along y, of a plane whose surroundings hold `outside`.
fn box_sum(plane: &[f64], outside: f64, width: usize, radius: usize) -> Vec<f64> {
    let height = plane.len() / width;
    let mut along_x = vec![0.0; plane.len()];
    for (row, sums) in plane.chunks(width).zip(along_x.chunks_mut(width)) {
        let at =
            |x: isize| if (0..width as isize).contains(&x) { row[x as usize] } else { outside };
        let r = radius as isize;
        let mut sum: f64 = (-r..r).map(at).sum();
        for (x, value) in sums.iter_mut().enumerate() {
            let x = x as isize;
            sum += at(x + r);
            *value = sum;
            sum -= at(x - r);
        }
    }
    let beyond = vec![outside * (2 * radius + 1) as f64; width];
    let row = |y: isize| match (0..height as isize).contains(&y) {
        true => &along_x[y as usize * width..][..width],
        false => &beyond[..],
    };
    let r = radius as isize;
    let mut sum = vec![0.0; width];
    for y in -r..r {
        sum.iter_mut().zip(row(y)).for_each(|(sum, value)| *sum += value);
    }
    let mut along_y = vec![0.0; plane.len()];
    for (y, values) in along_y.chunks_mut(width).enumerate() {
        let y = y as isize;
        sum.iter_mut().zip(row(y + r)).for_each(|(sum, value)| *sum += value);
        values.copy_from_slice(&sum);
        sum.iter_mut().zip(row(y - r)).for_each(|(sum, value)| *sum -= value);
    }
    along_y
}

/// A volume pair and what is asked of it.
struct Sweep<'a, T> {
    moved: Centred<'a, T>,
    fixed: Centred<'a, T>,
    size: [usize; 3],
    options: LnccOptions,
    needs: [bool; 2],
}

/// What a chunk of planes yields: `sum n` and the two gradients of its planes.
struct Chunk {
    sum: f64,
    gradients: [Vec<f64>; 2],
}

impl<T: Real> Sweep<'_, T> {
    /// The five products of plane `z`, box-filtered in the plane; zeros outside the image.
    fn products(&self, z: isize) -> Planes {
        let [d, h, w] = self.size;
        let (a, b) = (self.fixed.centre, self.moved.centre);
        let outside = [-a, -b, a * a, b * b, a * b];
        let radius = self.options.window / 2;
        if !(0..d as isize).contains(&z) {
            let area = (self.options.window * self.options.window) as f64;
            return outside.iter().map(|value| vec![value * area; h * w]).collect();
        }
        let plane = z as usize * h * w;
        let fixed: Vec<f64> =
            self.fixed.data[plane..][..h * w].iter().map(|v| v.wide() - a).collect();
        let moved: Vec<f64> =
            self.moved.data[plane..][..h * w].iter().map(|v| v.wide() - b).collect();
        let product =
            |p: &[f64], q: &[f64]| -> Vec<f64> { p.iter().zip(q).map(|(p, q)| p * q).collect() };
        let squares = [product(&fixed, &fixed), product(&moved, &moved), product(&fixed, &moved)];
        [fixed, moved]
            .into_iter()
            .chain(squares)
            .zip(outside)
            .map(|(plane, outside)| box_sum(&plane, outside, w, radius))
            .collect()
    }

    /// `n` and the factors of the gradient from the five means of one window:
    /// `(n, gamma, gamma A B / D, gamma A C / D)`.
    fn window(&self, mean: [f64; 5]) -> (f64, f64, f64, f64) {
        let [f, m, ff, mm, fm] = mean;
        let a = fm - f * m;
        let b = (ff - f * f).max(0.0);
        let c = (mm - m * m).max(0.0);
        let d = b * c + self.options.epsilon;
        let gamma = 2.0 * a / d;
        // Rounding may push A^2 past B C by a few ulps.
        ((a * a / d).min(1.0), gamma, gamma * a * b / d, gamma * a * c / d)
    }

    /// Sweeps over the planes of one chunk.
    fn chunk(&self, planes: std::ops::Range<usize>) -> Chunk {
        let [d, h, w] = self.size;
        let radius = (self.options.window / 2) as isize;
        let exact = self.options.gradient == GradientMode::Exact;
        let wanted = self.needs.iter().any(|need| *need);
        let margin = if exact && wanted { radius } else { 0 };
        let (first, last) = (planes.start as isize - margin, planes.end as isize + margin);
        let mut chunk = Chunk { sum: 0.0, gradients: [Vec::new(), Vec::new()] };
        let mut statistics = Ring::new(self.options.window);
        let mut gammas = Ring::new(self.options.window);
        for z in first - radius..last + radius {
            let Some(mean) = statistics.push(self.products(z)) else { continue };
            let centre = z - radius;
            let within = (0..d as isize).contains(&centre);
            let counts = planes.contains(&(centre as usize)) && within;
            let mut fields: Planes = vec![vec![0.0; h * w]; if wanted { 5 } else { 0 }];
            for voxel in 0..if within { h * w } else { 0 } {
                let means = [0, 1, 2, 3, 4].map(|k| mean[k][voxel]);
                let (n, gamma, to_m, to_f) = self.window(means);
                chunk.sum += if counts { n } else { 0.0 };
                if wanted {
                    let [f, m, ..] = means;
                    fields[0][voxel] = gamma;
                    fields[1][voxel] = to_m;
                    fields[2][voxel] = to_m * m - gamma * f;
                    fields[3][voxel] = to_f;
                    fields[4][voxel] = to_f * f - gamma * m;
                }
            }
            if wanted && !exact && counts {
                self.add_gradient(&mut chunk, centre as usize, &fields);
            } else if wanted && exact {
                let sums = fields.iter().map(|f| box_sum(f, 0.0, w, radius as usize)).collect();
                if let Some(mean) = gammas.push(sums) {
                    self.add_gradient(&mut chunk, (centre - radius) as usize, &mean);
                }
            }
        }
        chunk
    }

    /// Appends plane `z` of the wanted gradients, from the (filtered) planes of `gamma`,
    /// `gamma A B / D`, `gamma (A B / D mu_M - mu_F)` and the last two with the images exchanged.
    fn add_gradient(&self, chunk: &mut Chunk, z: usize, gamma: &[Vec<f64>]) {
        let plane = self.size[1] * self.size[2];
        let fixed = &self.fixed.data[z * plane..][..plane];
        let moved = &self.moved.data[z * plane..][..plane];
        for (voxel, (f, m)) in fixed.iter().zip(moved).enumerate() {
            let (f, m) = (f.wide() - self.fixed.centre, m.wide() - self.moved.centre);
            let at = |k: usize| gamma[k][voxel];
            if self.needs[0] {
                chunk.gradients[0].push(f * at(0) - m * at(1) + at(2));
            }
            if self.needs[1] {
                chunk.gradients[1].push(m * at(0) - f * at(3) + at(4));
            }
        }
    }
}

fn run<T: Real>(
    moved: &FlexTensor,
    fixed: &FlexTensor,
    options: LnccOptions,
    needs: [bool; 2],
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let shape = moved.layout().shape().clone();
    let size = [shape[2], shape[3], shape[4]];
    let len: usize = size.iter().product();
    // Enough chunks for the threads, few enough that their margins stay a small part.
    let depth = size[0].div_ceil(rayon::current_num_threads()).max(2 * options.window);
    let mut sum = 0.0;
    let mut gradients = [Vec::new(), Vec::new()];
    let volumes = elements::<T>(moved).chunks(len).zip(elements::<T>(fixed).chunks(len));
    for (moved, fixed) in volumes {
        let (moved, fixed) = (Centred::new(moved), Centred::new(fixed));
        let sweep = Sweep { moved, fixed, size, options, needs };
        let starts: Vec<usize> = (0..size[0]).step_by(depth).collect();
        let chunks: Vec<Chunk> = starts
            .into_par_iter()
            .map(|start| sweep.chunk(start..(start + depth).min(size[0])))
            .collect();
        for chunk in chunks {
            sum += chunk.sum;
            for (all, part) in gradients.iter_mut().zip(&chunk.gradients) {
                all.extend(part.iter().map(|value| T::of(*value)));
            }
        }
    }
    let [to_moved, to_fixed] = gradients.map(|gradient| match gradient.is_empty() {
        true => tensor(vec![T::default()], [1]),
        false => tensor(gradient, shape.clone()),
    });
    (tensor(vec![T::of(sum)], [1]), to_moved, to_fixed)
}

impl LnccOps for Flex {
    fn lncc_3d(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        options: LnccOptions,
    ) -> FloatTensor<Self> {
        Self::lncc_3d_with_gradient(moved, fixed, options, [false, false]).0
    }

    fn lncc_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        options: LnccOptions,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let (moved, fixed) = (moved.to_contiguous(), fixed.to_contiguous());
        by_dtype!("lncc", moved.dtype(), run(&moved, &fixed, options, needs))
    }
}
