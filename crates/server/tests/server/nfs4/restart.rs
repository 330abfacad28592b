//! A server of a directory that starts again: clients reclaim what they had, and nobody else gets
//! it before. RFC 8881 s8.4.2

use super::client::{self, Client, after_sequence, call, encoded, exchange_id, put, start_with};
use super::stores::{after_put, remove, restartable};
use crate::peer::{Peer, credential};
use fs::FileHandle;
use nfs4::compound::ReplyReader;
use nfs4::op::{self, Args, Fore, kind};
use nfs4::{OwnerId, Range, StateOwner, Stateid, Status};
use rpc::reply::{Accept, Body};
use server::{Config, Server};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

const ALL: Range = Range { offset: 0, length: Range::TO_THE_END };
/// The shortest that a configuration may have.
const LEASE: Duration = server::config::LEASE_MIN;

fn start(home: &Path) -> (Server, SocketAddr) {
    start_with(restartable(home))
}

/// A client that comes back, or comes for the first time, and has not said yet that it has
/// reclaimed everything.
fn reclaimer(address: SocketAddr, owner: &str) -> Client {
    Client::reclaiming(Peer::with_credential(address, credential(1, owner.as_bytes(), 0, 0)), owner)
}

/// The server's owner and scope, as a client sees them.
fn identity(address: SocketAddr) -> (Vec<u8>, Vec<u8>) {
    let mut peer = Peer::with_credential(address, credential(1, b"asks", 0, 0));
    let results = call(&mut peer, &encoded(2, |to| _ = to.push(&exchange_id(b"asks", 1))));
    let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
    let found = reader.expect::<kind::ExchangeId>().unwrap().unwrap();
    (found.server.major.as_slice().to_vec(), found.scope.as_slice().to_vec())
}

impl Client {
    fn reclaim(&mut self, file: FileHandle, access: u32, deny: u32) -> Result<Stateid, Status> {
        let owner = StateOwner { client: self.id, owner: OwnerId::new(b"opener").unwrap() };
        let how = op::open::How::NoCreate;
        let claim = op::open::Claim::Previous(op::open::DelegationType::None);
        let args = Args::Open(op::open::Args { seqid: 0, access, deny, owner, how, claim });
        let results = self.send(|to| _ = to.push(&put(file)).push(&args));
        after_put(&results).expect::<kind::Open>().unwrap().map(|opened| opened.stateid)
    }

    fn reclaim_lock(&mut self, file: FileHandle, open: Stateid) -> Result<Stateid, Status> {
        let locker = self.first(open, "locker");
        let lock_type = op::lock::LockType::Write;
        let args = Args::Lock(op::lock::Args { lock_type, reclaim: true, range: ALL, locker });
        let results = self.send(|to| _ = to.push(&put(file)).push(&args));
        match after_put(&results).expect::<kind::Lock>().unwrap() {
            op::lock::Outcome::Granted(id) => Ok(id),
            other => Err(other.status()),
        }
    }

    /// Asks until the server no longer tells it to wait.
    fn open_patiently(&mut self, name: &str, access: u32) -> Result<(FileHandle, Stateid), Status> {
        let deadline = Instant::now() + 10 * LEASE;
        loop {
            match self.open(name, access, 0) {
                Err(Status::GRACE | Status::DELAY) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                outcome => return outcome,
            }
        }
    }
}

#[test]
fn opens_and_locks_are_reclaimed_and_nobody_gets_them_before() {
    let home = tempfile::tempdir().unwrap();
    let (server, address) = start(home.path());
    let before = identity(address);
    let (mut holder, mut idle) = (Client::new(address, "holder"), Client::new(address, "idle"));
    let (file, open) = holder.open("file", 3, 2).unwrap();
    let locker = holder.first(open, "locker");
    holder.lock(file, locker, true, ALL).unwrap();
    idle.open("other", 3, 0).unwrap();
    let first_session = holder.session;
    drop(server);

    let (_server, address) = start(home.path());
    assert_eq!(identity(address), before, "clients may reclaim from the same server");
    // A session of before is unknown, and so is its client.
    let mut stale = Client { peer: Peer::with_credential(address, credential(1, b"holder", 0, 0)), ..holder };
    stale.session = first_session;
    assert_eq!(stale.run(|to| _ = to.push(&put(file))), Status::BADSESSION);

    let mut newcomer = reclaimer(address, "newcomer");
    assert_eq!(newcomer.reclaim(file, 3, 0), Err(Status::RECLAIM_BAD), "it had nothing");
    assert_eq!(newcomer.reclaim_complete(), Status::OK);
    assert_eq!(newcomer.open("file", 3, 0), Err(Status::GRACE));
    assert_eq!(newcomer.open("new", 3, 0), Err(Status::GRACE));
    assert_eq!(newcomer.write(file, Stateid::ANONYMOUS, 0, b"x"), Err(Status::GRACE));
    let export = newcomer.export();
    assert_eq!(newcomer.on(export, &remove("file")), Status::GRACE);

    let mut holder = reclaimer(address, "holder");
    assert_eq!(holder.open("file", 3, 0), Err(Status::GRACE), "not before it has reclaimed");
    let open = holder.reclaim(file, 3, 2).unwrap();
    holder.reclaim_lock(file, open).unwrap();
    assert_eq!(holder.write(file, open, 0, b"goes on"), Ok(7));
    assert_eq!(holder.reclaim_complete(), Status::OK);
    assert_eq!(holder.reclaim(file, 3, 0), Err(Status::NO_GRACE), "once it is done");
    assert_eq!(newcomer.open("new", 3, 0), Err(Status::GRACE), "another may still reclaim");

    let mut idle = reclaimer(address, "idle");
    assert_eq!(idle.reclaim_complete(), Status::OK);
    // Everybody is back, so the period ends before its time.
    assert_eq!(newcomer.open_patiently("file", 2), Err(Status::SHARE_DENIED));
    let (_, reading) = newcomer.open_patiently("file", 1).unwrap();
    let theirs = newcomer.first(reading, "reader");
    assert_eq!(newcomer.lock(file, theirs, false, ALL), Err(Status::DENIED));
    assert_eq!(newcomer.read(file, reading, 0, 100).unwrap().0, b"goes on");
    assert_eq!(newcomer.on(export, &remove("other")), Status::OK);
}

// RFC 8881 s8.4.3
#[test]
fn who_does_not_come_back_in_time_loses_what_it_had_for_good() {
    let home = tempfile::tempdir().unwrap();
    let (server, address) = start(home.path());
    let (mut late, mut early) = (Client::new(address, "late"), Client::new(address, "early"));
    let (file, _) = late.open("file", 3, 2).unwrap();
    early.open("other", 3, 0).unwrap();
    drop(server);

    let (server, address) = start(home.path());
    let mut early = reclaimer(address, "early");
    assert_eq!(early.reclaim_complete(), Status::OK);
    // One whom the server does not know is not waited for, and waits itself.
    early.open_patiently("file", 3).unwrap();
    let mut late = reclaimer(address, "late");
    assert_eq!(late.reclaim(file, 3, 2), Err(Status::NO_GRACE));
    drop((late, early));
    drop(server);

    // The period has ended on disk too.
    let (_server, address) = start(home.path());
    let mut late = reclaimer(address, "late");
    assert_eq!(late.reclaim(file, 3, 2), Err(Status::RECLAIM_BAD));
    let mut early = reclaimer(address, "early");
    assert!(early.reclaim(file, 3, 0).is_ok());
}

#[test]
fn a_server_that_ends_while_clients_reclaim_lets_them_reclaim_again() {
    let home = tempfile::tempdir().unwrap();
    let (server, address) = start(home.path());
    let (mut one, mut two) = (Client::new(address, "one"), Client::new(address, "two"));
    let (file, _) = one.open("file", 3, 2).unwrap();
    let (other, _) = two.open("other", 3, 2).unwrap();
    drop(server);

    let (server, address) = start(home.path());
    let mut one = reclaimer(address, "one");
    one.reclaim(file, 3, 2).unwrap();
    assert_eq!(one.reclaim_complete(), Status::OK);
    drop(server);

    let (_server, address) = start(home.path());
    let (mut one, mut two) = (reclaimer(address, "one"), reclaimer(address, "two"));
    one.reclaim(file, 3, 2).unwrap();
    two.reclaim(other, 3, 2).unwrap();
    assert_eq!((one.reclaim_complete(), two.reclaim_complete()), (Status::OK, Status::OK));
}

// The record names the principal: the owner strings of others can be seen.
#[test]
fn another_user_reclaims_nothing_with_the_same_owner_string() {
    let home = tempfile::tempdir().unwrap();
    let (server, address) = start(home.path());
    let mut one = Client::new(address, "one");
    let (file, _) = one.open("file", 3, 0).unwrap();
    drop(server);

    let (_server, address) = start(home.path());
    let theirs = Peer::with_credential(address, credential(1, b"one", 1000, 1000));
    let mut other = Client::reclaiming(theirs, "one");
    assert_eq!(other.reclaim(file, 1, 0), Err(Status::RECLAIM_BAD));
    assert_eq!(after_sequence(&other.send(|_| {})).status, Status::OK);
}

#[test]
fn a_second_server_of_the_same_directory_is_refused_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let (server, _) = start(home.path());
    let required = Config { may_leave_v4: false, ..restartable(home.path()) };
    let refused = Server::start(required).unwrap_err().to_string();
    assert!(
        refused.starts_with("cannot keep what clients have open and locked\n  cause: another server"),
        "{refused}"
    );
    assert!(refused.contains("\n  try:   stop that server"), "{refused}");
    // Nobody has asked for version 4: it goes without. So do locks.
    let (second, address) = start(home.path());
    assert_eq!((second.versions().to_string().as_str(), second.serves_nlm()), ("3", false));
    let mismatch = Body::Accepted(Accept::ProgMismatch { low: 3, high: 3 });
    assert_eq!(Peer::new(address).call_any(nfs4::PROGRAM, nfs4::VERSION, 0, &[]).0, mismatch);
    drop(second);
    // Version 3 needs no such file, except to lock.
    let version_3 = Config { versions: "3".parse().unwrap(), ..restartable(home.path()) };
    let third = Server::start(version_3).unwrap();
    assert!(!third.serves_nlm());
    drop(third);
    drop(server);
    drop(start(home.path()));
}

#[test]
fn a_server_without_clients_has_no_grace_period() {
    let home = tempfile::tempdir().unwrap();
    for owner in ["one", "two"] {
        let (server, address) = start(home.path());
        if owner == "one" {
            let mut gone = Client::new(address, owner);
            let args = op::exchange_id::DestroyArgs { client: gone.id };
            let session = op::create_session::DestroyArgs { session: gone.session };
            let destroyed = encoded(2, |to| _ = to.push(&Args::DestroySession(session)));
            assert_eq!(client::outcome(&call(&mut gone.peer, &destroyed)).0, Status::OK);
            let destroyed = encoded(2, |to| _ = to.push(&Args::DestroyClientId(args)));
            assert_eq!(client::outcome(&call(&mut gone.peer, &destroyed)).0, Status::OK);
        } else {
            Client::new(address, owner).open("file", 3, 0).unwrap();
        }
        drop(server);
    }
}
