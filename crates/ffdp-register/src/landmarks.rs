//! Corresponding points that drive a registration: a term of the loss of every stage but moments.
//!
//! ```text
//! E(phi) = a / (2 sigma^2) sum_i |phi(p_i) - q_i|^2
//! ```
//! `a` a thousandth of what the similarity usually gains: so much for each point, whatever the images' size.
//!
//! `sigma` may go from `s` on the coarsest level of all stages to `t` on the finest: `t (s / t)^x`, `x` from 1 to 0 with the
//! logarithm of the size of the level's voxels.

use std::sync::Arc;

use super::pyramid::finest_spacing_mm;
use ffdp_image::image::{Affine, Geometry, Physical, product3};
use ffdp_parallel::deform::Landmarks;

/// What a point weighs, as a part of what the similarity of the whole images gains: as if their likeness had a thousand
/// parts of its own. With the weight of one voxel three points at 1 mm, 6 mm off and against the images, came 1 mm closer.
const WEIGHT: f64 = 1e-3;

/// Points of the fixed and of the moving image that belong together, one to one, in RAS mm.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    points: Arc<[Vec<[f64; 3]>; 2]>,
    sigma: Sigma,
}

/// Standard deviations of the distance of landmarks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sigma {
    /// On the coarsest and on the finest level, mm.
    pub mm: [f64; 2],
    /// The finest spacing of these levels, mm.
    pub spacings_mm: [f64; 2],
}

impl Sigma {
    /// On the level of this grid.
    fn on(&self, fixed: &Geometry) -> f64 {
        let ([first, last], [coarsest, finest]) = (self.mm, self.spacings_mm);
        // Of levels of one size none is the first.
        if coarsest <= finest {
            return last;
        }
        let x = (finest_spacing_mm(fixed) / finest).ln() / (coarsest / finest).ln();
        last * (first / last).powf(x.clamp(0.0, 1.0))
    }
}

impl Pairs {
    /// With the standard deviation of their distance.
    pub fn new(points: [Vec<[f64; 3]>; 2], sigma: Sigma) -> Self {
        Self { points: Arc::new(points), sigma }
    }

    /// As the deformations of a level take them, where `affine` comes after the displacement and the similarity usually
    /// gains so much.
    pub fn on_level(
        &self,
        fixed: &Geometry,
        affine: &Affine<Physical, Physical>,
        gain: f64,
    ) -> Landmarks {
        let [points, targets] = &*self.points;
        let (to_voxel, to_mm) = (fixed.mm_to_voxel(), fixed.voxel_to_mm());
        let offset = |(p, q): (&[f64; 3], &[f64; 3])| {
            let there = affine.apply(*p);
            std::array::from_fn(|i| there[i] - q[i])
        };
        Landmarks {
            fixed_voxels: points.iter().map(|p| to_voxel.apply(*p)).collect(),
            offsets_mm: points.iter().zip(targets).map(offset).collect(),
            linear_mm: product3(&affine.linear(), &to_mm.linear()),
            sigma_mm: self.sigma.on(fixed),
            weight: WEIGHT * gain,
        }
    }

    /// The energy of an affine map alone, on a level with this grid, and its gradient to the rows of the map.
    pub fn energy(
        &self,
        fixed: &Geometry,
        affine: &Affine<Physical, Physical>,
        gain: f64,
    ) -> (f64, [[f64; 4]; 3]) {
        let precision = WEIGHT * gain / self.sigma.on(fixed).powi(2);
        let (mut energy, mut rows) = (0.0, [[0.0; 4]; 3]);
        let [points, targets] = &*self.points;
        for (p, q) in points.iter().zip(targets) {
            let there = affine.apply(*p);
            for (i, row) in rows.iter_mut().enumerate() {
                let off = there[i] - q[i];
                energy += 0.5 * precision * off * off;
                let at = [p[0], p[1], p[2], 1.0];
                row.iter_mut().zip(at).for_each(|(value, x)| *value += precision * off * x);
            }
        }
        (energy, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(spacing_mm: f64) -> Geometry {
        Geometry::new([16; 3], [spacing_mm; 3]).expect("positive")
    }

    #[test]
    fn sigma_goes_from_the_coarsest_to_the_finest_level() {
        /// Rounding of logarithms and powers.
        const ROUNDING: f64 = 1e-12;
        let of = |mm, spacings_mm| {
            Pairs::new([vec![[0.0; 3]], vec![[3.0, 0.0, 4.0]]], Sigma { mm, spacings_mm })
        };
        let identity = Affine::from_parts([[1., 0., 0.], [0., 1., 0.], [0., 0., 1.]], [0.0; 3]);
        let gain = 0.5;
        // Levels of 8 (moments), 4, 2, 1 and (planes) 0.5 mm.
        for (mm, expected) in [
            ([8.0, 2.0], [8.0, 8.0, 4.0, 2.0, 2.0]),
            ([1.0, 4.0], [1.0, 1.0, 2.0, 4.0, 4.0]),
            ([3.0, 3.0], [3.0; 5]),
        ] {
            let pairs = of(mm, [4.0, 1.0]);
            for (spacing, sigma) in [8.0, 4.0, 2.0, 1.0, 0.5].into_iter().zip(expected) {
                let level = grid(spacing);
                let on_level = pairs.on_level(&level, &identity, gain);
                assert!((on_level.sigma_mm - sigma).abs() < ROUNDING, "{mm:?} at {spacing}");
                // A point 5 mm off.
                let (energy, _) = pairs.energy(&level, &identity, gain);
                let right = WEIGHT * gain * 25.0 / (2.0 * sigma * sigma);
                assert!((energy - right).abs() < ROUNDING, "{mm:?} at {spacing}: {energy} {right}");
            }
        }
        // A single level has the last one.
        assert_eq!(of([8.0, 2.0], [4.0, 4.0]).on_level(&grid(4.0), &identity, gain).sigma_mm, 2.0);
    }
}
