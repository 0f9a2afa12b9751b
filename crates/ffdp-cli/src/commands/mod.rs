//! The commands, one file each; `input.rs` reads what they are given.

pub mod apply;
pub mod completions;
pub mod info;
mod input;
pub mod man;
pub mod measure;
pub mod plan;
pub mod register;
pub mod synth;
