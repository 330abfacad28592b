//! Calls that another process of the group has, or another worker of this one, or of which it is
//! yet to be seen whether they are a neighbour's: they ask again until that is over. The same
//! thread does what a group needs done now and then.

use super::Shared;
use crate::clock;
use crate::shared::UPKEEP;
use std::sync::PoisonError;
use std::time::Duration;

/// How long a call waits before it asks again: first, and once that has been in vain
/// [`SOON_TIMES`].
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(20);
const SOON_TIMES: u32 = 50;
/// How long to wait for a call to be put off, when nothing else is to be done.
const IDLE: Duration = Duration::from_secs(3600);

/// Runs until the pool ends.
pub(super) fn run(shared: &Shared) {
    let mut due = Duration::ZERO;
    let mut queues = shared.queues();
    while !queues.ending {
        let wait = match queues.put_off_least() {
            None if shared.group.reply_cache.shared().is_none() => IDLE,
            None => UPKEEP,
            Some(..SOON_TIMES) => SOON,
            Some(_) => LATER,
        };
        let had = queues.put_off_least().is_some();
        queues = shared.some_put_off.wait_timeout(queues, wait).unwrap_or_else(PoisonError::into_inner).0;
        if had {
            queues.call_again();
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
