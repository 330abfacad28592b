//! One call of NFSv3 or MOUNT whose header and credential are sound: decodes its arguments, runs
//! its handler, writes the reply. Calls that change something pass the reply cache.

use super::recovery::Recover;
use super::request::{HandlerError, Request};
use crate::program::replay::{Decision, consult};
use crate::program::{Answered, Call, Handover};
use crate::replies::Payload;
use crate::reply_cache::{CacheEntry, TooManyClients};
use crate::request::request;
use drc::shared::Start;
use drc::{Stored, args_hash};
use nfs3::{Outcome, Status, Wire};
use rpc::Xid;
use rpc::reply::{Accept, Reject, encode_reject, encode_success};
use xdr::Writer;

/// What a handler returns.
pub(crate) type HandlerResult<S, F> = Result<Outcome<S, F>, HandlerError>;

/// Writes a whole reply, and returns its status.
#[inline]
pub(crate) fn write<'w, S: Wire<'w>, F: Wire<'w>>(
    out: &mut Vec<u8>,
    xid: Xid,
    outcome: &Outcome<S, F>,
) -> Status {
    let mut writer = Writer::new(out);
    encode_success(&mut writer, xid);
    outcome.encode(&mut writer);
    outcome.status()
}

impl<'r> Call<'_, 'r> {
    /// Decodes all arguments.
    #[inline]
    pub fn args<A: Wire<'r>>(&mut self) -> Result<A, Answered> {
        let args = A::decode(&mut self.reader).map_err(|_| Answered::Accept(Accept::GarbageArgs))?;
        self.reader.finish().map_err(|_| Answered::Accept(Accept::GarbageArgs))?;
        Ok(args)
    }

    /// Runs a procedure that changes nothing.
    #[inline]
    pub fn idempotent<A, S, F>(
        mut self,
        run: impl FnOnce(&Request<'_>, &A) -> HandlerResult<S, F>,
    ) -> Result<Answered, Answered>
    where
        A: Wire<'r>,
        S: Wire<'r>,
        F: Wire<'r>,
    {
        let args = self.args::<A>()?;
        let outcome = run(&request(self.client, self.mode)?, &args)?;
        Ok(Answered::reply(write(self.out, self.header.xid, &outcome) != Status::OK))
    }

    /// Runs a procedure that changes something, exactly once.
    pub fn non_idempotent<A, S, F>(
        mut self,
        run: impl FnOnce(&Request<'_>, &A) -> HandlerResult<S, F>,
        replayed: impl FnOnce() -> Option<S>,
    ) -> Result<Answered, Answered>
    where
        A: Wire<'r> + Recover<S, F>,
        S: Wire<'r>,
        F: Wire<'r> + Default,
    {
        let bytes = self.reader.rest();
        let args = self.args::<A>()?;
        let unknown = || Outcome::Fail(Status::SERVERFAULT, F::default());
        self.exactly_once(
            || args_hash(bytes, bytes.len()),
            |request, entry, start| {
                if start == Start::InDoubt
                    && let Some(recovered) = args.recover(request, entry.pre_op())
                {
                    return recovered;
                }
                // The note of the first execution is kept: the present state may be the result of
                // that execution.
                if entry.records_pre_op_state()
                    && (start == Start::Fresh || entry.pre_op().is_none())
                    && let Some(seen) = args.pre_op_state(request)
                {
                    entry.record_pre_op(seen);
                }
                run(request, &args)
            },
            |_| Ok(replayed().map_or_else(unknown, Outcome::Ok)),
            |_| false,
        )
    }

    /// Acquires the caller's window in the reply cache, if it has one. The error is the answer to
    /// the call: without a window, a copy of the call could run again later.
    fn acquire_window(&mut self) -> Result<(), Status> {
        if self.client.admitted.is_empty() {
            // Strangers take no place in the cache.
            return Err(Status::ACCES);
        }
        let client_id = self.client.identities.current().and_then(|identity| identity.client_id);
        let reply_cache = &self.group.reply_cache;
        let acquired = self.client.cache_client.acquire_window(client_id, reply_cache, self.times.now);
        acquired.map_err(|TooManyClients| Status::JUKEBOX)
    }

    /// Runs `run` unless the call ran before. `replayed` builds the reply to a call of which only
    /// the completion is known. `is_partial` says whether a success did less than requested.
    pub fn exactly_once<S, F>(
        mut self,
        args_hash: impl FnOnce() -> u64,
        run: impl FnOnce(&Request<'_>, &CacheEntry<'_>, Start) -> HandlerResult<S, F>,
        replayed: impl FnOnce(&Request<'_>) -> HandlerResult<S, F>,
        is_partial: impl FnOnce(&S) -> bool,
    ) -> Result<Answered, Answered>
    where
        S: Wire<'r>,
        F: Wire<'r> + Default,
    {
        let (xid, from, reply_cache) = (self.header.xid, self.out.len(), &self.group.reply_cache);
        let acquired = self.acquire_window();
        let client = &*self.client;
        let request = request(client, self.mode)?.without_opens(self.group, self.times.now);
        if let Err(status) = acquired {
            write::<S, F>(self.out, xid, &Outcome::Fail(status, F::default()));
            return Ok(Answered::reply(true));
        }
        let entry = CacheEntry::new(
            reply_cache,
            self.waiters,
            &client.cache_client,
            request.identity,
            (self.header, self.class),
            args_hash,
            self.times,
        );
        let (entry, start) = match consult(entry, self.mode, self.token) {
            Decision::Run(entry, start) => (entry, start),
            Decision::Replay(stored) => {
                let error = write_stored(self.out, xid, stored, || replayed(&request))?;
                return Ok(Answered::Reply {
                    error,
                    replayed: true,
                    payload: Payload::new(),
                    payload_len: 0,
                });
            }
            Decision::Done(end) => return end,
        };
        let mut partial = false;
        let status = match run(&request, &entry, start) {
            Ok(outcome) => {
                partial = matches!(&outcome, Outcome::Ok(success) if is_partial(success));
                write(self.out, xid, &outcome)
            }
            Err(HandlerError::Auth(stat)) => {
                encode_reject(&mut Writer::new(self.out), xid, Reject::Auth(stat));
                Status::ACCES
            }
            Err(HandlerError::WouldBlock) => {
                entry.hand_over();
                return Ok(Answered::WouldBlock(Handover { begun: true, ..Handover::default() }));
            }
        };
        let reply = self.out.get(from..).unwrap_or_default();
        let reply_to = entry.finish(status.0, partial, reply.get(4..).unwrap_or_default());
        match reply_to.waiter {
            None => Ok(Answered::reply(status != Status::OK)),
            Some(newer) => {
                // A replay arrived while the call ran: the connection of the replay gets the reply.
                self.waiters.reply(newer, reply);
                Ok(Answered::Elsewhere)
            }
        }
    }
}

/// Writes the reply to a call that ran before. Returns whether the reply is an error.
#[cold]
fn write_stored<'w, S: Wire<'w>, F: Wire<'w> + Default>(
    out: &mut Vec<u8>,
    xid: Xid,
    stored: Stored,
    replayed: impl FnOnce() -> HandlerResult<S, F>,
) -> Result<bool, Answered> {
    let outcome = match stored {
        Stored::Reply(bytes) => {
            let mut writer = Writer::new(out);
            writer.u32(xid.0);
            writer.bytes(&bytes);
            return Ok(false);
        }
        Stored::Done => replayed()?,
        Stored::Failed(status) => Outcome::Fail(Status(status), F::default()),
    };
    Ok(write(out, xid, &outcome) != Status::OK)
}
