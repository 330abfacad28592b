//! Why an operation was not done. The server maps these to the status codes of its protocols.

use crate::record::Kind;
use thiserror::Error;

/// Why an operation was not done. Nothing has changed, except where a variant says so.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    // The memory.
    /// A value in the arena that is never written there. SERVERFAULT
    #[error("the shared state is damaged ({0}); stop all servers of the group and remove its files")]
    Damaged(&'static str),
    /// A process that holds the lock is stopped, or the recovery records are not loaded yet. DELAY
    #[error("another process of the group holds the lock and is stopped, or has not begun to serve")]
    Busy,
    /// No space for another record of this kind, and no client whose state could be dropped. DELAY
    /// for a session's or a client's record; NOSPC or DQUOT otherwise.
    #[error("no space for another {} (its bound is for all clients together)", .0.name())]
    Full(Kind),
    /// One client may not have more records of this kind. DQUOT, or as for `Full`.
    #[error("this client has as many {}s as one client may have", .0.name())]
    ClientLimit(Kind),
    /// The clients of one address may not have more records of this kind. As for `ClientLimit`, or
    /// for `Full`.
    #[error("the clients of this address have as many {}s as one address may have", .0.name())]
    PeerLimit(Kind),
    /// As many hosts lock by NLM as may. LCK_DENIED_NOLOCKS
    #[error("as many hosts lock by NLM as may; their number is half of the bound of clients")]
    HostLimit,
    /// Bytes that are longer than they may be. INVAL
    #[error("{0} is longer than {1} bytes")]
    TooLong(&'static str, usize),
    /// An argument that the protocol does not allow. INVAL
    #[error("invalid argument: {0}")]
    Invalid(&'static str),

    // Clients and sessions. RFC 8881 s18.35, s18.36, s18.37, s18.50
    /// The owner has a client id with other credentials. CLID_INUSE
    #[error("the client's owner string is in use by another principal")]
    ClientIdInUse,
    /// The client still has sessions or state. CLIENTID_BUSY
    #[error("the client still has sessions, opens, locks or delegations")]
    ClientIdBusy,
    /// No such client. STALE_CLIENTID
    #[error("no such client id")]
    StaleClientId,
    /// An update of a client that is not confirmed. NOENT
    #[error("no confirmed client has this owner string")]
    NoClient,
    /// An update with another verifier. NOT_SAME
    #[error("the client's verifier is another")]
    NotSame,
    /// An update by another principal. PERM
    #[error("the client belongs to another principal")]
    NotPermitted,
    /// A session or client may be ended only by a principal that made it. WRONG_CRED
    #[error("the session or client belongs to another principal")]
    WrongCredential,
    /// No such session. BADSESSION
    #[error("no such session")]
    BadSession,
    /// No such slot. BADSLOT
    #[error("the session has no such slot")]
    BadSlot,
    /// A sequence id that is neither the last nor the next one. SEQ_MISORDERED
    #[error("sequence id out of order")]
    SeqMisordered,
    /// Another request with the sequence id of the last one. SEQ_FALSE_RETRY
    #[error("another request was sent with this sequence id")]
    SeqFalseRetry,
    /// The same request is still running. DELAY
    #[error("the request is still running")]
    InProgress,
    /// The channel's limits are below what is needed. TOOSMALL
    #[error("the channel's sizes are too small")]
    TooSmall,
    /// RECLAIM_COMPLETE was sent before. COMPLETE_ALREADY
    #[error("the client has already ended its reclaim")]
    CompleteAlready,

    // State. RFC 8881 s8.2, s9, s18.16, s18.10
    /// No such state. BAD_STATEID
    #[error("no such stateid")]
    BadStateId,
    /// An older version of the state. OLD_STATEID
    #[error("the stateid has a newer version")]
    OldStateId,
    /// State of an earlier arena. STALE_STATEID; never an answer to TEST_STATEID
    #[error("the stateid is of an earlier start of the server")]
    StaleStateId,
    /// The client's lease ended, and its state was dropped. EXPIRED
    #[error("the client's lease has expired")]
    Expired,
    /// The delegation was revoked. DELEG_REVOKED
    #[error("the delegation was revoked")]
    DelegationRevoked,
    /// Another open denies the access. SHARE_DENIED
    #[error("another open of the file denies this")]
    ShareDenied,
    /// The open does not allow this access. OPENMODE
    #[error("the file is not open for this")]
    OpenMode,
    /// Another owner's lock conflicts. DENIED
    #[error("another owner holds a conflicting lock")]
    Denied(Box<crate::Holder>),
    /// The state still has locks. LOCKS_HELD
    #[error("locks are held")]
    LocksHeld,
    /// Wait for others: a delegation is being recalled, or state is being dropped. The recall has
    /// been started. DELAY
    #[error("waiting for another client to return its state")]
    Delay,
    /// Only clients that reclaim are served now. GRACE
    #[error("in the grace period, or the client has not ended its reclaim")]
    Grace,
    /// Reclaim after its time. NO_GRACE
    #[error("not in the grace period, or the client has ended its reclaim")]
    NoGrace,
    /// The client had no state before the restart. RECLAIM_BAD
    #[error("the client is not known to have had state before the restart")]
    ReclaimBad,
    /// The client's record is not yet in stable storage: write it,
    /// then try again. DELAY
    #[error("the client's recovery record is not written yet")]
    NotRecorded,
}

/// Why memory is not an arena.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    /// No arena was created here, or its creator ended early.
    #[error("no shared state here: its creator ended before it was complete; create it again")]
    NotCreated,
    /// An arena of another version of this program.
    #[error(
        "shared state of version {found}, this program has version {ours}; stop the other processes first"
    )]
    Version {
        /// The version of the arena.
        found: u64,
        /// The version of this program.
        ours: u64,
    },
    /// Other bounds than its own head has, or memory of another length.
    #[error("damaged shared state: {0}; stop all servers of the group and remove its files")]
    Damaged(&'static str),
    /// The memory is shorter than the bounds need.
    #[error("the memory has {found} words, and the bounds need {needed}")]
    TooShort {
        /// Words of the memory.
        found: usize,
        /// Words that are needed.
        needed: usize,
    },
    /// There is no memory for the head and the tables.
    #[error("there is no space for the tables of the shared state")]
    NoMemory,
}
