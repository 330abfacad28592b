//! A TCP proxy in front of each node of a group, whose paths a test can silence, slow down, half
//! close, cut and restore. The proxies listen on other addresses than the nodes, and on the same
//! port.

#![allow(dead_code, reason = "each test uses its part")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nfs3::Procedure;
use nfs4::Operation;
use nfs4::compound::RequestReader;
use nfs4::op::Fore;
use server::{Config, NfsVersions, Server};

/// No procedure is armed. NULL, whose number this is, never is.
const NONE: u32 = 0;

/// What a proxy does with the traffic of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Accepts, and forwards nothing in either direction.
    Silent,
    /// Forwards calls, and drops replies.
    HalfOpen,
    /// Delays every piece of a reply by this long.
    Slow(Duration),
    /// Resets connections, new ones too.
    Reset,
}

#[derive(Debug)]
struct Shared {
    mode: Mutex<Mode>,
    changed: Condvar,
    connections: Mutex<Vec<TcpStream>>,
    /// The reply to the next call of this procedure is dropped with its connection.
    cut: Arc<AtomicU32>,
    ended: AtomicBool,
}

/// Operations of version 4 are armed with this added, apart from procedures.
const COMPOUND: u32 = 1 << 16;

/// Whether these bytes begin with the NFS call of this procedure, or with a compound that has this
/// operation.
// RFC 5531 s9, s11
fn begins_with(bytes: &[u8], armed: u32) -> bool {
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(4 * at..4 * at + 4)?.try_into().ok()?));
    // The record mark, the xid, the type of message and the version of RPC come first.
    if word(4) != Some(nfs3::PROGRAM) {
        return false;
    }
    if word(5) != Some(4) {
        return word(6) == Some(armed);
    }
    let mut reader = xdr::Reader::new(&bytes[4..]);
    if rpc::call::decode(&mut reader).is_err() {
        return false;
    }
    let Ok(mut requests) = RequestReader::<Fore>::new(reader.rest()) else { return false };
    std::iter::from_fn(|| requests.next_operation())
        .any(|request| request.is_ok_and(|request| request.args.operation().number() + COMPOUND == armed))
}

impl Shared {
    /// Whether the reply to this call is to be dropped; true once.
    fn take_cut(&self, call: &[u8]) -> bool {
        let taken = |armed| (armed != NONE && begins_with(call, armed)).then_some(NONE);
        self.cut.fetch_update(Ordering::SeqCst, Ordering::SeqCst, taken).is_ok()
    }

    /// Waits while nothing is forwarded; returns the mode after that.
    fn pass(&self) -> Mode {
        let mode = self.mode.lock().unwrap();
        *self.changed.wait_while(mode, |mode| *mode == Mode::Silent).unwrap()
    }

    /// Ends all connections; data in flight are lost.
    fn reset_all(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A group of nodes with a proxy in front of each.
#[derive(Debug)]
pub struct Proxied {
    pub server: Server,
    proxies: Vec<Arc<Shared>>,
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    cut: Arc<AtomicU32>,
}

impl Proxied {
    pub fn start(nodes: u8) -> Self {
        Self::start_with(nodes, NfsVersions::default())
    }

    pub fn start_with(nodes: u8, versions: NfsVersions) -> Self {
        (0..20).find_map(|_| Self::try_start(nodes, versions)).expect("a port that is free on all addresses")
    }

    fn try_start(nodes: u8, versions: NfsVersions) -> Option<Self> {
        let address = |net: u8, node: u8| IpAddr::V4(Ipv4Addr::new(127, 0, net, node));
        let first = TcpListener::bind((address(4, 1), 0)).ok()?;
        let port = first.local_addr().ok()?.port();
        let others = (2..=nodes).map(|node| TcpListener::bind((address(4, node), port)));
        let listeners: Vec<TcpListener> =
            std::iter::once(Ok(first)).chain(others).collect::<Result<_, _>>().ok()?;
        let real: Vec<SocketAddr> = (1..=nodes).map(|node| SocketAddr::new(address(5, node), port)).collect();
        let config = Config { versions, ..Config::quick(256 << 20, "/export", &real) };
        let server = Server::start(config).ok()?;
        let cut = Arc::new(AtomicU32::new(NONE));
        let mut proxies = Vec::new();
        for (listener, to) in listeners.into_iter().zip(real) {
            let shared = Arc::new(Shared {
                mode: Mutex::new(Mode::Pass),
                changed: Condvar::new(),
                connections: Mutex::default(),
                cut: Arc::clone(&cut),
                ended: AtomicBool::new(false),
            });
            proxies.push(Arc::clone(&shared));
            std::thread::spawn(move || accept(&listener, to, &shared));
        }
        let addresses = (1..=nodes).map(|node| address(4, node)).collect();
        Some(Self { server, proxies, addresses, port, cut })
    }

    /// Sets what the path to a node does.
    pub fn set(&self, node: usize, mode: Mode) {
        let proxy = &self.proxies[node];
        *proxy.mode.lock().unwrap() = mode;
        proxy.changed.notify_all();
        if mode == Mode::Reset {
            proxy.reset_all();
        }
    }

    pub fn set_all(&self, mode: Mode) {
        (0..self.proxies.len()).for_each(|node| self.set(node, mode));
    }

    /// The reply to the next call of this procedure never arrives: its connection is cut instead.
    pub fn cut_reply_to(&self, procedure: Procedure) {
        self.cut.store(procedure.number(), Ordering::SeqCst);
    }

    /// The same for the next compound with this operation.
    pub fn cut_reply_to_compound(&self, operation: Operation) {
        self.cut.store(operation.number() + COMPOUND, Ordering::SeqCst);
    }

    /// Whether such a call has come since.
    pub fn has_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst) == NONE
    }
}

impl Drop for Proxied {
    fn drop(&mut self) {
        for (proxy, address) in self.proxies.iter().zip(&self.addresses) {
            proxy.ended.store(true, Ordering::SeqCst);
            *proxy.mode.lock().unwrap() = Mode::Reset;
            proxy.changed.notify_all();
            proxy.reset_all();
            // Ends the thread that accepts.
            let _ = TcpStream::connect((*address, self.port));
        }
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let _ = client.set_nodelay(true);
        let reset = *shared.mode.lock().unwrap() == Mode::Reset;
        let node = if reset { None } else { TcpStream::connect(to).ok() };
        let Some(node) = node else {
            let _ = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
            continue;
        };
        let _ = node.set_nodelay(true);
        shared.connections.lock().unwrap().extend([client.try_clone().unwrap(), node.try_clone().unwrap()]);
        let (back_from, back_to) = (node.try_clone().unwrap(), client.try_clone().unwrap());
        let (up, down) = (Arc::clone(shared), Arc::clone(shared));
        let cuts = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::clone(&cuts);
        std::thread::spawn(move || pump(client, node, &up, false, &is_cut));
        std::thread::spawn(move || pump(back_from, back_to, &down, true, &cuts));
    }
}

/// Forwards one direction until it ends. `cuts` is set once the next reply of the connection is to
/// be dropped.
fn pump(mut from: TcpStream, mut to: TcpStream, shared: &Shared, answers: bool, cuts: &AtomicBool) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(got @ 1..) = from.read(&mut piece) {
        match shared.pass() {
            Mode::Reset => break,
            Mode::HalfOpen if answers => continue,
            Mode::Slow(later) if answers => {
                // This is no wait for an event: it is the delay of the path.
                std::thread::park_timeout(later);
            }
            _ => {}
        }
        if !answers && shared.take_cut(&piece[..got]) {
            cuts.store(true, Ordering::SeqCst);
        }
        if answers && cuts.load(Ordering::SeqCst) {
            let _ = socket2::SockRef::from(&to).set_linger(Some(Duration::ZERO));
            break;
        }
        if to.write_all(&piece[..got]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
