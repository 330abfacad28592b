//! Capsules of a hostile host over RDMA, from their bytes to the queue: each is no capsule, or
//! answered, or a command whose data are where the device may move them.

use crate::io::{command, queue, read};
use nvme::controller::{Action, IoQueue, Violation};
use nvme::io::IoFlags;
use nvme::rdma::Capsule;
use nvme::tcp::Incoming;
use nvme::{IoOpcode, Sgl, Sqe, Status, fabrics};
use proptest::prelude::*;

/// What a driver does with a message: `None` if it is no capsule.
fn take(queue: &mut IoQueue, message: &[u8]) -> Option<Result<Action, Violation>> {
    let capsule = Capsule::decode(message).ok()?;
    assert!(capsule.in_capsule.start <= capsule.in_capsule.end && capsule.in_capsule.end <= message.len());
    let Ok(data) = capsule.data else {
        assert!(capsule.in_capsule.is_empty(), "nothing of it is read");
        let status = capsule.data.expect_err("refused");
        return Some(queue.refuse(&capsule.sqe, status).map(Action::Respond));
    };
    let action = queue.handle_command(&capsule.sqe);
    if let Some((tag, status)) = queue.take_failed_half() {
        assert!(queue.complete(tag, status).is_some());
    }
    if let Ok(Action::Execute(request) | Action::Hold(request)) = &action {
        check(&capsule, data, request.data_bytes);
    }
    Some(action)
}

/// The data of a command that is executed are as long as the command says, in the capsule or in
/// memory that ends before the end of all addresses.
fn check(capsule: &Capsule, data: Incoming, data_bytes: u32) {
    match data {
        Incoming::None => assert_eq!(data_bytes, 0),
        Incoming::InCapsule(bytes) => {
            assert_eq!((bytes, capsule.in_capsule.len()), (data_bytes, data_bytes as usize));
        }
        Incoming::OnRequest(bytes) | Incoming::ToHost(bytes) => {
            let memory = capsule.memory.expect("memory of the host");
            assert_eq!((bytes, memory.bytes), (data_bytes, data_bytes));
            assert!(memory.address.checked_add(memory.bytes.into()).is_some());
        }
    }
}

fn message(sqe: &Sqe, data_bytes: usize) -> Vec<u8> {
    [&sqe.encode()[..], &vec![9; data_bytes]].concat()
}

/// The status of the answer.
fn status(queue: &mut IoQueue, sqe: &Sqe, data_bytes: usize) -> Status {
    match take(queue, &message(sqe, data_bytes)) {
        Some(Ok(Action::Respond(cqe))) => cqe.status,
        other => panic!("no answer: {other:?}"),
    }
}

const fn keyed(address: u64, length: u32) -> Sgl {
    Sgl::Keyed { address, length, key: 7, invalidate: true }
}

#[test]
fn a_hostile_capsule_costs_its_command_and_the_queue_goes_on() {
    let (_, mut queue) = queue();
    let inside = |offset, length| Sgl::InCapsule { offset, length };
    let write = |sgl| Sqe { sgl, ..command(IoOpcode::WRITE, 1, 0, 8, IoFlags::NONE) };
    let read = |sgl| Sqe { sgl, ..read(1, 0, 8) };
    for (what, sqe, data_bytes, expected) in [
        ("an unknown opcode", Sqe { opcode: 0x7a, ..read(keyed(0, 4096)) }, 0, Status::INVALID_OPCODE),
        ("fewer bytes of memory", read(keyed(0, 4095)), 0, Status::SGL_INVALID_LENGTH),
        ("the most bytes of memory", write(keyed(0, (1 << 24) - 1)), 0, Status::SGL_INVALID_LENGTH),
        ("fewer bytes in the capsule", write(inside(0, 512)), 512, Status::SGL_INVALID_LENGTH),
        ("segments", write(Sgl::Other([0x20; 16])), 0, Status::SGL_INVALID_TYPE),
    ] {
        assert_eq!(status(&mut queue, &sqe, data_bytes), expected.no_retry(), "{what}");
    }
    assert_eq!(queue.outstanding(), 0);
    assert!(matches!(take(&mut queue, &message(&read(keyed(0, 4096)), 0)), Some(Ok(Action::Execute(_)))));
    // Its identifier is in use.
    let again = status(&mut queue, &write(keyed(4096, 4096)), 0);
    assert_eq!(again, Status::COMMAND_ID_CONFLICT.no_retry());
    assert_eq!(queue.outstanding(), 1);
}

/// A queue is connected once.
#[test]
fn a_second_connect_is_refused_and_the_queue_goes_on() {
    let (_, mut queue) = queue();
    let connect = crate::support::connect_command(1, 127, 0).command(3, keyed(0, 1024));
    let refused = status(&mut queue, &connect, 0);
    assert!(!refused.is_success() && refused.dnr(), "{refused}");
    let disconnect = fabrics::disconnect(3);
    assert!(matches!(take(&mut queue, &message(&disconnect, 0)), Some(Ok(Action::Disconnect(_)))));
}

fn sgls() -> impl Strategy<Value = Sgl> {
    let length = || prop::sample::select(vec![0_u32, 16, 512, 4096, 4097, (1 << 24) - 1, u32::MAX]);
    let offset = || prop_oneof![4 => 0..5000_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    prop_oneof![
        (offset(), length()).prop_map(|(offset, length)| Sgl::InCapsule { offset, length }),
        (offset(), length(), any::<u32>(), any::<bool>()).prop_map(|(address, length, key, invalidate)| {
            Sgl::Keyed { address, length: length % (1 << 24), key, invalidate }
        }),
        length().prop_map(|length| Sgl::Transport { length }),
        any::<[u8; 16]>().prop_map(Sgl::Other),
    ]
}

/// Messages whose command is mostly known, and whose descriptor mostly is not.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![
        6 => prop::sample::select(vec![0x00_u8, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0d, 0x7f]),
        1 => any::<u8>(),
    ];
    let data_bytes = prop::sample::select(vec![0_usize, 16, 512, 4096, 8192]);
    (opcode, 0..8_u16, 0..4_u32, 0..9_u32, sgls(), data_bytes).prop_map(
        |(opcode, cid, nsid, blocks, sgl, data_bytes)| {
            let sqe = command(IoOpcode(opcode), cid, 0, blocks.max(1), IoFlags::NONE);
            message(&Sqe { nsid, sgl, ..sqe }, data_bytes)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_executed_of_any_capsules_has_its_data_where_the_device_may_move_them(
        messages in prop::collection::vec(messages(), 0..40),
        garbage in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let (_, mut queue) = queue();
        for message in messages.iter().chain([&garbage]) {
            // A queue that has ended takes nothing more.
            if matches!(take(&mut queue, message), Some(Ok(Action::Disconnect(_)) | Err(_))) {
                break;
            }
        }
        prop_assert!(queue.outstanding() <= 128);
    }
}
