//! The sweep along z over a chunk of planes.

use std::collections::VecDeque;
use std::ops::Range;

use rayon::prelude::*;

use super::sums::{Filter, Planes, Sums};
use crate::ops::lncc::{GradientMode, LnccOptions};
use ffdp_kit::real::Real;
use ffdp_kit::window::{add, vectorized};

/// Every so many planes a sum along z is taken anew, so that its bits do not depend on where a chunk begins.
pub(super) const ANEW: usize = 4;

/// Values of one task of a sum; fixed, so that it does not depend on the threads.
const BLOCK: usize = 1 << 14;

/// Windows that are computed at a time.
const LANES: usize = 8;

/// A number for each of some neighbouring windows.
type Lanes = [f64; LANES];

/// One volume, read relative to a constant.
pub(super) struct Centred<'a, T> {
    data: &'a [T],
    centre: f64,
}

impl<'a, T: Real> Centred<'a, T> {
    pub fn new(data: &'a [T]) -> Self {
        let sum = |block: &[T]| block.iter().map(|v| v.wide()).sum();
        let sums: Vec<f64> = data.par_chunks(BLOCK).map(sum).collect();
        Self { data, centre: sums.iter().sum::<f64>() / data.len() as f64 }
    }
}

/// A volume pair and what is asked of it.
pub(super) struct Sweep<'a, T> {
    pub moved: Centred<'a, T>,
    pub fixed: Centred<'a, T>,
    /// Of the voxels, if they have any.
    pub weights: Option<&'a [T]>,
    pub size: [usize; 3],
    pub options: LnccOptions,
    pub filter: &'a Filter,
    pub needs: [bool; 2],
    /// Of the gradients.
    pub factor: f64,
}

/// What a chunk of planes yields: `sum u n` of each plane, and the two gradients of its planes.
pub(super) struct Chunk<T> {
    pub sums: Vec<f64>,
    pub gradients: [Vec<T>; 2],
}

/// What a sweep has in memory.
struct Memory {
    products: Sums,
    /// Means of the products, of one row.
    means: Planes,
    /// What the gradients are made of, of the planes of a window and the one that has left it.
    /// Without windows that are needed, of one plane.
    fields: VecDeque<Planes>,
    gammas: Sums,
    /// Means of these, of one row.
    gamma_means: Planes,
}

impl<T: Real> Sweep<'_, T> {
    fn exact(&self) -> bool {
        self.options.gradient == GradientMode::Exact
    }

    /// Adds `factor` times the five products of plane `z`; with weights, those of the weighted values, and the weights.
    fn add_products(&self, sums: &mut Sums, z: isize, factor: f64) {
        let [d, h, w] = self.size;
        if !(0..d as isize).contains(&z) {
            for (plane, value) in sums.planes.iter_mut().zip(&sums.beyond) {
                plane.iter_mut().for_each(|sum| *sum += factor * value);
            }
            return;
        }
        let plane = z as usize * h * w..(z as usize + 1) * h * w;
        let (a, b) = (self.fixed.centre, self.moved.centre);
        let (fixed, moved) = (&self.fixed.data[plane.clone()], &self.moved.data[plane.clone()]);
        let weights = self.weights.map(|weights| &weights[plane]);
        let [f, m, ff, mm, fm, total @ ..] = &mut sums.planes[..] else {
            unreachable!("there are five products");
        };
        if let (Some(weights), Some(total)) = (weights, total.first_mut()) {
            add(total, weights, factor);
        }
        let len = h * w;
        let (f, m, ff) = (&mut f[..len], &mut m[..len], &mut ff[..len]);
        let (mm, fm) = (&mut mm[..len], &mut fm[..len]);
        vectorized(
            #[inline(always)]
            || {
                for i in 0..len {
                    let u = weights.map_or(factor, |weights| factor * weights[i].wide());
                    let (p, q) = (fixed[i].wide() - a, moved[i].wide() - b);
                    f[i] += u * p;
                    m[i] += u * q;
                    ff[i] += u * (p * p);
                    mm[i] += u * (q * q);
                    fm[i] += u * (p * q);
                }
            },
        );
    }

    /// Goes with the sums along z from the window around plane `z - 1` to that around `z`, or begins there.
    fn slide_products(&self, sums: &mut Sums, z: isize) {
        let r = self.filter.radius() as isize;
        if self.filter.is_box && z % ANEW as isize != 0 {
            self.add_products(sums, z + r, 1.0);
            self.add_products(sums, z - r - 1, -1.0);
            return;
        }
        sums.clear();
        for (plane, weight) in (z - r..).zip(&self.filter.weights) {
            self.add_products(sums, plane, *weight);
        }
    }

    /// As [`Self::slide_products`], of the fields: those of the window's last plane have come.
    fn slide_fields(&self, sums: &mut Sums, fields: &VecDeque<Planes>, z: usize) {
        let window = self.filter.window();
        let add_all = |sums: &mut Sums, fields: &Planes, factor: f64| {
            sums.planes.iter_mut().zip(fields).for_each(|(sum, field)| add(sum, field, factor));
        };
        if self.filter.is_box && !z.is_multiple_of(ANEW) && fields.len() > window {
            add_all(sums, &fields[window], 1.0);
            add_all(sums, &fields[0], -1.0);
            return;
        }
        sums.clear();
        let planes = fields.iter().skip(fields.len() - window);
        planes.zip(&self.filter.weights).for_each(|(plane, weight)| add_all(sums, plane, *weight));
    }

    /// The values `n` of neighbouring windows from their means, and `share` times `gamma`, `gamma A B / D`,
    /// `gamma A C / D`.
    #[inline(always)]
    fn values(&self, [f, m, ff, mm, fm]: [&Lanes; 5], share: &Lanes) -> (Lanes, [Lanes; 3]) {
        let [common, epsilon] = self.options.floors();
        let (mut n, mut factors) = ([0.0; LANES], [[0.0; LANES]; 3]);
        for i in 0..LANES {
            let a = fm[i] - f[i] * m[i] + common;
            let b = (ff[i] - f[i] * f[i]).max(0.0) + common;
            let c = (mm[i] - m[i] * m[i]).max(0.0) + common;
            let d = b * c + epsilon;
            let gamma = share[i] * (2.0 * a / d);
            // Rounding may push A^2 past B C by a few ulps.
            n[i] = (a * a / d).min(1.0);
            factors[0][i] = gamma;
            factors[1][i] = gamma * (a * b / d);
            factors[2][i] = gamma * (a * c / d);
        }
        (n, factors)
    }

    /// `sum u n` of the windows of a row, which count as much as `own` says; fills the rows of the fields: `gamma`, and for
    /// each image that needs a gradient `gamma A B / D` and `gamma (A B / D mu_M - mu_F)`, or these with the images exchanged.
    fn windows(&self, means: &Planes, own: Option<&[T]>, fields: &mut [&mut [f64]]) -> f64 {
        let width = means[0].len();
        let exact = self.exact();
        let mut sums = [0.0; LANES];
        vectorized(
            #[inline(always)]
            || {
                for first in (0..width).step_by(LANES) {
                    let count = (width - first).min(LANES);
                    let mut at = [[0.0; LANES]; 6];
                    for (at, mean) in at.iter_mut().zip(means) {
                        at[..count].copy_from_slice(&mean[first..first + count]);
                    }
                    // How much the windows count, and that over the weight of their voxels.
                    let (mut counts, mut share) = ([1.0; LANES], [1.0; LANES]);
                    if let Some(own) = own {
                        for i in 0..count {
                            counts[i] = own[first + i].wide();
                            let scale = if at[5][i] > 0.0 { 1.0 / at[5][i] } else { 0.0 };
                            at.iter_mut().for_each(|mean| mean[i] *= scale);
                            // Approximately, the windows that reach the voxel add up to its own.
                            share[i] = if exact { counts[i] * scale } else { counts[i] };
                        }
                    }
                    let [f, m, ff, mm, fm, _] = &at;
                    let (n, [gamma, to_m, to_f]) = self.values([f, m, ff, mm, fm], &share);
                    for i in 0..count {
                        sums[i] += counts[i] * n[i];
                    }
                    let mut rows = fields.iter_mut();
                    let mut put = |value: &Lanes| {
                        let row = rows.next().expect("a row for each field");
                        row[first..first + count].copy_from_slice(&value[..count]);
                    };
                    let wanted = [(to_m, [m, f]), (to_f, [f, m])].into_iter().zip(self.needs);
                    for (k, ((to, [own, other]), _)) in wanted.filter(|(_, need)| *need).enumerate()
                    {
                        if k == 0 {
                            put(&gamma);
                        }
                        let mut rest = [0.0; LANES];
                        for i in 0..LANES {
                            rest[i] = to[i] * own[i] - gamma[i] * other[i];
                        }
                        put(&to);
                        put(&rest);
                    }
                }
            },
        );
        sums.iter().sum()
    }

    fn memory(&self) -> Memory {
        let [_, _, w] = self.size;
        let (a, b) = (self.fixed.centre, self.moved.centre);
        let beyond = match self.weights {
            // Images that are zero.
            None => vec![-a, -b, a * a, b * b, a * b],
            // Nothing, and no weight.
            Some(_) => vec![0.0; 6],
        };
        let wanted = self.needs.iter().filter(|need| **need).count();
        let fields = if wanted > 0 { 1 + 2 * wanted } else { 0 };
        Memory {
            means: vec![vec![0.0; w]; beyond.len()],
            products: Sums::new(beyond, self.size, self.filter),
            fields: VecDeque::new(),
            gammas: Sums::new(vec![0.0; fields], self.size, self.filter),
            gamma_means: vec![vec![0.0; w]; fields],
        }
    }

    /// Sweeps over the planes of one chunk.
    pub fn chunk(&self, planes: Range<usize>) -> Chunk<T> {
        let depth = self.size[0] as isize;
        let wanted = self.needs.contains(&true);
        let margin = if self.exact() && wanted { self.filter.radius() as isize } else { 0 };
        let (first, last) = (planes.start as isize - margin, planes.end as isize + margin);
        let mut memory = self.memory();
        let values = planes.len() * self.size[1] * self.size[2];
        let gradients = self.needs.map(|need| Vec::with_capacity(if need { values } else { 0 }));
        let mut chunk = Chunk { sums: Vec::new(), gradients };
        let begin =
            if self.filter.is_box { first - first.rem_euclid(ANEW as isize) } else { first };
        for centre in begin..last {
            self.slide_products(&mut memory.products, centre);
            if centre < first {
                continue;
            }
            let within = (0..depth).contains(&centre);
            let sum = self.add_fields(&mut memory, within.then_some(centre as usize));
            if within && planes.contains(&(centre as usize)) {
                chunk.sums.push(sum);
            }
            // The plane whose windows, or whose own one, are complete.
            let z = centre - margin;
            if wanted && memory.fields.len() > 2 * margin as usize {
                self.add_gradient(&mut chunk, &mut memory, z as usize);
            }
        }
        chunk
    }

    /// Puts the fields of a plane behind the others, zeros beyond the image; returns its `sum u n`.
    fn add_fields(&self, memory: &mut Memory, plane: Option<usize>) -> f64 {
        let [_, h, w] = self.size;
        let kept = if self.exact() { self.filter.window() } else { 0 };
        let mut fields = match memory.fields.len() > kept {
            true => memory.fields.pop_front().expect("it has planes"),
            false => vec![vec![0.0; h * w]; memory.gamma_means.len()],
        };
        let mut sum = 0.0;
        match plane {
            None => fields.iter_mut().for_each(|field| field.fill(0.0)),
            Some(z) => {
                for y in 0..h {
                    memory.products.means(y, self.filter, &mut memory.means);
                    let own = self.weights.map(|weights| &weights[(z * h + y) * w..][..w]);
                    let rows = fields.iter_mut().map(|field| &mut field[y * w..][..w]);
                    sum += self.windows(&memory.means, own, &mut rows.collect::<Vec<_>>());
                }
            }
        }
        memory.fields.push_back(fields);
        sum
    }

    /// Appends plane `z` of the wanted gradients.
    fn add_gradient(&self, chunk: &mut Chunk<T>, memory: &mut Memory, z: usize) {
        let [_, h, w] = self.size;
        let exact = self.exact();
        if exact {
            self.slide_fields(&mut memory.gammas, &memory.fields, z);
        }
        for y in 0..h {
            let at = [z, y];
            if exact {
                memory.gammas.means(y, self.filter, &mut memory.gamma_means);
                let rows = memory.gamma_means.iter().map(|row| &row[..]);
                self.add_row(chunk, at, &rows.collect::<Vec<_>>(), self.weights);
            } else {
                let fields = memory.fields.back().expect("the plane's own");
                let rows = fields.iter().map(|field| &field[y * w..][..w]);
                self.add_row(chunk, at, &rows.collect::<Vec<_>>(), None);
            }
        }
    }

    /// Appends row `y` of plane `z`, from rows of the fields or of their means.
    fn add_row(
        &self,
        chunk: &mut Chunk<T>,
        [z, y]: [usize; 2],
        rows: &[&[f64]],
        weights: Option<&[T]>,
    ) {
        let [_, h, w] = self.size;
        let line = (z * h + y) * w..(z * h + y + 1) * w;
        let images =
            [&self.moved, &self.fixed].map(|image| (&image.data[line.clone()], image.centre));
        let weights = weights.map(|weights| &weights[line.clone()]);
        let mut pairs = rows[1..].chunks(2);
        for k in (0..2).filter(|k| self.needs[*k]) {
            let ((own, own_centre), (other, other_centre)) = (images[k], images[1 - k]);
            let pair = pairs.next().expect("two rows for each gradient");
            let (gamma, to, rest) = (rows[0], pair[0], pair[1]);
            let gradient = &mut chunk.gradients[k];
            vectorized(
                #[inline(always)]
                || {
                    gradient.extend((0..w).map(|x| {
                        let (p, q) = (other[x].wide() - other_centre, own[x].wide() - own_centre);
                        let weight = weights.map_or(1.0, |weights| weights[x].wide());
                        T::of(self.factor * (weight * (p * gamma[x] - q * to[x] + rest[x])))
                    }));
                },
            );
        }
    }
}
