//! What clients may not do: bad bytes, too much of anything, strangers.

use super::client::{
    Client, after_sequence, call, config_with_4, create_session, encoded, exchange_id, outcome, put, start,
    start_with,
};
use crate::peer::{PATIENCE, Peer};
use fs::FileHandle;
use nfs4::compound::ReplyReader;
use nfs4::op::create_session::ChannelAttributes;
use nfs4::op::{self, Args, Fore, kind};
use nfs4::{Attributes, Bitmap, Fattr, OwnerId, SessionId, StateOwner, Status};
use rpc::reply::{Accept, Body};
use std::net::SocketAddr;

#[test]
fn a_stranger_reaches_neither_clients_nor_sessions() {
    let mut config = config_with_4();
    config.exports[0].allow.clear();
    let (_server, address) = start_with(config);
    let mut peer = Peer::new(address);
    let client = nfs4::ClientId(1 << 32 | 1);
    let destroy = Args::DestroyClientId(op::exchange_id::DestroyArgs { client });
    for args in [exchange_id(b"stranger", 1), create_session(client, 1, 4), destroy, Args::PutRootFh(())] {
        let request = encoded(2, |to| _ = to.push(&args));
        assert_eq!(outcome(&call(&mut peer, &request)), (Status::PERM, 1), "{args:?}");
    }
}

/// A connection from another address of this machine.
fn peer_from(source: [u8; 4], address: SocketAddr) -> Peer {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.set_tcp_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    Peer { stream: socket.into(), ..Peer::new(address) }
}

#[test]
fn one_address_does_not_keep_others_out_by_the_number_of_its_clients() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let mut join = |name: String| {
        let asked = call(&mut peer, &encoded(2, |to| _ = to.push(&exchange_id(name.as_bytes(), 1))));
        let mut reader = ReplyReader::<Fore>::new(&asked).unwrap();
        let asked = reader.expect::<kind::ExchangeId>().unwrap().unwrap();
        let create = create_session(asked.client, asked.sequence, 1);
        outcome(&call(&mut peer, &encoded(2, |to| _ = to.push(&create)))).0
    };
    let refused =
        (0..5000).map(|number| join(format!("crowd {number}"))).find(|status| *status != Status::OK);
    assert_eq!(refused, Some(Status::DELAY));
    let mut other = Client::of_peer(peer_from([127, 0, 0, 2], address), "other");
    assert!(other.open("file", 3, 0).is_ok());
}

// RFC 8881 s18.46.3, s2.10.6.4
#[test]
fn a_compound_keeps_to_what_its_session_was_granted() {
    let (_server, address) = start();
    let mut client = Client::new(address, "bounds");
    let export = client.export();
    let many = client.run(|to| (0..16).for_each(|_| _ = to.push(&Args::PutRootFh(()))));
    assert_eq!(many, Status::TOO_MANY_OPS);
    client.sequence -= 1;
    let long = vec![b'n'; (1 << 20) + 4096];
    let name = Args::Lookup(op::lookup::Args { name: &long });
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&name)), Status::REQ_TOO_BIG);
    client.sequence -= 1;
    let long = vec![b'n'; 300];
    let name = Args::Lookup(op::lookup::Args { name: &long });
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&name)), Status::NAMETOOLONG);
    // Two reads of a mebibyte are more than a reply may have.
    let (file, open) = client.open("file", 3, 0).unwrap();
    assert_eq!(client.write(file, open, 0, &vec![1; 1 << 20]), Ok(1 << 20));
    let read = Args::Read(op::read::Args { stateid: open, offset: 0, count: 1 << 20 });
    let status = client.run(|to| _ = to.push(&put(file)).push(&read).push(&read));
    assert_eq!(status, Status::REP_TOO_BIG);
    assert_eq!(client.read(file, open, 0, 1 << 20).unwrap().0.len(), 1 << 20);
}

#[test]
fn operations_that_are_not_there_are_told_from_those_that_are_not_built() {
    let (_server, address) = start();
    let mut client = Client::new(address, "operations");
    let mut number = |minor, number: u32| {
        client.minor = minor;
        let mut request = client.request(&[], |to| _ = to.push(&Args::PutRootFh(())));
        let at = request.len() - 4;
        request[at..].copy_from_slice(&number.to_be_bytes());
        outcome(&call(&mut client.peer, &request)).0
    };
    assert_eq!(number(2, 4711), Status::OP_ILLEGAL);
    assert_eq!(number(1, 69), Status::OP_ILLEGAL, "SEEK is of version 4.2");
    assert_eq!(number(2, 30), Status::NOTSUPP, "RENEW");
    assert_eq!(number(2, 46), Status::NOTSUPP, "GET_DIR_DELEGATION");
    assert_eq!(number(2, 9), Status::BADXDR, "GETATTR without its arguments");
}

/// Whatever a request is cut or changed to, the server answers or closes, and serves on.
#[test]
fn damaged_requests_are_answered() {
    let (_server, address) = start();
    let mut client = Client::new(address, "damage");
    let export = client.export();
    let wanted = Bitmap::of(&[1, 4, 33]);
    let build = |client: &mut Client| {
        client.request(&[], |to| {
            to.push(&put(export)).push(&Args::GetAttr(op::getattr::Args { wanted }));
        })
    };
    let whole = build(&mut client);
    for len in (0..whole.len()).step_by(4) {
        let mut peer = Peer::with_credential(address, client.peer.credential.clone());
        let (body, _) = peer.call_any(nfs4::PROGRAM, 4, 1, &whole[..len]);
        assert!(matches!(body, Body::Accepted(Accept::Success | Accept::GarbageArgs)), "{len}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        let (body, _) = client.peer.call_any(nfs4::PROGRAM, 4, 1, &damaged);
        assert!(matches!(body, Body::Accepted(Accept::Success | Accept::GarbageArgs)), "{at}");
    }
    let mut after = Client::new(address, "after");
    assert_eq!(after.export(), export);
}

/// A session that allows replies of so many bytes, of which it keeps `kept`.
fn session_of(client: &mut Client, reply_max: u32, kept: u32) -> SessionId {
    let Args::CreateSession(args) = create_session(client.id, client.next_session(), 1) else {
        unreachable!()
    };
    let fore = ChannelAttributes { reply_max, cached_reply_max: kept, ..args.fore };
    let args = Args::CreateSession(op::create_session::Args { fore, ..args });
    let made = call(&mut client.peer, &encoded(2, |to| _ = to.push(&args)));
    let made = ReplyReader::<Fore>::new(&made).unwrap().expect::<kind::CreateSession>().unwrap().unwrap();
    assert_eq!(made.fore.reply_max, reply_max);
    made.session
}

/// The reply to a list in a session of its own, with the RPC header as the session counts it.
fn list_in(client: &mut Client, at: FileHandle, list: &Args<'_>, sizes: (u32, u32), cache: bool) -> Vec<u8> {
    let session = session_of(client, sizes.0, sizes.1);
    let sequence = op::sequence::Args { session, sequence: 1, slot: 0, highest_slot: 0, cache };
    let request = encoded(2, |to| {
        to.push(&Args::Sequence(sequence)).push(&put(at)).push(list);
    });
    let results = call(&mut client.peer, &request);
    let destroy = Args::DestroySession(op::create_session::DestroyArgs { session });
    let destroyed = call(&mut client.peer, &encoded(2, |to| _ = to.push(&destroy)));
    assert_eq!(outcome(&destroyed).0, Status::OK);
    results
}

/// At each size of a session's replies a list has as many parts as fit, and is refused as too long
/// if none does. `parts` counts those of a reply.
fn check_list(
    client: &mut Client,
    at: FileHandle,
    list: &Args<'_>,
    parts: impl Fn(&mut ReplyReader<'_, Fore>) -> Option<usize>,
) {
    // The RPC header of a reply is 24 bytes long.
    let whole = |results: &[u8]| u32::try_from(results.len() + 24).unwrap();
    let mut ask = |sizes, cache| {
        let results = list_in(client, at, list, sizes, cache);
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        (parts(&mut reader), outcome(&results).0, whole(&results))
    };
    let (all, _, longest) = ask((1 << 16, 2048), false);
    let all = all.unwrap();
    assert!(all > 3 && longest < 2048);
    let (mut before, mut seen) = (None, 0);
    // Nothing shorter is granted.
    for size in 256..longest + 3 {
        let (count, status, len) = ask((size, 2048), false);
        match count {
            Some(count) => assert!(len <= size && count > 0, "{size}"),
            None => assert_eq!(status, Status::REP_TOO_BIG, "{size}"),
        }
        // More as soon as it fits: then the reply has this very size.
        if count > before {
            assert!(before.is_none() && size == 256 || len == size, "{size} {count:?}");
            seen += 1;
        }
        assert!(count >= before);
        before = count;
        // What is to be kept has the bound of what is kept.
        let (kept, status, len) = ask((1 << 16, size), true);
        assert_eq!(kept, count, "{size}");
        assert!(kept.is_some() && len <= size || status == Status::REP_TOO_BIG_TO_CACHE, "{size}");
    }
    assert_eq!((before, seen), (Some(all), seen.max(3)));
}

// RFC 8881 s2.10.6.4, s18.23.3
#[test]
fn a_listing_uses_what_its_session_allows_to_the_byte() {
    let (_server, address) = start();
    let mut client = Client::new(address, "listing");
    let export = client.export();
    for number in 0..6 {
        let name = "n".repeat(40 + number);
        let (file, open) = client.open(&name, 3, 0).unwrap();
        assert_eq!(client.close(file, open), Status::OK);
    }
    let wanted = Bitmap::of(&[1, 4, 20]);
    let args = op::readdir::Args { cookie: 0, verifier: [0; 8], dircount: 0, maxcount: 1 << 16, wanted };
    check_list(&mut client, export, &Args::ReadDir(args), |reader| {
        let page = reader.expect::<kind::ReadDir>().unwrap().ok()?;
        assert_eq!(page.eof, page.entries.iter().count() == 6);
        Some(page.entries.iter().count())
    });
    // What the client has no room for is its own affair.
    let small = op::readdir::Args { maxcount: 40, ..args };
    let status = client.run(|to| _ = to.push(&put(export)).push(&Args::ReadDir(small)));
    assert_eq!(status, Status::TOOSMALL);
}

// RFC 8276 s8.4.3
#[test]
fn a_list_of_extended_attributes_uses_what_its_session_allows_to_the_byte() {
    let (_server, address) = start();
    let mut client = Client::new(address, "xattrs");
    let (file, _) = client.open("file", 3, 0).unwrap();
    for number in 0..6 {
        let name = "x".repeat(80 + number);
        let option = op::xattr::SetOption::Create;
        let args = Args::SetXattr(op::xattr::SetArgs { option, name: name.as_bytes(), value: b"v" });
        assert_eq!(client.run(|to| _ = to.push(&put(file)).push(&args)), Status::OK);
    }
    let args = op::xattr::ListArgs { cookie: 0, count_max: 1 << 16 };
    check_list(&mut client, file, &Args::ListXattrs(args), |reader| {
        let page = reader.expect::<kind::ListXattrs>().unwrap().ok()?;
        assert_eq!(page.eof, page.names.iter().count() == 6);
        Some(page.names.iter().count())
    });
    let small = op::xattr::ListArgs { count_max: 40, ..args };
    let status = client.run(|to| _ = to.push(&put(file)).push(&Args::ListXattrs(small)));
    assert_eq!(status, Status::TOOSMALL);
}

/// An OPEN that is refused for the number of its owners does not leave the file that it would have
/// created.
#[test]
fn an_open_that_there_is_no_room_for_creates_nothing() {
    let (_server, address) = start();
    let mut client = Client::new(address, "owners");
    let export = client.export();
    client.open("file", 3, 0).unwrap();
    let open = |client: &Client, name: &'static str, owner: &'static str, how| {
        let owner = StateOwner { client: client.id, owner: OwnerId::new(owner.as_bytes()).unwrap() };
        let claim = op::open::Claim::Name(name.as_bytes());
        Args::Open(op::open::Args { seqid: 0, access: 3, deny: 0, owner, how, claim })
    };
    let owners: Vec<&'static str> =
        (0..20_000).map(|number| &*Box::leak(format!("{number:0>1024}").into_boxed_str())).collect();
    let mut status = Status::OK;
    for owners in owners.chunks(7) {
        let opens: Vec<_> =
            owners.iter().map(|owner| open(&client, "file", owner, op::open::How::NoCreate)).collect();
        status = client.run(|to| opens.iter().for_each(|open| _ = to.push(&put(export)).push(open)));
        if status != Status::OK {
            break;
        }
    }
    assert_eq!(status, Status::DQUOT);
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    let set = Fattr::all(&mode);
    for how in [
        op::open::How::Unchecked(set),
        op::open::How::Guarded(set),
        op::open::How::Exclusive([7; 8]),
        op::open::How::ExclusiveWith([7; 8], set),
    ] {
        let new = open(&client, "new", owners[owners.len() - 1], how);
        assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&new)), Status::DQUOT);
        assert_eq!(client.walk(&["export", "new"]), Err(Status::NOENT));
    }
    // An owner that is known has room for more.
    assert!(client.open("other", 3, 0).is_ok());
}
