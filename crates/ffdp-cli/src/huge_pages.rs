//! Memory of whole images in pages of 2 MB: a volume of 2 GB is half a million pages of 4 kB, which the system hands out
//! one by one: a registration at 0.5 mm on two cores spent 55 of 210 s of processor time in the system, and 32 with
//! large pages.
//!
//! Linux gives large pages to what asks for them (`madvise`, the default of most distributions). Elsewhere this is the
//! system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator; large blocks ask for large pages.
pub struct HugePages;

/// Blocks from here on ask: those of whole images, of which a page more does not show.
const LARGE: usize = 16 << 20;

/// Asks for large pages for a block that nothing has touched yet.
fn ask(block: *mut u8, len: usize) {
    #[cfg(target_os = "linux")]
    if len >= LARGE && !block.is_null() {
        const PAGE: usize = 4096;
        let skipped = block.align_offset(PAGE);
        // SAFETY: whole pages within the block that was just allocated; the advice changes no byte of them, and what the
        // system answers is ignored.
        unsafe { libc::madvise(block.add(skipped).cast(), len - skipped, libc::MADV_HUGEPAGE) };
    }
}

// SAFETY: blocks are those of the system's allocator, as it gives and takes them.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = unsafe { System.alloc(layout) };
        ask(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = unsafe { System.alloc_zeroed(layout) };
        ask(block, layout.size());
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        let block = unsafe { System.realloc(block, layout, len) };
        ask(block, len);
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::hint::black_box;

    /// Kilobytes of large pages in the mapping that an address lies in.
    fn large_pages_around(address: usize) -> Option<u64> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut lines = maps.lines().skip_while(|line| {
            let ends = line.split(' ').next().and_then(|range| range.split_once('-'));
            let ends = ends.map(|(a, b)| [a, b].map(|end| usize::from_str_radix(end, 16)));
            !matches!(ends, Some([Ok(a), Ok(b)]) if (a..b).contains(&address))
        });
        let line = lines.find(|line| line.starts_with("AnonHugePages:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    #[test]
    fn images_lie_in_large_pages() {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if !setting.is_ok_and(|setting| !setting.contains("[never]")) {
            eprintln!("skipped: this system has no large pages");
            return;
        }
        let bytes = 256 << 20;
        let mut filled = black_box(vec![7u8; bytes]);
        let mut zeros = black_box(vec![0u8; bytes]);
        // Grown from what was there.
        filled.resize(2 * bytes, 8);
        zeros[bytes / 2] = 1;
        assert_eq!([filled[0], filled[bytes - 1], filled[bytes]], [7, 7, 8]);
        assert_eq!([zeros[0], zeros[bytes / 2], zeros[bytes - 1]], [0, 1, 0]);
        let large = large_pages_around(filled.as_ptr() as usize + bytes).expect("it is mapped");
        // A system short of memory gives what it has.
        assert!(large > 0, "no large page of {} MB", (2 * bytes) >> 20);
    }
}
