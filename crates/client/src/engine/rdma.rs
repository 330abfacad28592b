//! Connections over RDMA: what differs from a stream.

use std::net::SocketAddr;

use paths::ConnId;
use transport::rdma::{Counters, Error, Expect, Requester};

use super::Engine;
use super::answers::Answers;
use super::connections::{State, token};
use crate::call::{Body, Call};
use crate::protocol;
use crate::route::PathEnd;

/// The longest reply except those that list or name things: head, status, attributes before and
/// after. Together with the header, the reply fits the smallest message that a peer must accept
/// (RFC 8166 s3.3.2).
const REPLY_BYTES: u32 = 640;

/// What a call expects in reply. RFC 8166 s4.3.3
pub(super) fn expected(call: &Call) -> Expect {
    let lands = match &call.body {
        Body::Read { target, .. } => u32::try_from(target.len()).unwrap_or(u32::MAX),
        Body::Write { .. } | Body::Commit { .. } | Body::Call(_) | Body::Validate => 0,
    };
    let more = match &call.body {
        Body::Call(request) => protocol::reply_bytes_max(request.procedure(), request.args()),
        _ => 0,
    };
    Expect { lands, reply_max: REPLY_BYTES + more }
}

impl Engine {
    /// Starts to connect a slot over RDMA.
    pub(super) fn connect_rdma(&mut self, conn: ConnId, end: &PathEnd) {
        let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { return };
        match Requester::connect(&self.poller, token(conn), end.local, end.remote) {
            Ok(requester) => connection.state = State::Rdma(Box::new(requester)),
            Err(error) => {
                tracing::debug!(address = %end.remote, %error, "connect over RDMA failed");
                self.core.table.disconnected(self.core.now, conn);
            }
        }
    }

    /// Counters of the RDMA connections, open and closed.
    pub(super) fn rdma_counters(&self) -> Counters {
        let mut sum = self.rdma_closed;
        for connection in &self.connections {
            if let State::Rdma(requester) = &connection.state {
                sum.add(&requester.counters());
            }
        }
        sum
    }

    /// Handles an event or a message on a slot's connection.
    pub(super) fn rdma_ready(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { return };
        let State::Rdma(requester) = &mut connection.state else { return };
        let was_open = requester.is_open();
        // Messages received before the connection ended are processed.
        let mut answers = Answers {
            core: &mut self.core,
            conn,
            unsent: Vec::new(),
            landed_max: usize::MAX,
            broken: None,
            validated: None,
        };
        let outcome = requester.advance(&self.poller, token(conn), &mut answers);
        for (xid, error) in requester.take_refused() {
            answers.refused_on_the_way(rpc::Xid(xid), error.to_string());
        }
        let (broken, validated) = (answers.broken.take(), answers.validated.take());
        match outcome {
            Ok(received) => connection.received_bytes += received.bytes as u64,
            Err(error) => {
                tell_end(connection.remote, &error);
                self.line_down(conn);
                return;
            }
        }
        if !was_open && requester.is_open() {
            self.core.table.reached(self.core.now, conn);
            self.validate(conn);
        }
        self.mark_dirty(conn);
        self.seen_failures(conn, broken, validated);
    }

    /// Sends what was queued, as far as credits and memory allow; the rest is sent after the next
    /// replies.
    pub(super) fn flush_rdma(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(usize::from(conn.0)) else { return };
        let State::Rdma(requester) = &mut connection.state else { return };
        if let Err(error) = requester.flush(&self.core.calls) {
            tell_end(connection.remote, &error);
            self.line_down(conn);
        }
    }
}

/// Logs why a connection ended; as a warning if this machine is the cause.
fn tell_end(address: Option<SocketAddr>, error: &Error) {
    match error {
        Error::DeviceGone => {
            tracing::warn!(
                ?address,
                "the RDMA device of this path was removed; it is tried again; see: rdma link"
            );
        }
        error => tracing::debug!(?address, %error, "connection over RDMA ended"),
    }
}
