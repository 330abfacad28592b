//! Tests requirements of RFC 1813 on single operations, and operations that the store answers
//! without waiting.

use crate::again::as_root_and_not;
use crate::fixture::{Home, ROOT, file, is_tmpfs, look, mode, read, size, write};
use smallvec::SmallVec;
use std::time::{Duration, Instant};
use store::{
    CreateMode, DirStore, NewObject, ObjectId, Rights, SetAttributes, SetTime, Special, Stability, Status,
    Store, Time, Wait,
};

#[test]
fn an_exclusive_create_repeated_after_a_restart_finds_its_file() {
    // RFC 1813 s3.3.8
    as_root_and_not("semantics::an_exclusive_create_repeated_after_a_restart_finds_its_file", || {
        let home = Home::in_place(std::env::temp_dir());
        let new = NewObject::File(CreateMode::Exclusive([0xff, 1, 2, 3, 0xfe, 5, 6, 7]));
        let store = home.open();
        let made = store.create(ROOT, store.root(), b"f", new).1.unwrap();
        drop(store);
        let store = home.open();
        assert_eq!(store.create(ROOT, store.root(), b"f", new).1.unwrap().object, made.object);
        let other = NewObject::File(CreateMode::Exclusive([0xff, 1, 2, 3, 0xfe, 5, 6, 8]));
        assert_eq!(store.create(ROOT, store.root(), b"f", other).1, Err(Status::Exists));
        let times = SetAttributes { atime: SetTime::Now, mtime: SetTime::Now, ..mode(0o644) };
        store.set_attributes(ROOT, made.object, &times, None).1.unwrap();
        write(&store, ROOT, made.object, b"in use").unwrap();
        assert_eq!(store.create(ROOT, store.root(), b"f", new).1, Err(Status::Exists));
    });
}

#[test]
fn the_largest_file_is_as_large_as_the_file_system_beneath_permits() {
    as_root_and_not("semantics::the_largest_file_is_as_large_as_the_file_system_beneath_permits", || {
        // Usually not in memory, where files may be as large as offsets permit.
        let home = Home::in_place(std::env::temp_dir());
        let store = home.open();
        let largest = store.capabilities().file_bytes_max;
        let made = file(&store, ROOT, store.root(), "large", 0o644);
        let resize = |bytes| store.set_attributes(ROOT, made, &size(bytes), None).1;
        let write_at = |offset| {
            store.write(ROOT, made, offset, b"x", Stability::Unstable, Wait::Allowed).unwrap().1.map(drop)
        };
        assert_eq!(resize(largest), Ok(()));
        assert_eq!(
            (resize(largest + 1), write_at(largest)),
            (Err(Status::FileTooBig), Err(Status::FileTooBig))
        );
    });
}

#[test]
fn a_sparse_file_uses_little_space() {
    as_root_and_not("semantics::a_sparse_file_uses_little_space", || {
        let home = Home::new();
        let store = home.open();
        let made = file(&store, ROOT, store.root(), "sparse", 0o644);
        store.write(ROOT, made, 1 << 30, b"end", Stability::Unstable, Wait::Allowed).unwrap().1.unwrap();
        store.set_attributes(ROOT, made, &size(1 << 40), None).1.unwrap();
        let found = store.attributes(made, Wait::Allowed).unwrap().unwrap();
        assert_eq!(found.size, 1 << 40);
        assert!(found.used < 1 << 20, "{} bytes in use", found.used);
        let mut segments = SmallVec::new();
        let end = store.read(ROOT, made, (1 << 30) - 5, 8, &mut segments, Wait::Allowed).unwrap().unwrap();
        assert_eq!((segments[0].as_bytes().unwrap(), end.eof), (&b"\0\0\0\0\0end"[..], false));
        let beyond =
            store.write(ROOT, made, u64::MAX - 1, b"far", Stability::Unstable, Wait::Allowed).unwrap().1;
        assert_eq!(beyond, Err(Status::FileTooBig));
    });
}

#[test]
fn attributes_before_and_after_a_change_are_returned_and_a_guard_is_checked() {
    // RFC 1813 s2.6, s3.3.2
    as_root_and_not(
        "semantics::attributes_before_and_after_a_change_are_returned_and_a_guard_is_checked",
        || {
            let home = Home::new();
            let store = home.open();
            let made = file(&store, ROOT, store.root(), "f", 0o644);
            let before = store.attributes(made, Wait::Allowed).unwrap().unwrap();
            let (change, result) =
                store.write(ROOT, made, 0, b"12345", Stability::DataSync, Wait::Allowed).unwrap();
            assert_eq!(result.unwrap().committed, Stability::DataSync);
            let (was, is) = (change.before.unwrap(), change.after.unwrap());
            assert_eq!((was.size, was.ctime), (0, before.ctime));
            assert_eq!((is.size, is), (5, store.attributes(made, Wait::Allowed).unwrap().unwrap()));
            let never = Time { seconds: 1, nanoseconds: 1 };
            assert_eq!(store.set_attributes(ROOT, made, &size(0), Some(never)).1, Err(Status::NotSync));
            assert_eq!(store.set_attributes(ROOT, made, &size(0), Some(is.ctime)).1, Ok(()));
            let (change, result) =
                store.create(ROOT, store.root(), b"f", NewObject::File(CreateMode::Guarded(mode(0))));
            assert_eq!(result, Err(Status::Exists));
            assert!(change.before.is_some() && change.after.is_some(), "on failure too");
        },
    );
}

#[test]
fn a_time_before_1970_is_returned_as_it_was_set() {
    let name = "semantics::a_time_before_1970_is_returned_as_it_was_set";
    as_root_and_not(name, || {
        let home = Home::in_place(std::env::temp_dir());
        let store = home.open();
        let made = file(&store, ROOT, store.root(), "f", 0o644);
        // File systems support times up to different years; all support these.
        for to in [Time { seconds: -5, nanoseconds: 0 }, Time { seconds: 951_782_400, nanoseconds: 0 }] {
            let times = SetAttributes { mtime: SetTime::To(to), ..SetAttributes::default() };
            store.set_attributes(ROOT, made, &times, None).1.unwrap();
            assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().mtime, to);
        }
    });
}

#[test]
fn only_files_are_read_and_an_unchecked_create_opens_an_existing_file() {
    as_root_and_not("semantics::only_files_are_read_and_an_unchecked_create_opens_an_existing_file", || {
        let home = Home::new();
        let store = home.open();
        let root = store.root();
        assert_eq!(read(&store, ROOT, root), Err(Status::IsDirectory));
        // Opening a pipe would block the thread until another process opens the pipe too.
        let pipe = store.create(ROOT, root, b"p", NewObject::Special(mode(0o600), Special::Fifo)).1.unwrap();
        assert_eq!(read(&store, ROOT, pipe.object), Err(Status::Invalid));
        assert_eq!(store.commit(pipe.object, 0, 0, Wait::Allowed).unwrap().1, Err(Status::Invalid));
        assert_eq!(store.set_attributes(ROOT, pipe.object, &mode(0o640), None).1, Ok(()));
        let made = file(&store, ROOT, root, "f", 0o600);
        write(&store, ROOT, made, b"content").unwrap();
        let set = SetAttributes { size: Some(3), ..mode(0o777) };
        let met = store.create(ROOT, root, b"f", NewObject::File(CreateMode::Unchecked(set))).1.unwrap();
        assert_eq!((met.object, met.attributes.size, met.attributes.mode), (made, 3, 0o600));
    });
}

fn read_now(store: &DirStore, object: ObjectId) -> Option<Vec<u8>> {
    let mut segments: SmallVec<[store::Segment; 1]> = SmallVec::new();
    store.read(ROOT, object, 0, 100, &mut segments, Wait::Refused(None)).ok()?.unwrap();
    Some(segments.iter().flat_map(|segment| segment.as_bytes().unwrap().to_vec()).collect())
}

/// Runs all operations with permission to wait, and then without. Returns whether all of the second
/// run were answered; checks the results.
fn all_now(store: &DirStore, made: ObjectId) -> bool {
    let root = store.root();
    assert_eq!(look(store, root, "f").unwrap().object, made);
    assert_eq!(read(store, ROOT, made).unwrap(), b"content");
    assert_eq!(store.access(ROOT, made, Rights(1), Wait::Allowed).unwrap().unwrap().0, Rights(1));
    let Ok(attributes) = store.attributes(made, Wait::Refused(None)) else { return false };
    assert_eq!(attributes.unwrap(), store.attributes(made, Wait::Allowed).unwrap().unwrap());
    let Some(bytes) = read_now(store, made) else { return false };
    assert_eq!(bytes, b"content");
    let Ok(rights) = store.access(ROOT, made, Rights(1), Wait::Refused(None)) else { return false };
    assert_eq!(rights.unwrap().0, Rights(1));
    let Ok((of_root, found)) = store.lookup(ROOT, root, b"f", Wait::Refused(None)) else { return false };
    assert_eq!((of_root.unwrap().fileid, found.unwrap().object), (root.fileid, made));
    true
}

#[test]
fn only_open_objects_are_answered_without_waiting() {
    as_root_and_not("semantics::only_open_objects_are_answered_without_waiting", || {
        let home = Home::new();
        let store = home.open();
        let root = store.root();
        let made = file(&store, ROOT, root, "f", 0o644);
        write(&store, ROOT, made, b"content").unwrap();
        drop(store);
        let store = home.open();
        assert!(store.attributes(made, Wait::Refused(None)).is_err() && read_now(&store, made).is_none());
        assert!(store.lookup(ROOT, root, b"f", Wait::Refused(None)).is_err());
        // Cached results are valid for a second or two, which may pass on a busy machine; then the
        // test tries again.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !all_now(&store, made) {
            assert!(Instant::now() < deadline, "never answered without waiting");
        }
        std::fs::remove_file(home.path("f")).unwrap();
        assert!(matches!(store.attributes(made, Wait::Refused(None)).ok(), None | Some(Err(Status::Stale))));
        assert!(read_now(&store, made).is_none());
    });
}

#[test]
fn a_receive_buffer_is_written_or_returned() {
    as_root_and_not("semantics::a_receive_buffer_is_written_or_returned", || {
        let home = Home::new();
        let store = home.open();
        let made = file(&store, ROOT, store.root(), "f", 0o644);
        let fill = |offset| {
            let mut receive_buffer = store.receive_buffer(offset, 3).unwrap();
            let mut slices = SmallVec::new();
            receive_buffer.unfilled(0, &mut slices);
            slices[0].copy_from_slice(b"abc");
            drop(slices);
            receive_buffer
        };
        store
            .write_received(ROOT, made, &mut Some(fill(0)), Stability::Unstable, Wait::Allowed)
            .unwrap()
            .1
            .unwrap();
        let mut receive_buffer = Some(fill(3));
        // The file is open, but the file system may not support writes without waiting.
        match store
            .write_received(ROOT, made, &mut receive_buffer, Stability::Unstable, Wait::Refused(None))
            .ok()
        {
            Some((_, written)) => assert_eq!((written.unwrap().count, receive_buffer.is_none()), (3, true)),
            None => {
                let receive_buffer = receive_buffer.take().expect("given back");
                store
                    .write_received(ROOT, made, &mut Some(receive_buffer), Stability::Unstable, Wait::Allowed)
                    .unwrap()
                    .1
                    .unwrap();
            }
        }
        let mut synced = Some(fill(6));
        // A sync must wait, except on a file system in memory, which has nothing to sync.
        if let Ok((_, written)) =
            store.write_received(ROOT, made, &mut synced, Stability::FileSync, Wait::Refused(None))
        {
            assert!(is_tmpfs(&home), "synced at once");
            assert_eq!(written.unwrap().committed, Stability::FileSync);
        } else {
            let receive_buffer = synced.take().expect("given back");
            store
                .write_received(ROOT, made, &mut Some(receive_buffer), Stability::FileSync, Wait::Allowed)
                .unwrap()
                .1
                .unwrap();
        }
        assert!(synced.is_none());
        assert_eq!(read(&store, ROOT, made).unwrap(), b"abcabcabc");
        assert!(store.receive_buffer(0, 0).is_none());
    });
}
