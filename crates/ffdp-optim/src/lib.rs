//! Minimisation over any space: what a registration, a spline, a velocity or the momenta of shapes have in common.
//!
//! A [`Space`] gives inner products and sums of its vectors, an [`Objective`] the loss and its gradient. A
//! [`Minimizer`] goes downhill along directions that a [`Direction`] proposes ([`Bfgs`] for few numbers,
//! [`Lbfgs`] for many, [`Steepest`] descent), as far as a [`LineSearch`] says. [`pcg`] solves the linear systems of
//! Newton's method; [`GaussNewton`] goes along what it finds.
//! A space and an optimiser that never met work together; nothing here knows of images or devices. What can fail is the
//! caller's: [`Space::Error`] for inner products, [`Objective::Error`] for losses, never for numbers in memory.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use ffdp_optim::{Lbfgs, LineSearch, Minimizer, Point, Steps, objective};
//!
//! // Rosenbrock's valley.
//! let mut valley = objective(|&[x, y]: &[f64; 2]| {
//!     let [a, b] = [1.0 - x, y - x * x];
//!     let gradient = [-2.0 * a - 400.0 * x * b, 200.0 * b];
//!     Ok(Point { loss: a * a + 100.0 * b * b, gradient })
//! });
//! let steps = Steps { first: 0.1, longest: 1.0, shortest: 1e-9 };
//! let mut minimizer = Minimizer::new([-1.2, 1.0], Lbfgs::new(5), LineSearch::wolfe());
//! minimizer.iterate(&mut valley, &steps, 100)?;
//! assert!(minimizer.at().iter().all(|x| (x - 1.0).abs() < 1e-6));
//! # Ok::<(), Infallible>(())
//! ```
//! Source: Nocedal and Wright, Numerical Optimization, 2nd edition, chapters 3, 5, 6 and 7.
//!
//! # Map of the crate
//! ```text
//! space                     inner products and sums of vectors
//! objective                 the loss and its gradient
//! minimizer                 iterations along a direction
//! steepest > bfgs, lbfgs    directions: the gradient, quasi-Newton
//! search                    line searches
//! newton > pcg              Gauss-Newton-Krylov; conjugate gradients
//! ```
//! A direction of your own implements [`Direction`], vectors of your own [`Space`], a loss [`Objective`].

mod bfgs;
mod lbfgs;
mod minimizer;
mod newton;
mod objective;
mod pcg;
mod search;
mod space;
mod steepest;

pub use bfgs::Bfgs;
pub use lbfgs::Lbfgs;
pub use minimizer::{Direction, Minimizer, Proposal, Steps};
pub use newton::{Curved, GaussNewton, GaussNewtonOptions, GaussNewtonStep};
pub use objective::{Objective, Point, objective};
pub use pcg::{Solution, pcg};
pub use search::LineSearch;
pub use space::Space;
pub use steepest::Steepest;
