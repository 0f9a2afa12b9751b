//! What is minimised.

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
    /// Why a loss cannot be computed or read.
    type Error;

    /// The loss and the gradient at a point.
    ///
    /// # Errors
    /// Where they cannot be computed or read. A point where the loss is not defined is no error: it is infinite there.
    fn evaluate(&mut self, at: &V) -> Result<Point<V>, Self::Error>;

    /// An inner product that cannot be read, as an error of the loss.
    fn failed(&self, reason: V::Error) -> Self::Error;

    /// [`Self::evaluate`], and the slope of the loss along a direction there. Whoever computes on a device can read both at once.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    fn evaluate_along(&mut self, at: &V, direction: &V) -> Result<(Point<V>, f64), Self::Error> {
        let there = self.evaluate(at)?;
        let slope = V::dots(&[[&there.gradient, direction]]).map_err(|e| self.failed(e))?[0];
        Ok((there, slope))
    }

    /// How long a step is, in the unit of [`Steps`](crate::Steps). Euclid's norm unless said otherwise.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn length(&mut self, step: &V) -> Result<f64, Self::Error> {
        Ok(V::dots(&[[step, step]]).map_err(|e| self.failed(e))?[0].sqrt())
    }
}

/// A function as an objective, whose errors are those of its vectors.
pub fn objective<V: Space>(
    evaluate: impl FnMut(&V) -> Result<Point<V>, V::Error>,
) -> impl Objective<V, Error = V::Error> {
    struct Function<F>(F);
    impl<V: Space, F: FnMut(&V) -> Result<Point<V>, V::Error>> Objective<V> for Function<F> {
        type Error = V::Error;

        fn evaluate(&mut self, at: &V) -> Result<Point<V>, V::Error> {
            (self.0)(at)
        }

        fn failed(&self, reason: V::Error) -> V::Error {
            reason
        }
    }
    Function(evaluate)
}
