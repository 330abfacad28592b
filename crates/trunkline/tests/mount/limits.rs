//! Tests that the mount obeys what the server says it can hold.

use crate::fixture::{Mounted, Server};
use crate::refusals::Refusals;
use crate::semantics::{flags, pattern};
use nfs3::Procedure;
use rustix::fs::OFlags;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;

/// The largest file in these tests: not a whole number of pages.
const FILE_BYTES_MAX: u64 = (1 << 20) + 5;
/// Where an FSINFO reply has `maxfilesize`, in bytes from the record's mark: after the RPC header,
/// the status, the root's attributes and seven words. RFC 1813 s3.3.19
const LARGEST_AT: usize = 4 + 4 * (6 + 1 + 22 + 7);

/// A mount through a proxy that tells this size of the largest file.
fn mounted(server: &Server, options: &str, largest: u64) -> (Refusals, Mounted) {
    let proxy = Refusals::start(server);
    proxy.replace(Procedure::FsInfo, move |mut record| {
        record[LARGEST_AT..LARGEST_AT + 8].copy_from_slice(&largest.to_be_bytes());
        record
    });
    let options = format!("vers=3,port={},nconnect=1,nolock{options}", proxy.port);
    let mount = Mounted::start("127.0.0.1:/export", server.mount_point("mnt"), &options);
    assert_eq!(proxy.refused(), 1);
    (proxy, mount)
}

/// Prints the error of name_to_handle_at(2).
const HANDLE_PROGRAM: &str = "#define _GNU_SOURCE\n\
    #include <errno.h>\n#include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
    int main(int argc, char **argv) {\n\
      struct file_handle *handle = calloc(1, sizeof *handle + MAX_HANDLE_SZ);\n\
      int mount;\n\
      handle->handle_bytes = MAX_HANDLE_SZ;\n\
      printf(\"%d\\n\", name_to_handle_at(AT_FDCWD, argv[1], handle, &mount, 0) ? errno : 0);\n\
    }\n";

#[test]
fn handles_of_files_are_refused_because_they_could_not_be_opened() {
    let (_server, mount) = crate::fixture::mounted();
    fs::write(mount.path("f"), b"").unwrap();
    let local = testkit::temp_dir("handle");
    fs::write(local.path().join("handle.c"), HANDLE_PROGRAM).unwrap();
    crate::fixture::shell(local.path(), "cc -o handle handle.c");
    let file = mount.path("f");
    let printed = crate::fixture::shell(local.path(), &format!("./handle {}", file.display()));
    // Older kernels make handles that work only while they know the object: docs/SEMANTICS.md.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let refuses = (numbers.next(), numbers.next()) >= (Some(6), Some(9));
    let expected = if refuses { rustix::io::Errno::OPNOTSUPP.raw_os_error() } else { 0 };
    assert_eq!(printed.trim(), expected.to_string());
}

/// Where an FSSTAT reply has its six numbers of 64 bits, as [`LARGEST_AT`]. RFC 1813 s3.3.18
const SPACE_AT: usize = 4 + 4 * (6 + 1 + 22);

#[test]
fn space_that_is_free_and_space_that_is_available_are_told_apart() {
    const MIB: u64 = 1 << 20;
    let server = Server::start(1);
    let proxy = Refusals::start(&server);
    proxy.replace(Procedure::FsStat, |mut record| {
        let numbers = [1000 * MIB, 500 * MIB, 300 * MIB, 70_000, 60_000, 40_000];
        record[SPACE_AT..SPACE_AT + 48].copy_from_slice(&numbers.map(u64::to_be_bytes).concat());
        record
    });
    let options = format!("vers=3,port={},nconnect=1,nolock", proxy.port);
    let mount = Mounted::start("127.0.0.1:/export", server.mount_point("mnt"), &options);
    let space = rustix::fs::statvfs(mount.path("")).unwrap();
    let mib = |blocks: u64| blocks * space.f_frsize / MIB;
    assert_eq!((mib(space.f_blocks), mib(space.f_bfree), mib(space.f_bavail)), (1000, 500, 300));
    assert_eq!((space.f_files, space.f_ffree), (70_000, 60_000));
    assert!(proxy.refused() > 0);
}

#[test]
fn a_write_beyond_the_largest_file_fails_at_once() {
    for (options, of_file) in
        [("", OFlags::empty()), ("", OFlags::SYNC), ("", OFlags::DIRECT), (",sync", OFlags::empty())]
    {
        let server = Server::start(1);
        let (_proxy, mount) = mounted(&server, options, FILE_BYTES_MAX);
        let file = flags(of_file).open(mount.path("f")).unwrap();
        // What fits is written, as in a local file system. A direct write is done as a whole.
        let (data, at) = (pattern(4096, 1), FILE_BYTES_MAX - 3);
        if of_file == OFlags::DIRECT {
            assert_eq!(file.write_at(&data, at).unwrap_err().kind(), ErrorKind::FileTooLarge);
            assert_eq!(file.write_at(&data[..3], at).unwrap(), 3);
        } else {
            assert_eq!(file.write_at(&data, at).unwrap(), 3, "{options} {of_file:?}");
        }
        for at in [FILE_BYTES_MAX, FILE_BYTES_MAX + 4091, 1 << 40] {
            let refused = file.write_at(&pattern(4096, 2), at).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::FileTooLarge, "{options} {of_file:?} {at}");
        }
        file.sync_all().unwrap();
        let mut appending = flags(of_file | OFlags::APPEND).open(mount.path("f")).unwrap();
        assert_eq!(appending.write(&pattern(4096, 3)).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(file.set_len(FILE_BYTES_MAX + 1).unwrap_err().kind(), ErrorKind::FileTooLarge);
        file.set_len(FILE_BYTES_MAX).unwrap();
        drop(file);
        let data = fs::read(mount.path("f")).unwrap();
        assert_eq!(data.len() as u64, FILE_BYTES_MAX);
        assert!(data.ends_with(&pattern(4096, 1)[..3]));
    }
}

#[test]
fn a_server_that_tells_no_largest_file_sets_no_limit() {
    for largest in [0, u64::MAX] {
        let server = Server::start(1);
        let (_proxy, mount) = mounted(&server, "", largest);
        flags(OFlags::empty()).open(mount.path("f")).unwrap().set_len(1 << 62).unwrap();
    }
}
