//! Calls that are on no connection, and what each of them waits for.
//!
//! Invariant: no queue has a call that has ended, because its key will soon be used again
//! ([`Queues::retain`]). Each queue is in order of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use drc::XidClass;

use crate::call::CallKey;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Calls that are to be sent in this round: new ones of the engine, the rest of short writes,
    /// calls of a lost connection, and the like.
    ready: Vec<CallKey>,
    /// An emptied list, for the next round.
    spare: Vec<CallKey>,
    /// Calls to be sent at a later time.
    delayed: Vec<(Duration, CallKey)>,
    /// Calls that no connection could take yet.
    for_connection: VecDeque<CallKey>,
    /// Calls that wait for an xid, by class.
    for_xid: [VecDeque<CallKey>; 3],
}

impl Queues {
    /// Queues a call to be sent in this round.
    pub(super) fn push(&mut self, key: CallKey) {
        self.ready.push(key);
    }

    /// Queues calls to be sent in this round.
    pub(super) fn extend(&mut self, keys: impl IntoIterator<Item = CallKey>) {
        self.ready.extend(keys);
    }

    /// Takes the calls that are to be sent in this round. Give the list back.
    pub(super) fn take_ready(&mut self) -> Vec<CallKey> {
        std::mem::replace(&mut self.ready, std::mem::take(&mut self.spare))
    }

    /// Takes back an emptied list.
    pub(super) fn recycle(&mut self, list: Vec<CallKey>) {
        self.spare = list;
    }

    /// Queues a call to be sent at this time.
    pub(super) fn delay(&mut self, until: Duration, key: CallKey) {
        self.delayed.push((until, key));
    }

    /// Queues the calls again whose time has come.
    pub(super) fn end_delays(&mut self, now: Duration) {
        let due = self.delayed.extract_if(.., |(at, _)| *at <= now).map(|(_, key)| key);
        self.ready.extend(due);
    }

    /// Queues a call that no connection takes.
    pub(super) fn wait_for_connection(&mut self, key: CallKey) {
        self.for_connection.push_back(key);
    }

    /// How many calls wait for a connection.
    pub(super) fn waiting_for_connection(&self) -> usize {
        self.for_connection.len()
    }

    /// Takes the first call that waits for a connection.
    pub(super) fn next_for_connection(&mut self) -> Option<CallKey> {
        self.for_connection.pop_front()
    }

    /// Queues a call until there is an xid of its class.
    pub(super) fn wait_for_xid(&mut self, class: XidClass, key: CallKey) {
        if let Some(queue) = self.for_xid.get_mut(class as usize) {
            queue.push_back(key);
        }
    }

    /// The same, before all others.
    pub(super) fn wait_first_for_xid(&mut self, class: XidClass, key: CallKey) {
        if let Some(queue) = self.for_xid.get_mut(class as usize) {
            queue.push_front(key);
        }
    }

    /// The first call that waits for an xid of this class.
    pub(super) fn first_for_xid(&self, class: XidClass) -> Option<CallKey> {
        self.for_xid.get(class as usize)?.front().copied()
    }

    /// Removes the first call that waits for an xid of this class.
    pub(super) fn pop_for_xid(&mut self, class: XidClass) {
        if let Some(queue) = self.for_xid.get_mut(class as usize) {
            queue.pop_front();
        }
    }

    /// Keeps only these calls.
    pub(super) fn retain(&mut self, stays: impl Fn(&CallKey) -> bool) {
        self.for_connection.retain(&stays);
        self.for_xid.iter_mut().for_each(|queue| queue.retain(&stays));
        self.ready.retain(&stays);
        self.delayed.retain(|(_, key)| stays(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_has_ended_is_in_no_queue() {
        let mut queues = Queues::default();
        for key in [1, 2] {
            queues.push(key);
            queues.delay(Duration::ZERO, key);
            queues.wait_for_connection(key);
            queues.wait_for_xid(XidClass::WholeReply, key);
        }
        queues.retain(|key| *key != 1);
        assert_eq!((queues.next_for_connection(), queues.waiting_for_connection()), (Some(2), 0));
        assert_eq!(queues.first_for_xid(XidClass::WholeReply), Some(2));
        queues.wait_first_for_xid(XidClass::WholeReply, 3);
        assert_eq!(queues.first_for_xid(XidClass::WholeReply), Some(3));
        queues.end_delays(Duration::ZERO);
        assert_eq!(queues.take_ready(), [2, 2]);
    }

    #[test]
    fn a_delayed_call_is_sent_when_its_time_has_come() {
        let mut queues = Queues::default();
        queues.delay(Duration::from_secs(2), 2);
        queues.delay(Duration::from_secs(1), 1);
        queues.end_delays(Duration::from_secs(1));
        assert_eq!(queues.take_ready(), [1]);
        queues.end_delays(Duration::from_secs(2));
        assert_eq!(queues.take_ready(), [2]);
    }
}
