//! Golden bytes, by hand from the figures of the transport specification, and each broken rule with
//! what it must lead to.

use super::*;
use crate::{IoOpcode, Sgl, Status};

const PLAIN: Bounds = Bounds {
    receiver: Receiver::Controller,
    digests: Digests { header: false, data: false },
    alignment: 4,
    capsule_data_bytes: 8192,
    data_bytes: 65536,
};

const DIGESTED: Sender = Sender { digests: Digests { header: true, data: true }, alignment: 4 };

fn of_host(bounds: Bounds) -> Bounds {
    Bounds { receiver: Receiver::Host, ..bounds }
}

fn layout(bytes: &[u8], bounds: &Bounds) -> Result<Layout, Malformed> {
    Layout::of(bytes[..8].try_into().expect("eight bytes"), bounds)
}

/// Reads a whole PDU.
fn read(bytes: &[u8], bounds: &Bounds) -> Result<Pdu, Malformed> {
    let layout = layout(bytes, bounds)?;
    Pdu::decode(&layout, &bytes[..layout.header_bytes()])
}

#[test]
fn icreq_and_icresp_have_128_bytes() {
    let digests = Digests { header: true, data: true };
    let request = IcReq { hpda: 2, digests, maxr2t: 5 };
    let bytes = request.encode();
    assert_eq!(bytes[..16], [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 2, 3, 5, 0, 0, 0]);
    assert_eq!(bytes[16..], [0; 112]);
    assert_eq!(read(&bytes, &PLAIN), Ok(Pdu::IcReq(request)));
    let response = IcResp { cpda: 0, digests: Digests::default(), maxh2cdata: 0x40_0000 };
    let bytes = response.encode();
    assert_eq!(bytes[..16], [1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0]);
    assert_eq!(read(&bytes, &of_host(PLAIN)), Ok(Pdu::IcResp(response)));
}

#[test]
fn a_command_in_a_capsule_with_data() {
    let sgl = Sgl::InCapsule { offset: 0, length: 512 };
    let command = CapsuleCmd { sqe: Sqe { sgl, ..Sqe::new(IoOpcode::WRITE.0, 7, 1) } };
    let mut bytes = Vec::new();
    command.encode(Sender::default(), 512, &mut bytes);
    assert_eq!(bytes[..12], [4, 0, 72, 72, 0x48, 2, 0, 0, 0x01, 0x40, 7, 0]);
    assert_eq!(bytes.len(), 72);
    let place = layout(&bytes, &PLAIN).expect("valid");
    assert_eq!((place.data_offset, place.data_bytes, place.pdu_bytes()), (72, 512, 584));
    assert_eq!(read(&bytes, &PLAIN), Ok(Pdu::CapsuleCmd(command)));
}

#[test]
fn a_command_without_data_has_no_data_offset() {
    let command = CapsuleCmd { sqe: Sqe::new(IoOpcode::FLUSH.0, 7, 1) };
    let mut bytes = Vec::new();
    command.encode(Sender::default(), 0, &mut bytes);
    assert_eq!(bytes[..8], [4, 0, 72, 0, 72, 0, 0, 0]);
    assert_eq!(layout(&bytes, &PLAIN).map(|layout| layout.pdu_bytes()), Ok(72));
}

#[test]
fn digests_and_padding_move_the_data() {
    let command = CapsuleCmd { sqe: Sqe::new(IoOpcode::WRITE.0, 7, 1) };
    let mut bytes = vec![0xee];
    command.encode(Sender { alignment: 64, ..DIGESTED }, 512, &mut bytes);
    let bytes = &bytes[1..];
    // 72 + 4 rounds up to 128; PLEN = 128 + 512 + 4 = 284h.
    assert_eq!(bytes[..8], [4, 3, 72, 128, 0x84, 2, 0, 0]);
    assert_eq!(bytes[72..76], digest::of(&bytes[..72]).to_bytes());
    assert_eq!(bytes[76..], [0; 52]);
    let bounds = Bounds { digests: DIGESTED.digests, alignment: 64, ..PLAIN };
    let place = layout(bytes, &bounds).expect("valid");
    assert_eq!((place.data_offset, place.data_bytes, place.pdu_bytes()), (128, 512, 644));
    assert_eq!((place.has_header_digest, place.has_data_digest), (true, true));
    assert_eq!(read(bytes, &bounds), Ok(Pdu::CapsuleCmd(command)));
}

#[test]
fn a_completion() {
    let cqe = Cqe { result: 1, sqhd: 2, sqid: 0, cid: 3, status: Status::INVALID_OPCODE };
    let mut bytes = Vec::new();
    CapsuleResp { cqe }.encode(Sender::default(), &mut bytes);
    assert_eq!(bytes, [5, 0, 24, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 2, 0]);
    assert_eq!(read(&bytes, &of_host(PLAIN)), Ok(Pdu::CapsuleResp(CapsuleResp { cqe })));
}

#[test]
fn a_completion_has_the_digest_of_its_header_and_none_of_data() {
    let cqe = Cqe { cid: 3, ..Cqe::default() };
    let mut bytes = Vec::new();
    CapsuleResp { cqe }.encode(DIGESTED, &mut bytes);
    assert_eq!(bytes[..8], [5, 1, 24, 0, 28, 0, 0, 0]);
    assert_eq!(bytes.len(), 28);
    let bounds = Bounds { digests: DIGESTED.digests, ..of_host(PLAIN) };
    assert_eq!(read(&bytes, &bounds), Ok(Pdu::CapsuleResp(CapsuleResp { cqe })));
}

#[test]
fn data_from_the_host() {
    let data = H2cData { cccid: 0x0102, ttag: 0x0304, offset: 0x1000, length: 0x2000, last: true };
    let mut bytes = Vec::new();
    data.encode(Sender::default(), &mut bytes);
    let expected = [6, 4, 24, 24, 0x18, 0x20, 0, 0, 2, 1, 4, 3, 0, 0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes, expected);
    assert_eq!(read(&bytes, &PLAIN), Ok(Pdu::H2cData(data)));
}

#[test]
fn data_from_the_controller() {
    let data = C2hData { cccid: 0x0102, offset: 0, length: 0x1000, last: true, success: true };
    let mut bytes = Vec::new();
    data.encode(Sender { alignment: 128, ..Sender::default() }, &mut bytes);
    // 24 rounds up to 128; PLEN = 128 + 4096.
    let expected = [7, 0xc, 24, 128, 0x80, 0x10, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes[..24], expected);
    assert_eq!(bytes[24..], [0; 104]);
    assert_eq!(read(&bytes, &of_host(PLAIN)), Ok(Pdu::C2hData(data)));
    let more = C2hData { last: false, ..data };
    bytes.clear();
    more.encode(Sender::default(), &mut bytes);
    assert_eq!(bytes[1], 0, "no success before the last");
}

#[test]
fn ready_to_transfer() {
    let r2t = R2t { cccid: 1, ttag: 2, offset: 0x1_0000, length: 0x2_0000 };
    let mut bytes = Vec::new();
    r2t.encode(DIGESTED, &mut bytes);
    let expected = [9, 1, 24, 0, 28, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0];
    assert_eq!(bytes[..24], expected);
    let bounds = Bounds { digests: DIGESTED.digests, ..of_host(PLAIN) };
    assert_eq!(read(&bytes, &bounds), Ok(Pdu::R2t(r2t)));
}

#[test]
fn a_terminate_request_has_the_header_at_fault_and_no_digests() {
    let term = TermReq { error: FatalError::INVALID_HEADER_FIELD, information: 2 };
    let bytes = term.encode(Receiver::Host, &[1, 2, 3]);
    let expected = [3, 0, 24, 0, 27, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3];
    assert_eq!(bytes, expected);
    let bounds = Bounds { digests: DIGESTED.digests, ..PLAIN };
    assert_eq!(read(&bytes, &of_host(bounds)), Ok(Pdu::C2hTermReq(term)));
    let long = term.encode(Receiver::Controller, &[0; 500]);
    assert_eq!((long[0], long.len()), (2, 152));
    assert_eq!(read(&long, &bounds), Ok(Pdu::H2cTermReq(term)));
    let mut longer = long;
    longer[4] = 153;
    assert_eq!(read(&longer, &bounds), Err(Malformed::header(4)));
}

/// Each broken rule of a common header, and what its TermReq says.
#[test]
fn every_broken_rule_is_refused_from_the_first_eight_bytes() {
    let limit = Malformed::of(FatalError::DATA_TRANSFER_LIMIT_EXCEEDED);
    let digested = Bounds { digests: DIGESTED.digests, ..PLAIN };
    for (what, bytes, bounds, expected) in [
        ("an unknown type", [8, 0, 24, 0, 24, 0, 0, 0], PLAIN, Malformed::header(0)),
        ("a PDU for the other end", [5, 0, 24, 0, 24, 0, 0, 0], PLAIN, Malformed::header(0)),
        ("HLEN of another type", [4, 0, 24, 0, 24, 0, 0, 0], PLAIN, Malformed::header(2)),
        ("HLEN 255", [6, 0, 255, 24, 24, 0, 0, 0], PLAIN, Malformed::header(2)),
        ("PLEN of an ICReq", [0, 0, 128, 0, 129, 0, 0, 0], PLAIN, Malformed::header(4)),
        ("a PLEN shorter than the header", [4, 0, 72, 0, 71, 0, 0, 0], PLAIN, Malformed::header(3)),
        ("a PLEN of 0", [6, 0, 24, 24, 0, 0, 0, 0], PLAIN, Malformed::header(4)),
        ("a PLEN of 2^32 - 1", [6, 0, 24, 24, 0xff, 0xff, 0xff, 0xff], PLAIN, limit),
        ("data of 1 byte too many", [6, 0, 24, 24, 25, 0, 1, 0], PLAIN, limit),
        ("a capsule with too many data", [4, 0, 72, 72, 0x49, 0x20, 0, 0], PLAIN, limit),
        ("PDO within the header", [6, 0, 24, 20, 40, 0, 0, 0], PLAIN, Malformed::header(3)),
        ("PDO that is not aligned", [6, 0, 24, 26, 40, 0, 0, 0], PLAIN, Malformed::header(3)),
        ("PDO beyond the end", [6, 0, 24, 64, 40, 0, 0, 0], PLAIN, Malformed::header(4)),
        ("a digest that was not agreed on", [4, 1, 72, 0, 76, 0, 0, 0], PLAIN, Malformed::header(1)),
        ("data digest likewise", [6, 2, 24, 24, 40, 0, 0, 0], PLAIN, Malformed::header(1)),
        ("a missing header digest", [4, 0, 72, 0, 72, 0, 0, 0], digested, Malformed::header(1)),
        ("a missing data digest", [6, 1, 24, 28, 40, 0, 0, 0], digested, Malformed::header(1)),
        ("no room for the data digest", [6, 3, 24, 28, 30, 0, 0, 0], digested, Malformed::header(4)),
    ] {
        assert_eq!(layout(&bytes, &bounds), Err(expected), "{what}");
    }
}

#[test]
fn a_wrong_header_digest_is_told_as_it_was_received() {
    let mut bytes = Vec::new();
    R2t { cccid: 1, ttag: 2, offset: 0, length: 8 }.encode(DIGESTED, &mut bytes);
    bytes[24..].copy_from_slice(&[1, 2, 3, 4]);
    let bounds = Bounds { digests: DIGESTED.digests, ..of_host(PLAIN) };
    let expected = Malformed { error: FatalError::HEADER_DIGEST, information: 0x0403_0201 };
    assert_eq!(read(&bytes, &bounds), Err(expected));
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    let mut bytes = Vec::new();
    H2cData { cccid: 1, ttag: 2, offset: 0, length: 8, last: true }.encode(Sender::default(), &mut bytes);
    bytes[16] = 9;
    assert_eq!(read(&bytes, &PLAIN), Err(Malformed::header(16)));
    let empty = [6, 4, 24, 0, 24, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(read(&empty, &PLAIN), Err(Malformed::header(16)), "no data at all");
}

#[test]
fn parameters_of_the_first_pdus_are_checked() {
    let mut request = IcReq { hpda: 0, digests: Digests::default(), maxr2t: 0 }.encode();
    request[10] = 32;
    assert_eq!(read(&request, &PLAIN), Err(Malformed::header(10)));
    request[8] = 1;
    assert_eq!(read(&request, &PLAIN), Err(Malformed::unsupported(8)));
    for maxh2cdata in [0, 4095, 4097] {
        let response = IcResp { cpda: 0, digests: Digests::default(), maxh2cdata }.encode();
        assert_eq!(read(&response, &of_host(PLAIN)), Err(Malformed::header(12)));
    }
}

#[test]
fn success_without_last_is_refused() {
    let data = C2hData { cccid: 1, offset: 0, length: 8, last: true, success: true };
    let mut bytes = Vec::new();
    data.encode(Sender::default(), &mut bytes);
    bytes[1] = PduFlags::SUCCESS.0;
    assert_eq!(read(&bytes, &of_host(PLAIN)), Err(Malformed::header(1)));
}
