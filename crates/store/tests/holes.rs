//! SEEK, ALLOCATE, DEALLOCATE, COPY and CLONE of both stores. RFC 7862

#[path = "dir/fixture.rs"]
mod fixture;

use fixture::Home;
use proptest::prelude::*;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{
    Caller, CreateMode, MemStore, NewObject, ObjectId, Result, Seek, SetAttributes, Sought, Stability,
    Status, Store, Wait,
};

const ANN: Caller<'static> = Caller { uid: 1000, gid: 100, gids: &[200] };
const BOB: Caller<'static> = Caller { uid: 1001, gid: 101, gids: &[] };
const PAGE: u64 = 4096;
const KIB64: u64 = 64 << 10;

/// The user that runs the tests.
fn me() -> Caller<'static> {
    Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), gids: &[] }
}

fn file(store: &dyn Store, name: &str) -> ObjectId {
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let new = NewObject::File(CreateMode::Guarded(set));
    store.create(me(), store.root(), name.as_bytes(), new).1.unwrap().object
}

fn write(store: &dyn Store, object: ObjectId, offset: u64, data: &[u8]) {
    let written =
        store.write(me(), object, offset, data, Stability::Unstable, Wait::Allowed).unwrap().1.unwrap();
    assert_eq!(written.count as usize, data.len());
}

fn truncate(store: &dyn Store, object: ObjectId, size: u64) {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    store.set_attributes(me(), object, &set, None).1.unwrap();
}

fn read(store: &dyn Store, object: ObjectId) -> Vec<u8> {
    let mut segments = SmallVec::new();
    store.read(me(), object, 0, u32::MAX, &mut segments, Wait::Allowed).unwrap().unwrap();
    segments.iter().flat_map(|segment| segment.as_bytes().unwrap().to_vec()).collect()
}

fn size(store: &dyn Store, object: ObjectId) -> u64 {
    store.attributes(object, Wait::Allowed).unwrap().unwrap().size
}

fn used(store: &dyn Store, object: ObjectId) -> u64 {
    store.attributes(object, Wait::Allowed).unwrap().unwrap().used
}

fn seek(store: &dyn Store, object: ObjectId, offset: u64, what: Seek) -> Result<(u64, bool)> {
    store.seek(me(), object, offset, what).map(|Sought { offset, eof }| (offset, eof))
}

fn copy(store: &dyn Store, from: (ObjectId, u64), to: (ObjectId, u64), count: u32) -> Result<u32> {
    let before = store.attributes(to.0, Wait::Allowed).unwrap().unwrap().change;
    let (effect, result) = store.copy(me(), from, to, count);
    let after = effect.after.unwrap().change;
    assert!(before <= effect.before.unwrap().change);
    if result.is_ok_and(|written| written.count > 0) {
        assert!(before < after);
    }
    assert_eq!(
        result.map(|written| (written.committed, written.verifier)).ok(),
        result.ok().map(|_| (Stability::Unstable, store.verifier()))
    );
    result.map(|written| written.count)
}

fn content(len: u64, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(7).wrapping_add((at >> 8) as u8).wrapping_add(seed) | 1)
        .collect()
}

/// Both stores.
fn each(test: impl Fn(&dyn Store)) {
    let me = me();
    test(&MemStore::new(64 << 20, me.uid, me.gid));
    test(&Home::new().open());
    test(&Home::in_place(std::env::temp_dir()).open());
}

#[test]
fn data_and_holes_are_found_and_nothing_beyond_the_end() {
    each(|store| {
        let object = file(store, "f");
        assert_eq!(seek(store, object, 0, Seek::Data), Err(Status::NoAddress), "an empty file");
        write(store, object, 4 * KIB64, &content(KIB64, 1));
        truncate(store, object, 10 * KIB64 + 5);
        let end = 10 * KIB64 + 5;
        assert_eq!(seek(store, object, 0, Seek::Data), Ok((4 * KIB64, false)));
        assert_eq!(seek(store, object, 4 * KIB64 + 7, Seek::Data), Ok((4 * KIB64 + 7, false)));
        assert_eq!(seek(store, object, 5 * KIB64, Seek::Data), Ok((end, true)), "no more data");
        assert_eq!(seek(store, object, 3, Seek::Hole), Ok((3, false)));
        assert_eq!(seek(store, object, 4 * KIB64 + 7, Seek::Hole), Ok((5 * KIB64, false)));
        for what in [Seek::Data, Seek::Hole] {
            assert_eq!(seek(store, object, end, what), Err(Status::NoAddress));
            assert_eq!(seek(store, object, u64::MAX, what), Err(Status::NoAddress));
            assert_eq!(seek(store, store.root(), 0, what), Err(Status::IsDirectory));
        }
        write(store, object, end - 5, b"last");
        let (hole, eof) = seek(store, object, end - 5, Seek::Hole).unwrap();
        assert_eq!((hole, eof), (end, true), "the end counts as a hole");
    });
}

#[test]
fn allocated_space_is_there_and_reads_as_zeros() {
    each(|store| {
        let object = file(store, "f");
        write(store, object, 2 * PAGE + 10, b"data");
        let (effect, allocated) = store.allocate(me(), object, 100, 8 * PAGE);
        allocated.unwrap();
        assert!(effect.before.unwrap().change < effect.after.unwrap().change);
        assert_eq!(effect.after.unwrap().size, 8 * PAGE + 100, "the file is longer");
        assert!(used(store, object) >= 8 * PAGE);
        let mut expected = vec![0; 8 * PAGE as usize + 100];
        expected[2 * PAGE as usize + 10..][..4].copy_from_slice(b"data");
        assert!(read(store, object) == expected);
        store.allocate(me(), object, 0, 10).1.unwrap();
        assert_eq!(size(store, object), 8 * PAGE + 100, "it is not made shorter");
        assert_eq!(store.allocate(me(), object, 0, 0).1, Err(Status::Invalid));
        assert_eq!(store.allocate(me(), object, u64::MAX, 5).1, Err(Status::FileTooBig));
        assert_eq!(store.allocate(me(), object, u64::MAX - 9, 5).1, Err(Status::FileTooBig));
        assert_eq!(store.allocate(me(), object, 1 << 62, 1 << 62).1, Err(Status::FileTooBig));
        assert_eq!(store.allocate(me(), store.root(), 0, 1).1, Err(Status::IsDirectory));
    });
}

#[test]
fn a_deallocated_range_is_zero_and_its_space_is_free() {
    each(|store| {
        let object = file(store, "f");
        let mut expected = content(40 * PAGE + 77, 3);
        write(store, object, 0, &expected);
        store.commit(object, 0, 0, Wait::Allowed).unwrap().1.unwrap();
        let full = used(store, object);
        for (offset, len) in
            [(PAGE + 5, 20 * PAGE), (3, 10), (30 * PAGE, PAGE), (39 * PAGE, u64::from(u32::MAX))]
        {
            let (effect, result) = store.deallocate(me(), object, offset, len);
            result.unwrap();
            assert!(effect.before.unwrap().change < effect.after.unwrap().change);
            let end = ((offset + len) as usize).min(expected.len());
            expected[offset as usize..end].fill(0);
            assert!(read(store, object) == expected);
        }
        assert_eq!(size(store, object), 40 * PAGE + 77);
        assert!(used(store, object) <= full - 20 * PAGE);
        assert_eq!(seek(store, object, 39 * PAGE, Seek::Data), Ok((40 * PAGE + 77, true)));
        store.deallocate(me(), object, 1 << 40, 1 << 40).1.unwrap();
        store.deallocate(me(), object, u64::MAX - 9, 5).1.unwrap();
        assert_eq!(size(store, object), 40 * PAGE + 77, "beyond the end there is nothing");
        assert_eq!(store.deallocate(me(), object, 0, 0).1, Err(Status::Invalid));
        assert_eq!(store.deallocate(me(), object, u64::MAX, 5).1, Err(Status::Invalid));
    });
}

#[test]
fn a_memory_store_allocates_all_or_nothing_however_large_the_range() {
    let store = MemStore::new(1 << 20, me().uid, me().gid);
    let object = file(&store, "f");
    write(&store, object, 5 * PAGE, b"data");
    let before = store.statistics().bytes_used;
    for len in [2 << 20, 1 << 40, i64::MAX as u64] {
        assert_eq!(store.allocate(me(), object, 0, len).1, Err(Status::NoSpace));
        assert_eq!(store.statistics().bytes_used, before);
    }
    // About what is free: the tables have no room any more.
    assert_eq!(store.allocate(me(), object, 0, store.space().free_bytes + PAGE).1, Err(Status::NoSpace));
    assert!(store.statistics().bytes_used <= before + PAGE, "the file's own table may have grown");
    assert_eq!(used(&store, object), PAGE);
    assert_eq!(size(&store, object), 5 * PAGE + 4);
    store.allocate(me(), object, 0, 512 << 10).1.unwrap();
    assert_eq!(used(&store, object), 512 << 10);
    // A hole in a sparse file of the largest size takes no time.
    truncate(&store, object, i64::MAX as u64);
    store.deallocate(me(), object, 0, i64::MAX as u64).1.unwrap();
    assert_eq!(used(&store, object), 0);
    store.remove(me(), store.root(), b"f").1.unwrap();
    assert_eq!(store.statistics(), MemStore::new(1 << 20, me().uid, me().gid).statistics());
}

/// Whether `seen` happens while `act` runs, which is repeated until it does.
fn happens_meanwhile(act: impl Fn() + Sync, seen: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let is_over = AtomicBool::new(false);
        let was_seen = std::thread::scope(|scope| {
            scope.spawn(|| {
                act();
                is_over.store(true, Ordering::Release);
            });
            let mut was_seen = false;
            while !is_over.load(Ordering::Acquire) {
                was_seen |= seen();
            }
            was_seen
        });
        if was_seen {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "nothing happens meanwhile");
    }
}

#[test]
fn a_file_in_memory_is_used_while_a_long_range_of_it_is_allocated_and_freed() {
    const LEN: u64 = 128 << 20;
    let store = MemStore::new(256 << 20, me().uid, me().gid);
    let object = file(&store, "f");
    let writes = AtomicU64::new(0);
    let allocate = || {
        truncate(&store, object, 0);
        store.allocate(me(), object, 0, LEN).1.unwrap();
        assert_eq!((size(&store, object), used(&store, object)), (LEN, LEN));
    };
    happens_meanwhile(allocate, || {
        let size = size(&store, object);
        // What is written where zeros are about to be put stays.
        if (PAGE..LEN / 2).contains(&size) {
            write(&store, object, LEN / 2 + 7, b"data");
            writes.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        false
    });
    assert!(writes.load(Ordering::Relaxed) > 0);
    assert_eq!(read(&store, object)[LEN as usize / 2 + 7..][..4], *b"data");
    let free = || {
        store.allocate(me(), object, 0, LEN).1.unwrap();
        store.deallocate(me(), object, 0, LEN).1.unwrap();
        assert_eq!((size(&store, object), used(&store, object)), (LEN, 0));
    };
    happens_meanwhile(free, || {
        // The beginning is a hole already, and the end is not yet one.
        let data = seek(&store, object, 0, Seek::Data).unwrap().0;
        data > 0 && data < LEN
    });
}

#[test]
fn an_allocation_that_fails_leaves_what_others_wrote_meanwhile() {
    const LEN: u64 = 64 << 20;
    let store = MemStore::new(LEN + (8 << 20), me().uid, me().gid);
    let (object, other) = (file(&store, "f"), file(&store, "g"));
    let marks = std::sync::Mutex::new(Vec::new());
    // Another file takes the space in the middle of the allocation.
    let allocate = || {
        marks.lock().unwrap().clear();
        truncate(&store, object, 0);
        truncate(&store, other, 0);
        let allocated = store.allocate(me(), object, 0, LEN).1;
        let marks = marks.lock().unwrap();
        if let Err(error) = allocated {
            assert_eq!(error, Status::NoSpace);
            assert!(marks.is_empty() || size(&store, object) > *marks.last().unwrap());
        }
        let now = read(&store, object);
        for at in marks.iter() {
            assert_eq!(now[*at as usize..][..4], *b"mark");
        }
    };
    let space = content(16 << 20, 1);
    happens_meanwhile(allocate, || {
        let size = size(&store, object);
        if !(1..LEN / 2).contains(&size) || self::size(&store, other) > 0 {
            return false;
        }
        let mut marks = marks.lock().unwrap();
        let at = size / 2;
        write(&store, object, at, b"mark");
        marks.push(at);
        let taken = store.write(me(), other, 0, &space, Stability::Unstable, Wait::Allowed).unwrap().1;
        // The allocation may have had the space first.
        assert!(matches!(taken, Ok(_) | Err(Status::NoSpace)), "{taken:?}");
        taken.is_ok()
    });
    // Without others everything is taken back.
    truncate(&store, object, 0);
    write(&store, object, 0, b"data");
    let before = store.attributes(object, Wait::Allowed).unwrap().unwrap();
    let (effect, allocated) = store.allocate(me(), object, 0, LEN);
    assert_eq!(allocated, Err(Status::NoSpace));
    assert!(effect.atomic);
    let after = store.attributes(object, Wait::Allowed).unwrap().unwrap();
    assert_eq!((after.size, after.used, after.mtime), (before.size, before.used, before.mtime));
}

#[test]
fn a_hole_leaves_what_was_read_before() {
    let store = MemStore::new(64 << 20, me().uid, me().gid);
    let object = file(&store, "f");
    let data = content(3 * KIB64, 1);
    write(&store, object, 0, &data);
    let mut segments = SmallVec::new();
    store.read(me(), object, 0, u32::MAX, &mut segments, Wait::Allowed).unwrap().unwrap();
    store.deallocate(me(), object, 10, 2 * KIB64).1.unwrap();
    let held: Vec<u8> = segments.iter().flat_map(|segment| segment.as_bytes().unwrap().to_vec()).collect();
    assert!(held == data);
    assert!(read(&store, object)[10..][..2 * KIB64 as usize].iter().all(|byte| *byte == 0));
}

#[test]
fn a_copy_ends_where_its_source_does() {
    each(|store| {
        let (from, to) = (file(store, "f"), file(store, "g"));
        let data = content(3 << 20, 5);
        write(store, from, 0, &data);
        assert_eq!(copy(store, (from, 0), (to, 10), 4 << 20), Ok(3 << 20));
        let copied = read(store, to);
        assert!(copied[..10].iter().all(|byte| *byte == 0) && copied[10..] == data);
        assert_eq!(copy(store, (from, 100), (to, 0), 50), Ok(50));
        assert!(read(store, to)[..50] == data[100..150]);
        assert_eq!(copy(store, (from, 3 << 20), (to, 0), 50), Ok(0), "at the end");
        assert_eq!(copy(store, (from, 5 << 20), (to, 0), 50), Ok(0), "beyond the end");
        // Within one file.
        assert_eq!(copy(store, (to, 0), (to, 1 << 20), 1 << 20), Ok(1 << 20));
        let expected = read(store, to);
        assert!(expected[..1 << 20] == expected[1 << 20..2 << 20]);
        assert_eq!(copy(store, (to, 0), (to, 49), 50), Err(Status::Invalid));
        assert_eq!(store.copy(me(), (store.root(), 0), (to, 0), 5).1, Err(Status::IsDirectory));
        assert_eq!(store.copy(me(), (from, 0), (store.root(), 0), 5).1, Err(Status::IsDirectory));
        assert_eq!(store.copy(me(), (from, 0), (to, i64::MAX as u64), 5).1, Err(Status::FileTooBig));
    });
}

#[test]
fn a_copy_into_a_full_memory_store_tells_what_was_copied() {
    let store = MemStore::new(4 << 20, me().uid, me().gid);
    let (from, to) = (file(&store, "f"), file(&store, "g"));
    write(&store, from, 0, &content(5 << 19, 1));
    let copied = copy(&store, (from, 0), (to, 0), 5 << 19).unwrap();
    assert!(copied > 0 && copied < 5 << 19, "{copied}");
    let (source, target) = (read(&store, from), read(&store, to));
    assert!(target[..] == source[..copied as usize]);
    assert_eq!(
        copy(&store, (from, u64::from(copied)), (to, u64::from(copied)), 5 << 19),
        Err(Status::NoSpace)
    );
}

/// What callers with other rights may do, on a store that acts as each of them.
fn check_rights(store: &dyn Store) {
    let owner = SetAttributes { uid: Some(ANN.uid), gid: Some(ANN.gid), ..SetAttributes::default() };
    let (object, other) = (file(store, "f"), file(store, "g"));
    write(store, object, 0, &content(PAGE, 1));
    for file in [object, other] {
        store.set_attributes(me(), file, &owner, None).1.unwrap();
    }
    store.allocate(ANN, object, 0, PAGE).1.unwrap();
    store.deallocate(ANN, object, 0, 5).1.unwrap();
    store.copy(ANN, (object, 0), (other, 0), 5).1.unwrap();
    store.seek(BOB, object, 0, Seek::Data).unwrap();
    assert_eq!(store.allocate(BOB, object, 0, PAGE).1, Err(Status::Access));
    assert_eq!(store.deallocate(BOB, object, 0, 5).1, Err(Status::Access));
    assert_eq!(store.copy(BOB, (object, 0), (other, 0), 5).1, Err(Status::Access));
    let secret = SetAttributes { mode: Some(0o200), ..SetAttributes::default() };
    store.set_attributes(me(), object, &secret, None).1.unwrap();
    assert_eq!(store.seek(BOB, object, 0, Seek::Data), Err(Status::Access));
    let open = SetAttributes { mode: Some(0o666), ..SetAttributes::default() };
    store.set_attributes(me(), other, &open, None).1.unwrap();
    assert_eq!(store.copy(BOB, (object, 0), (other, 0), 5).1, Err(Status::Access), "the source");
    assert!(store.copy(BOB, (other, 0), (other, 10), 5).1.is_ok());
}

#[test]
fn the_rights_to_read_and_write_decide() {
    check_rights(&MemStore::new(64 << 20, me().uid, me().gid));
    if me().uid != 0 {
        eprintln!("skipped: only root acts as callers");
        return;
    }
    for home in [Home::new(), Home::in_place(std::env::temp_dir())] {
        check_rights(&home.open());
    }
}

#[test]
fn a_clone_shares_blocks_or_is_not_supported() {
    each(|store| {
        let (from, to) = (file(store, "f"), file(store, "g"));
        let data = content(4 * KIB64, 5);
        write(store, from, 0, &data);
        let cloned = store.clone_range(me(), (from, 0), (to, 0), 0);
        match store.capabilities().clone_block_bytes {
            0 => assert_eq!(cloned.1, Err(Status::NotSupported)),
            block => {
                cloned.1.unwrap();
                assert!(read(store, to) == data);
                assert_eq!(store.clone_range(me(), (from, 1), (to, 0), block.into()).1, Err(Status::Invalid));
            }
        }
    });
}

#[derive(Debug, Clone)]
enum Step {
    Write { file: usize, offset: u32, len: u32, seed: u8 },
    Truncate { file: usize, size: u32 },
    Allocate { file: usize, offset: u32, len: u32 },
    Deallocate { file: usize, offset: u32, len: u32 },
    Copy { from: usize, source: u32, to: usize, target: u32, count: u32 },
    Seek { file: usize, offset: u32 },
}

fn offset() -> impl Strategy<Value = u32> {
    // Near the boundaries of pages, extents and leaves, and anywhere else.
    let border = prop_oneof![Just(0_u32), 0..80_u32, Just(1024), 1020..1030_u32];
    prop_oneof![
        (border, 0..40_u32).prop_map(|(page, by)| (page * 4096 + by).saturating_sub(20)),
        0..300_000_u32
    ]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![Just(4096_u32), Just(65536), 1..200_u32, 4000..4200_u32, 1..150_000_u32]
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..2_usize;
    prop_oneof![
        4 => (file.clone(), offset(), length(), any::<u8>())
            .prop_map(|(file, offset, len, seed)| Step::Write { file, offset, len, seed }),
        1 => (file.clone(), offset()).prop_map(|(file, size)| Step::Truncate { file, size }),
        2 => (file.clone(), offset(), length())
            .prop_map(|(file, offset, len)| Step::Allocate { file, offset, len }),
        3 => (file.clone(), offset(), length())
            .prop_map(|(file, offset, len)| Step::Deallocate { file, offset, len }),
        3 => (file.clone(), offset(), file.clone(), offset(), length())
            .prop_map(|(from, source, to, target, count)| Step::Copy { from, source, to, target, count }),
        2 => (file, offset()).prop_map(|(file, offset)| Step::Seek { file, offset }),
    ]
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

fn check(store: &dyn Store, steps: &[Step]) {
    let objects = [file(store, "f"), file(store, "g")];
    let mut model = [Vec::new(), Vec::new()];
    for step in steps {
        match *step {
            Step::Write { file, offset, len, seed } => {
                let data = content(len.into(), seed);
                write(store, objects[file], offset.into(), &data);
                put(&mut model[file], offset as usize, &data);
            }
            Step::Truncate { file, size } => {
                truncate(store, objects[file], size.into());
                model[file].resize(size as usize, 0);
            }
            Step::Allocate { file, offset, len } => {
                store.allocate(me(), objects[file], offset.into(), len.into()).1.unwrap();
                let end = (offset + len) as usize;
                let longer = model[file].len().max(end);
                model[file].resize(longer, 0);
                let mut at = u64::from(offset);
                // No hole is left in the range.
                while let Ok((hole, _)) = seek(store, objects[file], at, Seek::Hole) {
                    if hole >= end as u64 {
                        break;
                    }
                    // A file system may count allocated space without data as a hole.
                    assert!(store.may_block(), "a hole at {hole} before {end}");
                    at = hole + PAGE;
                }
            }
            Step::Deallocate { file, offset, len } => {
                store.deallocate(me(), objects[file], offset.into(), len.into()).1.unwrap();
                let end = ((offset + len) as usize).min(model[file].len());
                if let Some(range) = model[file].get_mut(offset as usize..end) {
                    range.fill(0);
                }
            }
            Step::Copy { from, source, to, target, count } => {
                let copied = copy(store, (objects[from], source.into()), (objects[to], target.into()), count);
                if from == to && source.abs_diff(target) < count {
                    assert_eq!(copied, Err(Status::Invalid));
                    continue;
                }
                let start = (source as usize).min(model[from].len());
                let data = model[from]
                    [start..(source as usize + count as usize).min(model[from].len()).max(start)]
                    .to_vec();
                assert_eq!(copied, Ok(data.len() as u32));
                if !data.is_empty() {
                    put(&mut model[to], target as usize, &data);
                }
            }
            Step::Seek { file, offset } => check_seek(store, objects[file], &model[file], offset.into()),
        }
        for (object, bytes) in objects.into_iter().zip(&model) {
            assert!(read(store, object) == *bytes, "content differs after {step:?}");
        }
    }
}

/// What is found fits the bytes: a hole is zero, and what is not zero is data.
fn check_seek(store: &dyn Store, object: ObjectId, bytes: &[u8], offset: u64) {
    let size = bytes.len() as u64;
    if offset >= size {
        assert_eq!(seek(store, object, offset, Seek::Data), Err(Status::NoAddress));
        return;
    }
    let (data, none) = seek(store, object, offset, Seek::Data).unwrap();
    assert!(data >= offset && none == (data == size));
    assert!(bytes[offset as usize..data as usize].iter().all(|byte| *byte == 0));
    let (hole, end) = seek(store, object, offset, Seek::Hole).unwrap();
    assert!(hole >= offset && end == (hole == size));
    assert!(hole == offset || data == offset, "it begins with either");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_memory_store_does_what_bytes_do(steps in proptest::collection::vec(step(), 1..50)) {
        let store = MemStore::new(64 << 20, me().uid, me().gid);
        let empty = store.statistics();
        check(&store, &steps);
        for name in ["f", "g"] {
            store.remove(me(), store.root(), name.as_bytes()).1.unwrap();
        }
        assert_eq!(store.statistics(), empty);
    }

    #[test]
    fn a_directory_in_memory_does_what_bytes_do(steps in proptest::collection::vec(step(), 1..50)) {
        check(&Home::new().open(), &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_directory_on_disk_does_what_bytes_do(steps in proptest::collection::vec(step(), 1..30)) {
        check(&Home::in_place(std::env::temp_dir()).open(), &steps);
    }
}
