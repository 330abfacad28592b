//! The table of callbacks, which servers ask of clients, RFC 8881 s20, RFC 7862 s16; their
//! arguments and results.

use crate::table::{Outcome, operations};

pub mod layout;
pub mod notify;
pub mod offload;
pub mod recall;
pub mod sequence;

operations! {
    /// `nfs_cb_opnum4`: a callback of version 4.1 or 4.2. RFC 8881 s20, RFC 7862 s16
    Operation of Back;
    decoded {
        /// Returns the attributes of a file whose data the client holds.
        GetAttr = 3, "CB_GETATTR", 0, Metadata, Nothing, [recall::GetAttrArgs], [recall::GetAttrReply<'a>];
        /// Recalls a delegation.
        Recall = 4, "CB_RECALL", 0, Metadata, Repeatable, [recall::Args], [recall::Reply];
        /// Recalls layouts.
        LayoutRecall = 5, "CB_LAYOUTRECALL", 1, Metadata, Repeatable, [layout::RecallArgs], [layout::Reply];
        /// Tells of changes of a directory.
        Notify = 6, "CB_NOTIFY", 1, Metadata, Repeatable, [notify::Args<'a>], [notify::Reply];
        /// Gives a delegation that was wanted.
        PushDeleg = 7, "CB_PUSH_DELEG", 1, Metadata, Changes, [recall::PushArgs<'a>], [recall::Reply];
        /// Recalls some of the client's state, of whatever files.
        RecallAny = 8, "CB_RECALL_ANY", 1, Metadata, Repeatable, [recall::AnyArgs], [recall::Reply];
        /// Says that there is room for more state again.
        RecallableObjAvail = 9, "CB_RECALLABLE_OBJ_AVAIL", 1, Metadata, Repeatable,
            [recall::AnyArgs], [recall::Reply];
        /// Recalls slots of the session.
        RecallSlot = 10, "CB_RECALL_SLOT", 1, Metadata, Repeatable, [recall::SlotArgs], [recall::Reply];
        /// Takes a slot of the session's back channel.
        Sequence = 11, "CB_SEQUENCE", 1, Metadata, Nothing, [sequence::Args<'a>], [sequence::Reply];
        /// Says that delegations that were wanted will not be given.
        WantsCancelled = 12, "CB_WANTS_CANCELLED", 1, Metadata, Repeatable,
            [recall::WantsCancelledArgs], [recall::Reply];
        /// Says that a lock may be free.
        NotifyLock = 13, "CB_NOTIFY_LOCK", 1, Metadata, Repeatable, [notify::LockArgs<'a>], [notify::Reply];
        /// Tells of changes of devices.
        NotifyDeviceId = 14, "CB_NOTIFY_DEVICEID", 1, Metadata, Repeatable,
            [notify::DeviceIdArgs<'a>], [notify::Reply];
        /// Says how a copy ended.
        Offload = 15, "CB_OFFLOAD", 2, Metadata, Changes, [offload::Args], [offload::Reply];
    }
    known {}
    helpers { args_payload: args_payload, reply_payload: reply_payload, is_callback: true }
}

/// Callbacks carry no payload.
const fn args_payload(_: &Args<'_>) -> Option<u32> {
    None
}

const fn reply_payload(_: &Reply<'_>) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s20, RFC 7862 s16.1
    #[test]
    fn callbacks_are_numbered_from_3_and_the_last_is_of_version_4_2() {
        assert_eq!(
            Operation::ALL.iter().map(|one| one.number()).collect::<Vec<_>>(),
            (3..=15).collect::<Vec<_>>()
        );
        assert_eq!(Operation::of(15, 1), None);
        assert_eq!(Operation::of(15, 2), Some(Operation::Offload));
        assert_eq!(Operation::of(16, 2), None);
    }
}
