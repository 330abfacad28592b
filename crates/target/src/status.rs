//! Which NVMe status a fault of a volume is. NVMe Base, "Status Field Definition".

use nvme::Status;
use volumes::Fault;

/// The statuses of a fused Compare and Write that failed: of the first half and of the second one.
/// NVM Command Set, "Fused Operation"
pub(crate) const fn of_fault_of_pair(fault: Fault) -> (Status, Status) {
    match fault {
        Fault::Miscompare { .. } | Fault::Unread(_) => (of_fault(fault, Kind::Read), Status::FAILED_FUSED),
        Fault::Cancelled => (of_fault(fault, Kind::Change), of_fault(fault, Kind::Change)),
        // The blocks did hold what was expected.
        Fault::Drive(_) => (Status::SUCCESS, of_fault(fault, Kind::Change)),
    }
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Change,
    /// What others have written was to become durable.
    Flush,
}

/// The status of a command that failed. DNR where a repetition would fail as well, or would succeed
/// and be wrong: a drive or a file system that could not write what it had reports that once.
pub(crate) const fn of_fault(fault: Fault, kind: Kind) -> Status {
    match fault {
        Fault::Miscompare { .. } => Status::COMPARE_FAILURE.no_retry(),
        // A comparison reads, also where a write depends on it.
        Fault::Unread(fault) => of_fault(Fault::Drive(fault), Kind::Read),
        Fault::Cancelled => Status::ABORT_REQUESTED,
        Fault::Drive(drives::Fault::NoSpace) => Status::CAPACITY_EXCEEDED.no_retry(),
        Fault::Drive(drives::Fault::Medium) => match kind {
            Kind::Read => Status::UNRECOVERED_READ_ERROR.no_retry(),
            Kind::Change | Kind::Flush => Status::WRITE_FAULT.no_retry(),
        },
        Fault::Drive(drives::Fault::Gone) => Status::INTERNAL_ERROR.no_retry(),
        Fault::Drive(drives::Fault::ReadOnly) => Status::NAMESPACE_WRITE_PROTECTED.no_retry(),
        Fault::Drive(drives::Fault::Io(_)) => match kind {
            Kind::Flush => Status::INTERNAL_ERROR.no_retry(),
            Kind::Read | Kind::Change => Status::INTERNAL_ERROR,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_medium_is_told_apart_for_reads_and_writes() {
        let medium = Fault::Drive(drives::Fault::Medium);
        assert!(of_fault(medium, Kind::Change).is(Status::WRITE_FAULT));
        assert!(of_fault(medium, Kind::Read).is(Status::UNRECOVERED_READ_ERROR));
        assert!(of_fault(Fault::Drive(drives::Fault::NoSpace), Kind::Change).dnr());
        assert!(!of_fault(Fault::Cancelled, Kind::Flush).dnr(), "nothing was done, so it may be sent again");
        let failed = Fault::Drive(drives::Fault::Io(5));
        assert!(!of_fault(failed, Kind::Change).dnr());
        assert!(of_fault(failed, Kind::Flush).dnr(), "the next one may succeed without what is lost");
    }

    #[test]
    fn the_halves_of_a_pair_tell_which_of_them_has_failed() {
        let medium = drives::Fault::Medium;
        for (fault, first, second) in [
            (Fault::Miscompare { at: 0 }, Status::COMPARE_FAILURE, Status::FAILED_FUSED),
            (Fault::Unread(medium), Status::UNRECOVERED_READ_ERROR, Status::FAILED_FUSED),
            (Fault::Drive(medium), Status::SUCCESS, Status::WRITE_FAULT),
            (Fault::Cancelled, Status::ABORT_REQUESTED, Status::ABORT_REQUESTED),
        ] {
            let statuses = of_fault_of_pair(fault);
            assert!(statuses.0.is(first) && statuses.1.is(second), "{fault}: {statuses:?}");
        }
    }
}
