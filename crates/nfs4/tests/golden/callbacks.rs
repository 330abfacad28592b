//! Callbacks.

use crate::support::{callback, callback_reply};
use fs::{FileHandle, Stability};
use nfs4::cb::{Args, Reply, layout, notify, offload, recall, sequence};
use nfs4::op::copy::WriteResponse;
use nfs4::op::layout::IoMode;
use nfs4::op::open::{Delegation, NoDelegation};
use nfs4::{
    Array, Attributes, Bitmap, ClientId, Fattr, Fsid, OwnerId, Range, SessionId, StateOwner, Stateid, Status,
};

const STATEID: Stateid = Stateid { seqid: 3, other: *b"abcdefghijkl" };
/// The bytes of [`STATEID`].
const S: &str = "00000003 'abcdefghijkl'";
const SESSION: SessionId = SessionId(*b"session-id-0123.");

fn file() -> FileHandle {
    FileHandle::new(b"fh-01").unwrap()
}

/// The bytes of [`file`].
const F: &str = "00000005 'fh-01' 000000";

// RFC 8881 s20.1, s20.2
#[test]
fn getattr_and_recall() {
    let wanted = Bitmap::of(&[3, 4]);
    callback(
        Args::GetAttr(recall::GetAttrArgs { file: file(), wanted }),
        &format!("{F} 00000001 00000018 # fh, attr_request"),
    );
    let values = Attributes { change: Some(5), size: Some(6), ..Attributes::default() };
    callback_reply(
        Reply::GetAttr(Ok(recall::GetAttrSuccess { attributes: Fattr::all(&values) })),
        "00000000 00000001 00000018 00000010 0000000000000005 0000000000000006 # obj_attributes",
    );
    callback_reply(Reply::GetAttr(Err(Status::BADHANDLE)), "00002711 # NFS4ERR_BADHANDLE, 10001");
    callback(
        Args::Recall(recall::Args { delegation: STATEID, truncate: true, file: file() }),
        &format!("{S} 00000001 {F} # stateid, truncate, fh"),
    );
    callback_reply(Reply::Recall(Ok(())), "00000000");
}

// RFC 8881 s20.3
#[test]
fn layoutrecall() {
    let range = Range { offset: 0, length: u64::MAX };
    let recalled = [
        (
            layout::Recalled::File { file: file(), range, stateid: STATEID },
            format!("00000001 {F} 0000000000000000 ffffffffffffffff {S} # LAYOUTRECALL4_FILE"),
        ),
        (
            layout::Recalled::FileSystem(Fsid { major: 1, minor: 2 }),
            "00000002 0000000000000001 0000000000000002 # LAYOUTRECALL4_FSID".to_owned(),
        ),
        (layout::Recalled::All, "00000003 # LAYOUTRECALL4_ALL".to_owned()),
    ];
    for (recalled, text) in recalled {
        let args = layout::RecallArgs { layout_type: 1, mode: IoMode::Any, changed: false, recalled };
        callback(
            Args::LayoutRecall(args),
            &format!("00000001 00000003 00000000 # clora_type, clora_iomode, clora_changed\n{text}"),
        );
    }
    callback_reply(
        Reply::LayoutRecall(Err(Status::NOMATCHING_LAYOUT)),
        "0000274c # NFS4ERR_NOMATCHING_LAYOUT, 10060",
    );
}

// RFC 8881 s20.4, s20.11, s20.12
#[test]
fn notifications() {
    let changes = [notify::Notification { kinds: Bitmap::of(&[2]), values: b"body" }];
    let text = "00000001 00000001 00000004 00000004 'body' # notify_mask, notify_vals";
    let changes = Array::from(&changes);
    callback(
        Args::Notify(notify::Args { delegation: STATEID, directory: file(), changes }),
        &format!("{S} {F} {text}"),
    );
    callback_reply(Reply::Notify(Ok(())), "00000000");
    callback(Args::NotifyDeviceId(notify::DeviceIdArgs { changes }), text);
    callback_reply(Reply::NotifyDeviceId(Ok(())), "00000000");
    let owner = StateOwner { client: ClientId(7), owner: OwnerId::new(b"owner").unwrap() };
    callback(
        Args::NotifyLock(notify::LockArgs { file: file(), owner }),
        &format!("{F} 0000000000000007 00000005 'owner' 000000 # cnla_fh, cnla_lock_owner"),
    );
    callback_reply(Reply::NotifyLock(Ok(())), "00000000");
}

// RFC 8881 s20.5 to s20.8, s20.10
#[test]
fn what_may_be_kept() {
    let delegation = Delegation::NoneBecause(NoDelegation::CANCELLED);
    callback(
        Args::PushDeleg(recall::PushArgs { file: file(), delegation }),
        &format!("{F} 00000003 00000007 # cpda_fh, cpda_delegation"),
    );
    callback_reply(Reply::PushDeleg(Err(Status::REJECT_DELEG)), "00002765 # NFS4ERR_REJECT_DELEG, 10085");
    let any = recall::AnyArgs { keep: 4, kinds: Bitmap::of(&[recall::any::READ_DELEGATIONS]) };
    let text = "00000004 00000001 00000001 # craa_objects_to_keep, craa_type_mask";
    callback(Args::RecallAny(any), text);
    callback_reply(Reply::RecallAny(Ok(())), "00000000");
    callback(Args::RecallableObjAvail(any), text);
    callback_reply(Reply::RecallableObjAvail(Ok(())), "00000000");
    callback(Args::RecallSlot(recall::SlotArgs { target_highest_slot: 15 }), "0000000f");
    callback_reply(Reply::RecallSlot(Ok(())), "00000000");
    callback(
        Args::WantsCancelled(recall::WantsCancelledArgs { contended: true, resourced: false }),
        "00000001 00000000",
    );
    callback_reply(Reply::WantsCancelled(Ok(())), "00000000");
}

// RFC 8881 s20.9
#[test]
fn cb_sequence() {
    let calls = [sequence::ReferringCall { sequence: 1, slot: 2 }];
    let referring = [sequence::ReferringCalls { session: SESSION, calls: Array::from(&calls) }];
    let args = sequence::Args {
        session: SESSION,
        sequence: 3,
        slot: 0,
        highest_slot: 1,
        cache: false,
        referring: Array::from(&referring),
    };
    callback(
        Args::Sequence(args),
        "'session-id-0123.' # csa_sessionid
         00000003 # csa_sequenceid
         00000000 # csa_slotid
         00000001 # csa_highest_slotid
         00000000 # csa_cachethis
         00000001 'session-id-0123.' # csa_referring_call_lists
         00000001 00000001 00000002 # rcl_referring_calls",
    );
    let success = sequence::Success {
        session: SESSION,
        sequence: 3,
        slot: 0,
        highest_slot: 15,
        target_highest_slot: 7,
    };
    callback_reply(
        Reply::Sequence(Ok(success)),
        "00000000 # status
         'session-id-0123.' # csr_sessionid
         00000003 00000000 # csr_sequenceid, csr_slotid
         0000000f 00000007 # csr_highest_slotid, csr_target_highest_slotid",
    );
}

// RFC 7862 s16.1
#[test]
fn cb_offload() {
    let response =
        WriteResponse { callback_id: None, count: 9, committed: Stability::FileSync, verifier: *b"verifier" };
    callback(
        Args::Offload(offload::Args { file: file(), copy: STATEID, ended: offload::Ended::Done(response) }),
        &format!("{F} {S} 00000000 00000000 0000000000000009 00000002 'verifier' # coa_resok4"),
    );
    let failed = offload::Ended::Failed { status: Status::NOSPC, count: 5 };
    callback(
        Args::Offload(offload::Args { file: file(), copy: STATEID, ended: failed }),
        &format!("{F} {S} 0000001c 0000000000000005 # coa_bytes_copied"),
    );
    callback_reply(Reply::Offload(Ok(())), "00000000");
}
