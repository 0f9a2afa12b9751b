//! What a network expects and means: the grid of its images, the convention of its displacements.

mod compat;
mod grid;

pub use compat::GridCompat;
pub use grid::InputGrid;
