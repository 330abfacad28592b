//! Tests that warm reads and writes of 4 KiB make no heap allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use smallvec::SmallVec;
use store::{
    Caller, CreateMode, MemStore, NewObject, Rights, Segment, SetAttributes, Stability, Store, Wait,
};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes everything to the system's allocator; counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ANN: Caller<'static> = Caller { uid: 1000, gid: 100, gids: &[] };

fn count(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

#[test]
fn warm_operations_make_no_heap_allocation() {
    let store = MemStore::new(64 << 20, 1000, 100);
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let object =
        store.create(ANN, store.root(), b"f", NewObject::File(CreateMode::Unchecked(set))).1.unwrap().object;
    store.write(ANN, object, 0, &vec![7; 4 << 20], Stability::Unstable, Wait::Allowed).unwrap().1.unwrap();
    let block = [9; 4096];
    let cycle = || {
        for page in 0..1000u64 {
            let mut out: SmallVec<[Segment; 1]> = SmallVec::new();
            store.read(ANN, object, page * 4096, 4096, &mut out, Wait::Allowed).unwrap().unwrap();
            assert_eq!(out[0].len(), 4096);
            drop(out);
            store
                .write(ANN, object, page * 4096, &block, Stability::Unstable, Wait::Allowed)
                .unwrap()
                .1
                .unwrap();
        }
    };
    cycle();
    assert_eq!(count(cycle), 0, "read and write in place, 4 KiB");
    let lookups = || {
        for _ in 0..100 {
            store.attributes(object, Wait::Allowed).unwrap().unwrap();
            store.lookup(ANN, store.root(), b"f", Wait::Allowed).unwrap().1.unwrap();
            store.access(ANN, object, Rights(0x3f), Wait::Allowed).unwrap().unwrap();
        }
    };
    assert_eq!(count(lookups), 0, "attributes, lookup, access");
    let receive_buffers = || {
        for at in 0..3u64 {
            let mut receive_buffer = store.receive_buffer(at << 20, 1 << 20).unwrap();
            let mut slices = SmallVec::new();
            receive_buffer.unfilled(0, &mut slices);
            assert!(!slices.spilled());
            drop(slices);
            store
                .write_received(ANN, object, &mut Some(receive_buffer), Stability::Unstable, Wait::Allowed)
                .unwrap()
                .1
                .unwrap();
        }
    };
    receive_buffers();
    assert_eq!(count(receive_buffers), 0, "1 MiB received in place");
    let copies = || {
        let mut held: SmallVec<[Segment; 1]> = SmallVec::new();
        store.read(ANN, object, 8192, 4096, &mut held, Wait::Allowed).unwrap().unwrap();
        store.write(ANN, object, 8192, &block, Stability::Unstable, Wait::Allowed).unwrap().1.unwrap();
    };
    copies();
    assert_eq!(count(copies), 0, "4 KiB copied on write under a pin");
}
