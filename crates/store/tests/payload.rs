//! Tests payload: pinned segments, receive buffers, sparse files, the limit, and memory that is
//! freed.

use smallvec::SmallVec;
use store::{
    Caller, CreateMode, MemStore, NewObject, ObjectId, ReceiveBuffer, Result, Segment, SetAttributes,
    Stability, Status, Store, Wait,
};

const ANN: Caller<'static> = Caller { uid: 1000, gid: 100, gids: &[] };
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn new_store(bytes: u64) -> MemStore {
    MemStore::new(bytes, 1000, 100)
}

fn file(store: &MemStore, name: &str) -> ObjectId {
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    store
        .create(ANN, store.root(), name.as_bytes(), NewObject::File(CreateMode::Guarded(set)))
        .1
        .unwrap()
        .object
}

fn write(store: &MemStore, object: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
    store.write(ANN, object, offset, data, Stability::Unstable, Wait::Allowed).unwrap().1.map(drop)
}

fn segments(store: &MemStore, object: ObjectId, offset: u64, count: u64) -> SmallVec<[Segment; 1]> {
    let mut out = SmallVec::new();
    store.read(ANN, object, offset, count as u32, &mut out, Wait::Allowed).unwrap().unwrap();
    out
}

fn bytes(segments: &[Segment]) -> Vec<u8> {
    segments.iter().flat_map(|segment| segment.as_bytes().unwrap()).copied().collect()
}

fn read(store: &MemStore, object: ObjectId, offset: u64, count: u64) -> Vec<u8> {
    bytes(&segments(store, object, offset, count))
}

fn truncate(store: &MemStore, object: ObjectId, size: u64) -> Result<()> {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    store.set_attributes(ANN, object, &set, None).1
}

fn used(store: &MemStore, object: ObjectId) -> u64 {
    store.attributes(object, Wait::Allowed).unwrap().unwrap().used
}

/// Fills a receive buffer piece by piece, as a socket does.
fn receive(receive_buffer: &mut ReceiveBuffer, data: &[u8]) {
    let mut from = 0;
    while from < data.len() {
        let mut slices = SmallVec::new();
        receive_buffer.unfilled(from, &mut slices);
        assert_eq!(slices.iter().map(|slice| slice.len()).sum::<usize>(), data.len() - from);
        let now = slices[0].len().min(10_007);
        slices[0][..now].copy_from_slice(&data[from..from + now]);
        from += now;
    }
}

fn write_in_place(store: &MemStore, object: ObjectId, offset: u64, data: &[u8]) {
    let mut receive_buffer = store.receive_buffer(offset, data.len() as u32).unwrap();
    receive(&mut receive_buffer, data);
    let (_, written) = store
        .write_received(ANN, object, &mut Some(receive_buffer), Stability::Unstable, Wait::Allowed)
        .unwrap();
    assert_eq!(written.unwrap().count as usize, data.len());
}

fn pattern(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31).wrapping_add(at >> 8).wrapping_add(seed)) as u8).collect()
}

#[test]
fn an_aligned_mebibyte_is_received_and_read_in_one_piece() {
    let store = new_store(64 * MIB);
    let object = file(&store, "f");
    let data = pattern(MIB, 1);
    let mut receive_buffer = store.receive_buffer(0, MIB as u32).unwrap();
    assert_eq!((receive_buffer.offset(), receive_buffer.len() as u64), (0, MIB));
    let mut slices = SmallVec::new();
    receive_buffer.unfilled(0, &mut slices);
    assert_eq!(slices.len(), 1);
    drop(slices);
    receive(&mut receive_buffer, &data);
    store
        .write_received(ANN, object, &mut Some(receive_buffer), Stability::Unstable, Wait::Allowed)
        .unwrap()
        .1
        .unwrap();
    assert_eq!(segments(&store, object, 0, MIB).len(), 1);
    assert_eq!(read(&store, object, 0, MIB), data);
    // After many writes the pieces still have at least the size of an extent.
    for round in 0..50 {
        write_in_place(&store, object, 0, &pattern(MIB, round));
    }
    assert!(segments(&store, object, 0, MIB).iter().all(|segment| segment.len() >= 65536));
    assert_eq!(read(&store, object, 0, MIB), pattern(MIB, 49));
    assert_eq!(used(&store, object), MIB);
}

#[test]
fn an_unaligned_mebibyte_is_received_in_at_most_seventeen_slices() {
    let store = new_store(64 * MIB);
    let object = file(&store, "f");
    for offset in [1, PAGE - 1, 5 * PAGE, 5 * PAGE + 17, 15 * PAGE + 4095, 3 * MIB + 65535] {
        let mut receive_buffer = store.receive_buffer(offset, MIB as u32).unwrap();
        let mut slices = SmallVec::new();
        receive_buffer.unfilled(0, &mut slices);
        assert!(slices.len() <= 17, "{} slices at {offset}", slices.len());
        drop(slices);
        let data = pattern(MIB, offset);
        receive(&mut receive_buffer, &data);
        store
            .write_received(ANN, object, &mut Some(receive_buffer), Stability::Unstable, Wait::Allowed)
            .unwrap()
            .1
            .unwrap();
        assert_eq!(read(&store, object, offset, MIB), data);
    }
}

#[test]
fn small_writes_in_order_are_read_in_large_pieces() {
    let store = new_store(64 * MIB);
    let (one, other) = (file(&store, "one"), file(&store, "other"));
    for page in 0..512 {
        write(&store, one, page * PAGE, &pattern(PAGE, page)).unwrap();
        write(&store, other, page * PAGE, &pattern(PAGE, page + 1)).unwrap();
    }
    for object in [one, other] {
        let pieces = segments(&store, object, MIB, MIB);
        assert!(pieces.len() <= 17, "{} pieces while two files grew together", pieces.len());
    }
    // Writes in any order too, once the file has its full size.
    let third = file(&store, "third");
    truncate(&store, third, 2 * MIB).unwrap();
    for at in 0..512u64 {
        let page = at * 167 % 512;
        write(&store, third, page * PAGE, &pattern(PAGE, page)).unwrap();
    }
    assert!(segments(&store, third, MIB, MIB).len() <= 16);
    for page in 0..512 {
        assert_eq!(read(&store, third, page * PAGE, PAGE), pattern(PAGE, page));
    }
}

#[test]
fn partial_pages_are_merged_with_existing_data() {
    let store = new_store(64 * MIB);
    let object = file(&store, "f");
    let mut model = vec![0; 40 * PAGE as usize];
    let writes = [
        (100, 50),
        (PAGE - 10, 20),
        (3 * PAGE + 5, 2 * PAGE),
        (17 * PAGE - 1, 3),
        (PAGE / 2, 20 * PAGE),
        (0, 1),
        (39 * PAGE + 1, PAGE - 1),
    ];
    for held in [false, true] {
        for in_place in [false, true] {
            for (at, (offset, len)) in writes.into_iter().enumerate() {
                let before = read(&store, object, 0, 40 * PAGE);
                let pins = segments(&store, object, 0, if held { 40 * PAGE } else { 0 });
                let data = pattern(len, at as u64 + 7);
                if in_place {
                    write_in_place(&store, object, offset, &data);
                } else {
                    write(&store, object, offset, &data).unwrap();
                }
                model[offset as usize..(offset + len) as usize].copy_from_slice(&data);
                let size = store.attributes(object, Wait::Allowed).unwrap().unwrap().size;
                assert_eq!(read(&store, object, 0, 40 * PAGE), model[..size as usize]);
                if held {
                    assert_eq!(bytes(&pins), before, "data that were read do not change");
                }
            }
        }
    }
    assert_eq!(store.statistics().pins, 0);
    store.remove(ANN, store.root(), b"f").1.unwrap();
    assert_eq!(store.statistics().arenas, 0);
}

#[test]
fn data_that_were_read_do_not_change_when_overwritten_cut_or_removed() {
    let store = new_store(64 * MIB);
    let object = file(&store, "f");
    let data = pattern(3 * MIB + 5, 3);
    write(&store, object, 0, &data).unwrap();
    let held = segments(&store, object, 0, 3 * MIB + 5);
    let part = segments(&store, object, MIB + 17, 3 * PAGE);
    assert!(store.statistics().pins >= 48);
    for page in (0..768).step_by(3) {
        write(&store, object, page * PAGE, &[0xee; 4096]).unwrap();
    }
    write_in_place(&store, object, 0, &vec![0xdd; MIB as usize]);
    truncate(&store, object, MIB + 100).unwrap();
    truncate(&store, object, 3 * MIB).unwrap();
    assert!(read(&store, object, MIB + 100, 2 * MIB).iter().all(|&byte| byte == 0));
    store.remove(ANN, store.root(), b"f").1.unwrap();
    // Later writers must not get that memory.
    let other = file(&store, "other");
    write(&store, other, 0, &vec![0x55; 8 * MIB as usize]).unwrap();
    assert_eq!(bytes(&held), data);
    assert_eq!(bytes(&part), data[MIB as usize + 17..][..3 * PAGE as usize]);
    store.remove(ANN, store.root(), b"other").1.unwrap();
    assert_eq!(store.attributes(object, Wait::Allowed).unwrap(), Err(Status::Stale));
    assert!(store.statistics().arenas > 0);
    drop(held);
    drop(part);
    let end = store.statistics();
    assert_eq!((end.pins, end.arenas, end.bytes_used), (0, 0, new_store(MIB).statistics().bytes_used));
}

#[test]
fn a_receive_buffer_dropped_midway_changes_nothing_and_frees_its_memory() {
    let store = new_store(64 * MIB);
    let object = file(&store, "f");
    let data = pattern(2 * MIB, 9);
    write(&store, object, 0, &data).unwrap();
    let before = store.statistics();
    let mut receive_buffer = store.receive_buffer(100, MIB as u32).unwrap();
    let mut slices = SmallVec::new();
    receive_buffer.unfilled(0, &mut slices);
    slices[0].fill(0xee);
    drop(slices);
    assert_eq!(store.statistics().bytes_used, before.bytes_used, "what is incomplete takes no space");
    drop(receive_buffer);
    assert_eq!(store.statistics(), before);
    assert_eq!(read(&store, object, 0, 2 * MIB), data);
    assert!(store.receive_buffer(0, 0).is_none());
    assert!(store.receive_buffer(u64::MAX, 2).is_none());
    let far = store.receive_buffer(1 << 63, 4096).unwrap();
    assert_eq!(
        store.write_received(ANN, object, &mut Some(far), Stability::Unstable, Wait::Allowed).unwrap().1,
        Err(Status::FileTooBig)
    );
    let stray = new_store(64 * MIB).receive_buffer(0, 4096).unwrap();
    assert_eq!(
        store.write_received(ANN, object, &mut Some(stray), Stability::Unstable, Wait::Allowed).unwrap().1,
        Err(Status::Invalid)
    );
    assert_eq!(store.statistics(), before);
}

#[test]
fn sparse_files_reach_the_largest_offset() {
    let store = new_store(64 * MIB);
    let object = file(&store, "f");
    let last = i64::MAX as u64 - 1;
    assert_eq!(store.capabilities().file_bytes_max, last + 1);
    for offset in [5 << 30, 1 << 40, last] {
        write(&store, object, offset, b"!").unwrap();
        assert_eq!(read(&store, object, offset, 10), b"!");
        let around = read(&store, object, offset - 100_000, 100_001);
        assert_eq!((around.len(), around.iter().filter(|&&byte| byte != 0).count()), (100_001, 1));
    }
    assert_eq!(write(&store, object, last, b"no"), Err(Status::FileTooBig));
    assert_eq!(write(&store, object, u64::MAX, b"no"), Err(Status::FileTooBig));
    let attributes = store.attributes(object, Wait::Allowed).unwrap().unwrap();
    assert_eq!((attributes.size, attributes.used), (last + 1, 3 * PAGE));
    let mut out = SmallVec::new();
    let end = store.read(ANN, object, u64::MAX, 10, &mut out, Wait::Allowed).unwrap().unwrap();
    assert_eq!((end.count, end.eof), (0, true));
    assert!(store.statistics().bytes_used < MIB);
    truncate(&store, object, (1 << 40) + 1).unwrap();
    assert_eq!(used(&store, object), 2 * PAGE);
    truncate(&store, object, 0).unwrap();
    assert_eq!((used(&store, object), store.statistics().arenas), (0, 0));
}

#[test]
fn a_read_reports_the_end_of_the_file() {
    let store = new_store(64 * MIB);
    let object = file(&store, "f");
    write(&store, object, 0, &[1; 5000]).unwrap();
    for (offset, count, got, eof) in [
        (0, 4999, 4999, false),
        (0, 5000, 5000, true),
        (4000, 9999, 1000, true),
        (5000, 1, 0, true),
        (0, 0, 0, false),
    ] {
        let mut out = SmallVec::new();
        let end = store.read(ANN, object, offset, count, &mut out, Wait::Allowed).unwrap().unwrap();
        assert_eq!((end.count, end.eof), (got, eof), "{offset} {count}");
    }
}

#[test]
fn a_full_store_reports_no_space_can_be_overwritten_and_recovers() {
    let store = new_store(8 * MIB);
    let object = file(&store, "f");
    let mut offset = 0;
    let chunk = pattern(100_000, 0);
    while write(&store, object, offset, &chunk).is_ok() {
        offset += chunk.len() as u64;
    }
    let mut last = 0;
    while write(&store, object, offset + last * PAGE, &[1; 4096]).is_ok() {
        last += 1;
    }
    assert!(offset > 7 * MIB && offset < 8 * MIB, "{offset} bytes fit");
    assert_eq!(write(&store, object, 1 << 40, b"x"), Err(Status::NoSpace));
    assert!(store.statistics().bytes_used <= 8 * MIB);
    assert!(store.space().free_bytes < PAGE * 2);
    // Data that were received are refused if they do not fit, and overwrite in place if they do.
    for (at, written) in [(1 << 40, Err(Status::NoSpace)), (0, Ok(MIB as u32))] {
        let mut buffer = store.receive_buffer(at, MIB as u32).unwrap();
        receive(&mut buffer, &pattern(MIB, 4));
        let (_, result) =
            store.write_received(ANN, object, &mut Some(buffer), Stability::Unstable, Wait::Allowed).unwrap();
        assert_eq!(result.map(|written| written.count), written);
    }
    assert_eq!(read(&store, object, 0, MIB), pattern(MIB, 4));
    // Existing data can be overwritten: in place, and by copying while the data are being read.
    write(&store, object, 0, &pattern(MIB, 5)).unwrap();
    let held = segments(&store, object, 0, 64 * 1024);
    write(&store, object, PAGE, &[9; 4096]).unwrap();
    assert_eq!(bytes(&held), pattern(MIB, 5)[..64 * 1024]);
    assert_eq!(read(&store, object, PAGE, PAGE), [9; 4096]);
    truncate(&store, object, 2 * PAGE - 10).unwrap();
    assert_eq!(bytes(&held), pattern(MIB, 5)[..64 * 1024]);
    drop(held);
    assert_eq!(read(&store, object, PAGE, PAGE), [9; 4086]);
    write(&store, object, 0, &pattern(7 * MIB, 6)).unwrap();
    assert_eq!(read(&store, object, 0, 7 * MIB), pattern(7 * MIB, 6));
}

#[test]
fn a_write_that_does_not_fit_changes_nothing() {
    let store = new_store(MIB);
    let object = file(&store, "f");
    write(&store, object, 0, &[1; 60_000]).unwrap();
    let before = (store.statistics().bytes_used, store.attributes(object, Wait::Allowed).unwrap().unwrap());
    assert_eq!(write(&store, object, 100, &vec![2; 2 * MIB as usize]), Err(Status::NoSpace));
    let after = (store.statistics().bytes_used, store.attributes(object, Wait::Allowed).unwrap().unwrap());
    assert_eq!(before.1, after.1);
    assert!(after.0 - before.0 < 2 * PAGE, "only the table of the file may have grown");
    assert_eq!(read(&store, object, 0, MIB), [1; 60_000]);
}

#[test]
fn names_and_objects_count_against_the_limit_too() {
    let store = new_store(MIB);
    let before = store.statistics();
    let mut made = 0;
    loop {
        let set = SetAttributes::default();
        let name = format!("{made:0250}");
        match store.create(ANN, store.root(), name.as_bytes(), NewObject::File(CreateMode::Unchecked(set))).1
        {
            Ok(_) => made += 1,
            Err(error) => break assert_eq!(error, Status::NoSpace),
        }
    }
    assert!((1500..2500).contains(&made), "{made} objects");
    assert!(store.space().free_files <= 1, "an object with a shorter name may fit");
    for number in 0..made {
        store.remove(ANN, store.root(), format!("{number:0250}").as_bytes()).1.unwrap();
    }
    assert_eq!(store.statistics(), before);
}

#[test]
fn memory_is_freed_when_files_are_removed() {
    let store = new_store(256 * MIB);
    let before = store.statistics();
    for round in 0..3 {
        for number in 0..8u64 {
            let object = file(&store, &format!("f{number}"));
            for at in 0..20 {
                write_in_place(&store, object, at * MIB, &pattern(MIB, number));
            }
        }
        assert!(store.statistics().arenas >= 10, "round {round}");
        for number in 0..8 {
            store.remove(ANN, store.root(), format!("f{number}").as_bytes()).1.unwrap();
        }
        assert_eq!(store.statistics(), before);
    }
}

#[test]
fn segments_and_receive_buffers_may_outlive_the_store() {
    let data = pattern(MIB, 4);
    let (held, receive_buffer) = {
        let store = new_store(64 * MIB);
        let object = file(&store, "f");
        write(&store, object, 0, &data).unwrap();
        write(&store, object, 20 * MIB, &data).unwrap();
        (segments(&store, object, 0, MIB), store.receive_buffer(0, MIB as u32).unwrap())
    };
    let mut receive_buffer = receive_buffer;
    receive(&mut receive_buffer, &data);
    drop(receive_buffer);
    assert_eq!(bytes(&held), data);
    let only_held = {
        let store = new_store(64 * MIB);
        let object = file(&store, "f");
        write(&store, object, 0, &data).unwrap();
        let held = segments(&store, object, 0, MIB);
        write(&store, object, 0, &[0; 100]).unwrap();
        held
    };
    assert_eq!(bytes(&only_held), data);
}
