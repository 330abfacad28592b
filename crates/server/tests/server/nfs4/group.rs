//! A group of servers that share the state of their clients: a session is one on all of them, and
//! ends with none of them. Each has its own open files, as each process has.

use super::client::{Client, call, outcome, put, start_with};
use super::stores::{remove, restartable};
use crate::peer::{Peer, credential, eventually};
use nfs4::op::{self, Args};
use nfs4::{Attributes, ClientId, Fattr, OwnerId, Range, StateOwner, Status};
use server::{Config, Error, GroupError, Server};
use std::net::SocketAddr;
use std::path::Path;

const ALL: Range = Range { offset: 0, length: Range::TO_THE_END };

fn config(home: &Path) -> Config {
    Config { group: Some(home.join("group")), ..restartable(home) }
}

fn start(home: &Path) -> (Server, SocketAddr) {
    start_with(config(home))
}

/// A connection to another server of the group, with the same principal.
fn peer(address: SocketAddr, owner: &str) -> Peer {
    Peer::with_credential(address, credential(1, owner.as_bytes(), 0, 0))
}

/// The client goes on at another server, with the same session.
fn goes_on(client: Client, address: SocketAddr, owner: &str) -> Client {
    Client { peer: peer(address, owner), ..client }
}

fn create<'a>(id: ClientId, name: &'a str, attributes: &'a Attributes<'a>) -> Args<'a> {
    let owner = StateOwner { client: id, owner: OwnerId::new(b"opener").unwrap() };
    let how = op::open::How::Guarded(Fattr::all(attributes));
    let claim = op::open::Claim::Name(name.as_bytes());
    Args::Open(op::open::Args { seqid: 0, access: 3, deny: 0, owner, how, claim })
}

#[test]
fn a_session_is_one_on_all_servers_and_a_request_is_executed_by_one_of_them() {
    let home = tempfile::tempdir().unwrap();
    let ((_first, here), (_second, there)) = (start(home.path()), start(home.path()));
    let mut client = Client::new(here, "one");
    let export = client.export();
    let (id, mode) = (client.id, Attributes { mode: Some(0o644), ..Attributes::default() });
    let request = client.request(&[], |to| _ = to.push(&put(export)).push(&create(id, "file", &mode)));
    let answer = call(&mut client.peer, &request);
    assert_eq!(outcome(&answer), (Status::OK, 3));
    let mut client = goes_on(client, there, "one");
    assert_eq!(call(&mut client.peer, &request), answer, "the other server has executed it");
    // A guarded creation would find its own file.
    let again = client.request(&[], |to| _ = to.push(&put(export)).push(&create(id, "file", &mode)));
    assert_eq!(outcome(&call(&mut client.peer, &again)).0, Status::EXIST);

    let (file, open) = client.open("file", 3, 2).unwrap();
    let locker = client.first(open, "locker");
    client.lock(file, locker, true, ALL).unwrap();
    let mut client = goes_on(client, here, "one");
    assert_eq!(client.write(file, open, 0, b"by both"), Ok(7));
    let mut other = Client::new(here, "two");
    assert_eq!(other.open("file", 2, 0), Err(Status::SHARE_DENIED));
    let (_, reading) = other.open("file", 1, 0).unwrap();
    let theirs = other.first(reading, "reader");
    let mut other = goes_on(other, there, "two");
    assert_eq!(other.lock(file, theirs, false, ALL), Err(Status::DENIED));
    assert_eq!(client.close(file, open), Status::OK);
    let theirs = other.first(reading, "reader");
    assert!(other.lock(file, theirs, false, ALL).is_ok(), "the locks have ended with the open");
}

#[test]
fn what_clients_have_lives_on_while_any_server_does() {
    let home = tempfile::tempdir().unwrap();
    let ((first, here), (second, there)) = (start(home.path()), start(home.path()));
    let mut client = Client::new(here, "one");
    let (file, open) = client.open("file", 3, 2).unwrap();
    let locker = client.first(open, "locker");
    let held = client.lock(file, locker, true, ALL).unwrap();
    drop(first);
    // Nobody has to reclaim anything, and new clients get state: the other writes their records.
    let mut client = goes_on(client, there, "one");
    assert_eq!(client.write(file, held, 0, b"goes on"), Ok(7));
    let mut newcomer = Client::new(there, "newcomer");
    assert_eq!(newcomer.open("file", 2, 0), Err(Status::SHARE_DENIED));
    eventually("its record is written", || newcomer.open("new", 3, 0).is_ok());
    let (third, where_else) = start(home.path());
    drop(second);
    let mut client = goes_on(client, where_else, "one");
    assert_eq!(client.read(file, held, 0, 100).unwrap().0, b"goes on");
    drop(third);

    // After the last one, clients reclaim.
    let (_fourth, address) = start(home.path());
    let mut client = goes_on(client, address, "one");
    assert_eq!(client.run(|to| _ = to.push(&put(file))), Status::BADSESSION);
    let mut early = Client::reclaiming(peer(address, "early"), "early");
    assert_eq!(early.reclaim_complete(), Status::OK);
    assert_eq!(early.open("file", 3, 0), Err(Status::GRACE));
    for owner in ["one", "newcomer"] {
        let mut back = Client::reclaiming(peer(address, owner), owner);
        assert_eq!(back.reclaim_complete(), Status::OK);
    }
    eventually("the grace period ends", || early.open("file", 3, 0).is_ok());
}

#[test]
fn a_file_that_is_removed_while_open_lives_until_it_is_closed_by_way_of_any_server() {
    let home = tempfile::tempdir().unwrap();
    let ((first, here), (second, there)) = (start(home.path()), start(home.path()));
    let mut client = Client::new(here, "one");
    let export = client.export();
    let (file, open) = client.open("file", 3, 0).unwrap();
    let mut remover = Client::new(there, "two");
    assert_eq!(remover.on(export, &remove("file")), Status::OK);
    drop(first);
    let mut client = goes_on(client, there, "one");
    assert_eq!(client.write(file, open, 0, b"still"), Ok(5), "the server that removed it holds it");
    assert_eq!(client.close(file, open), Status::OK);
    let is_gone = |client: &mut Client, file| matches!(client.attributes(file, &[35]), Err(Status::STALE));
    eventually("it is released", || is_gone(&mut remover, file));

    // The one that holds it learns that it was closed by way of the other.
    let (_third, here) = start(home.path());
    let (file, open) = client.open("again", 3, 0).unwrap();
    assert_eq!(remover.on(export, &remove("again")), Status::OK);
    let mut client = goes_on(client, here, "one");
    assert_eq!(client.close(file, open), Status::OK);
    let mut remover = goes_on(remover, here, "two");
    eventually("it is released", || is_gone(&mut remover, file));
    drop(second);
}

#[test]
fn servers_that_would_not_serve_alike_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let (server, address) = start(home.path());
    let refused = |config: Config| match Server::start(config) {
        Err(Error::Group { error, .. }) => error,
        other => panic!("{other:?}"),
    };
    let longer = Config { lease: 2 * server::config::LEASE_MIN, ..config(home.path()) };
    let error = refused(longer.clone());
    assert!(matches!(error, GroupError::Lease { theirs_s: 5, ours_s: 10, .. }), "{error}");
    assert!(error.advice().contains("lease_s = 5"), "{}", error.advice());
    let error = refused(Config { versions: "3".parse().unwrap(), ..config(home.path()) });
    assert!(matches!(error, GroupError::Versions { .. }), "{error}");
    Client::new(address, "unharmed").open("file", 3, 0).unwrap();
    drop(server);
    drop(Server::start(longer).expect("nobody has another lease any more"));
}

#[test]
fn a_damaged_state_is_refused_with_what_mends_it_while_others_use_it() {
    use std::os::unix::fs::FileExt;
    let home = tempfile::tempdir().unwrap();
    let (server, _) = start(home.path());
    let path = home.path().join("group/replies");
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let word = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    let pages = file.metadata().unwrap().len() / 4096;
    let head = (0..pages).map(|page| page * 4096).find(|at| word(*at) == *b"ETATSKRT").expect("the state");
    for (at, what) in [(1, "version"), (24, "checksum"), (2, "length")] {
        let at = head + 8 * at;
        let before = word(at);
        file.write_all_at(&[0xff; 8], at).unwrap();
        let error = Server::start(config(home.path())).expect_err(what);
        let Error::Group { error: error @ GroupError::State { .. }, .. } = error else { panic!("{error}") };
        assert!(error.to_string().contains(what), "{error} instead of {what}");
        assert!(error.advice().contains("stop all nodes"), "{}", error.advice());
        file.write_all_at(&before, at).unwrap();
    }
    drop(Server::start(config(home.path())).expect("mended"));
    drop(server);
    file.write_all_at(&[0xff; 8], head + 8).unwrap();
    drop(Server::start(config(home.path())).expect("nobody uses it, so it begins anew"));
}
