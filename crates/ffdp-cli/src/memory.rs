//! What a registration needs, before it starts: memory per level, disk space, and what to change.

mod model;
mod plan;

pub use plan::{Held, Plan, Sizes};

/// The most memory that this process has had resident, in bytes; `None` where the system does not
/// say.
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Gives the system back what was freed: the allocator of glibc keeps some blocks of the size of an image.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: looks after memory that nobody holds.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Forgets the peak so far: from now on [`peak_memory_bytes`] is that of what comes. Where the system
/// cannot (it is Linux that can), the peak stays that of the whole process.
pub fn reset_peak_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_touched_counts() {
        let Some(before) = peak_memory_bytes() else { return };
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        assert_eq!(touched[touched.len() - 1], 1);
        let after = peak_memory_bytes().expect("known a moment ago");
        assert!(after >= before && after >= 64 << 20, "{before} {after}");
    }
}
