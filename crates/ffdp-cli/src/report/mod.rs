//! What is said about a registration: measures as numbers, a page with pictures.
//!
//! `measures.rs` is `metrics.json`; `html.rs` puts the page together from `sections.rs` (tables),
//! `pictures.rs` (slices as figures), `charts.rs` (curves). `slices.rs` samples the images.
//! `shapes.rs` is the page of a matching of shapes, whose pictures `surface.rs` draws. `scatter.rs` is the plot of a
//! comparison, `series.rs` the page of a series with its motion, `template.rs` that of a template.

mod charts;
mod colours;
mod html;
pub mod measures;
mod pictures;
pub mod scatter;
mod sections;
pub mod series;
pub mod shapes;
pub mod slices;
mod summary;
mod surface;
pub mod template;

pub use html::{STYLE, html, notes};
pub use summary::{summary, verdict};
