//! Tests the payloads that a loop sends: the pages of a file in memory themselves, which only the
//! kernel accesses.

use crate::again::as_root_and_not;
use crate::fixture::{Home, ROOT, file, is_tmpfs, read};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use store::{DirStore, ObjectId, ReceiveBatch, Rights, Segment, Stability, Store, Wait};

const BYTES: usize = 1 << 20;

type Segments = SmallVec<[Segment; 1]>;

fn data() -> Vec<u8> {
    (0..BYTES).map(|at| (at / 7 + at / 4096) as u8).collect()
}

/// A file with data in a store on a tmpfs; `None` where tests have no tmpfs.
fn filled(home: &Home) -> Option<(DirStore, ObjectId)> {
    if !is_tmpfs(home) {
        eprintln!("skipped: /dev/shm is no tmpfs");
        return None;
    }
    let store = home.open();
    let made = file(&store, ROOT, store.root(), "f", 0o600);
    let (_, written) = store.write(ROOT, made, 0, &data(), Stability::Unstable, Wait::Allowed).unwrap();
    assert_eq!(written.unwrap().count as usize, BYTES);
    // A worker opens and validates the file, and a loop then finds the file open. The worker of the
    // next reader would do the same.
    assert_eq!(read(&store, ROOT, made).unwrap(), data());
    Some((store, made))
}

/// Reads without waiting, as one of the calls of a batch. A validation is valid for two seconds, so
/// a worker may have to validate the file again; a refusal does not persist.
fn read_now(
    store: &DirStore,
    batch: Option<&ReceiveBatch>,
    object: ObjectId,
    offset: u64,
    count: u32,
) -> (Segments, bool) {
    loop {
        let mut segments = Segments::new();
        if let Ok(end) = store.read(ROOT, object, offset, count, &mut segments, Wait::Refused(batch)) {
            let end = end.unwrap();
            assert_eq!(end.count as usize, segments.iter().map(|segment| segment.len()).sum::<usize>());
            return (segments, end.eof);
        }
        store.access(ROOT, object, Rights(4), Wait::Allowed).unwrap().unwrap();
    }
}

/// What the kernel finds in the segments.
fn bytes(segments: &Segments) -> Vec<u8> {
    let mut gathered = tempfile::tempfile().unwrap();
    for segment in segments {
        assert_eq!(gathered.write_vectored(&[segment.for_kernel()]).unwrap(), segment.len());
    }
    let mut bytes = Vec::new();
    gathered.rewind().unwrap();
    gathered.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_loop_sends_the_pages_of_a_file_and_no_copy() {
    as_root_and_not("mapped::a_loop_sends_the_pages_of_a_file_and_no_copy", || {
        let home = Home::new();
        let Some((store, made)) = filled(&home) else { return };
        let batch = ReceiveBatch::default();
        let (whole, eof) = read_now(&store, Some(&batch), made, 0, BYTES as u32);
        assert!(eof);
        assert!(whole[0].as_bytes().is_none(), "nobody but the kernel may access them");
        assert!(whole[0].piece(None).is_none(), "nor may a device");
        assert_eq!(bytes(&whole), data());
        let (part, eof) = read_now(&store, Some(&batch), made, 5000, 10_001);
        assert!(!eof);
        assert_eq!(bytes(&part), data()[5000..15_001]);
        let (end, eof) = read_now(&store, Some(&batch), made, BYTES as u64 - 10, 4096);
        assert_eq!((bytes(&end), eof), (data()[BYTES - 10..].to_vec(), true));
        let (beyond, eof) = read_now(&store, Some(&batch), made, BYTES as u64 + 10, 4096);
        assert_eq!((beyond.len(), eof), (0, true));
        // The segment is the memory of the file, so later writes are visible in it.
        let beneath = std::fs::File::options().write(true).open(home.path("f")).unwrap();
        beneath.write_all_at(b"changed beneath", 5000).unwrap();
        assert!(bytes(&part).starts_with(b"changed beneath"));
        // The file grows beyond the mapping. The next receive detects that.
        beneath.write_all_at(&[9; 4096], BYTES as u64 * 2).unwrap();
        beneath.write_all_at(&vec![8; BYTES], BYTES as u64).unwrap();
        batch.renew();
        let (grown, eof) = read_now(&store, Some(&batch), made, BYTES as u64 * 2 - 1, 4097);
        assert_eq!((bytes(&grown), eof), ([&[8][..], &[9; 4096]].concat(), true));
        // The data that were read outlive the store.
        drop(store);
        assert_eq!(bytes(&whole)[..5000], data()[..5000]);
    });
}

#[test]
fn a_read_sees_a_write_of_the_same_batch() {
    as_root_and_not("mapped::a_read_sees_a_write_of_the_same_batch", || {
        let home = Home::new();
        let Some((store, made)) = filled(&home) else { return };
        let batch = ReceiveBatch::default();
        let end = BYTES as u64;
        assert_eq!(read_now(&store, Some(&batch), made, end, 10).0.len(), 0);
        let wait = Wait::Refused(Some(&batch));
        while store.write(ROOT, made, end, b"more", Stability::Unstable, wait).is_err() {
            store.access(ROOT, made, Rights(2), Wait::Allowed).unwrap().unwrap();
        }
        assert_eq!(bytes(&read_now(&store, Some(&batch), made, end, 10).0), b"more");
    });
}

#[test]
fn outside_a_receive_batch_a_read_returns_a_copy() {
    as_root_and_not("mapped::outside_a_receive_batch_a_read_returns_a_copy", || {
        let home = Home::new();
        let Some((store, made)) = filled(&home) else { return };
        let (part, _) = read_now(&store, None, made, 0, 4096);
        let beneath = std::fs::File::options().write(true).open(home.path("f")).unwrap();
        beneath.write_all_at(b"changed beneath", 0).unwrap();
        assert_eq!(part[0].as_bytes().unwrap(), &data()[..4096]);
    });
}

#[test]
fn reading_a_hole_allocates_no_pages() {
    as_root_and_not("mapped::reading_a_hole_allocates_no_pages", || {
        let home = Home::new();
        let Some((store, made)) = filled(&home) else { return };
        let beneath = std::fs::File::options().write(true).open(home.path("f")).unwrap();
        beneath.set_len(BYTES as u64 * 4).unwrap();
        let used = store.attributes(made, Wait::Allowed).unwrap().unwrap().used;
        let batch = ReceiveBatch::default();
        let (hole, _) = read_now(&store, Some(&batch), made, BYTES as u64 * 2, BYTES as u32);
        assert_eq!(bytes(&hole), vec![0; BYTES]);
        assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().used, used);
    });
}

#[test]
fn sending_pages_that_were_cut_off_fails_with_efault() {
    as_root_and_not("mapped::sending_pages_that_were_cut_off_fails_with_efault", || {
        let home = Home::new();
        let Some((store, made)) = filled(&home) else { return };
        let batch = ReceiveBatch::default();
        let (part, _) = read_now(&store, Some(&batch), made, 8192, 4096);
        std::fs::File::options().write(true).open(home.path("f")).unwrap().set_len(100).unwrap();
        let (mut to, _from) = UnixStream::pair().unwrap();
        let sent = to.write_vectored(&[part[0].for_kernel()]);
        assert_eq!(sent.unwrap_err().raw_os_error(), Some(Errno::FAULT.raw_os_error()));
    });
}

#[test]
fn a_commit_and_a_stable_write_do_not_wait_on_a_tmpfs() {
    as_root_and_not("mapped::a_commit_and_a_stable_write_do_not_wait_on_a_tmpfs", || {
        let home = Home::new();
        let Some((store, made)) = filled(&home) else { return };
        let (change, verifier) = loop {
            if let Ok(committed) = store.commit(made, 0, 0, Wait::Refused(None)) {
                break committed;
            }
            store.access(ROOT, made, Rights(4), Wait::Allowed).unwrap().unwrap();
        };
        assert_eq!(verifier, Ok(store.verifier()));
        assert_eq!(change.before.unwrap().size, change.after.unwrap().size);
        let written = loop {
            if let Ok((_, written)) =
                store.write(ROOT, made, 3, b"new", Stability::FileSync, Wait::Refused(None))
            {
                break written.unwrap();
            }
            store.access(ROOT, made, Rights(2), Wait::Allowed).unwrap().unwrap();
        };
        assert_eq!((written.count, written.committed), (3, Stability::FileSync));
        assert_eq!(std::fs::read(home.path("f")).unwrap()[3..6], *b"new");
        let directory = store.root();
        assert!(
            store.commit(directory, 0, 0, Wait::Refused(None)).is_err(),
            "left to a worker, which reports the error"
        );
    });
}

#[test]
fn a_thread_that_keeps_its_identity_leaves_writes_to_a_worker() {
    as_root_and_not("mapped::a_thread_that_keeps_its_identity_leaves_writes_to_a_worker", || {
        let home = Home::new();
        let Some((store, made)) = filled(&home) else { return };
        let write = || {
            store.access(ROOT, made, Rights(2), Wait::Allowed).unwrap().unwrap();
            store.write(ROOT, made, 0, b"new", Stability::Unstable, Wait::Refused(None)).ok()
        };
        let at_once = testkit::Deadline::wait_until("a write at once", Duration::from_secs(60), write);
        at_once.1.unwrap();
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| {
                store::keep_identity();
                write().is_none()
            });
            assert!(kept.join().unwrap());
        });
    });
}
