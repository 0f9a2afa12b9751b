//! NIfTI-1 and NIfTI-2: headers to bytes and back.
//!
//! Read `header.rs` first; `layout.rs` knows byte positions.

mod create;
mod header;
pub(super) mod layout;
mod orientation;

pub(super) use create::header_of;
#[cfg(test)]
pub(super) use create::new_header;
pub(super) use header::read;
