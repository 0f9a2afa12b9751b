//! What fits onto the disk, asked before writing.

use std::path::Path;

use crate::error::{Error, Result};

/// Bytes that an unprivileged process can still write into a folder; `None` where the system does
/// not say.
#[cfg(unix)]
pub fn available_disk_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// Bytes that can still be written into a folder; not known on this system.
#[cfg(not(unix))]
pub fn available_disk_bytes(_folder: &Path) -> Option<u64> {
    None
}

/// Demands that `needed_bytes` can be written into an existing folder; `what` is to be stored.
///
/// # Errors
/// [`Error::TooLarge`] with both numbers.
pub fn check_disk(what: &str, folder: &Path, needed_bytes: u64) -> Result<()> {
    match available_disk_bytes(folder) {
        Some(available_bytes) if needed_bytes > available_bytes => Err(Error::TooLarge {
            what: format!("{what} in {}", folder.display()),
            needed_bytes,
            available_bytes,
            fix: "write less, free some space, or choose a folder on another disk".to_string(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_impossible_is_refused_with_folder_and_numbers() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_disk("a byte", folder.path(), 1).is_ok());
        if available_disk_bytes(folder.path()).is_some() {
            let refused = check_disk("a library", folder.path(), u64::MAX).unwrap_err();
            let text = refused.to_string();
            assert!(text.starts_with("a library in /"), "{text}");
            assert!(text.contains("needs 18446744073709551615"), "{text}");
        }
    }
}
