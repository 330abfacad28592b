//! Tests events of a connection that the path table has moved to another path in the same round.
//! The clock stands still and the test plays the servers, so nothing else happens.

mod connector;

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use fs::FileKind;
use paths::{ConnSpec, PathSpec, State, Timing};
use testkit::Deadline;
use testkit::records::{read_record, word};
use transport::poll::Events;

use super::*;
use crate::connector::Connector;
use crate::options::Proto;
use crate::path_failures::PathFailures;
use crate::path_losses::PathLosses;
use crate::route::{LoopsWithoutPath, PathEnd, PathValidations};

/// No wait in this file takes this long.
const TIMEOUT: Duration = Duration::from_secs(60);
const PREFERRED: PathId = PathId(0);
const FALLBACK: PathId = PathId(1);

/// An engine whose connections all prefer the first of two paths, and the servers' ends of the
/// connections.
struct TestServers {
    engine: Engine,
    poller: Arc<Poller>,
    events: Events,
    listeners: Vec<TcpListener>,
}

impl TestServers {
    fn new(connections: usize) -> Self {
        let connector = Box::new(crate::connector::RdmaConnector::default());
        Self::over([Proto::Tcp; 2], vec![PREFERRED; connections], connector)
    }

    /// An engine whose two paths are of these transports and whose connections prefer these paths.
    fn over(protos: [Proto; 2], connections: Vec<PathId>, connector: Box<dyn Connector>) -> Self {
        let listeners: Vec<_> = (0..2).map(|_| TcpListener::bind(("127.0.0.1", 0)).unwrap()).collect();
        let nodes = || (0..2).map(NodeId);
        let end = |((node, proto), listener): ((NodeId, Proto), &TcpListener)| PathEnd {
            node,
            local: None,
            proto,
            remote: listener.local_addr().unwrap(),
            pace: None,
        };
        let route = Route {
            server: "server".to_owned(),
            mixed: false,
            paths: nodes().zip(protos).zip(&listeners).map(end).collect(),
            congestion: None,
            reserved_port: Some(false),
            soft_timeout: None,
            validations: PathValidations::new(2),
            path_failures: PathFailures::new(2),
            path_losses: PathLosses::default(),
            node_health: crate::node_health::NodeHealth::new(std::iter::empty()),
            loops_without_path: LoopsWithoutPath::default(),
            registrable: Arc::default(),
            connector,
        };
        let table = paths::Config {
            paths: nodes().map(|node| PathSpec { node }).collect(),
            connections: connections
                .into_iter()
                .map(|path| ConnSpec { path, node: NodeId(path.0), metadata: false })
                .collect(),
            metadata_apart: false,
            spread_reads: false,
            spread_writes: false,
            timing: Timing::default(),
            seed: 1,
        };
        let mut credential = Vec::new();
        rpc::auth::encode_none(&mut Writer::new(&mut credential));
        let setup = Setup {
            protocol: Protocol::NFS3,
            session: None,
            route: Arc::new(route),
            table,
            credential,
            identity: 1,
            read_only: false,
            closes_time_min: Duration::ZERO,
            first_xid: 1,
            root: FileHandle::new(b"root").unwrap(),
            root_attributes: root(),
        };
        let poller = Arc::new(Poller::new().unwrap());
        let engine = Engine::new(setup, Arc::clone(&poller)).unwrap();
        let mut servers = Self { engine, poller, events: Events::new(), listeners };
        servers.work();
        servers
    }

    fn work(&mut self) {
        self.engine.settle();
        while self.engine.flush() {
            self.engine.settle();
        }
    }

    /// Processes events without settling their effects.
    fn handle_events(&mut self) {
        self.poller.wait(&mut self.events, Some(TIMEOUT)).unwrap();
        assert!(!self.events.is_empty(), "waited {TIMEOUT:?} in vain");
        for event in self.events.iter() {
            self.engine.ready(event);
        }
    }

    fn work_until(&mut self, what: &str, done: impl Fn(&Engine) -> bool) {
        let deadline = Deadline::after(TIMEOUT);
        while !done(&self.engine) {
            assert!(deadline.left().is_some(), "waited {TIMEOUT:?} in vain for {what}");
            self.handle_events();
            self.work();
        }
    }

    /// The server's end of a connection that was just started on this path.
    fn accept(&self, path: PathId) -> TcpStream {
        let (stream, _) = self.listeners[usize::from(path.0)].accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Waits until all connections are established and have sent their path validation.
    fn connect(&mut self) {
        let all_open = |engine: &Engine| engine.slots.all().iter().all(connections::Connection::is_open);
        self.work_until("connections", all_open);
    }

    /// The path does not answer its probe: its connections fail over, and the effects are not
    /// settled yet.
    fn preferred_path_dies(&mut self) {
        let (table, now) = (&mut self.engine.core.table, self.engine.core.now);
        table.doubt(now, PREFERRED);
        table.probe_failed(now, PREFERRED);
        let gone = (0_u16..).zip(self.engine.slots.all()).map(|(index, _)| table.path_of(ConnId(index)));
        assert!(gone.into_iter().all(|path| path == Some(FALLBACK)));
    }

    fn state(&self, path: PathId) -> State {
        self.engine.core.table.path(path).unwrap().state
    }

    fn is_usable(&self) -> bool {
        self.engine.core.table.usable()
    }
}

fn root() -> Attributes {
    Attributes { fsid: 7, fileid: 1, ..Attributes::of(FileKind::Directory) }
}

fn record(body: &[u8]) -> Vec<u8> {
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(body.len()).unwrap() };
    [&mark.encode(), body].concat()
}

/// Answers the next call on a connection.
fn answer(mut stream: &TcpStream, results: &[u8]) -> Vec<u8> {
    let call = read_record(&mut stream).expect("a call");
    let mut reply = Vec::new();
    rpc::reply::encode_success(&mut Writer::new(&mut reply), Xid(word(&call, 0)));
    reply.extend_from_slice(results);
    record(&reply)
}

fn validate(mut stream: &TcpStream) {
    stream.write_all(&answer(stream, &crate::protocol::root_reply(7, 1))).unwrap();
}

#[test]
fn the_validation_of_the_path_that_a_connection_left_does_not_validate_its_next_path() {
    let mut servers = TestServers::new(2);
    let on_preferred = [servers.accept(PREFERRED), servers.accept(PREFERRED)];
    servers.connect();
    validate(&on_preferred[0]);
    servers.work_until("the first validation", |engine| engine.core.table.usable());

    servers.preferred_path_dies();
    validate(&on_preferred[1]);
    servers.handle_events();
    assert!(!servers.is_usable(), "no connection to the second path is established yet");

    servers.work();
    let on_fallback = [servers.accept(FALLBACK), servers.accept(FALLBACK)];
    servers.connect();
    assert!(!servers.is_usable(), "no connection has validated the second path yet");
    on_fallback.iter().for_each(validate);
    servers.work_until("the validation of the second path", |engine| engine.core.table.usable());
    assert_eq!(servers.state(FALLBACK), State::Up);
}

#[test]
fn the_end_of_a_superseded_connection_is_no_failure_of_the_next_path() {
    let mut servers = TestServers::new(1);
    let on_preferred = servers.accept(PREFERRED);
    servers.connect();
    validate(&on_preferred);
    servers.work_until("the validation", |engine| engine.core.table.usable());

    servers.preferred_path_dies();
    drop(on_preferred);
    servers.handle_events();
    assert_eq!(servers.state(FALLBACK), State::Probing, "it is being connected");

    servers.work();
    let on_fallback = servers.accept(FALLBACK);
    servers.connect();
    validate(&on_fallback);
    servers.work_until("the validation of the second path", |engine| engine.core.table.usable());
}

#[test]
fn a_connection_that_is_reset_after_its_last_reply_on_another_path_still_fails_back() {
    let mut servers = TestServers::new(1);
    let on_preferred = servers.accept(PREFERRED);
    servers.connect();
    drop(on_preferred);
    servers.work_until("the failover", |engine| engine.core.table.path_of(ConnId(0)) == Some(FALLBACK));
    let mut on_fallback = servers.accept(FALLBACK);
    servers.connect();
    validate(&on_fallback);
    servers.work_until("the validation of the second path", |engine| engine.core.table.usable());

    let call = Protocol::NFS3.getattr(servers.engine.setup.root);
    servers.engine.submit(call.into(), None, Owner::Engine);
    servers.work();
    servers.engine.core.table.probe_answered(servers.engine.core.now, PREFERRED);
    servers.work();
    let answer_and_nonsense = [answer(&on_fallback, &[]), record(b"nonsense")].concat();
    on_fallback.write_all(&answer_and_nonsense).unwrap();
    servers.handle_events();
    assert_eq!(servers.engine.core.table.path_of(ConnId(0)), Some(PREFERRED));
    assert_eq!(servers.state(PREFERRED), State::Probing, "it is being connected");

    servers.work();
    let on_preferred = servers.accept(PREFERRED);
    servers.connect();
    validate(&on_preferred);
    servers.work_until("the validation of the first path", |engine| engine.core.table.usable());
}

#[test]
fn a_call_of_the_server_is_dropped_and_the_connection_stays() {
    let mut servers = TestServers::new(1);
    let mut on_preferred = servers.accept(PREFERRED);
    servers.connect();
    let mut call = Vec::new();
    let none = servers.engine.setup.credential.clone();
    let protocol = Protocol::NFS3;
    protocol.encode_call(&mut Writer::new(&mut call), Xid(1), protocol.read(), &none);
    on_preferred.write_all(&record(&call)).unwrap();
    validate(&on_preferred);
    servers.work_until("the validation", |engine| engine.core.table.usable());
}
