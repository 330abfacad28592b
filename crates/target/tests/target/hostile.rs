//! Hosts that may not be here, and peers that are no hosts: only their own connection ends.

use crate::peer::{
    BLOCK, HOST, Host, PATIENCE, Queue, blocks, config, host_config, nqn, random_bytes, start, start_with,
    wait_until_empty,
};
use nvme::fabrics::Property;
use nvme::host::{CommandData, Failure, HostConfig, Purpose};
use nvme::io::IoFlags;
use nvme::log_page::{GetLogPage, LogId};
use nvme::pdu::{CapsuleCmd, Digests, FatalError, H2cData, IcReq, Sender};
use nvme::register::CC;
use nvme::tcp::HostReceived;
use nvme::{Cqe, IoOpcode, NSID_ALL, Sgl, Sqe, Status};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use target::{Access, Target};
use testkit::Deadline;

fn refused(target: &Target, config: HostConfig) -> Status {
    match Host::connect_with(target, config, Digests::default()) {
        Err(Failure::Command(Purpose::Connect, status) | Failure::NoSubsystem(status)) => status,
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
fn long_answers_on_an_admin_queue_wait_until_the_host_reads() {
    const LOG_BYTES: u32 = 1 << 20;
    let mut config = config();
    config.loops = 1;
    let target = start_with(&config);
    let mut host = Host::connect(&target, 1);
    // All at once, and at the end what ends the I/O queue.
    let log = GetLogPage {
        log: LogId::HEALTH,
        parameter: 0,
        retain_event: false,
        bytes: LOG_BYTES.into(),
        offset: 0,
        nsid: NSID_ALL,
    };
    let (log, mut out) = (log.command(0, Sgl::NONE), Vec::new());
    let logs: Vec<u16> =
        (0..20).map(|_| host.admin.prepare(&log, CommandData::Receive(LOG_BYTES), &mut out)).collect();
    let reset = host.admin.prepare(&Property::set(0, CC, 0), CommandData::None, &mut out);
    host.admin.stream.write_all(&out).unwrap();
    // The only loop has seen them when it has answered others that came later.
    let mut other = Host::connect(&target, 1);
    for _ in 0..3 {
        assert_eq!(other.io[0].write(1, 0, &vec![3; BLOCK]), Status::SUCCESS);
    }
    assert_eq!(target.usage().io_queues, 2, "the last command was executed, and nothing was read");
    for cid in logs {
        let (cqe, data) = host.admin.wait(cid);
        assert_eq!((cqe.status, data.len()), (Status::SUCCESS, LOG_BYTES as usize));
    }
    assert_eq!(host.admin.wait(reset).0.status, Status::SUCCESS);
    Deadline::wait_until("the end of the queue", PATIENCE, || (target.usage().io_queues == 1).then_some(()));
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

/// The data of a write that the target asks for, and a half of them.
const ASKED: u32 = 16 * BLOCK as u32;
const HALF: u32 = ASKED / 2;

/// Has the target ask for the data of a write; returns the identifier and the tag.
fn ask(queue: &mut Queue) -> (u16, u16) {
    let sqe = blocks(IoOpcode::WRITE, 1, 64, 16, IoFlags::NONE);
    queue.submit(&sqe, CommandData::Send(vec![1; ASKED as usize]));
    let mut r2t = [0; 24];
    queue.stream.read_exact(&mut r2t).unwrap();
    assert_eq!(r2t[0], 9, "R2T");
    (u16::from_le_bytes([r2t[8], r2t[9]]), u16::from_le_bytes([r2t[10], r2t[11]]))
}

/// PDUs with data, each with as many as it says.
fn h2c(pdus: &[H2cData]) -> Vec<u8> {
    let mut out = Vec::new();
    for pdu in pdus {
        pdu.encode(Sender::default(), &mut out);
        out.resize(out.len() + pdu.length as usize, 7);
    }
    out
}

/// An answer, as the wire has it.
fn answer(queue: &mut Queue) -> Cqe {
    let mut pdu = [0; 24];
    queue.stream.read_exact(&mut pdu).unwrap();
    assert_eq!(pdu[0], 5, "CapsuleResp");
    Cqe::decode(&pdu[8..]).unwrap()
}

#[test]
fn data_that_are_not_what_was_asked_for_end_their_connection_and_no_other() {
    let target = start();
    let mut good = Host::connect(&target, 1);
    let first = |(cccid, ttag)| H2cData { cccid, ttag, offset: 0, length: HALF, last: false };
    let second = |asked| H2cData { offset: HALF, last: true, ..first(asked) };
    type Hostile<'a> = (&'a str, &'a dyn Fn((u16, u16)) -> Vec<H2cData>);
    let hostile: [Hostile<'_>; 9] = [
        ("another tag", &|(cid, tag)| vec![first((cid, tag + 1))]),
        ("another command", &|(cid, tag)| vec![first((cid + 1, tag))]),
        ("not the first", &|asked| vec![second(asked)]),
        ("a wild offset", &|asked| vec![H2cData { offset: u32::MAX - 3, ..first(asked) }]),
        ("the same again", &|asked| vec![first(asked), first(asked)]),
        ("overlapping", &|asked| vec![first(asked), H2cData { offset: HALF - 4, ..second(asked) }]),
        ("beyond the end", &|asked| vec![first(asked), H2cData { length: HALF + 4, ..second(asked) }]),
        ("the last too early", &|asked| vec![H2cData { last: true, ..first(asked) }]),
        ("after the last", &|asked| vec![first(asked), second(asked), first(asked)]),
    ];
    for (round, (what, pdus)) in hostile.into_iter().enumerate() {
        let mut bad = Host::connect(&target, 1);
        let queue = &mut bad.io[0];
        let bytes = h2c(&pdus(ask(queue)));
        // The target may close before it has everything.
        let _ = queue.stream.write_all(&bytes);
        queue.wait_for_end();
        let data = random_bytes(round as u64, 64 * BLOCK);
        assert_eq!(good.io[0].write(1, 128, &data), Status::SUCCESS, "{what}");
        assert!(good.io[0].read(1, 128, 64) == data, "{what}");
    }
    drop(good);
    wait_until_empty(&target);
}

#[test]
fn lengths_that_lie_end_their_connection_and_no_other() {
    let target = start();
    let mut good = Host::connect(&target, 1);
    // Type, flags, HLEN, PDO, PLEN.
    let head = |kind: u8, hlen: u8, pdo: u8, plen: u32| {
        let mut pdu = vec![kind, 0, hlen, pdo];
        pdu.extend_from_slice(&plen.to_le_bytes());
        pdu.resize(256, 0);
        pdu
    };
    let of_asked = |bytes: fn(&mut Vec<u8>), (cccid, ttag)| {
        let mut pdu = h2c(&[H2cData { cccid, ttag, offset: 0, length: HALF, last: false }]);
        bytes(&mut pdu);
        pdu
    };
    let hostile: [Vec<u8>; 7] = [
        head(4, 72, 72, 71),
        head(4, 72, 72, 0),
        head(4, 72, 8, 72 + 512),
        head(4, 72, 255, 72 + 8),
        head(4, 200, 200, 200),
        head(4, 72, 72, u32::MAX),
        head(0x7f, 8, 0, 8),
    ];
    let changes: [fn(&mut Vec<u8>); 5] = [
        |pdu| pdu[4..8].copy_from_slice(&23_u32.to_le_bytes()),
        |pdu| pdu[4..8].copy_from_slice(&(24 + HALF + 4).to_le_bytes()),
        |pdu| pdu[16..20].copy_from_slice(&(HALF + 4).to_le_bytes()),
        |pdu| pdu[16..20].copy_from_slice(&u32::MAX.to_le_bytes()),
        |pdu| pdu[3] = 0xfc,
    ];
    let mut bad = |bytes: &dyn Fn(&mut Queue) -> Vec<u8>| {
        let mut bad = Host::connect(&target, 1);
        let bytes = bytes(&mut bad.io[0]);
        let _ = bad.io[0].stream.write_all(&bytes);
        bad.io[0].wait_for_end();
        assert_eq!(good.io[0].write(1, 0, &vec![3; BLOCK]), Status::SUCCESS);
    };
    hostile.iter().for_each(|bytes| bad(&|_| bytes.clone()));
    changes.iter().for_each(|change| bad(&|queue| of_asked(*change, ask(queue))));
    drop(good);
    wait_until_empty(&target);
}

#[test]
fn a_second_command_of_one_identifier_is_refused_and_the_first_goes_on() {
    let target = start();
    let mut host = Host::connect(&target, 1);
    let (cid, ttag) = ask(&mut host.io[0]);
    let mut bytes = Vec::new();
    let sgl = Sgl::Transport { length: ASKED };
    let sqe = Sqe { cid, sgl, ..blocks(IoOpcode::WRITE, 1, 0, 16, IoFlags::NONE) };
    CapsuleCmd { sqe }.encode(Sender::default(), 0, &mut bytes);
    host.io[0].stream.write_all(&bytes).unwrap();
    let refused = answer(&mut host.io[0]);
    assert_eq!((refused.cid, refused.status), (cid, Status::COMMAND_ID_CONFLICT.no_retry()));
    let data = H2cData { cccid: cid, ttag, offset: 0, length: ASKED, last: true };
    host.io[0].stream.write_all(&h2c(&[data])).unwrap();
    let done = answer(&mut host.io[0]);
    assert_eq!((done.cid, done.status), (cid, Status::SUCCESS));
    let mut other = Host::connect(&target, 1);
    assert!(other.io[0].read(1, 64, 16) == vec![7; ASKED as usize]);
    assert!(other.io[0].read(1, 0, 16) == vec![0; ASKED as usize], "the refused one wrote nothing");
}
