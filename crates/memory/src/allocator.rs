//! The allocator of the process.

/// From this size on an allocation is a mapping of its own, which is unmapped as soon as it is
/// freed.
pub const MAPPED_BYTES_MIN: usize = 256 << 10;

/// Has large allocations mapped one by one. The C library begins so, but raises the size with each
/// large allocation that is freed, up to 32 MiB. From then on what clients made a server hold lies
/// in heaps, where one small allocation that lives on keeps the memory of many that are gone.
///
/// To be called before there are other threads.
pub fn map_large_allocations() {
    #[cfg(target_env = "gnu")]
    {
        let bytes = MAPPED_BYTES_MIN.try_into().unwrap_or(libc::c_int::MAX);
        // SAFETY: mallopt(3) changes parameters of the allocator, under its lock. It has no
        // arguments that could be invalid.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) };
    }
}
