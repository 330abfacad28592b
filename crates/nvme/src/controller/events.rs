//! Asynchronous events of a controller. NVMe Base, "Asynchronous Event Request Command".
//!
//! An event of a kind is reported once; then its kind is masked until the host reads its log page
//! without retaining the event. So a host that does not listen costs nothing.

use crate::feature::Event;
use crate::identify::AsyncEvents;
use std::collections::VecDeque;

/// The kinds of events, in the order in which they are reported.
const KINDS: [Event; 4] =
    [Event::NAMESPACE_CHANGED, Event::ANA_CHANGED, Event::DISCOVERY_CHANGED, Event::RESERVATIONS];

/// Stands for the event that hosts do not ask for, in a place that no feature has.
const UNASKED: AsyncEvents = AsyncEvents(1 << 30);

fn bit(event: Event) -> AsyncEvents {
    if event == Event::RESERVATIONS { UNASKED } else { event.mask() }
}

/// What a controller has to report, and the requests that wait for it.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Which kinds the host wants: feature 0Bh.
    pub(super) wanted: AsyncEvents,
    pending: AsyncEvents,
    masked: AsyncEvents,
    /// The identifiers of the requests that wait.
    requests: VecDeque<u16>,
}

impl Events {
    /// The number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.requests.len()
    }

    /// A request waits for an event.
    pub(super) fn wait(&mut self, cid: u16) {
        self.requests.push_back(cid);
    }

    /// Takes back a request; false if there is none of this identifier.
    pub(super) fn abort(&mut self, cid: u16) -> bool {
        let before = self.requests.len();
        self.requests.retain(|waiting| *waiting != cid);
        self.requests.len() < before
    }

    /// Something happened.
    pub(super) fn raise(&mut self, event: Event) {
        if self.wanted.with(UNASKED).has(bit(event)) {
            self.pending = self.pending.with(bit(event));
        }
    }

    /// The log page of the kind was read.
    pub(super) fn unmask(&mut self, event: Event) {
        self.masked.0 &= !bit(event).0;
        self.pending.0 &= !bit(event).0;
    }

    /// The next request that ends, and its event.
    pub(super) fn next(&mut self) -> Option<(u16, Event)> {
        let due = |event: &Event| self.pending.has(bit(*event)) && !self.masked.has(bit(*event));
        let event = KINDS.into_iter().find(due)?;
        let cid = self.requests.pop_front()?;
        self.pending.0 &= !bit(event).0;
        self.masked = self.masked.with(bit(event));
        Some((cid, event))
    }

    /// A reset: the requests that wait end without an answer. Returns their identifiers.
    pub(super) fn reset(&mut self) -> VecDeque<u16> {
        std::mem::take(self).requests
    }
}
