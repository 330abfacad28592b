//! Tests clients at one address that send the same calls with the same xids to several processes of
//! a group: a neighbour's call is executed, and a retry is answered from the cache.

use crate::fixtures::{
    Directories, EXPORT, Node, create_guarded, file, mkdir, remove, rename, rmdir, symlink,
};
use crate::peer::Peer;
use nfs3::{FileHandle, Procedure, Status};

const XID: u32 = 0;

fn status(results: &[u8]) -> Status {
    Status(u32::from_be_bytes(results[..4].try_into().expect("a status")))
}

/// Calls on objects with this number, and the status of each if it was executed before.
fn calls(directories: &Directories, root: FileHandle, number: u32) -> Vec<(Procedure, Vec<u8>, Status)> {
    let name = |what: &str| format!("{what}-{number}");
    for gone in ["removed", "from"] {
        file(directories, &name(gone), b"");
    }
    std::fs::create_dir(directories.served().join(name("rmdir"))).expect("a directory");
    let bytes = |what: &str| name(what).into_bytes();
    vec![
        (Procedure::Create, create_guarded(root, &bytes("created"), 0o644), Status::EXIST),
        (Procedure::MkDir, mkdir(root, &bytes("made")), Status::EXIST),
        (Procedure::SymLink, symlink(root, &bytes("symlink")), Status::EXIST),
        (Procedure::Remove, remove(root, &bytes("removed")), Status::NOENT),
        (Procedure::RmDir, rmdir(root, &bytes("rmdir")), Status::NOENT),
        (Procedure::Rename, rename(root, &bytes("from"), &bytes("to")), Status::NOENT),
    ]
}

#[test]
fn a_neighbour_at_another_process_is_no_retry() {
    let directories = Directories::new("group-neighbours");
    let (first, second) = (Node::start(&directories, 1), Node::start(&directories, 2));
    let (mut here, mut there) = (Peer::foreign(first.address), Peer::foreign(second.address));
    let root = here.mount(EXPORT);
    for (procedure, args, executed_again) in calls(&directories, root, 1) {
        assert_eq!(status(&here.exchange(XID, procedure, &args)), Status::OK, "{procedure:?}");
        assert_eq!(status(&there.exchange(XID, procedure, &args)), executed_again, "{procedure:?}");
        assert_eq!(status(&here.exchange(XID, procedure, &args)), Status::OK, "{procedure:?}: its own reply");
    }
    // A client that closed in order retries nothing, at either process.
    for (procedure, args, executed_again) in calls(&directories, root, 2) {
        let mut gone = Peer::foreign(first.address);
        assert_eq!(status(&gone.exchange(XID, procedure, &args)), Status::OK, "{procedure:?}");
        drop(gone);
        let mut next = Peer::foreign(second.address);
        assert_eq!(status(&next.exchange(XID, procedure, &args)), executed_again, "{procedure:?}");
    }
}

#[test]
fn a_retry_after_a_broken_connection_is_answered_by_another_process() {
    let directories = Directories::new("group-retry");
    let (mut first, second) = (Node::start(&directories, 1), Node::start(&directories, 2));
    let root = Peer::foreign(first.address).mount(EXPORT);
    for (procedure, args, _) in calls(&directories, root, 1) {
        let mut here = Peer::foreign(first.address);
        let answer = here.exchange(XID, procedure, &args);
        assert_eq!(status(&answer), Status::OK, "{procedure:?}");
        here.reset();
        assert_eq!(Peer::foreign(second.address).exchange(XID, procedure, &args), answer, "{procedure:?}");
    }
    // A client that closed in order before its process was killed does not retry; a client that was
    // cut off does.
    let (closed, cut_off) = (mkdir(root, b"closed"), mkdir(root, b"cut off"));
    let mut here = Peer::foreign(first.address);
    assert_eq!(status(&here.exchange(XID, Procedure::MkDir, &closed)), Status::OK);
    drop(here);
    // The server notices the end of the connection before its process is killed.
    let mut there = Peer::foreign(second.address);
    assert_eq!(status(&there.exchange(XID, Procedure::MkDir, &closed)), Status::EXIST);
    there.reset();
    let mut here = Peer::foreign(first.address);
    assert_eq!(status(&here.exchange(XID, Procedure::MkDir, &cut_off)), Status::OK);
    first.kill();
    drop(here);
    assert_eq!(status(&Peer::foreign(second.address).exchange(XID, Procedure::MkDir, &cut_off)), Status::OK);
}
