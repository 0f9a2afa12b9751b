#![doc = include_str!("../README.md")]

pub use ffdp_burn::*;
