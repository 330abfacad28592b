//! Call-backs: calls of the server to a mount of version 4, on connections that the mount has made
//! and bound to its session's back channel. RFC 8881 s2.10.3.1, s20
//!
//! A call is answered at once, on the loop that has received it: nothing here waits. What takes
//! longer, such as the return of a delegation, is begun by who listens ([`CallBacks`]).
//!
//! Invariants: whatever a server sends, the answer is one record of bounded length, or the end of
//! the connection. What is executed is executed once for each slot and sequence id ([`slots`]).

mod compound;
mod slots;

use std::sync::OnceLock;

use fs::FileHandle;
use nfs4::{CALLBACK_VERSION, PROCEDURE_COMPOUND, PROCEDURE_NULL};
use rpc::auth::{AUTH_NONE, AUTH_SYS, AuthStat};
use rpc::call::CallError;
use rpc::reply::{Accept, Reject, encode_accept, encode_reject, encode_success};
use xdr::{Reader, Writer};

use crate::delegations::Delegations;
pub(crate) use slots::BackSlots;

/// The program of call-backs: one of the numbers that clients choose. RFC 8881 s2.10.8, RFC 5531
/// s8.1
pub(crate) const PROGRAM: u32 = 0x4000_0000;
/// Call-backs that a server may have outstanding in a session.
pub(crate) const SLOTS_MAX: u32 = 16;
/// The longest call-back, and the longest reply to one. Linux makes no session with less room than
/// a call with the longest credential takes.
pub(crate) const BYTES_MAX: u32 = 4096;
/// Operations of a call-back, with CB_SEQUENCE.
pub(crate) const OPERATIONS_MAX: u32 = 8;
/// Replies that may wait on a connection until the server reads them: more than the session has
/// slots, because retries and calls of the procedure NULL have none.
pub(crate) const REPLIES_QUEUED_MAX: usize = 64;

/// Whether a message is a call. RFC 5531 s9
pub(crate) fn is_call(message: &[u8]) -> bool {
    message.get(4..8) == Some(&[0; 4])
}

type Listener = Box<dyn Fn(FileHandle) + Send + Sync>;

/// What call-backs of all sessions of a mount lead to.
#[derive(Default)]
pub(crate) struct CallBacks {
    delegations: Delegations,
    lock_listener: OnceLock<Listener>,
}

impl std::fmt::Debug for CallBacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallBacks").field("delegations", &self.delegations).finish_non_exhaustive()
    }
}

impl CallBacks {
    /// Has `listener` called, on a loop, when the server says that a lock of a file may be free.
    /// There is one listener.
    pub(crate) fn listen_for_locks(&self, listener: impl Fn(FileHandle) + Send + Sync + 'static) {
        _ = self.lock_listener.set(Box::new(listener));
    }

    /// The delegations of the mount.
    pub(crate) const fn delegations(&self) -> &Delegations {
        &self.delegations
    }

    fn lock_available(&self, file: FileHandle) {
        if let Some(listener) = self.lock_listener.get() {
            listener(file);
        }
    }
}

/// The session that a call-back may be for, and what is done about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host<'a> {
    pub session: nfs4::SessionId,
    pub minor: u32,
    pub slots: &'a BackSlots,
    pub call_backs: &'a CallBacks,
}

/// Answers a call of the server; `None` if the message ends within its header, so that nothing on
/// its connection can be trusted any more. RFC 5531 s9
pub(crate) fn answer(record: &[u8], host: &Host<'_>) -> Option<Vec<u8>> {
    let (mut reader, mut out) = (Reader::new(record), Vec::new());
    let writer = &mut Writer::new(&mut out);
    let header = match rpc::call::decode(&mut reader) {
        Ok(header) => header,
        Err(CallError::RpcMismatch { xid }) => {
            encode_reject(writer, xid, Reject::RPC_VERSION);
            return Some(out);
        }
        Err(CallError::AuthError { xid, stat }) => {
            encode_reject(writer, xid, Reject::Auth(stat));
            return Some(out);
        }
        Err(CallError::NotACall | CallError::Garbage(_)) => return None,
    };
    let xid = header.xid;
    let refused = match (header.program, header.version, header.procedure) {
        (program, ..) if program != PROGRAM => Accept::ProgUnavail,
        (_, version, _) if version != CALLBACK_VERSION => {
            Accept::ProgMismatch { low: CALLBACK_VERSION, high: CALLBACK_VERSION }
        }
        // The session was made with AUTH_NONE for call-backs. Some servers send AUTH_SYS anyway.
        // Who calls is known by the connection, which this client has made.
        _ if ![AUTH_NONE, AUTH_SYS].contains(&header.credential_flavor) => {
            encode_reject(writer, xid, Reject::Auth(AuthStat::REJECTEDCRED));
            return Some(out);
        }
        (.., PROCEDURE_NULL) => Accept::Success,
        (.., PROCEDURE_COMPOUND) => match compound::run(reader.rest(), record.len(), host) {
            Ok(results) => {
                encode_success(writer, xid);
                writer.bytes(&results);
                return Some(out);
            }
            Err(_) => Accept::GarbageArgs,
        },
        _ => Accept::ProcUnavail,
    };
    encode_accept(writer, xid, refused);
    Some(out)
}

#[cfg(test)]
mod tests;
