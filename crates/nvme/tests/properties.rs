//! Property tests: any bytes for the decoders, and arithmetic that others got wrong.

use nvme::log_page::{DISCOVERY_ENTRY_BYTES, DISCOVERY_HEAD_BYTES, DiscoveryEntry, DiscoveryLog};
use nvme::pdu::{C2hData, CapsuleCmd, CapsuleResp, Digests, H2cData, IcReq, IcResp, R2t, Sender};
use nvme::{Cqe, Sqe, Status, fuzzing};
use proptest::prelude::*;

/// A PDU that suits the receiver, of which one byte may be wrong.
fn pdus() -> impl Strategy<Value = Vec<u8>> {
    let wrong = prop::option::of((0..24_usize, any::<u8>()));
    (any::<u8>(), 0..5_u8, 1..10_000_u32, wrong).prop_map(|(choice, kind, length, wrong)| {
        let to_host = kind == 0;
        let choice = choice & !1 | u8::from(to_host);
        let digests = Digests::decode(choice >> 1);
        let sender = Sender { digests, alignment: ((choice >> 3) * 4).max(4) };
        let mut bytes = vec![choice];
        match kind {
            0 => R2t { cccid: 1, ttag: 2, offset: 3, length }.encode(sender, &mut bytes),
            1 => CapsuleCmd { sqe: Sqe::new(1, 2, 3) }.encode(sender, length, &mut bytes),
            2 => CapsuleCmd { sqe: Sqe::new(0, 2, 3) }.encode(sender, 0, &mut bytes),
            3 => H2cData { cccid: 1, ttag: 2, offset: 3, length, last: true }.encode(sender, &mut bytes),
            _ => bytes.extend(IcReq { hpda: 0, digests, maxr2t: length }.encode()),
        }
        if let Some((at, value)) = wrong {
            bytes[1 + at] = value;
        }
        bytes
    })
}

/// Commands that mostly have a known opcode and small numbers.
fn commands() -> impl Strategy<Value = Vec<u8>> {
    let small = || prop_oneof![4 => 0..20_u32, 1 => any::<u32>()];
    let opcode = prop_oneof![
        4 => prop::sample::select(vec![0x00, 0x01, 0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f]),
        1 => any::<u8>(),
    ];
    let length = prop::sample::select(vec![0, 8, 16, 512, 4096, 8192, 1 << 20, u32::MAX]);
    (opcode, any::<u16>(), small(), small(), small(), small(), length).prop_map(
        |(opcode, cid, nsid, cdw10, cdw11, cdw12, length)| {
            let sgl = nvme::Sgl::Transport { length };
            let sqe = Sqe { cdw10, cdw11, cdw12, sgl, ..Sqe::new(opcode, cid, nsid) };
            sqe.encode().to_vec()
        },
    )
}

/// PDUs of a host that mostly belong to the transfer that the body has begun, with their data.
fn stream_pdu() -> impl Strategy<Value = Vec<u8>> {
    let number = || prop_oneof![6 => 0..4_u16, 1 => any::<u16>()];
    let offset = prop_oneof![6 => (0..6_u32).prop_map(|at| at * 4096), 1 => any::<u32>()];
    let length = prop_oneof![6 => Just(4096_u32), 2 => Just(3616_u32), 1 => 1..9000_u32];
    (0..4_u8, number(), number(), offset, length, any::<bool>()).prop_map(
        |(kind, cccid, ttag, offset, length, last)| {
            let mut bytes = Vec::new();
            if kind == 0 {
                let sgl = nvme::Sgl::Transport { length: 20_000 };
                let sqe = Sqe { sgl, ..Sqe::new(1, cccid, 1) };
                CapsuleCmd { sqe }.encode(Sender::default(), 0, &mut bytes);
            } else {
                let data = H2cData { cccid, ttag, offset, length, last };
                data.encode(Sender::default(), &mut bytes);
                bytes.resize(bytes.len() + length as usize, 0);
            }
            bytes
        },
    )
}

/// PDUs of a controller that mostly belong to the two commands that the body has sent.
fn host_pdu() -> impl Strategy<Value = Vec<u8>> {
    // The identifiers of the first two commands.
    let cid = prop_oneof![8 => prop::sample::select(vec![0x1000, 0x1001]), 1 => any::<u16>()];
    let offset = prop_oneof![8 => prop::sample::select(vec![0_u32, 5000]), 1 => any::<u32>()];
    let length = prop_oneof![8 => prop::sample::select(vec![5000_u32, 10_000]), 1 => 1..30_000_u32];
    (0..4_u8, cid, offset, length, any::<bool>(), any::<bool>()).prop_map(
        |(kind, cid, offset, length, last, success)| {
            let (mut bytes, sender) = (Vec::new(), Sender::default());
            match kind {
                0 => R2t { cccid: cid, ttag: 3, offset, length }.encode(sender, &mut bytes),
                1 => CapsuleResp { cqe: nvme::Cqe { cid, ..Default::default() } }.encode(sender, &mut bytes),
                _ => {
                    C2hData { cccid: cid, offset, length, last, success }.encode(sender, &mut bytes);
                    bytes.resize(bytes.len() + length as usize, 0);
                }
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_stream_is_a_pdu_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzzing::pdu(&bytes);
    }

    #[test]
    fn a_pdu_with_a_wrong_byte_does_no_harm(bytes in pdus()) {
        fuzzing::pdu(&bytes);
    }

    #[test]
    fn any_64_bytes_are_a_command(bytes in prop::collection::vec(any::<u8>(), 64..70)) {
        fuzzing::command(&bytes);
    }

    #[test]
    fn any_commands_are_answered_once(
        choice in any::<u8>(),
        commands in prop::collection::vec(commands(), 0..60),
    ) {
        fuzzing::admin(&[[choice].as_slice(), &commands.concat()].concat());
        fuzzing::io(&commands.concat());
    }

    #[test]
    fn any_stream_of_pdus_places_only_what_was_asked_for(stream in prop::collection::vec(stream_pdu(), 0..12)) {
        let digests = Digests::default();
        let connect = Sqe { cdw12: 0, ..Sqe::new(0x7f, 0, 1) };
        let mut bytes = IcReq { hpda: 0, digests, maxr2t: 0 }.encode().to_vec();
        CapsuleCmd { sqe: connect }.encode(Sender::default(), 0, &mut bytes);
        bytes.extend(stream.concat());
        fuzzing::tcp(&bytes);
    }

    #[test]
    fn any_stream_of_pdus_ends_each_command_of_a_host_once(stream in prop::collection::vec(host_pdu(), 0..12)) {
        let mut bytes = IcResp { cpda: 0, digests: Digests::default(), maxh2cdata: 4096 }.encode().to_vec();
        bytes.extend(stream.concat());
        fuzzing::tcp_host(&bytes);
    }

    #[test]
    fn any_messages_over_rdma_end_each_command_of_a_host_once(
        // Places and generations of its first commands.
        cids in prop::collection::vec((0..3_u16, 1..3_u16), 0..12),
        rest in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let response = |(place, generation): &(u16, u16)| {
            let cid = *place | *generation << 12;
            Cqe { result: 0, sqhd: 0, sqid: 1, cid, status: Status::SUCCESS }.encode()
        };
        let responses: Vec<_> = cids.iter().map(response).collect();
        fuzzing::rdma_host(&[responses.concat(), rest].concat());
    }

    #[test]
    fn any_data_decode_or_not(bytes in prop::collection::vec(any::<u8>(), 0..1200)) {
        fuzzing::data(&bytes);
    }

    #[test]
    fn sparse_data_decode_or_not(
        choice in any::<u8>(),
        bytes in prop::collection::vec(prop_oneof![4 => Just(0_u8), 1 => 0..4_u8], 0..5000),
    ) {
        fuzzing::data(&[[choice].as_slice(), &bytes].concat());
    }
}

// Feature 83h changes reservations: it is answered when that is saved.
#[test]
fn an_admin_command_that_has_reservations_saved_is_answered() {
    use nvme::{
        Sqe,
        feature::{Feature, FeatureId},
    };
    let persists = |value| {
        let sqe = Feature::set(1, FeatureId::RESERVATION_PERSISTENCE, value, nvme::Sgl::NONE);
        Sqe { nsid: 1, ..sqe }.encode()
    };
    fuzzing::admin(&[[0].as_slice(), &persists(1), &persists(0), &persists(1)].concat());
}

// Others returned a partly filled log, or garbage in the fourth entry.
#[test]
fn a_discovery_log_of_any_length_is_the_same_in_parts_of_any_size() {
    for entries in 0..=200_u16 {
        let entry = |port| DiscoveryEntry { port, ..DiscoveryEntry::default() };
        let log = DiscoveryLog { generation: 9, entries: (1..=entries).map(entry).collect() };
        let whole = log.encode();
        assert_eq!(whole.len(), DISCOVERY_HEAD_BYTES + usize::from(entries) * DISCOVERY_ENTRY_BYTES);
        for part in [1024, 4096, 16, whole.len() as u64, 2 * whole.len() as u64].into_iter().filter(|part| {
            // 16 bytes at a time are enough for short logs.
            *part > 16 || entries < 5
        }) {
            let mut read = Vec::new();
            while read.len() < whole.len() {
                let sqe = DiscoveryLog::read(read.len() as u64, part).command(0, nvme::Sgl::NONE);
                let arguments = nvme::log_page::GetLogPage::of(&sqe);
                let bytes = arguments.part(&whole).expect("within the log");
                assert_eq!(bytes.len() as u64, part);
                read.extend(bytes);
            }
            assert!(read[whole.len()..].iter().all(|byte| *byte == 0));
            assert_eq!(DiscoveryLog::decode(&read), Ok(log.clone()));
        }
    }
}
