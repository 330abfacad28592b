//! Bodies shared by the property tests and the fuzz targets. Each takes arbitrary bytes and asserts
//! invariants; no input may cause any other panic.
//!
//! Whatever decodes must encode, decode again, and be the same. (The bytes may differ: reserved
//! ones are written as zero.)

use crate::fabrics::{Authentication, Connect, ConnectData, Connected, InvalidParameter, Property};
use crate::feature::{Event, Feature, QueueCounts};
use crate::identify::{Descriptors, Identify, NamespaceList};
use crate::io::{Blocks, DatasetManagement, DsmRange};
use crate::log_page::{AnaLog, DiscoveryLog, GetLogPage};
use crate::pdu::{Bounds, C2hData, Digests, HEADER_BYTES_MIN, Layout, Pdu, Receiver, Sender};
use crate::reservation::{Acquire, GetReport, Register, Release, Report};
use crate::{Cqe, IoOpcode, Nqn, Sgl, Sqe, rdma};

/// One PDU from the front of a stream. The first byte says which end receives it, with which
/// digests and alignment.
pub fn pdu(bytes: &[u8]) {
    let Some((choice, stream)) = bytes.split_first() else { return };
    let receiver = if choice & 1 == 0 { Receiver::Controller } else { Receiver::Host };
    let digests = Digests::decode(choice >> 1);
    let alignment = (choice >> 3) * 4;
    let bounds = Bounds { receiver, digests, alignment, capsule_data_bytes: 8192, data_bytes: 1 << 17 };
    let Some(first) = stream.first_chunk::<HEADER_BYTES_MIN>() else { return };
    let Ok(layout) = Layout::of(first, &bounds) else { return };
    assert!(layout.header_bytes() <= usize::from(layout.data_offset));
    assert!(layout.data_bytes <= 1 << 17, "within the bound");
    assert!(layout.pdu_bytes() >= HEADER_BYTES_MIN as u64);
    let Some(header) = stream.get(..layout.header_bytes()) else { return };
    let Ok(pdu) = Pdu::decode(&layout, header) else { return };
    let sender = Sender { digests, alignment: alignment.max(4) };
    let mut again = Vec::new();
    match pdu {
        Pdu::IcReq(pdu) => again.extend(pdu.encode()),
        Pdu::IcResp(pdu) => again.extend(pdu.encode()),
        Pdu::H2cTermReq(pdu) | Pdu::C2hTermReq(pdu) => again = pdu.encode(receiver, &[]),
        Pdu::CapsuleCmd(pdu) => pdu.encode(sender, layout.data_bytes, &mut again),
        Pdu::CapsuleResp(pdu) => pdu.encode(sender, &mut again),
        Pdu::H2cData(pdu) => pdu.encode(sender, &mut again),
        Pdu::C2hData(pdu) => pdu.encode(sender, &mut again),
        Pdu::R2t(pdu) => pdu.encode(sender, &mut again),
    }
    let first = again.first_chunk::<HEADER_BYTES_MIN>().expect("a header");
    let second = Layout::of(first, &bounds).expect("a header as it should be");
    assert_eq!(again.len(), usize::from(second.data_offset), "all that stands before the data");
    if layout.data_bytes > 0 && !matches!(pdu, Pdu::H2cTermReq(_) | Pdu::C2hTermReq(_)) {
        assert_eq!(second.data_bytes, layout.data_bytes);
    }
    let read = Pdu::decode(&second, again.get(..second.header_bytes()).expect("a whole header"));
    assert_eq!(read, Ok(pdu));
    if let Pdu::C2hData(C2hData { success, last, .. }) = pdu {
        assert!(last || !success);
    }
}

/// A command and a completion, with all that their dwords may mean.
pub fn command(bytes: &[u8]) {
    if let Ok(cqe) = Cqe::decode(bytes) {
        assert_eq!(Cqe::decode(&cqe.encode()), Ok(cqe));
        let connected = Connected::of(cqe.result);
        assert_eq!(Connected::of(connected.result()), connected);
        let parameter = InvalidParameter::of(cqe.result);
        assert_eq!(InvalidParameter::of(parameter.result()), parameter);
        let event = Event::of(cqe.result);
        assert_eq!(Event::of(event.result()), event);
    }
    let Ok(sqe) = Sqe::decode(bytes) else { return };
    assert_eq!(Sqe::decode(&sqe.encode()), Ok(sqe));
    let (cid, nsid, sgl) = (sqe.cid, sqe.nsid, sqe.sgl);
    let connect = Connect::of(&sqe);
    assert_eq!(Connect::of(&connect.command(cid, sgl)), connect);
    let header = Authentication::of(&sqe);
    assert_eq!(Authentication::of(&header.command(crate::fabrics::FabricsType(5), cid, sgl)), header);
    assert!(Property::of(&sqe).is_8_bytes.is_none_or(|is_8_bytes| is_8_bytes == (sqe.cdw10 & 1 == 1)));
    let identify = Identify::of(&sqe);
    assert_eq!(Identify::of(&identify.command(cid, sgl)), identify);
    let log = GetLogPage::of(&sqe);
    assert_eq!(GetLogPage::of(&log.command(cid, sgl)), log);
    let feature = Feature::of(&sqe);
    assert_eq!(Feature::of(&Feature::set(cid, feature.id, feature.value, sgl)).value, feature.value);
    if let Some(counts) = QueueCounts::decode(sqe.cdw11) {
        assert_eq!(counts.encode(), sqe.cdw11);
    }
    let blocks = Blocks::of(&sqe);
    assert!((1..=0x1_0000).contains(&blocks.count));
    assert_eq!(Blocks::of(&blocks.command(IoOpcode::READ, cid, nsid, sgl)), blocks);
    assert!(!blocks.are_within(blocks.start), "at least one block is beyond its own start");
    let ranges = DatasetManagement::of(&sqe);
    assert_eq!(DatasetManagement::of(&ranges.command(cid, nsid, sgl)), ranges);
    reservation(&sqe, sgl);
}

fn reservation(sqe: &Sqe, sgl: Sgl) {
    let (cid, nsid) = (sqe.cid, sqe.nsid);
    let register = Register::of(sqe);
    assert_eq!(Register::of(&register.command(cid, nsid, sgl)), register);
    let acquire = Acquire::of(sqe);
    assert_eq!(Acquire::of(&acquire.command(cid, nsid, sgl)), acquire);
    let release = Release::of(sqe);
    assert_eq!(Release::of(&release.command(cid, nsid, sgl)), release);
    let report = GetReport::of(sqe);
    assert_eq!(GetReport::of(&report.command(cid, nsid, sgl)), report);
}

/// Data of admin commands: names, lists, logs. The first byte says which.
pub fn data(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    match choice % 8 {
        0 => {
            if let Ok(data) = ConnectData::decode(bytes) {
                assert_eq!(ConnectData::decode(&data.encode()), Ok(data));
                if let Ok(name) = data.subsystem() {
                    assert_eq!(Nqn::new(name.as_str()), Ok(name.clone()));
                    assert_eq!(Nqn::decode(&name.encode()), Ok(name));
                }
            }
        }
        1 => {
            let list = NamespaceList::decode(bytes);
            assert_eq!(NamespaceList::decode(&list.encode()), list);
        }
        2 => {
            if let Ok(ids) = Descriptors::decode(bytes) {
                assert_eq!(Descriptors::decode(&ids.encode()), Ok(ids));
            }
        }
        3 => {
            if let Ok(log) = AnaLog::decode(bytes) {
                assert_eq!(AnaLog::decode(&log.encode(false)), Ok(log));
            }
        }
        4 => {
            if let Ok(log) = DiscoveryLog::decode(bytes) {
                assert_eq!(DiscoveryLog::decode(&log.encode()), Ok(log));
            }
        }
        5 => {
            if let Ok(report) = Report::decode(bytes) {
                assert_eq!(Report::decode(&report.encode()), Ok(report));
            }
        }
        6 => {
            if let Ok(request) = rdma::Request::check(bytes, 128) {
                assert_eq!(rdma::Request::check(&request.encode(), 128), Ok(request));
            }
        }
        _ => assert!(DsmRange::list(bytes).count() <= bytes.len() / DsmRange::BYTES),
    }
    if let Ok(Ok(nqn)) = std::str::from_utf8(bytes).map(Nqn::new) {
        assert_eq!(Nqn::decode(&nqn.encode()), Ok(nqn));
    }
}
