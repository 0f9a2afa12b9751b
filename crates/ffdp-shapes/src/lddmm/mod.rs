//! Geodesics of shapes: large deformations that are given by momenta of points (LDDMM).
//!
//! ```text
//! H(q, p) = 1/2 sum_ij k(q_i - q_j) p_i . p_j        dq/dt = dH/dp,  dp/dt = -dH/dq
//! v_t(x)  = sum_j k(x - q_j) p_j                     what the points do to all of space
//! cost(p_0) = H(q_0, p_0) / D^2 + fidelity A(shape at t = 1, target) / A(shape at t = 0, target)
//! ```
//! `D` the diameter of the target, so that both terms have no unit. Read `hamiltonian.rs`, then `path.rs` (shooting,
//! and what it carries), `matching.rs`, `start.rs` (a linear map first), `coordinates.rs` (what L-BFGS searches);
//! `atlas.rs` and `regression.rs` minimise sums of such costs.
//! Sources: Miller, Trouve and Younes 2006; Durrleman et al. 2014 (control points); Charlier, Feydy, Glaunes and Trouve
//! (normalised kernels).

mod atlas;
mod coordinates;
mod flow;
mod hamiltonian;
mod matching;
mod minimise;
mod path;
mod regression;
mod settings;
mod start;
#[cfg(test)]
mod tests;

pub use atlas::{Atlas, atlas};
pub use flow::{Direction, Flow, SavedFlow};
pub use hamiltonian::{Field, Hamiltonian, Metric};
pub use matching::{Match, match_shapes};
pub use minimise::{Iteration, Observer};
pub use path::{Path, Scheme};
pub use regression::{Regression, regression};
pub use settings::LddmmSettings;
pub use start::LinearStart;
