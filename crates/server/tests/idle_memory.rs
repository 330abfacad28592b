//! Tests the memory of idle connections: under 64 KiB each, and 100 MiB in all besides the store,
//! with a thousand connections.
//!
//! Resident memory is counted for the whole process, so this file has one test. The clients' ends
//! are in the same process and count too, so the result is above what the server alone holds.

use nfs3::{Wire, proc};
use rpc::Xid;
use server::{Config, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use testkit::resident_bytes_of;
use xdr::Writer;

const CONNECTIONS: u64 = 1000;
const EACH_BYTES_MAX: u64 = 64 << 10;
const ALL_BYTES_MAX: u64 = 100 << 20;
const STORE_BYTES: u64 = 8 << 20;
/// How many times a connection calls all procedures, in one burst, before it is idle. Afterwards
/// its queues have been as long as a client makes them, and every counter is in use.
const ROUNDS: u32 = 12;

/// A call of the client with this stamp. Clients with different credentials are not neighbours.
fn record(stamp: u32, xid: u32, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    let sys = rpc::auth::AuthSys { stamp, machine: b"idle", uid: 0, gid: 0, gids: [0].into_iter().collect() };
    let mut credential = Vec::new();
    sys.encode_opaque(&mut Writer::new(&mut credential));
    rpc::call::encode(&mut Writer::new(&mut out), Xid(xid), program, 3, procedure, &credential);
    out.extend_from_slice(args);
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
    out[..4].copy_from_slice(&mark.encode());
    out
}

fn receive(mut stream: &TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut record = vec![0; usize::try_from(rpc::record_marking::Mark::decode(mark).len).unwrap()];
    stream.read_exact(&mut record).unwrap();
    record
}

fn root_of(address: SocketAddr) -> nfs3::FileHandle {
    let mut args = Vec::new();
    nfs3::mount::mnt::Args { path: b"/export" }.encode(&mut Writer::new(&mut args));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&record(0, 1, nfs3::mount::PROGRAM, 1, &args)).unwrap();
    let reply = receive(&stream);
    let mut reader = xdr::Reader::new(&reply);
    rpc::reply::decode(&mut reader).unwrap();
    nfs3::mount::mnt::Reply::decode(&mut reader).unwrap().into_result().unwrap().root
}

#[test]
fn a_thousand_idle_connections_hold_under_64_kib_each_and_100_mib_in_all() {
    let mut config = Config::quick(STORE_BYTES, "/export", &["127.0.0.1:0".parse().unwrap()]);
    config.loops = Some(2);
    config.limits.stall_ms_max = 60_000;
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let object = root_of(address);
    let calls = all_procedures(&object);
    let replies = usize::try_from(ROUNDS).unwrap() * calls.len();
    let burst = |stamp: u32| -> Vec<u8> {
        let round =
            |_| (0_u32..).zip(&calls).flat_map(|(xid, args)| record(stamp, xid, nfs3::PROGRAM, xid, args));
        (0..ROUNDS).flat_map(round).collect()
    };
    // Some calls fail once the object exists, so the replies to each later burst have as many bytes
    // as those to the second.
    receive_len(address, &burst(1), replies);
    let mut room = vec![0; receive_len(address, &burst(2), replies)];
    let before = resident_bytes_of(std::process::id());

    let mut idle = Vec::new();
    for stamp in (3..).take(CONNECTIONS as usize) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&burst(stamp)).unwrap();
        stream.read_exact(&mut room).unwrap();
        idle.push(stream);
    }
    let statistics = server.statistics();
    assert!(statistics.nodes[0].connections.len() as u64 >= CONNECTIONS);
    assert_eq!(statistics.nodes[0].connections.last().unwrap().procedures.iter().count(), calls.len());
    let after = resident_bytes_of(std::process::id());
    let each = after.saturating_sub(before) / CONNECTIONS;
    println!("{each} bytes for each connection, {after} in all");
    assert!(each < EACH_BYTES_MAX, "{each} bytes for each connection");
    assert!(after < ALL_BYTES_MAX + STORE_BYTES, "{after} bytes in all");
}

/// Arguments of all 22 procedures, by number. RFC 1813 s3.3
fn all_procedures(object: &nfs3::FileHandle) -> Vec<Vec<u8>> {
    let mut handle = Vec::new();
    proc::getattr::Args { object: *object }.encode(&mut Writer::new(&mut handle));
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let with = |rest: &[u32]| [handle.clone(), words(rest)].concat();
    // A name of one letter, and attributes that set nothing.
    let named = |letter: u8, rest: &[u32]| [with(&[1, u32::from(letter) << 24]), words(rest)].concat();
    const UNSET: [u32; 6] = [0; 6];
    vec![
        Vec::new(),
        with(&[]),
        with(&[0, 0, 0, 0, 0, 0, 0]),
        named(b'f', &[]),
        with(&[0x3f]),
        with(&[]),
        with(&[0, 0, 100]),
        with(&[0, 0, 4, 0, 4, 7]),
        named(b'f', &[&[0][..], &UNSET].concat()),
        named(b'd', &UNSET),
        named(b's', &[&UNSET[..], &[1, u32::from(b'f') << 24]].concat()),
        named(b'p', &[&[7][..], &UNSET].concat()),
        named(b'x', &[]),
        named(b'x', &[]),
        [named(b'x', &[]), named(b'y', &[])].concat(),
        [handle.clone(), named(b'l', &[])].concat(),
        with(&[0, 0, 0, 0, 400]),
        with(&[0, 0, 0, 0, 400, 1000]),
        with(&[]),
        with(&[]),
        with(&[]),
        with(&[0, 0, 0]),
    ]
}

/// The number of bytes of all replies to a burst.
fn receive_len(address: SocketAddr, burst: &[u8], replies: usize) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(burst).unwrap();
    (0..replies).map(|_| receive(&stream).len() + 4).sum()
}
