//! Hosts that may not be here, and peers that are no hosts: only their own connection ends.

use crate::peer::{
    BLOCK, HOST, Host, PATIENCE, Queue, blocks, config, host_config, nqn, random_bytes, start, start_with,
    wait_until_empty,
};
use nvme::host::{CommandData, Failure, HostConfig, Purpose};
use nvme::io::IoFlags;
use nvme::pdu::{Digests, FatalError, H2cData, IcReq, Sender};
use nvme::tcp::HostReceived;
use nvme::{IoOpcode, Status};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use target::{Access, Target};
use testkit::Deadline;

fn refused(target: &Target, config: HostConfig) -> Status {
    match Host::connect_with(target, config, Digests::default()) {
        Err(Failure::Command(Purpose::Connect, status)) => status,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("connected"),
    }
}

#[test]
fn a_host_that_is_not_allowed_and_a_wrong_name_are_refused() {
    let mut config = config();
    config.hosts = Access::Only([nqn(HOST)].into());
    let target = start_with(&config);
    let stranger = HostConfig { host: nqn("nqn.2026-11.test:other"), ..host_config(1) };
    let status = refused(&target, stranger);
    assert!(status.is(Status::CONNECT_INVALID_HOST) && status.dnr());
    let lost = HostConfig { subsystem: nqn("nqn.2026-11.test:elsewhere"), ..host_config(1) };
    assert!(refused(&target, lost).is(Status::CONNECT_INVALID_PARAMETERS));
    assert_eq!(Host::connect(&target, 1).namespaces, [1]);
    wait_until_empty(&target);
}

/// Whether the peer has closed, or reset, the connection; what it says before is dropped.
fn wait_for_end(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    let end = stream.read_to_end(&mut rest).map_err(|error| error.kind());
    assert!(matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset)), "{end:?}");
}

#[test]
fn garbage_ends_its_connection_and_no_other() {
    let target = start();
    let mut host = Host::connect(&target, 1);
    for seed in 0..60 {
        let mut stream = TcpStream::connect(target.addresses()[0]).unwrap();
        let mut bytes = Vec::new();
        if seed % 2 == 0 {
            bytes.extend_from_slice(&IcReq { hpda: 0, digests: Digests::default(), maxr2t: 0 }.encode());
        }
        bytes.extend(random_bytes(seed, 4000));
        // The target may close before it has everything.
        let _ = stream.write_all(&bytes);
        wait_for_end(&mut stream);
        assert_eq!(host.io[0].write(1, seed, &vec![3; BLOCK]), Status::SUCCESS);
    }
    drop(host);
    wait_until_empty(&target);
}

#[test]
fn a_broken_rule_is_named_before_the_connection_ends() {
    let target = start();
    let mut host = Host::connect(&target, 2);
    // A capsule with more data than IOCCSZ allows.
    let mut header = vec![4, 0, 72, 72];
    header.extend_from_slice(&(72_u32 + 8193).to_le_bytes());
    host.io[0].stream.write_all(&header).unwrap();
    let Ok(HostReceived::Terminated(term)) = host.io[0].receive() else { panic!("no TermReq") };
    assert_eq!(term.error, FatalError::DATA_TRANSFER_LIMIT_EXCEEDED);
    host.io[0].wait_for_end();
    // Data that nobody asked for.
    let mut data = Vec::new();
    H2cData { cccid: 1, ttag: 3, offset: 0, length: 4096, last: true }.encode(Sender::default(), &mut data);
    host.io[1].stream.write_all(&data).unwrap();
    let Ok(HostReceived::Terminated(term)) = host.io[1].receive() else { panic!("no TermReq") };
    assert_eq!(term.error, FatalError::INVALID_HEADER_FIELD);
    host.io[1].wait_for_end();
}

#[test]
fn half_a_pdu_and_silence_ends_the_connection_after_its_time() {
    let mut config = config();
    config.limits.transfer = Duration::from_secs(1);
    let target = start_with(&config);
    let mut host = Host::connect(&target, 3);
    let mut ok = host.io.remove(0);
    // Half a header; data that are asked for and do not come.
    host.io[0].stream.write_all(&[4, 0, 72]).unwrap();
    let sqe = blocks(IoOpcode::WRITE, 1, 0, 256, IoFlags::NONE);
    host.io[1].submit(&sqe, CommandData::Send(vec![1; 256 * BLOCK]));
    for queue in &mut host.io {
        queue.wait_for_end();
    }
    drop(host.io);
    Deadline::wait_until("the end of the two", PATIENCE, || (target.usage().io_queues == 1).then_some(()));
    assert_eq!(ok.write(1, 0, &vec![3; BLOCK]), Status::SUCCESS);
}

#[test]
fn a_host_that_does_not_read_is_bounded_and_then_ended() {
    let mut config = config();
    config.loops = 1;
    config.limits.memory_bytes = 64 << 20;
    config.limits.transfer = Duration::from_secs(2);
    let target = start_with(&config);
    let mut slow = Host::connect(&target, 1);
    let read = blocks(IoOpcode::READ, 1, 0, 256, IoFlags::NONE);
    for _ in 0..60 {
        slow.io[0].submit(&read, CommandData::Receive(256 * BLOCK as u32));
    }
    // Others have their memory meanwhile.
    let mut host = Host::connect(&target, 1);
    Deadline::wait_until("the end of the slow host's queue", PATIENCE, || {
        let data = random_bytes(3, 256 * BLOCK);
        assert_eq!(host.io[0].write(1, 0, &data), Status::SUCCESS);
        assert!(host.io[0].read(1, 0, 256) == data);
        (target.usage().io_queues == 1).then_some(())
    });
}

#[test]
fn a_thousand_idle_connections_stop_nobody() {
    transport::descriptors::raise_limit();
    let target = start();
    let idle: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(target.addresses()[0]).unwrap()).collect();
    let mut host = Host::connect(&target, 2);
    assert_eq!(host.io[1].write(1, 0, &vec![3; BLOCK]), Status::SUCCESS);
    Deadline::wait_until("all connections", PATIENCE, || (target.usage().connections >= 3).then_some(()));
    drop((idle, host));
    wait_until_empty(&target);
}

#[test]
fn more_connections_than_there_may_be_are_closed_and_make_room() {
    let mut config = config();
    config.limits.connections = 4;
    let target = start_with(&config);
    let mut streams: Vec<TcpStream> =
        (0..4).map(|_| TcpStream::connect(target.addresses()[0]).unwrap()).collect();
    Deadline::wait_until("four connections", PATIENCE, || (target.usage().connections == 4).then_some(()));
    wait_for_end(&mut TcpStream::connect(target.addresses()[0]).unwrap());
    streams.clear();
    wait_until_empty(&target);
    Host::connect(&target, 1);
}

#[test]
fn more_commands_than_the_queue_has_entries_end_it() {
    let target = start();
    let host = Host::connect(&target, 1);
    // The queue was connected with 64 entries; this host believes that it has more.
    let mut queue = host.io.into_iter().next().unwrap();
    let mut out = Vec::new();
    let sqe = blocks(IoOpcode::WRITE, 1, 0, 256, IoFlags::NONE);
    for cid in 0..70_u16 {
        let sgl = nvme::Sgl::Transport { length: 256 * BLOCK as u32 };
        let sqe = nvme::Sqe { cid: cid | 0x8000, sgl, ..sqe };
        nvme::pdu::CapsuleCmd { sqe }.encode(Sender::default(), 0, &mut out);
    }
    queue.stream.write_all(&out).unwrap();
    queue.wait_for_end();
    drop((queue, host.admin));
    wait_until_empty(&target);
}

#[test]
fn a_connection_that_never_connects_is_ended() {
    let target = start();
    let mut queue = Queue::open(target.addresses()[0], Digests::default(), 32);
    queue.wait_for_end();
    wait_until_empty(&target);
}
