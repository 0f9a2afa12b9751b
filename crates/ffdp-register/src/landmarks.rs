//! Corresponding points that drive a registration: a term of the loss of every stage that follows gradients.
//!
//! ```text
//! E(phi) = a / (2 sigma^2) sum_i |phi(p_i) - q_i|^2
//! ```
//! `a` a thousandth of what the similarity usually gains: so much for each point, whatever the images' size.

use std::sync::Arc;

use ffdp_image::image::{Affine, Geometry, Matrix3, Physical};
use ffdp_parallel::deform::Landmarks;

/// What a point weighs, as a part of what the similarity of the whole images gains: as if their likeness had a thousand
/// parts of its own. With the weight of one voxel three points at 1 mm, 6 mm off and against the images, came 1 mm closer.
const WEIGHT: f64 = 1e-3;

/// Points of the fixed and of the moving image that belong together, one to one, in RAS mm.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    points: Arc<[Vec<[f64; 3]>; 2]>,
    sigma_mm: f64,
}

impl Pairs {
    /// With the standard deviation of their distance.
    pub fn new(points: [Vec<[f64; 3]>; 2], sigma_mm: f64) -> Self {
        Self { points: Arc::new(points), sigma_mm }
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
            linear_mm: product(&affine.linear(), &to_mm.linear()),
            sigma_mm: self.sigma_mm,
            weight: WEIGHT * gain,
        }
    }

    /// The energy of an affine map alone, and its gradient to the rows of the map.
    pub fn energy(&self, affine: &Affine<Physical, Physical>, gain: f64) -> (f64, [[f64; 4]; 3]) {
        let precision = WEIGHT * gain / self.sigma_mm.powi(2);
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

/// `a b`.
fn product(a: &Matrix3, b: &Matrix3) -> Matrix3 {
    std::array::from_fn(|i| std::array::from_fn(|j| (0..3).map(|k| a[i][k] * b[k][j]).sum()))
}
