//! Calls whose replies end their connection.
//!
//! A server may answer a call each time with something after which the connection cannot be used,
//! such as a record that is longer than any reply may be. Such a call is sent again with back-off,
//! so that the other calls of the mount get on meanwhile, and fails after a bounded number of
//! tries. The path is not at fault: its connection is established again at once. A call whose
//! results make no sense fails at once; then the connection is established with back-off.

use std::net::SocketAddr;
use std::time::Duration;

use paths::ConnId;

use super::{Core, Engine};
use crate::call::{Body, CallKey};

/// How often a call is tried whose reply ends the connection each time. One bad reply may be a
/// fault on the way; a server that sends five of them will send more.
const TRIES_MAX: u32 = 5;
/// The wait before the second try; it doubles with each try.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Why the replies on a connection end it.
#[derive(Debug)]
pub(super) enum BadReply {
    /// The reply to this call cannot be read.
    Unreadable { key: CallKey, reason: String },
    /// The reply to a call makes no sense. The call has failed, and is described in the text.
    Nonsense(String),
    /// The bytes are no reply to any call.
    NoReply(String),
}

impl Engine {
    /// Handles a reply after which its connection cannot be used.
    pub(super) fn bad_reply(&mut self, conn: ConnId, reply: BadReply) {
        let address = self.slots.get(conn).and_then(|connection| connection.remote);
        match reply {
            BadReply::NoReply(reason) => {
                tracing::warn!(?address, %reason, "the server's answer makes no sense; connection reset");
                let path = self.slots.get(conn).and_then(|connection| connection.path);
                self.health.failed(path, &format_args!("the server's answer makes no sense: {reason}"));
                self.connection_broke(conn);
            }
            BadReply::Nonsense(reason) => {
                tracing::warn!(?address, %reason, "the server's answer makes no sense; connection reset");
                self.close(conn);
                if !self.is_left(conn) {
                    self.core.table.reset_with_back_off(self.core.now, conn);
                }
            }
            BadReply::Unreadable { key, reason } => {
                // Reset here, before the call is sent again on another connection.
                self.close(conn);
                self.core.reply_unreadable(key, &reason, address);
                self.reset(conn);
            }
        }
    }

    /// Resets a connection because of a call on it, which is sent with back-off; its path is fine.
    pub(super) fn reset(&mut self, conn: ConnId) {
        self.close(conn);
        if !self.is_left(conn) {
            self.core.table.reset(self.core.now, conn);
        }
    }
}

impl Core {
    /// Handles a call whose reply cannot be read.
    fn reply_unreadable(&mut self, key: CallKey, reason: &str, address: Option<SocketAddr>) {
        let Some(call) = self.calls.0.get_mut(key) else { return };
        call.connection = None;
        call.bad_replies += 1;
        let tries = call.bad_replies;
        let call = &*call;
        let description = call.description();
        if tries < TRIES_MAX {
            tracing::info!(
                ?address,
                "{description}: the reply cannot be read: {reason}; the call is sent again"
            );
            self.queues.delay(self.now + BACK_OFF * (1 << (tries - 1)), key);
            return;
        }
        tracing::warn!(
            ?address,
            "{description} fails: its reply cannot be read, {tries} times in a row: {reason}"
        );
        let error = call.misbehaved(reason);
        if matches!(call.body, Body::Commit { .. }) {
            self.fail_group(key, &error);
        } else {
            self.finish(key, Err(error));
        }
    }
}
