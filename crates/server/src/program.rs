//! RPC programs: the interface that each implements, and the calls that it receives.
//!
//! To add a program, implement [`Program`] and list it in `PROGRAMS` of the module `dispatch`.
//! Everything else follows from that: its registration, its counters, and the calls that the reply
//! cache keeps.

mod head;
mod placed;
pub(crate) mod replay;

use crate::client::Client;
use crate::group::Group;
use crate::replies::Payload;
use crate::reply_cache::{Times, Waiters};
use crate::statistics::Names;
use drc::{Token, XidClass};
pub(crate) use head::CallHead;
pub(crate) use placed::{PlacedWrite, WriteHead};
use rpc::call::CallHeader;
use rpc::portmap::Protocol;
use rpc::reply::{Accept, Reject};
use std::ops::RangeInclusive;
use store::{ReceiveBatch, Wait};
use xdr::Reader;

/// The most payload that one call or reply carries. RFC 1813 s3.3.19 (rtmax, wtmax)
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;

/// One version of an RPC program, or several that are served alike.
///
/// A call that must wait for its store says so by its answer ([`Answered::WouldBlock`]); a worker
/// then calls [`serve`](Self::serve) once more.
pub(crate) trait Program: Sync {
    /// The program number.
    fn number(&self) -> u32;

    /// The versions that this implementation serves.
    fn versions(&self) -> RangeInclusive<u32>;

    /// The names of its procedures in statistics, by number. There are no other procedures. A
    /// program without names is not counted, and itself answers calls of unknown procedures.
    fn procedures(&self) -> Names;

    /// The transports by which clients find the program. It is served over UDP only if UDP is among
    /// these.
    fn protocols(&self) -> &'static [Protocol];

    /// Whether this server serves the program at all.
    fn is_served(&self, _group: &Group) -> bool {
        true
    }

    /// Whether it is a part of what locks the files of version 3: the host may have another one,
    /// and then the server does without.
    fn is_for_locks(&self) -> bool {
        false
    }

    /// Whether clients connect for calls of this program: a connection that sends none does not
    /// count as load.
    fn serves_files(&self) -> bool {
        false
    }

    /// Whether a call needs a credential that names its caller.
    fn needs_identity(&self) -> bool {
        true
    }

    /// What the reply cache keeps of a call. A call is repeatable if it changes nothing, or nothing
    /// that a second execution undoes.
    fn xid_class(&self, _procedure: u32) -> XidClass {
        XidClass::Repeatable
    }

    /// The most payload, or entries of a list, that the reply to a call may have, as far as that is
    /// worth counting.
    fn reply_payload_bytes_max(&self, _procedure: u32, _args: Reader<'_>) -> u32 {
        0
    }

    /// Finds memory of a store for the payload of a call, so that it is received in place. Errors
    /// of the call are left to [`serve`](Self::serve), which reports them.
    fn choose_receive_buffer(&self, _call: PartialCall<'_>) -> Option<Placement> {
        None
    }

    /// Executes a call, and writes the head of its reply. `placed` is what
    /// [`choose_receive_buffer`](Self::choose_receive_buffer) returned, with the payload received;
    /// then the record ends before the payload, and its arguments are not decoded again.
    fn serve(&self, call: Call<'_, '_>, placed: Option<PlacedWrite>) -> Answered;
}

/// A call of which only the beginning has been received.
pub(crate) struct PartialCall<'a> {
    /// Its caller has been identified.
    pub client: &'a Client,
    pub procedure: u32,
    /// The reader at the arguments, as far as they have been received.
    pub args: Reader<'a>,
    /// The length of all arguments, with payload and padding.
    pub all_args_bytes: usize,
    /// The most payload that may be received at once.
    pub payload_bytes_max: usize,
}

impl PartialCall<'_> {
    /// Whether all arguments are `args_bytes` long, followed by that much payload, and the payload
    /// may be received.
    pub fn fits(&self, args_bytes: usize, payload_bytes: u32) -> bool {
        let bytes = usize::try_from(payload_bytes).unwrap_or(usize::MAX);
        bytes > 0
            && bytes <= self.payload_bytes_max
            && payload_bytes <= IO_BYTES_MAX
            && self.all_args_bytes == args_bytes + bytes + xdr::padding(bytes)
    }
}

/// Where the payload of a call is received.
pub(crate) struct Placement {
    /// The length of the arguments before the payload. Nothing but padding follows it.
    pub args_bytes: usize,
    pub write: PlacedWrite,
}

/// One call.
pub(crate) struct Call<'s, 'r> {
    pub group: &'s Group,
    pub waiters: &'s dyn Waiters,
    /// The connection, for the reply cache.
    pub token: Token,
    /// The transport of the call.
    pub protocol: Protocol,
    pub client: &'s mut Client,
    /// The buffer for the head of the reply.
    pub out: &'s mut Vec<u8>,
    /// Memory for texts that a reply holds.
    pub text: &'s mut Vec<u8>,
    pub times: Times,
    pub mode: Mode<'s>,
    pub header: &'s CallHeader<'r>,
    /// What the reply cache keeps of it.
    pub class: XidClass,
    /// At the arguments.
    pub reader: Reader<'r>,
    /// The most payload, or entries of a list, that the reply may have: at least 4 KiB.
    pub payload_bytes_max: u32,
}

/// Where a call is executed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode<'a> {
    /// On a loop, where nothing may wait, as one of the calls of a batch.
    Loop(Option<&'a ReceiveBatch>),
    /// By a worker. The reply cache may have the call as running since its loop handed it over.
    Worker { begun: bool },
    /// Nowhere: the call was begun and came too late. The reply cache forgets it.
    Discard,
}

impl<'a> Mode<'a> {
    /// Whether the call is executed on a loop.
    #[inline]
    pub const fn is_loop(self) -> bool {
        matches!(self, Self::Loop(_))
    }

    /// Whether a store may wait for the call.
    #[inline]
    pub const fn wait(self) -> Wait<'a> {
        match self {
            Self::Loop(batch) => Wait::Refused(batch),
            Self::Worker { .. } | Self::Discard => Wait::Allowed,
        }
    }
}

/// How a call was answered.
pub(crate) enum Answered {
    /// By a reply whose head has been written.
    Reply {
        error: bool,
        replayed: bool,
        payload: Payload,
        payload_len: usize,
    },
    /// Not by its procedure. RFC 5531 s9
    Accept(Accept),
    Reject(Reject),
    /// On another connection, or later.
    Elsewhere,
    /// Not yet: its store would have to wait.
    WouldBlock(Handover),
}

impl Answered {
    /// By a reply without payload.
    #[inline]
    pub fn reply(error: bool) -> Self {
        Self::Reply { error, replayed: false, payload: Payload::new(), payload_len: 0 }
    }
}

/// The state that a call which must wait takes along, in addition to its record.
#[derive(Default)]
pub(crate) struct Handover {
    /// The reply cache has the call as running.
    pub begun: bool,
    /// The call runs elsewhere: it is to be tried again soon.
    pub deferred: bool,
    /// The call with its payload, if that was received in place. Boxed, because few calls need it.
    pub placed: Option<Box<PlacedWrite>>,
}
