//! The commands of the kernel's host: their arguments, and the same commands made of these again.

use crate::capture::{Capture, Exchange};
use nvme::fabrics::{Connect, ConnectAttributes, ConnectData, FabricsType, Property};
use nvme::feature::{Feature, FeatureId, QueueCounts};
use nvme::identify::Identify;
use nvme::io::{Blocks, DatasetManagement, DsmRange, IoFlags};
use nvme::log_page::{GetLogPage, LogId};
use nvme::register::{CAP, CC, CSTS, Configuration, VS};
use nvme::{AdminOpcode, HostId, IoOpcode, NSID_ALL, Nqn, Sgl, Sqe};

pub const HOST: &str = "nqn.2026-11.org.trunkline:host";
pub const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:golden";
pub const HOST_ID: HostId =
    HostId([0x5f, 0x2c, 0x1a, 0x0e, 0x7d, 0x1c, 0x4c, 0x5e, 0x9a, 0x57, 0, 0, 0, 0, 0, 1]);

pub fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("a valid name")
}

/// The command that our constructors make of the arguments that were read; none if there is no
/// constructor for it.
fn made(one: &Exchange) -> Option<Sqe> {
    let Sqe { cid, sgl, nsid, .. } = one.sqe;
    if one.qid > 0 && one.sqe.opcode != IoOpcode::FABRICS.0 {
        let opcode = IoOpcode(one.sqe.opcode);
        return Some(match opcode {
            IoOpcode::READ | IoOpcode::WRITE | IoOpcode::WRITE_ZEROES => {
                Blocks::of(&one.sqe).command(opcode, cid, nsid, sgl)
            }
            IoOpcode::DATASET_MANAGEMENT => DatasetManagement::of(&one.sqe).command(cid, nsid, sgl),
            IoOpcode::FLUSH => Sqe { sgl, ..Sqe::new(opcode.0, cid, nsid) },
            _ => return None,
        });
    }
    Some(match AdminOpcode(one.sqe.opcode) {
        AdminOpcode::FABRICS => return made_of_fabrics(&one.sqe),
        AdminOpcode::IDENTIFY => Identify::of(&one.sqe).command(cid, sgl),
        AdminOpcode::GET_LOG_PAGE => GetLogPage::of(&one.sqe).command(cid, sgl),
        AdminOpcode::SET_FEATURES => {
            let Feature { id, value, .. } = Feature::of(&one.sqe);
            Sqe { nsid, ..Feature::set(cid, id, value, sgl) }
        }
        AdminOpcode::GET_FEATURES => {
            let Feature { id, value, .. } = Feature::of(&one.sqe);
            Sqe { nsid, ..Feature::get(cid, id, value, sgl) }
        }
        opcode @ (AdminOpcode::KEEP_ALIVE | AdminOpcode::ASYNC_EVENT_REQUEST) => {
            Sqe { sgl, ..Sqe::new(opcode.0, cid, 0) }
        }
        _ => return None,
    })
}

fn made_of_fabrics(sqe: &Sqe) -> Option<Sqe> {
    let property = Property::of(sqe);
    let made = match FabricsType::of(sqe) {
        FabricsType::CONNECT => return Some(Connect::of(sqe).command(sqe.cid, sqe.sgl)),
        FabricsType::PROPERTY_GET => Property::get(sqe.cid, property.offset, property.is_8_bytes?),
        FabricsType::PROPERTY_SET => Property::set(sqe.cid, property.offset, property.value as u32),
        _ => return None,
    };
    Some(Sqe { sgl: sqe.sgl, ..made })
}

#[test]
fn every_command_is_made_again_from_its_arguments() {
    let mut unknown = Vec::new();
    for capture in Capture::all() {
        for one in capture.exchanges() {
            match made(&one) {
                Some(made) => assert_eq!(made, one.sqe, "{}: {}", capture.name, one.note),
                None => unknown.push(one.sqe.opcode),
            }
        }
    }
    // Two opcodes that mean nothing, and Verify, which is not supported.
    assert_eq!(unknown, [0x24, 0x85, IoOpcode::VERIFY.0]);
}

#[test]
fn connect_has_the_names_and_the_keep_alive_timeout_that_were_given() {
    let find = |name: &str, qid| {
        let all = Capture::named(name).exchanges();
        let connect = all.iter().find(|one| one.qid == qid).expect("a Connect").clone();
        assert_eq!(FabricsType::of(&connect.sqe), FabricsType::CONNECT);
        (Connect::of(&connect.sqe), ConnectData::decode(&connect.to_controller).expect("1024 bytes"))
    };
    let connect = |qid, sqsize, attributes, kato_ms| Connect { recfmt: 0, qid, sqsize, attributes, kato_ms };
    let (none, without_flow_control) = (ConnectAttributes::NONE, ConnectAttributes::DISABLE_SQ_FLOW);
    for (name, qid, subsystem, cntlid, expected) in [
        ("discovery", 0, Nqn::discovery(), 0xffff, connect(0, 31, none, 0)),
        ("discovery_event", 0, Nqn::discovery(), 0xffff, connect(0, 31, none, 5000)),
        ("commands", 0, nqn(SUBSYSTEM), 0xffff, connect(0, 31, none, 2000)),
        ("commands", 1, nqn(SUBSYSTEM), 1, connect(1, 127, none, 0)),
        ("digests", 0, nqn(SUBSYSTEM), 0xffff, connect(0, 31, without_flow_control, 10_000)),
        ("digests", 1, nqn(SUBSYSTEM), 1, connect(1, 127, without_flow_control, 0)),
        ("unknown_subsystem", 0, nqn(&format!("{SUBSYSTEM}-other")), 0xffff, connect(0, 31, none, 5000)),
    ] {
        let (command, data) = find(name, qid);
        assert_eq!(command, expected, "{name} {qid}");
        assert_eq!(data, ConnectData::new(HOST_ID, cntlid, &subsystem, &nqn(HOST)), "{name} {qid}");
    }
}

#[test]
fn the_bring_up_reads_and_sets_properties_in_order() {
    let bring_up = Capture::named("commands").exchanges();
    let properties = bring_up.iter().filter(|one| one.sqe.opcode == AdminOpcode::FABRICS.0).skip(1).take(7);
    let properties: Vec<(FabricsType, Property)> =
        properties.map(|one| (FabricsType::of(&one.sqe), Property::of(&one.sqe))).collect();
    let get = |offset, is_8_bytes| {
        (FabricsType::PROPERTY_GET, Property { is_8_bytes: Some(is_8_bytes), offset, value: 0 })
    };
    // All I/O command sets (CSS 6), at first without EN.
    let set = |value| (FabricsType::PROPERTY_SET, Property { is_8_bytes: Some(false), offset: CC, value });
    assert_eq!(
        properties,
        [
            get(CAP, true),
            set(0x0046_0060),
            get(CC, false),
            get(CAP, true),
            set(0x0046_0061),
            get(CSTS, false),
            get(VS, false)
        ]
    );
    let enabled = Configuration(0x0046_0061);
    assert_eq!((enabled.enable(), enabled.command_set()), (true, 6));
    assert_eq!((enabled.sqe_size(), enabled.cqe_size()), (6, 4));
}

#[test]
fn blocks_of_reads_and_writes_are_those_that_were_asked_for() {
    let capture = Capture::named("commands");
    let blocks = |start, count| Blocks { start, count, flags: IoFlags::NONE };
    let disk = "/dev/nvme0n1";
    for (note, opcode, expected, bytes) in [
        ("write -s 8 -c 7 -z 4096", IoOpcode::WRITE, blocks(8, 8), 4096),
        ("write -s 16 -c 127 -z 65536", IoOpcode::WRITE, blocks(16, 128), 65_536),
        ("read -s 8 -c 7 -z 4096", IoOpcode::READ, blocks(8, 8), 4096),
        ("read -s 16 -c 127 -z 65536", IoOpcode::READ, blocks(16, 128), 65_536),
        ("read -s 131072 -c 7 -z 4096", IoOpcode::READ, blocks(131_072, 8), 0),
        ("write-zeroes -s 24 -c 7", IoOpcode::WRITE_ZEROES, blocks(24, 8), 0),
        (
            "write-zeroes -s 32 -c 7 -d",
            IoOpcode::WRITE_ZEROES,
            Blocks { flags: IoFlags::DEALLOCATE, ..blocks(32, 8) },
            0,
        ),
    ] {
        let (command, arguments) = note.split_once(' ').expect("arguments");
        let exchanges = capture.during(&format!("nvme {command} {disk} {arguments}"));
        let one = exchanges.iter().rfind(|one| one.qid == 1).expect("an I/O command");
        assert_eq!((IoOpcode(one.sqe.opcode), one.sqe.nsid), (opcode, 1), "{note}");
        assert_eq!(Blocks::of(&one.sqe), expected, "{note}");
        assert_eq!(one.to_controller.len() + one.to_host.len(), bytes, "{note}");
        let is_short = bytes <= 4096;
        let in_capsule = matches!(one.sqe.sgl, Sgl::InCapsule { offset: 0, length: 4096 });
        assert_eq!(in_capsule, opcode == IoOpcode::WRITE && is_short, "{note}");
        assert_eq!(one.asked.len(), usize::from(opcode == IoOpcode::WRITE && !is_short), "{note}");
    }
    let flush = &capture.during("nvme flush /dev/nvme0n1 -n 1")[0];
    assert_eq!((flush.sqe.opcode, flush.sqe.sgl), (IoOpcode::FLUSH.0, Sgl::Transport { length: 0 }));
}

#[test]
fn what_was_written_is_read() {
    let capture = Capture::named("commands");
    let data = |note: &str| {
        let exchanges = capture.during(note);
        let io = exchanges.iter().rfind(|one| one.qid == 1).expect("an I/O command");
        [io.to_controller.as_slice(), &io.to_host].concat()
    };
    let at_8 = "/dev/nvme0n1 -s 8 -c 7 -z 4096";
    let at_16 = "/dev/nvme0n1 -s 16 -c 127 -z 65536";
    assert_eq!(data(&format!("nvme write {at_8}")), [0xa5; 4096]);
    assert_eq!(data(&format!("nvme read {at_8}")), [0xa5; 4096]);
    assert_eq!(data(&format!("nvme write {at_16}")), [0x5a; 65_536]);
    assert_eq!(data(&format!("nvme read {at_16}")), [0x5a; 65_536]);
}

/// Tools send as many ranges as they name. The kernel's own command has room for all that there may
/// be, of which one is valid.
#[test]
fn ranges_that_are_not_needed_are_named() {
    let capture = Capture::named("commands");
    let range = |start, count| DsmRange { attributes: 0, count, start };
    for (note, bytes, expected) in [
        ("nvme dsm /dev/nvme0n1 -d -s 64,128 -b 8,16", 32, vec![range(64, 8), range(128, 16)]),
        ("blkdiscard -f -o 262144 -l 65536 /dev/nvme0n1", 4096, vec![range(512, 128)]),
    ] {
        let one = &capture.during(note)[0];
        let arguments = DatasetManagement::of(&one.sqe);
        assert_eq!(arguments, DatasetManagement { ranges: expected.len() as u32, deallocate: true });
        assert_eq!(one.to_controller.len(), bytes, "{note}");
        assert_eq!(DsmRange::list(&one.to_controller).take(expected.len()).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_arguments_of_features_and_logs() {
    let capture = Capture::named("commands");
    let feature = |note: &str| {
        let one = &capture.during(note)[0];
        let Feature { id, value, nsid, .. } = Feature::of(&one.sqe);
        (id, value, nsid)
    };
    let set = "nvme set-feature /dev/nvme0 -f";
    assert_eq!(feature(&format!("{set} 0xf -v 3000")), (FeatureId::KEEP_ALIVE, 3000, NSID_ALL));
    assert_eq!(feature(&format!("{set} 0x84 -n 1 -v 1")), (FeatureId::WRITE_PROTECTION, 1, 1));
    let get = "nvme get-feature /dev/nvme0 -f";
    assert_eq!(feature(&format!("{get} 6")), (FeatureId::VOLATILE_WRITE_CACHE, 0, NSID_ALL));
    let of_host = |id| {
        let sets = |one: &&Exchange| AdminOpcode(one.sqe.opcode) == AdminOpcode::SET_FEATURES;
        let all = capture.exchanges();
        let set = all.iter().filter(sets).map(|one| Feature::of(&one.sqe)).find(|set| set.id == id);
        set.expect("the host sets it").value
    };
    let one_queue = QueueCounts { submission: 1, completion: 1 };
    assert_eq!(QueueCounts::decode(of_host(FeatureId::NUMBER_OF_QUEUES)), Some(one_queue));
    assert_eq!(of_host(FeatureId::ASYNC_EVENTS), 0x900);
    let parts = capture.during("nvme ana-log /dev/nvme0");
    let parts: Vec<GetLogPage> = parts
        .iter()
        .map(|one| GetLogPage::of(&one.sqe))
        .filter(|arguments| arguments.log == LogId::ANA)
        .collect();
    let part = |offset, bytes| GetLogPage {
        log: LogId::ANA,
        parameter: 0,
        retain_event: true,
        bytes,
        offset,
        nsid: 0,
    };
    assert_eq!(parts, [part(0, 4096), part(4096, 4096), part(8192, 16)]);
}
