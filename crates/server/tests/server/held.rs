//! Tests what clients can make the server hold, and what that costs the others.

use crate::peer::{PATIENCE, Peer, config, credential, eventually, pattern, write_args};
use server::Server;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

const MIB: u64 = 1 << 20;

/// A connection from another address of loopback.
fn peer_from(host: u8, address: SocketAddr) -> Peer {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0)))).unwrap();
    socket.connect(&SockAddr::from(address)).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    Peer { stream, credential: credential(1, b"test", 0, 0), next_xid: 1 }
}

#[test]
fn unfinished_large_writes_of_others_neither_stop_nor_reset_a_client() {
    const HOSTILE: usize = 64;
    let mut config = config();
    config.limits.held_bytes_max = 16 << 20;
    // Nobody is ended only for being silent.
    config.limits.partial_record_ms_max = 3_600_000;
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    // One client at the address of the hostile ones, and one at another.
    for host in [1, 2] {
        let mut peer = peer_from(host, address);
        let root = peer.mnt(b"/export").unwrap();
        let file = peer.create(root, b"f").object.unwrap();
        let data = pattern(1 << 20, 3);
        let record = peer.record(9, nfs3::PROGRAM, 3, 7, &write_args(file, 0, &data));
        let hostile: Vec<Peer> = (0..HOSTILE).map(|_| peer_from(1, address)).collect();
        for client in &hostile {
            (&client.stream).write_all(&record[..64 << 10]).unwrap();
        }
        let connections = || server.statistics().nodes[0].connections.len();
        eventually("some hostile connections are ended for the others", || connections() <= HOSTILE);
        for _ in 0..20 {
            assert!(peer.write(file, 0, &data).into_result().is_ok());
        }
        drop((hostile, peer));
        eventually("the connections end", || connections() == 0);
    }
}

#[test]
fn writes_that_others_never_finish_take_no_space_of_a_small_store() {
    const HOSTILE: usize = 16;
    let mut config = config();
    config.exports[0].store =
        server::StoreConfig::Mem { bytes: HOSTILE as u64 / 2 * MIB, owner_uid: 0, owner_gid: 0 };
    // Nobody is ended for being silent, and there is memory for all of the records.
    config.limits.partial_record_ms_max = 3_600_000;
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut peer = peer_from(1, address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    let data = pattern(MIB as usize, 3);
    let record = peer.record(9, nfs3::PROGRAM, 3, 7, &write_args(file, 0, &data));
    let hostile: Vec<Peer> = (0..HOSTILE).map(|_| peer_from(2, address)).collect();
    let connections = || server.statistics().nodes[0].connections.len();
    eventually("all are accepted", || connections() == HOSTILE + 1);
    for client in &hostile {
        (&client.stream).write_all(&record[..record.len() - 100]).unwrap();
    }
    // Two thirds of the store are filled and overwritten.
    for round in 0..3 {
        for at in 0..HOSTILE as u64 / 3 {
            let written = peer.write(file, at * MIB, &data).into_result();
            assert!(written.is_ok(), "{written:?} in round {round}");
        }
    }
    // One that is handed from loop to loop is not counted for a moment, one that was ended never.
    eventually("nobody was ended", || connections() == HOSTILE + 1);
}
