//! LNCC on the CPU: one sweep along z per chunk of planes.
//!
//! Plane `z` of the five products enters a ring of `w` filtered planes; with it the windows centred
//! on `z - r` are complete and give `n` and the gamma planes, which enter a second ring; with that
//! the gradient of plane `z - 2r` is complete. Chunks run in parallel and repeat the `2r` planes of
//! their margins.

use std::collections::VecDeque;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{GradientMode, LnccCall, LnccOps, LnccOptions, LnccWeights, gaussian_weights};
use ffdp_kit::real::{Real, by_dtype, elements, readable, tensor};

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

/// Weighted sums over a window, one axis at a time.
#[derive(Clone, Copy)]
enum Filter<'a> {
    /// All weights 1, over `2 r + 1` values.
    Box(usize),
    /// These weights, which add up to 1.
    Weights(&'a [f64]),
}

impl Filter<'_> {
    fn radius(self) -> usize {
        match self {
            Self::Box(radius) => radius,
            Self::Weights(weights) => weights.len() / 2,
        }
    }

    fn window(self) -> usize {
        2 * self.radius() + 1
    }

    /// What the weights along an axis add up to.
    fn gain(self) -> f64 {
        match self {
            Self::Box(_) => self.window() as f64,
            Self::Weights(_) => 1.0,
        }
    }

    /// Sums along x, then along y, of a plane whose surroundings hold `outside`.
    fn plane(self, plane: &[f64], outside: f64, width: usize) -> Vec<f64> {
        let mut along_x = vec![0.0; plane.len()];
        let r = self.radius();
        let mut padded = vec![outside; width + 2 * r];
        for (row, sums) in plane.chunks(width).zip(along_x.chunks_mut(width)) {
            padded[r..][..width].copy_from_slice(row);
            self.row(&padded, sums);
        }
        let mut along_y = vec![0.0; plane.len()];
        let beyond = vec![outside * self.gain(); width];
        let height = (plane.len() / width) as isize;
        let row = |y: isize| match (0..height).contains(&y) {
            true => &along_x[y as usize * width..][..width],
            false => &beyond[..],
        };
        self.rows(row, width, &mut along_y);
        along_y
    }

    /// The sums of a row, which `padded` holds with `r` values more on either side.
    fn row(self, padded: &[f64], sums: &mut [f64]) {
        let window = self.window();
        match self {
            Self::Box(_) => {
                let mut sum: f64 = padded[..window - 1].iter().sum();
                for (x, value) in sums.iter_mut().enumerate() {
                    sum += padded[x + window - 1];
                    *value = sum;
                    sum -= padded[x];
                }
            }
            Self::Weights(weights) => {
                for (values, sum) in padded.windows(window).zip(sums) {
                    *sum = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
                }
            }
        }
    }

    /// The sums over rows, of which `row` gives the values.
    fn rows<'r>(self, row: impl Fn(isize) -> &'r [f64], width: usize, sums: &mut [f64]) {
        let r = self.radius() as isize;
        match self {
            Self::Box(_) => {
                let mut sum = vec![0.0; width];
                (-r..r).for_each(|y| add(&mut sum, row(y), 1.0));
                for (y, sums) in sums.chunks_mut(width).enumerate() {
                    let y = y as isize;
                    add(&mut sum, row(y + r), 1.0);
                    sums.copy_from_slice(&sum);
                    add(&mut sum, row(y - r), -1.0);
                }
            }
            Self::Weights(weights) => {
                for (y, sums) in sums.chunks_mut(width).enumerate() {
                    let rows = (y as isize - r..).map(&row);
                    weights.iter().zip(rows).for_each(|(weight, row)| add(sums, row, *weight));
                }
            }
        }
    }
}

/// `sum += weight values`.
fn add(sum: &mut [f64], values: &[f64], weight: f64) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
}

/// The means over windows, from planes that arrive in the order of z.
struct Ring<'a> {
    planes: VecDeque<Planes>,
    filter: Filter<'a>,
}

impl<'a> Ring<'a> {
    fn new(filter: Filter<'a>) -> Self {
        Self { planes: VecDeque::with_capacity(filter.window()), filter }
    }

    /// Adds planes summed along x and y; once `w` have arrived, returns the means of their windows.
    fn push(&mut self, planes: Planes) -> Option<Planes> {
        let window = self.filter.window();
        if self.planes.len() == window {
            self.planes.pop_front();
        }
        self.planes.push_back(planes);
        (self.planes.len() == window).then(|| {
            let mut mean: Planes = self.planes[0].iter().map(|p| vec![0.0; p.len()]).collect();
            for (i, planes) in self.planes.iter().enumerate() {
                let weight = match self.filter {
                    Filter::Box(_) => 1.0,
                    Filter::Weights(weights) => weights[i],
                };
                mean.iter_mut().zip(planes).for_each(|(mean, plane)| add(mean, plane, weight));
            }
            let scale = 1.0 / self.filter.gain().powi(3);
            mean.iter_mut().flatten().for_each(|mean| *mean *= scale);
            mean
        })
    }
}

/// A volume pair and what is asked of it.
struct Sweep<'a, T> {
    moved: Centred<'a, T>,
    fixed: Centred<'a, T>,
    /// Of the voxels, if they have any.
    weights: Option<&'a [T]>,
    size: [usize; 3],
    options: LnccOptions,
    filter: Filter<'a>,
    needs: [bool; 2],
}

/// What a chunk of planes yields: `sum u n` and the two gradients of its planes.
struct Chunk {
    sum: f64,
    gradients: [Vec<f64>; 2],
}

/// The value of a window, and what its gradient is made of.
struct Window {
    n: f64,
    /// `gamma, gamma A B / D, gamma A C / D`.
    factors: [f64; 3],
}

impl<T: Real> Sweep<'_, T> {
    /// The five products of plane `z`, summed in the plane; zeros outside the image. With weights, those of
    /// the weighted values, and the weights; nothing outside.
    fn products(&self, z: isize) -> Planes {
        let [d, h, w] = self.size;
        let (a, b) = (self.fixed.centre, self.moved.centre);
        let outside = match self.weights {
            None => vec![-a, -b, a * a, b * b, a * b],
            Some(_) => vec![0.0; 6],
        };
        if !(0..d as isize).contains(&z) {
            let gain = self.filter.gain().powi(2);
            return outside.iter().map(|value| vec![value * gain; h * w]).collect();
        }
        let plane = z as usize * h * w;
        let fixed: Vec<f64> =
            self.fixed.data[plane..][..h * w].iter().map(|v| v.wide() - a).collect();
        let moved: Vec<f64> =
            self.moved.data[plane..][..h * w].iter().map(|v| v.wide() - b).collect();
        let product =
            |p: &[f64], q: &[f64]| -> Vec<f64> { p.iter().zip(q).map(|(p, q)| p * q).collect() };
        let squares = [product(&fixed, &fixed), product(&moved, &moved), product(&fixed, &moved)];
        let mut planes: Planes = [fixed, moved].into_iter().chain(squares).collect();
        if let Some(weights) = self.weights {
            let weights: Vec<f64> = weights[plane..][..h * w].iter().map(|v| v.wide()).collect();
            planes.iter_mut().for_each(|plane| *plane = product(plane, &weights));
            planes.push(weights);
        }
        let pairs = planes.iter().zip(outside);
        pairs.map(|(plane, outside)| self.filter.plane(plane, outside, w)).collect()
    }

    /// From the five means of a window.
    fn window(&self, mean: [f64; 5]) -> Window {
        let [f, m, ff, mm, fm] = mean;
        let [common, epsilon] = self.options.floors();
        let a = fm - f * m + common;
        let b = (ff - f * f).max(0.0) + common;
        let c = (mm - m * m).max(0.0) + common;
        let d = b * c + epsilon;
        let gamma = 2.0 * a / d;
        // Rounding may push A^2 past B C by a few ulps.
        let n = (a * a / d).min(1.0);
        Window { n, factors: [gamma, gamma * a * b / d, gamma * a * c / d] }
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
        let mut statistics = Ring::new(self.filter);
        let mut gammas = Ring::new(self.filter);
        for z in first - radius..last + radius {
            let Some(mean) = statistics.push(self.products(z)) else { continue };
            let centre = z - radius;
            let within = (0..d as isize).contains(&centre);
            let counts = planes.contains(&(centre as usize)) && within;
            let mut fields: Planes = vec![vec![0.0; h * w]; if wanted { 5 } else { 0 }];
            for voxel in 0..if within { h * w } else { 0 } {
                let mut means = [0, 1, 2, 3, 4].map(|k| mean[k][voxel]);
                // How much the window counts, and that over the weight of its voxels.
                let (mut own, mut share) = (1.0, 1.0);
                if let Some(weights) = self.weights {
                    own = weights[centre as usize * h * w + voxel].wide();
                    let total = mean[5][voxel];
                    let scale = if total > 0.0 { 1.0 / total } else { 0.0 };
                    means.iter_mut().for_each(|mean| *mean *= scale);
                    // Approximately, the windows that reach the voxel add up to its own.
                    share = if exact { own * scale } else { own };
                }
                let Window { n, factors } = self.window(means);
                chunk.sum += if counts { own * n } else { 0.0 };
                if wanted {
                    let [f, m, ..] = means;
                    let [gamma, to_m, to_f] = factors.map(|factor| share * factor);
                    fields[0][voxel] = gamma;
                    fields[1][voxel] = to_m;
                    fields[2][voxel] = to_m * m - gamma * f;
                    fields[3][voxel] = to_f;
                    fields[4][voxel] = to_f * f - gamma * m;
                }
            }
            if wanted && !exact && counts {
                self.add_gradient(&mut chunk, centre as usize, &fields, None);
            } else if wanted && exact {
                let means = fields.iter().map(|f| self.filter.plane(f, 0.0, w)).collect();
                if let Some(mean) = gammas.push(means) {
                    let z = (centre - radius) as usize;
                    self.add_gradient(&mut chunk, z, &mean, self.weights);
                }
            }
        }
        chunk
    }

    /// Appends plane `z` of the wanted gradients, from the (filtered) planes of `gamma`,
    /// `gamma A B / D`, `gamma (A B / D mu_M - mu_F)` and the last two with the images exchanged.
    fn add_gradient(&self, chunk: &mut Chunk, z: usize, gamma: &[Vec<f64>], weights: Option<&[T]>) {
        let plane = self.size[1] * self.size[2];
        let fixed = &self.fixed.data[z * plane..][..plane];
        let moved = &self.moved.data[z * plane..][..plane];
        for (voxel, (f, m)) in fixed.iter().zip(moved).enumerate() {
            let (f, m) = (f.wide() - self.fixed.centre, m.wide() - self.moved.centre);
            let weight = weights.map_or(1.0, |weights| weights[z * plane + voxel].wide());
            let at = |k: usize| weight * gamma[k][voxel];
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
    [moved, fixed, weights]: [&FlexTensor; 3],
    LnccCall { options, weighted, factor }: LnccCall,
    needs: [bool; 2],
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let shape = moved.layout().shape().clone();
    let size = [shape[2], shape[3], shape[4]];
    let len: usize = size.iter().product();
    let radius = options.window / 2;
    let bell;
    let filter = match options.weights {
        LnccWeights::Box => Filter::Box(radius),
        LnccWeights::Gaussian { sigma_voxels } => {
            bell = gaussian_weights(sigma_voxels, radius);
            Filter::Weights(&bell)
        }
    };
    // Enough chunks for the threads, few enough that their margins stay a small part.
    let depth = size[0].div_ceil(rayon::current_num_threads()).max(2 * options.window);
    let mut sum = 0.0;
    let mut gradients = [Vec::new(), Vec::new()];
    let volumes = elements::<T>(moved).chunks(len).zip(elements::<T>(fixed).chunks(len));
    for (volume, (moved, fixed)) in volumes.enumerate() {
        let (moved, fixed) = (Centred::new(moved), Centred::new(fixed));
        let weights = weighted.then(|| &elements::<T>(weights)[volume * len..][..len]);
        let sweep = Sweep { moved, fixed, weights, size, options, filter, needs };
        let starts: Vec<usize> = (0..size[0]).step_by(depth).collect();
        let chunks: Vec<Chunk> = starts
            .into_par_iter()
            .map(|start| sweep.chunk(start..(start + depth).min(size[0])))
            .collect();
        for chunk in chunks {
            sum += chunk.sum;
            for (all, part) in gradients.iter_mut().zip(&chunk.gradients) {
                all.extend(part.iter().map(|value| T::of(factor * value)));
            }
        }
    }
    let [to_moved, to_fixed] = gradients.map(|gradient| match gradient.is_empty() {
        true => tensor(vec![T::default()], [1]),
        false => tensor(gradient, shape.clone()),
    });
    (tensor(vec![T::of(factor * sum)], [1]), to_moved, to_fixed)
}

impl LnccOps for Flex {
    fn lncc_3d_with_gradient(
        moved: FloatTensor<Self>,
        fixed: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: LnccCall,
        needs: [bool; 2],
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [moved, fixed, weights] = [moved, fixed, weights].map(readable);
        by_dtype!("lncc", moved.dtype(), run([&moved, &fixed, &weights], call, needs))
    }
}
