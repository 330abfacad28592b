//! Hosts whose commands come from the process of the other node: they have no controller here, and
//! their rights at the volumes that this node owns are looked at here nevertheless.
//!
//! The other node has the controllers, and so it says which host a command is of, after it has
//! checked what the host may see. What it cannot know is decided here: reservations, which the
//! owner alone has, and again which hosts may connect and see what, since this process may have
//! been told of a change before the other one.

use super::namespace::View;
use super::queue::Tag;
use super::reservations::{Ask, Asker, Reserve};
use super::subsystem::{Output, Subsystem};
use crate::{HostId, Nqn};
use std::sync::Arc;

/// The driver's name for a host at the other node; it is used once only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuestId(pub u64);

/// A host at the other node.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) host: Nqn,
    pub(super) host_id: HostId,
    pub(super) view: Arc<View>,
}

impl Subsystem {
    /// A host at the other node sends commands here. Returns what it may do; changes are
    /// [`Output::GuestView`].
    pub fn open_guest(&mut self, id: GuestId, host: Nqn, host_id: HostId) -> Arc<View> {
        let view = Arc::new(self.guest_view(&host, host_id));
        self.guests.insert(id, Guest { host, host_id, view: Arc::clone(&view) });
        view
    }

    /// Nothing of this host is begun any more: its commands of reservations that wait for their
    /// turn are dropped.
    pub fn end_guest(&mut self, id: GuestId) {
        self.forget_asker(|asker| matches!(asker, Asker::Guest(guest, _) if *guest == id));
    }

    /// No command of this host is executed any more or will be.
    pub fn close_guest(&mut self, id: GuestId) {
        self.end_guest(id);
        self.guests.remove(&id);
    }

    /// As [`Subsystem::reserve`], for a host at the other node. [`Output::GuestReserved`] answers
    /// it.
    pub fn reserve_for_guest(&mut self, id: GuestId, tag: Tag, nsid: u32, command: Reserve, data: &[u8]) {
        self.ask(nsid, Asker::Guest(id, tag), Ask::Command(command, data.to_vec()));
    }

    fn guest_view(&self, host: &Nqn, host_id: HostId) -> View {
        let here = self.config.cntlids.keys().next().copied().unwrap_or(super::Node::A);
        let mut view = self.view_of(here, (host, host_id), false);
        if !self.config.access.allows(host) {
            view.namespaces.clear();
        }
        view
    }

    /// Gives guests whose rights have changed their new views.
    pub(super) fn renew_guests(&mut self) {
        let differs = |(id, guest): (&GuestId, &Guest)| {
            let view = self.guest_view(&guest.host, guest.host_id);
            (*guest.view != view).then(|| (*id, Arc::new(view)))
        };
        let changed: Vec<_> = self.guests.iter().filter_map(differs).collect();
        for (guest, view) in changed {
            if let Some(guest) = self.guests.get_mut(&guest) {
                guest.view = Arc::clone(&view);
            }
            self.outputs.push_back(Output::GuestView { guest, view });
        }
    }
}
