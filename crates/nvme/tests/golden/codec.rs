//! Each PDU, encoded again from what was decoded of it, has the bytes that the kernel has sent; and
//! no bit of a header with a digest can change.

use crate::capture::{Capture, Packet};
use nvme::digest;
use nvme::pdu::{FatalError, HEADER_BYTES_MIN, Layout, Malformed, Pdu};

/// What our encoder makes of a decoded PDU, up to its data.
pub fn encoded(packet: &Packet) -> Vec<u8> {
    let (sender, data_bytes) = (packet.sender, packet.layout.data_bytes);
    let mut out = Vec::new();
    match packet.pdu {
        Pdu::IcReq(request) => out.extend(request.encode()),
        Pdu::IcResp(response) => out.extend(response.encode()),
        Pdu::CapsuleCmd(command) => command.encode(sender, data_bytes, &mut out),
        Pdu::CapsuleResp(response) => response.encode(sender, &mut out),
        Pdu::H2cData(data) => data.encode(sender, &mut out),
        Pdu::C2hData(data) => data.encode(sender, &mut out),
        Pdu::R2t(r2t) => r2t.encode(sender, &mut out),
        Pdu::H2cTermReq(term) | Pdu::C2hTermReq(term) => panic!("neither end complains: {term:?}"),
    }
    out
}

/// Without an exception: the kernel leaves all reserved bytes zero.
#[test]
fn every_pdu_encodes_to_the_same_bytes() {
    let mut kinds = [0; 10];
    for capture in Capture::all() {
        for packet in capture.packets() {
            assert_eq!(encoded(packet), packet.head(), "{}: {:?}", capture.name, packet.pdu);
            kinds[usize::from(packet.layout.kind.0)] += 1;
        }
    }
    let [icreq, icresp, h2c_term, c2h_term, commands, completions, h2c_data, c2h_data, _, r2ts] = kinds;
    assert_eq!((icreq, icresp, h2c_term, c2h_term), (14, 14, 0, 0));
    assert!(commands > 300 && completions > 250 && c2h_data > 150, "{kinds:?}");
    assert!(h2c_data == r2ts && r2ts >= 10, "{kinds:?}");
}

#[test]
fn every_digest_of_data_is_right_and_every_digest_of_a_header_is_checked() {
    let (mut headers, mut data) = (0, 0);
    for capture in Capture::all() {
        for packet in capture.packets() {
            if packet.layout.has_data_digest {
                assert_eq!(digest::of(packet.data()).to_bytes(), packet.data_digest(), "{:?}", packet.pdu);
                data += 1;
            }
            if packet.layout.has_header_digest {
                no_flipped_bit_passes(packet);
                headers += 1;
            }
        }
    }
    assert!(headers > 200 && data > 70, "{headers} headers, {data} with data");
}

fn no_flipped_bit_passes(packet: &Packet) {
    for bit in 0..packet.header().len() * 8 {
        let mut header = packet.header().to_vec();
        header[bit / 8] ^= 1 << (bit % 8);
        let first = header.first_chunk().expect("eight bytes");
        let read = Layout::of(first, &packet.bounds()).and_then(|layout| Pdu::decode(&layout, &header));
        let refused = read.expect_err("a header that nobody has sent");
        if bit >= HEADER_BYTES_MIN * 8 {
            let received = header[packet.layout.hlen.into()..].try_into().expect("a digest");
            let information = u32::from_le_bytes(received);
            assert_eq!(refused, Malformed { error: FatalError::HEADER_DIGEST, information });
        }
    }
}
