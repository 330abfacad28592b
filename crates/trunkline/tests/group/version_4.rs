//! Tests requests of NFS version 4 in which a node of a group is killed: at a system call that
//! follows the change, or precedes it. The session goes on at another node, where the request that
//! is sent again ends as if nothing had happened.

use crate::fixtures::{Directories, Node, exists, file};
use crate::peer::{Peer, SOON};
use crate::session::{Build, Session, after_sequence, call, put, send, status};
use crate::struck::mortal;
use nfs4::op::{self, Args, kind};
use nfs4::{Attributes, Fattr, OwnerId, Range, StateOwner, Stateid, Status};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use testkit::Deadline;

fn mode(mode: u32) -> Attributes<'static> {
    Attributes { mode: Some(mode), ..Attributes::default() }
}

fn create<'a>(name: &'a [u8], what: op::create::What<'a>, set: &'a Attributes<'a>) -> Args<'a> {
    Args::Create(op::create::Args { what, name, attributes: Fattr::all(set) })
}

fn remove(name: &[u8]) -> Args<'_> {
    Args::Remove(op::link::RemoveArgs { name })
}

/// What survives of a node that is killed.
struct Fixture {
    directories: Directories,
    survivor: Node,
    peer: Peer,
    session: Session,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let directories = Directories::with_versions(name, "3,4.2");
        let survivor = Node::start(&directories, 2);
        let mut peer = Peer::foreign(survivor.address);
        let session = Session::new(&mut peer);
        let mut this = Self { directories, survivor, peer, session };
        // Its record is being written.
        file(&this.directories, "first", b"");
        Deadline::wait_until("the client may open", SOON, || {
            let (export, open) = (this.session.export, this.session.open(b"first", op::open::How::NoCreate));
            let request = this.session.next(&|to| _ = to.push(&put(export)).push(&open));
            (status(&call(&mut this.peer, &request)) == Status::OK).then_some(())
        });
        this
    }

    /// Sends a request to a node that is killed during it, and returns the survivor's reply.
    fn struck(&mut self, system_call: &str, what: &str, build: Build<'_>) -> Vec<u8> {
        let (address, mut process): (SocketAddr, _) = mortal(&self.directories, system_call);
        let request = self.session.next(build);
        let mut peer = Peer::foreign(address);
        send(&mut peer, &request);
        assert!(peer.try_receive().is_none(), "{what} was answered before the node was killed");
        process.wait(SOON);
        let answer = call(&mut self.peer, &request);
        assert_eq!(call(&mut self.peer, &request), answer, "{what}, once more");
        answer
    }

    fn run(&mut self, build: Build<'_>) -> Status {
        let request = self.session.next(build);
        status(&call(&mut self.peer, &request))
    }
}

#[test]
fn a_request_in_which_a_node_was_killed_is_done_once() {
    let mut fixture = Fixture::new("group-struck-4");
    for name in ["linked", "gone", "from"] {
        file(&fixture.directories, name, b"");
    }
    std::fs::create_dir(fixture.directories.served().join("empty")).expect("a directory");
    let export = fixture.session.export;
    let (of_file, of_directory) = (mode(0o640), mode(0o750));
    let set = Fattr::all(&of_file);
    let (guarded, unchecked) = (op::open::How::Guarded(set), op::open::How::Unchecked(set));
    let exclusive = op::open::How::ExclusiveWith([7; 8], set);
    let opens = [
        (&b"guarded"[..], fixture.session.open(b"guarded", guarded)),
        (b"unchecked", fixture.session.open(b"unchecked", unchecked)),
        (b"exclusive", fixture.session.open(b"exclusive", exclusive)),
    ];
    let rename = Args::Rename(op::link::RenameArgs { old: b"from", new: b"to" });
    let link = Args::Link(op::link::LinkArgs { name: b"link" });
    let linked = Args::Lookup(op::lookup::Args { name: b"linked" });
    let calls: [(&str, Build<'_>); 6] = [
        ("CREATE of a directory", &|to| {
            to.push(&put(export)).push(&create(b"directory", op::create::What::Directory, &of_directory));
            to.push(&Args::GetFh(()));
        }),
        ("CREATE of a link", &|to| {
            to.push(&put(export)).push(&create(
                b"symlink",
                op::create::What::Symlink(b"target"),
                &of_directory,
            ));
        }),
        ("REMOVE", &|to| _ = to.push(&put(export)).push(&remove(b"gone"))),
        ("REMOVE of a directory", &|to| _ = to.push(&put(export)).push(&remove(b"empty"))),
        ("RENAME", &|to| {
            to.push(&put(export)).push(&Args::SaveFh(())).push(&put(export)).push(&rename);
        }),
        ("LINK", &|to| {
            to.push(&put(export)).push(&linked).push(&Args::SaveFh(())).push(&put(export)).push(&link);
        }),
    ];
    for (what, build) in calls {
        // Executed twice, it would get EXIST or NOENT.
        assert_eq!(status(&fixture.struck("fsync", what, build)), Status::OK, "{what}");
    }
    for (name, open) in opens {
        let what = format!("OPEN that creates {}", String::from_utf8_lossy(name));
        let answer = fixture.struck("fsync", &what, &|to| {
            to.push(&put(export)).push(&open).push(&Args::GetFh(()));
        });
        let mut reader = after_sequence(&answer);
        reader.expect::<kind::PutFh>().expect("a result").expect("the export");
        let opened = reader.expect::<kind::Open>().expect("a result").expect(&what);
        let file = reader.expect::<kind::GetFh>().expect("a result").expect("its handle").handle;
        let close = Args::Close(op::close::Args { seqid: 0, open: opened.stateid });
        assert_eq!(fixture.run(&|to| _ = to.push(&put(file)).push(&close)), Status::OK, "{what}");
        assert_eq!(fixture.run(&|to| _ = to.push(&put(file)).push(&close)), Status::BAD_STATEID, "{what}");
    }
    let at = |name: &str| fixture.directories.served().join(name).symlink_metadata();
    for name in ["directory", "symlink", "to", "link", "guarded", "unchecked", "exclusive"] {
        assert!(at(name).is_ok(), "{name}");
    }
    for name in ["gone", "from", "empty"] {
        assert!(at(name).is_err(), "{name}");
    }
    for (name, mode) in [("guarded", 0o640), ("unchecked", 0o640), ("directory", 0o750)] {
        assert_eq!(at(name).expect("made").permissions().mode() & 0o7777, mode, "{name}");
    }
    drop(fixture.survivor);
}

#[test]
fn a_request_that_a_killed_node_had_not_executed_is_executed_by_its_neighbour() {
    let mut fixture = Fixture::new("group-unstruck-4");
    file(&fixture.directories, "there", b"");
    let export = fixture.session.export;
    let build: Build<'_> = &|to| _ = to.push(&put(export)).push(&remove(b"there"));
    assert_eq!(status(&fixture.struck("unlinkat", "REMOVE", build)), Status::OK);
    assert!(!exists(&fixture.directories, "there"));
    // Had it counted as done, this one would have removed the name.
    assert_eq!(fixture.run(build), Status::NOENT);
}

/// The operations before the one in which the node was killed are not executed again either.
#[test]
fn what_was_done_before_in_the_same_request_stays_done() {
    let mut fixture = Fixture::new("group-steps-4");
    for name in ["removed", "renamed"] {
        file(&fixture.directories, name, b"");
    }
    let export = fixture.session.export;
    let lookup = Args::Lookup(op::lookup::Args { name: b"renamed" });
    let rename = Args::Rename(op::link::RenameArgs { old: b"renamed", new: b"new-name" });
    let open = fixture.session.open(b"first", op::open::How::NoCreate);
    let locker = op::lock::Locker::New {
        open_seqid: 0,
        open: Stateid::CURRENT,
        lock_seqid: 0,
        owner: StateOwner { client: fixture.session.client, owner: OwnerId::new(b"locker").expect("short") },
    };
    let range = Range { offset: 0, length: 10 };
    let lock_type = op::lock::LockType::Write;
    let lock = Args::Lock(op::lock::Args { lock_type, reclaim: false, range, locker });
    let of_directory = mode(0o750);
    let answer = fixture.struck("fsync", "CREATE", &|to| {
        // An object that has another name by the time of the CREATE.
        to.push(&put(export)).push(&lookup).push(&put(export)).push(&open).push(&lock).push(&put(export));
        to.push(&create(b"last", op::create::What::Directory, &of_directory))
            .push(&put(export))
            .push(&Args::SaveFh(()));
        to.push(&rename);
    });
    let mut reader = after_sequence(&answer);
    assert_eq!((reader.status, reader.results), (Status::OK, 11));
    reader.expect::<kind::PutFh>().expect("a result").expect("the export");
    reader.expect::<kind::Lookup>().expect("a result").expect("the name that it had then");
    reader.expect::<kind::PutFh>().expect("a result").expect("the export");
    let opened = reader.expect::<kind::Open>().expect("a result").expect("opened once more").stateid;
    let locked = match reader.expect::<kind::Lock>().expect("a result") {
        op::lock::Outcome::Granted(id) => id,
        other => panic!("{:?}", other.status()),
    };
    // Twice executed, each would have a newer version.
    assert_eq!((opened.seqid, locked.seqid), (2, 1));
    assert!(exists(&fixture.directories, "last") && exists(&fixture.directories, "new-name"));
    assert!(!exists(&fixture.directories, "renamed"));
}

/// The node is killed when the file is open and not empty yet.
#[test]
fn an_open_that_was_noted_in_the_state_is_one_open_of_an_empty_file() {
    let mut fixture = Fixture::new("group-committed-4");
    file(&fixture.directories, "full", b"full");
    let export = fixture.session.export;
    let size = Attributes { size: Some(0), ..Attributes::default() };
    let open = fixture.session.open(b"full", op::open::How::Unchecked(Fattr::all(&size)));
    let answer = fixture.struck("ftruncate", "OPEN", &|to| {
        to.push(&put(export)).push(&open).push(&Args::GetFh(()));
    });
    let mut reader = after_sequence(&answer);
    reader.expect::<kind::PutFh>().expect("a result").expect("the export");
    let opened = reader.expect::<kind::Open>().expect("a result").expect("opened").stateid;
    assert_eq!(opened.seqid, 1);
    reader.expect::<kind::GetFh>().expect("a result").expect("the handle of the file");
    assert_eq!(std::fs::read(fixture.directories.served().join("full")).expect("the file"), b"");
}
