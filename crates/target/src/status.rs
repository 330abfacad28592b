//! Which NVMe status a fault of a volume is. NVMe Base, "Status Field Definition".

use nvme::Status;
use volumes::Fault;

/// The statuses of a fused Compare and Write that failed: of the first half and of the second one.
/// NVM Command Set, "Fused Operation"
pub(crate) const fn of_fault_of_pair(fault: Fault) -> (Status, Status) {
    match fault {
        Fault::Miscompare { .. } | Fault::Unread(_) => (of_fault(fault, false), Status::FAILED_FUSED),
        Fault::Cancelled => (of_fault(fault, true), of_fault(fault, true)),
        // The blocks did hold what was expected.
        Fault::Drive(_) => (Status::SUCCESS, of_fault(fault, true)),
    }
}

/// The status of a command that failed. DNR where a repetition would fail as well.
pub(crate) const fn of_fault(fault: Fault, writes: bool) -> Status {
    match fault {
        Fault::Miscompare { .. } => Status::COMPARE_FAILURE.no_retry(),
        // A comparison reads, also where a write depends on it.
        Fault::Unread(fault) => of_fault(Fault::Drive(fault), false),
        Fault::Cancelled => Status::ABORT_REQUESTED,
        Fault::Drive(drives::Fault::NoSpace) => Status::CAPACITY_EXCEEDED.no_retry(),
        Fault::Drive(drives::Fault::Medium) if writes => Status::WRITE_FAULT.no_retry(),
        Fault::Drive(drives::Fault::Medium) => Status::UNRECOVERED_READ_ERROR.no_retry(),
        Fault::Drive(drives::Fault::Gone) => Status::INTERNAL_ERROR.no_retry(),
        Fault::Drive(drives::Fault::ReadOnly) => Status::NAMESPACE_WRITE_PROTECTED.no_retry(),
        Fault::Drive(drives::Fault::Io(_)) => Status::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_medium_is_told_apart_for_reads_and_writes() {
        let medium = Fault::Drive(drives::Fault::Medium);
        assert!(of_fault(medium, true).is(Status::WRITE_FAULT));
        assert!(of_fault(medium, false).is(Status::UNRECOVERED_READ_ERROR));
        assert!(of_fault(Fault::Drive(drives::Fault::NoSpace), true).dnr());
        assert!(!of_fault(Fault::Cancelled, true).dnr(), "nothing was done, so it may be sent again");
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
