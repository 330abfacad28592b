//! A server of version 4 that a test plays: it makes sessions and answers the calls with which a
//! mount begins and validates its connections, and hands every other compound to the test.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::options::Version;
use client::{Mount, Settings};
use fs::{FileHandle, FileKind};
use nfs4::compound::{ReplyWriter, RequestReader};
use nfs4::op::create_session::ChannelAttributes;
use nfs4::op::exchange_id::Protected;
use nfs4::op::session_control::{BindSuccess, Channels, WantedChannels};
use nfs4::op::{Args, Fore, Reply, create_session, exchange_id, getattr, handles, sequence};
use nfs4::types::attributes::number;
use nfs4::{Attributes, ClientId, Fattr, Opaque, Operation, ServerOwner, SessionId, Status};
use rpc::Xid;
use xdr::{Reader, Writer};

/// No wait in these tests takes this long.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A compound that waits for the test's reply.
#[derive(Debug)]
pub struct Request {
    pub xid: u32,
    pub sequence: sequence::Args,
    pub operations: Vec<Operation>,
    /// The whole compound.
    pub args: Vec<u8>,
    stream: TcpStream,
}

impl Request {
    /// Replies with these results after that of SEQUENCE.
    pub fn reply(&self, results: &[Reply<'_>]) {
        self.reply_with(&success(&self.sequence), results);
    }

    /// Replies with this result of SEQUENCE.
    pub fn reply_with(&self, sequence: &sequence::Success, results: &[Reply<'_>]) {
        self.raw(&compound(&[&[Reply::Sequence(Ok(*sequence))][..], results].concat()));
    }

    /// The arguments of its first operation of this kind.
    pub fn arguments(&self, of: Operation) -> Option<Args<'_>> {
        let mut requests = RequestReader::<Fore>::new(&self.args).unwrap();
        let all = std::iter::from_fn(|| requests.next_operation());
        all.map(|request| request.unwrap().args).find(|args| args.operation() == of)
    }

    /// Refuses the slot.
    pub fn refuse(&self, status: Status) {
        self.raw(&compound(&[Reply::Sequence(Err(status))]));
    }

    /// Sends these results, whatever they are. The connection may be gone.
    pub fn raw(&self, results: &[u8]) {
        let _ = (&self.stream).write_all(&record(self.xid, results));
    }

    /// Ends the connection.
    pub fn cut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

pub fn compound(results: &[Reply<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
    for result in results {
        writer.push(result);
    }
    writer.finish();
    out
}

fn record(xid: u32, results: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    rpc::reply::encode_success(&mut Writer::new(&mut out), Xid(xid));
    out.extend_from_slice(results);
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
    out[..4].copy_from_slice(&mark.encode());
    out
}

pub fn success(of: &sequence::Args) -> sequence::Success {
    sequence::Success {
        session: of.session,
        sequence: of.sequence,
        slot: of.slot,
        highest_slot: 63,
        target_highest_slot: 63,
        flags: 0,
    }
}

#[derive(Debug)]
struct Shared {
    /// Sessions so far; the last one is valid.
    sessions: u8,
    slots: u32,
    /// Changes what a session is granted.
    limit: fn(&mut ChannelAttributes),
    /// The number of the last CREATE_SESSION, if the client has made one. RFC 8881 s18.36.4
    created: Option<u32>,
    /// What EXCHANGE_ID says of the next number to a client that has made one.
    said: u32,
    /// The next CREATE_SESSION returns the current session.
    repeats: bool,
    /// What the next calls of DESTROY_SESSION fail with.
    destroy_failures: VecDeque<Status>,
    lease_seconds: u32,
    /// Each connection must be bound.
    binds: bool,
    /// Looking a name up finds this; without it, the root.
    found: Option<fs::Attributes>,
    /// The test answers GETATTR of an object, with which connections are validated.
    holds_validations: bool,
    /// The test answers GETATTR of a file system.
    holds_file_systems: bool,
    /// Connections may carry call-backs.
    calls_back: bool,
    /// The connections that do.
    back: Vec<TcpStream>,
    /// What the client has answered to calls.
    answers: Vec<Vec<u8>>,
    /// The flags of CREATE_SESSION.
    create_flags: u32,
    /// The flags in the results of SEQUENCE of calls that are not handed to the test.
    flags: u32,
    /// The highest slot that the last such call told.
    highest_slot: u32,
    /// The calls that are not handed to the test, in order.
    log: Vec<Operation>,
    connections: Vec<TcpStream>,
    ended: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Fake {
    shared: Arc<Mutex<Shared>>,
    requests: Receiver<Request>,
    addresses: Vec<SocketAddr>,
}

impl Fake {
    /// Listens on this many addresses of one port, and grants so many slots.
    pub fn start(nodes: u8, slots: u32) -> Self {
        let listeners = (0..20).find_map(|_| listen(nodes)).expect("a port that is free on all addresses");
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let shared = Shared {
            sessions: 0,
            slots,
            limit: |_| {},
            created: None,
            said: 99,
            repeats: false,
            destroy_failures: VecDeque::new(),
            lease_seconds: 90,
            binds: false,
            found: None,
            holds_validations: false,
            holds_file_systems: false,
            calls_back: false,
            back: Vec::new(),
            answers: Vec::new(),
            create_flags: 0,
            flags: 0,
            highest_slot: 0,
            log: Vec::new(),
            connections: Vec::new(),
            ended: false,
        };
        let (shared, (sender, requests)) = (Arc::new(Mutex::new(shared)), channel());
        for listener in listeners {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            std::thread::spawn(move || accept(&listener, &shared, &sender));
        }
        Self { shared, requests, addresses }
    }

    pub fn settings(&self) -> Settings {
        let first = self.addresses[0];
        Settings {
            remotes: self.addresses.iter().map(|address| address.ip().into()).collect(),
            nconnect: u16::try_from(self.addresses.len()).unwrap(),
            loops: 1,
            version: Version::V4(Some(2)),
            ..Settings::new(first.ip(), first.port(), "/export")
        }
    }

    pub fn mount(&self) -> Mount {
        Mount::with_settings(self.settings()).unwrap()
    }

    /// The next compound that the test has to answer.
    pub fn next(&self) -> Request {
        self.requests.recv_timeout(TIMEOUT).expect("the client sends another compound")
    }

    /// The next compound, if one comes in time.
    pub fn next_within(&self, within: Duration) -> Option<Request> {
        self.requests.recv_timeout(within).ok()
    }

    pub fn nothing_more(&self) {
        assert!(self.requests.try_recv().is_err(), "no other compound");
    }

    /// Forgets the session, as a restart does.
    pub fn lose_session(&self) {
        self.shared.lock().unwrap().sessions += 1;
    }

    /// Changes what later sessions are granted.
    pub fn limit(&self, limit: fn(&mut ChannelAttributes)) {
        self.shared.lock().unwrap().limit = limit;
    }

    /// The next calls of DESTROY_SESSION fail.
    pub fn fail_destroy(&self, with: &[Status]) {
        self.shared.lock().unwrap().destroy_failures.extend(with);
    }

    /// Wants this number in the next CREATE_SESSION, and says so.
    pub fn count_from(&self, number: u32) {
        let mut shared = self.shared.lock().unwrap();
        (shared.created, shared.said) = (Some(number - 1), number);
    }

    /// Returns the current session for a new one, once.
    pub fn repeat_session(&self) {
        self.shared.lock().unwrap().repeats = true;
    }

    pub fn set_lease(&self, seconds: u32) {
        self.shared.lock().unwrap().lease_seconds = seconds;
    }

    pub fn require_binding(&self) {
        self.shared.lock().unwrap().binds = true;
    }

    /// From now on, looking a name up finds this.
    pub fn set_found(&self, found: fs::Attributes) {
        self.shared.lock().unwrap().found = Some(found);
    }

    /// From now on, connections that are bound carry call-backs.
    pub fn call_back(&self) {
        self.shared.lock().unwrap().calls_back = true;
    }

    /// The connections that carry call-backs, in the order in which they were bound.
    pub fn back(&self) -> Vec<TcpStream> {
        self.shared.lock().unwrap().back.iter().map(|stream| stream.try_clone().unwrap()).collect()
    }

    /// The flags of the last CREATE_SESSION.
    pub fn create_flags(&self) -> u32 {
        self.shared.lock().unwrap().create_flags
    }

    /// From now on, SEQUENCE tells these flags.
    pub fn set_flags(&self, flags: u32) {
        self.shared.lock().unwrap().flags = flags;
    }

    /// The highest slot of the last call that is not handed to the test.
    pub fn highest_slot(&self) -> u32 {
        self.shared.lock().unwrap().highest_slot
    }

    /// The session that is valid.
    pub fn session(&self) -> SessionId {
        session(self.shared.lock().unwrap().sessions)
    }

    /// Waits for the client's answer to a call of the server.
    pub fn answer(&self) -> Vec<u8> {
        testkit::Deadline::wait_until("an answer of the client", TIMEOUT, || {
            let mut shared = self.shared.lock().unwrap();
            (!shared.answers.is_empty()).then(|| shared.answers.remove(0))
        })
    }

    /// Lets the test answer the calls that validate connections, or not.
    pub fn hold_validations(&self, holds: bool) {
        self.shared.lock().unwrap().holds_validations = holds;
    }

    /// Lets the test answer the calls that ask for attributes of file systems, or not.
    pub fn hold_file_systems(&self, holds: bool) {
        self.shared.lock().unwrap().holds_file_systems = holds;
    }

    pub fn log(&self) -> Vec<Operation> {
        self.shared.lock().unwrap().log.clone()
    }

    /// Waits until the log has this operation so many times.
    pub fn await_log(&self, operation: Operation, count: usize) {
        testkit::Deadline::wait_until(operation.name(), TIMEOUT, || {
            (self.log().iter().filter(|logged| **logged == operation).count() >= count).then_some(())
        });
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let mut shared = self.shared.lock().unwrap();
        shared.ended = true;
        for stream in shared.connections.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(shared);
        for address in &self.addresses {
            // Ends the thread that accepts.
            let _ = TcpStream::connect(address);
        }
    }
}

fn listen(nodes: u8) -> Option<Vec<TcpListener>> {
    let ip = |node: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 3, node + 1));
    let first = TcpListener::bind((ip(0), 0)).ok()?;
    let port = first.local_addr().ok()?.port();
    let others = (1..nodes).map(|node| TcpListener::bind((ip(node), port)));
    std::iter::once(Ok(first)).chain(others).collect::<Result<_, _>>().ok()
}

fn accept(listener: &TcpListener, shared: &Arc<Mutex<Shared>>, sender: &Sender<Request>) {
    while let Ok((stream, _)) = listener.accept() {
        let mut of = shared.lock().unwrap();
        if of.ended {
            return;
        }
        stream.set_nodelay(true).unwrap();
        of.connections.push(stream.try_clone().unwrap());
        drop(of);
        let (shared, sender) = (Arc::clone(shared), sender.clone());
        std::thread::spawn(move || serve(stream, &shared, &sender));
    }
}

/// Reads the calls of one connection until it ends.
fn serve(mut stream: TcpStream, shared: &Mutex<Shared>, sender: &Sender<Request>) {
    let mut is_bound = false;
    loop {
        let mut mark = [0; 4];
        if stream.read_exact(&mut mark).is_err() {
            return;
        }
        let mut call = vec![0; rpc::record_marking::Mark::decode(mark).len as usize];
        if stream.read_exact(&mut call).is_err() {
            return;
        }
        if call.get(4..8) == Some(&[0, 0, 0, 1]) {
            shared.lock().unwrap().answers.push(call);
            continue;
        }
        let mut reader = Reader::new(&call);
        let head = rpc::call::decode(&mut reader).unwrap();
        let args = reader.rest();
        let results = if head.procedure == nfs4::PROCEDURE_NULL {
            Some(Vec::new())
        } else {
            own_answer(args, &mut shared.lock().unwrap(), (&stream, &mut is_bound))
        };
        if let Some(results) = results {
            let _ = stream.write_all(&record(head.xid.0, &results));
            continue;
        }
        let (sequence, operations) = parsed(args);
        let stream = stream.try_clone().unwrap();
        let sequence = sequence.expect("SEQUENCE comes first");
        let request = Request { xid: head.xid.0, sequence, operations, args: args.to_vec(), stream };
        if sender.send(request).is_err() {
            return;
        }
    }
}

fn parsed(args: &[u8]) -> (Option<sequence::Args>, Vec<Operation>) {
    let mut requests = RequestReader::<Fore>::new(args).unwrap();
    let (mut sequence, mut operations) = (None, Vec::new());
    while let Some(Ok(request)) = requests.next_operation() {
        if let Args::Sequence(args) = request.args {
            sequence = Some(args);
        }
        operations.push(request.args.operation());
    }
    (sequence, operations)
}

/// Whether a compound asks for the attributes of an object, not for those of a file system.
fn asks_for_type(args: &[u8]) -> bool {
    let mut requests = RequestReader::<Fore>::new(args).unwrap();
    std::iter::from_fn(|| requests.next_operation()?.ok())
        .any(|request| matches!(request.args, Args::GetAttr(args) if args.wanted.contains(number::TYPE)))
}

pub fn root() -> FileHandle {
    FileHandle::new(b"root").unwrap()
}

pub fn root_attributes() -> fs::Attributes {
    fs::Attributes { fsid: 7, fileid: 1, ..fs::Attributes::of(FileKind::Directory) }
}

fn session(number: u8) -> SessionId {
    SessionId([number; 16])
}

/// Answers what is not for the test.
fn own_answer(args: &[u8], shared: &mut Shared, on: (&TcpStream, &mut bool)) -> Option<Vec<u8>> {
    let (sequence, operations) = parsed(args);
    let Some(sequence) = sequence else {
        shared.log.extend_from_slice(&operations);
        return Some(outside_session(args, shared, on));
    };
    let refused = |status| Some(compound(&[Reply::Sequence(Err(status))]));
    if sequence.session != session(shared.sessions) {
        return refused(Status::BADSESSION);
    }
    if shared.binds && !*on.1 {
        return refused(Status::CONN_NOT_BOUND_TO_SESSION);
    }
    let object = root_attributes();
    let told = Attributes { lease_time: Some(shared.lease_seconds), ..Attributes::of_object(&object) };
    shared.highest_slot = sequence.highest_slot;
    let ok = Reply::Sequence(Ok(sequence::Success { flags: shared.flags, ..success(&sequence) }));
    let got = Reply::GetAttr(Ok(getattr::Success { attributes: Fattr::all(&told) }));
    let handle = Reply::GetFh(Ok(handles::GetSuccess { handle: root() }));
    use Operation as Op;
    match operations[..] {
        [Op::Sequence] if shared.calls_back => Some(compound(&[ok])),
        [Op::Sequence, Op::ReclaimComplete] => Some(compound(&[ok, Reply::ReclaimComplete(Ok(()))])),
        [Op::Sequence, Op::PutRootFh, ..] => Some(compound(&[ok, Reply::PutRootFh(Ok(())), handle, got])),
        [Op::Sequence, Op::PutFh, Op::Lookup, Op::GetFh, Op::GetAttr] => {
            let found = shared.found.as_ref().map_or(told, Attributes::of_object);
            let got = Reply::GetAttr(Ok(getattr::Success { attributes: Fattr::all(&found) }));
            Some(compound(&[ok, Reply::PutFh(Ok(())), Reply::Lookup(Ok(())), handle, got]))
        }
        [Op::Sequence, Op::PutFh, Op::GetAttr] if shared.holds_validations && asks_for_type(args) => None,
        [Op::Sequence, Op::PutFh, Op::GetAttr] if shared.holds_file_systems && !asks_for_type(args) => None,
        [Op::Sequence, Op::PutFh, Op::GetAttr] => Some(compound(&[ok, Reply::PutFh(Ok(())), got])),
        _ => None,
    }
}

fn outside_session(args: &[u8], shared: &mut Shared, (stream, is_bound): (&TcpStream, &mut bool)) -> Vec<u8> {
    let mut requests = RequestReader::<Fore>::new(args).unwrap();
    let request = requests.next_operation().unwrap().unwrap();
    compound(&[match request.args {
        Args::ExchangeId(_) => Reply::ExchangeId(Ok(exchange_id::Success {
            client: ClientId(7),
            sequence: if shared.created.is_some() { shared.said } else { 1 },
            flags: exchange_id::flag::USE_NON_PNFS
                | if shared.created.is_some() { exchange_id::flag::CONFIRMED_R } else { 0 },
            protection: Protected::None,
            server: ServerOwner { minor: 0, major: Opaque::new(b"fake").unwrap() },
            scope: Opaque::new(b"fake").unwrap(),
            implementation: None,
        })),
        Args::CreateSession(args) if args.sequence != shared.created.map_or(1, |last| last + 1) => {
            Reply::CreateSession(Err(Status::SEQ_MISORDERED))
        }
        Args::CreateSession(args) => {
            shared.create_flags = args.flags;
            shared.created = Some(args.sequence);
            shared.sessions += u8::from(!std::mem::take(&mut shared.repeats));
            let mut fore = ChannelAttributes { requests_max: shared.slots, ..args.fore };
            (shared.limit)(&mut fore);
            Reply::CreateSession(Ok(create_session::Success {
                session: session(shared.sessions),
                sequence: args.sequence,
                flags: 0,
                fore,
                back: args.back,
            }))
        }
        Args::BindConnToSession(args) => {
            *is_bound = true;
            let both = shared.calls_back && args.channels == WantedChannels::ForeOrBoth;
            let (session, channels) = (args.session, if both { Channels::Both } else { Channels::Fore });
            if both {
                shared.back.push(stream.try_clone().unwrap());
            }
            Reply::BindConnToSession(Ok(BindSuccess { session, channels, rdma_mode: false }))
        }
        Args::DestroySession(_) => {
            Reply::DestroySession(shared.destroy_failures.pop_front().map_or(Ok(()), Err))
        }
        Args::DestroyClientId(_) => {
            shared.created = None;
            Reply::DestroyClientId(Ok(()))
        }
        other => panic!("{:?} outside of a session", other.operation()),
    }])
}
