//! Replies to calls that an earlier session may have executed already.
//!
//! Within a session a server answers a repeated call as it answered the original. Only where the
//! session was lost, as by a restart, or where the server did not keep the reply that it was asked
//! to keep, a call is made again as a new one, and finds what the original did. What that means is
//! as in version 3: a name that was to be removed and is gone is as intended; a name that was to be
//! created and exists may belong to another client.

use ::nfs4::{Operation, Status};

use super::operations::removed_before;
use crate::statistics::Replays;

/// Corrects the kept results of a call that may have been executed before.
pub(crate) fn reconcile(operation: Operation, results: &mut Vec<u8>, replays: &mut Replays) {
    let Some(head) = results.first_chunk::<4>() else { return };
    match (operation, Status(u32::from_be_bytes(*head))) {
        (Operation::Remove, Status::NOENT) => {
            *results = removed_before();
            replays.reconciled += 1;
        }
        (Operation::RemoveXattr, Status::NOXATTR) => {
            *results = super::xattrs::removed_before();
            replays.reconciled += 1;
        }
        (Operation::Open | Operation::Create | Operation::Link | Operation::SetXattr, Status::EXIST)
        | (Operation::Rename, Status::NOENT)
        | (Operation::SetAttr, Status::NOT_SAME) => replays.undecided += 1,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Procedure;
    use crate::protocol::nfs4::operations;

    fn after(operation: Operation, status: Status) -> (Vec<u8>, Replays) {
        let mut replays = Replays::default();
        let mut results = status.0.to_be_bytes().to_vec();
        results.extend([0; 8]);
        reconcile(operation, &mut results, &mut replays);
        (results, replays)
    }

    #[test]
    fn a_name_that_is_gone_when_its_removal_is_repeated_was_removed() {
        let (results, replays) = after(Operation::Remove, Status::NOENT);
        assert_eq!(replays, Replays { reconciled: 1, ..Replays::default() });
        let directory = fs::FileHandle::EMPTY;
        for removal in [operations::remove(1, directory, b"name"), operations::rmdir(1, directory, b"name")] {
            let (request, reading) = removal.into_parts();
            assert_eq!(request.procedure(), Procedure::Nfs4(Operation::Remove));
            assert!(reading.read(&results).is_ok());
        }
        assert_eq!(after(Operation::Remove, Status::ACCESS).1, Replays::default());
        let (results, replays) = after(Operation::RemoveXattr, Status::NOXATTR);
        assert_eq!(replays, Replays { reconciled: 1, ..Replays::default() });
        let (_, reading) = super::super::xattrs::remove(2, directory, b"name").into_parts();
        assert!(reading.read(&results).is_ok());
        assert_eq!(after(Operation::GetXattr, Status::NOXATTR).1, Replays::default());
    }

    #[test]
    fn a_name_that_exists_when_its_creation_is_repeated_may_belong_to_another_client() {
        let undecided = Replays { undecided: 1, ..Replays::default() };
        for operation in [Operation::Open, Operation::Create, Operation::Link, Operation::SetXattr] {
            assert_eq!(after(operation, Status::EXIST).1, undecided);
        }
        assert_eq!(after(Operation::Rename, Status::NOENT).1, undecided);
        assert_eq!(after(Operation::SetAttr, Status::NOT_SAME).1, undecided);
        assert_eq!(after(Operation::Lookup, Status::NOENT).1, Replays::default());
    }

    #[test]
    fn results_too_short_for_a_status_cause_no_panic() {
        reconcile(Operation::Remove, &mut vec![0, 0, 2], &mut Replays::default());
    }
}
