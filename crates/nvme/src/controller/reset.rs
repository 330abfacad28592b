//! What a reset or a shutdown does to the commands of an admin queue. NVMe Base, "Controller Level
//! Reset"; "Asynchronous Event Request Command".
//!
//! The commands that are outstanding end without an answer, except for the Property Set that asks
//! for it. The connection of the queue stays, and so the host may use their identifiers again as
//! soon as it has the answer of the Property Set. Their entries are free after a reset, which SQHD
//! says; a shutdown leaves both to the reset that must follow.

use super::association::Draining;
use super::subsystem::{Output, Subsystem};
use std::collections::VecDeque;

impl Subsystem {
    /// How often the host has reset its controller or shut it down. A command whose data are still
    /// awaited when this changes is one of before: it must neither be executed nor answered.
    #[must_use]
    pub fn resets(&self, cntlid: u16) -> u64 {
        self.controllers.get(&cntlid).map_or(0, |controller| controller.resets)
    }

    /// So many commands of the admin queue, whose data were awaited, ended with a reset or shutdown
    /// of their controller. Their entries are free.
    pub fn drop_awaited(&mut self, cntlid: u16, count: u32) {
        let queue = self.controllers.get_mut(&cntlid).and_then(|controller| controller.admin.as_mut());
        if let Some(queue) = queue {
            queue.skip(count);
        }
    }

    /// Drops the commands of a controller's admin queue, of which these wait for events.
    pub(super) fn drop_commands(&mut self, cntlid: u16, requests: VecDeque<u16>) {
        let mut dropped = Vec::from(requests);
        dropped.extend(self.drop_endings(cntlid));
        dropped.extend(self.drop_persisting(cntlid));
        // A controller that is shut down takes no command that waits until it is reset.
        let controller = self.controllers.get_mut(&cntlid);
        let reset = controller.filter(|controller| controller.draining == Draining::Reset);
        if let Some(queue) = reset.and_then(|controller| controller.admin.as_mut()) {
            queue.drop_others();
        }
        self.outputs.extend(dropped.into_iter().map(|cid| Output::Dropped { cntlid, cid }));
    }
}
