//! Which ANA state a node reports for the namespaces of an owner, and changes of the owner. NVMe
//! Base, "Asymmetric Namespace Access Reporting".

use super::association::Association;
use super::subsystem::{CloseReason, Subsystem};
use crate::feature::Event;
use crate::log_page::{AnaGroup, AnaLog, AnaState};
use std::time::Duration;

/// A node of the pair, from 0 on. Its ANA group is one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub u32);

impl Node {
    /// The first node of a pair.
    pub const A: Self = Self(0);
    /// The second one.
    pub const B: Self = Self(1);

    /// ANAGRPID of the namespaces that the node owns.
    #[must_use]
    pub const fn group(self) -> u32 {
        self.0 + 1
    }
}

impl std::fmt::Display for Node {
    /// A letter, from A on; a number where there are no more of them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match u8::try_from(self.0) {
            Ok(at @ 0..=25) => write!(f, "{}", char::from(b'A' + at)),
            _ => write!(f, "{}", self.0),
        }
    }
}

/// How the owner of namespaces is reached from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It serves: here itself, or over there and commands are forwarded to it.
    Serving,
    /// Ownership moves; bounded by ANATT, after which the state is inaccessible.
    Moving,
    /// It does not serve now.
    Unreachable,
    /// It will not serve again.
    Lost,
}

/// The state that the node `here` reports for namespaces of `owner`, where each node takes commands
/// for the volumes of both. A node that can serve never says that it cannot.
#[must_use]
pub const fn state(owner: Node, here: Node, reach: Reach) -> AnaState {
    match reach {
        Reach::Serving if owner.0 == here.0 => AnaState::OPTIMIZED,
        Reach::Serving => AnaState::NON_OPTIMIZED,
        Reach::Moving => AnaState::CHANGE,
        Reach::Unreachable => AnaState::INACCESSIBLE,
        Reach::Lost => AnaState::PERSISTENT_LOSS,
    }
}

/// How a volume is reached that its owner does not serve now, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Away {
    pub(super) reach: Reach,
    pub(super) since: Duration,
}

/// The groups beside those of the nodes: for what moves, is not reached, and is lost. A group has
/// one state, so a volume whose state is another than that of its owner's other volumes is in a
/// group of its own kind meanwhile.
pub(super) const GROUPS_AWAY: usize = 3;

impl Subsystem {
    /// Changes how all is reached that a node owns.
    pub fn set_reach(&mut self, now: Duration, node: Node, reach: Reach) {
        let owned = self.volumes.iter().filter(|(_, volume)| volume.owner == node);
        let owned: Vec<u32> = owned.map(|(nsid, _)| *nsid).collect();
        for nsid in owned {
            self.set_owner(now, nsid, node, reach);
        }
    }

    /// Changes who owns a volume, and how it is reached. Hosts that see it learn that its ANA group
    /// is another; commands that were admitted go on. Controllers that have reported it as lost may
    /// report nothing else, so they end, and hosts connect anew. False if nothing changes, or there
    /// is no such volume.
    pub fn set_owner(&mut self, now: Duration, nsid: u32, owner: Node, reach: Reach) -> bool {
        let before = self.group_of(nsid);
        let was_lost = self.reach_of(nsid) == Reach::Lost;
        let Some(volume) = self.volumes.get_mut(&nsid) else { return false };
        if volume.owner == owner && self.away.get(&nsid).map_or(Reach::Serving, |away| away.reach) == reach {
            return false;
        }
        volume.owner = owner;
        match reach {
            Reach::Serving => _ = self.away.remove(&nsid),
            _ => _ = self.away.insert(nsid, Away { reach, since: now }),
        }
        let after = self.group_of(nsid);
        [before, after].into_iter().for_each(|group| self.touch_group(group));
        self.ana_changes += 1;
        let cntlids: Vec<u16> = self.controllers.keys().copied().collect();
        for cntlid in cntlids {
            let Some(controller) = self.controllers.get_mut(&cntlid) else { continue };
            let Some(seen) = controller.view.namespace(nsid) else { continue };
            if was_lost && reach != Reach::Lost && seen.ana == AnaState::PERSISTENT_LOSS {
                self.end(cntlid, CloseReason::LossOver);
                continue;
            }
            // Also where the states of both groups are the same. That the identifier of the group
            // is another in Identify is no event of its own: that of ANA stands for it.
            controller.events.raise(Event::ANA_CHANGED);
            self.renew_view(cntlid);
            self.send_events(cntlid);
        }
        self.renew_guests();
        true
    }

    /// What moves for longer than hosts were told is not reached.
    pub(super) fn end_moves(&mut self, now: Duration) {
        let limit = self.config.limits.ana_transition;
        let is_over = |away: &Away| away.reach == Reach::Moving && now >= away.since + limit;
        let over = self.away.iter().filter(|(_, away)| is_over(away));
        let over: Vec<u32> = over.map(|(nsid, _)| *nsid).collect();
        for nsid in over {
            let owner = self.volumes.get(&nsid).map_or(Node::A, |volume| volume.owner);
            self.set_owner(now, nsid, owner, Reach::Unreachable);
        }
    }

    /// What the ANA log says of a group changed.
    pub(super) fn touch_group(&mut self, group: u32) {
        let at = usize::try_from(group).ok().and_then(|group| group.checked_sub(1));
        if let Some(changes) = at.and_then(|at| self.group_changes.get_mut(at)) {
            *changes += 1;
        }
    }

    pub(super) fn reach_of(&self, nsid: u32) -> Reach {
        self.away.get(&nsid).map_or(Reach::Serving, |away| away.reach)
    }

    /// The number of nodes, and of their groups.
    pub(super) fn nodes(&self) -> u32 {
        u32::try_from(self.group_changes.len() - GROUPS_AWAY).unwrap_or(u32::MAX)
    }

    /// ANAGRPID of a volume; 0 if there is none.
    pub(super) fn group_of(&self, nsid: u32) -> u32 {
        let Some(volume) = self.volumes.get(&nsid) else { return 0 };
        match self.reach_of(nsid) {
            Reach::Serving => volume.owner.group(),
            Reach::Moving => self.nodes() + 1,
            Reach::Unreachable => self.nodes() + 2,
            Reach::Lost => self.nodes() + 3,
        }
    }

    /// The ANA state of a volume, as seen from the ports of a node.
    pub(super) fn ana_state(&self, nsid: u32, owner: Node, here: Node) -> AnaState {
        state(owner, here, self.reach_of(nsid))
    }

    /// Whether the reservations of a volume are those of another process.
    pub(super) fn is_elsewhere(&self, owner: Node) -> bool {
        self.config.is_split && !self.config.cntlids.contains_key(&owner)
    }

    /// The ANA log as the host of a controller sees it: the groups of the nodes, and of the others
    /// those that have namespaces. Linux counts the time of a group that changes, also of an empty
    /// one, and resets the controller.
    pub(super) fn ana_log(&self, controller: &Association) -> AnaLog {
        let here = controller.port.node;
        let group = |(id, changes): (u32, &u64)| {
            let seen = controller.view.namespaces.iter().map(|namespace| namespace.nsid);
            let nsids: Vec<u32> = seen.filter(|nsid| self.group_of(*nsid) == id).collect();
            let reach = match id.checked_sub(self.nodes()) {
                Some(1) => Reach::Moving,
                Some(2) => Reach::Unreachable,
                Some(3..) => Reach::Lost,
                _ => Reach::Serving,
            };
            let is_told = reach == Reach::Serving || !nsids.is_empty();
            let state = state(Node(id - 1), here, reach);
            is_told.then_some(AnaGroup { id, changes: *changes, state, nsids })
        };
        let groups = (1..).zip(&self.group_changes).filter_map(group).collect();
        AnaLog { changes: self.ana_changes, groups }
    }
}
