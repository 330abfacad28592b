//! Probes: a NULL call on a separate connection to a path that is silent or down.

use std::os::fd::AsFd;

use paths::PathId;
use rpc::Xid;
use transport::poll::{Interest, Poller};
use transport::rdma::{Expect, Requester};
use transport::{Limits, Place, ReceiveBuffer, Sink, Slices, SlicesMut, Source, Stream, Transport, socket};
use xdr::Writer;

use super::Engine;
use crate::options::Proto;
use crate::protocol;

/// Tokens of probes are above those of all connections.
const FIRST_PROBE_TOKEN: u64 = 1 << 32;
/// A NULL reply is 24 bytes long.
const REPLY_BYTES_MAX: usize = 1024;

/// A probe in flight.
#[derive(Debug)]
pub(super) struct Probe {
    path: PathId,
    token: u64,
    wire: Wire,
    connected: bool,
}

#[derive(Debug)]
enum Wire {
    Tcp(Stream<(), Nowhere>),
    Rdma(Box<Requester<()>>),
}

/// A probe carries no payload.
#[derive(Debug)]
struct Nowhere;

impl ReceiveBuffer for Nowhere {
    fn unfilled<'a>(&'a mut self, _from: usize, _out: &mut SlicesMut<'a>) {}
}

impl Source<()> for Nowhere {
    fn slices<'a>(&'a self, (): &'a (), _out: &mut Slices<'a>) {}
}

#[derive(Default)]
struct AnyReply(bool);

impl Sink for AnyReply {
    type ReceiveBuffer = Nowhere;
    fn place(&mut self, _head: &[u8], _record_len: usize) -> Option<Place<Nowhere>> {
        None
    }
    fn record(&mut self, _record: &[u8]) {
        self.0 = true;
    }
    fn received(&mut self, _head: &[u8], _landing: Nowhere, _tail: &[u8]) {}
}

impl Engine {
    /// Starts a probe; an older probe of the same path is dropped.
    pub(super) fn probe(&mut self, path: PathId) {
        if let Some(at) = self.probes.iter().position(|probe| probe.path == path) {
            self.probes.swap_remove(at).give_up();
        }
        let route = std::sync::Arc::clone(&self.setup.route);
        let Some(end) = route.paths.get(usize::from(path.0)) else { return };
        let token = FIRST_PROBE_TOKEN + u64::from(path.0);
        let started = if end.proto == Proto::Rdma {
            Requester::connect_to_ask(&self.poller, token, end.local, end.remote)
                .map(|requester| Wire::Rdma(Box::new(requester)))
                .map_err(std::io::Error::other)
        } else {
            route.connect(end).and_then(|socket| {
                self.poller.add(&socket, token, Interest::WRITE)?;
                Ok(Wire::Tcp(Stream::new(socket, Limits { record_bytes_max: REPLY_BYTES_MAX })))
            })
        };
        match started {
            Ok(wire) => self.probes.push(Probe { path, token, wire, connected: false }),
            Err(error) => {
                tracing::debug!(address = %end.remote, %error, "probe cannot start");
                self.core.table.probe_failed(self.core.now, path);
            }
        }
    }

    /// Handles readiness of a probe's socket.
    pub(super) fn probe_ready(&mut self, token: u64) {
        let Some(at) = self.probes.iter().position(|probe| probe.token == token) else { return };
        let Some(probe) = self.probes.get_mut(at) else { return };
        let path = probe.path;
        let answered = match &mut probe.wire {
            Wire::Rdma(_) => {
                let was_asked = probe.connected;
                let answered = probe.rdma_ready(&self.poller);
                if probe.connected && !was_asked {
                    self.core.table.probe_reached(self.core.now, path);
                }
                answered
            }
            Wire::Tcp(stream) if probe.connected => {
                let mut reply = AnyReply::default();
                stream
                    .receive(&mut self.scratch, &mut reply, REPLY_BYTES_MAX)
                    .map(|_| reply.0)
                    .map_err(|error| std::io::Error::other(error.to_string()))
            }
            Wire::Tcp(_) => {
                let asked = probe.ask(&self.poller);
                if asked.is_ok() {
                    self.core.table.probe_reached(self.core.now, path);
                }
                asked
            }
        };
        match answered {
            Ok(false) => {}
            Ok(true) => {
                self.probes.swap_remove(at);
                self.core.table.probe_answered(self.core.now, path);
            }
            Err(error) => {
                let address = self.setup.route.paths.get(usize::from(path.0)).map(|end| end.remote);
                tracing::debug!(?address, %error, "probe failed");
                self.probes.swap_remove(at).give_up();
                self.core.table.probe_failed(self.core.now, path);
            }
        }
    }
}

impl Probe {
    /// Ends the probe with a reset: a silent server is probed every second or so, and a connection
    /// closed normally would keep its port for a minute.
    fn give_up(self) {
        if let Wire::Tcp(stream) = self.wire {
            stream.abort();
        }
    }

    /// Sends the NULL call once connected. RFC 1813 s3.3.0
    fn ask(&mut self, poller: &Poller) -> std::io::Result<bool> {
        let Wire::Tcp(stream) = &mut self.wire else { return Ok(false) };
        socket::connect_result(stream.fd().as_fd())?;
        self.connected = true;
        poller.modify(stream.fd(), self.token, Interest::READ)?;
        let xid = Xid(u32::from(self.path.0));
        stream.push((), 0, |head| encode_null(head, xid));
        stream.flush(&Nowhere).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(false)
    }

    /// Does the same over RDMA; returns true once the probe is answered.
    fn rdma_ready(&mut self, poller: &Poller) -> std::io::Result<bool> {
        let Wire::Rdma(requester) = &mut self.wire else { return Ok(false) };
        let mut reply = AnyReply::default();
        requester.advance(poller, self.token, &mut reply).map_err(std::io::Error::other)?;
        if requester.is_open() && !self.connected {
            self.connected = true;
            let xid = Xid(u32::from(self.path.0));
            let expect = Expect { lands: 0, reply_max: 64 };
            requester.push(xid.0, (), 0, expect, |head| encode_null(head, xid));
            requester.flush(&Nowhere).map_err(std::io::Error::other)?;
        }
        Ok(reply.0)
    }
}

fn encode_null(head: &mut Vec<u8>, xid: Xid) {
    protocol::encode_null(&mut Writer::new(head), xid);
}
