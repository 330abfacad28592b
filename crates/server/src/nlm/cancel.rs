//! CANCEL: ends a request that waits. RFC 1813 s6.3.3

use super::request::NlmRequest;
use super::status::of_state;
use nlm::Status;
use nlm::proc::cancel::Args;

/// A request that does not wait, because it never did or because it has its lock meanwhile, cannot
/// be cancelled: in the second case the caller unlocks, or refuses the lock when it is told of it.
pub(super) fn run(request: &NlmRequest<'_>, args: &Args<'_>) -> Status {
    let named = match request.named(&args.lock, args.exclusive) {
        Ok(named) => named,
        Err(status) => return status,
    };
    let shared = request.shared;
    let cancelled = shared.state.nlm_cancel(shared.host(), request.now, &named.lock());
    // Others may have waited behind it.
    shared.settle_waiting(request.now);
    match cancelled {
        Ok(true) => Status::GRANTED,
        Ok(false) => Status::DENIED,
        Err(error) => of_state(&error),
    }
}
