//! Files that are refused, with what is wrong and what can be done.

use std::path::Path;

use crate::error::Error;

/// An [`Error::Nifti`] on `path`.
pub(super) fn reject(path: &Path, what: &str, value: String, fix: &str) -> Error {
    Error::Nifti { path: path.to_path_buf(), what: what.to_string(), value, fix: fix.to_string() }
}

/// An [`Error::File`] on `path`.
pub(super) fn refuse(path: &Path, what: &str, value: impl ToString, fix: &str) -> Error {
    let (what, fix) = (what.to_string(), fix.to_string());
    Error::File { path: path.to_path_buf(), what, value: value.to_string(), fix }
}
