//! Read delegations: who gets one, what recalls it, and what becomes of one that is not returned.
//! RFC 8881 s10.2, s10.4, s18.6, s18.16

use super::back::BackPeer;
use super::client::{Client, after_sequence, config_with_4, lookup, put, start, start_with};
use super::latched::{Latch, Latched};
use super::stores::{after_put, remove, restartable};
use crate::peer::{Peer, decoded, encoded, eventually};
use fs::FileHandle;
use nfs3::{DirOpArgs, Procedure, Sattr3, proc};
use nfs4::op::open::{Claim, Delegation, DelegationType, How, NoDelegation, access};
use nfs4::op::{self, Args, kind};
use nfs4::types::attributes::number;
use nfs4::{Array, Attributes, Bitmap, Fattr, OwnerId, StateOwner, Stateid, Status};
use server::{Config, Server};
use std::net::SocketAddr;

/// SEQ4_STATUS_RECALLABLE_STATE_REVOKED. RFC 8881 s18.46.1
const REVOKED: u32 = 0x40;

/// What an OPEN has returned.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    pub file: FileHandle,
    pub open: Stateid,
    pub delegation: Delegation<'static>,
}

impl Opened {
    pub fn delegation(&self) -> Stateid {
        match self.delegation {
            Delegation::Read { stateid, recall: false, with_times: false, .. } => stateid,
            other => panic!("{other:?}"),
        }
    }
}

impl Client {
    /// Opens a file without creating it.
    pub fn claim(&mut self, at: FileHandle, access: u32, claim: Claim<'_>) -> Result<Opened, Status> {
        let owner = StateOwner { client: self.id, owner: OwnerId::new(b"opener").unwrap() };
        let args = op::open::Args { seqid: 0, access, deny: 0, owner, how: How::NoCreate, claim };
        let results = self.send(|to| _ = to.push(&put(at)).push(&Args::Open(args)).push(&Args::GetFh(())));
        let mut reader = after_put(&results);
        let opened = reader.expect::<kind::Open>().unwrap()?;
        let file = reader.expect::<kind::GetFh>().unwrap().unwrap().handle;
        let delegation = match opened.delegation {
            Delegation::None => Delegation::None,
            Delegation::NoneBecause(why) => Delegation::NoneBecause(why),
            Delegation::Read { stateid, recall, permissions, with_times } => {
                assert!(permissions.who.is_empty() && permissions.mask == 0);
                Delegation::Read { stateid, recall, permissions: nfs4::Ace::default(), with_times }
            }
            other @ Delegation::Write { .. } => panic!("{other:?}"),
        };
        Ok(Opened { file, open: opened.stateid, delegation })
    }

    /// Opens a file of the export by its name.
    pub fn open_there(&mut self, name: &str, access: u32) -> Result<Opened, Status> {
        let export = self.export();
        self.claim(export, access, Claim::Name(name.as_bytes()))
    }

    pub fn delegreturn(&mut self, file: FileHandle, delegation: Stateid) -> Status {
        let args = Args::DelegReturn(op::delegation::ReturnArgs { delegation });
        self.run(|to| _ = to.push(&put(file)).push(&args))
    }

    fn test_stateid(&mut self, id: Stateid) -> Status {
        let ids = [id];
        let args = Args::TestStateid(op::stateid::TestArgs { stateids: Array::from(&ids[..]) });
        let results = self.send(|to| _ = to.push(&args));
        let mut reader = after_sequence(&results);
        let tested = reader.expect::<kind::TestStateid>().unwrap().unwrap();
        tested.statuses.iter().next().unwrap()
    }
}

/// A client that can be called back.
pub struct Holder {
    pub client: Client,
    pub back: BackPeer,
}

impl Holder {
    pub fn new(address: SocketAddr, owner: &str) -> Self {
        let client = Client::new(address, owner);
        let back = BackPeer::new(&client, address);
        Self { client, back }
    }

    /// A file that this client has delegated.
    pub fn delegated(&mut self, name: &str) -> Opened {
        let (file, open) = self.client.open(name, 3, 0).unwrap();
        assert_eq!(self.client.close(file, open), Status::OK);
        let opened = self.client.open_there(name, access::READ | access::WANT_READ).unwrap();
        opened.delegation();
        opened
    }

    /// Has something refused that conflicts with the delegation, answers its recall, returns the
    /// delegation, and has it done.
    pub fn conflicts<S: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        opened: &Opened,
        (later, done): (S, S),
        mut act: impl FnMut() -> S,
    ) {
        assert_eq!(act(), later, "{what}");
        // On a slow machine an earlier one may have come again.
        while self.back.recalled() != (opened.delegation(), opened.file) {}
        assert_eq!(act(), later, "{what}: it is not returned yet");
        assert_eq!(self.client.delegreturn(opened.file, opened.delegation()), Status::OK, "{what}");
        assert_eq!(act(), done, "{what}");
        assert_eq!(self.client.delegreturn(opened.file, opened.delegation()), Status::BAD_STATEID, "{what}");
    }
}

fn set_mode(mode: u32) -> Attributes<'static> {
    Attributes { mode: Some(mode), ..Attributes::default() }
}

// RFC 8881 s10.4, s18.16.3
#[test]
fn who_reads_gets_a_delegation_if_nobody_writes() {
    let (_server, address) = start();
    let (mut one, mut two) = (Holder::new(address, "one"), Holder::new(address, "two"));
    let first = one.delegated("file");
    let second = two.client.open_there("file", access::READ).unwrap();
    assert_ne!(first.delegation(), second.delegation());
    let because = |why| Delegation::NoneBecause(why);
    let mut again = |of_access| one.client.open_there("file", of_access).unwrap().delegation;
    assert_eq!(again(access::READ), Delegation::None, "it has one");
    assert_eq!(again(access::READ | access::WANT_ANY), because(NoDelegation::Contention(false)));
    assert_eq!(again(access::READ | access::WANT_NONE), because(NoDelegation::NOT_WANTED));
    assert_eq!(again(access::READ | access::WANT_CANCEL), because(NoDelegation::CANCELLED));
    assert_eq!(again(access::READ | access::WANT_WRITE), because(NoDelegation::Other(4)));

    // A delegation is good for reading that file, also after the open has ended.
    assert_eq!(one.client.read(first.file, first.delegation(), 0, 10), Ok((Vec::new(), true)));
    assert_eq!(one.client.write(first.file, first.delegation(), 0, b"x"), Err(Status::OPENMODE));
    let other = one.delegated("other");
    assert_eq!(one.client.read(other.file, first.delegation(), 0, 10), Err(Status::BAD_STATEID));
    assert_eq!(two.client.read(first.file, first.delegation(), 0, 10), Err(Status::BAD_STATEID));
    assert_eq!(one.client.test_stateid(first.delegation()), Status::OK);
    let free = Args::FreeStateid(op::stateid::FreeArgs { stateid: first.delegation() });
    assert_eq!(one.client.run(|to| _ = to.push(&free)), Status::LOCKS_HELD);
    assert_eq!(one.client.delegreturn(other.file, first.delegation()), Status::BAD_STATEID, "another file");
    let latest = one.client.open_there("file", access::READ).unwrap().open;
    assert_eq!(one.client.delegreturn(first.file, latest), Status::BAD_STATEID);
    assert_eq!(one.client.delegreturn(first.file, first.delegation()), Status::OK);

    let (_, writing) = one.client.open("written", 3, 0).unwrap();
    let refused = two.client.open_there("written", access::READ | access::WANT_READ).unwrap();
    assert_eq!(refused.delegation, because(NoDelegation::Contention(false)));
    assert_eq!(two.client.open_there("written", access::READ).unwrap().delegation, Delegation::None);
    assert_ne!(writing, Stateid::ANONYMOUS);
}

#[test]
fn nobody_gets_a_delegation_who_cannot_be_called_back_or_where_changes_are_not_seen() {
    let because = |why| Delegation::NoneBecause(why);
    let ask = |client: &mut Client| {
        let (file, open) = client.open("file", 3, 0).unwrap();
        assert_eq!(client.close(file, open), Status::OK);
        client.open_there("file", access::READ | access::WANT_READ).unwrap()
    };
    let (_server, address) = start();
    let mut client = Client::new(address, "deaf");
    assert_eq!(ask(&mut client).delegation, because(NoDelegation::Resource(false)));
    let mut config = config_with_4();
    config.exports[0].delegations = false;
    let (_server, address) = start_with(config);
    let mut holder = Holder::new(address, "elsewhere");
    assert_eq!(ask(&mut holder.client).delegation, because(NoDelegation::NOT_SUPPORTED));

    let (on, off) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_server, address) = start_with(exclusive(on.path()));
    let mut holder = Holder::new(address, "directory");
    let opened = ask(&mut holder.client);
    let mut other = Client::new(address, "other");
    holder.conflicts("SETATTR", &opened, (Status::DELAY, Status::OK), || set(&mut other, &opened, 0o600));
    let mut config = restartable(off.path());
    config.exports[0].delegations = false;
    let (_server, address) = start_with(config);
    let mut holder = Holder::new(address, "not exclusive");
    assert_eq!(ask(&mut holder.client).delegation, because(NoDelegation::NOT_SUPPORTED));
}

/// A directory that only this server changes.
fn exclusive(home: &std::path::Path) -> Config {
    let mut config = restartable(home);
    config.exports[0].delegations = true;
    config
}

fn set(client: &mut Client, of: &Opened, mode: u32) -> Status {
    let attributes = set_mode(mode);
    let args = op::getattr::SetArgs { stateid: Stateid::ANONYMOUS, attributes: Fattr::all(&attributes) };
    client.on(of.file, &Args::SetAttr(args))
}

// RFC 8881 s10.4.1
#[test]
fn what_changes_a_file_waits_until_others_have_returned_their_delegations() {
    let (_server, address) = start();
    let mut holder = Holder::new(address, "holder");
    let mut other = Client::new(address, "other");
    let export = other.export();
    let both = (Status::DELAY, Status::OK);
    let status = |result: Result<Opened, Status>| result.err().unwrap_or(Status::OK);

    let opened = holder.delegated("open");
    holder.conflicts("OPEN", &opened, both, || status(other.open_there("open", access::WRITE)));
    let opened = holder.delegated("setattr");
    holder.conflicts("SETATTR", &opened, both, || set(&mut other, &opened, 0o600));
    let opened = holder.delegated("size");
    holder.conflicts("SETATTR of the size", &opened, both, || {
        let attributes = Attributes { size: Some(5), ..Attributes::default() };
        let args = op::getattr::SetArgs { stateid: Stateid::ANONYMOUS, attributes: Fattr::all(&attributes) };
        other.on(opened.file, &Args::SetAttr(args))
    });
    let opened = holder.delegated("write");
    holder.conflicts("WRITE without an open", &opened, (Err(Status::DELAY), Ok(1)), || {
        other.write(opened.file, Stateid::ANONYMOUS, 0, b"x")
    });
    let opened = holder.delegated("allocate");
    holder.conflicts("ALLOCATE", &opened, both, || {
        let range = nfs4::Range { offset: 0, length: 10 };
        let args = op::allocate::Args { stateid: Stateid::ANONYMOUS, range };
        other.on(opened.file, &Args::Allocate(args))
    });
    let opened = holder.delegated("xattr");
    holder.conflicts("SETXATTR", &opened, both, || {
        let option = op::xattr::SetOption::Either;
        other.on(opened.file, &Args::SetXattr(op::xattr::SetArgs { option, name: b"user.a", value: b"b" }))
    });
    let opened = holder.delegated("removed");
    holder.conflicts("REMOVE", &opened, both, || other.on(export, &remove("removed")));
    let rename = |old: &'static str, new: &'static str| {
        Args::Rename(op::link::RenameArgs { old: old.as_bytes(), new: new.as_bytes() })
    };
    let twice = |other: &mut Client, at: FileHandle, args: &Args<'_>| {
        other.run(|to| _ = to.push(&put(at)).push(&Args::SaveFh(())).push(&put(export)).push(args))
    };
    let opened = holder.delegated("from");
    holder.conflicts("RENAME", &opened, both, || twice(&mut other, export, &rename("from", "renamed")));
    let (opened, _) = (holder.delegated("onto"), holder.client.open("source", 3, 0).unwrap());
    holder.conflicts("RENAME onto", &opened, both, || twice(&mut other, export, &rename("source", "onto")));
    let opened = holder.delegated("linked");
    let link = Args::Link(op::link::LinkArgs { name: b"link" });
    holder.conflicts("LINK", &opened, both, || twice(&mut other, opened.file, &link));
    let opened = holder.delegated("copied");
    let (source, _) = other.open("copy source", 3, 0).unwrap();
    assert_eq!(other.write(source, Stateid::ANONYMOUS, 0, b"data"), Ok(4));
    holder.conflicts("COPY", &opened, both, || copy_all(&mut other, source, opened.file));
}

/// Copies a file onto another one.
fn copy_all(client: &mut Client, source: FileHandle, target: FileHandle) -> Status {
    let args = op::copy::Args {
        source: Stateid::ANONYMOUS,
        target: Stateid::ANONYMOUS,
        source_offset: 0,
        target_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: true,
        source_servers: Array::default(),
    };
    client.run(|to| {
        to.push(&put(source)).push(&Args::SaveFh(())).push(&put(target)).push(&Args::Copy(args));
    })
}

#[test]
fn a_holder_changes_its_file_and_others_read_it_without_a_recall() {
    let (_server, address) = start();
    let (mut holder, mut other) = (Holder::new(address, "holder"), Client::new(address, "other"));
    let opened = holder.delegated("file");
    assert_eq!(set(&mut holder.client, &opened, 0o600), Status::OK);
    assert_eq!(set(&mut holder.client, &opened, 0o644), Status::OK);
    let writing = holder.client.open_there("file", access::BOTH).unwrap();
    assert_eq!(holder.client.write(opened.file, writing.open, 0, b"mine"), Ok(4));
    let reading = other.open_there("file", access::READ).unwrap();
    assert_eq!(reading.delegation, Delegation::None, "somebody writes");
    assert_eq!(other.read(opened.file, reading.open, 0, 10), Ok((b"mine".to_vec(), true)));
    assert_eq!(other.read(opened.file, Stateid::ANONYMOUS, 0, 10), Ok((b"mine".to_vec(), true)));
    let export = holder.client.export();
    assert_eq!(holder.client.on(export, &remove("file")), Status::OK);
    assert_eq!(holder.client.test_stateid(opened.delegation()), Status::OK);
    assert_eq!(holder.client.delegreturn(opened.file, opened.delegation()), Status::OK);
    // Nothing was asked: the next call is the first.
    let opened = holder.delegated("another");
    assert_eq!(set(&mut other, &opened, 0o600), Status::DELAY);
    assert_eq!(holder.back.called().sequence, 1);
}

// RFC 8881 s10.4.1: version 3 tries again after NFS3ERR_JUKEBOX. RFC 1813 s2.6
#[test]
fn version_3_waits_until_delegations_are_returned() {
    use nfs3::Status as Status3;
    let (_server, address) = start();
    let (mut holder, mut three) = (Holder::new(address, "holder"), Peer::new(address));
    let root = three.mnt(b"/export").unwrap();
    let both = (Status3::JUKEBOX, Status3::OK);
    let at = |name: &'static str| DirOpArgs { directory: root, name: name.as_bytes() };
    let handle =
        |three: &mut Peer, name: &str| three.lookup(root, name.as_bytes()).into_result().unwrap().object;

    let opened = holder.delegated("write");
    let file = handle(&mut three, "write");
    holder.conflicts("WRITE", &opened, both, || three.write(file, 0, b"x").status());
    let opened = holder.delegated("placed");
    let (file, large) = (handle(&mut three, "placed"), vec![7; 1 << 20]);
    holder.conflicts("WRITE in place", &opened, both, || three.write(file, 0, &large).status());
    for (name, size) in [("setattr", None), ("size", Some(3))] {
        let opened = holder.delegated(name);
        let new_attributes = Sattr3 { mode: Some(0o600), size, ..Sattr3::default() };
        let object = handle(&mut three, name);
        let args = encoded(&proc::setattr::Args { object, new_attributes, guard: None });
        holder.conflicts(name, &opened, both, || {
            let (_, results) = three.call_any(nfs3::PROGRAM, 3, Procedure::SetAttr.number(), &args);
            decoded::<proc::setattr::Reply>(&results).status()
        });
    }
    let opened = holder.delegated("create");
    holder.conflicts("CREATE", &opened, both, || {
        let how = proc::create::How::Unchecked(Sattr3 { size: Some(0), ..Sattr3::default() });
        let results = three.nfs(Procedure::Create, &proc::create::Args { location: at("create"), how });
        decoded::<proc::create::Reply>(&results).status()
    });
    let opened = holder.delegated("remove");
    holder.conflicts("REMOVE", &opened, both, || {
        let results = three.nfs(Procedure::Remove, &proc::remove::Args { object: at("remove") });
        decoded::<proc::remove::Reply>(&results).status()
    });
    let mut rename = |holder: &mut Holder, opened: &Opened, from, to| {
        holder.conflicts("RENAME", opened, both, || {
            let results = three.nfs(Procedure::Rename, &proc::rename::Args { from: at(from), to: at(to) });
            decoded::<proc::rename::Reply>(&results).status()
        });
    };
    let opened = holder.delegated("from");
    rename(&mut holder, &opened, "from", "renamed");
    let opened = holder.delegated("onto");
    holder.client.open("source", 3, 0).unwrap();
    rename(&mut holder, &opened, "source", "onto");
    let opened = holder.delegated("link");
    let file = handle(&mut three, "link");
    holder.conflicts("LINK", &opened, both, || {
        let results = three.nfs(Procedure::Link, &proc::link::Args { file, link: at("linked") });
        decoded::<proc::link::Reply>(&results).status()
    });
    // Reading waits for nobody.
    let opened = holder.delegated("read");
    let file = handle(&mut three, "read");
    assert_eq!(three.read(file, 0, 10), Ok((Vec::new(), true)));
    assert_eq!(holder.client.test_stateid(opened.delegation()), Status::OK);
}

// RFC 8881 s10.2.1, s18.16.3
#[test]
fn a_file_is_opened_by_a_delegation_while_that_is_recalled() {
    let (_server, address) = start();
    let (mut holder, mut other) = (Holder::new(address, "holder"), Client::new(address, "other"));
    let opened = holder.delegated("file");
    let delegation = opened.delegation();
    let export = holder.client.export();
    assert_eq!(holder.client.close(opened.file, opened.open), Status::OK);
    assert_eq!(set(&mut other, &opened, 0o600), Status::DELAY);
    assert_eq!(holder.back.recalled(), (delegation, opened.file));
    let by_name = Claim::DelegatedName { delegation, name: b"file" };
    let again = holder.client.claim(export, access::READ, by_name).unwrap();
    assert_eq!((again.file, again.delegation), (opened.file, Delegation::None));
    let current = holder.client.claim(opened.file, access::READ, Claim::Delegated(delegation)).unwrap();
    assert_eq!(current.open.other, again.open.other, "the same open");
    let mut claim = |access, claim| holder.client.claim(opened.file, access, claim).err();
    assert_eq!(claim(access::WRITE, Claim::Delegated(delegation)), Some(Status::OPENMODE));
    assert_eq!(claim(access::READ, Claim::Delegated(again.open)), Some(Status::BAD_STATEID));
    assert_eq!(claim(access::READ, Claim::Delegated(Stateid::ANONYMOUS)), Some(Status::BAD_STATEID));
    assert_eq!(claim(access::READ, Claim::PreviouslyDelegated), Some(Status::NOTSUPP));
    assert_eq!(
        other.claim(opened.file, access::READ, Claim::Delegated(delegation)).err(),
        Some(Status::BAD_STATEID)
    );
    assert_eq!(holder.client.delegreturn(opened.file, delegation), Status::OK);
    assert_eq!(set(&mut other, &opened, 0o600), Status::OK, "an open for reading is in nobody's way");
    assert_eq!(holder.client.close(opened.file, current.open), Status::OK);
}

// RFC 8881 s10.4.6, s18.38, s18.46.1, s18.48
#[test]
fn a_delegation_that_is_not_returned_is_revoked_after_a_lease() {
    let (_server, address) = start_with(Config { lease: server::config::LEASE_MIN, ..config_with_4() });
    let (mut holder, mut other) = (Holder::new(address, "holder"), Client::new(address, "other"));
    let opened = holder.delegated("file");
    let kept = holder.delegated("kept");
    assert_eq!(set(&mut other, &opened, 0o600), Status::DELAY);
    assert_eq!(holder.back.recalled(), (opened.delegation(), opened.file));
    eventually("it is revoked", || {
        // The client is not gone: it renews its lease.
        let flags = holder.client.flags();
        match set(&mut other, &opened, 0o600) {
            Status::OK => true,
            Status::DELAY => {
                assert_eq!(flags & REVOKED, 0);
                false
            }
            status => panic!("{status}"),
        }
    });
    assert_eq!(holder.client.flags() & REVOKED, REVOKED);
    let id = opened.delegation();
    assert_eq!(holder.client.test_stateid(id), Status::DELEG_REVOKED);
    assert_eq!(holder.client.test_stateid(kept.delegation()), Status::OK);
    assert_eq!(holder.client.read(opened.file, id, 0, 10), Err(Status::DELEG_REVOKED));
    assert_eq!(holder.client.delegreturn(opened.file, id), Status::DELEG_REVOKED);
    let free = Args::FreeStateid(op::stateid::FreeArgs { stateid: id });
    assert_eq!(holder.client.run(|to| _ = to.push(&free)), Status::OK);
    assert_eq!(holder.client.flags(), 0);
    assert_eq!(
        holder.client.read(opened.file, opened.open, 0, 10),
        Ok((Vec::new(), true)),
        "the open is left"
    );
    assert_eq!(holder.client.test_stateid(id), Status::BAD_STATEID);
}

/// What shows a file, or changes it, of which a client has lost the delegation.
fn looks_at(client: &mut Client, opened: &Opened, export: FileHandle) -> Vec<(&'static str, Status)> {
    let file = opened.file;
    let size = Bitmap::of(&[number::CHANGE, number::SIZE]);
    let attributes = Args::GetAttr(op::getattr::Args { wanted: size });
    let got = client.run(|to| _ = to.push(&put(file)).push(&attributes));
    let named = client.run(|to| _ = to.push(&put(export)).push(&lookup("file")).push(&attributes));
    let read = client.read(file, opened.open, 0, 10).map_or_else(|status| status, |_| Status::OK);
    let set = set(client, opened, 0o640);
    let again = client.claim(file, access::READ, Claim::Current).map_or_else(|status| status, |_| Status::OK);
    let list = op::readdir::Args { cookie: 0, verifier: [0; 8], dircount: 0, maxcount: 8192, wanted: size };
    let listed = client.run(|to| _ = to.push(&put(export)).push(&Args::ReadDir(list)));
    vec![("get", got), ("look up", named), ("read", read), ("set", set), ("open", again), ("list", listed)]
}

// RFC 8881 s10.2.1, s15.1.1.3
#[test]
fn what_shows_a_file_waits_until_its_revoked_delegation_is_freed() {
    let (_server, address) = start_with(Config { lease: server::config::LEASE_MIN, ..config_with_4() });
    let (mut holder, mut other) = (Holder::new(address, "holder"), Client::new(address, "other"));
    let opened = holder.delegated("file");
    let kept = holder.delegated("kept");
    let export = holder.client.export();
    eventually("it is revoked", || {
        // It renews its lease, and answers no recall.
        holder.client.flags();
        set(&mut other, &opened, 0o600) == Status::OK
    });
    for (what, status) in looks_at(&mut holder.client, &opened, export) {
        assert_eq!(status, Status::DELAY, "{what}");
    }
    // Linux would take what comes along with a return for the attributes of what it has cached.
    let wanted = Bitmap::of(&[number::CHANGE]);
    let with_attributes = |client: &mut Client, delegation: Stateid, file: FileHandle| {
        let get = Args::GetAttr(op::getattr::Args { wanted });
        let give_back = Args::DelegReturn(op::delegation::ReturnArgs { delegation });
        client.run(|to| _ = to.push(&put(file)).push(&get).push(&give_back))
    };
    assert_eq!(with_attributes(&mut holder.client, opened.delegation(), opened.file), Status::ACCESS);
    // All that frees the delegation, or has to do with other files, goes on.
    assert_eq!(holder.client.run(|to| _ = to.push(&put(opened.file))), Status::OK);
    assert_eq!(holder.client.delegreturn(opened.file, opened.delegation()), Status::DELEG_REVOKED);
    assert_eq!(holder.client.test_stateid(opened.delegation()), Status::DELEG_REVOKED);
    assert_eq!(holder.client.close(opened.file, opened.open), Status::OK);
    assert_eq!(holder.client.read(kept.file, kept.delegation(), 0, 10), Ok((Vec::new(), true)));
    let open = other.open_there("file", access::READ).unwrap();
    for (what, status) in looks_at(&mut other, &open, export) {
        assert_eq!(status, Status::OK, "{what}, by another client");
    }
    let free = Args::FreeStateid(op::stateid::FreeArgs { stateid: opened.delegation() });
    assert_eq!(holder.client.run(|to| _ = to.push(&free)), Status::OK);
    assert_eq!(with_attributes(&mut holder.client, opened.delegation(), opened.file), Status::ACCESS);
    assert_eq!(with_attributes(&mut holder.client, kept.delegation(), kept.file), Status::OK);
    let opened = holder.client.open_there("file", access::READ).unwrap();
    for (what, status) in looks_at(&mut holder.client, &opened, export) {
        assert_eq!(status, Status::OK, "{what}, once it is freed");
    }
}

#[test]
fn a_recall_that_is_not_heard_comes_again_by_another_connection() {
    let (_server, address) = start();
    let (mut holder, mut other) = (Holder::new(address, "holder"), Client::new(address, "other"));
    let opened = holder.delegated("file");
    assert_eq!(set(&mut other, &opened, 0o600), Status::DELAY);
    let unheard = holder.back.called();
    let mut second = BackPeer::new(&holder.client, address);
    let again = second.answer();
    assert_eq!(again.asked, unheard.asked);
    assert_ne!(again.slot, unheard.slot, "that one is in use");
    assert_eq!(holder.client.delegreturn(opened.file, opened.delegation()), Status::OK);
    assert_eq!(set(&mut other, &opened, 0o600), Status::OK);
}

#[test]
fn many_delegations_are_recalled_by_few_slots() {
    const FILES: usize = 50;
    let (_server, address) = start();
    let (mut holder, mut other) = (Holder::new(address, "holder"), Client::new(address, "other"));
    let files: Vec<_> = (0..FILES).map(|number| holder.delegated(&format!("file {number}"))).collect();
    for opened in &files {
        assert_eq!(set(&mut other, opened, 0o600), Status::DELAY);
    }
    let mut recalled = std::collections::BTreeSet::new();
    while recalled.len() < FILES {
        recalled.insert(holder.back.recalled().0.other);
    }
    for opened in &files {
        assert_eq!(holder.client.delegreturn(opened.file, opened.delegation()), Status::OK);
        assert_eq!(set(&mut other, opened, 0o600), Status::OK);
    }
}

#[test]
fn a_file_that_is_delegated_lives_until_it_is_returned() {
    let (_server, address) = start();
    let mut holder = Holder::new(address, "holder");
    let opened = holder.delegated("file");
    assert_eq!(holder.client.close(opened.file, opened.open), Status::OK);
    let export = holder.client.export();
    assert_eq!(holder.client.on(export, &remove("file")), Status::OK);
    assert_eq!(holder.client.read(opened.file, opened.delegation(), 0, 10), Ok((Vec::new(), true)));
    assert_eq!(holder.client.delegreturn(opened.file, opened.delegation()), Status::OK);
    assert_eq!(holder.client.attributes(opened.file, &[35]), Err(Status::STALE));
    assert_eq!(holder.client.run(|to| _ = to.push(&put(export)).push(&lookup("file"))), Status::NOENT);
}

// RFC 8881 s8.4.2, s10.2.1, s18.16.3: until it is reclaimed, nobody knows of a delegation, and
// version 3 goes on in the grace period.
#[test]
fn after_a_restart_opens_are_reclaimed_and_delegations_are_not() {
    let home = tempfile::tempdir().unwrap();
    let (server, address) = start_with(exclusive(home.path()));
    let mut holder = Holder::new(address, "holder");
    let opened = eventually_delegated(&mut holder, "file");
    drop(server);
    let (_server, address) = start_with(exclusive(home.path()));
    let mut three = Peer::new(address);
    let root = three.mnt(b"/export").unwrap();
    let file = three.lookup(root, b"file").into_result().unwrap().object;
    assert_eq!(three.write(file, 0, b"new").status(), nfs3::Status::OK, "nobody has a delegation");
    let peer = Peer::with_credential(address, holder.client.peer.credential.clone());
    let mut client = Client::reclaiming(peer, "holder");
    let back = BackPeer::new(&client, address);
    assert_eq!(client.open_there("file", access::READ).err(), Some(Status::GRACE));
    let claim = |kind| Claim::Previous(kind);
    let reclaimed = client.claim(opened.file, access::READ, claim(DelegationType::Read)).unwrap();
    assert_eq!(reclaimed.delegation, Delegation::None);
    let wanted = access::READ | access::WANT_READ;
    let reclaimed = client.claim(opened.file, wanted, claim(DelegationType::Read)).unwrap();
    assert_eq!(reclaimed.delegation, Delegation::NoneBecause(NoDelegation::Contention(false)));
    assert_eq!(client.reclaim_complete(), Status::OK);
    assert_eq!(client.read(opened.file, reclaimed.open, 0, 10), Ok((b"new".to_vec(), true)));
    let again = eventually_open(&mut client, "file", wanted);
    again.delegation();
    let mut holder = Holder { client, back };
    let mut other = Client::new(address, "other");
    holder.conflicts("SETATTR", &again, (Status::DELAY, Status::OK), || set(&mut other, &opened, 0o600));
}

/// Opens a file once the grace period is over and the client's record is written.
fn eventually_open(client: &mut Client, name: &str, access: u32) -> Opened {
    let mut opened = None;
    eventually("it may open", || {
        opened = client.open_there(name, access).ok();
        opened.is_some()
    });
    opened.unwrap()
}

/// A change of a file that is to wait in its store.
type Change<'a> = Box<dyn FnOnce() + Send + 'a>;

fn wcc(results: &[u8]) -> nfs3::Status {
    nfs3::Status(u32::from_be_bytes(results[..4].try_into().unwrap()))
}

/// A client asks for a delegation of `file` while something is under way.
fn asks_meanwhile(
    latch: &Latch,
    holder: &mut Holder,
    (before, after): (&str, Option<&str>),
    change: Change<'_>,
) {
    let (file, open) = holder.client.open(before, 3, 0).unwrap();
    assert_eq!(holder.client.close(file, open), Status::OK);
    let wanted = access::READ | access::WANT_READ;
    latch.close();
    std::thread::scope(|scope| {
        let done = scope.spawn(change);
        eventually("the change waits for its store", || latch.waiting() == 1);
        let opened = holder.client.open_there(before, wanted).unwrap();
        let refused = Delegation::NoneBecause(NoDelegation::Contention(false));
        assert_eq!(opened.delegation, refused, "{before}");
        assert_eq!(holder.client.close(opened.file, opened.open), Status::OK);
        latch.open();
        done.join().unwrap();
    });
    if let Some(after) = after {
        holder.client.open_there(after, wanted).unwrap().delegation();
    }
}

// RFC 8881 s10.4.1: a change that has looked for delegations before there was one is seen too.
#[test]
fn nothing_is_delegated_while_a_change_is_under_way() {
    let latch = Latch::default();
    let server = Server::start_with(config_with_4(), |_| Some(Latched::of_changes(&latch))).unwrap();
    let address = server.addresses()[0];
    let (mut holder, mut other) = (Holder::new(address, "holder"), Client::new(address, "other"));
    let root = Peer::new(address).mnt(b"/export").unwrap();
    let at = |name: &'static str| DirOpArgs { directory: root, name: name.as_bytes() };
    let call = move |procedure, args: Vec<u8>| -> Change<'static> {
        Box::new(move || {
            let (_, results) = Peer::new(address).call_any(nfs3::PROGRAM, 3, procedure, &args);
            assert_eq!(wcc(&results), nfs3::Status::OK);
        })
    };
    let made = |holder: &mut Holder, name: &str| {
        let (file, open) = holder.client.open(name, 3, 0).unwrap();
        assert_eq!(holder.client.close(file, open), Status::OK);
        Peer::new(address).lookup(root, name.as_bytes()).into_result().unwrap().object
    };
    let (source, _) = other.open("source", 3, 0).unwrap();
    assert_eq!(other.write(source, Stateid::ANONYMOUS, 0, b"data"), Ok(4));

    let file = made(&mut holder, "write");
    let write = crate::peer::write_args(file, 0, b"x");
    asks_meanwhile(&latch, &mut holder, ("write", Some("write")), call(Procedure::Write.number(), write));
    for (name, size) in [("setattr", None), ("size", Some(3))] {
        let object = made(&mut holder, name);
        let new_attributes = Sattr3 { mode: Some(0o600), size, ..Sattr3::default() };
        let args = encoded(&proc::setattr::Args { object, new_attributes, guard: None });
        asks_meanwhile(&latch, &mut holder, (name, Some(name)), call(Procedure::SetAttr.number(), args));
    }
    let how = proc::create::How::Unchecked(Sattr3 { size: Some(0), ..Sattr3::default() });
    let args = encoded(&proc::create::Args { location: at("create"), how });
    asks_meanwhile(&latch, &mut holder, ("create", Some("create")), call(Procedure::Create.number(), args));
    let args = encoded(&proc::remove::Args { object: at("remove") });
    asks_meanwhile(&latch, &mut holder, ("remove", None), call(Procedure::Remove.number(), args));
    let args = encoded(&proc::rename::Args { from: at("from"), to: at("to") });
    asks_meanwhile(&latch, &mut holder, ("from", Some("to")), call(Procedure::Rename.number(), args));
    made(&mut holder, "moved");
    let args = encoded(&proc::rename::Args { from: at("moved"), to: at("onto") });
    asks_meanwhile(&latch, &mut holder, ("onto", Some("onto")), call(Procedure::Rename.number(), args));
    let file = made(&mut holder, "link");
    let args = encoded(&proc::link::Args { file, link: at("linked") });
    asks_meanwhile(&latch, &mut holder, ("link", Some("linked")), call(Procedure::Link.number(), args));

    // Of version 4, without an open.
    let (file, open) = holder.client.open("four", 3, 0).unwrap();
    assert_eq!(holder.client.close(file, open), Status::OK);
    let write: Change<'_> = Box::new(|| assert_eq!(other.write(file, Stateid::ANONYMOUS, 0, b"x"), Ok(1)));
    asks_meanwhile(&latch, &mut holder, ("four", Some("four")), write);
    let (target, open) = holder.client.open("copied", 3, 0).unwrap();
    assert_eq!(holder.client.close(target, open), Status::OK);
    let copy: Change<'_> = Box::new(|| assert_eq!(copy_all(&mut other, source, target), Status::OK));
    asks_meanwhile(&latch, &mut holder, ("copied", Some("copied")), copy);
}

// A reader that opens again and again keeps nobody waiting.
#[test]
fn who_waits_for_a_delegation_is_not_kept_waiting_by_the_next_one() {
    let (_server, address) = start();
    let (mut holder, mut three) = (Holder::new(address, "holder"), Peer::new(address));
    let opened = holder.delegated("file");
    let root = three.mnt(b"/export").unwrap();
    let file = three.lookup(root, b"file").into_result().unwrap().object;
    let mut write = || three.write(file, 0, b"x").status();
    assert_eq!(write(), nfs3::Status::JUKEBOX);
    assert_eq!(holder.back.recalled(), (opened.delegation(), opened.file));
    assert_eq!(holder.client.delegreturn(opened.file, opened.delegation()), Status::OK);
    assert_eq!(holder.client.close(opened.file, opened.open), Status::OK);
    let again = holder.client.open_there("file", access::READ | access::WANT_READ).unwrap();
    assert_eq!(again.delegation, Delegation::NoneBecause(NoDelegation::Contention(false)));
    assert_eq!(write(), nfs3::Status::OK);
}

// RFC 8881 s2.10.3.1: a back channel of any session will do.
#[test]
fn a_recall_that_is_not_heard_on_one_session_comes_on_another() {
    let (_server, address) = start();
    let (mut holder, mut other) = (Holder::new(address, "holder"), Client::new(address, "other"));
    let opened = holder.delegated("file");
    let id = holder.client.id;
    let mut second = holder.client.another_session(address);
    let mut answering = BackPeer::new(&second, address);
    assert_eq!(set(&mut other, &opened, 0o600), Status::DELAY);
    let unheard = holder.back.called();
    let again = answering.answer();
    assert_eq!(again.asked, unheard.asked);
    assert_eq!((again.session, unheard.session), (second.session, holder.client.session));
    assert_eq!(second.id, id);
    assert_eq!(second.delegreturn(opened.file, opened.delegation()), Status::OK);
    assert_eq!(set(&mut other, &opened, 0o600), Status::OK);
}

/// A new client may open once its record is written.
fn eventually_delegated(holder: &mut Holder, name: &str) -> Opened {
    eventually("its record is written", || match holder.client.open(name, 3, 0) {
        Ok((file, open)) => holder.client.close(file, open) == Status::OK,
        Err(_) => false,
    });
    holder.delegated(name)
}
