//! Rotations spread evenly over directions and angles, from which a search starts.
//!
//! Super-Fibonacci spirals (Alexa 2022, Super-Fibonacci Spirals: Fast, Low-Discrepancy Sampling of SO(3)): point `i` of
//! `n` is the unit quaternion
//! ```text
//! q_i = (r sin a, r cos a, R sin b, R cos b)
//! r = sqrt(t), R = sqrt(1 - t), t = (i + 1/2) / n        a = 2 pi (i + 1/2) / phi, b = 2 pi (i + 1/2) / psi
//! phi = sqrt 2, psi^4 = psi + 4
//! ```

/// `psi`, the positive root of `psi^4 = psi + 4`.
const PSI: f64 = 1.533_751_168_755_204_3;

/// A unit quaternion, its real part last.
type Quaternion = [f64; 4];

/// Point `i` of `n`.
fn spiral(i: usize, n: usize) -> Quaternion {
    let s = i as f64 + 0.5;
    let t = s / n as f64;
    let (r, big_r) = (t.sqrt(), (1.0 - t).sqrt());
    let (a, b) =
        (std::f64::consts::TAU * s / std::f64::consts::SQRT_2, std::f64::consts::TAU * s / PSI);
    [r * a.sin(), r * a.cos(), big_r * b.sin(), big_r * b.cos()]
}

/// `p q`.
fn product(p: Quaternion, q: Quaternion) -> Quaternion {
    let ([a, b, c, w], [e, f, g, v]) = (p, q);
    [
        w * e + a * v + b * g - c * f,
        w * f - a * g + b * v + c * e,
        w * g + a * f - b * e + c * v,
        w * v - a * e - b * f - c * g,
    ]
}

fn conjugate([a, b, c, w]: Quaternion) -> Quaternion {
    [-a, -b, -c, w]
}

/// The angle of a rotation, radians.
fn angle([a, b, c, w]: Quaternion) -> f64 {
    2.0 * (a * a + b * b + c * c).sqrt().atan2(w.abs())
}

fn matrix([x, y, z, w]: Quaternion) -> [[f64; 3]; 3] {
    [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)],
        [2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)],
        [2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)],
    ]
}

/// How many rotations fill all of SO(3), whose volume is `8 pi^2` radians^3, where each has a cube of this edge.
fn filling(spacing: f64) -> usize {
    (8.0 * std::f64::consts::PI.powi(2) / spacing.powi(3)).ceil() as usize
}

/// Rotations by at most `up_to_degrees`, spread evenly over axes and angles: the identity first, then by angle.
/// Consecutive neighbours are about `spacing_degrees` apart: as many rotations as cubes of that edge have room. Each
/// rotation within the bound is at most about 0.9 times the spacing from one of them, in the middle of the bound's ball;
/// 180 degrees are all rotations, 551 for 30 degrees and 4401 for 15.
///
/// The result is rotation matrices `R`, rows and columns (x, y, z), `R^T R = 1`, `det R = 1`.
///
/// # Panics
/// If the bound is not within 0..=180 degrees or the spacing not within 1..=180.
pub fn rotations(up_to_degrees: f64, spacing_degrees: f64) -> Vec<[[f64; 3]; 3]> {
    assert!(
        (0.0..=180.0).contains(&up_to_degrees),
        "rotations: the bound must be within 0..=180 degrees, got {up_to_degrees}"
    );
    assert!(
        (1.0..=180.0).contains(&spacing_degrees),
        "rotations: the spacing must be within 1..=180 degrees, got {spacing_degrees}"
    );
    let n = filling(spacing_degrees.to_radians());
    let nearest = (0..n).min_by(|i, j| angle(spiral(*i, n)).total_cmp(&angle(spiral(*j, n))));
    // Turned as a whole, the spread stays as even, and the identity is one of its points.
    let back = conjugate(spiral(nearest.expect("there is one at least"), n));
    // The bound itself counts.
    let most = up_to_degrees.to_radians() + 1e-9;
    let turned = (0..n).map(|i| product(back, spiral(i, n)));
    let mut within: Vec<Quaternion> = turned.filter(|q| angle(*q) <= most).collect();
    within.sort_by(|p, q| angle(*p).total_cmp(&angle(*q)));
    within.into_iter().map(matrix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ffdp_kit::testing::normal;

    /// The angle between two rotations, degrees.
    fn between(a: &[[f64; 3]; 3], b: &[[f64; 3]; 3]) -> f64 {
        let trace: f64 = (0..3).flat_map(|i| (0..3).map(move |j| a[i][j] * b[i][j])).sum();
        (0.5 * (trace - 1.0)).clamp(-1.0, 1.0).acos().to_degrees()
    }

    const IDENTITY: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

    /// Random rotations, uniform over SO(3).
    fn random(count: usize) -> Vec<[[f64; 3]; 3]> {
        let values = normal(4 * count, 1);
        let unit = |q: &[f64]| {
            let length = q.iter().map(|v| v * v).sum::<f64>().sqrt();
            std::array::from_fn(|i| q[i] / length)
        };
        values.chunks(4).map(|q| matrix(unit(q))).collect()
    }

    #[test]
    fn matrices_are_rotations_and_the_first_is_the_identity() {
        for (up_to, spacing) in [(180.0, 45.0), (60.0, 20.0), (10.0, 30.0), (0.0, 90.0)] {
            let all = rotations(up_to, spacing);
            assert!(between(&all[0], &IDENTITY) < 1e-5, "{up_to} {spacing}");
            let mut before = 0.0;
            for r in &all {
                for i in 0..3 {
                    for j in 0..3 {
                        let dot: f64 = (0..3).map(|k| r[k][i] * r[k][j]).sum();
                        let expected = if i == j { 1.0 } else { 0.0 };
                        assert!((dot - expected).abs() < 1e-12, "{up_to} {spacing}: {r:?}");
                    }
                }
                let minors = r[1][1] * r[2][2] - r[1][2] * r[2][1];
                let others = r[0][1] * (r[1][0] * r[2][2] - r[1][2] * r[2][0]);
                let last = r[0][2] * (r[1][0] * r[2][1] - r[1][1] * r[2][0]);
                assert!((r[0][0] * minors - others + last - 1.0).abs() < 1e-12);
                let angle = between(r, &IDENTITY);
                assert!(angle <= up_to + 1e-4 && angle >= before - 1e-4, "{up_to}: {angle}");
                before = angle;
            }
        }
        assert_eq!(rotations(10.0, 30.0).len(), 1);
    }

    #[test]
    fn every_rotation_has_one_nearby() {
        for spacing in [60.0, 30.0, 20.0] {
            let all = rotations(180.0, spacing);
            let nearest = |r: &[[f64; 3]; 3]| {
                all.iter().map(|other| between(r, other)).fold(f64::INFINITY, f64::min)
            };
            let distances: Vec<f64> = random(2000).iter().map(nearest).collect();
            let covering = distances.iter().copied().fold(0.0, f64::max);
            let mean = distances.iter().sum::<f64>() / 2000.0;
            println!("{} rotations: covering {covering:.1}, mean {mean:.1} degrees", all.len());
            // The centre of a cube is 0.87 edges from its corners, and on average 0.48 edges from the next of a lattice.
            assert!(covering < 0.95 * spacing && mean < 0.52 * spacing, "{covering} {mean}");
        }
    }

    /// None crowd, and a ball holds as many as its share of the volume.
    #[test]
    fn rotations_are_spread_evenly() {
        let spacing = 20.0;
        let all = rotations(180.0, spacing);
        let apart = |i: usize| {
            let others = all.iter().enumerate().filter(|(j, _)| *j != i);
            others.map(|(_, other)| between(&all[i], other)).fold(f64::INFINITY, f64::min)
        };
        let nearest: Vec<f64> = (0..all.len()).map(apart).collect();
        let least = nearest.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = nearest.iter().sum::<f64>() / nearest.len() as f64;
        println!("{} rotations: least {least:.1}, mean {mean:.1} degrees apart", all.len());
        assert!(least > 0.6 * spacing && mean > 0.75 * spacing, "{least} {mean}");
        for up_to in [60.0f64, 90.0, 120.0] {
            let found = rotations(up_to, spacing).len() as f64 / all.len() as f64;
            let angle = up_to.to_radians();
            let share = (angle - angle.sin()) / std::f64::consts::PI;
            assert!((found / share - 1.0).abs() < 0.15, "{up_to}: {found} of {share}");
        }
    }

    #[test]
    #[should_panic(expected = "rotations: the spacing must be within 1..=180 degrees, got 0")]
    fn a_spacing_of_zero_is_refused() {
        rotations(180.0, 0.0);
    }
}
