//! The end of what an earlier attachment of this host has left, before anything is done.
//!
//! The target is asked to end the older controllers. Of a pair whose nodes are two processes, one
//! cannot say that they are finished while the other neither answers nor is known to have ended. It
//! is asked again, until the time is over for which a target may go on without its host.

use super::Engine;
use super::admin::AdminPurpose;
use super::path::Path;
use crate::error::Lost;
use nvme::Status;
use nvme::end_controller::EndController;
use nvme::host::{ANSWER, Command, CommandData, safe_time};
use std::time::Duration;

/// How often a target that does not know it is asked.
const AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Older {
    /// When a target was asked for the first time.
    since: Option<Duration>,
    /// When it was asked last, if it has not answered.
    asked: Option<Duration>,
    /// When it is asked again.
    again_at: Option<Duration>,
}

impl Engine {
    pub(super) fn ask_older(&mut self, path: usize) {
        let now = self.now();
        self.older.since.get_or_insert(now);
        self.older.asked = Some(now);
        self.older.again_at = None;
        let sqe = EndController::Older.command(0);
        self.submit_admin(path, AdminPurpose::Older, Command { sqe, data: CommandData::None });
    }

    /// The target does not say that older controllers are finished.
    pub(super) fn older_refused(&mut self, path: usize, status: Status) {
        if status.dnr() {
            return self.lose(path, &Lost::NotEnded(status));
        }
        tracing::debug!(%status, "the target cannot say yet when older controllers are finished");
        self.older.asked = None;
        self.older.again_at = Some(self.now() + AGAIN);
    }

    pub(super) fn tick_older(&mut self, now: Duration) {
        let Some(since) = self.older.since.filter(|_| !self.has_begun) else { return };
        let Some(path) = self.paths.iter().position(Path::is_live) else { return };
        let identity = self.controller(path).and_then(|controller| controller.identity());
        let safe = safe_time(self.config.earlier_keep_alive(), identity);
        // It may have stood still, and be about to answer.
        let is_answering = self.older.asked.is_some_and(|asked| now < asked + ANSWER);
        if now >= since + safe && !is_answering {
            tracing::warn!(waited = ?safe, "the target does not say whether older controllers are finished; they are by time");
            return self.begin();
        }
        if self.older.again_at.is_some_and(|at| now >= at) {
            self.ask_older(path);
        }
    }
}
