//! The mean of affine maps by their logarithms: that of a map and its inverse is the identity.
//!
//! ```text
//! mean = M_n          M_(k+1) = M_k exp(1/N sum_i log(M_k^-1 A_i))          M_0 = I
//! ```
//! (Arsigny, Commowick, Ayache, Pennec 2009.) `log` by square roots until the map is near the identity, `exp` by squaring.

use ffdp_image::error::{Error, Result};
use ffdp_image::image::{Affine, Physical};

type Map = Affine<Physical, Physical>;
/// The rows of a 4x4 matrix; the last one is that of a map or of a derivative.
type Matrix4 = [[f64; 4]; 4];

/// Steps of the iteration above: it converges quadratically.
const STEPS: usize = 6;

/// The mean of affine maps; that of the identity where there are none.
///
/// # Errors
/// [`Error::Invalid`] where a map turns by half a turn from the mean, or mirrors: such maps have no mean.
pub fn affine_mean(maps: &[Map]) -> Result<Map> {
    let mut mean = Map::identity();
    if maps.is_empty() {
        return Ok(mean);
    }
    for _ in 0..STEPS {
        let back = mean.inverse()?;
        let mut sum = [[0.0; 4]; 4];
        for map in maps {
            let relative = map.then(&back);
            let log = log(&matrix(&relative)).ok_or_else(|| {
                Error::invalid(
                    "affine maps must not mirror or turn by half a turn from their mean",
                    map.rows(),
                    "bring the images into one orientation first",
                )
            })?;
            sum = zip(&sum, &log, |a, b| a + b);
        }
        let step = exp(&sum.map(|row| row.map(|v| v / maps.len() as f64)));
        mean = affine(&step).then(&mean);
    }
    Ok(mean)
}

/// The map that is so many times an affine map: 0.5 its square root, -1 its inverse.
///
/// # Errors
/// As [`affine_mean`].
pub fn affine_power(map: &Map, power: f64) -> Result<Map> {
    if power == 1.0 {
        return Ok(*map);
    }
    let log = log(&matrix(map)).ok_or_else(|| {
        let what = "an affine map that mirrors or turns by half a turn has no power";
        Error::invalid(what, map.rows(), "use 1")
    })?;
    Ok(affine(&exp(&log.map(|row| row.map(|v| v * power)))))
}

fn matrix(map: &Map) -> Matrix4 {
    let [x, y, z] = *map.rows();
    [x, y, z, [0.0, 0.0, 0.0, 1.0]]
}

fn affine(matrix: &Matrix4) -> Map {
    Affine::from_rows([matrix[0], matrix[1], matrix[2]])
}

const IDENTITY: Matrix4 =
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]];

fn zip(a: &Matrix4, b: &Matrix4, of: impl Fn(f64, f64) -> f64) -> Matrix4 {
    std::array::from_fn(|i| std::array::from_fn(|j| of(a[i][j], b[i][j])))
}

fn product(a: &Matrix4, b: &Matrix4) -> Matrix4 {
    a.map(|row| std::array::from_fn(|j| (0..4).map(|k| row[k] * b[k][j]).sum()))
}

fn inverse(matrix: &Matrix4) -> Option<Matrix4> {
    affine(matrix).inverse().ok().map(|inverse| self::matrix(&inverse))
}

/// The largest entry of the linear part: translations are lengths, of any size.
fn largest(matrix: &Matrix4) -> f64 {
    matrix[..3].iter().flat_map(|row| &row[..3]).fold(0.0, |most, v| v.abs().max(most))
}

/// The principal logarithm; `None` of a matrix that has none.
fn log(matrix: &Matrix4) -> Option<Matrix4> {
    /// Square roots at most: more are those of a matrix without a logarithm.
    const ROOTS: usize = 40;
    const NEAR: f64 = 0.05;
    const TERMS: usize = 14;
    let (mut root, mut scale) = (*matrix, 1.0);
    for _ in 0..ROOTS {
        let rest = zip(&root, &IDENTITY, |a, b| a - b);
        if largest(&rest) < NEAR {
            // log(I + X) = X - X^2/2 + X^3/3 - ..
            let (mut power, mut log) = (rest, rest);
            for k in 2..TERMS {
                power = product(&power, &rest);
                let sign = if k % 2 == 0 { -1.0 } else { 1.0 };
                log = zip(&log, &power, |sum, p| sum + sign * p / k as f64);
            }
            return Some(log.map(|row| row.map(|v| v * scale)));
        }
        root = square_root(&root)?;
        scale *= 2.0;
    }
    None
}

/// The principal square root by the iteration of Denman and Beavers, `Y <- (Y + Z^-1)/2`, `Z <- (Z + Y^-1)/2`.
fn square_root(matrix: &Matrix4) -> Option<Matrix4> {
    const STEPS: usize = 60;
    let (mut y, mut z) = (*matrix, IDENTITY);
    for _ in 0..STEPS {
        let (of_y, of_z) = (inverse(&y)?, inverse(&z)?);
        let next = zip(&y, &of_z, |a, b| (a + b) / 2.0);
        let moved = largest(&zip(&next, &y, |a, b| a - b));
        (y, z) = (next, zip(&z, &of_y, |a, b| (a + b) / 2.0));
        if moved < 1e-15 * largest(&y) {
            break;
        }
    }
    let error = largest(&zip(&product(&y, &y), matrix, |a, b| a - b));
    (error < 1e-9 * largest(matrix)).then_some(y)
}

fn exp(matrix: &Matrix4) -> Matrix4 {
    const TERMS: usize = 18;
    let halvings = (largest(matrix).max(1e-300) / 0.25).log2().ceil().max(0.0) as i32;
    let small = matrix.map(|row| row.map(|v| v / f64::from(halvings).exp2()));
    let (mut term, mut exp) = (IDENTITY, IDENTITY);
    for k in 1..TERMS {
        term = product(&term, &small).map(|row| row.map(|v| v / k as f64));
        exp = zip(&exp, &term, |sum, term| sum + term);
    }
    (0..halvings).fold(exp, |exp, _| product(&exp, &exp))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About z, in degrees, with a stretch and a translation.
    fn turned(degrees: f64, stretch: f64, translation: [f64; 3]) -> Map {
        let (sin, cos) = degrees.to_radians().sin_cos();
        let linear = [
            [stretch * cos, -stretch * sin, 0.0],
            [stretch * sin, stretch * cos, 0.0],
            [0.0, 0.0, 1.0],
        ];
        Affine::from_parts(linear, translation)
    }

    fn difference(a: &Map, b: &Map) -> f64 {
        let pairs = a.rows().iter().flatten().zip(b.rows().iter().flatten());
        pairs.fold(0.0, |most, (a, b)| (a - b).abs().max(most))
    }

    #[test]
    fn the_exponential_undoes_the_logarithm() {
        for map in [
            turned(0.0, 1.0, [5.0, -70.0, 2.0]),
            turned(30.0, 1.3, [100.0, 3.0, -40.0]),
            turned(-150.0, 0.4, [1.0, 2.0, 3.0]),
        ] {
            let again = affine(&exp(&log(&matrix(&map)).expect("it has one")));
            assert!(difference(&map, &again) < 1e-9, "{map:?} {again:?}");
        }
    }

    #[test]
    fn the_mean_of_a_map_and_its_inverse_is_the_identity_and_order_hardly_matters() {
        let map = turned(40.0, 1.2, [30.0, -8.0, 4.0]);
        let mean = affine_mean(&[map, map.inverse().expect("regular")]).expect("it has one");
        assert!(difference(&mean, &Affine::identity()) < 1e-10, "{mean:?}");
        let middle = affine_mean(&[turned(10.0, 1.0, [0.0; 3]), turned(50.0, 1.44, [0.0; 3])]);
        let middle = middle.expect("it has one");
        assert!(difference(&middle, &turned(30.0, 1.2, [0.0; 3])) < 1e-10, "{middle:?}");
        let half = affine_power(&turned(50.0, 1.44, [0.0; 3]), 0.5).expect("it has one");
        assert!(difference(&half, &turned(25.0, 1.2, [0.0; 3])) < 1e-10, "{half:?}");
    }

    #[test]
    fn maps_without_a_mean_are_refused() {
        let mirrored =
            Affine::from_parts([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0.0; 3]);
        let refused = affine_mean(&[Affine::identity(), mirrored]).expect_err("a mirror");
        assert!(refused.to_string().contains("mirror"), "{refused}");
        affine_mean(&[turned(180.0, 1.0, [0.0; 3])]).expect_err("half a turn");
    }
}
