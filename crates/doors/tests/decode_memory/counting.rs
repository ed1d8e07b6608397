//! An allocator that counts what the calling thread holds, and the most that it held.

#![expect(
    unsafe_code,
    reason = "an allocator cannot be written without it; it passes everything on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted by thread: tests run side by side.
pub(crate) struct Counting;

/// The most that this thread allocated during `work` beyond what it held before, in bytes.
pub(crate) fn peak_of(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    work();
    usize::try_from(PEAK.get() - before).unwrap_or_default()
}

fn add(bytes: usize) {
    let held = HELD.get() + bytes as isize;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

fn subtract(bytes: usize) {
    HELD.set(HELD.get() - bytes as isize);
}

// SAFETY: every call goes to the system's allocator with the arguments that came; the counters are plain numbers that
// never allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        subtract(layout.size());
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // A block that is large enough to matter grows by moving its pages, not by a copy.
        subtract(layout.size());
        add(new_size);
        unsafe { System.realloc(block, layout, new_size) }
    }
}
