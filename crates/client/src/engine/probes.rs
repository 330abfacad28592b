//! Probes: a NULL call on a connection of its own, to a path that is silent or down.

use std::os::fd::AsFd;

use paths::PathId;
use rpc::Xid;
use transport::poll::Interest;
use transport::{Landing, Limits, Place, Sink, Slices, SlicesMut, Source, Stream, Transport, socket};
use xdr::Writer;

use super::Engine;

/// Tokens of probes lie above those of all connections.
const FIRST_PROBE_TOKEN: u64 = 1 << 32;
/// A NULL reply is 24 bytes long.
const REPLY_BYTES_MAX: usize = 1024;

/// A probe under way.
#[derive(Debug)]
pub(super) struct Probe {
    path: PathId,
    token: u64,
    stream: Stream<(), Nowhere>,
    connected: bool,
}

/// A probe carries no payload.
#[derive(Debug)]
struct Nowhere;

impl Landing for Nowhere {
    fn unfilled<'a>(&'a mut self, _from: usize, _out: &mut SlicesMut<'a>) {}
}

impl Source<()> for Nowhere {
    fn slices<'a>(&'a self, (): &'a (), _out: &mut Slices<'a>) {}
}

#[derive(Default)]
struct AnyReply(bool);

impl Sink for AnyReply {
    type Landing = Nowhere;
    fn place(&mut self, _head: &[u8], _record_len: usize) -> Option<Place<Nowhere>> {
        None
    }
    fn record(&mut self, _record: &[u8]) {
        self.0 = true;
    }
    fn landed(&mut self, _head: &[u8], _landing: Nowhere, _tail: &[u8]) {}
}

impl Engine {
    /// Starts a probe; an older one of the same path is dropped.
    pub(super) fn probe(&mut self, path: PathId) {
        self.probes.retain(|probe| probe.path != path);
        let route = std::sync::Arc::clone(&self.setup.route);
        let Some(end) = route.paths.get(usize::from(path.0)) else { return };
        let token = FIRST_PROBE_TOKEN + u64::from(path.0);
        let started = route.connect(end).and_then(|socket| {
            self.poller.add(&socket, token, Interest::WRITE)?;
            Ok(socket)
        });
        match started {
            Ok(socket) => {
                let stream = Stream::new(socket, Limits { record_bytes_max: REPLY_BYTES_MAX });
                self.probes.push(Probe { path, token, stream, connected: false });
            }
            Err(_) => self.core.table.probe_failed(self.core.now, path),
        }
    }

    /// A probe's socket is ready.
    pub(super) fn probe_ready(&mut self, token: u64) {
        let Some(at) = self.probes.iter().position(|probe| probe.token == token) else { return };
        let Some(probe) = self.probes.get_mut(at) else { return };
        let path = probe.path;
        let answered = if probe.connected {
            let mut reply = AnyReply::default();
            probe
                .stream
                .receive(&mut self.scratch, &mut reply, REPLY_BYTES_MAX)
                .map(|_| reply.0)
                .map_err(|error| std::io::Error::other(error.to_string()))
        } else {
            let asked = probe.ask(&self.poller);
            if asked.is_ok() {
                self.core.table.probe_reached(self.core.now, path);
            }
            asked
        };
        match answered {
            Ok(false) => {}
            Ok(true) => {
                self.probes.remove(at);
                self.core.table.probe_answered(self.core.now, path);
            }
            Err(_) => {
                self.probes.remove(at);
                self.core.table.probe_failed(self.core.now, path);
            }
        }
    }
}

impl Probe {
    /// Connected: sends the NULL call. RFC 1813 s3.3.0
    fn ask(&mut self, poller: &transport::poll::Poller) -> std::io::Result<bool> {
        socket::connect_result(self.stream.fd().as_fd())?;
        self.connected = true;
        poller.modify(self.stream.fd(), self.token, Interest::READ)?;
        self.stream.push((), 0, |head| {
            let mut credential = Vec::new();
            rpc::auth::encode_none(&mut Writer::new(&mut credential));
            let null = nfs3::Procedure::Null.number();
            let xid = Xid(u32::from(self.path.0));
            rpc::call::encode(&mut Writer::new(head), xid, nfs3::PROGRAM, nfs3::VERSION, null, &credential);
        });
        self.stream.flush(&Nowhere).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(false)
    }
}
