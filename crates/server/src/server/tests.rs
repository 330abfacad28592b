//! Behaviour that shows only while another loop is in the middle of a call.

use super::*;
use crate::reply_cache::Window;
use crate::runtime::{RoutedReply, address_of};
use drc::{Begin, Outcome, Token, machine_name};
use rpc::Xid;
use rpc::auth::AuthSys;
use std::io::{Read, Write};
use std::net::TcpStream;
use xdr::Writer;

fn record(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let sys = AuthSys { stamp: 7, machine: &machine_name(7), uid: 0, gid: 0, gids: Default::default() };
    let (mut credential, mut out) = (Vec::new(), vec![0; 4]);
    sys.encode_opaque(&mut Writer::new(&mut credential));
    rpc::call::encode(&mut Writer::new(&mut out), Xid(xid), nfs3::PROGRAM, 3, procedure, &credential);
    out.extend_from_slice(args);
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
    out[..4].copy_from_slice(&mark.encode());
    out
}

#[test]
fn a_replay_of_a_running_call_is_answered_where_it_came_in() {
    let mut config = Config::quick(1 << 20, "/export", &["127.0.0.1:0".parse().unwrap()]);
    config.limits.stall_ms_max = 60_000;
    let server = Server::start(config).unwrap();
    let window = server.group.reply_cache.window(7, [127, 0, 0, 1].into(), clock::now()).unwrap();
    let Window::Local(window) = window else { panic!("no group of processes") };
    let running = Xid(0x8000_0001);
    // This test is the other loop, in the middle of a REMOVE.
    assert_eq!(window.begin(running, Token(0), clock::now()), Begin::Run);

    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let args = [&[0, 0, 0, 4, 1, 2, 3, 4][..], &[0, 0, 0, 1, b'f', 0, 0, 0]].concat();
    stream.write_all(&[record(running.0, 12, &args), record(2, 0, &[])].concat()).unwrap();
    let mut receive = || {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).unwrap();
        let mut reply = vec![0; rpc::record_marking::Mark::decode(mark).len as usize];
        stream.read_exact(&mut reply).unwrap();
        reply
    };
    assert_eq!(receive()[..4], 2_u32.to_be_bytes(), "the NULL behind it is answered, the replay is not yet");

    let reply = b"behind the xid";
    let newer = window.finish(running, Outcome::Reply(reply), clock::now()).waiter.unwrap();
    let (address, connection) = address_of(newer);
    let whole = [&running.0.to_be_bytes()[..], reply].concat();
    server
        .mailboxes
        .send(address.on_loop, Message::Reply(RoutedReply { address, connection, reply: whole.clone() }));
    assert_eq!(receive(), whole);
}
