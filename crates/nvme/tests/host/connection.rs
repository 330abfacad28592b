//! The host's end of a connection. NVMe/TCP Transport 1.0.

use nvme::digest;
use nvme::fabrics::{Authentication, FabricsType, SECP_NVME};
use nvme::host::{HostData, HostMisuse};
use nvme::pdu::{
    C2hData, CapsuleResp, Digests, FatalError, H2cData, IcReq, IcResp, Malformed, R2t, Receiver, Sender,
    TermReq,
};
use nvme::tcp::{HostConnection, HostReceived, HostSettings, Sent, Submitted};
use nvme::{Cqe, IoOpcode, Sgl, Sqe, Status};

const SETTINGS: HostSettings =
    HostSettings { digests: Digests { header: false, data: false }, entries: 4, transfer_bytes: 1 << 16 };

fn feed(connection: &mut HostConnection, bytes: &[u8]) -> Result<HostReceived, Malformed> {
    let layout = connection.layout(bytes[..8].try_into().expect("eight bytes"))?;
    connection.handle_header(&layout, &bytes[..layout.header_bytes()])
}

fn response(digests: Digests, maxh2cdata: u32) -> [u8; 128] {
    IcResp { cpda: 0, digests, maxh2cdata }.encode()
}

fn running() -> HostConnection {
    let mut out = Vec::new();
    let mut connection = HostConnection::new(SETTINGS, &mut out);
    assert_eq!(out, IcReq { hpda: 0, digests: SETTINGS.digests, maxr2t: 0 }.encode());
    assert_eq!(feed(&mut connection, &response(SETTINGS.digests, 8192)), Ok(HostReceived::Ready));
    connection
}

fn submit(connection: &mut HostConnection, data: HostData) -> Submitted {
    let opcode = if matches!(data, HostData::FromController(_)) { IoOpcode::READ } else { IoOpcode::WRITE };
    connection.submit(&Sqe::new(opcode.0, 0, 1), data, &mut Vec::new()).expect("room")
}

fn data(cid: u16, offset: u32, length: u32, last: bool, success: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    C2hData { cccid: cid, offset, length, last, success }.encode(Sender::default(), &mut bytes);
    bytes
}

fn r2t(cid: u16, offset: u32, length: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    R2t { cccid: cid, ttag: 77, offset, length }.encode(Sender::default(), &mut bytes);
    bytes
}

fn completion(cid: u16, status: Status) -> Vec<u8> {
    let mut bytes = Vec::new();
    CapsuleResp { cqe: Cqe { cid, status, ..Cqe::default() } }.encode(Sender::default(), &mut bytes);
    bytes
}

#[test]
fn a_controller_with_other_digests_is_refused_as_linux_refuses_it() {
    for asked in 0..4 {
        for given in 0..4 {
            let digests = Digests::decode(asked);
            let mut connection = HostConnection::new(HostSettings { digests, ..SETTINGS }, &mut Vec::new());
            let received = feed(&mut connection, &response(Digests::decode(given), 8192));
            assert_eq!(received.is_ok(), asked == given, "{asked} {given}");
        }
    }
}

#[test]
fn commands_wait_for_the_beginning_and_for_room() {
    let mut connection = HostConnection::new(SETTINGS, &mut Vec::new());
    let sqe = Sqe::new(0, 0, 1);
    let mut out = Vec::new();
    let early = connection.submit(&sqe, HostData::None, &mut out);
    assert_eq!((early, out.len()), (Err(HostMisuse::NotReady), 0));
    let mut connection = running();
    let cids: Vec<u16> = (0..3).map(|_| submit(&mut connection, HostData::None).cid).collect();
    let full = connection.submit(&sqe, HostData::None, &mut out);
    assert_eq!((full, out.len()), (Err(HostMisuse::Full), 0), "an entry stays free");
    feed(&mut connection, &completion(cids[1], Status::SUCCESS)).expect("outstanding");
    let next = submit(&mut connection, HostData::None).cid;
    assert_eq!(next & 0xfff, cids[1] & 0xfff, "the same entry");
    assert_ne!(next, cids[1], "under another identifier");
    feed(&mut connection, &completion(cids[1], Status::SUCCESS)).expect_err("of the command before");
    let long = connection.submit(&sqe, HostData::ToController(65_537), &mut out);
    assert_eq!(long, Err(HostMisuse::TooLong(65_537)));
}

#[test]
fn short_data_go_in_the_capsule_and_long_data_wait_to_be_asked_for() {
    let mut connection = running();
    connection.set_capsule_data_bytes(4096);
    let mut out = Vec::new();
    let sqe = Sqe::new(1, 0, 1);
    let short = connection.submit(&sqe, HostData::ToController(4096), &mut out).expect("room");
    assert_eq!((short.in_capsule, out[3], out[47]), (4096, 72, 0x01));
    out.clear();
    let long = connection.submit(&sqe, HostData::ToController(20_000), &mut out).expect("room");
    assert_eq!((long.in_capsule, out.len(), out[3], out[47]), (0, 72, 0, 0x5a));
    assert_eq!(connection.send_data(long.cid, &mut out), None, "nobody has asked");
}

// Hosts ignored MAXH2CDATA.
#[test]
fn no_data_pdu_is_longer_than_maxh2cdata() {
    let mut connection = running();
    let cid = submit(&mut connection, HostData::ToController(20_000)).cid;
    assert_eq!(feed(&mut connection, &r2t(cid, 0, 18_000)), Ok(HostReceived::Asked { cid }));
    let mut out = Vec::new();
    let parts: Vec<Sent> = std::iter::from_fn(|| connection.send_data(cid, &mut out)).collect();
    let lengths: Vec<(u32, u32)> = parts.iter().map(|sent| (sent.offset, sent.length)).collect();
    assert_eq!(lengths, [(0, 8192), (8192, 8192), (16_384, 1616)]);
    let mut expected = Vec::new();
    for (offset, length) in lengths {
        let last = offset + length == 18_000;
        let data = H2cData { cccid: cid, ttag: 77, offset, length, last };
        data.encode(Sender::default(), &mut expected);
    }
    assert_eq!(out, expected);
}

#[test]
fn a_controller_that_asks_for_other_than_the_next_data_is_refused() {
    let out_of_range = Err(Malformed::of(FatalError::DATA_OUT_OF_RANGE));
    for (offset, length) in [(4, 8), (0, 0), (0, 20_001), (u32::MAX, 8)] {
        let mut connection = running();
        let cid = submit(&mut connection, HostData::ToController(20_000)).cid;
        assert_eq!(feed(&mut connection, &r2t(cid, offset, length)), out_of_range);
    }
    let mut connection = running();
    let cid = submit(&mut connection, HostData::ToController(20_000)).cid;
    feed(&mut connection, &r2t(cid, 0, 4096)).expect("the first");
    let second = feed(&mut connection, &r2t(cid, 4096, 4096));
    assert_eq!(second, Err(Malformed::of(FatalError::DATA_TRANSFER_LIMIT_EXCEEDED)), "one at a time");
    let read = submit(&mut connection, HostData::FromController(8)).cid;
    assert_eq!(feed(&mut connection, &r2t(read, 0, 8)), Err(Malformed::header(8)), "of a read");
    assert_eq!(feed(&mut connection, &r2t(999, 0, 8)), Err(Malformed::header(8)), "of no command");
}

// A header's length was believed.
#[test]
fn data_that_do_not_belong_to_a_read_are_refused_before_a_byte_is_placed() {
    let out_of_range = Err(Malformed::of(FatalError::DATA_OUT_OF_RANGE));
    let mut connection = running();
    let cid = submit(&mut connection, HostData::FromController(4096)).cid;
    for (bytes, expected) in [
        (data(cid, 4, 8, false, false), out_of_range),
        (data(cid, 0, 4100, true, false), out_of_range),
        (data(cid, u32::MAX, 8, true, false), out_of_range),
        (data(cid, 0, 2048, true, true), out_of_range),
        (data(cid, 0, 4096, false, false), Err(Malformed::header(1))),
        (data(cid ^ 0x1000, 0, 8, false, false), Err(Malformed::header(8))),
    ] {
        assert_eq!(feed(&mut connection, &bytes), expected);
    }
    let write = submit(&mut connection, HostData::ToController(8)).cid;
    assert_eq!(feed(&mut connection, &data(write, 0, 8, true, false)), Err(Malformed::header(8)));
    let mut hlen = data(cid, 0, 8, false, false);
    hlen[2] = 255;
    assert_eq!(feed(&mut connection, &hlen), Err(Malformed::header(2)));
}

#[test]
fn success_without_all_data_is_none() {
    let mut connection = running();
    let sequence = Err(Malformed::of(FatalError::PDU_SEQUENCE_ERROR));
    let cid = submit(&mut connection, HostData::FromController(4096)).cid;
    assert_eq!(feed(&mut connection, &completion(cid, Status::SUCCESS)), sequence);
    feed(&mut connection, &data(cid, 0, 2048, false, false)).expect("half");
    assert_eq!(connection.handle_data(cid, None, &[]), None);
    assert_eq!(feed(&mut connection, &completion(cid, Status::SUCCESS)), sequence);
    let failed = completion(cid, Status::UNRECOVERED_READ_ERROR);
    assert!(
        matches!(feed(&mut connection, &failed), Ok(HostReceived::Completed(_))),
        "a failure may be early"
    );
    let cid = submit(&mut connection, HostData::ToController(20_000)).cid;
    assert_eq!(feed(&mut connection, &completion(cid, Status::SUCCESS)), sequence);
}

// SPDK's controllers send a message without what is left of its room.
#[test]
fn a_message_of_authentication_may_be_shorter_than_its_room() {
    let authentication = Authentication { secp: SECP_NVME, spsp: [0x01, 0x01], length: 4096 };
    let receive = authentication.command(FabricsType::AUTHENTICATION_RECEIVE, 0, Sgl::NONE);
    for implied in [true, false] {
        let mut connection = running();
        let room = HostData::FromController(4096);
        let cid = connection.submit(&receive, room, &mut Vec::new()).expect("room").cid;
        let received = feed(&mut connection, &data(cid, 0, 72, true, implied));
        assert_eq!(received, Ok(HostReceived::Data { cid, offset: 0, length: 72 }));
        let cqe = connection.handle_data(cid, None, &[]);
        let cqe = cqe.or_else(|| match feed(&mut connection, &completion(cid, Status::SUCCESS)) {
            Ok(HostReceived::Completed(cqe)) => Some(cqe),
            _ => None,
        });
        assert_eq!(cqe.map(|cqe| (cqe.cid, cqe.status)), Some((cid, Status::SUCCESS)), "{implied}");
        assert_eq!(connection.outstanding(), 0);
    }
    let mut connection = running();
    let send = authentication.command(FabricsType::AUTHENTICATION_SEND, 0, Sgl::NONE);
    let sent = connection.submit(&send, HostData::FromController(4096), &mut Vec::new()).expect("room");
    let out_of_range = Err(Malformed::of(FatalError::DATA_OUT_OF_RANGE));
    assert_eq!(feed(&mut connection, &data(sent.cid, 0, 72, true, true)), out_of_range, "no other command");
}

#[test]
fn data_that_imply_success_complete_the_command_when_they_are_placed() {
    let mut connection = running();
    let cid = submit(&mut connection, HostData::FromController(4096)).cid;
    let received = feed(&mut connection, &data(cid, 0, 4096, true, true));
    assert_eq!(received, Ok(HostReceived::Data { cid, offset: 0, length: 4096 }));
    assert_eq!(connection.outstanding(), 1, "not before");
    let cqe = connection.handle_data(cid, None, &[]).expect("complete");
    assert_eq!((cqe.cid, cqe.status, connection.outstanding()), (cid, Status::SUCCESS, 0));
}

#[test]
fn spoiled_data_fail_their_command_and_not_the_connection() {
    let digests = Digests { header: false, data: true };
    let sender = Sender { digests, alignment: 4 };
    let right = digest::of(b"data");
    for (success, received, expected) in [
        (true, right.to_bytes(), Status::SUCCESS),
        (true, [0; 4], Status::TRANSIENT_TRANSPORT_ERROR),
        (false, [0; 4], Status::TRANSIENT_TRANSPORT_ERROR),
    ] {
        let mut connection = HostConnection::new(HostSettings { digests, ..SETTINGS }, &mut Vec::new());
        feed(&mut connection, &response(digests, 8192)).expect("ready");
        let cid = submit(&mut connection, HostData::FromController(4)).cid;
        let mut bytes = Vec::new();
        C2hData { cccid: cid, offset: 0, length: 4, last: true, success }.encode(sender, &mut bytes);
        feed(&mut connection, &bytes).expect("data");
        let implied = connection.handle_data(cid, Some(right), &received);
        let cqe = implied.unwrap_or_else(|| match feed(&mut connection, &completion(cid, Status::SUCCESS)) {
            Ok(HostReceived::Completed(cqe)) => cqe,
            other => panic!("{other:?}"),
        });
        assert_eq!(cqe.status, expected);
    }
}

#[test]
fn an_end_is_an_end() {
    let mut connection = running();
    let term = TermReq { error: FatalError::PDU_SEQUENCE_ERROR, information: 0 };
    let received = feed(&mut connection, &term.encode(Receiver::Host, &[]));
    assert_eq!(received, Ok(HostReceived::Terminated(term)));
    assert!(connection.has_ended());
    let mut connection = running();
    let mut out = Vec::new();
    connection.fail(Malformed::header(2), &[1, 2, 3], &mut out);
    connection.fail(Malformed::header(2), &[1, 2, 3], &mut out);
    assert_eq!((out[0], out.len()), (2, 27), "one H2CTermReq");
    let misuse = connection.submit(&Sqe::new(0, 0, 1), HostData::None, &mut out);
    assert_eq!(misuse, Err(HostMisuse::NotReady));
}
