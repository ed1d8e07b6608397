//! An allocator that counts the bytes that each thread has allocated, and the peak.

#![expect(
    unsafe_code,
    reason = "a global allocator is unsafe code; this one only forwards to the system allocator"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system allocator with counters per thread, because tests run concurrently.
pub(crate) struct CountingAllocator;

/// The peak of bytes that this thread allocated during `work`, beyond those allocated before.
pub(crate) fn peak_of(work: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    PEAK.set(before);
    work();
    usize::try_from(PEAK.get() - before).unwrap_or_default()
}

fn add(bytes: usize) {
    let allocated = ALLOCATED.get() + bytes as isize;
    ALLOCATED.set(allocated);
    PEAK.set(PEAK.get().max(allocated));
}

fn subtract(bytes: usize) {
    ALLOCATED.set(ALLOCATED.get() - bytes as isize);
}

// SAFETY: every call is forwarded to the system allocator with the same arguments, and the counters never allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        subtract(layout.size());
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Not counted twice: the system grows a large block by remapping its pages, without a copy.
        subtract(layout.size());
        add(new_size);
        unsafe { System.realloc(block, layout, new_size) }
    }
}
