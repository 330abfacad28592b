//! Connections that another thread makes. Here the test makes them, over TCP, when it likes.

use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use transport::{AnyTransport, Limits, Remains, Stream};

use super::*;
use crate::connector::{ConnectId, ConnectRequest, ConnectResult, Purpose};

/// Records the requests and the cancelled ones.
#[derive(Debug, Default)]
struct TestConnector {
    requests: Mutex<Vec<(ConnectId, ConnectRequest)>>,
    cancelled: Mutex<Vec<ConnectId>>,
    next_id: AtomicU64,
}

impl Connector for Arc<TestConnector> {
    fn connect(&self, request: ConnectRequest) -> ConnectId {
        let id = ConnectId(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.requests.lock().unwrap().push((id, request));
        id
    }

    fn cancel(&self, id: ConnectId) {
        self.cancelled.lock().unwrap().push(id);
    }

    fn free(&self, remains: Remains) {
        assert!(remains.is_empty(), "nothing of a stream remains");
    }
}

impl TestConnector {
    fn next(&self) -> (ConnectId, ConnectRequest) {
        self.requests.lock().unwrap().remove(0)
    }
}

/// Establishes the requested connection.
fn deliver(id: ConnectId, request: &ConnectRequest) {
    let socket = TcpStream::connect(request.remote).unwrap();
    socket.set_nonblocking(true).unwrap();
    let wire = AnyTransport::Tcp(Stream::new(socket.into(), Limits { record_bytes_max: 1 << 16 }));
    request.to.add(ConnectResult { id, outcome: Ok(wire) });
}

fn fail(id: ConnectId, request: &ConnectRequest) {
    let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
    request.to.add(ConnectResult { id, outcome: Err(error.into()) });
}

#[test]
fn the_calls_of_other_connections_go_on_while_a_connection_is_being_made() {
    let connector = Arc::new(TestConnector::default());
    let mut servers = TestServers::over(
        [Proto::Rdma, Proto::Tcp],
        vec![PREFERRED, FALLBACK],
        Box::new(Arc::clone(&connector)),
    );
    let on_fallback = servers.accept(FALLBACK);
    let (id, request) = connector.next();
    assert_eq!(
        (request.purpose, request.remote),
        (Purpose::Calls { reverse_credits: 0 }, servers.listeners[0].local_addr().unwrap())
    );
    servers.work_until("the other connection", |engine| engine.slots.all()[1].is_open());
    validate(&on_fallback);
    servers.work_until("its validation", |engine| engine.core.table.usable());

    let call = Protocol::NFS3.getattr(servers.engine.setup.root);
    servers.engine.submit(call.into(), None, Owner::Engine);
    servers.work();
    (&on_fallback).write_all(&answer(&on_fallback, &[])).unwrap();
    servers.work_until("the reply", |engine| engine.core.calls.0.is_empty());

    deliver(id, &request);
    let on_preferred = servers.accept(PREFERRED);
    servers.work_until("the requested connection", |engine| engine.slots.all()[0].is_open());
    validate(&on_preferred);
    servers.work_until("its validation", |engine| {
        engine.core.table.path(PREFERRED).is_some_and(|path| path.state == State::Up)
    });
}

#[test]
fn a_connection_that_arrives_after_it_was_given_up_is_ended_and_changes_nothing() {
    let connector = Arc::new(TestConnector::default());
    let mut servers =
        TestServers::over([Proto::Rdma, Proto::Tcp], vec![PREFERRED], Box::new(Arc::clone(&connector)));
    let (id, request) = connector.next();
    let (table, now) = (&mut servers.engine.core.table, servers.engine.core.now);
    table.disconnected(now, ConnId(0));
    servers.work();
    assert_eq!(*connector.cancelled.lock().unwrap(), [id]);
    deliver(id, &request);
    let mut late = servers.accept(PREFERRED);
    let on_fallback = servers.accept(FALLBACK);
    servers.connect();
    validate(&on_fallback);
    servers.work_until("the validation of the second path", |engine| engine.core.table.usable());
    servers.engine.core.table.path_of(ConnId(0)).filter(|path| *path == FALLBACK).unwrap();
    let mut rest = Vec::new();
    let ended = late.read_to_end(&mut rest);
    assert!(rest.is_empty() && ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
}

#[test]
fn a_connection_that_cannot_be_made_is_a_failure_of_its_path() {
    let connector = Arc::new(TestConnector::default());
    let mut servers =
        TestServers::over([Proto::Rdma, Proto::Tcp], vec![PREFERRED], Box::new(Arc::clone(&connector)));
    let (id, request) = connector.next();
    fail(id, &request);
    let elsewhere = |engine: &Engine| engine.core.table.path_of(ConnId(0)) == Some(FALLBACK);
    servers.work_until("the failover", elsewhere);
    let on_fallback = servers.accept(FALLBACK);
    servers.connect();
    validate(&on_fallback);
    servers.work_until("the validation of the second path", |engine| engine.core.table.usable());
}
