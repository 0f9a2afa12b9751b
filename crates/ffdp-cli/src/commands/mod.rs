//! The commands, one file each; `input.rs` reads what they are given.

pub mod apply;
pub mod info;
mod input;
pub mod register;
pub mod synth;
