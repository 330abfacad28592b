//! Passes a call through the reply cache.
//!
//! A call that cannot be executed at once is begun in the reply cache on its loop and executed by a
//! worker, so that calls are begun in the order of arrival: a replay finds the original running,
//! wherever that waits. In a group of processes the original may run elsewhere: then the replay is
//! deferred and tried again.

use super::{Answered, Handover, Mode};
use crate::reply_cache::{CacheEntry, DELAY, Verdict};
use drc::shared::Start;
use drc::{Refusal, Stored, Token};
use rpc::reply::Accept;

/// The result of the reply cache for a call.
pub(crate) enum Decision<'g> {
    /// Execute it.
    Run(CacheEntry<'g>, Start),
    /// The call ran, or counts as executed.
    Replay(Stored),
    /// Nothing more is to be done with the call here.
    Done(Result<Answered, Answered>),
}

/// Passes a call through the reply cache, as far as "started" where other processes see that.
#[inline]
pub(crate) fn consult<'g>(mut entry: CacheEntry<'g>, mode: Mode<'_>, token: Token) -> Decision<'g> {
    let wait = |handover| Decision::Done(Ok(Answered::WouldBlock(handover)));
    let verdict = match mode {
        Mode::Loop(_) | Mode::Worker { begun: false } => entry.begin(token),
        Mode::Worker { begun: true } => entry.resume(),
        Mode::Discard => {
            entry.resume();
            entry.forget();
            return Decision::Done(Ok(Answered::Elsewhere));
        }
    };
    match verdict {
        Verdict::Run if mode.is_loop() && entry.records_pre_op_state() => {
            entry.hand_over();
            wait(Handover { begun: true, ..Handover::default() })
        }
        Verdict::Run => match entry.start() {
            // The client's call arrived at another process meanwhile, and that process has it.
            Start::Lost => wait(Handover { deferred: true, ..Handover::default() }),
            start => Decision::Run(entry, start),
        },
        Verdict::Replay(stored) => Decision::Replay(stored),
        Verdict::Attached => Decision::Done(Ok(Answered::Elsewhere)),
        Verdict::Defer => wait(Handover { deferred: true, ..Handover::default() }),
        Verdict::Refused(Refusal::TableFull) => Decision::Replay(Stored::Failed(DELAY)),
        Verdict::Refused(Refusal::BelowWindow | Refusal::UnknownClass) => {
            Decision::Done(Err(Answered::Accept(Accept::SystemErr)))
        }
    }
}
