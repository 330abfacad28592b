//! What is executed here for the process of the other node.

use super::{Controllers, Service};
use crate::mailbox::{Message, Place};
use crate::pair::{OtherAnswer, OtherNode};
use nvme::controller::{EndRequest, GuestId, Node, Reserve, Tag, View};
use nvme::{HostId, Nqn, Status};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A connection of the other process.
#[derive(Debug)]
struct Inlet {
    /// Where the instances of the controllers of its process begin.
    instance: u64,
    /// Which of the loops of that process it is of.
    outlet: u32,
    place: Place,
}

/// Connections of the other process, and the hosts whose commands come by them.
#[derive(Debug, Default)]
pub(super) struct Forwarded {
    pub(super) guests: BTreeMap<GuestId, Place>,
    /// By a number that is used once, of connections and of hosts.
    inlets: BTreeMap<u64, Inlet>,
    next: u64,
    /// The process of this node has ended whose instances are below; what it has forwarded has not.
    finishing: Option<(Node, u64)>,
}

impl Forwarded {
    /// The next number.
    const fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The oldest connection of a loop of the other process.
    fn first_of(&self, instance: u64, outlet: u32) -> Option<(u64, &Inlet)> {
        let is_it = |inlet: &Inlet| inlet.instance == instance && inlet.outlet == outlet;
        self.inlets.iter().find(|(_, inlet)| is_it(inlet)).map(|(number, inlet)| (*number, inlet))
    }

    /// Whether nothing is executed any more that a process has forwarded whose instances are below
    /// this one.
    fn is_over(&self, below: u64) -> bool {
        self.inlets.values().all(|inlet| inlet.instance >= below)
    }
}

impl Controllers {
    /// A loop of the other node's process has connected. Returns the number of the connection, and
    /// whether it may send commands at once: not while something is executed that came by an earlier
    /// one. When that is over, the connection is told.
    pub(crate) fn open_inlet(&self, place: Place, instance: u64, outlet: u32) -> (u64, bool) {
        let mut state = self.state();
        let number = state.forwarded.next();
        let is_first = state.forwarded.first_of(instance, outlet).is_none();
        state.forwarded.inlets.insert(number, Inlet { instance, outlet, place });
        (number, is_first)
    }

    /// Nothing that came by this connection is executed any more.
    pub(crate) fn close_inlet(&self, number: u64) {
        let mut state = self.state();
        let Some(closed) = state.forwarded.inlets.remove(&number) else { return };
        // One that had to wait itself was in nobody's way.
        if let Some((next, inlet)) = state.forwarded.first_of(closed.instance, closed.outlet)
            && number < next
            && let Some(mailbox) = self.mailboxes.get(inlet.place.event_loop)
        {
            mailbox.post(Message::Forward { token: inlet.place.token }, true);
        }
        if let Some((node, below)) = state.forwarded.finishing
            && state.forwarded.is_over(below)
        {
            state.forwarded.finishing = None;
            state.io.set_finished(node.0, below);
        }
    }

    /// Whether a process has ended that has forwarded something which is still executed.
    pub(crate) fn is_finishing(&self) -> bool {
        self.state().forwarded.finishing.is_some()
    }

    /// The process of the other node has ended, and this one has all volumes. When nothing is
    /// executed any more that it has forwarded, its controllers are finished that have these
    /// instances.
    pub(crate) fn set_finished(&self, node: Node, below: u64) {
        let mut state = self.state();
        if state.forwarded.is_over(below) {
            state.io.set_finished(node.0, below);
        } else {
            state.forwarded.finishing = Some((node, below));
        }
    }

    /// The way to the process of the other node.
    pub(crate) fn set_other(&self, other: OtherNode) {
        let mut state = self.state();
        state.other = Some(other);
        // It may be connected already.
        state.io.tell_host_ids();
        self.deliver(&mut state, Service::Io, usize::MAX);
    }

    /// The process of the other node is connected, and knows nothing.
    pub(crate) fn other_connected(&self) {
        let mut state = self.state();
        state.io.tell_host_ids();
        self.deliver(&mut state, Service::Io, usize::MAX);
    }

    /// A host of the other node has this identifier, or none has it any more.
    pub(crate) fn set_host_elsewhere(&self, host_id: HostId, host: Option<Nqn>) {
        let mut state = self.state();
        state.io.set_host_elsewhere(host_id, host);
        // From no loop: each of them is woken.
        self.deliver(&mut state, Service::Io, usize::MAX);
    }

    /// The other node asks to end controllers of a host.
    pub(crate) fn end_for_other(&self, request: &EndRequest) {
        let mut state = self.state();
        state.io.end_for_other(request);
        // From no loop: each of them is woken.
        self.deliver(&mut state, Service::Io, usize::MAX);
    }

    /// The other node has answered such a request.
    pub(crate) fn other_answered(&self, id: u64, answer: OtherAnswer) {
        let mut state = self.state();
        let status = match answer {
            OtherAnswer::Said(status) => status,
            // What a process has forwarded that is gone may still be executed.
            OtherAnswer::Gone if state.forwarded.inlets.is_empty() => Status::SUCCESS,
            OtherAnswer::Gone | OtherAnswer::Unknown => Status::COMMAND_INTERRUPTED,
        };
        state.io.handle_other_answered(id, status);
        // From no loop: each of them is woken.
        self.deliver(&mut state, Service::Io, usize::MAX);
    }

    /// The process of the other node has ended.
    pub(crate) fn other_ended(&self) {
        let mut state = self.state();
        state.io.forget_other();
        state.io.forget_hosts_elsewhere();
    }

    /// A host whose commands come by a connection of the other process.
    pub(crate) fn open_guest(&self, place: Place, host: Nqn, host_id: HostId) -> (GuestId, Arc<View>) {
        let mut state = self.state();
        let id = GuestId(state.forwarded.next());
        state.forwarded.guests.insert(id, place);
        (id, state.io.open_guest(id, host, host_id))
    }

    /// Nothing of a host is begun any more.
    pub(crate) fn end_guest(&self, guest: GuestId) {
        self.state().io.end_guest(guest);
    }

    /// No command of a host comes by its connection any more, and none is executed.
    pub(crate) fn close_guest(&self, guest: GuestId) {
        let mut state = self.state();
        state.forwarded.guests.remove(&guest);
        state.io.close_guest(guest);
    }

    /// A command of reservations of such a host. Its end is posted to its loop.
    pub(crate) fn reserve_for_guest(
        &self,
        here: usize,
        (guest, id): (GuestId, u16),
        nsid: u32,
        command: Reserve,
        data: &[u8],
    ) {
        let mut state = self.state();
        state.io.reserve_for_guest(guest, Tag(id), nsid, command, data);
        self.deliver(&mut state, Service::Io, here);
    }
}
