//! The commands, one file each; `input.rs`, `cohort_images.rs` and `chain.rs` read what they are given.

pub mod apply;
pub mod bench;
mod chain;
mod cohort_images;
pub mod completions;
pub mod compose;
pub mod convert;
pub mod fuse;
mod group;
pub mod import;
pub mod info;
mod input;
pub mod invert;
pub mod man;
pub mod measure;
pub mod plan;
pub mod predict;
pub mod register;
pub mod shape;
pub mod synth;
pub mod template;
pub mod train;
