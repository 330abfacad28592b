//! What clients may not do: bad bytes, too much of anything, strangers.

use super::client::{
    Client, call, config_with_4, create_session, encoded, exchange_id, outcome, put, start, start_with,
};
use crate::peer::{PATIENCE, Peer};
use nfs4::compound::ReplyReader;
use nfs4::op::{self, Args, Fore, kind};
use nfs4::{Bitmap, Status};
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
