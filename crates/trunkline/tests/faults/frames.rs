//! Tests a network of single ordinary frames: the data of a READ then arrive in so many pieces that
//! a pipe may not hold them.

use super::history::Store;
use super::testbed::{FaultTestbed, Origin};
use rustix::fs::OFlags;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const MIB: usize = 1 << 20;
/// An Ethernet frame with its header.
const FRAME_BYTES_MAX: u64 = 1514;
/// The capacity of a pipe of 256 pages, with a piece in each, and of one of 1,024 pages.
const ROOM_BYTES: usize = 256 * 4096;
const LARGE_ROOM_BYTES: usize = 1024 * 4096;

#[test]
fn direct_reads_from_single_ordinary_frames_are_complete_in_a_mounted_directory() {
    // On its own thread, which moves to the namespace of the client.
    let read = std::thread::spawn(|| {
        let testbed = FaultTestbed::build(Store::Whole);
        testbed.send_single_frames();
        let place = tempfile::tempdir().expect("made");
        let mounted = testbed.mounted_at(place.path(), Origin::Anywhere);
        let data: Vec<u8> = (0..12 * MIB + 5000).map(|at| (at / 7) as u8 ^ (at >> 11) as u8).collect();
        let path = mounted.path("f");
        fs::write(&path, &data).expect("written");
        let before = testbed.received();
        let mut direct = OpenOptions::new();
        let file = direct.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path).expect("opened");
        for (at, len) in [(0, 128 << 10), (4096, 300 << 10), (MIB, MIB), (3 * MIB + 512, 3 * MIB)] {
            // Twice: data that do not fit into their pipe continue in memory, and the next read
            // uses a larger pipe or none.
            for _ in 0..2 {
                let mut seen = vec![0; len];
                file.read_exact_at(&mut seen, at as u64).expect("read");
                assert!(seen == data[at..at + len], "{len} bytes at {at}");
            }
        }
        let rooms = mounted.rooms_of_pipes();
        assert!(fs::read(&path).expect("read") == data);
        let rooms_at_end = mounted.rooms_of_pipes();
        if has_large_pipes() {
            assert!(
                rooms.contains(&LARGE_ROOM_BYTES) && !rooms_at_end.contains(&ROOM_BYTES),
                "{rooms_at_end:?}"
            );
        } else {
            // Reads stop using pipes that are too small: even the longest read uses none of them.
            let [few, at_end] =
                [&rooms, &rooms_at_end].map(|rooms| rooms.iter().filter(|room| **room == ROOM_BYTES).count());
            assert!((1..=2).contains(&few) && at_end == few, "{rooms:?} and {rooms_at_end:?}");
        }
        let (bytes, frames) = testbed.received();
        let (bytes, frames) = (bytes - before.0, frames - before.1);
        assert!(bytes > data.len() as u64 && bytes / frames <= FRAME_BYTES_MAX, "{bytes} in {frames} frames");
        assert!(!mounted.process.all_output().contains("ERROR"), "{}", mounted.process.all_output());
    });
    read.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Whether the system permits this process, and so the mount, to have pipes of 1,024 pages.
fn has_large_pipes() -> bool {
    let (_from, into) = rustix::pipe::pipe().expect("made");
    rustix::pipe::fcntl_setpipe_size(into, LARGE_ROOM_BYTES).is_ok()
}
