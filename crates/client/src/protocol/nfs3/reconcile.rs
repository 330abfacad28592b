//! Replies to calls that were sent again: what the original may have done.
//!
//! A server that keeps its reply cache answers a replay as it answered the original. A server that
//! has restarted, or that shares no cache with the node that received the original, executes the
//! call again, and finds the effect of the original. A name that was to be removed and is gone is
//! as intended. A name that was to be created and exists may belong to another client, which took
//! it as a lock: reporting success would give the lock to two clients. RFC 1813 s4.5

use nfs3::{Procedure, Status};

use crate::statistics::Replays;

/// Corrects the results of a call that was sent more than once. The results begin with their
/// status.
pub(crate) fn reconcile(procedure: Procedure, results: &mut [u8], replays: &mut Replays) {
    let Some(head) = results.first_chunk_mut::<4>() else { return };
    match (procedure, Status(u32::from_be_bytes(*head))) {
        (Procedure::Remove | Procedure::RmDir, Status::NOENT) => {
            // On success and failure alike, the attributes of the directory before and after
            // follow. RFC 1813 s3.3.12, s3.3.13
            *head = Status::OK.0.to_be_bytes();
            replays.reconciled += 1;
        }
        (
            Procedure::Create | Procedure::MkDir | Procedure::SymLink | Procedure::MkNod | Procedure::Link,
            Status::EXIST,
        )
        | (Procedure::Rename, Status::NOENT)
        | (Procedure::SetAttr, Status::NOT_SYNC) => replays.undecided += 1,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(procedure: Procedure, status: Status) -> (Status, Replays) {
        let mut replays = Replays::default();
        let mut results = status.0.to_be_bytes().to_vec();
        results.extend([0; 8]);
        reconcile(procedure, &mut results, &mut replays);
        (Status(u32::from_be_bytes(*results.first_chunk().unwrap())), replays)
    }

    // RFC 1813 s3.3.12, s3.3.13
    #[test]
    fn a_name_that_is_gone_when_its_removal_is_repeated_was_removed() {
        for procedure in [Procedure::Remove, Procedure::RmDir] {
            assert_eq!(
                after(procedure, Status::NOENT),
                (Status::OK, Replays { reconciled: 1, ..Replays::default() })
            );
            assert_eq!(after(procedure, Status::ACCES), (Status::ACCES, Replays::default()));
        }
    }

    #[test]
    fn a_name_that_exists_when_its_creation_is_repeated_may_belong_to_another_client() {
        let undecided = Replays { undecided: 1, ..Replays::default() };
        for procedure in [Procedure::Create, Procedure::MkDir, Procedure::SymLink, Procedure::Link] {
            assert_eq!(after(procedure, Status::EXIST), (Status::EXIST, undecided));
        }
        assert_eq!(after(Procedure::Rename, Status::NOENT), (Status::NOENT, undecided));
        assert_eq!(after(Procedure::Lookup, Status::NOENT), (Status::NOENT, Replays::default()));
    }

    #[test]
    fn results_too_short_for_a_status_cause_no_panic() {
        reconcile(Procedure::Remove, &mut [0, 0, 2], &mut Replays::default());
    }
}
