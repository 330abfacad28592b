//! Tries deferred calls again: calls that another process of the group or another worker of this
//! process has, or that may turn out to be a neighbour's. The same thread does the periodic upkeep
//! of a group.

use super::Shared;
use crate::clock;
use crate::shared_reply_cache::UPKEEP;
use std::sync::PoisonError;
use std::time::Duration;

/// How long a call waits before it is tried again: at first, and after [`FAST_RETRIES`] attempts in
/// vain.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(2);
const RETRY_DELAY_MAX: Duration = Duration::from_millis(20);
const FAST_RETRIES: u32 = 50;
/// How long to wait for a deferred call when nothing else is to be done.
const IDLE: Duration = Duration::from_secs(3600);

/// Runs until the pool ends.
pub(super) fn run(shared: &Shared) {
    let mut due = Duration::ZERO;
    let mut queues = shared.queues();
    while !queues.ending {
        let wait = match queues.deferrals_min() {
            None if shared.group.reply_cache.shared().is_none() => IDLE,
            None => UPKEEP,
            Some(..FAST_RETRIES) => RETRY_DELAY_MIN,
            Some(_) => RETRY_DELAY_MAX,
        };
        let had = queues.deferrals_min().is_some();
        queues = shared.some_deferred.wait_timeout(queues, wait).unwrap_or_else(PoisonError::into_inner).0;
        if had {
            queues.requeue_deferred();
            shared.changed.notify_all();
        }
        let now = clock::now();
        if now >= due {
            due = now + UPKEEP;
            drop(queues);
            if let Some(reply_cache) = shared.group.reply_cache.shared() {
                reply_cache.upkeep(now);
            }
            queues = shared.queues();
        }
    }
}
