//! Tests what only a mounted directory of NFS version 4.2 has: holes, reserved storage, copies that
//! the server makes, and extended attributes.

use crate::fixture::{Mounted, Server, shell, text};
use crate::semantics::pattern;
use rustix::fs::{FallocateFlags, SeekFrom, XattrFlags, copy_file_range, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

pub fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

pub fn data_at(file: &File, offset: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Data(offset))
}

pub fn hole_at(file: &File, offset: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Hole(offset))
}

/// Copies as far as one system call does.
pub fn copied(from: (&File, u64), to: (&File, u64), len: u64) -> Result<u64, Errno> {
    let (mut at, mut target) = (from.1, to.1);
    let len = usize::try_from(len).unwrap();
    copy_file_range(from.0, Some(&mut at), to.0, Some(&mut target), len).map(|count| count as u64)
}

/// The bytes of files that the mount has read from the server and written there.
fn moved(mount: &Mounted) -> u64 {
    let program = env!("CARGO_BIN_EXE_trunkline");
    let status = Command::new(program).args(["status", "--json"]).arg(&mount.directory).output().unwrap();
    let (status, mut bytes) = (text(&status.stdout), 0);
    for line in status.lines() {
        let number = |name: &str| line.trim().strip_prefix(name)?.trim_end_matches(',').parse::<u64>().ok();
        bytes += number("\"read_bytes\": ").or_else(|| number("\"written_bytes\": ")).unwrap_or(0);
    }
    bytes
}

#[test]
fn a_copy_within_a_mount_moves_no_data() {
    let server = Server::start(2);
    let mount = server.mount("m", "vers=4.2,nolock");
    let data = pattern(70 << 20 | 4321, 3);
    fs::write(mount.path("source"), &data).unwrap();
    let before = moved(&mount);
    assert!(before >= data.len() as u64, "{before}");
    // With --reflink=never, cp reads and writes.
    shell(&mount.path(""), "cp --sparse=never source target && cp -a source again");
    let (source, within) = (open(&mount.path("source")), open(&mount.path("within")));
    let len = data.len() as u64;
    assert_eq!(copied((&source, 0), (&within, 0), len), Ok(len));
    assert_eq!(moved(&mount), before, "neither READ nor WRITE");
    let other = server.mount("other", "vers=3,nolock");
    assert!(fs::read(other.path("target")).unwrap() == data);
    for name in ["target", "again", "within"] {
        assert!(fs::read(mount.path(name)).unwrap() == data, "{name}");
    }
    shell(&mount.path(""), "cp --reflink=never source plain && cmp source plain");
}

#[test]
fn a_copy_has_what_was_written_before_it_and_is_read_after_it() {
    let server = Server::start(2);
    let mount = server.mount("m", "vers=4.2,nolock");
    let (source, target) = (open(&mount.path("source")), open(&mount.path("target")));
    let mut expected = pattern(300_000, 8);
    target.write_all_at(&expected, 0).unwrap();
    // What the kernel keeps of the target is of before the copy.
    let mut back = vec![0; expected.len()];
    target.read_exact_at(&mut back, 0).unwrap();
    let data = pattern(200_000, 1);
    for round in 0..3_u8 {
        // Neither file is closed or synced.
        source.write_all_at(&data, 0).unwrap();
        source.write_all_at(&[round; 10], 50_000).unwrap();
        target.write_all_at(&[0xee ^ round; 1000], 123_000).unwrap();
        expected[123_000..124_000].fill(0xee ^ round);
        assert_eq!(copied((&source, 1000), (&target, 20_001), 100_000), Ok(100_000));
        expected[20_001..120_001].copy_from_slice(&data[1000..101_000]);
        expected[20_001 + 49_000..][..10].fill(round);
        target.read_exact_at(&mut back, 0).unwrap();
        assert!(back == expected, "round {round}");
    }
    // A copy behind the end makes the file longer.
    assert_eq!(copied((&source, 0), (&target, 400_000), 200_000), Ok(200_000));
    assert_eq!(target.metadata().unwrap().len(), 600_000);
    let mut end = vec![0; 200_010];
    target.read_exact_at(&mut end, 399_990).unwrap();
    assert!(end[..10] == [0; 10] && end[10..50_010] == data[..50_000]);
    // Within one file, and what may not be.
    assert_eq!(copied((&target, 0), (&target, 600_000), 1000), Ok(1000));
    assert_eq!(copied((&target, 0), (&target, 500), 1000), Err(Errno::INVAL));
    assert_eq!(copied((&target, 700_000), (&source, 0), 1000), Ok(0), "behind the end");
    drop(target);
    let other = server.mount("other", "vers=3,nolock");
    let all = fs::read(other.path("target")).unwrap();
    assert!(all[..300_000] == expected[..] && all.len() == 601_000 && all[600_000..] == expected[..1000]);
}

#[test]
fn a_copy_that_the_server_does_not_make_is_read_and_written() {
    let server = Server::start(2);
    let old = server.mount("old", "vers=4.1,nolock");
    let three = server.mount("three", "vers=3,nolock");
    let data = pattern(3 << 20, 3);
    for (index, mount) in [&old, &three].into_iter().enumerate() {
        let name = |what: &str| mount.path(&format!("{what}{index}"));
        fs::write(name("source"), &data).unwrap();
        fs::copy(name("source"), name("target")).unwrap();
        assert!(fs::read(name("target")).unwrap() == data);
        let file = open(&name("target"));
        assert_eq!(data_at(&file, 5), Ok(5), "all is data");
        assert_eq!(hole_at(&file, 5), Ok(3 * MIB));
        let allocated = fallocate(&file, FallocateFlags::empty(), 0, 4096);
        assert_eq!(allocated, Err(Errno::OPNOTSUPP));
        let set = rustix::fs::setxattr(name("target"), "user.a", b"x", XattrFlags::empty());
        assert_eq!(set, Err(Errno::OPNOTSUPP));
    }
    // From one mount to another the kernel reads and writes too.
    let one = server.mount("one", "vers=4.2,nolock");
    shell(&one.path(""), &format!("cp source0 {}", old.path("moved").display()));
    assert!(fs::read(one.path("moved")).unwrap() == data);
}

#[test]
fn holes_are_found_also_in_what_was_just_written() {
    let server = Server::start(2);
    let mount = server.mount("m", "vers=4.2,nolock");
    let file = open(&mount.path("sparse"));
    file.set_len(3 * MIB).unwrap();
    assert_eq!(data_at(&file, 0), Err(Errno::NXIO));
    assert_eq!(hole_at(&file, 0), Ok(0));
    file.write_all_at(&[1; 64 << 10], MIB).unwrap();
    assert_eq!(data_at(&file, 0), Ok(MIB));
    assert_eq!(hole_at(&file, MIB), Ok(MIB + 64 * KIB));
    assert_eq!(data_at(&file, MIB + 5), Ok(MIB + 5));
    assert_eq!(hole_at(&file, 2 * MIB), Ok(2 * MIB));
    assert_eq!(data_at(&file, 2 * MIB), Err(Errno::NXIO));
    assert_eq!(data_at(&file, 3 * MIB), Err(Errno::NXIO));
    assert_eq!(hole_at(&file, 3 * MIB + 1), Err(Errno::NXIO));
    drop(file);
    // A program that looks for holes leaves them out.
    shell(&mount.path(""), "cp --reflink=never --sparse=always sparse copy && cmp sparse copy");
    let copy = open(&mount.path("copy"));
    assert_eq!((data_at(&copy, 0), hole_at(&copy, MIB)), (Ok(MIB), Ok(MIB + 64 * KIB)));
}

#[test]
fn a_punched_range_is_a_hole_for_every_mount_and_storage_is_reserved() {
    let server = Server::start(2);
    let (mount, other) = (server.mount("m", "vers=4.2,nolock"), server.mount("other", "vers=3,nolock"));
    let file = open(&mount.path("f"));
    let mut expected = pattern(1 << 20, 4);
    file.write_all_at(&expected, 0).unwrap();
    let mut back = vec![0; expected.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    let (keep, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
    // The range begins and ends within pages, and its data are not on the server yet.
    file.write_all_at(&[7; 100], 100_000).unwrap();
    fallocate(&file, punch, 50_000, 500_000).unwrap();
    expected[50_000..550_000].fill(0);
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == expected);
    assert!(fs::read(other.path("f")).unwrap() == expected);
    let hole = hole_at(&file, 0).unwrap();
    assert!((50_000..300_000).contains(&hole), "{hole}");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 600_000, 10).unwrap();
    expected[600_000..600_010].fill(0);
    fallocate(&file, FallocateFlags::ZERO_RANGE | keep, 610_000, 10).unwrap();
    expected[610_000..610_010].fill(0);
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == expected);

    // Reserving makes a file longer unless it is to keep its size, which works within the file.
    fallocate(&file, keep, 0, MIB).unwrap();
    assert_eq!(fallocate(&file, keep, 0, 2 * MIB), Err(Errno::OPNOTSUPP));
    assert_eq!(fallocate(&file, FallocateFlags::ZERO_RANGE | keep, MIB, 1), Err(Errno::OPNOTSUPP));
    assert_eq!(file.metadata().unwrap().len(), MIB);
    fallocate(&file, FallocateFlags::empty(), MIB, MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 * MIB);
    assert_eq!(fs::metadata(other.path("f")).unwrap().len(), 2 * MIB);
    assert!(file.metadata().unwrap().blocks() * 512 >= 3 * MIB / 2);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 2 * MIB, 5).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 * MIB + 5);
    fallocate(&file, punch, 3 * MIB, MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 * MIB + 5, "a hole behind the end is none");
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
    // What is written into a hole stays.
    file.write_all_at(b"again", 60_000).unwrap();
    drop(file);
    assert_eq!(&fs::read(other.path("f")).unwrap()[60_000..60_005], b"again");
}

#[test]
fn extended_attributes_of_users_are_kept_by_the_server() {
    let server = Server::start(2);
    let (mount, other) = (server.mount("m", "vers=4.2,nolock"), server.mount("other", "vers=4.2,nolock"));
    fs::write(mount.path("f"), "data").unwrap();
    fs::create_dir(mount.path("d")).unwrap();
    let all = "setfattr -n user.one -v first f && setfattr -n user.two -v 2 d && \
               test \"$(getfattr --only-values -n user.one f)\" = first && \
               getfattr -d f | grep -qx 'user.one=\"first\"' && \
               setfattr -n user.one -v changed f && setfattr -n user.gone f && setfattr -x user.gone f";
    shell(&mount.path(""), all);
    shell(
        &other.path(""),
        "test \"$(getfattr -d f d | grep -c user)\" = 2 && getfattr -d f | grep -q changed",
    );

    let path = mount.path("f");
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let mut room = [0; 64 << 10];
    assert_eq!(set("user.one", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.none", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(rustix::fs::getxattr(&path, "user.none", &mut room), Err(Errno::NODATA));
    assert_eq!(rustix::fs::getxattr(&path, "user.one", &mut room[..3]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::listxattr(&path, &mut room[..3]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::removexattr(&path, "user.none"), Err(Errno::NODATA));
    let big = pattern(64 << 10, 9);
    set("user.big", &big, XattrFlags::CREATE).unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.big", &mut room), Ok(64 << 10));
    assert!(room[..] == big[..]);
    for name in ["trusted.a", "security.a", "system.a"] {
        assert_eq!(set(name, b"x", XattrFlags::empty()), Err(Errno::OPNOTSUPP), "{name}");
    }
    let ctime = |path: PathBuf| {
        let of = fs::metadata(path).unwrap();
        (of.ctime(), of.ctime_nsec())
    };
    let before = ctime(mount.path("f"));
    set("user.one", b"again", XattrFlags::empty()).unwrap();
    assert_ne!(ctime(mount.path("f")), before);
}

#[test]
fn archives_and_moves_keep_extended_attributes() {
    let server = Server::start(1);
    let mount = server.mount("m", "vers=4.2,nolock");
    let elsewhere = server.mount("elsewhere", "vers=4.2,nolock");
    fs::create_dir(mount.path("from")).unwrap();
    fs::create_dir(mount.path("to")).unwrap();
    let check = "test \"$(getfattr --only-values -n user.note NAME)\" = kept && test \"$(cat NAME)\" = data";
    let at = |name: &str| check.replace("NAME", name);
    let all = format!(
        "echo data > from/f && setfattr -n user.note -v kept from/f && \
         tar --xattrs -C from -cf archive f && tar --xattrs -C to -xf archive && {} && \
         cp -a from/f from/g && {} && mv from/g to/h && {}",
        at("to/f"),
        at("from/g"),
        at("to/h")
    );
    shell(&mount.path(""), &all);
    let moved = elsewhere.path("moved");
    shell(&mount.path(""), &format!("mv to/h {} && {}", moved.display(), at(&moved.display().to_string())));
}

/// Before a write, the kernel asks whether a file has capabilities.
#[test]
fn a_question_that_the_mount_can_answer_costs_no_call() {
    let server = Server::start(1);
    let mount = server.mount("m", "vers=4.2,nolock");
    let file = open(&mount.path("f"));
    let before = server.compounds();
    for round in 0..200 {
        file.write_all_at(b"some data", round * 9).unwrap();
        let mut room = [0; 100];
        let capability = rustix::fs::fgetxattr(&file, "security.capability", &mut room);
        assert_eq!(capability, Err(Errno::NODATA));
    }
    file.sync_all().unwrap();
    let listed = Command::new("ls").arg("-l").arg(mount.path("f")).output().unwrap();
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let calls = server.compounds() - before;
    assert!(calls < 100, "{calls} calls");
}
