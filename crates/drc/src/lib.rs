//! Records which calls have already run, so that a call sent twice is executed once.
//!
//! A client whose path died sends its calls again on another path; the originals may have run, may
//! be running, or may yet arrive. The server asks the cache before it executes any call that
//! changes something ([`Begin`] is the verdict) and reports the outcome ([`Outcome`] in,
//! [`ReplyTo`] out). There are two parts:
//!
//! - [`ClientWindow`] for Trunkline's own clients, recognized by an id in their credential
//!   ([`client_id`]): sliding windows over the counters in their xids, so that no time and no key
//!   is stored. [`XidSpace`] is the client's half.
//! - [`Table`] for all other clients: keyed by address, xid, procedure, credential and a hash of
//!   the call; bounded by count and age. [`ConnectionTable`] distinguishes a retry from the same
//!   call of a neighbour at the same address.
//!
//! Invariants: a call is begun ([`Begin::Run`]) at most once while the window or table knows it; a
//! call below its window is refused unexecuted; an attached waiter is named by exactly one
//! [`ReplyTo`], unless a newer waiter replaced it. `docs/decisions/0004-reply-cache.md` has the
//! sizes and the argument.
//!
//! [`shared`] has the same in memory that several processes share. Left out: persistence.
#![forbid(unsafe_code)]

mod class;
mod connections;
mod done_window;
mod identity;
mod reply_window;
pub mod shared;
mod table;
mod window;
mod xid_space;

#[doc(hidden)]
pub mod fuzzing;

pub use class::{WINDOW_DONE, WINDOW_REPLY, XidClass};
pub use connections::{
    CONNECTIONS_MAX, CONNECTIONS_WORDS, ConnectionId, ConnectionTable, ForeignCall, LookupContext,
    OWNER_REPLY_TIMEOUT, Origin, Relation, path_of,
};
pub use done_window::STATUS_MAX;
pub use identity::{MACHINE_NAME_BYTES, client_id, client_id_of_credential, is_machine_name, machine_name};
pub use table::{CallKey, HASHED_PAYLOAD_BYTES, TABLE_AGE_MAX, TABLE_ENTRIES_MAX, Table, args_hash};
pub use window::{ADDRESS_WINDOWS_MAX, CLIENT_WINDOWS_MAX, ClientWindow, WINDOW_IDLE_MIN, Windows};
pub use xid_space::{AHEAD_DONE_MAX, AHEAD_REPLY_MAX, XidSpace};

/// A connection of the server, by the server's own numbering. A higher number is not a newer
/// connection: the newest is the one on which a replay was received last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// What to do with a received call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// Execute the call, then `finish` it in every case.
    Run,
    /// The call ran: answer with this and do not execute it.
    Replay(Stored),
    /// The call is running: its reply will be sent on this connection. Nothing more to do.
    Attached,
    /// Whether the call ran cannot be determined yet: ask again in a moment.
    Defer,
    /// Do not execute the call. [`Refusal`] says what to answer.
    Refused(Refusal),
}

/// Why a call must not be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The call is older than the window: it may have run long ago. No well-behaved client waits
    /// for it. Answer SYSTEM_ERR or nothing, never a status that makes a client try again under a
    /// new xid.
    BelowWindow,
    /// Its xid has a class that does not exist: treat the call as one of a foreign client.
    UnknownClass,
    /// The table is full of running calls. The call did not run: JUKEBOX, which makes the client
    /// try again under a new xid, is the right answer.
    TableFull,
}

/// What is kept of a call that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// The whole reply after its xid.
    Reply(Box<[u8]>),
    /// Only that the call succeeded: build the reply from the call. A reply to an UNSTABLE WRITE
    /// built this way must not claim the current verifier, which may be newer than the write: use a
    /// verifier that no COMMIT returns, so that the client writes that range again.
    Done,
    /// Only that it failed with this status: build the reply without attributes.
    Failed(u32),
}

/// How a begun call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The call did everything that it asked for, and only that fact is worth keeping: WRITE and
    /// SETATTR. A partial WRITE does not belong here, because the reply is built from the call;
    /// keep it as a failure.
    Done,
    /// The call failed with this status of its program, and only the status is worth keeping: WRITE
    /// and SETATTR.
    Failed(u32),
    /// The call ended with this reply, after the xid.
    Reply(&'a [u8]),
    /// The call did not run *and no reply is sent*: it may run when it is received again. A call
    /// that is answered in any way, even with "try later", does not belong here: its client may go
    /// on, and a late copy must not run then.
    Dropped,
}

/// The connection for the reply to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTo {
    /// The connection on which the newest replay was received; `None` for the original's. After
    /// [`Outcome::Dropped`] that connection must be closed, so that its client sends the call
    /// again.
    pub waiter: Option<Token>,
}

impl ReplyTo {
    /// The connection on which the call was received.
    pub const ORIGINAL: Self = Self { waiter: None };
}
