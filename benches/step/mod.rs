//! What `transmorph_step` measures.

mod check;
mod layers;
mod share;
mod timing;
mod training;

pub use check::check;
pub use layers::networks;
pub use share::measure as measure_shared;
pub use training::{CASES, Problem, print_header};
