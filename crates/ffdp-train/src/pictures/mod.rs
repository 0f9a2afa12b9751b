//! Pictures as PNG files: slices before and after, the warped grid, and learning curves.
//!
//! `canvas.rs` is a raster with lines and text (Burn draws nothing, and chart libraries need fonts
//! that a server may lack), `scale.rs` the axis of a chart: those of every report. `slices.rs` and `curves.rs` draw
//! what a training shows.

mod canvas;
pub mod curves;
mod font;
mod plane;
mod scale;
pub mod slices;

pub use canvas::{Canvas, Rgb, data_url};
pub use scale::Scale;
