//! A host identifier stands for one host, at all nodes.

use super::config::Kind;
use super::subsystem::{CloseReason, Output, Refusal, Subsystem};
use crate::fabrics::InvalidParameter;
use crate::{HostId, Nqn, Status};

impl Subsystem {
    /// A host identifier stands for one host: registrations and reservations belong to it, and a
    /// host with the identifier of another would have the rights of that host.
    pub(super) fn check_host_id(&self, host: &Nqn, host_id: HostId) -> Result<(), Refusal> {
        if self.config.host_ids.get(host).is_some_and(|known| *known != host_id) {
            return Err(Refusal::invalid(InvalidParameter::HOST_ID));
        }
        // Without DNR: the other host may be the one that is mended, or may end.
        if self.config.kind == Kind::Io && self.holder_of(host_id).is_some_and(|holder| holder != host) {
            let status = Status::CONNECT_INVALID_PARAMETERS;
            return Err(Refusal { status, parameter: Some(InvalidParameter::HOST_ID) });
        }
        Ok(())
    }

    /// The host that has this identifier: the one that the configuration names, or one that has a
    /// controller, here or at the other node.
    #[must_use]
    pub fn holder_of(&self, host_id: HostId) -> Option<&Nqn> {
        let named = self.config.host_ids.iter().find(|(_, id)| **id == host_id).map(|(host, _)| host);
        let connected = || self.controllers.values().find(|one| one.host_id == host_id).map(|one| &one.host);
        named.or_else(connected).or_else(|| self.elsewhere.get(&host_id))
    }

    /// The hosts that have controllers here, for the other node.
    pub fn tell_host_ids(&mut self) {
        if !self.tells_host_ids() {
            return;
        }
        let mut told = std::collections::BTreeSet::new();
        for one in self.controllers.values() {
            if told.insert(one.host_id) {
                let (host_id, host) = (one.host_id, Some(one.host.clone()));
                self.outputs.push_back(Output::HostId { host_id, host });
            }
        }
    }

    /// A host of the other node has this identifier, or none has it any more. Of two hosts that
    /// have connected to the nodes in the same moment, the one of the first node stays.
    pub fn set_host_elsewhere(&mut self, host_id: HostId, host: Option<Nqn>) {
        let Some(host) = host else {
            self.elsewhere.remove(&host_id);
            return;
        };
        let others = self.controllers.iter().filter(|(_, one)| one.host_id == host_id && one.host != host);
        let others: Vec<u16> = others.map(|(cntlid, _)| *cntlid).collect();
        self.elsewhere.insert(host_id, host);
        if self.end_node() > 0 {
            others.into_iter().for_each(|cntlid| self.end(cntlid, CloseReason::HostId));
        }
    }

    /// The process of the other node has ended.
    pub fn forget_hosts_elsewhere(&mut self) {
        self.elsewhere.clear();
    }

    /// A controller of this host comes.
    pub(super) fn host_id_taken(&mut self, host: &Nqn, host_id: HostId) {
        if self.tells_host_ids() && !self.has_host_id(host_id) {
            self.outputs.push_back(Output::HostId { host_id, host: Some(host.clone()) });
        }
    }

    /// A controller with this identifier is gone.
    pub(super) fn host_id_left(&mut self, host_id: HostId) {
        if self.tells_host_ids() && !self.has_host_id(host_id) {
            self.outputs.push_back(Output::HostId { host_id, host: None });
        }
    }

    fn has_host_id(&self, host_id: HostId) -> bool {
        self.controllers.values().any(|one| one.host_id == host_id)
    }

    fn tells_host_ids(&self) -> bool {
        self.config.is_split && self.config.kind == Kind::Io
    }
}
