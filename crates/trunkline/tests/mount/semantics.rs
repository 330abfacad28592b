//! Tests the promises of docs/SEMANTICS.md one by one.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server, is_version_3, mounted, shell, text, try_shell};
use rustix::fs::{FlockOperation, OFlags, SeekFrom};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use testkit::Deadline;

const MIB: usize = 1 << 20;

/// Data that depend on their position.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ (at >> 11) as u8 ^ seed).collect()
}

pub(crate) fn flags(flags: OFlags) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).custom_flags(flags.bits() as i32);
    options
}

#[test]
fn an_open_sees_what_another_mount_has_closed() {
    let server = Server::start(2);
    let (one, other) = (server.mount("one", ""), server.mount("other", ""));
    for round in 0..5_u8 {
        let data = pattern(300_000 + usize::from(round) * 1000, round);
        fs::write(one.path("f"), &data).unwrap();
        assert!(fs::read(other.path("f")).unwrap() == data, "round {round}");
        // Also when the data are shorter, and written by the other mount.
        fs::write(other.path("f"), &data[..1000]).unwrap();
        assert!(fs::read(one.path("f")).unwrap() == data[..1000], "round {round}");
    }
    // Also when a mount looked up the file meanwhile, and opens it for the first time.
    for round in 0..20 {
        let name = format!("f{round}");
        fs::write(one.path(&name), b"short").unwrap();
        assert_eq!(fs::metadata(other.path(&name)).unwrap().len(), 5);
        fs::write(one.path(&name), b"and longer").unwrap();
        assert_eq!(fs::read(other.path(&name)).unwrap(), b"and longer");
        assert_eq!(fs::metadata(other.path(&name)).unwrap().len(), 10);
    }
}

#[test]
fn with_noac_changes_by_other_clients_are_seen_at_once() {
    let server = Server::start(1);
    let (one, other) = (server.mount("one", "noac,lookupcache=none"), server.mount("other", "noac"));
    let mut writer = File::create(one.path("f")).unwrap();
    for round in 1..=5 {
        writer.write_all(b"0123456789").unwrap();
        assert_eq!(fs::metadata(other.path("f")).unwrap().len(), round * 10);
    }
    assert!(!one.path("new").exists());
    fs::write(other.path("new"), b"").unwrap();
    assert!(one.path("new").exists());
    fs::remove_file(other.path("new")).unwrap();
    assert!(!one.path("new").exists());
}

#[test]
fn with_lookupcache_pos_names_created_by_other_clients_are_seen() {
    let server = Server::start(1);
    let (one, other) = (server.mount("one", "lookupcache=pos"), server.mount("other", ""));
    assert!(!one.path("late").exists());
    fs::write(other.path("late"), b"").unwrap();
    assert!(one.path("late").exists(), "with lookupcache=pos absent names are not cached");
}

#[test]
fn read_ahead_data_are_right_whatever_part_is_read() {
    let (_server, mount) = mounted();
    let data = pattern(24 * MIB + 5000, 1);
    fs::write(mount.path("f"), &data).unwrap();
    let file = flags(OFlags::empty()).open(mount.path("f")).unwrap();
    let forget_pages = || rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let read = |at: usize, len: usize| {
        let mut seen = vec![0; len];
        file.read_exact_at(&mut seen, at as u64).unwrap();
        assert!(seen == data[at..at + len], "{len} bytes at {at}");
    };
    forget_pages();
    assert_eq!(kernel_read_ahead_kib(&mount), "1024", "the mount can't have more in this environment");
    let pipes_before = mount.pipes();
    (0..7).for_each(|at| read(at * MIB, MIB));
    assert!(mount.pipes() > pipes_before + 2, "{pipes_before} and {}", mount.pipes());
    // A program that pauses keeps no pipes, and gets new ones when it continues.
    let waiting = mount.pipes();
    Deadline::wait_until("the pipes of unread data to be closed", MOUNT_TIMEOUT, || {
        (mount.pipes() < waiting).then_some(())
    });
    read(7 * MIB, MIB);
    // The kernel now asks only for what the program reads: parts of data that are in pipes, and of
    // data that were already returned.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    for (at, len) in [(9 * MIB + 4096, 4096), (9 * MIB + 8192, MIB), (8 * MIB, 2 * MIB), (11 * MIB - 1, 2)] {
        read(at, len);
        forget_pages();
        read(at, len);
    }
    forget_pages();
    read(4 * MIB, 8 * MIB);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential).unwrap();
    forget_pages();
    assert!(fs::read(mount.path("f")).unwrap() == data);
}

#[test]
fn a_file_that_another_client_extends_is_read_to_its_known_end() {
    let server = Server::start(1);
    let (one, other) = (server.mount("one", "nolock"), server.mount("other", "nolock"));
    let data = pattern(4 * MIB + 5000, 1);
    fs::write(other.path("f"), &data).unwrap();
    let mut file = File::open(one.path("f")).unwrap();
    let mut growing = OpenOptions::new().append(true).open(other.path("f")).unwrap();
    growing.write_all(&pattern(600_000, 2)).unwrap();
    growing.sync_all().unwrap();
    let mut seen = vec![0; data.len()];
    seen.chunks_mut(MIB).for_each(|part| file.read_exact(part).unwrap());
    assert!(seen == data);
    drop(file);
    assert_eq!(fs::read(one.path("f")).unwrap().len(), data.len() + 600_000);
    // The kernel logs an error when it gets more data than it asked for.
    assert_eq!(one.process.output(testkit::Stream::Err), "");
}

#[test]
fn data_of_every_size_are_read_where_they_were_written() {
    let (_server, mount) = mounted();
    for (at, len) in
        [1, 4095, 4096, 4097, 131_072, MIB - 1, MIB, MIB + 1, 5 * MIB + 3].into_iter().enumerate()
    {
        let data = pattern(len, at as u8);
        let path = mount.path(&format!("f{at}"));
        fs::write(&path, &data).unwrap();
        shell(&mount.directory, "echo 1 > /proc/sys/vm/drop_caches");
        assert!(fs::read(&path).unwrap() == data, "{len} bytes");
        assert_eq!(fs::metadata(&path).unwrap().len(), len as u64);
    }
}

#[test]
fn direct_and_buffered_reads_and_writes_agree() {
    let (_server, mount) = mounted();
    let direct = flags(OFlags::DIRECT).open(mount.path("f")).unwrap();
    let data = pattern(3 * MIB, 1);
    direct.write_all_at(&data, 0).unwrap();
    assert!(fs::read(mount.path("f")).unwrap() == data);
    let buffered = flags(OFlags::empty()).open(mount.path("f")).unwrap();
    buffered.write_all_at(&pattern(8192, 9), 4096).unwrap();
    let mut seen = vec![0; 8192];
    direct.read_exact_at(&mut seen, 4096).unwrap();
    assert!(seen == pattern(8192, 9));
}

/// How far the kernel itself reads ahead in the mount.
fn kernel_read_ahead_kib(mount: &Mounted) -> String {
    let device = fs::metadata(&mount.directory).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap().trim().to_owned()
}

#[test]
fn long_direct_reads_return_the_written_data_and_end_with_the_file() {
    let (_server, mount) = mounted();
    let (data, tail) = (pattern(3 * MIB, 1), pattern(5000, 2));
    fs::write(mount.path("f"), [&data[..], &tail].concat()).unwrap();
    let file = flags(OFlags::DIRECT).open(mount.path("f")).unwrap();
    let pipes_before = mount.pipes();
    for (at, len) in [(0, MIB), (MIB, 2 * MIB), (4096, 300 << 10), (0, 128 << 10), (512, 700_001)] {
        let mut seen = vec![0; len];
        file.read_exact_at(&mut seen, at as u64).unwrap();
        assert!(seen == data[at..at + len], "{len} bytes at {at}");
    }
    let mut seen = vec![0xff; MIB];
    assert_eq!(file.read_at(&mut seen, 3 * MIB as u64).unwrap(), tail.len());
    assert!(seen[..tail.len()] == tail);
    assert_eq!(file.read_at(&mut seen, 2 * MIB as u64 + 5000).unwrap(), MIB);
    assert_eq!(file.read_at(&mut seen, 4 * MIB as u64).unwrap(), 0);
    // The data arrived in a pipe, and the replies left through another pipe.
    assert!(mount.pipes() >= pipes_before + 2, "{pipes_before} and {}", mount.pipes());
    // Data that are not on the server yet are sent there first; a hole reads as zeros.
    file.set_len(5 * MIB as u64).unwrap();
    flags(OFlags::empty()).open(mount.path("f")).unwrap().write_all_at(&pattern(MIB, 3), 100).unwrap();
    file.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen[..100] == data[..100] && seen[100..] == pattern(MIB, 3)[..MIB - 100]);
    file.read_exact_at(&mut seen, 4 * MIB as u64).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0));
    // Many reads at once.
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (file, data) = (&file, &data);
            scope.spawn(move || {
                for round in 0..20 {
                    let at = MIB + 4096 * (thread * 20 + round + 1);
                    let mut seen = vec![0; MIB];
                    file.read_exact_at(&mut seen, at as u64).unwrap();
                    assert!(seen == data[at..at + MIB], "{at}");
                }
            });
        }
    });
}

#[test]
fn appends_of_two_handles_follow_each_other() {
    let (_server, mount) = mounted();
    let open = || OpenOptions::new().create(true).append(true).open(mount.path("log")).unwrap();
    let (mut one, mut other) = (open(), open());
    for round in 0..50 {
        one.write_all(format!("a{round:03}\n").as_bytes()).unwrap();
        other.write_all(format!("b{round:03}\n").as_bytes()).unwrap();
    }
    drop((one, other));
    let expected: String = (0..50).map(|round| format!("a{round:03}\nb{round:03}\n")).collect();
    assert_eq!(fs::read_to_string(mount.path("log")).unwrap(), expected);
}

#[test]
fn an_append_goes_to_the_end_that_was_current_at_open() {
    let server = Server::start(1);
    let (one, other) = (server.mount("one", ""), server.mount("other", ""));
    let synchronous = server.mount("synchronous", "sync");
    let ways = [
        ("buffered", OFlags::empty(), &one),
        ("sync", OFlags::SYNC, &one),
        ("dsync", OFlags::DSYNC, &one),
        ("direct", OFlags::DIRECT, &one),
        ("option", OFlags::empty(), &synchronous),
    ];
    for (name, flags, mount) in ways {
        // The second piece of each file is longer than any request.
        let pieces = [(20, 1), (3 * MIB + 5, 2), (5000, 3), (7, 4)].map(|(len, seed)| pattern(len, seed));
        for (round, piece) in pieces.iter().enumerate() {
            let (mount, flags) = if round % 2 == 0 { (&other, OFlags::empty()) } else { (mount, flags) };
            let mut open = OpenOptions::new();
            let open = open.create(true).append(true).custom_flags(flags.bits().cast_signed());
            let mut log = open.open(mount.path(name)).unwrap();
            log.write_all(piece).unwrap();
        }
        assert!(fs::read(one.path(name)).unwrap() == pieces.concat(), "{name}");
    }
}

#[test]
fn an_append_keeps_data_of_other_clients_and_begins_where_they_truncated() {
    let server = Server::start(1);
    let (one, other) = (server.mount("one", ""), server.mount("other", ""));
    for (name, wished) in [("buffered", OFlags::empty()), ("sync", OFlags::SYNC), ("direct", OFlags::DIRECT)]
    {
        let open = |mount: &Mounted| {
            let mut open = OpenOptions::new();
            open.append(true).custom_flags(wished.bits().cast_signed()).open(mount.path(name)).unwrap()
        };
        fs::write(one.path(name), pattern(100, 1)).unwrap();
        assert_eq!(fs::metadata(one.path(name)).unwrap().len(), 100);
        open(&other).write_all(&pattern(100, 2)).unwrap();
        // A write in place makes the file no shorter.
        let in_place = flags(OFlags::empty()).open(one.path(name)).unwrap();
        let mut log = open(&one);
        in_place.write_all_at(&pattern(1, 1), 0).unwrap();
        log.write_all(b"end").unwrap();
        drop((in_place, log));
        let expected = [&pattern(100, 1)[..], &pattern(100, 2), b"end"].concat();
        assert!(fs::read(other.path(name)).unwrap() == expected, "{name}");
        // As when logs are rotated.
        OpenOptions::new().write(true).truncate(true).open(other.path(name)).unwrap();
        open(&one).write_all(b"new").unwrap();
        assert_eq!(fs::read(other.path(name)).unwrap(), b"new", "{name}");
        // O_APPEND is set and cleared by fcntl(2).
        OpenOptions::new().append(true).open(other.path(name)).unwrap().write_all(b" line").unwrap();
        let mut file = flags(OFlags::empty()).open(one.path(name)).unwrap();
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND | (wished & OFlags::DIRECT)).unwrap();
        file.write_all(b", whole").unwrap();
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
        file.write_all_at(b"N", 0).unwrap();
        drop(file);
        assert_eq!(fs::read(other.path(name)).unwrap(), b"New line, whole", "{name}");
    }
}

#[test]
fn a_synchronous_write_is_on_the_server_when_it_returns() {
    let server = Server::start(1);
    let (mount, synchronous) = (server.mount("mnt", ""), server.mount("synchronous", "sync"));
    let other = server.mount("other", "");
    for (name, wished, mount) in [
        ("sync", OFlags::SYNC, &mount),
        ("dsync", OFlags::DSYNC, &mount),
        ("direct", OFlags::DIRECT, &mount),
        ("fcntl", OFlags::empty(), &mount),
        ("option", OFlags::empty(), &synchronous),
    ] {
        let file = flags(wished).open(mount.path(name)).unwrap();
        if name == "fcntl" {
            rustix::fs::fcntl_setfl(&file, OFlags::DIRECT).unwrap();
        }
        for (round, len) in [(0, 100), (1, 70_000), (2, 3 * MIB)] {
            let data = pattern(len, round);
            file.write_all_at(&data, 0).unwrap();
            // The writer has neither closed nor synced the file.
            assert!(fs::read(other.path(name)).unwrap() == data, "{name}, {len} bytes");
        }
    }
}

#[test]
fn read_ahead_data_are_not_returned_after_a_known_change() {
    let server = Server::start(1);
    let (one, other) = (server.mount("one", ""), server.mount("other", ""));
    let (old, new) = (pattern(16 * MIB, 1), pattern(16 * MIB, 2));
    fs::write(other.path("f"), &old).unwrap();
    let reader = File::open(one.path("f")).unwrap();
    let mut seen = vec![0; MIB];
    for at in 0..4 {
        reader.read_exact_at(&mut seen, (at * MIB) as u64).unwrap();
        assert!(seen == old[at * MIB..(at + 1) * MIB]);
    }
    OpenOptions::new().write(true).open(other.path("f")).unwrap().write_all(&new).unwrap();
    let late = File::open(one.path("f")).unwrap();
    for at in 4..12 {
        // The first handle may get either data, but the second must get the new data.
        reader.read_exact_at(&mut seen, (at * MIB) as u64).unwrap();
        late.read_exact_at(&mut seen, (at * MIB) as u64).unwrap();
        assert!(seen == new[at * MIB..(at + 1) * MIB], "{at} MiB");
    }
}

#[test]
fn truncation_at_open_and_by_truncate_works() {
    let (_server, mount) = mounted();
    fs::write(mount.path("f"), pattern(100_000, 1)).unwrap();
    let file = OpenOptions::new().write(true).truncate(true).open(mount.path("f")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    file.write_all_at(b"0123456789", 0).unwrap();
    file.set_len(4).unwrap();
    file.set_len(8).unwrap();
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"0123\0\0\0\0");
}

#[test]
fn an_exclusive_create_succeeds_once() {
    let server = Server::start(2);
    let (one, other) = (server.mount("one", ""), server.mount("other", ""));
    for round in 0..20 {
        let name = format!("lock{round}");
        let made: Vec<bool> = std::thread::scope(|scope| {
            let tries: Vec<_> = [&one, &other, &one, &other]
                .map(|mount| scope.spawn(|| File::create_new(mount.path(&name)).is_ok()))
                .into_iter()
                .collect();
            tries.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1, "{name}");
        let mode = fs::metadata(one.path(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o644 & mode, "{mode:o}");
    }
}

#[test]
fn a_sparse_file_reads_as_zeros_and_seeks_as_one_range_of_data() {
    let (_server, mount) = mounted();
    let file = flags(OFlags::empty()).open(mount.path("f")).unwrap();
    file.write_all_at(b"end", 10 << 20).unwrap();
    let mut hole = vec![1; 4096];
    file.read_exact_at(&mut hole, 5 << 20).unwrap();
    assert!(hole.iter().all(|byte| *byte == 0));
    let found = [SeekFrom::Data(4096), SeekFrom::Hole(0)].map(|at| rustix::fs::seek(&file, at).unwrap());
    if is_version_3() {
        assert_eq!(found, [4096, (10 << 20) + 3]);
    } else {
        // A server of version 4.2 may know its holes.
        assert!(found[0] <= 10 << 20 && found[1] <= (10 << 20) + 3, "{found:?}");
    }
    assert!(rustix::fs::seek(&file, SeekFrom::Data(11 << 20)).is_err());
}

#[test]
fn a_file_removed_while_open_exists_until_it_is_closed() {
    let (_server, mount) = mounted();
    let file = flags(OFlags::empty()).open(mount.path("f")).unwrap();
    file.write_all_at(&pattern(100_000, 3), 0).unwrap();
    fs::remove_file(mount.path("f")).unwrap();
    assert!(!mount.path("f").exists());
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all_at(b"still here", 50_000).unwrap();
    let mut seen = vec![0; 10];
    file.read_exact_at(&mut seen, 50_000).unwrap();
    assert_eq!(seen, b"still here");
    assert!(mount.names().iter().all(|name| name.starts_with(".nfs")), "{:?}", mount.names());
    drop(file);
    fs::create_dir(mount.path("d")).unwrap();
    let file = File::create(mount.path("d/f")).unwrap();
    fs::remove_file(mount.path("d/f")).unwrap();
    assert_eq!(fs::remove_dir(mount.path("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    drop(file);
    fs::remove_dir(mount.path("d")).unwrap();
    testkit::Deadline::wait_until("the hidden file to go", crate::fixture::MOUNT_TIMEOUT, || {
        mount.names().is_empty().then_some(())
    });
}

#[test]
fn a_directory_can_be_removed_right_after_the_last_close_of_a_removed_file() {
    let (_server, mount) = mounted();
    for round in 0..300 {
        let directory = mount.path(&format!("d{round}"));
        fs::create_dir(&directory).unwrap();
        let file = File::create(directory.join("f")).unwrap();
        file.write_all_at(b"contents", 0).unwrap();
        fs::remove_file(directory.join("f")).unwrap();
        drop(file);
        fs::remove_dir(&directory).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    assert_eq!(mount.names(), Vec::<String>::new());
}

#[test]
fn a_file_replaced_while_open_exists_until_it_is_closed() {
    let (_server, mount) = mounted();
    fs::write(mount.path("f"), b"old").unwrap();
    let mut old = File::open(mount.path("f")).unwrap();
    fs::write(mount.path("g"), b"new").unwrap();
    fs::rename(mount.path("g"), mount.path("f")).unwrap();
    let mut seen = String::new();
    old.read_to_string(&mut seen).unwrap();
    assert_eq!((seen.as_str(), fs::read_to_string(mount.path("f")).unwrap().as_str()), ("old", "new"));
    drop(old);
    testkit::Deadline::wait_until("the hidden file to go", crate::fixture::MOUNT_TIMEOUT, || {
        (mount.names() == ["f"]).then_some(())
    });
}

#[test]
fn the_target_name_of_a_rename_exists_at_every_moment() {
    let server = Server::start(2);
    // The other mount caches nothing, so each lookup reaches the server.
    let (one, other) = (server.mount("one", ""), server.mount("other", "noac,lookupcache=none"));
    fs::write(one.path("f"), b"0").unwrap();
    let (ended, looks) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                match fs::metadata(other.path("f")) {
                    Ok(_) => drop(looks.fetch_add(1, Ordering::Relaxed)),
                    // The file was replaced twice in a row, between the lookup and the access to
                    // the file.
                    Err(error) if error.raw_os_error() == Some(rustix::io::Errno::STALE.raw_os_error()) => {}
                    Err(error) => {
                        ended.store(true, Ordering::Relaxed);
                        panic!("the name exists: {error}");
                    }
                }
            }
        });
        let mut turns = 0;
        while !ended.load(Ordering::Relaxed) && (turns < 50 || looks.load(Ordering::Relaxed) < 200) {
            turns += 1;
            let open = File::open(one.path("f")).unwrap();
            fs::write(one.path("g"), turns.to_string()).unwrap();
            fs::rename(one.path("g"), one.path("f")).unwrap();
            assert_eq!(std::io::read_to_string(open).unwrap(), (turns - 1).to_string());
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn modes_owners_and_times_are_kept() {
    let (_server, mount) = mounted();
    let path = mount.path("f");
    let file = File::create(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
    let times = fs::FileTimes::new()
        .set_accessed(UNIX_EPOCH + Duration::new(1_000_000_001, 5))
        .set_modified(UNIX_EPOCH + Duration::new(1_000_000_002, 7));
    file.set_times(times).unwrap();
    let seen = fs::metadata(&path).unwrap();
    assert_eq!(seen.mode() & 0o7777, 0o4751);
    assert_eq!((seen.atime(), seen.mtime(), seen.mtime_nsec()), (1_000_000_001, 1_000_000_002, 7));
    std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
    let seen = fs::metadata(&path).unwrap();
    assert_eq!((seen.uid(), seen.gid()), (1234, 4321));
}

#[test]
fn the_time_of_a_change_is_the_same_before_and_after_close() {
    let (_server, mount) = mounted();
    let mut file = File::create(mount.path("f")).unwrap();
    file.write_all(&pattern(10_000, 1)).unwrap();
    let before = file.metadata().unwrap();
    drop(file);
    let after = fs::metadata(mount.path("f")).unwrap();
    assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
}

#[test]
fn a_listing_returns_no_time_from_before_a_write() {
    let server = Server::start(1);
    for options in ["", "lookupcache=none"] {
        let (mount, other) =
            (server.mount(&format!("mnt{options}"), options), server.mount(&format!("other{options}"), ""));
        let mut file = File::create(mount.path("f")).unwrap();
        file.write_all(b"1").unwrap();
        file.sync_all().unwrap();
        file.write_all(b"2").unwrap();
        shell(&mount.directory, "ls -l; stat f");
        drop(file);
        let modified = |mount: &Mounted| fs::metadata(mount.path("f")).unwrap().modified().unwrap();
        assert_eq!(modified(&mount), modified(&other), "{options}");
    }
}

#[test]
fn special_files_links_long_names_and_deep_paths_work() {
    let (_server, mount) = mounted();
    shell(&mount.directory, "mkfifo fifo; mknod chr c 1 3; mknod blk b 8 300");
    let kind = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap().file_type();
    assert!(kind("fifo").is_fifo() && kind("chr").is_char_device() && kind("blk").is_block_device());
    let device = fs::metadata(mount.path("blk")).unwrap().rdev();
    assert_eq!((rustix::fs::major(device), rustix::fs::minor(device)), (8, 300));
    let _socket = std::os::unix::net::UnixListener::bind(mount.path("sock")).unwrap();
    assert!(kind("sock").is_socket());

    fs::write(mount.path("f"), b"x").unwrap();
    fs::hard_link(mount.path("f"), mount.path("g")).unwrap();
    let (f, g) = (fs::metadata(mount.path("f")).unwrap(), fs::metadata(mount.path("g")).unwrap());
    assert_eq!((f.ino(), f.nlink(), g.nlink()), (g.ino(), 2, 2));
    symlink("f", mount.path("s")).unwrap();
    assert_eq!(fs::read_link(mount.path("s")).unwrap().to_str(), Some("f"));
    assert_eq!(fs::read(mount.path("s")).unwrap(), b"x");

    let (long, longer) = ("n".repeat(255), "n".repeat(256));
    fs::write(mount.path(&long), b"").unwrap();
    assert!(mount.names().contains(&long));
    let error = fs::write(mount.path(&longer), b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFilename);
    let deep = mount.path(&vec!["d"; 400].join("/"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("f"), b"deep").unwrap();
    assert_eq!(fs::read(deep.join("f")).unwrap(), b"deep");
}

/// The names in a directory from the current position. What the system returns at once is a part of
/// a page of the server.
fn names_from_here(directory: &File, most: usize) -> Vec<String> {
    let mut room = [std::mem::MaybeUninit::uninit(); 1024];
    let mut names = Vec::new();
    let mut entries = rustix::fs::RawDir::new(directory, &mut room);
    while names.len() < most
        && let Some(entry) = entries.next()
    {
        names.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
    }
    names
}

#[test]
fn a_restarted_listing_returns_the_current_names() {
    let (_server, mount) = mounted();
    fs::write(mount.path("a"), b"").unwrap();
    let directory = File::open(&mount.directory).unwrap();
    assert_eq!(names_from_here(&directory, usize::MAX).len(), 3);
    fs::write(mount.path("b"), b"").unwrap();
    rustix::fs::seek(&directory, SeekFrom::Start(0)).unwrap();
    let mut names = names_from_here(&directory, usize::MAX);
    names.sort();
    assert_eq!(names, [".", "..", "a", "b"]);
}

#[test]
fn a_name_removed_during_a_listing_does_not_come_back() {
    let server = Server::start(1);
    let mount = server.mount("mnt", "forcerdirplus");
    let names: Vec<String> = (0..200).map(|number| format!("f{number}")).collect();
    names.iter().for_each(|name| drop(File::create(mount.path(name)).unwrap()));
    let directory = File::open(&mount.directory).unwrap();
    let begun = names_from_here(&directory, 1);
    assert!(!begun.is_empty());
    names.iter().for_each(|name| fs::remove_file(mount.path(name)).unwrap());
    while !names_from_here(&directory, usize::MAX).is_empty() {}
    for name in &names {
        assert!(!mount.path(name).exists(), "{name} was removed");
        drop(File::create_new(mount.path(name)).unwrap());
    }
}

#[test]
fn a_directory_of_thousands_lists_each_name_once() {
    let (_server, mount) = mounted();
    let directory = mount.path("d");
    fs::create_dir(&directory).unwrap();
    let expected: Vec<String> = (0..3000).map(|at| format!("name-{at:05}-{}", "x".repeat(at % 90))).collect();
    for name in &expected {
        File::create(directory.join(name)).unwrap();
    }
    assert_eq!(crate::fixture::names_in(&directory), expected);
    let listed = shell(&directory, "ls -la | wc -l");
    assert_eq!(listed.trim(), "3003", "with . and .. and the total");
    fs::remove_dir_all(&directory).unwrap();
    assert!(!directory.exists());
}

#[test]
fn statfs_returns_the_servers_values_and_the_callers_umask_applies() {
    let (_server, mount) = mounted();
    let space = rustix::fs::statvfs(&mount.directory).unwrap();
    assert_eq!(space.f_blocks * space.f_frsize, 1 << 30);
    assert!(space.f_bfree > 0 && space.f_namemax == 255);
    shell(&mount.directory, "umask 027; touch f; mkdir d");
    let mode = |name: &str| fs::metadata(mount.path(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("f"), mode("d")), (0o640, 0o750));
}

#[test]
fn each_caller_acts_with_their_own_user_and_groups() {
    let (_server, mount) = mounted();
    shell(&mount.directory, "mkdir g; chgrp 4242 g; chmod 770 g; mkdir open; chmod 777 open");
    let with = |groups: &str, script: &str| {
        let script = format!("setpriv --reuid 1000 --regid 1000 {groups} sh -euc '{script}'");
        try_shell(&mount.directory, &script)
    };
    let member = with("--groups 4242", "echo member > g/f; echo mine > open/f; cat g/f");
    assert_eq!((text(&member.stdout).as_str(), member.status.success()), ("member\n", true));
    let raw_peer = with("--clear-groups", "cat g/f");
    assert!(!raw_peer.status.success(), "only the group gives access");
    let seen = fs::metadata(mount.path("open/f")).unwrap();
    assert_eq!((seen.uid(), seen.gid()), (1000, 1000));
    // A handle keeps the rights with which it was opened.
    let file = with("--clear-groups", "exec 3> open/kept; chmod 0 open/kept; echo kept >&3");
    assert!(file.status.success(), "{}", text(&file.stderr));
    assert_eq!(fs::read(mount.path("open/kept")).unwrap(), b"kept\n");
    // So does a handle that was opened with a group that the caller then leaves.
    shell(&mount.directory, "chmod 640 g/f; chgrp 4242 g/f; chown 0 g/f; echo 1 > /proc/sys/vm/drop_caches");
    let left = "exec 3< g/f; exec setpriv --clear-groups sh -euc \"cat <&3; ! cat g/f\"";
    let left = with("--groups 4242 --inh-caps +setgid --ambient-caps +setgid", left);
    assert_eq!(
        (text(&left.stdout).as_str(), left.status.success()),
        ("member\n", true),
        "{}",
        text(&left.stderr)
    );
}

#[test]
fn with_nolock_locks_work_on_this_host() {
    let (_server, mount) = mounted();
    let (one, other) = (File::create(mount.path("f")).unwrap(), File::open(mount.path("f")).unwrap());
    rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    let refused = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    rustix::fs::fcntl_lock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    // Locks of fcntl(2) belong to a process, so another process has to try.
    let fcntl = "perl -MFcntl=:DEFAULT,:seek -e 'open(my $f, \"+<\", $ARGV[0]) or die; \
                 my $lock = pack(\"ssx4qqlx4\", F_WRLCK, SEEK_SET, 0, 0, 0); \
                 exit(fcntl($f, F_SETLK, $lock) ? 0 : 1)' f";
    for locked in [true, false] {
        for tries in ["flock -n f true", fcntl] {
            assert_eq!(try_shell(&mount.directory, tries).status.success(), !locked, "{tries}");
        }
        rustix::fs::flock(&one, FlockOperation::Unlock).unwrap();
        rustix::fs::fcntl_lock(&one, FlockOperation::Unlock).unwrap();
    }
}

#[test]
fn without_a_lock_manager_locks_fail_with_enolck_and_the_log_says_why() {
    let server = Server::start_without_locks(1);
    let mount = server.mount("mnt", "vers=3");
    let file = File::create(mount.path("f")).unwrap();
    let no_locks = Err(rustix::io::Errno::NOLCK);
    assert_eq!(rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive), no_locks);
    assert_eq!(rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive), no_locks);
    mount.process.wait_for_line("ENOLCK", crate::fixture::MOUNT_TIMEOUT);
    // Each kind of lock by itself, as the options say.
    for (options, flock, fcntl) in
        [("local_lock=flock", Ok(()), no_locks), ("local_lock=posix", no_locks, Ok(()))]
    {
        let mount = server.mount(options, &format!("vers=3,{options}"));
        let file = File::create(mount.path("f")).unwrap();
        assert_eq!(rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive), flock, "{options}");
        assert_eq!(
            rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive),
            fcntl,
            "{options}"
        );
    }
}

#[test]
fn data_neither_closed_nor_synced_are_soon_on_the_server() {
    let server = Server::start(1);
    let (one, other) = (server.mount("one", ""), server.mount("other", ""));
    let file = flags(OFlags::empty()).open(one.path("f")).unwrap();
    for (len, seed) in [(100, 1), (3 * MIB, 2)] {
        let data = pattern(len, seed);
        file.write_all_at(&data, 0).unwrap();
        Deadline::wait_until("the data to be on the server", MOUNT_TIMEOUT, || {
            (fs::read(other.path("f")).unwrap() == data).then_some(())
        });
    }
}

#[test]
fn fsync_reports_a_failed_write_once_for_each_handle() {
    const NO_SPACE: Option<i32> = Some(28);
    let (_server, mount) = mounted();
    let open = || flags(OFlags::empty()).open(mount.path("f")).unwrap();
    let (file, other) = (open(), open());
    // More than the export holds and may wait to be sent, so write(2) fails.
    let piece = pattern(MIB, 1);
    let told = (0..1100).find_map(|at| file.write_all_at(&piece, at * MIB as u64).err());
    assert_eq!(told.expect("1100 MiB do not fit into 1 GiB").raw_os_error(), NO_SPACE);
    // The error of write(2) does not count: for a long write(2) that was done in part, the kernel
    // reports only that part.
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), NO_SPACE);
    file.sync_all().expect("each error is reported once");
    // Closing a duplicate, as exec(2) in a child does, does not consume the error.
    drop(other.try_clone().unwrap());
    assert_eq!(other.sync_all().unwrap_err().raw_os_error(), NO_SPACE);
    other.sync_all().expect("each error is reported once");
    open().sync_all().expect("both handles got the error before this handle was opened");
    // The error of this close is ignored, so the next handle gets the error.
    fs::write(mount.path("g"), &piece).unwrap();
    let late = File::open(mount.path("g")).unwrap();
    assert_eq!(late.sync_all().unwrap_err().raw_os_error(), NO_SPACE);
    late.sync_all().expect("each error is reported once");
    // dd(1) reports the error of close(2).
    let to = format!("of={}", mount.path("h").display());
    let dd = Command::new("dd").args(["if=/dev/zero", &to, "bs=1M", "count=1"]).output().unwrap();
    let said = String::from_utf8_lossy(&dd.stderr);
    assert!(!dd.status.success() && said.contains("No space left"), "{said}");
    drop((file, other));
    fs::remove_file(mount.path("f")).unwrap();
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let server = Server::start(1);
    let mount = server.mount("rw", "");
    fs::write(mount.path("f"), b"1").unwrap();
    let read_only = server.mount("ro", "ro");
    assert_eq!(fs::read(read_only.path("f")).unwrap(), b"1");
    for refused in [
        fs::write(read_only.path("f"), b"2"),
        fs::create_dir(read_only.path("d")),
        fs::remove_file(read_only.path("f")),
        fs::rename(read_only.path("f"), read_only.path("g")),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
}

#[test]
fn the_name_of_a_file_replaced_by_another_client_is_looked_up_again() {
    let server = Server::start(1);
    let (one, other) = (server.mount("one", ""), server.mount("other", ""));
    fs::write(one.path("f"), b"first").unwrap();
    let open = File::open(one.path("f")).unwrap();
    fs::remove_file(other.path("f")).unwrap();
    fs::write(other.path("f"), b"second").unwrap();
    // By name: the kernel uses the cached file, learns that it is stale, and looks the name up
    // again.
    assert_eq!(fs::read(one.path("f")).unwrap(), b"second");
    // By handle the program can read only what the kernel has cached.
    shell(&one.directory, "echo 1 > /proc/sys/vm/drop_caches");
    let mut rest = [0; 5];
    let read = open.read_at(&mut rest, 0);
    match read {
        Ok(_) => assert_eq!(rest, *b"first"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::STALE.raw_os_error())),
    }
}

#[test]
fn two_processes_share_a_mapping() {
    let (_server, mount) = mounted();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/mapping.c");
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join("mapping");
    let compile = format!("cc -O1 -Wall -Werror -o {} {source}", program.display());
    shell(built.path(), &compile);
    let said = shell(&mount.directory, &format!("{} f", program.display()));
    assert_eq!(said, "2000 turns\n");
    assert_eq!(fs::read(mount.path("f")).unwrap()[..4], 2000_u32.to_ne_bytes());
}
