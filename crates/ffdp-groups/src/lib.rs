//! Groups of images: an unbiased template of a cohort (`template/`), one label map from several atlases (`fusion/`), and
//! the volumes of a series brought into one place (`series/`). All are lists of registrations of [`ffdp_register`].
//!
//! `images.rs` is where images come from: one is read while another is registered, and no more than a few are in memory.
//! `registrations.rs` registers those of a template and of a fusion, and keeps what is found of each.
//!
//! # Map of the crate
//! ```text
//! images            where images come from, read ahead
//! registrations     one registration an image, on any placement
//! store             what a run has reached, on disk
//! home              the device of what belongs to all images
//! template          mean shape and mean intensities of a cohort
//! fusion            labels of several atlases on one image
//! vote              the majority of labels
//! series            motion of a series, and its volumes in one space
//! ```
//! A source of images of your own implements [`Images`]. A further kind of group is a folder next to `template/`. A
//! further rule of fusion is a variant of [`FusionMethod`](fusion::FusionMethod) with a file of `fusion/`, as `joint.rs`.

mod home;
mod images;
mod registrations;
mod store;
mod vote;

pub mod fusion;
pub mod series;
pub mod template;

pub use images::{Images, Subject};
pub use registrations::ImageReport;
