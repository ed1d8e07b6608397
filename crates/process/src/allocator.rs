//! Makes the allocator of the C library return large blocks to the system.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "mallopt is a call of the C library"))]

/// A block of this size or more gets pages of its own, which go back to the system when it is freed.
///
/// By default, glibc raises this threshold to the size of the largest freed block, up to 32 MiB, and keeps smaller blocks:
/// a few frames of 15 MiB then stay in memory forever, in each arena. A fixed threshold prevents that. 1 MiB instead of
/// the default of 128 KiB, so that the buffers for process output (up to 256 KiB) do not go back each time.
///
/// Resident memory before and after 30 messages of 15 MiB through `parlor serve`: plain glibc 12.6 and 309 MB, with this
/// setting 12.7 and 64 MB (mostly buffers of the last message, which are returned by now), jemalloc 14.9 and 79 MB,
/// mimalloc 13.6 and 162 MB.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK_BYTES: libc::c_int = 1 << 20;

/// How much free memory at the end of the heap is kept before it goes back to the system.
///
/// The output of a process passes through some 3 MiB of buffers, those that [`LARGE_BLOCK_BYTES`] leaves in the heap. With a
/// limit below that, the heap shrinks and grows with every few pieces, and the page faults take half of parlor's
/// processor time: 1 MiB has 100,000 page faults for 2 GiB of output, 4 MiB has 20,000, and 8 MiB no fewer.
#[cfg(target_env = "gnu")]
const KEPT_HEAP_BYTES: libc::c_int = 4 << 20;

/// Makes large blocks go back to the system when they are freed. Call it once, at the start of `main`.
#[cfg(target_env = "gnu")]
pub fn return_large_blocks_to_system() {
    // SAFETY: `mallopt` takes two numbers and affects later allocations only. On failure it changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_HEAP_BYTES);
    }
}

/// Does nothing: other C libraries return large blocks by default.
#[cfg(not(target_env = "gnu"))]
pub fn return_large_blocks_to_system() {}
