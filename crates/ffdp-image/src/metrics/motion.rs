//! How far a map moves the voxels of a grid.

use rayon::prelude::*;
use serde::Serialize;

use crate::image::{Affine, Geometry, Physical, Voxel};

/// Vectors whose lengths one thread adds.
const PART: usize = 1 << 16;

/// Lengths of vectors over a grid, in mm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lengths {
    /// Their mean.
    pub mean: f64,
    /// The longest.
    pub max: f64,
}

/// The motion `A (p + u(p)) - p` of the voxels of a grid, added up run of planes by run of planes.
pub struct Motion {
    size: [usize; 3],
    to_mm: Affine<Voxel, Physical>,
    moved: Affine<Voxel, Physical>,
    sum: f64,
    max: f64,
}

impl Motion {
    /// Of a grid and an affine map (RAS mm) after the displacement.
    pub fn new(grid: &Geometry, affine: &Affine<Physical, Physical>) -> Self {
        let to_mm = grid.voxel_to_mm();
        Self { size: grid.size, to_mm, moved: to_mm.then(affine), sum: 0.0, max: 0.0 }
    }

    /// Adds planes from `first` on, of which the displacement is `[3, n, H, W]` in voxels.
    pub fn add(&mut self, first: usize, displacement: &[f32]) {
        let ([x, y, _], count) = (self.size, displacement.len() / 3);
        let square = |i: usize| {
            let p = [i % x, i / x % y, first + i / (x * y)].map(|v| v as f64);
            let q = std::array::from_fn(|c| p[c] + f64::from(displacement[c * count + i]));
            let (from, to) = (self.to_mm.apply(p), self.moved.apply(q));
            (0..3).map(|c| (to[c] - from[c]).powi(2)).sum()
        };
        let part = |part: usize| {
            let voxels = part * PART..count.min((part + 1) * PART);
            let lengths = voxels.map(square).map(f64::sqrt);
            lengths.fold((0.0, 0.0), |(sum, max), v: f64| (sum + v, v.max(max)))
        };
        // Added in order: the same bits on any number of threads.
        let parts: Vec<(f64, f64)> = (0..count.div_ceil(PART)).into_par_iter().map(part).collect();
        self.sum += parts.iter().map(|(sum, _)| sum).sum::<f64>();
        self.max = parts.iter().fold(self.max, |max, (_, longest)| longest.max(max));
    }

    /// Of all planes, once they were added.
    pub fn lengths(&self) -> Lengths {
        Lengths { mean: self.sum / self.size.iter().product::<usize>() as f64, max: self.max }
    }
}

impl Lengths {
    /// Of the motion by a displacement `[3, D, H, W]` in voxels of a grid and an affine map after it.
    pub fn of(displacement: &[f32], grid: &Geometry, affine: &Affine<Physical, Physical>) -> Self {
        let mut motion = Motion::new(grid, affine);
        motion.add(0, displacement);
        motion.lengths()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_planes_move_as_the_whole() {
        let grid = Geometry::new([5, 4, 6], [1.0, 2.0, 3.0]).expect("positive");
        let affine = Affine::from_parts(
            [[1.0, 0.1, 0.0], [0.0, 0.9, 0.0], [0.0, 0.2, 1.0]],
            [3.0, -1.0, 0.5],
        );
        let u: Vec<f32> = (0..360).map(|i| (i as f32 * 0.7).sin()).collect();
        let whole = Lengths::of(&u, &grid, &affine);
        let mut motion = Motion::new(&grid, &affine);
        for planes in [0..1, 1..4, 4..6] {
            let part = |c: usize| &u[c * 120 + planes.start * 20..c * 120 + planes.end * 20];
            motion.add(planes.start, &[part(0), part(1), part(2)].concat());
        }
        let runs = motion.lengths();
        assert!((whole.mean - runs.mean).abs() < 1e-12 && whole.max == runs.max);
        // One voxel along y, of 2 mm.
        let shift: Vec<f32> = (0..360).map(|i| if i / 120 == 1 { 1.0 } else { 0.0 }).collect();
        let lengths = Lengths::of(&shift, &grid, &Affine::identity());
        assert!((lengths.mean - 2.0).abs() < 1e-12 && (lengths.max - 2.0).abs() < 1e-12);
    }
}
