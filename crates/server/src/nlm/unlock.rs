//! UNLOCK. RFC 1813 s6.3.4

use super::request::NlmRequest;
use super::status::of_state;
use nlm::Status;
use nlm::proc::unlock::Args;

/// Bytes that are not locked are no error, nor is a file that is gone.
pub(super) fn run(request: &NlmRequest<'_>, args: &Args<'_>) -> Status {
    let named = match request.named(&args.lock, true) {
        Ok(named) => named,
        Err(status) => return status,
    };
    let shared = request.shared;
    let unlocked = shared.state.nlm_unlock(shared.host(), request.now, &named.lock());
    shared.settle_waiting(request.now);
    match unlocked {
        Ok(()) => Status::GRANTED,
        Err(error) => of_state(&error),
    }
}
