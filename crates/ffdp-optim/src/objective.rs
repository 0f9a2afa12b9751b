//! What is minimised.

use ffdp_image::Result;

use crate::space::Space;

/// The loss at a point, with its gradient.
#[derive(Clone, Debug)]
pub struct Point<V> {
    /// What is minimised; infinite where the point means nothing.
    pub loss: f64,
    /// Its gradient.
    pub gradient: V,
}

/// What is minimised.
pub trait Objective<V: Space> {
    /// The loss and the gradient at a point.
    ///
    /// # Errors
    /// Where they cannot be computed or read. A point where the loss is not defined is no error: it is infinite there.
    fn evaluate(&mut self, at: &V) -> Result<Point<V>>;

    /// The same, and the slope of the loss along a direction there. Whoever computes on a device can read both at once.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    fn evaluate_along(&mut self, at: &V, direction: &V) -> Result<(Point<V>, f64)> {
        let there = self.evaluate(at)?;
        let slope = V::dots(&[[&there.gradient, direction]])?[0];
        Ok((there, slope))
    }

    /// How long a step is, in the unit of [`Steps`](crate::Steps). Euclid's norm unless said otherwise.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn length(&mut self, step: &V) -> Result<f64> {
        Ok(V::dots(&[[step, step]])?[0].sqrt())
    }
}

/// A function as an objective.
pub fn objective<V: Space>(evaluate: impl FnMut(&V) -> Result<Point<V>>) -> impl Objective<V> {
    struct Function<F>(F);
    impl<V: Space, F: FnMut(&V) -> Result<Point<V>>> Objective<V> for Function<F> {
        fn evaluate(&mut self, at: &V) -> Result<Point<V>> {
            (self.0)(at)
        }
    }
    Function(evaluate)
}
