//! What can go wrong outside the caller's control, and how to mend it.
#[derive(Debug, thiserror::Error)]
pub enum Error {}
pub type Result<T, E = Error> = std::result::Result<T, E>;
