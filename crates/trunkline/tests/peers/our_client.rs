//! Tests our client on nfs-ganesha: files, the tree, and a server that is killed during writes.

use crate::fixtures::{TIMEOUT, assert_same, pattern};
use crate::ganesha::Ganesha;
use ::fs::{CreateMode, FileHandle, FileKind, SetAttributes, Status};
use client::options::Version;
use client::{Error, Mount, SetXattr, Settings, Sought};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use testkit::Deadline;

/// Each test is made by each of these versions.
const VERSIONS: [Version; 3] = [Version::V3, Version::V4(Some(1)), Version::V4(Some(2))];

const LARGE_BYTES: usize = 64 << 20;

#[test]
fn a_file_written_over_four_connections_reads_back_and_is_equal_on_the_server() {
    for version in VERSIONS {
        let ganesha = Ganesha::start();
        let mount = ganesha.mount(version, 4);
        let data = pattern(LARGE_BYTES, 1);
        let file = mount.create_file(b"/large", 0o644).unwrap();
        file.write_all_at(&data, 0).unwrap();
        assert_eq!(file.attributes().unwrap().size, LARGE_BYTES as u64);
        let mut found = vec![0; LARGE_BYTES + 1];
        assert_eq!(file.read_all_at(&mut found, 0).unwrap(), LARGE_BYTES);
        assert_same("read back", &found[..LARGE_BYTES], &data);
        assert_same("on the server", &fs::read(ganesha.local("large")).unwrap(), &data);
        let written: u64 = mount.statistics().paths.iter().map(|path| path.counters.write.bytes).sum();
        assert_eq!(written, LARGE_BYTES as u64, "no byte is written twice");
    }
}

#[test]
fn small_writes_at_odd_offsets_give_the_right_file_on_the_server() {
    for version in VERSIONS {
        let ganesha = Ganesha::start();
        let mount = ganesha.mount(version, 2);
        let file = mount.create_file(b"/odd", 0o600).unwrap();
        let mut model = Vec::new();
        for step in 0..200_usize {
            let (at, len) = (step * 7919 % 150_000, 1 + step * 104_729 % 50_000);
            let data = pattern(len, step as u64);
            file.write_all_at(&data, at as u64).unwrap();
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].copy_from_slice(&data);
        }
        assert_same("on the server", &fs::read(ganesha.local("odd")).unwrap(), &model);
        let mut found = vec![0; model.len()];
        file.read_all_at(&mut found, 0).unwrap();
        assert_same("read back", &found, &model);
    }
}

fn make_directory(mount: &Mount, parent: FileHandle, name: &[u8]) -> FileHandle {
    mount.make_directory(parent, name, SetAttributes::mode(0o755)).unwrap().0
}

fn status_of<T: std::fmt::Debug>(result: Result<T, Error>) -> Status {
    let error = result.unwrap_err();
    error.status().unwrap_or_else(|| panic!("{error:?}"))
}

#[test]
fn links_renames_and_removals_change_the_tree_on_the_server() {
    for version in VERSIONS {
        let ganesha = Ganesha::start();
        let mount = ganesha.mount(version, 1);
        let root = mount.root();
        let directory = make_directory(&mount, root, b"directory");
        let file = mount.create_file(b"/directory/file", 0o640).unwrap();
        file.write_all_at(b"contents", 0).unwrap();
        mount.link(file.handle(), root, b"again").unwrap();
        assert_eq!(mount.attributes(file.handle()).unwrap().nlink, 2);
        mount.make_symlink(root, b"symbolic", b"directory/file").unwrap();
        let (_, through_link) = mount.resolve(b"/symbolic").unwrap();
        assert_eq!((through_link.size, through_link.kind), (8, FileKind::Regular));
        assert_eq!(fs::read_link(ganesha.local("symbolic")).unwrap().to_str(), Some("directory/file"));

        mount.rename((directory, b"file"), (root, b"moved")).unwrap();
        assert_eq!(fs::read(ganesha.local("moved")).unwrap(), b"contents");
        assert_eq!(status_of(mount.resolve(b"/directory/file")), Status::NotFound);
        mount.rename((root, b"moved"), (root, b"\xff not UTF-8")).unwrap();
        let names: BTreeSet<Vec<u8>> =
            mount.read_directory(root).unwrap().into_iter().map(|entry| entry.name).collect();
        let wanted: [&[u8]; 4] = [b"again", b"directory", b"symbolic", b"\xff not UTF-8"];
        assert_eq!(names, wanted.iter().map(|name| name.to_vec()).collect());

        let exclusive = CreateMode::Exclusive([7; 8]);
        mount.create(directory, b"once", exclusive).unwrap();
        let other = CreateMode::Guarded(SetAttributes::default());
        assert_eq!(status_of(mount.create(directory, b"once", other)), Status::Exists);
        assert_eq!(status_of(mount.remove_directory(root, b"directory")), Status::NotEmpty);
        mount.remove(directory, b"once").unwrap();
        mount.remove_directory(root, b"directory").unwrap();
        for name in [&b"again"[..], b"symbolic", b"\xff not UTF-8"] {
            mount.remove(root, name).unwrap();
        }
        assert_eq!(fs::read_dir(ganesha.local("")).unwrap().count(), 0);
        assert!(mount.space().unwrap().total_bytes > 0);
    }
}

#[test]
fn a_directory_of_2000_names_is_listed_whole_and_once() {
    for version in VERSIONS {
        let ganesha = Ganesha::start();
        let mount = ganesha.mount(version, 2);
        let directory = make_directory(&mount, mount.root(), b"many");
        let wanted: BTreeSet<Vec<u8>> = (0..2000).map(|n| format!("name number {n}").into_bytes()).collect();
        for name in &wanted {
            mount.create(directory, name, CreateMode::Unchecked(SetAttributes::default())).unwrap();
        }
        let entries = mount.read_directory(directory).unwrap();
        assert_eq!(entries.len(), 2000);
        let found: BTreeSet<Vec<u8>> = entries.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(found, wanted);
        for name in &wanted {
            mount.remove(directory, name).unwrap();
        }
        assert!(mount.read_directory(directory).unwrap().is_empty());
    }
}

#[test]
fn writes_complete_when_the_server_is_killed_and_restarted() {
    for version in VERSIONS {
        let mut ganesha = Ganesha::start();
        let mount = ganesha.mount(version, 4);
        let file = mount.create_file(b"/survivor", 0o644).unwrap();
        let (rounds, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let round_passes = |what: &str, after: u64| {
            Deadline::wait_until(what, TIMEOUT, || (rounds.load(Ordering::SeqCst) > after).then_some(()));
        };
        let last = std::thread::scope(|scope| {
            // Each round overwrites the same range; at the end the file must hold all data of the
            // last round.
            let writer = scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let round = rounds.load(Ordering::SeqCst) + 1;
                    file.write_all_at(&pattern(32 << 20, round), 0).unwrap();
                    rounds.store(round, Ordering::SeqCst);
                }
                rounds.load(Ordering::SeqCst)
            });
            round_passes("a whole round before the first kill", 0);
            for _ in 0..3 {
                ganesha.kill();
                let before = rounds.load(Ordering::SeqCst);
                ganesha.start_again();
                // The round that was under way, and one that began afterwards.
                round_passes("two rounds after the restart of the server", before + 1);
            }
            stop.store(true, Ordering::SeqCst);
            writer.join().unwrap()
        });
        let wanted = pattern(32 << 20, last);
        let mut found = vec![0; wanted.len()];
        file.read_all_at(&mut found, 0).unwrap();
        assert_same("read back", &found, &wanted);
        assert_same("on the server", &fs::read(ganesha.local("survivor")).unwrap(), &wanted);
    }
}

/// The number of a user of this machine.
fn user(name: &str) -> u32 {
    let all = fs::read_to_string("/etc/passwd").unwrap();
    let line = all.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}

// RFC 8881 s5.9
#[test]
fn owners_that_are_names_have_the_numbers_of_this_host_and_are_set() {
    let ganesha = Ganesha::start_with_names("example.org");
    let settings = |domain: &str| Settings {
        version: Version::V4(Some(2)),
        owner_domain: Some(domain.to_owned()),
        ..ganesha.settings()
    };
    let mount = ganesha.mount_with(settings("example.org"));
    let file = mount.create_file(b"/file", 0o644).unwrap();
    assert_eq!(file.attributes().unwrap().uid, 0);
    let daemon = user("daemon");
    mount
        .set_attributes(file.handle(), SetAttributes { uid: Some(daemon), ..Default::default() }, None)
        .unwrap();
    let (seen, there) = (file.attributes().unwrap(), fs::metadata(ganesha.local("file")).unwrap());
    assert_eq!((seen.uid, there.uid()), (daemon, daemon));
    // In another domain nobody knows these names.
    let other = ganesha.mount_with(settings("example.com"));
    assert_eq!(other.resolve(b"/file").unwrap().1.uid, 65_534);
}

// RFC 7862, RFC 8276
#[test]
fn what_nfs_ganesha_has_of_version_4_2_works_and_the_rest_is_not_supported() {
    let ganesha = Ganesha::start();
    let mount = ganesha.mount(Version::V4(Some(2)), 2);
    let file = mount.create_file(b"/file", 0o644).unwrap();
    let mut data = pattern(1 << 20, 1);
    file.write_all_at(&data, 0).unwrap();
    let handle = file.handle();
    mount.deallocate(handle, 100_000..200_000).unwrap();
    data[100_000..200_000].fill(0);
    mount.zero(handle, 300_000..300_010).unwrap();
    data[300_000..300_010].fill(0);
    mount.allocate(handle, 1 << 20..2 << 20).unwrap();
    data.resize(2 << 20, 0);
    assert_same("on the server", &fs::read(ganesha.local("file")).unwrap(), &data);
    // It finds every hole at the beginning of the file.
    for offset in [0, 100_000] {
        let found = mount.seek(handle, offset, Sought::Hole);
        assert!(matches!(found, Err(Error::Declined { .. })), "{found:?}");
    }
    let copied = mount.copy((handle, 0), (handle, 4 << 20), 1 << 20, || true);
    assert_eq!(status_of(copied), Status::NotSupported);
    assert_eq!(status_of(mount.set_xattr(handle, b"a", b"b", SetXattr::Either)), Status::NotSupported);
    assert_eq!(status_of(mount.xattr(handle, b"a")), Status::NotSupported);
    assert_eq!(status_of(mount.xattrs(handle)), Status::NotSupported);
    assert_eq!(status_of(mount.remove_xattr(handle, b"a")), Status::NotSupported);
}
