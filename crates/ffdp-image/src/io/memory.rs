//! What fits into memory, asked before allocating.

use crate::error::{Error, Result};

/// Memory that can be allocated now without swapping, in bytes; `None` where the system does not
/// say (only Linux's `/proc/meminfo` is asked).
pub fn available_memory_bytes() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Demands that `needed_bytes` fit into the memory available now; `what` is to be stored there.
///
/// # Errors
/// [`Error::TooLarge`] with both numbers.
pub fn check_memory(what: &str, needed_bytes: u64) -> Result<()> {
    match available_memory_bytes() {
        Some(available_bytes) if needed_bytes > available_bytes => Err(Error::TooLarge {
            what: what.to_string(),
            needed_bytes,
            available_bytes,
            fix: "downsample or crop it, read it in slabs, or use a machine with more memory"
                .to_string(),
        }),
        _ => Ok(()),
    }
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   21530000 kB\nBuffers: 1 kB\n";
        assert_eq!(available_in(text), Some(21_530_000 * 1024));
        assert_eq!(available_in("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn the_impossible_is_refused_with_both_numbers() {
        assert!(check_memory("a voxel", 4).is_ok());
        if available_memory_bytes().is_some() {
            let message = check_memory("a volume", u64::MAX).unwrap_err().to_string();
            assert!(message.starts_with("a volume needs 18446744073709551615"), "{message}");
        }
    }
}
