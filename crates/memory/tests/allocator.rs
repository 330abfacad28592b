//! The allocator, in a process of its own, because the memory of all threads is looked at.
#![cfg(target_env = "gnu")]

/// Memory that this process has mapped.
fn mapped_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

#[test]
fn memory_of_large_allocations_is_gone_when_they_are_freed() {
    const LARGE: usize = 2 << 20;
    memory::map_large_allocations();
    // The C library would map no allocation of this size from here on.
    drop(std::hint::black_box(vec![1_u8; 2 * LARGE]));
    let before = mapped_bytes();
    let (mut large, mut small) = (Vec::new(), Vec::new());
    for _ in 0..64 {
        large.push(vec![1_u8; LARGE]);
        // Lives on among the large ones.
        small.push(vec![1_u8; 100]);
    }
    assert!(mapped_bytes() >= before + 64 * LARGE);
    drop(large);
    let after = mapped_bytes();
    assert!(after < before + 4 * LARGE, "{before} {after}");
    drop(small);
}
