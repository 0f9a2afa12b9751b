//! What `transmorph_step` measures.

mod layers;
mod timing;
mod training;

pub use layers::networks;
pub use training::{CASES, Problem, print_header};
