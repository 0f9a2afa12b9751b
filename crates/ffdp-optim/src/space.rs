//! What an optimiser needs of the vectors that it works with.

use std::convert::Infallible;

/// Vectors that can be added and compared.
pub trait Space: Clone {
    /// Why inner products cannot be read: what their device or process reports.
    type Error;

    /// The inner products of all pairs. They are asked for together so that a device is waited for once.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn dots(pairs: &[[&Self; 2]]) -> Result<Vec<f64>, Self::Error>;

    /// `sum_i a_i x_i` of at least one term.
    fn combine(terms: &[(f64, &Self)]) -> Self;

    /// `a x`.
    fn scaled(&self, a: f64) -> Self {
        Self::combine(&[(a, self)])
    }
}

impl<const N: usize> Space for [f64; N] {
    type Error = Infallible;

    fn dots(pairs: &[[&Self; 2]]) -> Result<Vec<f64>, Infallible> {
        Ok(pairs.iter().map(|[a, b]| a.iter().zip(*b).map(|(a, b)| a * b).sum()).collect())
    }

    fn combine(terms: &[(f64, &Self)]) -> Self {
        std::array::from_fn(|i| terms.iter().map(|(a, x)| a * x[i]).sum())
    }
}

impl Space for Vec<f64> {
    type Error = Infallible;

    fn dots(pairs: &[[&Self; 2]]) -> Result<Vec<f64>, Infallible> {
        Ok(pairs.iter().map(|[a, b]| a.iter().zip(*b).map(|(a, b)| a * b).sum()).collect())
    }

    fn combine(terms: &[(f64, &Self)]) -> Self {
        (0..terms[0].1.len()).map(|i| terms.iter().map(|(a, x)| a * x[i]).sum()).collect()
    }
}
