//! What `transmorph_step` measures.

mod check;
mod layers;
mod timing;
mod training;

pub use check::check;
pub use layers::networks;
pub use training::{CASES, Problem, print_header};
