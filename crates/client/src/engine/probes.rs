//! Probes: a NULL call on a separate connection to a path that is silent or down.

use paths::PathId;
use rpc::Xid;
use transport::poll::Poller;
use transport::{Error, Expect, PayloadPlace, Sink, Transport};
use xdr::Writer;

use super::Engine;
use super::connecting::Connecting;
use crate::call::{CallKey, Calls, ReadBuffer};
use crate::connector::{ConnectId, Purpose, Wire};
use crate::protocol::Protocol;

/// Tokens of probes are above those of all connections.
const FIRST_PROBE_TOKEN: u64 = 1 << 32;
/// A NULL reply is 24 bytes long.
const REPLY_BYTES_MAX: usize = 1024;
/// No call: a probe has no payload.
const NO_CALL: CallKey = CallKey::MAX;

/// A probe in flight.
#[derive(Debug)]
pub(super) struct Probe {
    path: PathId,
    token: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Connecting(Connecting),
    /// The call is sent.
    Asked(Box<Wire>),
}

#[derive(Default)]
struct ReplyFlag(bool);

impl Sink for ReplyFlag {
    type ReceiveBuffer = ReadBuffer;
    fn choose_receive_buffer(
        &mut self,
        _head: &[u8],
        _record_len: usize,
    ) -> Option<PayloadPlace<ReadBuffer>> {
        None
    }
    fn record(&mut self, _record: &[u8]) {
        self.0 = true;
    }
    fn received(&mut self, _head: &[u8], _receive_buffer: ReadBuffer, _tail: &[u8]) {}
}

impl Engine {
    /// Starts a probe; an older probe of the same path is dropped.
    pub(super) fn probe(&mut self, path: PathId) {
        if let Some(at) = self.probes.iter().position(|probe| probe.path == path) {
            self.end_probe(at, true);
        }
        let route = std::sync::Arc::clone(&self.setup.route);
        let Some(end) = route.paths.get(usize::from(path.0)) else { return };
        let token = FIRST_PROBE_TOKEN + u64::from(path.0);
        match Connecting::start(&route, end, Purpose::Probe, (&self.poller, token), &self.connect_results) {
            Ok(connecting) => {
                self.probes.push(Probe { path, token, state: State::Connecting(connecting) });
            }
            Err(error) => {
                tracing::debug!(address = %end.remote, %error, "probe cannot start");
                self.health.failed(Some(path), &error);
                self.core.table.probe_failed(self.core.now, path);
            }
        }
    }

    /// Handles readiness of a probe's connection.
    pub(super) fn probe_ready(&mut self, token: u64) {
        let Some(at) = self.probes.iter().position(|probe| probe.token == token) else { return };
        let Some(probe) = self.probes.get_mut(at) else { return };
        if let State::Asked(wire) = &mut probe.state {
            wire.wake();
            self.receive_from_probe(at);
            return;
        }
        let Probe { path, token, state } = self.probes.swap_remove(at);
        if let State::Connecting(connecting) = state {
            let ended = connecting.ended(&self.poller, REPLY_BYTES_MAX);
            self.ask(path, token, ended.map_err(Error::Io));
        }
    }

    /// Takes a connection that another thread has made for a probe, or returns it.
    pub(super) fn probe_arrived(
        &mut self,
        id: ConnectId,
        outcome: Result<Wire, Error>,
    ) -> Option<Result<Wire, Error>> {
        let waits = |probe: &Probe| matches!(&probe.state, State::Connecting(made) if made.is(id));
        let Some(at) = self.probes.iter().position(waits) else { return Some(outcome) };
        let Probe { path, token, .. } = self.probes.swap_remove(at);
        self.ask(path, token, outcome);
        None
    }

    /// Sends the NULL call on a connection that was made. RFC 1813 s3.3.0
    fn ask(&mut self, path: PathId, token: u64, made: Result<Wire, Error>) {
        let asked = made.and_then(|mut wire| {
            match send_null(&mut wire, self.setup.protocol, path, (&self.poller, token)) {
                Ok(()) => Ok(wire),
                Err(error) => {
                    self.setup.route.connector.free(wire.end(true, &self.poller).remains);
                    Err(error)
                }
            }
        });
        match asked {
            Ok(wire) => {
                self.probes.push(Probe { path, token, state: State::Asked(Box::new(wire)) });
                self.core.table.probe_reached(self.core.now, path);
                // What has arrived before is not reported.
                self.receive_from_probe(self.probes.len() - 1);
            }
            Err(error) => self.probe_failed(path, &error),
        }
    }

    fn receive_from_probe(&mut self, at: usize) {
        let Some(Probe { path, state: State::Asked(wire), .. }) = self.probes.get_mut(at) else { return };
        let path = *path;
        let mut reply = ReplyFlag::default();
        match wire.receive(&mut self.receiving.scratch, &mut reply, REPLY_BYTES_MAX) {
            Ok(_) if reply.0 => {
                self.end_probe(at, false);
                self.core.table.probe_answered(self.core.now, path);
            }
            Ok(_) => {}
            Err(error) => {
                self.end_probe(at, true);
                self.probe_failed(path, &error);
            }
        }
    }

    fn probe_failed(&mut self, path: PathId, error: &Error) {
        let address = self.setup.route.paths.get(usize::from(path.0)).map(|end| end.remote);
        tracing::debug!(?address, %error, "probe failed");
        self.health.failed(Some(path), error);
        self.core.outages.note(Some(path), self.core.now);
        self.core.table.probe_failed(self.core.now, path);
    }

    /// Ends all probes: the mount is closed.
    pub(super) fn end_probes(&mut self) {
        while !self.probes.is_empty() {
            self.end_probe(0, true);
        }
    }

    /// Ends a probe; with `reset` if it was not answered: a silent server is probed every second or
    /// so, and a connection closed normally would keep its port for a minute.
    fn end_probe(&mut self, at: usize, reset: bool) {
        match self.probes.swap_remove(at).state {
            State::Connecting(connecting) => connecting.give_up(&self.setup.route),
            State::Asked(wire) => {
                self.setup.route.connector.free(wire.end(reset, &self.poller).remains);
            }
        }
    }
}

fn send_null(
    wire: &mut Wire,
    protocol: Protocol,
    path: PathId,
    (poller, token): (&Poller, u64),
) -> Result<(), Error> {
    wire.register(poller, token)?;
    let xid = Xid(u32::from(path.0));
    let expect = Expect { payload_max: 0, reply_max: 64 };
    wire.push(NO_CALL, 0, expect, |head| protocol.encode_null(&mut Writer::new(head), xid));
    wire.flush(&Calls::default(), usize::MAX)?;
    Ok(())
}
