//! The statuses of stores, handles and the state of clients, as NFS version 4 has them. RFC 8881
//! s15.1

use crate::request::{HandlerError, TargetError};
use nfs4::Status;
use state::{Error, Kind};
use store::WouldBlock;

/// The status of an operation that the state of the clients refuses.
pub(super) const fn of_state(error: &Error) -> Status {
    match error {
        Error::Damaged(_) | Error::HostLimit => Status::SERVERFAULT,
        Error::Busy | Error::InProgress | Error::Delay | Error::NotRecorded => Status::DELAY,
        // For opens there is a status; who is to come or to lock can only try again later.
        Error::Full(Kind::Owner | Kind::File | Kind::Open) => Status::NOSPC,
        Error::Full(_) | Error::PeerLimit(Kind::Client | Kind::Session | Kind::Chunk) => Status::DELAY,
        Error::ClientLimit(Kind::Session) => Status::NOSPC,
        Error::ClientLimit(_) | Error::PeerLimit(_) => Status::DQUOT,
        Error::TooLong(..) | Error::Invalid(_) => Status::INVAL,
        Error::ClientIdInUse => Status::CLID_INUSE,
        Error::ClientIdBusy => Status::CLIENTID_BUSY,
        Error::StaleClientId => Status::STALE_CLIENTID,
        Error::NoClient => Status::NOENT,
        Error::NotSame => Status::NOT_SAME,
        Error::NotPermitted => Status::PERM,
        Error::WrongCredential => Status::WRONG_CRED,
        Error::BadSession => Status::BADSESSION,
        Error::BadSlot => Status::BADSLOT,
        Error::SeqMisordered => Status::SEQ_MISORDERED,
        Error::SeqFalseRetry => Status::SEQ_FALSE_RETRY,
        Error::TooSmall => Status::TOOSMALL,
        Error::CompleteAlready => Status::COMPLETE_ALREADY,
        // Of an earlier start, which the session tells by itself: RFC 8881 s15.1.16.5
        Error::BadStateId | Error::StaleStateId => Status::BAD_STATEID,
        Error::OldStateId => Status::OLD_STATEID,
        Error::Expired => Status::EXPIRED,
        Error::DelegationRevoked => Status::DELEG_REVOKED,
        Error::ShareDenied => Status::SHARE_DENIED,
        Error::OpenMode => Status::OPENMODE,
        Error::Denied(_) => Status::DENIED,
        Error::LocksHeld => Status::LOCKS_HELD,
        Error::Grace => Status::GRACE,
        Error::NoGrace => Status::NO_GRACE,
        Error::ReclaimBad => Status::RECLAIM_BAD,
    }
}

/// The status of an operation on an object that does not open.
pub(super) const fn of_target(error: TargetError) -> Status {
    match error {
        TargetError::Auth(_) => Status::WRONGSEC,
        TargetError::Status(status) => Status::from_fs(status),
        TargetError::WouldBlock => Status::DELAY,
    }
}

/// The status of a call of a store that was not made.
pub(super) const fn of_handler(error: HandlerError) -> Status {
    match error {
        HandlerError::Auth(_) => Status::WRONGSEC,
        HandlerError::WouldBlock => Status::DELAY,
    }
}

/// A compound runs only where it may wait, so no store says this.
pub(super) const fn of_wait(_: WouldBlock) -> Status {
    Status::DELAY
}
