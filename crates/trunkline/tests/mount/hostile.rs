//! Tests a server whose replies are well-formed but invalid: the program that asked gets an error,
//! and other programs are not affected.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server};
use crate::refusals::{Refusals, answer};
use crate::semantics::{flags, pattern};
use nfs3::Procedure;
use rustix::fs::OFlags;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use testkit::records::word;

const EIO: Option<i32> = Some(5);
/// The index of the first word of the results, counted from the xid. RFC 5531 s9
const RESULTS: usize = 6;

fn mounted(server: &Server) -> (Refusals, Mounted) {
    let proxy = Refusals::start(server);
    // Nothing is cached, so that each request reaches the server.
    let options = format!("vers=3,port={},nconnect=1,nolock,noac,lookupcache=none", proxy.port);
    let mount = Mounted::start("127.0.0.1:/export", server.mount_point("mnt"), &options);
    (proxy, mount)
}

/// Changes a word of a record; the index is counted from the xid.
fn put(record: &mut [u8], index: usize, value: u32) {
    let at = 4 + 4 * index;
    record[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The index of the attributes in a LOOKUP reply: after the status, the handle and the word that
/// says that attributes follow. RFC 1813 s3.3.3
fn found(record: &[u8]) -> Option<usize> {
    let attributes = RESULTS + 2 + word(record, RESULTS + 1).div_ceil(4) as usize + 1;
    (word(record, RESULTS) == 0).then_some(attributes)
}

#[test]
fn files_with_equal_numbers_remain_two_files_and_the_root_remains_itself() {
    let server = Server::start(1);
    let (proxy, mount) = mounted(&server);
    fs::write(mount.path("a"), pattern(5000, 1)).unwrap();
    fs::write(mount.path("b"), pattern(6000, 2)).unwrap();
    fs::create_dir(mount.path("d")).unwrap();
    let root = u32::try_from(fs::metadata(mount.path("")).unwrap().ino()).unwrap();
    for number in [7, root, 1] {
        // The low half of `fileid`, the fifteenth word. RFC 1813 s2.6
        proxy.replace(Procedure::Lookup, move |mut record| {
            if let Some(attributes) = found(&record) {
                put(&mut record, attributes + 14, number);
            }
            record
        });
        let open = flags(OFlags::empty()).open(mount.path("a")).unwrap();
        for _ in 0..3 {
            assert!(fs::read(mount.path("b")).unwrap() == pattern(6000, 2), "{number}");
            assert!(fs::read_dir(mount.path("d")).unwrap().next().is_none(), "{number}");
            assert!(fs::read(mount.path("a")).unwrap() == pattern(5000, 1), "{number}");
        }
        let mut data = vec![0; 5000];
        open.read_exact_at(&mut data, 0).unwrap();
        assert!(data == pattern(5000, 1), "{number}");
        fs::write(mount.path("b"), b"").unwrap();
        assert!(fs::read(mount.path("a")).unwrap() == pattern(5000, 1), "{number}");
        fs::write(mount.path("b"), pattern(6000, 2)).unwrap();
        assert!(proxy.refused() > 0);
    }
    proxy.stop_refusing();
    let mut names: Vec<_> =
        fs::read_dir(mount.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "b", "d"]);
}

#[test]
fn a_listing_without_progress_or_with_impossible_names_is_an_error() {
    let server = Server::start(1);
    let (proxy, mount) = mounted(&server);
    fs::write(mount.path("a"), b"").unwrap();
    let name = |text: &[u8; 4], len: u32, cookie: u32| {
        // The entry-follows word, fileid, name, cookie, no attributes, no handle. RFC 1813 s3.3.17
        [1, 0, 9, len, u32::from_be_bytes(*text), 0, cookie, 0, 0]
    };
    let (dot, a) = (name(b".\0\0\0", 1, 5), name(b"a\0\0\0", 1, 5));
    for entries in [
        vec![a, dot],
        vec![name(b".\0\0\0", 1, 0)],
        vec![dot],
        vec![name(b"a/b\0", 3, 5)],
        vec![name(b"a\0b\0", 3, 5)],
    ] {
        let entries = entries.concat();
        proxy.replace(Procedure::ReadDirPlus, move |record| {
            let head = [0, 0, 0, 1];
            let results: Vec<u32> = head.iter().chain(&entries).chain(&[0, 0]).copied().collect();
            answer(word(&record, 0), &results)
        });
        let told = fs::read_dir(mount.path("")).unwrap().find_map(Result::err);
        assert_eq!(told.map(|error| error.raw_os_error()), Some(EIO));
        assert!(proxy.stop_refusing() > 0);
        assert_eq!(fs::read_dir(mount.path("")).unwrap().count(), 1, "other programs are served");
    }
}

#[test]
fn a_size_that_no_file_can_have_is_an_error_and_an_append_keeps_the_data() {
    let server = Server::start(1);
    let (proxy, mount) = mounted(&server);
    fs::write(mount.path("a"), b"abc").unwrap();
    let mut open = flags(OFlags::APPEND).open(mount.path("a")).unwrap();
    // In a GETATTR reply the status is followed by the attributes, beginning with the type. The
    // size is the sixth and seventh word.
    proxy.replace(Procedure::GetAttr, |mut record| {
        if word(&record, RESULTS + 1) == 1 {
            [6, 7].iter().for_each(|index| put(&mut record, RESULTS + index, u32::MAX));
        }
        record
    });
    assert_eq!(fs::metadata(mount.path("a")).unwrap_err().raw_os_error(), EIO);
    // The append goes to the last known end of the file.
    let _ = open.write_all(b"def");
    assert!(proxy.stop_refusing() > 0);
    drop(open);
    assert!(fs::read(mount.path("a")).unwrap().starts_with(b"abc"));
}

#[test]
fn a_read_of_nothing_within_a_file_is_an_error_and_no_end() {
    let server = Server::start(1);
    let (proxy, mount) = mounted(&server);
    fs::write(mount.path("a"), pattern(300_000, 1)).unwrap();
    proxy.replace(Procedure::Read, |mut record| {
        // The status, the attributes (a word that says that they follow, and 21 words), the count,
        // eof, and the length of the data. RFC 1813 s3.3.6
        let count = RESULTS + 1 + 22;
        [count, count + 1, count + 2].iter().for_each(|index| put(&mut record, *index, 0));
        record.truncate(4 + 4 * (count + 3));
        let len = u32::try_from(record.len() - 4).unwrap();
        record[..4].copy_from_slice(&(1 << 31 | len).to_be_bytes());
        record
    });
    for flags in [flags(OFlags::empty()), flags(OFlags::DIRECT)] {
        let open = flags.open(mount.path("a")).unwrap();
        let told = open.read_at(&mut vec![0; 8192], 0).map_err(|error| error.raw_os_error());
        assert_eq!(told, Err(EIO));
    }
    assert!(proxy.stop_refusing() >= 6);
    mount.process.wait_for_line("returns no bytes within a file", MOUNT_TIMEOUT);
    assert!(fs::read(mount.path("a")).unwrap() == pattern(300_000, 1));
}

#[test]
fn a_reply_that_is_too_long_is_an_error_of_its_call_alone() {
    let server = Server::start(1);
    let (proxy, mount) = mounted(&server);
    fs::write(mount.path("a"), pattern(5000, 1)).unwrap();
    proxy.replace(Procedure::ReadDirPlus, |mut record| {
        // The head of a record of 512 MiB.
        record[..4].copy_from_slice(&(1_u32 << 31 | 512 << 20).to_be_bytes());
        record
    });
    let told = fs::read_dir(mount.path("")).unwrap().find_map(Result::err);
    assert_eq!(told.map(|error| error.raw_os_error()), Some(EIO));
    assert!(proxy.refused() > 0);
    assert_eq!(fs::metadata(mount.path("a")).unwrap().len(), 5000, "other calls are served");
    mount.process.wait_for_line("cannot be read", MOUNT_TIMEOUT);
    proxy.stop_refusing();
    assert_eq!(fs::read_dir(mount.path("")).unwrap().count(), 1);
}
