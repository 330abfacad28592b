//! The logs by hand from the figures, and the arithmetic of their parts.

use super::*;
use crate::Nqn;
use crate::layout::text;

fn read(offset: u64, bytes: u64) -> GetLogPage {
    DiscoveryLog::read(offset, bytes)
}

#[test]
fn the_arguments_of_get_log_page() {
    let arguments = GetLogPage {
        log: LogId::ANA,
        parameter: ANA_GROUPS_ONLY,
        retain_event: true,
        bytes: 0x4_0008,
        offset: 0x1_0000_0004,
        nsid: crate::NSID_ALL,
    };
    let sqe = arguments.command(1, Sgl::NONE);
    // NUMD = 40008h / 4 - 1 = 10001h: lower half in CDW10, upper half in CDW11.
    assert_eq!(sqe.encode()[40..56], [0x0c, 0x81, 1, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(GetLogPage::of(&sqe), arguments);
    assert_eq!(GetLogPage::of(&Sqe { cdw11: 0xffff_ffff, cdw10: 0xffff_ff70, ..sqe }).bytes, 1 << 34);
}

#[test]
fn a_part_beyond_the_end_is_filled_with_zeroes_and_one_behind_it_is_refused() {
    let log = [1, 2, 3, 4, 5, 6];
    assert_eq!(read(0, 4).part(&log), Some(vec![1, 2, 3, 4]));
    assert_eq!(read(4, 8).part(&log), Some(vec![5, 6, 0, 0, 0, 0, 0, 0]));
    assert_eq!(read(8, 4).part(&log), None);
    assert_eq!(read(2, 4).part(&log), None);
    assert_eq!(read(u64::MAX - 3, 4).part(&log), None);
}

#[test]
fn health_and_errors_have_their_fields() {
    let health = Health {
        temperature: 0x0157,
        available_spare: 100,
        data_units_read: 1,
        data_units_written: 2,
        host_reads: 3,
        host_writes: 4,
        busy_minutes: 5,
        power_cycles: 6,
        power_on_hours: 7,
        unsafe_shutdowns: 8,
        media_errors: 9,
        error_entries: 10,
        ..Health::default()
    };
    let bytes = health.encode();
    assert_eq!(bytes[..4], [0, 0x57, 1, 100]);
    assert!((1..=10_u8).all(|count| bytes[16 + usize::from(count) * 16] == count));
    let status = crate::Status::INVALID_FIELD.no_retry();
    let entry = ErrorEntry { count: 1, sqid: 2, cid: 3, status, location: 40, lba: 5, nsid: 6 };
    let expected = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 4, 0x80, 40, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6];
    assert_eq!(entry.encode()[..25], expected);
    let slots = FirmwareSlots { active: 1, revision_1: text("1.0", b' ') };
    assert_eq!(slots.encode()[..16], [1, 0, 0, 0, 0, 0, 0, 0, b'1', b'.', b'0', 32, 32, 32, 32, 32]);
}

#[test]
fn changed_namespaces_ascend_and_too_many_are_all() {
    let mut changed = ChangedNamespaces::default();
    assert!(changed.is_empty());
    for nsid in [7, 3, 7] {
        changed.add(nsid);
    }
    assert_eq!(changed.encode()[..12], [3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ChangedNamespaces::decode(&changed.encode()).map(|list| list.0), Some(vec![3, 7]));
    (1..=1024).for_each(|nsid| changed.add(nsid));
    assert_eq!(ChangedNamespaces::decode(&changed.encode()).map(|list| list.0.len()), Some(1024));
    changed.add(1025);
    assert_eq!(changed.encode()[..8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(ChangedNamespaces::decode(&changed.encode()), None);
}

#[test]
fn effects_are_by_opcode() {
    let mut effects = CommandEffects::default();
    effects.admin[6] = Effects::SUPPORTED;
    effects.io[1] = Effects::SUPPORTED.with(Effects::CHANGES_BLOCKS);
    let bytes = effects.encode();
    assert_eq!((bytes[24], bytes[1028]), (1, 3));
    assert_eq!(CommandEffects::decode(&bytes), effects);
    let pages = SupportedPages::of([1, 0x70]);
    assert_eq!((pages.encode()[4], pages.encode()[0x70 * 4]), (1, 1));
    assert_eq!(SupportedPages::decode(&pages.encode()), pages);
}

#[test]
fn the_ana_log_with_and_without_namespaces() {
    let group = |id, state, nsids: &[u32]| AnaGroup { id, changes: 5, state, nsids: nsids.to_vec() };
    let groups = vec![group(1, AnaState::OPTIMIZED, &[2, 9]), group(2, AnaState::CHANGE, &[])];
    let log = AnaLog { changes: 6, groups };
    let bytes = log.encode(false);
    assert_eq!(bytes[..16], [6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[16..33], [1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(bytes[48..56], [2, 0, 0, 0, 9, 0, 0, 0]);
    assert_eq!((bytes[56], bytes[72], bytes.len()), (2, 0xf, 88));
    assert_eq!(AnaLog::decode(&bytes), Ok(log.clone()));
    let short = log.encode(true);
    assert_eq!((short[20], short.len()), (0, 80));
    assert_eq!(AnaLog::decode(&short).map(|log| log.groups.len()), Ok(2));
}

#[test]
fn a_broken_ana_log_says_what_is_wrong() {
    let group = AnaGroup { id: 3, changes: 0, state: AnaState::OPTIMIZED, nsids: vec![1, 2] };
    let good = AnaLog { changes: 0, groups: vec![group] }.encode(false);
    for length in 0..good.len() {
        assert_eq!(AnaLog::decode(&good[..length]), Err(AnaLogError::Short(0)), "{length}");
    }
    let change = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        AnaLog::decode(&bytes)
    };
    assert_eq!(change(16, 0), Err(AnaLogError::Id(0)));
    assert_eq!(change(48, 2), Err(AnaLogError::Order(3)));
    assert_eq!(change(23, 0xff), Err(AnaLogError::Short(0)), "a count near 2^32");
    assert_eq!(change(8, 2), Err(AnaLogError::Short(1)));
}

#[test]
fn states_refuse_io_with_their_own_status() {
    assert_eq!(AnaState::OPTIMIZED.refusal(), None);
    assert_eq!(AnaState::NON_OPTIMIZED.refusal(), None);
    for (state, code) in [(AnaState::INACCESSIBLE, 0x302), (AnaState::PERSISTENT_LOSS, 0x301)] {
        assert_eq!(state.refusal().map(|status| (status.code(), status.dnr())), Some((code, false)));
    }
    assert_eq!(AnaState::CHANGE.refusal(), Some(crate::Status::ANA_TRANSITION));
}

#[test]
fn an_entry_of_the_discovery_log() {
    let mut entry = DiscoveryEntry {
        transport: TransportType::TCP,
        family: AddressFamily::IPV4,
        subsystem_type: SubsystemType::NVM,
        requirements: TransportRequirements::DISABLE_SQ_FLOW,
        port: 1,
        cntlid: 0xffff,
        admin_queue_size: 32,
        flags: EntryFlags::PERSISTENT,
        subnqn: Nqn::new("nqn.2026-11.test:a").expect("valid").encode(),
        ..DiscoveryEntry::default()
    };
    entry.set_address("192.0.2.1", "4420");
    let bytes = entry.encode();
    assert_eq!(bytes[..12], [3, 1, 2, 4, 1, 0, 0xff, 0xff, 32, 0, 2, 0]);
    assert_eq!(&bytes[32..38], b"4420  ");
    assert_eq!(&bytes[256..275], b"nqn.2026-11.test:a\0");
    assert_eq!(&bytes[512..523], b"192.0.2.1  ");
    assert_eq!(DiscoveryEntry::decode(&bytes), Ok(entry));
    assert_eq!((entry.address(), entry.service()), (&b"192.0.2.1"[..], &b"4420"[..]));
    let rdma = DiscoveryEntry { subtype: RdmaSubtype::ROCE_2.encode(), ..entry };
    assert_eq!(rdma.encode()[768..771], [1, 4, 1]);
}

#[test]
fn a_discovery_log_with_fewer_entries_than_it_says_is_short() {
    let log = DiscoveryLog { generation: 7, entries: vec![DiscoveryEntry::default(); 2] };
    let mut bytes = log.encode();
    assert_eq!(bytes[..18], [7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(DiscoveryLog::decode(&bytes), Ok(log));
    bytes[15] = 0xff;
    assert!(DiscoveryLog::decode(&bytes).is_err(), "a count near 2^64 takes no memory");
}
