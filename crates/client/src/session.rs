//! The session of a mount of version 4: made at one address, used by the connections of all loops,
//! made again when the server has lost it, and ended with the mount. RFC 8881 s2.10
//!
//! - [`first_calls`] makes a session and the first calls in it, on a connection that blocks.
//! - [`SessionKeeper`] has the current session. A loop that learns that the server does not know it
//!   any more says so, and takes the new one when it is there.
//! - [`Slots`] are a loop's part of the slots of one session.
//!
//! Of state there are locks, and the opens that locks need ([`Locks`]). After a restart of the
//! server they are reclaimed in the new session before any other call is made in it.

mod first_calls;
mod keeper;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use crate::bootstrap::nfs4::Begun;
use crate::call_backs::BackSlots;
use crate::error::MountError;
use crate::locks::Locks;
use crate::protocol::Protocol;
use crate::protocol::nfs4::{ClientOwner, DIRECTORY_BYTES, Exchanged, Granted, Needs};
use crate::settings::Settings;

pub(crate) use first_calls::{CallError, CreateNumbers, FirstCalls, Making, NewSession, exchange_id};
pub(crate) use keeper::{Place, SessionKeeper};
use slots::HighestSlots;
pub(crate) use slots::Slots;

/// How long the end of a mount waits for the server to end the session. A server that is silent
/// ends it with the lease.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A session, and the server that has it.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// Counts the sessions of a mount, from 0.
    pub generation: u64,
    pub granted: Granted,
    pub server: Exchanged,
    /// The number of the next call in slot 0, which has had the first calls.
    pub slot_zero_next: u32,
    highest: Arc<HighestSlots>,
    /// The slots of the back channel.
    pub back: Arc<BackSlots>,
}

impl Session {
    fn new(generation: u64, granted: Granted, server: Exchanged) -> Self {
        let back = Arc::new(BackSlots::new(granted.back_slots));
        let highest = Arc::default();
        let mut session = Self { generation, granted, server, slot_zero_next: 1, highest, back };
        session.highest = Arc::new(HighestSlots::new(session.loops_max()));
        session
    }

    /// The number of loops that can use the session: each needs a slot for calls, and one for the
    /// validation of its connections.
    pub(crate) fn loops_max(&self) -> usize {
        (self.granted.slots / 2).max(1) as usize
    }
}

/// The session of a mount of version 4; dropped, it is ended.
#[derive(Debug)]
pub(crate) struct MountSession(Arc<SessionKeeper>);

impl MountSession {
    /// Keeps the session that a mount begins with.
    pub(crate) fn keep(begun: Begun, settings: &Settings, credential: &[u8]) -> Result<Self, MountError> {
        let Begun { session, wanted, home, lease } = begun;
        let lost = || MountError::Local("the session was taken twice".to_owned());
        let calls = (credential.to_vec(), settings.reserved_port);
        let at = (home, settings.target_name());
        let keeper = SessionKeeper::start(session.claim().ok_or_else(lost)?, wanted, calls, at, lease);
        keeper.map(|keeper| Self(Arc::new(keeper))).map_err(|error| MountError::Local(error.to_string()))
    }

    /// The protocol of the mount, which has so many loops, each with a slot for calls and one for
    /// validations, and reads and writes of these sizes. No later session allows less.
    pub(crate) fn protocol(&self, loops: usize, (read, write): (u32, u32)) -> Protocol {
        let page_bytes = DIRECTORY_BYTES.min(self.0.current().granted.payload().0);
        let slots = u32::try_from(2 * loops).unwrap_or(u32::MAX).max(Needs::LEAST.slots);
        self.0.require(Needs { slots, read: read.max(page_bytes), write });
        Protocol::nfs4(self.0.minor(), page_bytes)
    }

    pub(crate) fn locks(&self) -> &Arc<Locks> {
        self.0.locks()
    }

    pub(crate) const fn keeper(&self) -> &Arc<SessionKeeper> {
        &self.0
    }

    /// Ends the session and its client at the server, if it answers soon. Later calls get no
    /// answer.
    pub(crate) fn end(&self) {
        self.0.close(END_TIMEOUT);
    }
}

impl Drop for MountSession {
    fn drop(&mut self) {
        self.end();
    }
}

impl ClientOwner {
    /// A client that no other mount is: each mount has a session and a lease of its own.
    pub(crate) fn random() -> Self {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let owner = format!("trunkline {host} {:016x}{:016x}", crate::random_u64(), crate::random_u64());
        Self { owner: owner.into_bytes(), verifier: crate::random_u64().to_be_bytes() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A session with so many slots.
    pub(crate) fn session(slots: u32) -> Session {
        let bytes = (1 << 20) + 4096;
        let granted = Granted {
            session: nfs4::SessionId([7; 16]),
            slots,
            request_bytes: bytes,
            reply_bytes: bytes,
            cached_reply_bytes: 2048,
            operations: 8,
            back_slots: 4,
        };
        let server = Exchanged {
            client: nfs4::ClientId(7),
            major: b"server".to_vec(),
            minor: 1,
            scope: b"scope".to_vec(),
            sequence: 1,
            is_confirmed: false,
        };
        Session::new(0, granted, server)
    }

    #[test]
    fn each_loop_needs_two_slots() {
        assert_eq!([2, 3, 4, 64].map(|slots| session(slots).loops_max()), [1, 1, 2, 32]);
    }

    #[test]
    fn no_two_mounts_are_the_same_client() {
        let [one, two] = [ClientOwner::random(), ClientOwner::random()];
        assert_ne!(one.owner, two.owner);
        assert!(one.owner.len() <= 1024);
    }
}
