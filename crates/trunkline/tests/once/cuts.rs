//! A proxy before each node that knows records and calls, and loses a connection at a chosen point
//! between the sending of a call and the arrival of its answer; or keeps a call back, and delivers
//! it when all is over.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use testkit::records::{called, read_record, word};

/// Where between sending and answer a call's connection is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server gets nothing of the call.
    BeforeCall,
    /// The server gets half of it.
    DuringCall,
    /// The server gets it, and nobody waits for its answer.
    AfterCall,
    /// The server has answered, and nothing of the answer arrives.
    BeforeReply,
    /// Half of the answer arrives.
    DuringReply,
    /// The answer arrives, and then the connection is lost.
    AfterReply,
    /// The server has answered, nothing arrives, and nothing says so: the whole path is silent.
    Silence,
    /// The call is kept back, and reaches the server when it was long since sent again, answered
    /// and undone.
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

/// A call that was kept back.
struct Held {
    server: TcpStream,
    record: Vec<u8>,
    /// Speaks when its answer has come, or its connection has ended.
    over: Receiver<()>,
}

#[derive(Default)]
struct State {
    armed: Option<(u32, Cut)>,
    held: Option<Held>,
    /// All that there is, so that it can be ended.
    streams: Vec<TcpStream>,
}

struct Shared {
    state: Mutex<State>,
    ended: AtomicBool,
}

/// One connection through a proxy, both directions.
struct Line {
    shared: Arc<Shared>,
    /// Nothing passes this node's proxy.
    silent: Arc<AtomicBool>,
    /// The call whose answer is to be lost.
    awaited: Mutex<Option<(u32, Cut)>>,
    /// Whoever waits for the end of a call that was kept back.
    over: Mutex<Option<Sender<()>>>,
}

/// The proxies of a group, and of its MOUNT service where that has a port of its own.
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
    /// Proxies before these nodes, on other addresses and one port of their own.
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

    /// The next call of this procedure of NFS meets this.
    pub fn arm(&self, procedure: u32, cut: Cut) {
        lock(&self.shared.state).armed = Some((procedure, cut));
    }

    /// Whether such a call has come since.
    pub fn struck(&self) -> bool {
        lock(&self.shared.state).armed.is_none()
    }

    /// Ends a silence. What was on its way in it is lost.
    pub fn heal(&self) {
        let was_silent = |silent: &Arc<AtomicBool>| silent.swap(false, Ordering::SeqCst);
        if self.silent.iter().filter(|silent| was_silent(silent)).count() > 0 {
            self.end_all();
        }
    }

    /// Delivers the call that was kept back, and waits until the server has done with it.
    pub fn deliver_late(&self, patience: Duration) {
        let Some(mut held) = lock(&self.shared.state).held.take() else { panic!("no call was kept back") };
        // A server that has closed the connection has done with it.
        if held.server.write_all(&held.record).is_ok() {
            let over = held.over.recv_timeout(patience);
            assert_ne!(over, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "the late call is still there");
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
        // Ends the accepts.
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
        let line = Arc::new(Line {
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

fn forward_calls(mut client: TcpStream, mut server: TcpStream, line: &Line) {
    while let Some(record) = read_record(&mut client) {
        if line.silent.load(Ordering::SeqCst) {
            continue;
        }
        let mut state = lock(&line.shared.state);
        let is_armed =
            |(procedure, _): &mut (u32, Cut)| called(&record) == (nfs3::PROGRAM, nfs3::VERSION, *procedure);
        let cut = state.armed.take_if(is_armed).map(|(_, cut)| cut);
        match cut {
            Some(Cut::BeforeCall) => break,
            Some(Cut::DuringCall) => {
                let _ = server.write_all(&record[..record.len() / 2]);
                break;
            }
            Some(Cut::AfterCall) => {
                // The server's side stays until it has answered.
                let _ = server.write_all(&record);
                return end(&client);
            }
            Some(Cut::Late) => {
                let (speak, over) = channel();
                *lock(&line.over) = Some(speak);
                state.held = Some(Held { server, record, over });
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

fn forward_replies(mut server: TcpStream, mut client: TcpStream, line: &Line) {
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
