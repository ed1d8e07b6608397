//! Makes the allocator of the C library return large blocks to the system.
#![expect(unsafe_code, reason = "mallopt is a call of the C library")]

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

/// Makes large blocks go back to the system when they are freed. Call it once, at the start of `main`.
#[cfg(target_env = "gnu")]
pub fn return_large_blocks_to_system() {
    // SAFETY: `mallopt` takes two numbers and affects later allocations only. On failure it changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE_BLOCK_BYTES);
    }
}

/// Does nothing: other C libraries return large blocks by default.
#[cfg(not(target_env = "gnu"))]
pub fn return_large_blocks_to_system() {}
