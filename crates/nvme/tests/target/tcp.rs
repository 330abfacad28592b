//! The controller's end of a connection. NVMe/TCP Transport 1.0.

use crate::support::connect_command;
use nvme::digest;
use nvme::fabrics::{self, FabricsType};
use nvme::io::{Blocks, IoFlags};
use nvme::pdu::{
    Bounds, C2hData, CapsuleCmd, CapsuleResp, Digests, FatalError, H2cData, IcReq, IcResp, Layout, Malformed,
    Pdu, R2t, Receiver, Sender, TermReq,
};
use nvme::tcp::{Incoming, Progress, Received, Sent, Settings, TargetConnection, ToHost};
use nvme::{Cqe, IoOpcode, Sgl, Sqe, Status};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
const SETTINGS: Settings = Settings { capsule_data_bytes: 4096, transfer_bytes: 8192 };

/// The host's side: sends PDUs, and reads what comes back.
pub struct Peer {
    pub connection: TargetConnection,
    pub sender: Sender,
    /// What the connection has sent and nobody has read.
    pub sent: Vec<u8>,
}

impl Peer {
    fn new() -> Self {
        let connection = TargetConnection::new(NOW, SETTINGS);
        Self { connection, sender: Sender::default(), sent: Vec::new() }
    }

    /// A connection that is a queue, with these digests.
    pub fn running(digests: Digests, is_admin: bool, flow_control: bool) -> Self {
        let mut peer = Self::new();
        peer.send(&IcReq { hpda: 0, digests, maxr2t: 0 }.encode()).expect("an ICReq");
        peer.sender.digests = digests;
        assert!(matches!(peer.read()[..], [Pdu::IcResp(_)]));
        peer.connect().expect("a Connect");
        peer.connection.accept(is_admin, flow_control, &Cqe::default(), &mut peer.sent);
        assert!(matches!(peer.read()[..], [Pdu::CapsuleResp(_)]));
        peer
    }

    fn connect(&mut self) -> Result<Received, Malformed> {
        let sgl = Sgl::InCapsule { offset: 0, length: 1024 };
        self.command(connect_command(0, 31, 0).command(0, sgl), 1024)
    }

    /// Sends the head of a PDU; its data, if any, are placed by the test.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Received, Malformed> {
        let layout = self.connection.layout(bytes[..8].try_into().expect("eight bytes"))?;
        let header = &bytes[..layout.header_bytes()];
        self.connection.handle_header(NOW, &layout, header, &mut self.sent)
    }

    pub fn command(&mut self, sqe: Sqe, in_capsule: u32) -> Result<Received, Malformed> {
        let mut bytes = Vec::new();
        CapsuleCmd { sqe }.encode(self.sender, in_capsule, &mut bytes);
        self.send(&bytes)
    }

    pub fn data(&mut self, data: H2cData) -> Result<Received, Malformed> {
        let mut bytes = Vec::new();
        data.encode(self.sender, &mut bytes);
        self.send(&bytes)
    }

    /// Says that data were placed that had the right digest.
    pub fn placed(&mut self, tag: u16) -> Progress {
        self.connection.handle_data(tag, None, &[], &mut self.sent)
    }

    /// The headers that the connection has sent; data are not among them.
    pub fn read(&mut self) -> Vec<Pdu> {
        let digests = self.sender.digests;
        let receiver = Receiver::Host;
        let bounds = Bounds { receiver, digests, alignment: 4, capsule_data_bytes: 0, data_bytes: 1 << 20 };
        let (mut rest, mut pdus) = (self.sent.as_slice(), Vec::new());
        while !rest.is_empty() {
            let layout = Layout::of(rest[..8].try_into().expect("eight bytes"), &bounds).expect("a PDU");
            pdus.push(Pdu::decode(&layout, &rest[..layout.header_bytes()]).expect("a header"));
            let term = matches!(pdus.last(), Some(Pdu::C2hTermReq(_)));
            rest = if term { &[] } else { &rest[usize::from(layout.data_offset)..] };
        }
        self.sent.clear();
        pdus
    }
}

fn write(cid: u16, sgl: Sgl, count: u32) -> Sqe {
    Blocks { start: 0, count, flags: IoFlags::NONE }.command(IoOpcode::WRITE, cid, 1, sgl)
}

fn on_request(length: u32) -> Sgl {
    Sgl::Transport { length }
}

#[test]
fn digests_are_mirrored_and_the_rest_is_what_linux_accepts() {
    for field in 0..4 {
        let digests = Digests::decode(field);
        let mut peer = Peer::new();
        let request = IcReq { hpda: 3, digests, maxr2t: 0 };
        assert_eq!(peer.send(&request.encode()), Ok(Received::Initialized));
        let response = IcResp { cpda: 0, digests, maxh2cdata: 8192 };
        assert_eq!(peer.read(), [Pdu::IcResp(response)]);
        assert_eq!(peer.connection.digests(), digests);
    }
}

#[test]
fn the_alignment_that_the_host_asks_for_is_kept() {
    let mut peer = Peer::new();
    peer.send(&IcReq { hpda: 31, digests: Digests::default(), maxr2t: 0 }.encode()).expect("an ICReq");
    peer.sent.clear();
    let mut data = ToHost::new(1, 100);
    let sent = peer.connection.send_data(&mut data, 100, &Cqe::default(), &mut peer.sent);
    assert_eq!((sent.length, peer.sent.len(), peer.sent[3]), (100, 128, 128));
}

#[test]
fn what_comes_out_of_sequence_ends_the_connection() {
    let sequence = Err(Malformed::of(FatalError::PDU_SEQUENCE_ERROR));
    let icreq = IcReq { hpda: 0, digests: Digests::default(), maxr2t: 0 }.encode();
    let mut peer = Peer::new();
    assert_eq!(peer.connect(), sequence, "a command before ICReq");
    let mut peer = Peer::new();
    peer.send(&icreq).expect("an ICReq");
    assert_eq!(peer.send(&icreq), sequence, "a second ICReq");
    assert_eq!(peer.command(Sqe::new(0x06, 1, 0), 0), sequence, "a command before Connect");
    let property = fabrics::Property::get(1, 0, true);
    assert_eq!(peer.command(property, 0), sequence, "another command of Fabrics");
    peer.connect().expect("a Connect");
    assert_eq!(peer.connect(), sequence, "a command before Connect is answered");
    let mut peer = Peer::running(Digests::default(), false, true);
    assert_eq!(peer.send(&icreq), sequence);
}

#[test]
fn a_broken_rule_is_told_once_and_nothing_is_taken_after_it() {
    let mut peer = Peer::running(Digests::default(), false, true);
    let header = [4, 0, 71, 0, 72, 0, 0, 0];
    let malformed = peer.connection.layout(&header).expect_err("HLEN");
    peer.connection.fail(malformed, &header, &mut peer.sent);
    let term = TermReq { error: FatalError::INVALID_HEADER_FIELD, information: 2 };
    assert_eq!(peer.sent[24..], header);
    assert_eq!(peer.read(), [Pdu::C2hTermReq(term)]);
    assert!(peer.connection.has_ended());
    peer.connection.fail(malformed, &header, &mut peer.sent);
    assert_eq!(peer.read(), []);
    assert!(peer.command(Sqe::new(0, 1, 1), 0).is_err());
}

#[test]
fn the_host_may_end_the_connection() {
    let mut peer = Peer::running(Digests::default(), false, true);
    let term = TermReq { error: FatalError::DATA_OUT_OF_RANGE, information: 0 };
    assert_eq!(peer.send(&term.encode(Receiver::Controller, &[1, 2])), Ok(Received::Terminated(term)));
    assert!(peer.connection.has_ended());
}

#[test]
fn a_host_that_does_not_connect_is_dropped() {
    let mut connection = TargetConnection::new(NOW, SETTINGS);
    let deadline = connection.poll_timeout().expect("a deadline");
    assert!(!connection.handle_timeout(deadline - Duration::from_nanos(1)));
    assert!(connection.handle_timeout(deadline) && connection.has_ended());
    assert_eq!(connection.poll_timeout(), None);
    let running = Peer::running(Digests::default(), false, true);
    assert_eq!(running.connection.poll_timeout(), None);
}

#[test]
fn capsules_of_io_queues_are_as_large_as_ioccsz_says_and_those_of_admin_queues_8_kib() {
    for (is_admin, most) in [(true, 8192), (false, 4096)] {
        let mut peer = Peer::running(Digests::default(), is_admin, true);
        let sgl = |length| Sgl::InCapsule { offset: 0, length };
        let good = peer.command(write(1, sgl(most), 8), most).expect("it fits");
        assert!(matches!(good, Received::Command { data: Incoming::InCapsule(bytes), .. } if bytes == most));
        let malformed = peer.command(write(1, sgl(most + 4), 8), most + 4).expect_err("it does not fit");
        assert_eq!(malformed.error, FatalError::DATA_TRANSFER_LIMIT_EXCEEDED);
    }
}

#[test]
fn an_sgl_that_does_not_suit_fails_the_command_and_not_the_connection() {
    let mut peer = Peer::running(Digests::default(), false, true);
    let in_capsule = |offset, length| Sgl::InCapsule { offset, length };
    let read = |sgl| Sqe { opcode: IoOpcode::READ.0, ..write(1, sgl, 8) };
    let keyed = Sgl::Keyed { address: 0, length: 8, key: 0, invalidate: false };
    for (sqe, data, status) in [
        (write(1, in_capsule(8, 512), 1), 512, Status::SGL_INVALID_OFFSET),
        (write(1, in_capsule(0, 508), 1), 512, Status::SGL_INVALID_LENGTH),
        (write(1, in_capsule(0, u32::MAX), 1), 512, Status::SGL_INVALID_LENGTH),
        (write(1, on_request(512), 1), 512, Status::INVALID_FIELD),
        (write(1, keyed, 1), 0, Status::SGL_INVALID_TYPE),
        (read(in_capsule(0, 512)), 0, Status::INVALID_FIELD),
        (read(Sgl::Other([0x20; 16])), 0, Status::SGL_INVALID_TYPE),
        (read(on_request(512)), 4, Status::INVALID_FIELD),
    ] {
        let expected = Received::Unsuitable { sqe, status: status.no_retry() };
        assert_eq!(peer.command(sqe, data), Ok(expected));
    }
    let good = Received::Command { sqe: read(on_request(512)), data: Incoming::ToHost(512) };
    assert_eq!(peer.command(read(on_request(512)), 0), Ok(good));
    let flush = Sqe::new(IoOpcode::FLUSH.0, 1, 1);
    assert_eq!(peer.command(flush, 0), Ok(Received::Command { sqe: flush, data: Incoming::None }));
    assert_eq!(FabricsType::of(&flush), FabricsType::CONNECT, "NSID 1 is no type of Fabrics here");
}

#[test]
fn long_data_are_asked_for_in_turn() {
    let mut peer = Peer::running(Digests::default(), false, true);
    let sqe = write(5, on_request(20_000), 40);
    let received = peer.command(sqe, 0).expect("a command");
    assert_eq!(received, Received::Command { sqe, data: Incoming::OnRequest(20_000) });
    peer.connection.ask(3, 5, 20_000, &mut peer.sent);
    let r2t = |offset, length| [Pdu::R2t(R2t { cccid: 5, ttag: 3, offset, length })];
    assert_eq!(peer.read(), r2t(0, 8192));
    let data = |offset, length, last| H2cData { cccid: 5, ttag: 3, offset, length, last };
    let expected = Received::Data { tag: 3, offset: 0, length: 4096 };
    assert_eq!(peer.data(data(0, 4096, false)), Ok(expected));
    assert_eq!(peer.placed(3), Progress::More);
    assert_eq!(peer.read(), [], "one R2T at a time");
    peer.data(data(4096, 4096, true)).expect("the rest");
    assert_eq!(peer.placed(3), Progress::More);
    assert_eq!(peer.read(), r2t(8192, 8192));
    peer.data(data(8192, 8192, true)).expect("all");
    assert_eq!(peer.placed(3), Progress::More);
    assert_eq!(peer.read(), r2t(16_384, 3616));
    peer.data(data(16_384, 3616, true)).expect("the end");
    assert_eq!(peer.placed(3), Progress::Complete);
    assert_eq!(peer.read(), []);
    peer.data(data(16_384, 3616, true)).expect_err("the transfer is over");
}

#[test]
fn data_with_a_wrong_digest_fail_their_command_once_the_host_has_sent_what_it_was_asked_for() {
    let mut peer = Peer::running(Digests { header: true, data: true }, false, true);
    let failed = Progress::Failed(Status::TRANSIENT_TRANSPORT_ERROR);
    let digest = digest::of(b"data");
    let connection = &peer.connection;
    assert_eq!(connection.handle_capsule_data(Some(digest), &digest.to_bytes()), Progress::Complete);
    assert_eq!(connection.handle_capsule_data(Some(digest), &[0; 4]), failed);
    assert_eq!(connection.handle_capsule_data(None, &[0; 4]), failed, "nobody has computed it");
    peer.connection.ask(0, 5, 20_000, &mut peer.sent);
    let data = |offset, last| H2cData { cccid: 5, ttag: 0, offset, length: 4096, last };
    peer.data(data(0, false)).expect("half");
    let wrong = peer.connection.handle_data(0, Some(digest), &[0; 4], &mut peer.sent);
    assert_eq!(wrong, Progress::More);
    peer.read();
    peer.data(data(4096, true)).expect("the other half");
    let right = peer.connection.handle_data(0, Some(digest), &digest.to_bytes(), &mut peer.sent);
    assert_eq!((right, peer.read()), (failed, vec![]), "and no more is asked for");
    peer.command(Sqe::new(0, 1, 1), 0).expect("the connection goes on");
}

#[test]
fn the_last_data_imply_success_only_where_nothing_is_lost() {
    let success = Cqe { cid: 9, ..Cqe::default() };
    let failure = Cqe { status: Status::UNRECOVERED_READ_ERROR, ..success };
    let result = Cqe { result: 1, ..success };
    for (flow_control, cqe, implied) in
        [(false, success, true), (true, success, false), (false, failure, false), (false, result, false)]
    {
        let mut peer = Peer::running(Digests::default(), false, flow_control);
        let mut data = ToHost::new(9, 4096);
        let sent = peer.connection.send_data(&mut data, 4096, &cqe, &mut peer.sent);
        let expected = Sent { offset: 0, length: 4096, digest: false, respond: !implied };
        assert_eq!(sent, expected);
        let pdu = C2hData { cccid: 9, offset: 0, length: 4096, last: true, success: implied };
        assert_eq!(peer.read(), [Pdu::C2hData(pdu)]);
    }
}

#[test]
fn a_completion_has_the_fields_of_its_queue() {
    let mut peer = Peer::running(Digests { header: true, data: false }, false, true);
    let cqe = Cqe { result: 7, sqhd: 3, sqid: 0, cid: 9, status: Status::ABORT_REQUESTED };
    peer.connection.respond(&cqe, &mut peer.sent);
    assert_eq!(peer.sent.len(), 28);
    assert_eq!(peer.read(), [Pdu::CapsuleResp(CapsuleResp { cqe })]);
}
