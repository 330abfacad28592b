//! Counts at the server how many bytes are fetched for each byte that programs read.

use crate::fixture::{Mounted, Server};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 16 << 20;
const BLOCK: u64 = 4 << 10;
const BLOCKS: u64 = FILE_BYTES / BLOCK;
/// A tolerance for what replies contain in addition to data, and for what the kernel reads around
/// the requested bytes.
const RATIO_MAX: f64 = 1.1;

fn content(block: u64) -> Vec<u8> {
    block.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// A server with a file, and a new mount that has nothing of the file in its caches.
fn served() -> (Server, Mounted) {
    let server = Server::start(1);
    let other = server.mount("other", "nolock");
    let file = File::create(other.path("f")).unwrap();
    (0..BLOCKS).for_each(|block| file.write_all_at(&content(block), block * BLOCK).unwrap());
    drop(file);
    let mount = server.mount("mnt", "nolock");
    (server, mount)
}

fn open(mount: &Mounted) -> File {
    OpenOptions::new().read(true).write(true).open(mount.path("f")).unwrap()
}

/// Reads a block that was not changed.
fn read(file: &File, block: u64) {
    let mut data = vec![0; BLOCK as usize];
    file.read_exact_at(&mut data, block * BLOCK).unwrap();
    assert!(data == content(block), "block {block}");
}

/// Reads a block, and writes back changed data.
fn change(file: &File, block: u64) {
    let mut data = vec![0; BLOCK as usize];
    file.read_exact_at(&mut data, block * BLOCK).unwrap();
    assert!(data == content(block), "block {block}");
    data.reverse();
    file.write_all_at(&data, block * BLOCK).unwrap();
}

/// How long read-ahead data are returned.
const AHEAD_AGE: Duration = Duration::from_secs(3);

/// The number of bytes fetched for each byte that `work` reads; `work` returns the latter. On a
/// machine so slow that read-ahead data expire, these are fetched once more each time, which does
/// not count.
fn ratio(server: &Server, work: impl FnOnce() -> u64) -> f64 {
    let before = server.sent_bytes("READ");
    let began = Instant::now();
    let read = work();
    let too_old = began.elapsed().div_duration_f64(AHEAD_AGE).floor();
    let ratio = (server.sent_bytes("READ") - before) / read as f64;
    println!("{ratio:.3} bytes fetched for each byte read");
    ratio - too_old
}

/// Each block once, in no order.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    // The factor is odd, so that each of a power of two of blocks is met.
    (0..count).map(|at| (at * 2_654_435_769 + 12_345) % BLOCKS)
}

#[test]
fn a_file_read_from_beginning_to_end_is_fetched_once() {
    let (server, mount) = served();
    let fetched = ratio(&server, || {
        let file = open(&mount);
        (0..BLOCKS).for_each(|block| read(&file, block));
        FILE_BYTES
    });
    assert!(fetched < RATIO_MAX, "{fetched}");
}

#[test]
fn random_reads_fetch_only_what_they_read() {
    let (server, mount) = served();
    let fetched = ratio(&server, || {
        let file = open(&mount);
        scattered(256).for_each(|block| read(&file, block));
        256 * BLOCK
    });
    assert!(fetched < RATIO_MAX, "{fetched}");
}

#[test]
fn a_file_whose_blocks_are_read_and_written_back_is_fetched_once() {
    let (server, mount) = served();
    let fetched = ratio(&server, || {
        let file = open(&mount);
        (0..BLOCKS).for_each(|block| change(&file, block));
        FILE_BYTES
    });
    assert!(fetched < RATIO_MAX, "{fetched}");
}

/// With this advice the kernel reads ahead twice as far, in two requests.
#[test]
fn sequential_advice_with_writes_between_the_reads_fetches_each_block_at_most_twice() {
    let (server, mount) = served();
    let fetched = ratio(&server, || {
        let file = open(&mount);
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential).unwrap();
        for block in 0..BLOCKS {
            read(&file, block);
            // Sometimes ahead of the reads, sometimes behind them. The written data are those that
            // the file had.
            let other = (block / 64 * 64 + (block * 37 + 20) % 128).min(BLOCKS - 1);
            file.write_all_at(&content(other), other * BLOCK).unwrap();
        }
        FILE_BYTES
    });
    assert!(fetched < 2.0 * RATIO_MAX, "{fetched}");
}

#[test]
fn random_blocks_read_and_written_back_are_fetched_once() {
    let (server, mount) = served();
    let fetched = ratio(&server, || {
        let file = open(&mount);
        scattered(256).for_each(|block| change(&file, block));
        256 * BLOCK
    });
    assert!(fetched < RATIO_MAX, "{fetched}");
}

#[test]
fn reads_with_gaps_or_backwards_cause_no_read_ahead() {
    let (server, mount) = served();
    let leaps = ratio(&server, || {
        let file = open(&mount);
        (0..BLOCKS / 16).for_each(|at| read(&file, at * 16));
        FILE_BYTES / 16
    });
    let mount = server.mount("again", "nolock");
    let backwards = ratio(&server, || {
        let file = open(&mount);
        (0..BLOCKS / 8).rev().for_each(|block| read(&file, block));
        FILE_BYTES / 8
    });
    assert!(leaps < RATIO_MAX && backwards < RATIO_MAX, "{leaps} with leaps, {backwards} backwards");
}

#[test]
fn several_readers_fetch_a_file_at_most_once_each() {
    const READERS: u64 = 3;
    let (server, mount) = served();
    let fetched = ratio(&server, || {
        thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    let file = open(&mount);
                    (0..BLOCKS).for_each(|block| read(&file, block));
                });
            }
        });
        READERS * FILE_BYTES
    });
    assert!(fetched < RATIO_MAX, "{fetched}");
}

#[test]
fn a_program_that_reads_one_half_and_writes_the_other_fetches_nothing_twice() {
    let (server, mount) = served();
    let fetched = ratio(&server, || {
        let file = open(&mount);
        let half = BLOCKS / 2;
        for block in 0..half {
            read(&file, block);
            file.write_all_at(&content(half + block), (half + block) * BLOCK).unwrap();
        }
        FILE_BYTES / 2
    });
    // The mount may read ahead beyond the half that is read.
    assert!(fetched < 2.0 * RATIO_MAX, "{fetched}");
}
