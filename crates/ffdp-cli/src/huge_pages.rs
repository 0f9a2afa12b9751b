//! Memory of whole images in pages of 2 MB: a volume of 2 GB is half a million pages of 4 kB, and that the system hands
//! them out one by one takes as long as to compute with them.
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
        // system answers is of no account.
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
