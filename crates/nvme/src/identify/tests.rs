//! Fields at their offsets, by hand from the figures; the lists, good and bad.

use super::*;
use crate::register::Version;

/// The bytes that are not zero.
fn set(bytes: &[u8]) -> Vec<(usize, u8)> {
    bytes.iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect()
}

#[test]
fn the_arguments_of_identify() {
    let identify =
        Identify { cns: Cns::COMMAND_SET_CONTROLLER, cntid: 0x0102, command_set: CommandSet(3), nsid: 4 };
    let sqe = identify.command(9, Sgl::NONE);
    assert_eq!(sqe.encode()[40..48], [6, 0, 2, 1, 0, 0, 0, 3]);
    assert_eq!(Identify::of(&sqe), identify);
}

#[test]
fn a_controller_has_its_fields_where_hosts_look_for_them() {
    let controller = Controller {
        vid: 1,
        serial: *b"serial--------------",
        multi_path: MultiPath::CONTROLLERS.with(MultiPath::ANA),
        mdts: 2,
        cntlid: 3,
        version: Version::V2_0,
        events: AsyncEvents::DISCOVERY_CHANGED,
        attributes: ControllerAttributes::HOST_ID_128.with(ControllerAttributes::TRAFFIC_KEEPS_ALIVE),
        kind: CntrlType::IO,
        retry_delays_100_ms: [4, 5, 6],
        instance: 7,
        instance_random: [8; 8],
        async_event_limit: 9,
        log_pages: LogPageAttributes::EXTENDED,
        keep_alive_100_ms: 10,
        ana_transition_s: 11,
        ana: AnaCapabilities::OPTIMIZED,
        ana_group_max: 12,
        ana_groups: 13,
        quiesce_ms: 14,
        sqes: 0x66,
        cqes: 0x44,
        maxcmd: 15,
        nn: 16,
        optional_commands: OptionalCommands::WRITE_ZEROES,
        vwc: VWC_PRESENT,
        sgls: SglSupport::SUPPORTED.with(SglSupport::IN_CAPSULE).with(SglSupport::TRANSPORT),
        mnan: 17,
        ioccsz: 18,
        iorcsz: 19,
        icdoff: 20,
        msdbd: 21,
        ofcs: 22,
        discovery_type: 23,
        cross_reset_limit: 24,
        ..Controller::default()
    };
    let bytes = controller.encode();
    assert_eq!(Controller::decode(&bytes), Ok(controller));
    assert_eq!(&bytes[4..24], b"serial--------------");
    let expected = [
        (0, 1),
        (76, 0x0a),
        (77, 2),
        (78, 3),
        (82, 2),
        (95, 0x80),
        (96, 0x41),
        (111, 1),
        (128, 4),
        (130, 5),
        (132, 6),
        (135, 7),
        (136, 8),
        (143, 8),
        (259, 9),
        (261, 4),
        (320, 10),
        (342, 11),
        (343, 1),
        (344, 12),
        (348, 13),
        (386, 14),
        (512, 0x66),
        (513, 0x44),
        (514, 15),
        (516, 16),
        (520, 8),
        (525, 1),
        (536, 1),
        (538, 0x30),
        (540, 17),
        (1792, 18),
        (1796, 19),
        (1800, 20),
        (1803, 21),
        (1804, 22),
        (1806, 23),
        (1807, 24),
    ];
    let set = set(&bytes);
    for field in expected {
        assert!(set.contains(&field), "{field:?}");
    }
    assert_eq!(set.len(), expected.len() + 20 + 6, "serial number and random number besides");
}

#[test]
fn a_namespace_has_its_fields_where_hosts_look_for_them() {
    let mut formats = [LbaFormat::default(); 16];
    formats[0].shift = 9;
    formats[1] = LbaFormat { metadata_bytes: 0, shift: 12, performance: 1 };
    let namespace = Namespace {
        size: 1,
        capacity: 2,
        utilization: 3,
        features: NamespaceFeatures::OPTIMAL_IO,
        formats_minus_1: 1,
        format: 1,
        shared: Shared::SHARED,
        reservations: RESCAP_ALL,
        deallocation: 9,
        nawun: 4,
        nawupf: 5,
        nacwu: 6,
        noiob: 7,
        npwg: 8,
        npwa: 9,
        npdg: 10,
        npda: 11,
        nows: 12,
        ana_group: 13,
        attributes: 1,
        nguid: [14; 16],
        eui64: [15; 8],
        formats,
    };
    let bytes = namespace.encode();
    assert_eq!(Namespace::decode(&bytes), Ok(namespace));
    assert_eq!(namespace.lba_format().shift, 12);
    let head = [
        (0, 1),
        (8, 2),
        (16, 3),
        (24, 0x10),
        (25, 1),
        (26, 1),
        (30, 1),
        (31, 0xff),
        (33, 9),
        (34, 4),
        (36, 5),
        (38, 6),
        (46, 7),
        (64, 8),
        (66, 9),
        (68, 10),
        (70, 11),
        (72, 12),
        (92, 13),
        (99, 1),
    ];
    let set = set(&bytes);
    assert_eq!(set[..head.len()], head);
    assert_eq!(set[head.len()..][0], (104, 14));
    assert_eq!(
        set[head.len() + 16..],
        [
            (120, 15),
            (121, 15),
            (122, 15),
            (123, 15),
            (124, 15),
            (125, 15),
            (126, 15),
            (127, 15),
            (130, 9),
            (134, 12),
            (135, 1)
        ]
    );
}

#[test]
fn what_the_command_sets_say() {
    let limits = NvmController {
        verify_size: 1,
        write_zeroes_size: 2,
        dsm_ranges: 3,
        dsm_range_blocks: 4,
        dsm_blocks: 5,
    };
    assert_eq!(set(&limits.encode()), [(0, 1), (1, 2), (3, 3), (4, 4), (8, 5)]);
    let namespace = IndependentNamespace {
        features: 8,
        shared: Shared::SHARED,
        reservations: 1,
        ana_group: 2,
        attributes: 1,
        state: NSTAT_READY,
    };
    assert_eq!(set(&namespace.encode()), [(0, 8), (1, 1), (2, 1), (4, 2), (8, 1), (14, 1)]);
    assert_eq!(set(&CommandSets::NVM.encode()), [(0, 1)]);
    assert_eq!(CommandSets::decode(&CommandSets::NVM.encode()), CommandSets::NVM);
}

#[test]
fn a_list_of_nsids_ends_at_zero_or_when_it_is_full() {
    let list = NamespaceList::above(3, [1, 3, 4, 700].into_iter());
    let bytes = list.encode();
    assert_eq!(bytes[..12], [4, 0, 0, 0, 0xbc, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(NamespaceList::decode(&bytes), NamespaceList(vec![4, 700]));
    let full = NamespaceList::above(0, 1..=5000);
    assert_eq!((full.0.len(), full.0.last()), (1024, Some(&1024)));
    assert_eq!(NamespaceList::decode(&full.encode()), full);
    assert_eq!(NamespaceList::decode(&[]), NamespaceList::default());
}

#[test]
fn the_names_of_a_namespace_are_descriptors_one_behind_the_other() {
    let ids = NamespaceIds { eui64: None, nguid: Some([1; 16]), uuid: Some([2; 16]) };
    let descriptors = Descriptors { ids, command_set: Some(CommandSet::NVM) };
    let bytes = descriptors.encode();
    assert_eq!(bytes[..5], [2, 16, 0, 0, 1]);
    assert_eq!(bytes[20..25], [3, 16, 0, 0, 2]);
    assert_eq!(bytes[40..46], [4, 1, 0, 0, 0, 0]);
    assert_eq!(Descriptors::decode(&bytes), Ok(descriptors));
    let unknown = [[9, 2, 0, 0, 7, 7].as_slice(), &bytes].concat();
    assert_eq!(Descriptors::decode(&unknown), Ok(descriptors), "an unknown type is skipped");
}

#[test]
fn descriptors_of_wrong_lengths_are_refused() {
    for (kind, length) in [(1, 7), (2, 8), (3, 17), (4, 2)] {
        let mut bytes = vec![kind, length, 0, 0];
        bytes.resize(40, 1);
        assert_eq!(Descriptors::decode(&bytes), Err(DescriptorsError { kind, length }));
    }
    let beyond = [3, 16, 0, 0, 1, 2];
    assert_eq!(Descriptors::decode(&beyond), Err(DescriptorsError { kind: 3, length: 16 }));
    assert_eq!(Descriptors::decode(&[3, 0, 0, 0]), Ok(Descriptors::default()));
}
