//! A network of ordinary frames: what a READ brings is then in so many pieces that a pipe may have no room for them.

use super::ground::{Ground, NODES, PORT};
use super::history::Store;
use crate::mounts::{Mounted, PATIENCE};
use rustix::fs::OFlags;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use testkit::Process;

const MIB: usize = 1 << 20;
/// An Ethernet frame and its head.
const FRAME_BYTES_MAX: u64 = 1514;

#[test]
fn what_comes_in_ordinary_frames_is_read_whole_in_a_mounted_directory() {
    // In a thread of its own, which moves to the client's namespace.
    let read = std::thread::spawn(|| {
        let ground = Ground::build(Store::Whole);
        ground.send_single_frames();
        let place = tempfile::tempdir().expect("made");
        let nodes = ground.addresses();
        let remotes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        let options = format!("port={PORT},nconnect={NODES},nolock,remoteports={}", remotes.join("~"));
        let mut mount = ground.trunkline_beside();
        mount.args(["mount", "-f", &format!("{}:/export", nodes[0])]).arg(place.path());
        mount.args(["-o", &options]);
        let mounted = Mounted { process: Process::spawn(mount), directory: place.path().to_owned() };
        mounted.process.wait_for_line("mounted", PATIENCE);
        let data: Vec<u8> = (0..12 * MIB + 5000).map(|at| (at / 7) as u8 ^ (at >> 11) as u8).collect();
        let path = mounted.path("f");
        fs::write(&path, &data).expect("written");
        let before = ground.received();
        let mut direct = OpenOptions::new();
        let file = direct.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path).expect("opened");
        for (at, len) in [(0, 128 << 10), (4096, 300 << 10), (MIB, MIB), (3 * MIB + 512, 3 * MIB)] {
            // Twice: what had no room in its pipe goes through memory the next time.
            for _ in 0..2 {
                let mut seen = vec![0; len];
                file.read_exact_at(&mut seen, at as u64).expect("read");
                assert!(seen == data[at..at + len], "{len} bytes at {at}");
            }
        }
        assert!(fs::read(&path).expect("read") == data);
        let (bytes, frames) = ground.received();
        let (bytes, frames) = (bytes - before.0, frames - before.1);
        assert!(bytes > data.len() as u64 && bytes / frames <= FRAME_BYTES_MAX, "{bytes} in {frames} frames");
        assert!(!mounted.process.all_output().contains("WARN"), "{}", mounted.process.all_output());
    });
    read.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
