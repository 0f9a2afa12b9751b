//! The commands, one file each; `input.rs` and `chain.rs` read what they are given.

pub mod apply;
pub mod bench;
mod chain;
pub mod completions;
pub mod compose;
pub mod info;
mod input;
pub mod invert;
pub mod man;
pub mod measure;
pub mod plan;
pub mod register;
pub mod synth;
