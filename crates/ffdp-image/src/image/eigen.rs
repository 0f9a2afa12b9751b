//! Eigenvalues of a symmetric matrix, by Jacobi's rotations (Golub and Van Loan, section 8.5).

/// `[row][column]`.
type Matrix = [[f64; 3]; 3];

/// Each sweep squares the error: four or five are enough in f64.
const SWEEPS: usize = 12;

/// Eigenvalues in descending order, and the unit eigenvectors as the columns of a matrix.
pub fn symmetric_eigen(matrix: &Matrix) -> ([f64; 3], Matrix) {
    let mut a = *matrix;
    let mut v = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    for _ in 0..SWEEPS {
        for (p, q) in [(0, 1), (0, 2), (1, 2)] {
            if a[p][q] != 0.0 {
                rotate(&mut a, &mut v, p, q);
            }
        }
    }
    let mut order = [0, 1, 2];
    order.sort_by(|&i, &j| a[j][j].total_cmp(&a[i][i]));
    (order.map(|i| a[i][i]), v.map(|row| order.map(|i| row[i])))
}

/// `a <- J^T a J` with `a[p][q] = 0` afterwards, and `v <- v J`.
fn rotate(a: &mut Matrix, v: &mut Matrix, p: usize, q: usize) {
    let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
    let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
    let c = 1.0 / t.hypot(1.0);
    let s = t * c;
    for row in a.iter_mut().chain(v) {
        (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
    }
    let (first, second) = (a[p], a[q]);
    a[p] = std::array::from_fn(|k| c * first[k] - s * second[k]);
    a[q] = std::array::from_fn(|k| s * first[k] + c * second[k]);
    (a[p][q], a[q][p]) = (0.0, 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_orthonormal_and_rebuild_the_matrix() {
        let cases: [Matrix; 4] = [
            [[4.0, 1.0, -2.0], [1.0, 3.0, 0.5], [-2.0, 0.5, 7.0]],
            [[2.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 3.0]],
            [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
            [[1.0, 1e-9, 0.0], [1e-9, 1.0, 0.0], [0.0, 0.0, 1.0]],
        ];
        for case in cases {
            let (values, v) = symmetric_eigen(&case);
            assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
            for i in 0..3 {
                for j in 0..3 {
                    let dot: f64 = (0..3).map(|k| v[k][i] * v[k][j]).sum();
                    let identity = f64::from(u8::from(i == j));
                    assert!((dot - identity).abs() < 1e-12, "{case:?}: {v:?}");
                    let rebuilt: f64 = (0..3).map(|k| values[k] * v[i][k] * v[j][k]).sum();
                    assert!((rebuilt - case[i][j]).abs() < 1e-12, "{case:?}: {rebuilt}");
                }
            }
        }
    }
}
