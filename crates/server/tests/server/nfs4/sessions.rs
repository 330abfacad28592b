//! Sessions and their slots. RFC 8881 s2.10.6

use super::client::{
    Client, after_sequence, call, create_session, encoded, exchange_id, outcome, put, start, start_with,
};
use crate::peer::{Peer, credential};
use nfs4::compound::ReplyReader;
use nfs4::op::{self, Args, Fore, kind};
use nfs4::{Bitmap, SessionId, Status};
use rpc::reply::{Accept, Body};
use server::Config;

fn remove(name: &str) -> Args<'_> {
    Args::Remove(op::link::RemoveArgs { name: name.as_bytes() })
}

// RFC 8881 s2.10.6.1
#[test]
fn a_retry_is_answered_from_its_slot_on_any_connection_and_changes_nothing() {
    let (_server, address) = start();
    let mut client = Client::new(address, "retry");
    let export = client.export();
    let (file, open) = client.open("once", 3, 0).unwrap();
    assert_eq!(client.close(file, open), Status::OK);
    let request = client.request(&[], |to| _ = to.push(&put(export)).push(&remove("once")));
    let first = call(&mut client.peer, &request);
    assert_eq!(outcome(&first), (Status::OK, 3));
    assert_eq!(call(&mut client.peer, &request), first);
    let mut other = Peer::with_credential(address, client.peer.credential.clone());
    assert_eq!(call(&mut other, &request), first, "another connection");
    // A new request finds that it was done.
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&remove("once"))), Status::NOENT);
}

// RFC 8881 s2.10.6.1.3
#[test]
fn a_retry_without_a_kept_reply_and_a_false_one_are_told() {
    let (_server, address) = start();
    let mut client = Client::new(address, "uncached");
    let export = client.export();
    let wanted = Bitmap::of(&[1]);
    let get = Args::GetAttr(op::getattr::Args { wanted });
    let request = client.request(&[], |to| _ = to.push(&put(export)).push(&get));
    assert_eq!(outcome(&call(&mut client.peer, &request)), (Status::OK, 3));
    assert_eq!(outcome(&call(&mut client.peer, &request)), (Status::RETRY_UNCACHED_REP, 2));
    client.sequence -= 1;
    let made = client.request(&[], |to| _ = to.push(&put(export)).push(&remove("a")));
    assert_eq!(outcome(&call(&mut client.peer, &made)), (Status::SEQ_FALSE_RETRY, 1));
    client.sequence += 5;
    assert_eq!(client.run(|_| {}), Status::SEQ_MISORDERED);
    client.sequence -= 6;
    assert_eq!(client.run(|_| {}), Status::OK, "none of these has moved the slot");
}

// RFC 8881 s18.46.3
#[test]
fn a_kept_read_has_its_data() {
    let (_server, address) = start();
    let mut client = Client::new(address, "kept");
    let (file, open) = client.open("data", 3, 0).unwrap();
    assert_eq!(client.write(file, open, 0, b"some bytes"), Ok(10));
    client.sequence += 1;
    let sequence = client.sequence_args(true);
    let read = |count| Args::Read(op::read::Args { stateid: open, offset: 0, count });
    let request = encoded(2, |to| _ = to.push(&Args::Sequence(sequence)).push(&put(file)).push(&read(100)));
    let first = call(&mut client.peer, &request);
    assert!(first.windows(10).any(|part| part == b"some bytes"));
    assert_eq!(call(&mut client.peer, &request), first);
    // More than a slot keeps.
    assert_eq!(client.write(file, open, 0, &[7; 4096]), Ok(4096));
    client.sequence += 1;
    let sequence = client.sequence_args(true);
    let request = encoded(2, |to| _ = to.push(&Args::Sequence(sequence)).push(&put(file)).push(&read(4096)));
    assert_eq!(outcome(&call(&mut client.peer, &request)).0, Status::REP_TOO_BIG_TO_CACHE);
}

// RFC 8881 s2.10.6, s18.46.3
#[test]
fn what_needs_a_session_is_refused_without_one() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = Args::PutRootFh(());
    let mut of = |args: &[Args<'_>]| {
        let request = encoded(1, |to| args.iter().for_each(|args| _ = to.push(args)));
        outcome(&call(&mut peer, &request))
    };
    assert_eq!(of(&[]), (Status::OK, 0));
    assert_eq!(of(&[root]), (Status::OP_NOT_IN_SESSION, 1));
    assert_eq!(of(&[exchange_id(b"x", 1), root]), (Status::NOT_ONLY_OP, 1));
    let sequence = op::sequence::Args {
        session: SessionId([7; 16]),
        sequence: 1,
        slot: 0,
        highest_slot: 0,
        cache: false,
    };
    assert_eq!(of(&[Args::Sequence(sequence)]), (Status::BADSESSION, 1));
    let mut client = Client::new(address, "second");
    let sequence = client.sequence_args(false);
    assert_eq!(client.run(|to| _ = to.push(&Args::Sequence(sequence))), Status::SEQUENCE_POS);
}

#[test]
fn only_the_minor_versions_that_are_served_are_answered() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    for minor in [0, 3, u32::MAX] {
        let results = call(&mut peer, &encoded(minor, |to| _ = to.push(&Args::PutRootFh(()))));
        assert_eq!(outcome(&results), (Status::MINOR_VERS_MISMATCH, 0), "{minor}");
    }
    let version_3 = Config { versions: "3".parse().unwrap(), ..crate::peer::config() };
    let (_server, address) = start_with(version_3);
    let (body, _) = Peer::new(address).call_any(nfs4::PROGRAM, 4, 0, &[]);
    assert_eq!(body, Body::Accepted(Accept::ProgMismatch { low: 3, high: 3 }));
}

// RFC 8881 s18.35, s18.36, s18.37, s18.50
#[test]
fn a_client_ends_when_its_sessions_have() {
    let (_server, address) = start();
    let mut client = Client::new(address, "ends");
    let destroy = Args::DestroyClientId(op::exchange_id::DestroyArgs { client: client.id });
    let alone = |args: Args<'_>| encoded(2, |to| _ = to.push(&args));
    assert_eq!(outcome(&call(&mut client.peer, &alone(destroy))).0, Status::CLIENTID_BUSY);
    let session = Args::DestroySession(op::create_session::DestroyArgs { session: client.session });
    assert_eq!(client.run(|to| _ = to.push(&session).push(&Args::PutRootFh(()))), Status::NOT_ONLY_OP);
    assert_eq!(client.run(|to| _ = to.push(&session)), Status::OK);
    assert_eq!(outcome(&call(&mut client.peer, &alone(session))).0, Status::BADSESSION);
    assert_eq!(outcome(&call(&mut client.peer, &alone(destroy))).0, Status::OK);
    assert_eq!(outcome(&call(&mut client.peer, &alone(destroy))).0, Status::STALE_CLIENTID);
}

// RFC 8881 s18.35.4, s18.36.4
#[test]
fn a_client_id_belongs_to_its_principal_and_its_creation_is_done_once() {
    let (_server, address) = start();
    let mut client = Client::new(address, "mine");
    let mut other = Peer::with_credential(address, credential(1, b"mine", 77, 77));
    let again = encoded(2, |to| _ = to.push(&exchange_id(b"mine", 1)));
    assert_eq!(outcome(&call(&mut other, &again)).0, Status::CLID_INUSE);
    let results = call(&mut client.peer, &again);
    let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
    let known = reader.expect::<kind::ExchangeId>().unwrap().unwrap();
    assert_eq!(known.client, client.id);
    assert_ne!(known.flags & op::exchange_id::flag::CONFIRMED_R, 0);
    let create = encoded(2, |to| _ = to.push(&create_session(client.id, known.sequence, 4)));
    let first = call(&mut client.peer, &create);
    assert_eq!(outcome(&first).0, Status::OK);
    assert_eq!(call(&mut client.peer, &create), first);
    let later = encoded(2, |to| _ = to.push(&create_session(client.id, known.sequence + 2, 4)));
    assert_eq!(outcome(&call(&mut client.peer, &later)).0, Status::SEQ_MISORDERED);
}

// RFC 8881 s18.34
#[test]
fn a_connection_is_bound_to_both_channels_and_stays_as_it_is() {
    let (_server, address) = start();
    let client = Client::new(address, "bind");
    let bind = |channels, session| {
        let args = op::session_control::BindArgs { session, channels, rdma_mode: true };
        encoded(2, |to| _ = to.push(&Args::BindConnToSession(args)))
    };
    let mut other = Peer::with_credential(address, client.peer.credential.clone());
    let wanted = op::session_control::WantedChannels::ForeOrBoth;
    let results = call(&mut other, &bind(wanted, client.session));
    let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
    let bound = reader.expect::<kind::BindConnToSession>().unwrap().unwrap();
    assert_eq!(bound.channels, op::session_control::Channels::Both);
    assert!(!bound.rdma_mode);
    assert_eq!(outcome(&call(&mut other, &bind(wanted, SessionId([1; 16])))).0, Status::BADSESSION);
}

#[test]
fn before_reclaim_complete_nothing_is_opened_or_created() {
    let (_server, address) = start();
    let mut ready = Client::new(address, "ready");
    let export = ready.export();
    let mut peer = Peer::new(address);
    let results = call(&mut peer, &encoded(2, |to| _ = to.push(&exchange_id(b"hasty", 1))));
    let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
    let exchanged = reader.expect::<kind::ExchangeId>().unwrap().unwrap();
    let create = create_session(exchanged.client, exchanged.sequence, 4);
    let results = call(&mut peer, &encoded(2, |to| _ = to.push(&create)));
    let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
    let session = reader.expect::<kind::CreateSession>().unwrap().unwrap().session;
    let mut hasty = Client { peer, minor: 2, id: exchanged.client, session, sequence: 0, created: 1 };
    assert_eq!(hasty.open("early", 3, 0), Err(Status::GRACE));
    let look = ready.send(|to| _ = to.push(&put(export)).push(&super::client::lookup("early")));
    let mut reader = after_sequence(&look);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    assert_eq!(reader.expect::<kind::Lookup>().unwrap(), Err(Status::NOENT));
}

// RFC 8881 s2.10.3.1, s18.37.3
#[test]
fn a_session_is_destroyed_on_a_connection_that_is_associated_with_it() {
    let (_server, address) = start();
    let client = Client::new(address, "associated");
    let session = client.session;
    let connect = || Peer::with_credential(address, client.peer.credential.clone());
    let destroy = encoded(2, |to| {
        to.push(&Args::DestroySession(op::create_session::DestroyArgs { session }));
    });
    let mut other = connect();
    assert_eq!(outcome(&call(&mut other, &destroy)).0, Status::CONN_NOT_BOUND_TO_SESSION);
    // The session of another client associates with that one only.
    let mut foreign = Client::of_peer(connect(), "foreign");
    assert_eq!(outcome(&call(&mut foreign.peer, &destroy)).0, Status::CONN_NOT_BOUND_TO_SESSION);
    // A request that is refused does not associate.
    let wrong = op::sequence::Args { sequence: 77, ..client.sequence_args(false) };
    let wrong = encoded(2, |to| _ = to.push(&Args::Sequence(wrong)));
    assert_eq!(outcome(&call(&mut other, &wrong)).0, Status::SEQ_MISORDERED);
    assert_eq!(outcome(&call(&mut other, &destroy)).0, Status::CONN_NOT_BOUND_TO_SESSION);
    // One that runs does.
    let next = op::sequence::Args { sequence: client.sequence + 1, ..client.sequence_args(false) };
    let next = encoded(2, |to| _ = to.push(&Args::Sequence(next)));
    assert_eq!(outcome(&call(&mut other, &next)).0, Status::OK);
    assert_eq!(outcome(&call(&mut other, &destroy)).0, Status::OK);
    assert_eq!(outcome(&call(&mut other, &destroy)).0, Status::BADSESSION);
    // So do BIND_CONN_TO_SESSION, and CREATE_SESSION.
    let second = Client::new(address, "second");
    let args = op::session_control::BindArgs {
        session: second.session,
        channels: op::session_control::WantedChannels::Fore,
        rdma_mode: false,
    };
    let mut bound = Peer::with_credential(address, second.peer.credential.clone());
    let bind = encoded(2, |to| _ = to.push(&Args::BindConnToSession(args)));
    assert_eq!(outcome(&call(&mut bound, &bind)).0, Status::OK);
    let create = encoded(2, |to| _ = to.push(&create_session(second.id, 2, 1)));
    let made = call(&mut bound, &create);
    let made = ReplyReader::<Fore>::new(&made).unwrap().expect::<kind::CreateSession>().unwrap().unwrap();
    for session in [second.session, made.session] {
        let destroy = encoded(2, |to| {
            to.push(&Args::DestroySession(op::create_session::DestroyArgs { session }));
        });
        assert_eq!(outcome(&call(&mut bound, &destroy)).0, Status::OK);
    }
}
