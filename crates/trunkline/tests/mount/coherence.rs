//! Tests what a read returns while other programs write the same bytes or their neighbours:
//! programs of one host never see data from before a write that has returned.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server};
use crate::mounts::compiled;
use crate::refusals::{Refusals, mounted_behind};
use crate::semantics::{flags, pattern};
use nfs3::Procedure;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use testkit::{Deadline, Process};

/// Waits until a process is in the kernel waiting for a page, or has printed `said`.
fn wait_until_it_looks(process: &Process, said: &str) {
    Deadline::wait_until("a look at the page", MOUNT_TIMEOUT, || {
        let stack = fs::read_to_string(format!("/proc/{}/stack", process.id())).unwrap_or_default();
        let waits = stack.contains("filemap_fault") || process.all_output().contains(said);
        waits.then_some(())
    });
}

#[test]
fn a_page_read_during_a_write_to_a_part_of_it_has_the_written_data() {
    let server = Server::start(1);
    let (refusals, mount) = mounted_behind(&server);
    let other = server.mount("other", "nolock");
    fs::write(mount.path("f"), [b'a'; 4096]).unwrap();
    // Opened before the program looks at the page: an open may drop the page, and a write locks a
    // page that has no content.
    let file = flags(OFlags::SYNC).open(mount.path("f")).unwrap();
    let (_built, program) = compiled("mapped_page.c");
    let mut command = Command::new(program);
    command.arg(mount.path("f"));
    let reader = Process::spawn(command);
    assert_eq!(reader.wait_for_line("look 1", MOUNT_TIMEOUT), "look 1: aa");
    refusals.hold(Procedure::Write);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| file.write_all_at(b"b", 0));
        Deadline::wait_until("the write to be in flight", MOUNT_TIMEOUT, || {
            (refusals.held() == 1).then_some(())
        });
        // The kernel drops the page that has the write, because at this open the file has changed.
        File::options().write(true).open(other.path("f")).unwrap().write_all_at(b"c", 4095).unwrap();
        drop(File::open(mount.path("f")).unwrap());
        reader.signal(Signal::USR1);
        wait_until_it_looks(&reader, "look 2");
        refusals.release();
        writing.join().unwrap().unwrap();
    });
    reader.wait_for_line("look 2", MOUNT_TIMEOUT);
    reader.signal(Signal::USR1);
    assert_eq!(reader.wait_for_line("look 3", MOUNT_TIMEOUT), "look 3: bc");
}

/// Writes at random places in a range, and reads each write back at once. Returns the first write
/// that is not seen.
fn write_and_look(mount: &Mounted, how: OFlags, (from, to): (u64, u64), writes: u64) -> Result<(), String> {
    let writer = flags(how).open(mount.path("f")).unwrap();
    let reader = File::open(mount.path("f")).unwrap();
    let mut random = from + 1;
    for number in 0..writes {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (at, len) = (from + (random >> 33) % (to - from - 300), (random >> 20) as usize % 299 + 1);
        let data = pattern(len, number as u8);
        let mut seen = vec![0; len];
        writer.write_all_at(&data, at).unwrap();
        reader.read_exact_at(&mut seen, at).unwrap();
        if seen != data {
            return Err(format!("write {number} of {len} bytes at {at}"));
        }
    }
    Ok(())
}

#[test]
fn a_program_reads_its_writes_while_others_write_beside_them() {
    const LEN: u64 = 16384;
    // Never the same bytes, but one page contains bytes of both.
    const MIDDLE: u64 = LEN / 2 + 100;
    let server = Server::start(1);
    let options = format!("port={},nconnect=2,nolock", server.port);
    let mount = Mounted::start("127.0.0.1:/export", server.mount_point("mnt"), &options);
    for (how, writes) in [(OFlags::SYNC, 5000), (OFlags::DIRECT, 1000), (OFlags::empty(), 1000)] {
        fs::write(mount.path("f"), vec![0; LEN as usize]).unwrap();
        let mount = &mount;
        std::thread::scope(|scope| {
            let all = [(0, MIDDLE), (MIDDLE, LEN)]
                .map(|place| scope.spawn(move || write_and_look(mount, how, place, writes)));
            for one in all {
                assert_eq!(one.join().unwrap(), Ok(()), "{how:?}");
            }
        });
    }
}

#[test]
fn a_completed_asynchronous_direct_write_is_seen_in_the_page_cache() {
    let server = Server::start(2);
    let mount = server.mount("mnt", "nolock");
    let (_built, program) = compiled("async_writes.c");
    for (len, cycles) in [(4096, 120), (65536, 60)] {
        let mut command = Command::new(&program);
        command.arg(mount.path("f")).args([len, cycles].map(|number: u32| number.to_string()));
        let mut writer = Process::spawn(command);
        assert!(writer.wait(MOUNT_TIMEOUT).success(), "{len} bytes: {}", writer.all_output());
    }
}

/// The size of a record, so that the end of a page is sometimes within a record.
const RECORD: usize = 1000;

fn record(writer: u8, number: u16) -> [u8; RECORD] {
    let mut record = [writer; RECORD];
    record[1..3].copy_from_slice(&number.to_be_bytes());
    record
}

/// Appends records, each with one write.
fn append(mount: &Mounted, how: OFlags, writer: u8, records: u16) {
    let file = flags(how | OFlags::APPEND).open(mount.path("f")).unwrap();
    for number in 0..records {
        assert_eq!(rustix::io::write(&file, &record(writer, number)), Ok(RECORD));
    }
}

/// Reads the size of the file and its last pages until all is appended, so that the kernel learns
/// sizes and fills pages.
fn look_at_the_end(mount: &Mounted, bytes: u64) {
    let file = File::open(mount.path("f")).unwrap();
    let mut pages = [0; 8192];
    loop {
        let end = file.metadata().unwrap().len();
        if end >= bytes {
            break;
        }
        let from = end.saturating_sub(4096) / 4096 * 4096;
        file.read_at(&mut pages, from).unwrap();
        if end.is_multiple_of(3) {
            rustix::fs::fadvise(&file, from, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }
}

#[test]
fn buffered_and_direct_appends_together_lose_nothing() {
    const RECORDS: u16 = 1500;
    const WAYS: [OFlags; 6] =
        [OFlags::DIRECT, OFlags::empty(), OFlags::DIRECT, OFlags::SYNC, OFlags::DIRECT, OFlags::empty()];
    let server = Server::start(1);
    let mount = &server.mount("mnt", "nolock");
    let bytes = u64::from(RECORDS) * (WAYS.len() * RECORD) as u64;
    for _ in 0..3 {
        fs::write(mount.path("f"), b"").unwrap();
        std::thread::scope(|scope| {
            for (how, writer) in WAYS.into_iter().zip(1..) {
                scope.spawn(move || append(mount, how, writer, RECORDS));
            }
            for _ in 0..3 {
                scope.spawn(|| look_at_the_end(mount, bytes));
            }
        });
        let found = fs::read(mount.path("f")).unwrap();
        assert_eq!(found.len() as u64, bytes);
        let mut found: Vec<&[u8]> = found.chunks(RECORD).collect();
        found.sort_unstable();
        let all =
            (1..=WAYS.len() as u8).flat_map(|writer| (0..RECORDS).map(move |number| record(writer, number)));
        let wrong = found.iter().zip(all).find(|(found, wanted)| **found != wanted);
        assert!(wrong.is_none(), "{:?}", wrong.map(|(found, _)| found.first_chunk::<16>()));
    }
}

/// Starts a program, holds its call of this procedure, and kills the program meanwhile.
fn kill_while_held(refusals: &Refusals, procedure: Procedure, command: &mut Command) {
    refusals.hold(procedure);
    let mut process = command.stdout(Stdio::null()).spawn().unwrap();
    Deadline::wait_until("the call to be in flight", MOUNT_TIMEOUT, || (refusals.held() == 1).then_some(()));
    kill_process(Pid::from_child(&process), Signal::KILL).unwrap();
    process.wait().unwrap();
}

#[test]
fn a_write_after_a_truncation_whose_program_was_killed_is_not_cut_off() {
    let server = Server::start(1);
    let (refusals, mount) = mounted_behind(&server);
    fs::write(mount.path("f"), b"old").unwrap();
    fs::write(mount.path("other"), b"").unwrap();
    let mut truncate = Command::new("truncate");
    kill_while_held(&refusals, Procedure::SetAttr, truncate.args(["-s", "0"]).arg(mount.path("f")));
    let other = flags(OFlags::SYNC).open(mount.path("other")).unwrap();
    std::thread::scope(|scope| {
        let writing =
            scope.spawn(|| flags(OFlags::SYNC).open(mount.path("f")).unwrap().write_all_at(b"new", 0));
        // Long enough for a write that does not wait.
        (0..100).for_each(|at| other.write_all_at(b"x", at).unwrap());
        refusals.release();
        writing.join().unwrap().unwrap();
    });
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"new");
}

#[test]
fn an_append_begins_after_a_write_whose_program_was_killed() {
    let server = Server::start(1);
    let (refusals, mount) = mounted_behind(&server);
    let elsewhere = server.mount("elsewhere", "nolock,noac");
    fs::write(mount.path("f"), b"start").unwrap();
    let append = flags(OFlags::APPEND).open(mount.path("f")).unwrap();
    let mut write = Command::new("dd");
    write.args(["if=/dev/zero", "bs=4096", "count=1", "seek=1", "conv=notrunc", "oflag=direct"]);
    write.arg(format!("of={}", mount.path("f").display())).stderr(Stdio::null());
    kill_while_held(&refusals, Procedure::Write, &mut write);
    refusals.release();
    let is_there = || (fs::metadata(elsewhere.path("f")).unwrap().len() == 8192).then_some(());
    Deadline::wait_until("the server to have the write", MOUNT_TIMEOUT, is_there);
    assert_eq!(rustix::io::write(&append, b"end"), Ok(3));
    append.sync_all().unwrap();
    let found = fs::read(elsewhere.path("f")).unwrap();
    assert_eq!((&found[..5], found.len(), &found[8192..]), (&b"start"[..], 8195, &b"end"[..]));
}
