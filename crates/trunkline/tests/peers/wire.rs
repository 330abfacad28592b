//! Tests the messages that our client and our server send to each other and to others, as tshark
//! decodes them.

use crate::capture::Capture;
use crate::fixtures::{EXPORT, Group, assert_same, pattern};
use crate::ganesha::Ganesha;
use crate::libnfs::{Export, Load, list};
use client::options::Version;
use client::{Mount, Settings};
use fs::{CreateMode, SetAttributes};
use nfs3::{Procedure, mount};

/// Enough data that several WRITEs are always under way: a single WRITE is sent FILE_SYNC, and no
/// COMMIT follows. A capture stays within a few tens of MB.
const FILE_BYTES: usize = 8 << 20;

/// The procedures that [`everything`] calls on any server.
const CALLED: [Procedure; 16] = [
    Procedure::GetAttr,
    Procedure::SetAttr,
    Procedure::Lookup,
    Procedure::ReadLink,
    Procedure::Read,
    Procedure::Write,
    Procedure::Create,
    Procedure::MkDir,
    Procedure::SymLink,
    Procedure::Remove,
    Procedure::RmDir,
    Procedure::Rename,
    Procedure::Link,
    Procedure::ReadDirPlus,
    Procedure::FsStat,
    Procedure::FsInfo,
];

/// The procedures of version 4: nothing else is called on a connection, but for NULL. RFC 8881 s16
const COMPOUND: [u32; 1] = [1];

/// Uses every kind of operation of the client a little; dropping the mount ends the connections.
fn everything(mount: &Mount) {
    let root = mount.root();
    let attributes = SetAttributes::mode(0o755);
    let (directory, _) = mount.make_directory(root, b"directory", attributes).unwrap();
    let file = mount.create_file(b"/directory/file", 0o640).unwrap();
    let data = pattern(FILE_BYTES + 4321, 1);
    file.write_all_at(&data, 0).unwrap();
    let mut found = vec![0; data.len()];
    file.read_all_at(&mut found, 0).unwrap();
    assert_same("read back", &found, &data);
    for at in 0..50 {
        let mut small = vec![0; 4096];
        file.read_all_at(&mut small, at * 4096).unwrap();
    }
    mount
        .set_attributes(file.handle(), SetAttributes { size: Some(100), ..SetAttributes::default() }, None)
        .unwrap();
    let exclusive = CreateMode::Exclusive([7; 8]);
    let (once, _) = mount.create(directory, b"once", exclusive).unwrap();
    mount.create(directory, b"once", CreateMode::Guarded(SetAttributes::default())).unwrap_err();
    mount.link(once, root, b"twice").unwrap();
    mount.make_symlink(root, b"symbolic", b"directory/file").unwrap();
    mount.resolve(b"/symbolic").unwrap();
    mount.resolve(b"/directory/nothing").unwrap_err();
    for number in 0..300 {
        let name = format!("one of many names, number {number}");
        mount.create(directory, name.as_bytes(), CreateMode::Unchecked(SetAttributes::default())).unwrap();
    }
    assert_eq!(mount.read_directory(directory).unwrap().len(), 302);
    mount.rename((root, b"twice"), (directory, b"renamed")).unwrap();
    mount.remove_directory(root, b"directory").unwrap_err();
    for entry in mount.read_directory(directory).unwrap() {
        mount.remove(directory, &entry.name).unwrap();
    }
    mount.remove_directory(root, b"directory").unwrap();
    mount.remove(root, b"symbolic").unwrap();
    mount.space().unwrap();
}

fn numbers(procedures: &[Procedure]) -> Vec<u32> {
    procedures.iter().map(|procedure| procedure.number()).collect()
}

#[test]
fn messages_between_our_client_and_our_server_are_well_formed_and_answered() {
    let group = Group::start(4);
    let capture = Capture::start(&[group.port]);
    let settings = Settings {
        remotes: group.addresses.iter().copied().map(Into::into).collect(),
        nconnect: 8,
        ..Settings::new(group.node(0), group.port, EXPORT)
    };
    everything(&Mount::with_settings(settings).unwrap());
    let decoded = capture.finish();
    decoded.assert_called(mount::PROGRAM, &[mount::Procedure::Mnt.number()]);
    decoded.assert_called(nfs3::PROGRAM, &numbers(&CALLED));
}

#[test]
fn messages_between_our_client_and_ganesha_are_well_formed_and_answered() {
    let ganesha = Ganesha::start();
    let capture = Capture::start(&[ganesha.port, ganesha.mount_port]);
    everything(&ganesha.mount(Version::V3, 2));
    let decoded = capture.finish();
    decoded.assert_called(mount::PROGRAM, &[mount::Procedure::Mnt.number()]);
    decoded.assert_called(nfs3::PROGRAM, &numbers(&CALLED));
    // Writes of nfs-ganesha are stable only after a COMMIT. RFC 1813 s3.3.21
    decoded.assert_called(nfs3::PROGRAM, &numbers(&[Procedure::Commit]));
}

#[test]
fn messages_of_version_4_are_well_formed_and_answered_by_either_server() {
    for minor in [1, 2] {
        let version = Version::V4(Some(minor));
        let group = Group::start(2);
        let capture = Capture::start(&[group.port]);
        let settings = Settings {
            version,
            remotes: group.addresses.iter().copied().map(Into::into).collect(),
            nconnect: 4,
            ..Settings::new(group.node(0), group.port, EXPORT)
        };
        everything(&Mount::with_settings(settings).unwrap());
        capture.finish().assert_called(nfs3::PROGRAM, &COMPOUND);

        let ganesha = Ganesha::start();
        let capture = Capture::start(&[ganesha.port]);
        everything(&ganesha.mount(version, 2));
        capture.finish().assert_called(nfs3::PROGRAM, &COMPOUND);
    }
}

#[test]
fn messages_between_libnfs_and_our_server_are_well_formed_and_answered() {
    let group = Group::start(1);
    let export = Export::ours(group.node(0), group.port);
    let capture = Capture::start(&[group.port]);
    for (mode, block) in [("fill", 1 << 20), ("check", 1 << 20), ("fill", 4096), ("check", 4096)] {
        Load { mode, block, depth: 8, connections: 2, seconds: "1", file_mib: 1 }.run(&export);
    }
    assert_eq!(list(&export, "").lines().count(), 2);
    let decoded = capture.finish();
    decoded.assert_called(mount::PROGRAM, &[mount::Procedure::Mnt.number()]);
    let called = [Procedure::Read, Procedure::Write, Procedure::Commit, Procedure::Create, Procedure::Lookup];
    decoded.assert_called(nfs3::PROGRAM, &numbers(&called));
    decoded.assert_called(nfs3::PROGRAM, &numbers(&[Procedure::ReadDirPlus, Procedure::GetAttr]));
}

#[test]
fn messages_between_libnfs_and_ganesha_pass_the_same_check() {
    // Odd messages between two other implementations are no error of ours: this test checks the
    // check itself.
    let ganesha = Ganesha::start();
    let capture = Capture::start(&[ganesha.port, ganesha.mount_port]);
    Load { mode: "fill", block: 65_536, depth: 8, connections: 2, seconds: "1", file_mib: 1 }
        .run(&ganesha.export());
    capture.finish().assert_called(nfs3::PROGRAM, &numbers(&[Procedure::Write]));
}
