//! Peak memory: a counting allocator for the CPU, the pool's growth on a GPU.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::Device;

/// The system's allocator, counting what is held and the most that was held.
pub struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn take(bytes: usize) {
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(held, Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes that `work` takes beyond what is held now, at its peak.
///
/// On a GPU the pool's growth after giving back what it can: whole pages, and less where `work`
/// fits into pages that were already there.
pub fn peak_of(device: &Device, work: impl FnOnce()) -> u64 {
    device.memory_cleanup();
    let Some(before) = device.memory_pool_usage() else {
        let held = HELD.load(Relaxed);
        PEAK.store(held, Relaxed);
        work();
        return PEAK.load(Relaxed).saturating_sub(held) as u64;
    };
    work();
    let after = device.memory_pool_usage().unwrap_or(before);
    after.bytes_reserved.saturating_sub(before.bytes_reserved)
}
