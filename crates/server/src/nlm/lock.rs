//! LOCK and NM_LOCK. RFC 1813 s6.3.2, s6.3.16

use super::HandlerResult;
use super::request::NlmRequest;
use super::status::of_state;
use nlm::Status;
use nlm::proc::lock::Args;
use state::{NlmHow, NlmLocked};

/// Locks, or waits: then the caller is called back. A host that asks by NM_LOCK is not monitored.
pub(super) fn run(request: &NlmRequest<'_>, args: &Args<'_>, monitored: bool) -> HandlerResult<Status> {
    let named = match request.named_file(&args.lock, args.exclusive)? {
        Ok(named) => named,
        Err(status) => return Ok(status),
    };
    let is_in_grace = request.shared.is_in_grace(request.now);
    if is_in_grace && !args.reclaim {
        return Ok(Status::DENIED_GRACE_PERIOD);
    }
    // What is reclaimed without a grace period is held already, or not granted.
    let is_new = is_in_grace || !args.reclaim;
    if monitored
        && is_new
        && let Err(status) = request.monitor(&named, args.reclaim)?
    {
        return Ok(status);
    }
    // Who waits is found by what it waits for.
    let how = NlmHow { wait: args.block.then_some(0), reclaim: args.reclaim, monitored };
    let shared = request.shared;
    let locked = shared.state.nlm_lock(shared.host(), request.now, &named.lock(), how);
    // A downgrade may let others in.
    shared.settle_waiting(request.now);
    Ok(match locked {
        Ok(NlmLocked::Granted) => Status::GRANTED,
        Ok(NlmLocked::Waits) => Status::BLOCKED,
        Err(error) => {
            // It may be the holder of a delegation that is in the way.
            shared.call_back_if_needed(request.now);
            of_state(&error)
        }
    })
}
