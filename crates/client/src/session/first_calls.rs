//! Makes a session on a connection that blocks, and the first calls in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nfs4::{ClientId, Operation as Nfs, SessionId, Status};
use xdr::Reader;

use super::{END_TIMEOUT, Session};
use crate::call::Caller as User;
use crate::caller::Caller;
use crate::error::{Error, MountError};
use crate::locks::Locks;
use crate::protocol::nfs4::{
    self as wire, Asked, ClientOwner, Exchanged, Granted, Needs, Opened, SlotRefusal, SlotUse, Wanted,
    operations as calls, operations_of,
};
use crate::protocol::{Operation, Procedure};

/// A server that asks to come later is asked again after this time.
const LATER_WAIT: Duration = Duration::from_millis(250);
/// A server that asks to come later for so long is given up.
pub(super) const LATER_MAX: Duration = Duration::from_secs(10);
/// The first wait for calls that still run in a session that is to end; it doubles up to
/// [`LATER_WAIT`].
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// The number of the next CREATE_SESSION of a client: one more than the last, or what EXCHANGE_ID
/// says of a client that has had none. A call whose reply was lost is repeated with its number.
/// RFC 8881 s18.35.4, s18.36.4
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CreateNumbers(Option<(ClientId, u32)>);

impl CreateNumbers {
    fn next(&mut self, server: &Exchanged) -> u32 {
        let next = match self.0 {
            Some((client, next)) if server.is_confirmed && client == server.client => next,
            _ => server.sequence,
        };
        self.0 = Some((server.client, next));
        next
    }

    /// The server has executed the call with this number.
    const fn executed(&mut self, client: ClientId, number: u32) {
        self.0 = Some((client, number.wrapping_add(1)));
    }
}

/// A session that is to be made.
#[derive(Debug)]
pub(crate) struct Making<'a> {
    pub generation: u64,
    pub wanted: Wanted,
    pub needs: Needs,
    pub numbers: &'a mut CreateNumbers,
    /// The session that it replaces.
    pub old: Option<SessionId>,
    /// What the client had before the server restarted.
    pub reclaim: Option<&'a Locks>,
}

/// A connection in a session, of which it uses slot 0.
#[derive(Debug)]
pub(crate) struct FirstCalls {
    caller: Caller,
    minor: u32,
    session: Session,
}

/// Why a call in a session failed.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The operation, with this status.
    Failed(fs::Status),
    /// Anything else.
    Mount(MountError),
}

impl From<MountError> for CallError {
    fn from(error: MountError) -> Self {
        Self::Mount(error)
    }
}

/// Makes a call that is alone in its compound.
fn once<T>(
    caller: &mut Caller,
    call: &[u8],
    read: impl Fn(&[u8]) -> Asked<T>,
) -> Result<Result<T, Status>, MountError> {
    let results = caller.call(wire::PROGRAM, wire::COMPOUND, |writer| writer.bytes(call))?;
    match read(&results) {
        Asked::Granted(granted) => Ok(Ok(granted)),
        Asked::Failed(status) => Ok(Err(status)),
        Asked::Nonsense(reason) => Err(caller.protocol(reason)),
    }
}

/// The same; a server that asks to come later is asked again.
fn alone<T>(
    caller: &mut Caller,
    call: &[u8],
    read: impl Fn(&[u8]) -> Asked<T>,
) -> Result<Result<T, Status>, MountError> {
    let started = Instant::now();
    loop {
        match once(caller, call, &read)? {
            Err(Status::DELAY) if started.elapsed() < LATER_MAX => std::thread::sleep(LATER_WAIT),
            outcome => return Ok(outcome),
        }
    }
}

/// What EXCHANGE_ID or CREATE_SESSION was refused with.
fn refused(caller: &Caller, call: Nfs, status: Status) -> MountError {
    caller.protocol(format!("{}: {status}", call.name()))
}

/// Asks who the server at the other end is.
pub(crate) fn exchange_id(
    caller: &mut Caller,
    minor: u32,
    client: &ClientOwner,
) -> Result<Exchanged, CallError> {
    let call = wire::exchange_id(minor, client);
    alone(caller, &call, wire::exchanged)?.map_err(|status| match status {
        Status::MINOR_VERS_MISMATCH => {
            CallError::Mount(MountError::NoMinorVersion { address: caller.address(), minor })
        }
        // To this host the server says nothing.
        Status::PERM | Status::ACCESS | Status::WRONGSEC => CallError::Failed(fs::Status::Access),
        status => CallError::Mount(refused(caller, Nfs::ExchangeId, status)),
    })
}

/// Makes a session for a client that has said who it is.
fn create_session(
    caller: &mut Caller,
    server: &Exchanged,
    wanted: Wanted,
    numbers: &mut CreateNumbers,
) -> Result<Granted, MountError> {
    let mut number = numbers.next(server);
    // Where the server counts otherwise, what it said itself is tried as well.
    let mut said = Some(server.sequence).filter(|said| *said != number);
    loop {
        let offered = Wanted { call_backs: wanted.call_backs && caller.takes_calls(), ..wanted };
        let call = wire::create_session(server.client, number, offered);
        let status = match alone(caller, &call, |results| wire::session_created(results, wanted))? {
            Ok(granted) => {
                numbers.executed(server.client, number);
                return Ok(granted);
            }
            Err(status) => status,
        };
        match (status, said.take()) {
            (Status::SEQ_MISORDERED, Some(said)) => {
                number = said;
                continue;
            }
            (Status::SEQ_MISORDERED | Status::DELAY | Status::STALE_CLIENTID, _) => {}
            // The failure is what this number stands for.
            _ => numbers.executed(server.client, number),
        }
        return Err(refused(caller, Nfs::CreateSession, status));
    }
}

impl FirstCalls {
    /// Makes a session for a client that has said who it is, reclaims what it had, and says that
    /// this is all. A session that does not allow what is needed is ended again.
    pub(crate) fn create(
        mut caller: Caller,
        server: Exchanged,
        making: Making<'_>,
    ) -> Result<Self, MountError> {
        let Making { generation, wanted, needs, numbers, old, reclaim } = making;
        let granted = create_session(&mut caller, &server, wanted, numbers)?;
        if Some(granted.session) == old {
            return Err(caller.protocol("the new session is the old one".to_owned()));
        }
        let session = Session::new(generation, granted, server);
        let mut calls = Self { caller, minor: wanted.minor, session };
        let reclaimed = match granted.is_short_of(&needs) {
            Some(reason) => Err(calls.caller.protocol(reason)),
            None => reclaim.map_or(Ok(()), |locks| locks.reclaim(&mut calls)),
        };
        let failed = match reclaimed {
            Err(error) => error,
            Ok(()) => match calls.call(calls::reclaim_complete(wanted.minor)) {
                // An earlier session of the same client has said it. RFC 8881 s18.51.3
                Ok(()) | Err(CallError::Failed(fs::Status::Other(COMPLETE_ALREADY))) => return Ok(calls),
                Err(CallError::Failed(status)) => {
                    calls.caller.protocol(format!("{}: {status}", Nfs::ReclaimComplete.name()))
                }
                Err(CallError::Mount(error)) => error,
            },
        };
        calls.end();
        Err(failed)
    }

    pub(crate) const fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) const fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) const fn minor(&self) -> u32 {
        self.minor
    }

    /// Makes a call in the session for a user.
    pub(crate) fn call_as<T>(
        &mut self,
        user: Option<&Arc<User>>,
        operation: Operation<T>,
    ) -> Result<T, CallError> {
        let Some(user) = user else { return self.call(operation) };
        let mut credential = Vec::new();
        crate::engine::encode_credential(&mut credential, crate::random_u64(), user);
        let own = self.caller.replace_credential(credential);
        let outcome = self.call(operation);
        self.caller.replace_credential(own);
        outcome
    }

    /// Makes a call in the session. A server that asks to come later is asked again.
    pub(crate) fn call<T>(&mut self, operation: Operation<T>) -> Result<T, CallError> {
        let (request, reading) = operation.into_parts();
        let Procedure::Nfs4(named) = request.procedure() else {
            return Err(self.caller.protocol("a call of another version".to_owned()).into());
        };
        let started = Instant::now();
        loop {
            let may_wait = started.elapsed() < LATER_MAX;
            let slot = SlotUse {
                generation: self.session.generation,
                session: self.session.granted.session,
                slot: 0,
                sequence: self.session.slot_zero_next,
                highest_slot: 0,
            };
            let results = self.caller.call(wire::PROGRAM, wire::COMPOUND, |writer| {
                wire::encode_request(writer, named, request.args(), Some(&slot));
            })?;
            let asked = (named, operations_of(request.args()));
            let opened = wire::open_reply(Reader::new(&results), &slot, asked);
            match opened.map_err(|reason| self.caller.protocol(reason))? {
                Opened::Done(results, _) => {
                    self.session.slot_zero_next = slot.sequence.wrapping_add(1);
                    match results.status {
                        Some(fs::Status::Later) if may_wait => {}
                        Some(status) => return Err(CallError::Failed(status)),
                        None => {
                            let mut kept = Vec::new();
                            results.keep(&mut kept);
                            return reading.read(&kept).map_err(|error| self.nonsense(error).into());
                        }
                    }
                }
                Opened::Refused(SlotRefusal::Later) if may_wait => {}
                Opened::Refused(refusal) => {
                    return Err(self.caller.protocol(format!("SEQUENCE: {refusal}")).into());
                }
                Opened::NotKept(_) => {
                    return Err(self.caller.protocol("a reply to no call of ours".to_owned()).into());
                }
            }
            std::thread::sleep(LATER_WAIT);
        }
    }

    fn nonsense(&self, error: Error) -> MountError {
        self.caller.protocol(match error {
            Error::PeerMisbehaved { operation, reason } => format!("{operation}: {reason}"),
            other => other.to_string(),
        })
    }

    /// Ends the session, and the client as well: best effort.
    pub(crate) fn end(mut self) {
        end(&mut self.caller, self.minor, &self.session);
    }
}

/// NFS4ERR_COMPLETE_ALREADY
const COMPLETE_ALREADY: u32 = Status::COMPLETE_ALREADY.0;

/// Ends a session: once this has succeeded, the server executes no call in it any more, and no call
/// of before is still being executed. `wait` waits, and says whether there is time to ask again.
/// RFC 8881 s18.37
pub(super) fn destroy(
    caller: &mut Caller,
    minor: u32,
    session: SessionId,
    wait: &dyn Fn(Duration) -> bool,
) -> Result<(), MountError> {
    let (destroy, bind) = (wire::destroy_session(minor, session), wire::bind(minor, session, false));
    let (mut pause, mut is_bound) = (BUSY_WAIT, false);
    loop {
        let mut operation = Nfs::DestroySession;
        let mut asked = once(caller, &destroy, wire::session_destroyed)?;
        // Some servers take it only from a connection of the session.
        if asked == Err(Status::CONN_NOT_BOUND_TO_SESSION) && !is_bound {
            operation = Nfs::BindConnToSession;
            asked = once(caller, &bind, wire::bound)?.map(|_| ());
            is_bound = asked.is_ok();
            if is_bound {
                continue;
            }
        }
        match asked {
            Ok(()) | Err(Status::BADSESSION | Status::DEADSESSION | Status::STALE_CLIENTID) => return Ok(()),
            Err(Status::DELAY | Status::BACK_CHAN_BUSY) if wait(pause) => {
                pause = (pause * 2).min(LATER_WAIT);
            }
            Err(status) => return Err(refused(caller, operation, status)),
        }
    }
}

/// Ends a session and its client, as far as the server answers. RFC 8881 s18.37, s18.50
pub(super) fn end(caller: &mut Caller, minor: u32, session: &Session) -> bool {
    let deadline = Instant::now() + END_TIMEOUT;
    let wait = |pause: Duration| {
        let fits = Instant::now() + pause < deadline;
        if fits {
            std::thread::sleep(pause);
        }
        fits
    };
    let client = wire::destroy_client(minor, session.server.client);
    let ended = destroy(caller, minor, session.granted.session, &wait).and_then(|()| {
        loop {
            match once(caller, &client, wire::client_destroyed)? {
                Err(Status::DELAY) if wait(BUSY_WAIT) => {}
                Ok(()) | Err(Status::STALE_CLIENTID) => return Ok(()),
                Err(status) => return Err(refused(caller, Nfs::DestroyClientId, status)),
            }
        }
    });
    if let Err(error) = &ended {
        // The lease ends both.
        tracing::debug!(%error, "a session is left to its lease");
    }
    ended.is_ok()
}

/// A session that a mount may begin with; dropped unclaimed, it is ended.
#[derive(Debug)]
pub(crate) struct NewSession {
    calls: Option<FirstCalls>,
    client: ClientOwner,
    numbers: CreateNumbers,
}

impl NewSession {
    pub(crate) const fn new(calls: FirstCalls, client: ClientOwner, numbers: CreateNumbers) -> Self {
        Self { calls: Some(calls), client, numbers }
    }

    /// Takes the session for a mount.
    pub(crate) fn claim(mut self) -> Option<(Session, ClientOwner, CreateNumbers)> {
        let calls = self.calls.take()?;
        Some((calls.session, self.client.clone(), self.numbers))
    }
}

impl Drop for NewSession {
    fn drop(&mut self) {
        if let Some(calls) = self.calls.take() {
            calls.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s18.35.4, s18.36.4
    #[test]
    fn sessions_of_a_client_are_counted_on_whatever_the_server_says_of_the_next() {
        let server = |client, sequence, is_confirmed| Exchanged {
            client: ClientId(client),
            sequence,
            is_confirmed,
            ..crate::session::tests::session(2).server
        };
        let mut numbers = CreateNumbers::default();
        assert_eq!(numbers.next(&server(7, 5, false)), 5);
        assert_eq!(numbers.next(&server(7, 99, true)), 5, "a reply that was lost");
        numbers.executed(ClientId(7), 5);
        assert_eq!(numbers.next(&server(7, 99, true)), 6);
        assert_eq!(numbers.next(&server(8, 1, true)), 1, "another client");
        numbers.executed(ClientId(8), u32::MAX);
        assert_eq!(numbers.next(&server(8, 1, true)), 0);
        assert_eq!(numbers.next(&server(8, 3, false)), 3, "the server has forgotten it");
    }
}
