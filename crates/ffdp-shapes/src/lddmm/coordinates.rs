//! Coordinates of momenta in which the energy is a sum of squares: `p = L^-T z`, `L L^T = K`, `H = |z|^2 / 2`.
//!
//! The kernel's matrix `K` of control points nearer than its width is close to singular: the cost of momenta is flat in
//! most directions. In `z` L-BFGS needs a fraction of the iterations.

use burn::tensor::Tensor;
use ffdp_image::Result;

use super::hamiltonian::Hamiltonian;
use crate::shape::Position;
use crate::tensors::{to_points, to_tensor};

/// Added to the diagonal of `K`, in parts of it: far above the rounding of the kernel in f32.
const RIDGE: f64 = 1e-3;

/// The factor is dense: of more points, momenta are searched as they are.
const LARGEST: usize = 1000;

/// The lower factor `L` of the kernel's matrix, row by row.
pub(super) struct Coordinates {
    count: usize,
    lower: Vec<f64>,
}

impl Coordinates {
    /// Those of momenta at points `[N, 3]`; none for too many points, and for a matrix that is not positive.
    ///
    /// # Errors
    /// A device that cannot be read.
    pub fn new(hamiltonian: &Hamiltonian, q: &Tensor<2>) -> Result<Option<Self>> {
        let count = q.dims()[0];
        if count > LARGEST {
            return Ok(None);
        }
        let mut matrix = hamiltonian.matrix(q)?;
        let ridge = 1.0 + RIDGE;
        (0..count).for_each(|i| matrix[i * count + i] *= ridge);
        Ok(cholesky(matrix, count).map(|lower| Self { count, lower }))
    }

    /// `L^-T z`, of every block of rows.
    pub fn momenta(&self, z: Tensor<2>) -> Result<Tensor<2>> {
        self.of_blocks(z, |block| {
            for i in (0..self.count).rev() {
                block[i] = block[i].map(|v| v / self.at(i, i));
                let known = block[i];
                for (k, row) in block[..i].iter_mut().enumerate() {
                    subtract(row, self.at(i, k), known);
                }
            }
        })
    }

    /// `L^-1 g`: a gradient to momenta becomes one to coordinates.
    pub fn gradient(&self, g: Tensor<2>) -> Result<Tensor<2>> {
        self.of_blocks(g, |block| {
            for i in 0..self.count {
                let (known, rest) = block.split_at_mut(i);
                for (k, row) in known.iter().enumerate() {
                    subtract(&mut rest[0], self.at(i, k), *row);
                }
                rest[0] = rest[0].map(|v| v / self.at(i, i));
            }
        })
    }

    /// `L^T p`.
    pub fn of(&self, p: Tensor<2>) -> Result<Tensor<2>> {
        self.of_blocks(p, |block| {
            for k in 0..self.count {
                let mut sum = [0.0; 3];
                for (i, row) in block.iter().enumerate().skip(k) {
                    subtract(&mut sum, -self.at(i, k), *row);
                }
                block[k] = sum;
            }
        })
    }

    fn at(&self, i: usize, k: usize) -> f64 {
        self.lower[i * self.count + k]
    }

    fn of_blocks(&self, rows: Tensor<2>, map: impl Fn(&mut [Position])) -> Result<Tensor<2>> {
        let (device, dtype) = (rows.device(), rows.dtype());
        let mut values = to_points(rows)?;
        values.chunks_mut(self.count).for_each(map);
        Ok(to_tensor(&values, (&device, dtype)))
    }
}

fn subtract(row: &mut Position, factor: f64, other: Position) {
    row.iter_mut().zip(other).for_each(|(v, o)| *v -= factor * o);
}

/// `L` of a symmetric matrix; none if it is not positive.
fn cholesky(mut a: Vec<f64>, count: usize) -> Option<Vec<f64>> {
    for i in 0..count {
        for k in 0..=i {
            let (row, other) = (&a[i * count..i * count + k], &a[k * count..k * count + k]);
            let rest = a[i * count + k] - row.iter().zip(other).map(|(x, y)| x * y).sum::<f64>();
            a[i * count + k] = match i == k {
                true if rest > 0.0 => rest.sqrt(),
                true => return None,
                false => rest / a[k * count + k],
            };
        }
    }
    Some(a)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use ffdp_kit::testing::{normal, tensor, to_f64};

    use super::super::hamiltonian::Metric;
    use super::*;
    use crate::kernel::Kernel;
    use crate::tensors::number;

    /// Sums of 30 terms in f64.
    const TOLERANCE: f64 = 1e-10;

    #[test]
    fn coordinates_measure_the_energy_and_carry_gradients() {
        let rows = |seed| tensor::<2>(&normal(60, seed), [20, 3], &Device::flex(), DType::F64);
        let (q, p, g) = (rows(1), rows(2), rows(3));
        for metric in [Metric::Classical, Metric::Normalised] {
            let h = Hamiltonian { kernel: Kernel::gaussians(&[1.0, 0.5]), metric };
            let coordinates = Coordinates::new(&h, &q).unwrap().expect("few points");
            let z = coordinates.of(p.clone()).unwrap();
            let back = to_f64(coordinates.momenta(z.clone()).unwrap() - p.clone());
            assert!(back.iter().all(|v| v.abs() < TOLERANCE), "{metric:?}: {back:?}");
            let square = number(z.clone().square().sum() * 0.5).unwrap();
            let energy = number(h.energy(&q, &p)).unwrap();
            // The diagonal counts 1 + RIDGE.
            assert!(
                square > energy && square < energy * (1.0 + 100.0 * RIDGE),
                "{square} {energy}"
            );
            // <g, p> = <L^-1 g, L^T p>.
            let dot = |a: Tensor<2>, b: Tensor<2>| number((a * b).sum()).unwrap();
            let [in_p, in_z] =
                [dot(g.clone(), p.clone()), dot(coordinates.gradient(g.clone()).unwrap(), z)];
            assert!((in_p - in_z).abs() < TOLERANCE * in_p.abs().max(1.0), "{in_p} {in_z}");
        }
    }

    #[test]
    fn too_many_points_have_none() {
        let q = tensor::<2>(
            &vec![0.0; 3 * (LARGEST + 1)],
            [LARGEST + 1, 3],
            &Device::flex(),
            DType::F64,
        );
        let h = Hamiltonian { kernel: Kernel::gaussian(1.0), metric: Metric::Classical };
        assert!(Coordinates::new(&h, &q).unwrap().is_none());
    }
}
