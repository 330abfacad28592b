//! Tests what is answered to a server's calls, good, bad and hostile ones.

use super::*;
use fs::FileHandle;
use nfs4::cb::{Args, Back, Operation, layout, notify, recall, sequence};
use nfs4::compound::{ReplyReader, RequestWriter};
use nfs4::op::layout::IoMode;
use nfs4::{Array, Bitmap, ClientId, OwnerId, SessionId, StateOwner, Stateid, Status};
use proptest::prelude::*;
use rpc::Xid;
use rpc::reply::Body;
use std::sync::{Arc, Mutex};

const SESSION: SessionId = SessionId([7; 16]);
const MINOR: u32 = 2;

struct Client {
    slots: BackSlots,
    call_backs: CallBacks,
}

impl Client {
    fn new() -> Self {
        Self { slots: BackSlots::new(4), call_backs: CallBacks::default() }
    }

    fn answer(&self, record: &[u8]) -> Option<Vec<u8>> {
        let (slots, call_backs) = (&self.slots, &self.call_backs);
        answer(record, &Host { session: SESSION, minor: MINOR, slots, call_backs })
    }

    /// How a call is accepted, and its results.
    fn accepted(&self, record: &[u8]) -> (Body, Vec<u8>) {
        let reply = self.answer(record).expect("an answer");
        let mut reader = Reader::new(&reply);
        let head = rpc::reply::decode(&mut reader).expect("a reply");
        assert_eq!(head.xid, Xid(5));
        (head.body, reader.rest().to_vec())
    }

    /// The status of the compound, and the number of its results.
    fn outcome(&self, compound: &[u8]) -> (Status, u32) {
        let (body, results) = self.accepted(&call(PROGRAM, 1, 1, compound));
        assert_eq!(body, Body::Accepted(Accept::Success));
        let reader = ReplyReader::<Back>::new(&results).expect("results");
        (reader.status, reader.results)
    }
}

fn call(program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let (mut none, mut out) = (Vec::new(), Vec::new());
    rpc::auth::encode_none(&mut Writer::new(&mut none));
    rpc::call::encode(&mut Writer::new(&mut out), Xid(5), program, version, procedure, &none);
    out.extend_from_slice(args);
    out
}

fn compound(minor: u32, operations: &[Args<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RequestWriter::<Back>::new(&mut out, b"tag", minor, 0);
    for operation in operations {
        writer.push(operation);
    }
    writer.finish();
    out
}

fn in_slot(slot: u32, sequence: u32) -> Args<'static> {
    let (session, referring) = (SESSION, Array::default());
    Args::Sequence(sequence::Args { session, sequence, slot, highest_slot: slot, cache: false, referring })
}

fn file() -> FileHandle {
    FileHandle::new(b"file").unwrap()
}

fn recall() -> Args<'static> {
    Args::Recall(recall::Args { delegation: Stateid::default(), truncate: false, file: file() })
}

// RFC 5531 s9
#[test]
fn calls_of_other_programs_versions_and_procedures_are_refused() {
    let client = Client::new();
    for (program, version, procedure, accept) in [
        (nfs4::PROGRAM, 4, 1, Accept::ProgUnavail),
        (PROGRAM, 4, 1, Accept::ProgMismatch { low: 1, high: 1 }),
        (PROGRAM, 1, 2, Accept::ProcUnavail),
        (PROGRAM, 1, 1, Accept::GarbageArgs),
        (PROGRAM, 1, 0, Accept::Success),
    ] {
        let (body, results) = client.accepted(&call(program, version, procedure, &[]));
        assert_eq!((body, results), (Body::Accepted(accept), Vec::new()));
    }
    let mut other_rpc = call(PROGRAM, 1, 0, &[]);
    other_rpc[11] = 3;
    assert_eq!(client.accepted(&other_rpc).0, Body::Rejected(Reject::RPC_VERSION));
    let mut other_flavor = call(PROGRAM, 1, 0, &[]);
    other_flavor[27] = 6;
    assert_eq!(client.accepted(&other_flavor).0, Body::Rejected(Reject::Auth(AuthStat::REJECTEDCRED)));
}

#[test]
fn a_call_that_ends_within_its_header_has_no_answer() {
    let client = Client::new();
    let whole = call(PROGRAM, 1, 0, &[]);
    for len in 0..whole.len() {
        assert_eq!(client.answer(&whole[..len]), None, "{len} bytes");
    }
    assert!(client.answer(&whole).is_some());
}

// RFC 8881 s20.9, s19.2.3
#[test]
fn every_call_begins_with_its_slot() {
    let client = Client::new();
    assert_eq!(client.outcome(&compound(MINOR, &[])), (Status::OK, 0));
    assert_eq!(client.outcome(&compound(MINOR, &[recall()])), (Status::OP_NOT_IN_SESSION, 1));
    let mismatch = compound(1, &[in_slot(0, 1)]);
    assert_eq!(client.outcome(&mismatch), (Status::MINOR_VERS_MISMATCH, 0));
    let other = SessionId([8; 16]);
    let Args::Sequence(args) = in_slot(0, 1) else { panic!() };
    let other = compound(MINOR, &[Args::Sequence(sequence::Args { session: other, ..args })]);
    assert_eq!(client.outcome(&other), (Status::BADSESSION, 1));
    let twice = compound(MINOR, &[in_slot(0, 1), in_slot(0, 2)]);
    assert_eq!(client.outcome(&twice), (Status::SEQUENCE_POS, 2));
    assert_eq!(client.outcome(&compound(MINOR, &[in_slot(0, 3)])), (Status::SEQ_MISORDERED, 1));
    assert_eq!(client.outcome(&compound(MINOR, &[in_slot(4, 1)])), (Status::BADSLOT, 1));
}

#[test]
fn calls_beyond_what_the_session_allows_are_refused_before_anything_is_done() {
    let client = Client::new();
    let many = [&[in_slot(0, 1)][..], &vec![recall(); OPERATIONS_MAX as usize]].concat();
    assert_eq!(client.outcome(&compound(MINOR, &many)), (Status::TOO_MANY_OPS, 1));
    let mut long = compound(MINOR, &[in_slot(0, 1)]);
    long.resize(BYTES_MAX as usize, 0);
    assert_eq!(client.outcome(&long), (Status::REQ_TOO_BIG, 1));
    assert_eq!(client.outcome(&compound(MINOR, &[in_slot(0, 1)])), (Status::OK, 1), "the slot is unused");
}

// RFC 8881 s2.10.6.1.3
#[test]
fn a_call_that_is_sent_again_is_answered_with_the_same_bytes_and_done_once() {
    let client = Client::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    client.call_backs.listen_for_locks(move |file| tells.lock().unwrap().push(file));
    let owner = StateOwner { client: ClientId(1), owner: OwnerId::new(b"owner").unwrap() };
    let notify = Args::NotifyLock(notify::LockArgs { file: file(), owner });
    let asked = call(PROGRAM, 1, 1, &compound(MINOR, &[in_slot(1, 1), notify]));
    let [first, again] = [client.answer(&asked), client.answer(&asked)];
    assert_eq!(first, again);
    assert_eq!(*told.lock().unwrap(), [file()]);
    let other = compound(MINOR, &[in_slot(1, 1), recall()]);
    assert_eq!(client.outcome(&other), (Status::SEQ_FALSE_RETRY, 1));
}

// RFC 8881 s20
#[test]
fn each_operation_is_answered_as_by_a_client_that_has_no_such_state() {
    let client = Client::new();
    let any = |kinds: &[u32]| recall::AnyArgs { keep: 0, kinds: Bitmap::of(kinds) };
    let layouts = layout::RecallArgs {
        layout_type: 1,
        mode: IoMode::ReadWrite,
        changed: false,
        recalled: layout::Recalled::All,
    };
    let changes = Array::default();
    let notified = notify::Args { delegation: Stateid::default(), directory: file(), changes };
    let wants = recall::WantsCancelledArgs { contended: true, resourced: true };
    for (sequence, (asked, expected)) in (1..).zip([
        (Args::GetAttr(recall::GetAttrArgs { file: file(), wanted: Bitmap::of(&[3]) }), Status::BADHANDLE),
        (recall(), Status::BAD_STATEID),
        (Args::LayoutRecall(layouts), Status::NOMATCHING_LAYOUT),
        (Args::Notify(notified), Status::NOTSUPP),
        (Args::RecallAny(any(&[0, 3])), Status::OK),
        (Args::RecallAny(any(&[0, 40])), Status::INVAL),
        (Args::RecallableObjAvail(any(&[0])), Status::OK),
        (Args::RecallSlot(recall::SlotArgs { target_highest_slot: 3 }), Status::OK),
        (Args::WantsCancelled(wants), Status::NOTSUPP),
        (Args::NotifyDeviceId(notify::DeviceIdArgs { changes }), Status::NOTSUPP),
    ]) {
        let compound = compound(MINOR, &[in_slot(0, sequence), asked]);
        let (_, results) = client.accepted(&call(PROGRAM, 1, 1, &compound));
        let mut reader = ReplyReader::<Back>::new(&results).expect("results");
        reader.expect::<nfs4::cb::kind::Sequence>().expect("its result").expect("success");
        assert_eq!((reader.status, reader.results), (expected, 2), "{asked:?}");
        // Each result has the number of its operation.
        let at = results.len() - 8;
        let number = u32::from_be_bytes(results[at..at + 4].try_into().unwrap());
        assert_eq!(Operation::of(number, MINOR), Some(asked.operation()), "{asked:?}");
    }
    let mut seen = 0;
    assert_eq!(client.slots.recalled_since(&mut seen), Some(3));
}

#[test]
fn a_number_that_no_version_has_is_illegal() {
    let client = Client::new();
    let mut unknown = compound(MINOR, &[in_slot(0, 1), recall()]);
    // The number of the second operation follows the tag, three words and CB_SEQUENCE.
    let at = unknown.len() - (4 + 16 + 4 + 8);
    unknown[at..at + 4].copy_from_slice(&77_u32.to_be_bytes());
    assert_eq!(client.outcome(&unknown), (Status::OP_ILLEGAL, 2));
}

proptest! {
    /// Whatever a server sends, the answer is bounded, and the slots go on.
    #[test]
    fn no_call_breaks_the_client(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        cut in 0_usize..200,
        at in 0_usize..200,
        flip in any::<u8>(),
    ) {
        let client = Client::new();
        let sound = call(PROGRAM, 1, 1, &compound(MINOR, &[in_slot(0, 1), recall()]));
        let mut bent = sound.clone();
        bent.truncate(sound.len().saturating_sub(cut));
        if let Some(byte) = bent.get_mut(at) {
            *byte = flip;
        }
        for record in [&bytes[..], &bent, &call(PROGRAM, 1, 1, &bytes)] {
            if let Some(reply) = client.answer(record) {
                prop_assert!(reply.len() <= BYTES_MAX as usize);
            }
        }
        for slot in 1..4 {
            prop_assert_eq!(client.outcome(&compound(MINOR, &[in_slot(slot, 7)])).0, Status::SEQ_MISORDERED);
        }
    }
}
