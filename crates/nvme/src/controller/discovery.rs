//! What a discovery subsystem knows: records, each for the hosts that may see it. NVMe Base,
//! "Discovery Controller".

use super::config::Access;
use super::subsystem::Subsystem;
use crate::Nqn;
use crate::feature::Event;
use crate::log_page::{DiscoveryEntry, DiscoveryLog};

/// A record of the discovery log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where and how a subsystem is reached.
    pub entry: DiscoveryEntry,
    /// Which hosts see it.
    pub hosts: Access,
}

impl Subsystem {
    /// Replaces the records of a discovery subsystem. Hosts for which something changes get a new
    /// generation and an event; for all others, nothing happened.
    pub fn set_records(&mut self, records: Vec<Record>) {
        let old = std::mem::replace(&mut self.records, records);
        if old == self.records {
            return;
        }
        self.generation += 1;
        let mut changed = Vec::new();
        for (cntlid, controller) in &mut self.controllers {
            if visible(&old, &controller.host).ne(visible(&self.records, &controller.host)) {
                controller.generation = self.generation;
                controller.events.raise(Event::DISCOVERY_CHANGED);
                changed.push(*cntlid);
            }
        }
        for cntlid in changed {
            self.send_events(cntlid);
        }
    }

    /// The log as the host of this controller sees it.
    pub(super) fn records_for(&self, cntlid: u16) -> DiscoveryLog {
        let Some(controller) = self.controllers.get(&cntlid) else { return DiscoveryLog::default() };
        let entries = visible(&self.records, &controller.host).copied().collect();
        DiscoveryLog { generation: controller.generation, entries }
    }
}

fn visible<'a>(records: &'a [Record], host: &Nqn) -> impl Iterator<Item = &'a DiscoveryEntry> {
    records.iter().filter(|record| record.hosts.allows(host)).map(|record| &record.entry)
}
