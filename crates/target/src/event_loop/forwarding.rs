//! What a loop forwards to the process of the other node, and executes for it.

use super::{EventLoop, OUTLET};
use crate::connection::Context;
use crate::forward::{Answered, Flight, Inlet, Route, door};
use crate::mailbox::{Message, Place, Token};
use std::os::fd::{AsFd, OwnedFd};
use transport::poll::Interest;

/// Connections of the other process that a loop takes: more than it has loops, and those that end.
const INLETS_MAX: usize = 4096;
/// Connections that are accepted before others have their turn.
const ACCEPTS_MAX: usize = 64;

/// The place of the connection of the other process whose command has this tag, if it is one.
pub(super) const fn inlet_of(tag: u64) -> Option<usize> {
    ((tag >> 16) as usize).checked_sub(Token::INLETS)
}

impl EventLoop {
    pub(super) fn inlet_tokens(&self) -> Vec<Token> {
        self.inlets.iter().map(|(_, inlet)| inlet.token()).collect()
    }

    /// Does something with a connection of the other process, if it is still there, and notes what
    /// follows from it.
    pub(super) fn with_inlet(&mut self, token: Token, act: impl FnOnce(&mut Inlet, &mut Context<'_>)) {
        let Some(at) = token.key().checked_sub(Token::INLETS) else { return };
        let Some(inlet) = self.inlets.get_mut(at).filter(|inlet| inlet.token() == token) else { return };
        let mut context = context_of!(self);
        act(inlet, &mut context);
        let Context { needs_turn, has_room, .. } = context;
        self.needs_turn |= needs_turn;
        self.has_room |= has_room;
        self.has_output |= inlet.has_output() || inlet.has_more || inlet.is_gone();
    }

    pub(super) fn with_inlet_of(&mut self, tag: u64, act: impl FnOnce(&mut Inlet, &mut Context<'_>)) {
        let inlet = inlet_of(tag).and_then(|at| self.inlets.get(at));
        if let Some(token) = inlet.map(Inlet::token) {
            self.with_inlet(token, act);
        }
    }

    /// Commands of the other process that wait for a place are tried again.
    pub(super) fn start_inlets(&mut self) {
        for token in self.inlet_tokens() {
            self.with_inlet(token, |inlet, context| {
                if inlet.is_waiting() {
                    inlet.start_waiting(context);
                }
            });
        }
    }

    /// The process of the other node connects; its connections go to the loops in turn.
    pub(super) fn accept_forwards(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            let Some(door) = &self.door else { return };
            match door::accept(door.as_fd()) {
                Ok(Some(socket)) => {
                    self.serial += 1;
                    let at = self.serial as usize % self.mailboxes.len().max(1);
                    if let Some(mailbox) = self.mailboxes.get(at) {
                        mailbox.post(Message::Forwards(socket), at != self.index);
                    }
                }
                Ok(None) => return,
                Err(error) => return tracing::warn!(%error, "the other node cannot connect"),
            }
        }
    }

    pub(super) fn adopt_inlet(&mut self, socket: OwnedFd) {
        if self.stops_at.is_some() || self.inlets.len() >= INLETS_MAX {
            return;
        }
        let node = self.shared.node;
        self.serial += 1;
        let entry = self.inlets.vacant_entry();
        let token = Token::new(self.serial, Token::INLETS + entry.key());
        if let Err(error) = self.poller.add(&socket, token.0, Interest::READ) {
            return tracing::warn!(%error, "cannot wait for the other node");
        }
        entry.insert(Inlet::new(Place { event_loop: self.index, token }, socket, node));
    }

    /// A volume is reached like this from now on. What was not begun is refused if it is not
    /// served, and what was forwarded to a process that has ended is answered once it is.
    pub(super) fn set_route(&mut self, at: usize, nsid: u32, route: Route) {
        let Some(place) = self.routes.get_mut(at) else { return };
        *place = route;
        let is_there = |route: &Route| matches!(route, Route::There(_));
        self.outlet.set_wanted(self.routes.iter().any(is_there), self.now);
        if route == Route::Nowhere {
            let mut begun = Vec::new();
            for token in self.tokens() {
                self.with(token, |connection, context, _| connection.fence(nsid, &mut begun, context));
            }
        }
        let mut ended = Vec::new();
        self.outlet.settle(at, route, &mut ended);
        self.end_forwarded(ended);
    }

    /// Dials, and takes what was left over of the last round.
    pub(super) fn forward(&mut self) {
        self.outlet.dial(&self.poller, self.now);
        if self.outlet.has_more {
            self.receive_answers();
        }
        for token in self.inlet_tokens() {
            self.with_inlet(token, |inlet, context| {
                if inlet.has_more {
                    inlet.receive(context);
                }
            });
        }
    }

    pub(super) fn receive_answers(&mut self) {
        let mut ended = Vec::new();
        let routes = &self.routes;
        let route = |at: usize| routes.get(at).copied().unwrap_or(Route::Nowhere);
        self.outlet.receive(self.now, route, &mut ended);
        self.end_forwarded(ended);
    }

    fn end_forwarded(&mut self, ended: Vec<(Flight, Answered)>) {
        for (Flight { token, tag, .. }, answered) in ended {
            self.with(token, |connection, context, _| connection.forwarded(tag, answered, context));
        }
        self.has_room = true;
    }

    /// Sends what there is for the other process, and forgets its connections that are gone.
    pub(super) fn flush_forwarded(&mut self) {
        if !std::mem::take(&mut self.has_output) {
            return;
        }
        let mut ended = Vec::new();
        let routes = &self.routes;
        let route = |at: usize| routes.get(at).copied().unwrap_or(Route::Nowhere);
        let mut again = !self.outlet.flush(&self.poller, self.now, route, &mut ended);
        self.end_forwarded(ended);
        for token in self.inlet_tokens() {
            let poller = &self.poller;
            let at = token.key() - Token::INLETS;
            let Some(inlet) = self.inlets.get_mut(at) else { continue };
            let mut context = context_of!(self);
            again |= !inlet.flush(poller, &mut context);
            again |= inlet.has_more;
            self.needs_turn |= context.needs_turn;
            self.has_room |= context.has_room;
            if inlet.is_gone() {
                self.inlets.remove(at);
            }
        }
        self.has_output |= again;
    }

    /// The target stops.
    pub(super) fn stop_forwarding(&mut self) {
        self.door = None;
        for token in self.inlet_tokens() {
            self.with_inlet(token, |inlet, context| inlet.stop(context));
        }
        self.has_output = true;
    }
}

const _: () = assert!(OUTLET < 16);
