//! Bodies shared by the property tests and the fuzz targets. Each takes arbitrary bytes and asserts
//! invariants; no input may cause any other panic.
//!
//! Whatever decodes must encode, decode again, and be the same. (The bytes may differ: reserved
//! ones are written as zero.)

use crate::Transport;
use crate::controller::{
    Access, Action, Config, IoQueue, Kind, Limits, Node, Operation, Output, Port, Subsystem, Volume, VolumeId,
};
use crate::fabrics::{
    Authentication, CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, Connected, InvalidParameter,
    Property,
};
use crate::feature::{Event, Feature, QueueCounts};
use crate::identify::{Descriptors, Identify, NamespaceList};
use crate::io::{Blocks, DatasetManagement, DsmRange};
use crate::log_page::{AnaLog, DiscoveryLog, GetLogPage};
use crate::pdu::{Bounds, C2hData, Digests, HEADER_BYTES_MIN, Layout, Pdu, Receiver, Sender};
use crate::register::{CC, Configuration};
use crate::reservation::{Acquire, GetReport, Register, Release, Report};
use crate::{Cqe, HostId, IoOpcode, Nqn, Sgl, Sqe, Status, rdma};
use std::time::Duration;

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
                assert!((1..=128).contains(&request.commands()));
            }
            if let Ok(capsule) = rdma::Capsule::decode(bytes) {
                assert!(bytes.get(capsule.in_capsule).is_some(), "within the capsule");
            }
        }
        _ => assert!(DsmRange::list(bytes).count() <= bytes.len() / DsmRange::BYTES),
    }
    if let Ok(Ok(nqn)) = std::str::from_utf8(bytes).map(Nqn::new) {
        assert_eq!(Nqn::decode(&nqn.encode()), Ok(nqn));
    }
}

const BLOCKS: u64 = 1000;
const NOW: Duration = Duration::from_secs(1);

/// A subsystem with one volume, and an enabled controller.
fn target(kind: Kind) -> (Subsystem, u16) {
    let config = Config {
        nqn: Nqn::discovery(),
        kind,
        serial: String::new(),
        model: String::new(),
        firmware: String::new(),
        nodes: 2,
        cntlids: [(Node(0), 1..=8)].into(),
        is_split: false,
        access: Access::Any,
        host_ids: std::collections::BTreeMap::new(),
        reservations: true,
        limits: Limits::default(),
    };
    let mut subsystem = Subsystem::new(NOW, config);
    let volume = Volume {
        id: VolumeId(7),
        ids: crate::identify::NamespaceIds::default(),
        blocks: BLOCKS,
        block_shift: 12,
        owner: Node(0),
        hosts: Access::Any,
        write_protected: false,
        volatile_cache: true,
        deallocated_reads_zero: false,
        preferred_blocks: 0,
    };
    subsystem.set_volume(1, volume).expect("a good volume");
    let accepted = connect(&mut subsystem, 0, CNTLID_DYNAMIC);
    let cntlid = accepted.id.cntlid;
    let enable = Property::set(0, CC, Configuration::ENABLE.0);
    subsystem.handle_command(NOW, cntlid, &enable, &[]);
    while subsystem.poll_output().is_some() {}
    (subsystem, cntlid)
}

fn connect(subsystem: &mut Subsystem, qid: u16, cntlid: u16) -> crate::controller::Accepted {
    let port = Port { node: Node(0), transport: Transport::Tcp, capsule_data_bytes: 4096 };
    let attributes = ConnectAttributes::NONE;
    let connect = Connect { recfmt: 0, qid, sqsize: 31, attributes, kato_ms: 0 };
    let name = Nqn::discovery();
    let data = ConnectData::new(HostId([1; 16]), cntlid, &name, &name);
    subsystem.connect(NOW, port, 0, &connect, &data).expect("accepted")
}

/// Commands on an admin queue: the first byte says of which kind of controller, then come commands
/// of 64 bytes. Each is answered once, within its host's memory, or waits for an event; a reset
/// drops those that wait.
pub fn admin(bytes: &[u8]) {
    let Some((choice, commands)) = bytes.split_first() else { return };
    let kind = if choice & 1 == 0 { Kind::Io } else { Kind::Discovery };
    let (mut subsystem, cntlid) = target(kind);
    let mut outstanding = Vec::new();
    let ends = |outstanding: &mut Vec<u16>, cid| {
        let at = outstanding.iter().position(|one| *one == cid).expect("a command that is outstanding");
        outstanding.swap_remove(at);
    };
    for chunk in commands.chunks(Sqe::BYTES) {
        let Ok(sqe) = Sqe::decode(chunk) else { return };
        outstanding.push(sqe.cid);
        subsystem.handle_command(NOW, cntlid, &sqe, commands);
        let mut answers = 0;
        let mut closes = false;
        while let Some(output) = subsystem.poll_output() {
            match output {
                Output::Respond { cqe, data, .. } => {
                    ends(&mut outstanding, cqe.cid);
                    assert!(data.len() <= sqe.sgl.length().unwrap_or(0) as usize);
                    answers += 1;
                }
                Output::Close { .. } => closes = true,
                Output::Dropped { cid, .. } => ends(&mut outstanding, cid),
                Output::View { .. } | Output::Released { .. } => {}
                // Feature 83h.
                Output::Save { nsid, .. } => subsystem.handle_saved(nsid, true),
                Output::Fence { nsid } => subsystem.handle_fenced(nsid),
                Output::Reserved { .. } | Output::GuestView { .. } | Output::GuestReserved { .. } => {
                    unreachable!("nothing came from an I/O queue")
                }
                Output::AskOther(_) | Output::AnswerOther { .. } | Output::HostId { .. } => {
                    unreachable!("there is no other process")
                }
            }
        }
        let waits = sqe.opcode == crate::AdminOpcode::ASYNC_EVENT_REQUEST.0;
        let aborts = sqe.opcode == crate::AdminOpcode::ABORT.0;
        assert!(answers == 1 || (waits && answers == 0) || (aborts && answers == 2) || closes);
        if closes {
            return;
        }
        // The limit of requests for events.
        assert!(outstanding.len() <= usize::from(Limits::default().async_events), "commands are lost");
    }
}

/// Commands of 64 bytes on an I/O queue. What is executed is within the volume and the limits; the
/// oldest command completes when the queue is full.
pub fn io(bytes: &[u8]) {
    let (mut subsystem, cntlid) = target(Kind::Io);
    let accepted = connect(&mut subsystem, 1, cntlid);
    let mut queue = IoQueue::new(accepted.queue, accepted.view);
    let mut outstanding = std::collections::VecDeque::new();
    for chunk in bytes.chunks(Sqe::BYTES) {
        let Ok(sqe) = Sqe::decode(chunk) else { return };
        let action = queue.handle_command(&sqe).expect("room");
        if let Some((tag, status)) = queue.take_failed_half() {
            assert!(matches!(outstanding.pop_back(), Some((last, _)) if last == tag), "the last command");
            assert!(queue.complete(tag, status).is_some());
        }
        match action {
            Action::Execute(request) | Action::Hold(request) => {
                if let Operation::CompareAndWrite { compare, .. } = request.operation {
                    assert!(matches!(outstanding.back(), Some((last, _)) if *last == compare));
                }
                assert!(request.start.checked_add(request.blocks.into()).is_some_and(|end| end <= BLOCKS));
                assert!(request.data_bytes <= Limits::default().transfer_bytes);
                if request.operation == Operation::Deallocate {
                    let data = bytes.get(..request.data_bytes as usize).unwrap_or_default();
                    if let Ok(mut ranges) = queue.ranges(request.tag, data) {
                        assert!(ranges.all(|range| range.is_within(BLOCKS) && range.count > 0));
                    }
                }
                outstanding.push_back((request.tag, sqe.cid));
            }
            Action::Reserve(reservation) => {
                assert!(reservation.data_bytes <= Limits::default().transfer_bytes);
                outstanding.push_back((reservation.tag, sqe.cid));
            }
            Action::Respond(cqe) | Action::Disconnect(cqe) => assert_eq!(cqe.cid, sqe.cid),
        }
        assert_eq!(queue.outstanding() as usize, outstanding.len());
        if outstanding.len() == 32 {
            let (tag, cid) = outstanding.pop_front().expect("full");
            assert_eq!(queue.complete(tag, Status::SUCCESS).map(|cqe| cqe.cid), Some(cid));
        }
    }
}

/// A stream of PDUs from a host, on a queue with one transfer of 20,000 bytes. Every byte that is
/// to be placed was asked for, and no more than was asked for.
pub fn tcp(bytes: &[u8]) {
    use crate::tcp::{Incoming, Progress, Received, Settings, TargetConnection};
    let (mut out, mut rest) = (Vec::new(), bytes);
    let settings = Settings { capsule_data_bytes: 512, transfer_bytes: 4096 };
    let mut connection = TargetConnection::new(NOW, settings);
    let (mut placed, mut tag) = (0_u32, 0_u16);
    while let Some(first) = rest.first_chunk::<HEADER_BYTES_MIN>() {
        let received = connection.layout(first).and_then(|layout| {
            let header = rest.get(..layout.header_bytes()).unwrap_or(rest);
            let received = connection.handle_header(NOW, &layout, header, &mut out)?;
            Ok((layout, received))
        });
        let (layout, received) = match received {
            Ok(received) => received,
            Err(malformed) => {
                connection.fail(malformed, first, &mut out);
                assert!(connection.has_ended());
                return;
            }
        };
        match received {
            Received::Command { sqe, data } => {
                connection.accept(false, true, &Cqe::default(), &mut out);
                if let Incoming::OnRequest(_) = data {
                    tag += 1;
                    connection.ask(tag, sqe.cid, 20_000, &mut out);
                    placed = 0;
                }
                if let Incoming::InCapsule(length) = data {
                    assert!(length <= 8192 && length == layout.data_bytes);
                }
            }
            Received::Data { tag: to, offset, length } => {
                assert!(to <= tag && to > 0);
                assert!(offset.checked_add(length).is_some_and(|end| end <= 20_000));
                let progress = connection.handle_data(to, None, &[], &mut out);
                if to == tag {
                    assert_eq!(offset, placed);
                    placed += length;
                    assert_eq!(progress == Progress::Complete, placed == 20_000);
                }
            }
            Received::Terminated(_) => return,
            Received::Initialized | Received::Unsuitable { .. } => {}
        }
        let pdu_bytes = usize::try_from(layout.pdu_bytes()).unwrap_or(usize::MAX);
        rest = rest.get(pdu_bytes..).unwrap_or_default();
    }
}

/// A stream of PDUs from a controller, to a host with a read and a write outstanding. No byte is
/// placed beyond what was asked for, and each command ends at most once.
pub fn tcp_host(bytes: &[u8]) {
    use crate::host::HostData;
    use crate::tcp::{HostConnection, HostReceived, HostSettings};
    let digests = Digests::default();
    let settings = HostSettings { digests, entries: 4, transfer_bytes: 1 << 16 };
    let mut out = Vec::new();
    let mut connection = HostConnection::new(settings, &mut out);
    let (mut rest, mut ended, mut placed) = (bytes, 0, 0_u64);
    while let Some(first) = rest.first_chunk::<HEADER_BYTES_MIN>() {
        let received = connection.layout(first).and_then(|layout| {
            let header = rest.get(..layout.header_bytes()).unwrap_or(rest);
            Ok((layout, connection.handle_header(&layout, header)?))
        });
        let (layout, received) = match received {
            Ok(received) => received,
            Err(malformed) => {
                connection.fail(malformed, first, &mut out);
                assert!(connection.has_ended());
                break;
            }
        };
        match received {
            HostReceived::Ready => {
                for data in [HostData::FromController(10_000), HostData::ToController(20_000)] {
                    connection.submit(&Sqe::new(1, 0, 1), data, &mut out).expect("room");
                }
            }
            HostReceived::Data { cid, offset, length } => {
                assert!(offset.checked_add(length).is_some_and(|end| end <= 10_000));
                placed += u64::from(length);
                ended += usize::from(connection.handle_data(cid, None, &[]).is_some());
            }
            HostReceived::Asked { cid } => {
                while let Some(sent) = connection.send_data(cid, &mut out) {
                    assert!(sent.length > 0 && sent.offset + sent.length <= 20_000);
                }
            }
            HostReceived::Completed(_) => ended += 1,
            HostReceived::Terminated(_) => break,
        }
        let pdu_bytes = usize::try_from(layout.pdu_bytes()).unwrap_or(usize::MAX);
        rest = rest.get(pdu_bytes..).unwrap_or_default();
    }
    assert!(ended <= 2 && placed <= 10_000);
}

/// Messages of a controller over RDMA, 16 bytes each, to a host with three commands outstanding;
/// one that ends is followed by another. Each ends at most once, and no other does.
pub fn rdma_host(bytes: &[u8]) {
    use rdma::{Accept, HostPlace, HostQueue, Reject};
    let mut queue = HostQueue::new(4);
    let submit = |queue: &mut HostQueue<usize>, number| {
        let sqe = queue.submit(&Sqe::new(1, 0, 1), HostPlace::None, number).expect("room");
        (sqe.cid, number)
    };
    let mut outstanding = [0, 1, 2].map(|number| submit(&mut queue, number));
    for (number, message) in (3..).zip(bytes.chunks(Cqe::BYTES)) {
        let Ok((cqe, ended)) = queue.handle_response(message) else { break };
        let place = outstanding.iter_mut().find(|one| **one == (cqe.cid, ended));
        *place.expect("it is outstanding") = submit(&mut queue, number);
        assert_eq!(queue.len(), 3);
    }
    // What it says while it connects.
    if let Ok(accept) = Accept::decode(bytes) {
        assert_eq!(Accept::decode(&accept.encode()), Ok(accept));
    }
    if let Ok(reject) = Reject::decode(bytes) {
        assert_eq!(Reject::decode(&reject.encode()), Ok(reject));
    }
}
