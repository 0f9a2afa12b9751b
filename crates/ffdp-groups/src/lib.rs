//! Groups of images: an unbiased template of a cohort (`template/`), one label map from several atlases (`fusion/`), and
//! the volumes of a series brought into one place (`series/`). All are lists of registrations of [`ffdp_register`].
//!
//! `images.rs` is where images come from: one is read while another is registered, and no more than a few are in memory.
//! `registrations.rs` registers those of a template and of a fusion, and keeps what is found of each.

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
