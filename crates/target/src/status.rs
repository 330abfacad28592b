//! Which NVMe status a fault of a volume is. NVMe Base, "Status Field Definition".

use nvme::Status;
use volumes::Fault;

/// The status of a command that failed. DNR where a repetition would fail as well.
pub(crate) const fn of_fault(fault: Fault, writes: bool) -> Status {
    match fault {
        Fault::Miscompare { .. } => Status::COMPARE_FAILURE.no_retry(),
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
}
