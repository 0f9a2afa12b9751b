//! The commands, one file each; `input.rs`, `cohort_images.rs` and `chain.rs` read what they are given; `folder.rs`
//! and `print.rs` are flags that several have.

pub mod apply;
pub mod bench;
mod chain;
mod cohort_images;
pub mod completions;
pub mod compose;
pub mod convert;
mod folder;
pub mod fuse;
mod group;
pub mod import;
pub mod info;
pub mod input;
pub mod invert;
pub mod man;
pub mod measure;
pub mod plan;
pub mod predict;
mod print;
pub mod register;
pub mod shape;
pub mod synth;
pub mod template;
pub mod train;
