//! Tests a group whose directory is on a full file system.

use crate::fixtures::{Directories, EXPORT, mkdir, trunkline};
use crate::peer::{Peer, SOON};
use nfs3::{Procedure, Status};
use std::net::SocketAddr;
use std::process::Command;
use testkit::{Process, Stream, free_port_on, require_program};

/// A node whose group directory is on a file system of this size, which only the node sees.
fn node_within(directories: &Directories, size: &str) -> (SocketAddr, Process) {
    let ip = [127, 0, 0, 1].into();
    let address = SocketAddr::new(ip, free_port_on(ip));
    std::fs::create_dir_all(directories.group()).expect("a directory");
    let mut command = Command::new(require_program("unshare"));
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs -o mode=0700,size=$0 tmpfs $1 && shift && exec \"$@\"",
        size,
    ]);
    let node = trunkline(&directories.arguments(address).iter().map(String::as_str).collect::<Vec<_>>());
    command.arg(directories.group()).arg(node.get_program()).args(node.get_args());
    (address, Process::spawn(command))
}

#[test]
fn a_group_without_space_for_its_file_is_refused() {
    let directories = Directories::new("group-no-space");
    let (_, mut process) = node_within(&directories, "1m");
    let status = process.wait(SOON);
    let error = process.output(Stream::Err);
    assert_eq!(status.code(), Some(1), "{error}");
    assert!(error.contains("No space left") && error.contains("  try:   "), "{error}");
}

#[test]
fn a_client_for_whose_windows_there_is_no_space_gets_jukebox_and_others_are_served() {
    let directories = Directories::new("group-little-space");
    let (address, process) = node_within(&directories, "44m");
    process.wait_for_line("ready", SOON);
    let mut served = 0;
    for id in 0_u32.. {
        let mut peer = Peer::of_ours(address, u64::from(id) + 1);
        let root = peer.mount(EXPORT);
        let name = format!("directory-{id}").into_bytes();
        peer.call(0x8000_0001, Procedure::MkDir, &mkdir(root, &name));
        let reply = peer.try_receive().expect("an answer");
        assert_eq!(reply[20..24], [0; 4], "client {id}");
        // Nothing was executed. RFC 1813 s2.6
        if reply[24..28] == Status::JUKEBOX.0.to_be_bytes() {
            assert!(!directories.served().join(format!("directory-{id}")).exists());
            break;
        }
        assert_eq!(reply[24..28], [0; 4], "client {id}");
        served += 1;
    }
    assert!((1..60).contains(&served), "{served} clients have half a MiB each");
    // A client that has windows continues, and so does a client that needs none.
    let mut first = Peer::of_ours(address, 1);
    let root = first.mount(EXPORT);
    assert_eq!(first.exchange(0x8000_0002, Procedure::MkDir, &mkdir(root, b"more"))[..4], [0; 4]);
    let mut foreign = Peer::foreign(address);
    assert_eq!(foreign.exchange(5, Procedure::MkDir, &mkdir(root, b"foreign"))[..4], [0; 4]);
}
