//! The same for many numbers: what the last few steps have shown, never a matrix (L-BFGS; Nocedal 1980).
//!
//! ```text
//! q = -g;   newest to oldest  a_i = p_i s_i^T q,  q -= a_i y_i;     q *= s^T y / y^T y  (of the newest)
//!           oldest to newest  q += (a_i - p_i y_i^T q) s_i          p_i = 1 / y_i^T s_i
//! ```
//! Every `q` is a sum of the kept vectors and `g`, so that the recursion runs on its factors: all it needs are the
//! inner products of those vectors, read at once (Chen, Wang and Zhou 2014), and one sum in the end.

use std::collections::VecDeque;

use crate::bfgs::shows_a_valley;
use crate::minimizer::{Direction, Proposal};
use crate::space::Space;

/// What the last steps have shown.
#[derive(Clone, Debug)]
pub struct Lbfgs<V> {
    history: usize,
    /// Steps `s` and what they changed of the gradient `y`, oldest first.
    pairs: VecDeque<[V; 2]>,
    /// Inner products of `s_0, y_0, s_1, ..` with each other: the lower triangle, row by row.
    products: Vec<Vec<f64>>,
}

impl<V: Space> Lbfgs<V> {
    /// Keeps the last `history` steps, 5 to 10 usually.
    ///
    /// # Panics
    /// For none.
    pub fn new(history: usize) -> Self {
        assert!(history > 0, "L-BFGS keeps at least one step");
        Self { history, pairs: VecDeque::new(), products: Vec::new() }
    }

    fn kept(&self) -> Vec<&V> {
        self.pairs.iter().flatten().collect()
    }

    /// `v_i^T v_j` of kept vectors.
    fn product(&self, i: usize, j: usize) -> f64 {
        self.products[i.max(j)][i.min(j)]
    }

    fn drop_pair(&mut self, index: usize) {
        self.pairs.remove(index);
        for vector in [2 * index + 1, 2 * index] {
            self.products.remove(vector);
            self.products[vector..].iter_mut().for_each(|row| {
                row.remove(vector);
            });
        }
    }
}

impl<V: Space> Direction<V> for Lbfgs<V> {
    /// One reading of inner products: those of the newest pair, and of the gradient.
    fn propose(&mut self, gradient: &V) -> Result<Option<Proposal<V>>, V::Error> {
        let kept = self.kept();
        let mut wanted = Vec::new();
        for (i, vector) in kept.iter().enumerate().skip(self.products.len()) {
            wanted.extend(kept[..=i].iter().map(|other| [*vector, *other]));
        }
        wanted.extend(kept.iter().chain([&gradient]).map(|other| [gradient, *other]));
        if kept.is_empty() {
            return Ok(None);
        }
        let mut found = V::dots(&wanted)?.into_iter();
        for i in self.products.len()..kept.len() {
            self.products.push(found.by_ref().take(i + 1).collect());
        }
        let mut of_gradient: Vec<f64> = found.collect();
        let newest = self.pairs.len() - 1;
        let [s, y] = [2 * newest, 2 * newest + 1];
        if !shows_a_valley(self.product(s, y), self.product(s, s), self.product(y, y)) {
            self.drop_pair(newest);
            of_gradient.drain(s..=y);
        }
        let count = self.pairs.len();
        if count == 0 {
            return Ok(None);
        }
        // Factors of the kept vectors and, last, of the gradient.
        let mut q = vec![0.0; 2 * count + 1];
        q[2 * count] = -1.0;
        let with = |q: &[f64], i: usize| -> f64 {
            let kept: f64 = (0..2 * count).map(|j| q[j] * self.product(i, j)).sum();
            kept + q[2 * count] * of_gradient[i]
        };
        let mut first = vec![0.0; count];
        for k in (0..count).rev() {
            first[k] = with(&q, 2 * k) / self.product(2 * k, 2 * k + 1);
            q[2 * k + 1] -= first[k];
        }
        let [s, y] = [2 * (count - 1), 2 * count - 1];
        let scale = self.product(s, y) / self.product(y, y);
        q.iter_mut().for_each(|factor| *factor *= scale);
        for k in 0..count {
            q[2 * k] += first[k] - with(&q, 2 * k + 1) / self.product(2 * k, 2 * k + 1);
        }
        let slope = q.iter().zip(&of_gradient).map(|(factor, product)| factor * product).sum();
        let kept = self.kept();
        let terms: Vec<(f64, &V)> =
            q.iter().copied().zip(kept.iter().copied().chain([gradient])).collect();
        Ok(Some(Proposal { direction: V::combine(&terms), slope }))
    }

    fn learn(&mut self, step: &V, change: &V) -> Result<(), V::Error> {
        if self.pairs.len() == self.history {
            self.drop_pair(0);
        }
        self.pairs.push_back([step.clone(), change.clone()]);
        Ok(())
    }

    fn forget(&mut self) -> bool {
        self.products.clear();
        !std::mem::take(&mut self.pairs).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bfgs;

    /// `Q` of a quadratic of four numbers, positive definite.
    const Q: [[f64; 4]; 4] =
        [[5.0, 1.0, 0.0, 0.5], [1.0, 4.0, 1.0, 0.0], [0.0, 1.0, 3.0, 0.2], [0.5, 0.0, 0.2, 2.0]];

    fn times(x: [f64; 4]) -> [f64; 4] {
        Q.map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum())
    }

    #[test]
    fn one_step_teaches_what_bfgs_learns() {
        let step = [1.0, -2.0, 0.5, 3.0];
        let gradient = [0.3, 0.1, -0.7, 0.2];
        let (mut few, mut many) = (Bfgs::default(), Lbfgs::new(3));
        few.learn(&step, &times(step)).unwrap();
        many.learn(&step, &times(step)).unwrap();
        let [few, many] =
            [few.propose(&gradient), many.propose(&gradient)].map(|p| p.unwrap().unwrap());
        for i in 0..4 {
            assert!((few.direction[i] - many.direction[i]).abs() < 1e-14, "{few:?} {many:?}");
        }
        assert!((few.slope - many.slope).abs() < 1e-14);
    }

    #[test]
    fn the_secant_of_the_newest_step_holds() {
        // H y = s, whatever came before; and old steps go.
        let mut lbfgs = Lbfgs::new(2);
        let steps = [
            [1.0, 0.0, 2.0, 0.0],
            [0.0, 1.0, 0.0, -1.0],
            [1.0, 1.0, 1.0, 0.3],
            [0.2, -1.0, 0.0, 1.0],
        ];
        for step in steps {
            lbfgs.learn(&step, &times(step)).unwrap();
            let found = lbfgs.propose(&times(step)).unwrap().unwrap();
            let off = (0..4).map(|i| (found.direction[i] + step[i]).abs()).fold(0.0, f64::max);
            assert!(off < 1e-13, "{found:?} {step:?}");
        }
        assert_eq!(lbfgs.pairs.len(), 2);
        assert_eq!(lbfgs.products.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_step_over_a_hill_is_dropped() {
        let mut lbfgs = Lbfgs::new(2);
        lbfgs.learn(&[1.0, 0.0], &[2.0, 0.0]).unwrap();
        lbfgs.learn(&[0.0, 1.0], &[0.0, -1.0]).unwrap();
        let found = lbfgs.propose(&[1.0, 1.0]).unwrap().unwrap();
        assert_eq!((found.direction, lbfgs.pairs.len()), ([-0.5, -0.5], 1));
        assert!(lbfgs.forget() && !lbfgs.forget());
        assert!(lbfgs.propose(&[1.0, 1.0]).unwrap().is_none());
    }
}
