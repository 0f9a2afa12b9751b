//! Conjugate gradients with a preconditioner (Nocedal and Wright, algorithm 5.3), for the step of Newton's method.
//!
//! ```text
//! r = b - H x,  z = M r,  p = z
//! a = r^T z / p^T H p,  x += a p,  r -= a H p,  z = M r,  p = z + (r^T z)' / (r^T z) p
//! ```
//! `H` the operator, `M` about its inverse; both symmetric, `M` positive definite.

use crate::space::Space;

/// What [`pcg`] has come to.
#[derive(Clone, Debug)]
pub struct Solution<V> {
    /// `x`.
    pub at: V,
    /// `|r| / |b|` before each iteration, and after the last.
    pub residuals: Vec<f64>,
    /// Whether the operator curves downwards along a direction, where the search ends: `x` is what was reached, or
    /// `M b` if nothing was.
    pub is_indefinite: bool,
}

/// Solves `H x = b` from rest, until `|r| <= tolerance |b|` or `iterations` are done. `b` is not zero.
///
/// # Errors
/// Those of the operators.
pub fn pcg<V: Space>(
    operator: &mut dyn FnMut(&V) -> Result<V, V::Error>,
    preconditioner: &mut dyn FnMut(&V) -> Result<V, V::Error>,
    b: &V,
    tolerance: f64,
    iterations: usize,
) -> Result<Solution<V>, V::Error> {
    let mut r = b.clone();
    let mut z = preconditioner(&r)?;
    let mut p = z.clone();
    let mut x: Option<V> = None;
    let [mut rz, size] = two(V::dots(&[[&r, &z], [b, b]])?);
    let mut residuals = vec![1.0];
    let mut is_indefinite = false;
    for left in (0..iterations).rev() {
        if residuals[residuals.len() - 1] <= tolerance {
            break;
        }
        let hp = operator(&p)?;
        let curvature = V::dots(&[[&p, &hp]])?[0];
        if curvature.is_nan() || curvature <= 0.0 {
            is_indefinite = true;
            break;
        }
        let a = rz / curvature;
        x = Some(match &x {
            Some(x) => V::combine(&[(1.0, x), (a, &p)]),
            None => p.scaled(a),
        });
        r = V::combine(&[(1.0, &r), (-a, &hp)]);
        drop(hp);
        let residual = (V::dots(&[[&r, &r]])?[0] / size).sqrt();
        residuals.push(residual);
        // A preconditioner may cost as much as all the rest: none for a direction that is not gone.
        if residual <= tolerance || left == 0 {
            break;
        }
        z = preconditioner(&r)?;
        let next = V::dots(&[[&r, &z]])?[0];
        p = V::combine(&[(1.0, &z), (next / rz, &p)]);
        rz = next;
    }
    let at = match x {
        Some(x) => x,
        None => preconditioner(b)?,
    };
    Ok(Solution { at, residuals, is_indefinite })
}

fn two(numbers: Vec<f64>) -> [f64; 2] {
    [numbers[0], numbers[1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second differences of a string held at both ends, with a stiffness at each place.
    fn operator(x: &[f64]) -> Vec<f64> {
        let at = |i: usize| x.get(i).copied().unwrap_or(0.0);
        let of = |i: usize| {
            let below = if i == 0 { 0.0 } else { at(i - 1) };
            2.0 * at(i) - below - at(i + 1) + (i * i) as f64 * at(i)
        };
        (0..x.len()).map(of).collect()
    }

    fn solve(preconditioned: bool) -> Solution<Vec<f64>> {
        let b: Vec<f64> = (0..40).map(|i| ((i * 7) % 11) as f64 - 5.0).collect();
        let mut precondition = |r: &Vec<f64>| {
            let over = |(i, r): (usize, &f64)| r / (2.0 + (i * i) as f64);
            Ok(if preconditioned { r.iter().enumerate().map(over).collect() } else { r.clone() })
        };
        pcg(&mut |x: &Vec<f64>| Ok(operator(x)), &mut precondition, &b, 1e-10, 200).unwrap()
    }

    #[test]
    fn a_system_is_solved_sooner_with_a_preconditioner() {
        let [plain, helped] = [false, true].map(solve);
        let off = plain.at.iter().zip(&helped.at).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-8, "{off}");
        let left: Vec<f64> = operator(&helped.at);
        assert!((left[3] - (((3 * 7) % 11) as f64 - 5.0)).abs() < 1e-8);
        // Of condition about 1500, and about 3.
        assert!(
            helped.residuals.len() < 20 && plain.residuals.len() > 30,
            "{}",
            plain.residuals.len()
        );
        assert!(!plain.is_indefinite && *helped.residuals.last().unwrap() <= 1e-10);
    }

    #[test]
    fn a_hill_ends_the_search_with_a_way_down() {
        let mut hill = |x: &[f64; 2]| Ok([x[0], -x[1]]);
        let found = pcg(&mut hill, &mut |r| Ok(*r), &[0.0, 2.0], 1e-3, 10).unwrap();
        assert!(found.is_indefinite);
        assert_eq!((found.at, found.residuals), ([0.0, 2.0], vec![1.0]));
    }
}
