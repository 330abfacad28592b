//! One call of NFSv3 or MOUNT whose header and credential are sound: decodes its arguments, runs
//! its handler, writes the reply. Calls that change something pass the reply cache.

use super::request::{Request, Unanswered};
use super::settle::Settle;
use crate::client::Client;
use crate::program::replay::{Passed, pass};
use crate::program::{Answered, Call, Handover, Mode};
use crate::replies::Payload;
use crate::reply_cache::{CacheEntry, TooManyClients};
use drc::shared::Start;
use drc::{Stored, args_hash};
use nfs3::{Outcome, Status, Wire};
use rpc::Xid;
use rpc::auth::AuthStat;
use rpc::reply::{Accept, Reject, encode_reject, encode_success};
use xdr::Writer;

/// What a handler returns.
pub(crate) type Ran<S, F> = Result<Outcome<S, F>, Unanswered>;

impl From<Unanswered> for Answered {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Auth(stat) => Self::Reject(Reject::Auth(stat)),
            Unanswered::MustWait => Self::MustWait(Handover::default()),
        }
    }
}

/// The context of a call, for its handler.
#[inline]
pub(crate) fn request<'a>(client: &'a Client, mode: Mode<'a>) -> Result<Request<'a>, Answered> {
    let identity = client.identities.current().ok_or(Answered::Reject(Reject::Auth(AuthStat::FAILED)))?;
    Ok(Request { client, identity, wait: mode.wait() })
}

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
    pub fn plain<A, S, F>(
        mut self,
        run: impl FnOnce(&Request<'_>, &A) -> Ran<S, F>,
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
    pub fn changing<A, S, F>(
        mut self,
        run: impl FnOnce(&Request<'_>, &A) -> Ran<S, F>,
        replayed: impl FnOnce() -> Option<S>,
    ) -> Result<Answered, Answered>
    where
        A: Wire<'r> + Settle<S, F>,
        S: Wire<'r>,
        F: Wire<'r> + Default,
    {
        let bytes = self.reader.rest();
        let args = self.args::<A>()?;
        let unknown = || Outcome::Fail(Status::SERVERFAULT, F::default());
        self.once(
            || args_hash(bytes, bytes.len()),
            |request, entry, start| {
                if start == Start::InDoubt
                    && let Some(settled) = args.settle(request, entry.seen())
                {
                    return settled;
                }
                // The note of the first execution is kept: the present state may be the result of
                // that execution.
                if entry.looks_first()
                    && (start == Start::Fresh || entry.seen().is_none())
                    && let Some(seen) = args.look(request)
                {
                    entry.note(seen);
                }
                run(request, &args)
            },
            |_| Ok(replayed().map_or_else(unknown, Outcome::Ok)),
            |_| false,
        )
    }

    /// Runs `run` unless the call ran before. `replayed` builds the reply to a call of which only
    /// the completion is known. `cut_short` says whether a success did less than requested.
    pub fn once<S, F>(
        self,
        args_hash: impl FnOnce() -> u64,
        run: impl FnOnce(&Request<'_>, &CacheEntry<'_>, Start) -> Ran<S, F>,
        replayed: impl FnOnce(&Request<'_>) -> Ran<S, F>,
        cut_short: impl FnOnce(&S) -> bool,
    ) -> Result<Answered, Answered>
    where
        S: Wire<'r>,
        F: Wire<'r> + Default,
    {
        let (xid, from) = (self.header.xid, self.out.len());
        let client_id = self.client.identities.current().and_then(|identity| identity.client_id);
        let held = self.client.caller.hold_window(client_id, &self.group.reply_cache, self.times.now);
        let client = &*self.client;
        let request = request(client, self.mode)?;
        if held == Err(TooManyClients) {
            // If the call were executed anyway, a copy of it could run again later.
            write::<S, F>(self.out, xid, &Outcome::Fail(Status::JUKEBOX, F::default()));
            return Ok(Answered::reply(true));
        }
        let (reply_cache, identity) = (&self.group.reply_cache, request.identity);
        let entry = CacheEntry::new(
            reply_cache,
            self.waiters,
            &client.caller,
            identity,
            (self.header, self.class),
            args_hash,
            self.times,
        );
        let (entry, start) = match pass(entry, self.mode, self.token) {
            Passed::Run(entry, start) => (entry, start),
            Passed::Ran(stored) => {
                let error = write_stored(self.out, xid, stored, || replayed(&request))?;
                return Ok(Answered::Reply {
                    error,
                    replayed: true,
                    payload: Payload::new(),
                    payload_len: 0,
                });
            }
            Passed::Ended(end) => return end,
        };
        let mut short = false;
        let status = match run(&request, &entry, start) {
            Ok(outcome) => {
                short = matches!(&outcome, Outcome::Ok(success) if cut_short(success));
                write(self.out, xid, &outcome)
            }
            Err(Unanswered::Auth(stat)) => {
                encode_reject(&mut Writer::new(self.out), xid, Reject::Auth(stat));
                Status::ACCES
            }
            Err(Unanswered::MustWait) => {
                entry.hand_over();
                return Ok(Answered::MustWait(Handover { begun: true, ..Handover::default() }));
            }
        };
        let reply = self.out.get(from..).unwrap_or_default();
        let answer = entry.finish(status.0, short, reply.get(4..).unwrap_or_default());
        match answer.to {
            None => Ok(Answered::reply(status != Status::OK)),
            Some(newer) => {
                // A replay arrived while the call ran: the connection of the replay gets the reply.
                self.waiters.answer(newer, reply);
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
    replayed: impl FnOnce() -> Ran<S, F>,
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
