//! The motion of a head as six numbers.
//!
//! ```text
//! y = R (x - c) + c + t      R = Rx(a) Ry(b) Rz(g)
//! ```
//! from points `x` of the reference to points `y` of the volume, RAS mm. `(a, b, g)` in radians about the axes x (left to
//! right), y (back to front), z (feet to head), in the order of FSL's `mcflirt`; `t` in mm; `c` the middle of the
//! reference's grid.

use ffdp_image::error::Result;
use ffdp_image::image::{Affine, Matrix3, Physical};
use serde::Serialize;

/// Radius of the sphere on whose surface angles are lengths, in mm: about the distance from the cortex to the middle of
/// the head (Power et al. 2012, "Spurious but systematic correlations in functional connectivity MRI networks arise from
/// subject motion", NeuroImage 59).
pub const HEAD_RADIUS_MM: f64 = 50.0;

/// Rotations and translations of a rigid map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RigidMotion {
    /// About x, y and z, in radians.
    pub rotations_rad: [f64; 3],
    /// Along x, y and z, in mm.
    pub translations_mm: [f64; 3],
}

impl RigidMotion {
    /// That of a map about a centre; of a map that stretches, the rotation next to it.
    ///
    /// # Errors
    /// [`Error::Invalid`](ffdp_image::Error::Invalid) for a map that collapses space.
    pub fn of(map: &Affine<Physical, Physical>, centre_mm: [f64; 3]) -> Result<Self> {
        let r = nearest_rotation(map.linear())?;
        let moved = map.apply(centre_mm);
        Ok(Self {
            rotations_rad: [
                (-r[1][2]).atan2(r[2][2]),
                r[0][2].clamp(-1.0, 1.0).asin(),
                (-r[0][1]).atan2(r[0][0]),
            ],
            translations_mm: std::array::from_fn(|i| moved[i] - centre_mm[i]),
        })
    }

    /// The map.
    pub fn to_affine(&self, centre_mm: [f64; 3]) -> Affine<Physical, Physical> {
        let [(sa, ca), (sb, cb), (sg, cg)] = self.rotations_rad.map(f64::sin_cos);
        let rotation = [
            [cb * cg, -cb * sg, sb],
            [ca * sg + sa * sb * cg, ca * cg - sa * sb * sg, -sa * cb],
            [sa * sg - ca * sb * cg, sa * cg + ca * sb * sg, ca * cb],
        ];
        let turned = Affine::<Physical, Physical>::from_parts(rotation, [0.0; 3]).apply(centre_mm);
        let t = self.translations_mm;
        Affine::from_parts(rotation, std::array::from_fn(|i| centre_mm[i] + t[i] - turned[i]))
    }

    /// Framewise displacement since another volume, in mm (Power et al. 2012): the sum of the absolute differences of the
    /// six numbers, angles as arcs on a sphere of [`HEAD_RADIUS_MM`].
    pub fn framewise_displacement_mm(&self, before: &Self) -> f64 {
        let sum = |a: [f64; 3], b: [f64; 3]| (0..3).map(|i| (a[i] - b[i]).abs()).sum::<f64>();
        HEAD_RADIUS_MM * sum(self.rotations_rad, before.rotations_rad)
            + sum(self.translations_mm, before.translations_mm)
    }
}

/// The orthogonal factor of the polar decomposition, by Newton's iteration `R <- (R + R^-T) / 2`.
fn nearest_rotation(linear: Matrix3) -> Result<Matrix3> {
    /// It converges quadratically from any map that collapses nothing.
    const ITERATIONS: usize = 50;
    const SETTLED: f64 = 1e-14;
    let mut r = linear;
    for _ in 0..ITERATIONS {
        let inverse = Affine::<Physical, Physical>::from_parts(r, [0.0; 3]).inverse()?.linear();
        let next: Matrix3 =
            std::array::from_fn(|i| std::array::from_fn(|j| 0.5 * (r[i][j] + inverse[j][i])));
        let change = (0..9).map(|k| (next[k / 3][k % 3] - r[k / 3][k % 3]).abs());
        let change = change.fold(0.0, f64::max);
        r = next;
        if change < SETTLED {
            break;
        }
    }
    Ok(r)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CENTRE: [f64; 3] = [3.0, -20.0, 31.0];

    fn motion() -> RigidMotion {
        RigidMotion { rotations_rad: [0.2, -0.1, 0.05], translations_mm: [1.0, -2.0, 0.5] }
    }

    #[test]
    fn six_numbers_are_the_map_and_the_map_is_six_numbers() {
        let map = motion().to_affine(CENTRE);
        assert!((map.determinant() - 1.0).abs() < 1e-14);
        let back = RigidMotion::of(&map, CENTRE).expect("rigid");
        let pairs = back.rotations_rad.into_iter().chain(back.translations_mm);
        let expected = motion().rotations_rad.into_iter().chain(motion().translations_mm);
        pairs.zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{back:?}"));
        // The centre moves by the translation alone.
        let moved = map.apply(CENTRE);
        (0..3).for_each(|i| {
            assert!((moved[i] - CENTRE[i] - motion().translations_mm[i]).abs() < 1e-12);
        });
    }

    #[test]
    fn a_stretch_does_not_turn() {
        let stretch =
            Affine::from_parts([[1.1, 0.0, 0.0], [0.0, 0.9, 0.0], [0.0, 0.0, 1.0]], [0.0; 3]);
        let turned = stretch.then(&motion().to_affine([0.0; 3]));
        let found = RigidMotion::of(&turned, [0.0; 3]).expect("it can be inverted");
        let expected = motion().rotations_rad;
        (0..3).for_each(|i| assert!((found.rotations_rad[i] - expected[i]).abs() < 1e-12));
    }

    #[test]
    fn framewise_displacement_is_a_sum_of_arcs_and_lengths() {
        let found = motion().framewise_displacement_mm(&RigidMotion::default());
        assert!((found - (50.0 * 0.35 + 3.5)).abs() < 1e-12, "{found}");
        assert_eq!(motion().framewise_displacement_mm(&motion()), 0.0);
    }
}
