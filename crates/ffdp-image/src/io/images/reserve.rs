//! Memory for voxels, asked for before it is allocated.

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::check_memory;

/// An empty vector with room for `voxels` values of four bytes.
pub(super) fn reserve<T>(path: &Path, voxels: usize) -> Result<Vec<T>> {
    let (what, bytes) = (path.display().to_string(), 4 * voxels as u64);
    check_memory(&what, bytes)?;
    let mut data = Vec::new();
    data.try_reserve_exact(voxels).map_err(|_| Error::TooLarge {
        what,
        needed_bytes: bytes,
        available_bytes: 0,
        fix: "downsample or crop it, or read it in slabs".to_string(),
    })?;
    Ok(data)
}
