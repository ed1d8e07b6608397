//! How the allocator of the C library treats large blocks.
#![expect(unsafe_code, reason = "mallopt is a call of the C library")]

/// From this size on, a block has pages of its own, which go back to the system when it is freed.
///
/// By default glibc moves this border up to the largest block that was freed, as far as 32 MiB, and keeps what lies
/// below it: a few frames of 15 MiB then stay for ever, in each of its arenas. Setting it stops that. Of 128 KiB (the
/// default) and 1 MiB, the latter leaves the pieces in which output is read (up to 256 KiB) out of it.
///
/// Measured beside it, 30 messages of 15 MiB through `parlor serve`, resident before and after: glibc as it is 12.6 and 309 MB,
/// with this 12.7 and 64 MB (of which the buffers of the last message were most, since given back), jemalloc 14.9 and
/// 79 MB, mimalloc 13.6 and 162 MB.
#[cfg(target_env = "gnu")]
const OWN_PAGES_BYTES: libc::c_int = 1 << 20;

/// Has large blocks go back to the system when they are freed. Call it first, and once.
#[cfg(target_env = "gnu")]
pub fn give_back_large_blocks() {
    // SAFETY: it takes two numbers, and changes how blocks are made from now on. A refusal leaves all as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, OWN_PAGES_BYTES);
    }
}

/// Other C libraries do so by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn give_back_large_blocks() {}
