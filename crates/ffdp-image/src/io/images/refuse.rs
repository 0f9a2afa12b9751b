//! Files that are refused, with what is wrong and what can be done.

use std::path::Path;

use super::data_type::DataType;
use crate::error::{Error, Result};

/// An [`Error::Nifti`] on `path`.
pub(super) fn reject(path: &Path, what: &str, value: String, fix: &str) -> Error {
    Error::Nifti { path: path.to_path_buf(), what: what.to_string(), value, fix: fix.to_string() }
}

/// Demands that all voxels have addresses, also as floats of 32 bits.
pub(super) fn check_addressable(path: &Path, dims: &[usize], data_type: DataType) -> Result<()> {
    let bytes = dims.iter().try_fold(data_type.bytes().max(4), |n, &size| n.checked_mul(size));
    match bytes.filter(|&n| n <= isize::MAX as usize) {
        Some(_) => Ok(()),
        None => {
            let what = "the number of voxels must be addressable";
            Err(Error::file(path, what, format!("{dims:?}"), "repair the header"))
        }
    }
}
