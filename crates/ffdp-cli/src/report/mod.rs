//! What is said about a registration: measures as numbers, slices as a picture.

mod letters;
pub mod measures;
pub mod picture;
mod summary;

pub use summary::summary;
