//! Pictures as PNG files: slices before and after, the warped grid, and learning curves.
//!
//! `canvas.rs` is a raster with lines and text (Burn draws nothing, and chart libraries need fonts
//! that a server may lack); `slices.rs` and `curves.rs` draw on it.

mod canvas;
pub mod curves;
mod font;
mod plane;
pub mod slices;
