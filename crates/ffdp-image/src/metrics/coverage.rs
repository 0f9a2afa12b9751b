//! Which voxels of a fixed image a map sends into the moving image: only these can be compared.

use std::ops::Range;

use rayon::prelude::*;

use super::similarity::{CHUNK, Compared};
use crate::image::{Affine, Geometry, Physical, Voxel, index_affine};

/// Positions are rounded: this near to the outermost voxel centres they lie inside (voxels).
const ROUNDING: f64 = 1e-3;

/// The map `x -> A (x + u(x))` from voxels of the fixed to voxels of the moving grid.
pub struct Coverage<'a> {
    map: Affine<Voxel, Voxel>,
    displacement: Option<&'a [f32]>,
    fixed: [usize; 3],
    moving: [usize; 3],
    /// Of the fixed grid.
    planes: Range<usize>,
}

impl<'a> Coverage<'a> {
    /// Of `affine` (RAS mm) after a displacement `[3, D, H, W]` in voxels of the fixed grid. Planes lie on each other,
    /// whatever their headers say of the axis across them.
    pub fn new(
        [fixed, moving]: [&Geometry; 2],
        affine: &Affine<Physical, Physical>,
        displacement: Option<&'a [f32]>,
    ) -> Self {
        let map = index_affine(fixed, moving, affine);
        let mut rows = *map.rows();
        let across = (0..3).filter(|&i| fixed.size[i] == 1 && moving.size[i] == 1);
        across.for_each(|axis| rows[axis] = [0.0; 4]);
        let map = Affine::from_rows(rows);
        let planes = 0..fixed.size[2];
        Self { map, displacement, fixed: fixed.size, moving: moving.size, planes }
    }

    /// The same of some planes of the fixed grid alone: the displacement is that of their voxels, `[3, n, H, W]`.
    pub fn of_planes(self, planes: Range<usize>) -> Self {
        Self { planes, ..self }
    }

    /// Voxels of its planes.
    fn count(&self) -> usize {
        self.planes.len() * self.fixed[0] * self.fixed[1]
    }

    /// Where a fixed voxel comes from, in voxels of the moving grid.
    fn position(&self, offset: usize) -> [f64; 3] {
        let [x, y, _] = self.fixed;
        let voxel = [offset % x, offset / x % y, self.planes.start + offset / (x * y)];
        let (voxel, count) = (voxel.map(|v| v as f64), self.count());
        let at = |i: usize| match self.displacement {
            None => voxel[i],
            Some(u) => voxel[i] + f64::from(u[i * count + offset]),
        };
        self.map.apply([at(0), at(1), at(2)])
    }

    /// Which fixed voxels lie inside the moving image, at least so many fixed voxels from its border.
    pub fn inside(&self, margin: f64) -> Vec<bool> {
        let holds = self.holds(margin);
        let voxels = (0..self.count()).into_par_iter();
        voxels.map(|offset| holds(self.position(offset))).collect()
    }

    /// Whether a position in voxels of the moving grid lies there.
    fn holds(&self, margin: f64) -> impl Fn([f64; 3]) -> bool + Sync {
        let rows = self.map.rows();
        let within: [_; 3] = std::array::from_fn(|i| {
            let margin = match self.moving[i] {
                1 => 0.0,
                _ => margin * rows[i][..3].iter().map(|v| v * v).sum::<f64>().sqrt(),
            };
            margin - ROUNDING..=self.moving[i] as f64 - 1.0 - margin + ROUNDING
        });
        move |q| (0..3).all(|i| within[i].contains(&q[i]))
    }

    /// The voxels that a [`SimilarityMeasures`](super::SimilarityMeasures) compares.
    pub fn compared(&self) -> Compared {
        let [near, far] = [0.0, Compared::REACH].map(|margin| self.holds(margin));
        let (mut inside, mut windows) = (Vec::new(), Vec::new());
        let both = (0..self.count()).into_par_iter().map(|offset| {
            let position = self.position(offset);
            let is_inside = near(position);
            (is_inside, is_inside && far(position))
        });
        both.unzip_into_vecs(&mut inside, &mut windows);
        Compared { inside, windows }
    }

    /// Adds to values that were read with 0 outside what a `background` there would have added.
    pub fn fill(&self, values: &mut [f32], background: f32) {
        values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
            for (i, value) in values.iter_mut().enumerate() {
                let q = self.position(chunk * CHUNK + i);
                // How much of the trilinear weights lies inside.
                let weight =
                    |i: usize| (q[i] + 1.0).min(self.moving[i] as f64 - q[i]).clamp(0.0, 1.0);
                let inside = weight(0) * weight(1) * weight(2);
                if inside < 1.0 {
                    *value += (1.0 - inside) as f32 * background;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(size: [usize; 3]) -> Geometry {
        Geometry::new(size, [1.0; 3]).expect("positive")
    }

    #[test]
    fn voxels_beyond_the_moving_image_are_not_inside_and_get_the_background() {
        let (fixed, moving) = (grid([6, 4, 3]), grid([4, 4, 3]));
        let shift = Affine::from_parts(
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            [-0.5, 0.0, 0.0],
        );
        let coverage = Coverage::new([&fixed, &moving], &shift, None);
        let inside = coverage.inside(0.0);
        // x comes from x - 0.5: voxels 1 to 3 lie between 0 and 3.
        for (offset, inside) in inside.iter().enumerate() {
            assert_eq!(*inside, (1..4).contains(&(offset % 6)), "{offset}");
        }
        let mut values = vec![0.0f32; 72];
        coverage.fill(&mut values, -1000.0);
        for (offset, value) in values.into_iter().enumerate() {
            let expected = [-500.0, 0.0, 0.0, 0.0, -500.0, -1000.0][offset % 6];
            assert_eq!(value, expected, "{offset}");
        }
        let compared = coverage.compared();
        let windows = coverage.inside(Compared::REACH);
        assert!(compared == Compared { inside, windows });
        let margin = coverage.inside(1.0);
        assert!(
            (0..72)
                .all(|i| margin[i] == (i % 6 == 2 && (1..3).contains(&(i / 6 % 4)) && i / 24 == 1))
        );
    }

    #[test]
    fn planes_are_covered_as_in_the_whole() {
        let (fixed, moving) = (grid([6, 4, 5]), grid([5, 4, 4]));
        let u: Vec<f32> = (0..360).map(|i| (i as f32 * 0.7).sin()).collect();
        let affine = Affine::from_parts(
            [[1.0, 0.1, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            [-0.5, 0.2, 0.3],
        );
        let whole = Coverage::new([&fixed, &moving], &affine, Some(&u)).inside(0.0);
        for planes in [0..1, 1..4, 4..5] {
            let part = |c: usize| &u[c * 120 + planes.start * 24..c * 120 + planes.end * 24];
            let own = [part(0), part(1), part(2)].concat();
            let coverage = Coverage::new([&fixed, &moving], &affine, Some(&own));
            let inside = coverage.of_planes(planes.clone()).inside(0.0);
            assert_eq!(inside, whole[planes.start * 24..planes.end * 24], "{planes:?}");
        }
        assert!(whole.iter().any(|inside| *inside) && whole.iter().any(|inside| !inside));
    }

    #[test]
    fn a_displacement_comes_before_the_affine_map_and_planes_lie_on_each_other() {
        let plane = grid([5, 5, 1]);
        let mut lifted = plane.clone();
        lifted.origin_mm[2] = 40.0;
        let mut u = vec![0.0f32; 75];
        u[..25].fill(2.0);
        let inside = Coverage::new([&plane, &lifted], &Affine::identity(), Some(&u)).inside(0.0);
        assert!(inside.iter().enumerate().all(|(i, inside)| *inside == (i % 5 < 3)));
    }
}
