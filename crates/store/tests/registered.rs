//! Memory of stores that a device is told of: where payload lies, and no longer than it lies there.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory::{Device, Registrar, Registration, Scatter};
use smallvec::SmallVec;
use store::{
    Caller, CreateMode, MemStore, NewObject, ObjectId, ReceiveBuffer, Segment, SetAttributes, Stability,
    Store, Wait,
};

const ANN: Caller<'static> = Caller { uid: 1000, gid: 100, gids: &[] };
const MIB: usize = 1 << 20;
/// In this store the unit of registration.
const ARENA_BYTES: usize = 16 << 20;

/// A device that counts the memory that it knows.
struct Counting(Arc<AtomicUsize>);

struct Held(Arc<AtomicUsize>, usize);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

#[allow(unsafe_code)]
impl Device for Counting {
    unsafe fn register(&self, _start: NonNull<u8>, bytes: usize) -> Option<Registration> {
        self.0.fetch_add(bytes, Ordering::SeqCst);
        Some(Registration { key: 7, held: Box::new(Held(Arc::clone(&self.0), bytes)) })
    }
}

fn device() -> (Registrar, Arc<AtomicUsize>) {
    let bytes = Arc::new(AtomicUsize::new(0));
    (Registrar::new(Box::new(Counting(Arc::clone(&bytes)))), bytes)
}

fn file(store: &MemStore, name: &[u8]) -> ObjectId {
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    store.create(ANN, store.root(), name, NewObject::File(CreateMode::Guarded(set))).1.unwrap().object
}

fn read(store: &MemStore, object: ObjectId, offset: u64, count: usize) -> SmallVec<[Segment; 1]> {
    let mut out = SmallVec::new();
    store.read(ANN, object, offset, count as u32, &mut out, Wait::Allowed).unwrap().unwrap();
    out
}

fn write(store: &MemStore, object: ObjectId, count: usize) {
    let data = vec![7; count];
    store.write(ANN, object, 0, &data, Stability::Unstable, Wait::Allowed).unwrap().1.unwrap();
}

/// Where a device finds the bytes of a receive buffer, and where this process does.
fn both(buffer: &mut ReceiveBuffer, with: &Registrar) -> [Vec<(usize, usize)>; 2] {
    let mut parts = Scatter::new();
    assert!(buffer.registered(with, &mut parts));
    let mut slices = SmallVec::new();
    buffer.unfilled(0, &mut slices);
    let slices = slices.iter().map(|slice| (slice.as_ptr().addr(), slice.len())).collect();
    [parts.iter().map(|part| (part.start as usize, part.bytes)).collect(), slices]
}

#[test]
fn a_device_finds_payload_where_this_process_finds_it() {
    let store = MemStore::new(64 << 20, 1000, 100);
    let (registrar, bytes) = device();
    let object = file(&store, b"f");
    for offset in [0, 5 * MIB as u64 + 5] {
        let mut buffer = store.receive_buffer(offset, MIB as u32);
        let [device, process] = both(buffer.as_mut().unwrap(), &registrar);
        assert_eq!(device, process);
        assert_eq!(device.iter().map(|part| part.1).sum::<usize>(), MIB);
        let written = store.write_received(ANN, object, &mut buffer, Stability::Unstable, Wait::Allowed);
        written.unwrap().1.unwrap();
    }
    assert_eq!(bytes.load(Ordering::SeqCst), ARENA_BYTES, "one registration for all of it");
    // With a hole in it.
    let segments = read(&store, object, 4 * MIB as u64 + 100, MIB + MIB / 2);
    for segment in &segments {
        let piece = segment.piece(Some(&registrar)).unwrap();
        let registered = piece.registered.unwrap();
        assert_eq!(registered.start as usize, segment.as_bytes().unwrap().as_ptr().addr());
        assert_eq!((registered.bytes, piece.bytes.len()), (segment.len(), segment.len()));
        assert!(segment.piece(None).unwrap().registered.is_none());
    }
    assert_eq!(segments.iter().map(Segment::len).sum::<usize>(), MIB + MIB / 2);
}

#[test]
fn memory_that_is_given_back_is_registered_no_more() {
    let store = MemStore::new(64 << 20, 1000, 100);
    let (registrar, bytes) = device();
    let object = file(&store, b"f");
    write(&store, object, 40 * MIB);
    for segment in read(&store, object, 0, 40 * MIB) {
        assert!(segment.piece(Some(&registrar)).unwrap().registered.is_some());
    }
    assert_eq!(bytes.load(Ordering::SeqCst), 3 * ARENA_BYTES);
    let held = read(&store, object, 0, MIB);
    store.remove(ANN, store.root(), b"f").1.unwrap();
    assert!(bytes.load(Ordering::SeqCst) >= ARENA_BYTES, "what is held stays registered");
    assert_eq!(held[0].as_bytes().unwrap()[0], 7);
    drop(held);
    assert_eq!((store.statistics().arenas, bytes.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn a_store_outlives_its_device_and_a_device_its_store() {
    let store = MemStore::new(64 << 20, 1000, 100);
    let object = file(&store, b"f");
    write(&store, object, MIB);
    let registered = |registrar: &Registrar| {
        read(&store, object, 0, MIB)[0].piece(Some(registrar)).unwrap().registered.is_some()
    };
    let (first, first_bytes) = device();
    assert!(registered(&first));
    drop(first);
    assert_eq!(first_bytes.load(Ordering::SeqCst), 0);
    let (second, second_bytes) = device();
    assert!(registered(&second));
    assert_eq!(second_bytes.load(Ordering::SeqCst), ARENA_BYTES);
    drop(store);
    assert_eq!(second_bytes.load(Ordering::SeqCst), 0);
}
