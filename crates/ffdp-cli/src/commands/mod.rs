//! The commands, one file each; `input.rs` and `chain.rs` read what they are given.

pub mod apply;
mod chain;
pub mod compose;
pub mod info;
mod input;
pub mod invert;
pub mod register;
