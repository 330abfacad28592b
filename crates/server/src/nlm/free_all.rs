//! FREE_ALL: a host that is not monitored has restarted. RFC 1813 s6.3.17

use super::request::NlmRequest;
use nlm::proc::free_all::Args;

/// Frees what the caller's host has by this name.
pub(super) fn run(request: &NlmRequest<'_>, args: &Args<'_>) {
    let host = request.host(args.name.0);
    request.shared.nlm_forget(request.now, host.client, &host.name, "has freed all its locks");
}
