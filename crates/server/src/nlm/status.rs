//! Errors of the state, of stores and of handles, in statuses of NLM.

use crate::export::OpenError;
use nlm::Status;
use state::Error;

/// A handle that opens nothing.
pub(super) const fn of_open(error: OpenError) -> Status {
    match error {
        OpenError::Handle(_) => Status::STALE_FH,
        OpenError::NotAdmitted => Status::FAILED,
    }
}

pub(super) const fn of_store(status: fs::Status) -> Status {
    match status {
        fs::Status::Stale | fs::Status::BadHandle => Status::STALE_FH,
        _ => Status::FAILED,
    }
}

/// NLM has no status for "later". A client that is told of a grace period waits some seconds and
/// asks again, which is what is wanted.
pub(super) const fn of_state(error: &Error) -> Status {
    match error {
        Error::Grace | Error::Delay | Error::Busy => Status::DENIED_GRACE_PERIOD,
        // What was reclaimed too late, or by nobody who had it, is not locked.
        Error::Denied(_) | Error::NoGrace | Error::ReclaimBad => Status::DENIED,
        Error::Full(_)
        | Error::ClientLimit(_)
        | Error::PeerLimit(_)
        | Error::HostLimit
        | Error::NotRecorded => Status::DENIED_NOLOCKS,
        Error::Invalid(_) => Status::FBIG,
        _ => Status::FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_as_a_grace_period_and_what_does_not_is_final() {
        for error in [Error::Grace, Error::Busy, Error::Delay] {
            assert_eq!(of_state(&error), Status::DENIED_GRACE_PERIOD, "{error}");
        }
        assert_eq!(of_state(&Error::HostLimit), Status::DENIED_NOLOCKS);
        assert_eq!(of_state(&Error::ReclaimBad), Status::DENIED);
        assert_eq!(of_state(&Error::TooLong("a name", 9)), Status::FAILED);
    }
}
