//! A proxy in front of each node that knows records and calls. It breaks a connection at a chosen
//! point between the sending of a call and the arrival of the reply, or holds a call and delivers
//! it at the end.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nfs4::compound::RequestReader;
use nfs4::op::Fore;
use testkit::records::{call_target, read_record, word};

/// The point at which the connection of a call is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server receives nothing of the call.
    BeforeCall,
    /// The server receives half of the call.
    DuringCall,
    /// The server receives the call, and the client is gone before the reply.
    AfterCall,
    /// The server has replied, and nothing of the reply arrives.
    BeforeReply,
    /// Half of the reply arrives.
    DuringReply,
    /// The reply arrives, and then the connection is lost.
    AfterReply,
    /// The server has replied, nothing arrives, and no connection breaks: the whole path is silent.
    Silence,
    /// The call is held, and reaches the server long after it was sent again, answered and undone.
    Late,
}

impl Cut {
    pub const ALL: [Self; 8] = [
        Self::BeforeCall,
        Self::DuringCall,
        Self::AfterCall,
        Self::BeforeReply,
        Self::DuringReply,
        Self::AfterReply,
        Self::Silence,
        Self::Late,
    ];
}

/// A call as the proxies know it: a procedure of version 3, or a compound with this operation.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    Version3(nfs3::Procedure),
    Version4(nfs4::Operation),
}

impl Target {
    fn is_of(self, record: &[u8]) -> bool {
        match self {
            Self::Version3(procedure) => {
                call_target(record) == (nfs3::PROGRAM, nfs3::VERSION, procedure.number())
            }
            Self::Version4(operation) => {
                call_target(record) == (nfs4::PROGRAM, nfs4::VERSION, nfs4::PROCEDURE_COMPOUND)
                    && has_operation(record, operation)
            }
        }
    }
}

/// Whether a call of COMPOUND has this operation.
fn has_operation(record: &[u8], operation: nfs4::Operation) -> bool {
    // Credential and verifier: a flavor, a length and a padded body each. RFC 5531 s9
    let after = |at: usize| at + 2 + (word(record, at + 1) as usize).div_ceil(4);
    // Words count from the xid, behind the record mark.
    let body = 4 + 4 * after(after(6));
    let Ok(mut compound) = RequestReader::<Fore>::new(record.get(body..).unwrap_or_default()) else {
        return false;
    };
    std::iter::from_fn(|| compound.next_operation()).flatten().any(|one| one.args.operation() == operation)
}

/// A held call.
struct HeldCall {
    server: TcpStream,
    record: Vec<u8>,
    /// Receives a message when the reply has arrived or the connection has ended.
    over: Receiver<()>,
}

#[derive(Default)]
struct State {
    armed: Option<(Target, Cut)>,
    held: Option<HeldCall>,
    /// All connections, so that they can be ended.
    streams: Vec<TcpStream>,
}

struct Shared {
    state: Mutex<State>,
    ended: AtomicBool,
}

/// One connection through a proxy, in both directions.
struct Connection {
    shared: Arc<Shared>,
    /// Whether nothing passes this node's proxy.
    silent: Arc<AtomicBool>,
    /// The call whose reply will be lost.
    awaited: Mutex<Option<(u32, Cut)>>,
    /// Notified at the end of a held call.
    over: Mutex<Option<Sender<()>>>,
}

/// The proxies of a group, and of its MOUNT service if that has its own port.
pub struct Cuts {
    shared: Arc<Shared>,
    silent: Vec<Arc<AtomicBool>>,
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    mount_port: Option<u16>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cuts {
    /// Starts proxies in front of these nodes, on other addresses and one port.
    pub fn start(nodes: &[SocketAddr], mount_port: Option<u16>) -> Self {
        (0..20)
            .find_map(|_| Self::try_start(nodes, mount_port))
            .expect("a port that is free on all addresses")
    }

    fn try_start(nodes: &[SocketAddr], mount_port: Option<u16>) -> Option<Self> {
        let address = |node: usize| IpAddr::V4(Ipv4Addr::new(127, 0, 8, node as u8 + 1));
        let mut listeners = vec![TcpListener::bind((address(0), 0)).ok()?];
        let port = listeners[0].local_addr().ok()?.port();
        for node in 1..nodes.len() {
            listeners.push(TcpListener::bind((address(node), port)).ok()?);
        }
        let shared = Arc::new(Shared { state: Mutex::default(), ended: AtomicBool::new(false) });
        let silent: Vec<Arc<AtomicBool>> = nodes.iter().map(|_| Arc::default()).collect();
        let mut ends: Vec<_> = listeners.into_iter().zip(nodes.iter().copied()).zip(silent.clone()).collect();
        if let Some(port) = mount_port {
            let listener = TcpListener::bind((address(0), port)).ok()?;
            ends.push(((listener, SocketAddr::new(nodes[0].ip(), port)), Arc::default()));
        }
        for ((listener, node), silent) in ends {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, node, &shared, &silent));
        }
        let addresses = (0..nodes.len()).map(address).collect();
        Some(Self { shared, silent, addresses, port, mount_port })
    }

    /// The next such call meets this cut.
    pub fn arm(&self, target: Target, cut: Cut) {
        lock(&self.shared.state).armed = Some((target, cut));
    }

    /// Whether such a call has arrived since.
    pub fn was_cut(&self) -> bool {
        lock(&self.shared.state).armed.is_none()
    }

    /// Ends a silence. Data in flight during the silence are lost.
    pub fn heal(&self) {
        let was_silent = |silent: &Arc<AtomicBool>| silent.swap(false, Ordering::SeqCst);
        if self.silent.iter().filter(|silent| was_silent(silent)).count() > 0 {
            self.end_all();
        }
    }

    /// Delivers the held call, and waits until the server has processed it.
    pub fn deliver_late(&self, timeout: Duration) {
        let Some(mut held) = lock(&self.shared.state).held.take() else { panic!("no call was kept back") };
        // A server that has closed the connection ignores the call.
        if held.server.write_all(&held.record).is_ok() {
            let over = held.over.recv_timeout(timeout);
            assert_ne!(
                over,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout),
                "the late call is not processed"
            );
        }
    }

    fn end_all(&self) {
        for stream in lock(&self.shared.state).streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Cuts {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.silent.iter().for_each(|silent| silent.store(false, Ordering::SeqCst));
        self.end_all();
        // Ends the threads that accept.
        for address in &self.addresses {
            let _ = TcpStream::connect((*address, self.port));
        }
        if let Some(port) = self.mount_port {
            let _ = TcpStream::connect((self.addresses[0], port));
        }
    }
}

fn accept(listener: &TcpListener, node: SocketAddr, shared: &Arc<Shared>, silent: &Arc<AtomicBool>) {
    while let Ok((client, _)) = listener.accept() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect(node) else { continue };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
        }
        let copies = [&client, &client, &server, &server].map(|stream| stream.try_clone().expect("a copy"));
        let [client_end, client_back, server_end, server_back] = copies;
        lock(&shared.state).streams.extend([client_end, server_end]);
        let line = Arc::new(Connection {
            shared: Arc::clone(shared),
            silent: Arc::clone(silent),
            awaited: Mutex::default(),
            over: Mutex::default(),
        });
        let back = Arc::clone(&line);
        std::thread::spawn(move || forward_calls(client, server, &line));
        std::thread::spawn(move || forward_replies(server_back, client_back, &back));
    }
}

fn end(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

fn forward_calls(mut client: TcpStream, mut server: TcpStream, line: &Connection) {
    while let Some(record) = read_record(&mut client) {
        if line.silent.load(Ordering::SeqCst) {
            continue;
        }
        let mut state = lock(&line.shared.state);
        let is_armed = |(target, _): &mut (Target, Cut)| target.is_of(&record);
        let cut = state.armed.take_if(is_armed).map(|(_, cut)| cut);
        match cut {
            Some(Cut::BeforeCall) => break,
            Some(Cut::DuringCall) => {
                let _ = server.write_all(&record[..record.len() / 2]);
                break;
            }
            Some(Cut::AfterCall) => {
                // The server's end stays open until the server has replied.
                let _ = server.write_all(&record);
                return end(&client);
            }
            Some(Cut::Late) => {
                let (speak, over) = channel();
                *lock(&line.over) = Some(speak);
                state.held = Some(HeldCall { server, record, over });
                return end(&client);
            }
            Some(cut) => *lock(&line.awaited) = Some((word(&record, 0), cut)),
            None => {}
        }
        drop(state);
        if server.write_all(&record).is_err() {
            break;
        }
    }
    end(&client);
    if lock(&line.over).is_none() {
        end(&server);
    }
}

fn forward_replies(mut server: TcpStream, mut client: TcpStream, line: &Connection) {
    while let Some(record) = read_record(&mut server) {
        if line.silent.load(Ordering::SeqCst) {
            continue;
        }
        let of_call = |awaited: &mut (u32, Cut)| awaited.0 == word(&record, 0);
        match lock(&line.awaited).take_if(of_call).map(|(_, cut)| cut) {
            Some(Cut::Silence) => {
                line.silent.store(true, Ordering::SeqCst);
                continue;
            }
            Some(Cut::BeforeReply) => break,
            Some(Cut::DuringReply) => {
                let _ = client.write_all(&record[..record.len() / 2]);
                break;
            }
            Some(_) => {
                let _ = client.write_all(&record);
                break;
            }
            None => {}
        }
        if client.write_all(&record).is_err() {
            break;
        }
    }
    end(&client);
    end(&server);
    if let Some(over) = lock(&line.over).take() {
        let _ = over.send(());
    }
}
