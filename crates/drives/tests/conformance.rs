//! Memory and files through the suite that every drive must pass, with io_uring and with workers;
//! and how files are opened. Devices are in `devices.rs`.

#[path = "conformance/suite.rs"]
mod suite;

use drives::{Choice, Drive, Engine, Error, Fault, How, Kind, Operation, Queue};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use suite::{ENGINES, Rig};
use tempfile::TempDir;
use testkit::Deadline;

/// Large enough for several transfers of the largest size.
const BYTES: u64 = 20 << 20;

/// A directory where the workspace is built: the system's may be without direct I/O.
fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn create(dir: &TempDir, bytes: u64, sparse: bool) -> (PathBuf, Drive) {
    let path = dir.path().join("drive.img");
    let drive = Drive::open(&path, How::Create { bytes, sparse }).unwrap();
    (path, drive)
}

#[test]
fn memory_does_what_a_drive_does() {
    let drive = Drive::memory(BYTES, BYTES);
    suite::all(&drive, 1);
    assert!(!drive.info().volatile_cache && !drive.info().persistent);
}

#[test]
fn a_file_does_what_a_drive_does() {
    let dir = directory();
    let (_, drive) = create(&dir, BYTES, false);
    suite::all(&drive, 2);
    assert!(drive.bounced_bytes() > 0, "unaligned payload was written");
    assert!(drive.info().volatile_cache, "what the file system notes is durable after a flush only");
}

#[test]
fn a_sparse_file_does_what_a_drive_does_and_gives_storage_back() {
    let dir = directory();
    let (path, drive) = create(&dir, BYTES, true);
    suite::all(&drive, 3);
    assert!(drive.info().discards, "the tests run on a file system with holes");
    Rig::new(&drive, Choice::Automatic).run(Operation::Discard { at: 0, bytes: BYTES }).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() * 512 < 1 << 20);
}

#[test]
fn a_full_memory_fails_a_write_and_takes_others() {
    for engine in ENGINES {
        let drive = Drive::memory(1 << 20, 64 << 10);
        let mut rig = Rig::new(&drive, engine);
        rig.write(0, &[1; 4096], false).unwrap();
        assert_eq!(rig.write(512 << 10, &[2; 4096], false), Err(Fault::NoSpace));
        rig.write(4096, &[3; 4096], false).unwrap();
        assert_eq!(rig.read(512 << 10, 512), Ok(vec![0; 512]));
        rig.run(Operation::Discard { at: 0, bytes: 64 << 10 }).unwrap();
        rig.write(512 << 10, &[2; 4096], false).unwrap();
    }
}

#[test]
fn a_file_that_became_shorter_fails_reads_and_nothing_hangs() {
    for engine in ENGINES {
        let dir = directory();
        let (path, drive) = create(&dir, 1 << 20, false);
        let mut rig = Rig::new(&drive, engine);
        rig.write(0, &[1; 8192], true).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert_eq!(rig.read(4096, 8192), Err(Fault::Gone));
        assert_eq!(rig.read(0, 8192), Err(Fault::Gone), "the end is within the range");
        assert_eq!(rig.read(0, 4096), Ok(vec![1; 4096]));
    }
}

#[test]
fn operations_of_several_drives_share_a_queue() {
    let dir = directory();
    let (_, file) = create(&dir, 1 << 20, false);
    let memory = Drive::memory(1 << 20, 1 << 20);
    for engine in ENGINES {
        let mut rig = Rig::new(&file, engine);
        rig.write(0, &[1; 512 * 8], false).unwrap();
        rig.drive = memory.clone();
        rig.write(0, &[2; 512 * 8], false).unwrap();
        let mut ends = Vec::new();
        rig.queue.submit(&file, 1, Operation::Read { at: 0, bytes: 4096 }).unwrap();
        rig.queue.submit(&memory, 2, Operation::Read { at: 0, bytes: 4096 }).unwrap();
        assert!(rig.queue.kick().unwrap(), "memory has completed at once");
        while ends.len() < 2 {
            rig.queue.reap(&mut ends);
        }
        for end in ends {
            assert_eq!(u64::from(end.result.unwrap()[0].as_bytes()[0]), end.tag);
        }
    }
}

#[test]
fn the_engine_is_reported() {
    let workers = Queue::new(1, Choice::Workers, Arc::default()).unwrap();
    assert_eq!(*workers.engine(), Engine::Workers { why: "workers were asked for".to_owned() });
    let chosen = Queue::new(1, Choice::Automatic, Arc::default()).unwrap();
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    if disabled.is_some_and(|disabled| disabled.trim() == "0") {
        assert_eq!(*chosen.engine(), Engine::Ring, "this machine permits it");
    }
}

#[test]
fn a_queue_is_woken_by_other_threads() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    for engine in ENGINES {
        let mut queue = Queue::new(1, engine, Arc::default()).unwrap();
        for _ in 0..3 {
            let ready = |queue: &Queue, tv_sec| {
                let limit = Timespec { tv_sec, tv_nsec: 0 };
                poll(&mut [PollFd::new(queue, PollFlags::IN)], Some(&limit)).unwrap()
            };
            assert_eq!(ready(&queue, 0), 0);
            let waker = queue.waker();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            assert_eq!(ready(&queue, 20), 1);
            queue.reap(&mut Vec::new());
        }
    }
}

#[test]
fn a_drive_has_one_opener_and_is_free_after_it() {
    let dir = directory();
    let (path, drive) = create(&dir, 1 << 20, false);
    let error = Drive::open(&path, How::Known).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }));
    assert!(error.to_string().starts_with(&format!("{} is locked", path.display())), "{error}");
    let second = drive.clone();
    drop(drive);
    assert!(matches!(Drive::open(&path, How::Known), Err(Error::Locked { .. })), "a clone is left");
    drop(second);
    let drive = Drive::open(&path, How::Known).unwrap();
    assert_eq!((drive.info().kind, drive.info().bytes), (Kind::File, 1 << 20));
}

#[test]
fn the_lock_outlives_the_drive_while_operations_are_left() {
    for engine in ENGINES {
        let dir = directory();
        let (path, drive) = create(&dir, 1 << 20, false);
        let mut rig = Rig::new(&drive, engine);
        let payload = rig.pieces(&[9; 4096], &[4096], 0);
        rig.queue.submit(&drive, 1, Operation::Write { at: 0, payload, durable: true }).unwrap();
        drop(rig.drive);
        drop(drive);
        let mut ends = Vec::new();
        rig.queue.kick().unwrap();
        while ends.is_empty() {
            rig.queue.reap(&mut ends);
        }
        assert!(ends[0].result.is_ok());
        // The kernel may need a moment to let go of the file of an operation that has completed.
        let opened = || Drive::open(&path, How::Known).ok();
        let drive = Deadline::wait_until("the lock", Duration::from_secs(20), opened);
        assert_eq!(Rig::new(&drive, engine).read(0, 4096), Ok(vec![9; 4096]));
    }
}

#[test]
fn what_cannot_be_a_drive_is_refused() {
    let dir = directory();
    let path = dir.path().join("file");
    fs::write(&path, [0; 5000]).unwrap();
    let open = |path: &Path, how| Drive::open(path, how).unwrap_err();
    let create = How::Create { bytes: 1 << 20, sparse: true };
    assert!(matches!(open(&path, create), Error::Exists { .. }));
    assert!(matches!(open(&path, How::Known), Error::Size { bytes: 5000, .. }));
    fs::write(&path, []).unwrap();
    assert!(matches!(open(&path, How::Adopt { force: true }), Error::Size { bytes: 0, .. }));
    assert!(matches!(open(dir.path(), How::Known), Error::NotADrive { .. }));
    assert!(matches!(open(Path::new("/dev/null"), How::Known), Error::NotADrive { .. }));
    assert!(matches!(open(&dir.path().join("none"), How::Known), Error::System { what: "find", .. }));
    let none = dir.path().join("none/file");
    assert!(matches!(open(&none, create), Error::System { what: "create", .. }));
}

#[test]
fn a_file_that_cannot_be_finished_is_not_left() {
    let dir = directory();
    let path = dir.path().join("drive.img");
    for bytes in [0, 1000] {
        let error = Drive::open(&path, How::Create { bytes, sparse: true }).unwrap_err();
        assert!(matches!(error, Error::Size { .. }), "{error}");
        assert!(!path.exists());
    }
    let error = Drive::open(&path, How::Create { bytes: 1 << 60, sparse: false }).unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_file_with_something_on_it_is_adopted_by_force_only() {
    let dir = directory();
    let path = dir.path().join("disk.img");
    let mut table = vec![0; 1 << 20];
    // A partition table with one entry.
    table[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 3, 0, 1, 0, 0, 0, 0, 4, 0, 0]);
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(&path, &table).unwrap();
    let error = Drive::open(&path, How::Adopt { force: false }).unwrap_err();
    let Error::Foreign { found, .. } = &error else { panic!("{error}; the tests need util-linux") };
    assert_eq!(found[0].kind, "dos");
    assert!(error.to_string().contains("is not empty: it has dos at 0x1fe"), "{error}");
    assert!(Drive::open(&path, How::Known).is_ok(), "what guests put on a drive of ours is theirs");
    let drive = Drive::open(&path, How::Adopt { force: true }).unwrap();
    let at = Operation::Zero { at: 0, bytes: 4096, deallocate: false, durable: true };
    Rig::new(&drive, Choice::Automatic).run(at).unwrap();
    drop(drive);
    assert!(Drive::open(&path, How::Adopt { force: false }).is_ok(), "it is empty now");
}

#[test]
fn a_file_with_data_that_nothing_recognizes_is_adopted_by_force_only() {
    let dir = directory();
    let path = dir.path().join("disk.img");
    let adopt = |force| Drive::open(&path, How::Adopt { force });
    let bytes = 8 << 20;
    // At the beginning, at the end, and where a sparse file first has data.
    for at in [4096, bytes - 1, bytes / 2 + 5000] {
        let file = fs::File::create(&path).unwrap();
        file.set_len(bytes).unwrap();
        file.sync_all().unwrap();
        drop(adopt(false).expect("a file without data is empty"));
        file.write_all_at(&[1], at).unwrap();
        file.sync_all().unwrap();
        let error = adopt(false).unwrap_err().to_string();
        assert!(error.contains(&format!("it has data that nothing recognizes at {at:#x}")), "{error}");
        drop(adopt(true).unwrap());
        drop(Drive::open(&path, How::Known).expect("a drive of ours has data"));
        file.write_all_at(&[0], at).unwrap();
        file.sync_all().unwrap();
        drop(adopt(false).expect("it is all zeroes"));
    }
    // Smaller than a sample.
    fs::write(&path, [vec![0; 4095], vec![7]].concat()).unwrap();
    assert!(adopt(false).unwrap_err().to_string().contains("at 0xfff"));
}
