//! Tests nodes that are killed between executing a call and answering it: at their first sync after
//! the start, which follows the change and precedes the reply.

use crate::fixtures::{
    Directories, EXPORT, Node, create_exclusive, create_guarded, exists, file, link, lookup, mkdir, remove,
    rename, rmdir, symlink, trunkline,
};
use crate::peer::{Peer, SOON};
use nfs3::{FileHandle, Procedure, Wire, proc};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testkit::{Process, free_port_on, require_program};
use xdr::Reader;

/// The first xid of the calls whose whole reply is cached.
const WHOLE: u32 = 0x8000_0001;

/// A node that strace kills when it makes this system call.
pub fn mortal(directories: &Directories, system_call: &str) -> (SocketAddr, Process) {
    let ip = [127, 0, 0, 1].into();
    let address = SocketAddr::new(ip, free_port_on(ip));
    let mut command = Command::new(require_program("strace"));
    let inject = format!("inject={system_call}:signal=SIGKILL");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={system_call}"), "-e", &inject]);
    let node = trunkline(&directories.arguments(address).iter().map(String::as_str).collect::<Vec<_>>());
    command.arg(node.get_program()).args(node.get_args());
    let process = Process::spawn(command);
    process.wait_for_line("ready", SOON);
    (address, process)
}

fn found(peer: &mut Peer, root: FileHandle, name: &[u8]) -> FileHandle {
    let results = peer.exchange(3, Procedure::Lookup, &lookup(root, name));
    let reply = proc::lookup::Reply::decode(&mut Reader::new(&results)).expect("a reply");
    reply.into_result().expect("the name exists").object
}

/// Sends a call to a node that is killed during the call, and returns the replies of the other node
/// to two copies.
fn struck(
    directories: &Directories,
    survivor: &Node,
    index: u32,
    system_call: &str,
    procedure: Procedure,
    args: &dyn Fn(FileHandle, FileHandle) -> Vec<u8>,
) -> [Vec<u8>; 2] {
    let (address, mut process) = mortal(directories, system_call);
    // Every second client is a foreign one.
    let connect = |to| if index.is_multiple_of(2) { Peer::of_ours(to, 7) } else { Peer::foreign(to) };
    let mut peer = connect(address);
    let root = peer.mount(EXPORT);
    let linked = found(&mut peer, root, b"linked");
    let xid = WHOLE + index;
    peer.call(xid, procedure, &args(root, linked));
    assert!(peer.try_receive().is_none(), "{procedure:?} was answered before the change was on disk");
    process.wait(SOON);
    let mut there = connect(survivor.address);
    [0, 1].map(|_| there.exchange(xid, procedure, &args(root, linked)))
}

#[test]
fn a_call_in_which_a_node_was_killed_is_done_once() {
    let directories = Directories::new("group-struck");
    let survivor = Node::start(&directories, 2);
    for name in ["linked", "gone", "from"] {
        file(&directories, name, b"");
    }
    std::fs::create_dir(directories.served().join("empty")).expect("a directory");
    type Args = dyn Fn(FileHandle, FileHandle) -> Vec<u8>;
    let calls: [(Procedure, &Args); 8] = [
        (Procedure::MkDir, &|root, _| mkdir(root, b"directory")),
        (Procedure::Remove, &|root, _| remove(root, b"gone")),
        (Procedure::Rename, &|root, _| rename(root, b"from", b"to")),
        (Procedure::Create, &|root, _| create_guarded(root, b"guarded", 0o640)),
        (Procedure::Create, &|root, _| create_exclusive(root, b"exclusive", [7; 8])),
        (Procedure::Link, &|root, linked| link(root, linked, b"link")),
        (Procedure::SymLink, &|root, _| symlink(root, b"symlink")),
        (Procedure::RmDir, &|root, _| rmdir(root, b"empty")),
    ];
    for (index, (procedure, args)) in (0..).zip(calls) {
        let answers = struck(&directories, &survivor, index, "fsync", procedure, args);
        // Executed twice, the call would get NFS3ERR_EXIST or NFS3ERR_NOENT.
        assert_eq!(answers[0][..4], [0; 4], "{procedure:?} number {index}");
        assert_eq!(answers[0], answers[1], "{procedure:?} number {index}");
    }
    let at = |name: &str| directories.served().join(name).symlink_metadata();
    for name in ["directory", "to", "guarded", "exclusive", "link", "symlink"] {
        assert!(at(name).is_ok(), "{name}");
    }
    for name in ["gone", "from", "empty"] {
        assert!(at(name).is_err(), "{name}");
    }
    assert_eq!(at("guarded").expect("made").permissions().mode() & 0o7777, 0o640);
}

#[test]
fn an_exclusive_create_finds_its_file_wherever_the_node_was_killed() {
    let directories = Directories::new("group-exclusive");
    let survivor = Node::start(&directories, 2);
    file(&directories, "linked", b"");
    for (index, system_call) in (0..).zip(["utimensat", "linkat", "fsync"]) {
        let name = format!("struck-in-{system_call}");
        let args = |root, _| create_exclusive(root, name.as_bytes(), [7; 8]);
        let answers = struck(&directories, &survivor, index, system_call, Procedure::Create, &args);
        assert_eq!(answers[0][..4], [0; 4], "{system_call}");
        assert_eq!(answers[0], answers[1], "{system_call}");
        assert!(exists(&directories, &name));
    }
}

#[test]
fn a_call_that_a_killed_node_had_not_executed_is_executed_by_its_neighbour() {
    let directories = Directories::new("group-unstruck");
    let survivor = Node::start(&directories, 2);
    file(&directories, "linked", b"");
    // This is the reply to a second REMOVE: if the REMOVE of the killed node had counted as done,
    // the neighbour would not have removed the name before.
    let answers = struck_before(&directories, &survivor);
    assert_eq!(answers[..4], [0, 0, 0, 2], "NFS3ERR_NOENT");
}

/// Like [`struck`], with a node that is killed when it is about to remove the name. Returns the
/// reply to a second REMOVE.
fn struck_before(directories: &Directories, survivor: &Node) -> Vec<u8> {
    let (address, mut process) = mortal(directories, "unlinkat");
    file(directories, "there", b"");
    let mut peer = Peer::of_ours(address, 9);
    let root = peer.mount(EXPORT);
    peer.call(WHOLE, Procedure::Remove, &remove(root, b"there"));
    assert!(peer.try_receive().is_none());
    process.wait(SOON);
    let mut there = Peer::of_ours(survivor.address, 9);
    let answer = there.exchange(WHOLE, Procedure::Remove, &remove(root, b"there"));
    assert_eq!(answer[..4], [0; 4], "the neighbour removes the name");
    assert!(directories.served().join("there").symlink_metadata().is_err());
    there.exchange(WHOLE + 1, Procedure::Remove, &remove(root, b"there"))
}
