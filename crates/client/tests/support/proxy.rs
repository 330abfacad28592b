//! A TCP proxy in front of each node of a group, whose paths a test can silence, slow down, half
//! close, cut and restore. The proxies listen on other addresses than the nodes, and on the same
//! port.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use server::{Config, Server};

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
    /// How many replies are dropped, each with its connection.
    cuts: Arc<AtomicU32>,
    ended: AtomicBool,
}

impl Shared {
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
    cuts: Arc<AtomicU32>,
}

impl Proxied {
    pub fn start(nodes: u8) -> Self {
        (0..20).find_map(|_| Self::try_start(nodes)).expect("a port that is free on all addresses")
    }

    fn try_start(nodes: u8) -> Option<Self> {
        let address = |net: u8, node: u8| IpAddr::V4(Ipv4Addr::new(127, 0, net, node));
        let first = TcpListener::bind((address(4, 1), 0)).ok()?;
        let port = first.local_addr().ok()?.port();
        let others = (2..=nodes).map(|node| TcpListener::bind((address(4, node), port)));
        let listeners: Vec<TcpListener> =
            std::iter::once(Ok(first)).chain(others).collect::<Result<_, _>>().ok()?;
        let real: Vec<SocketAddr> = (1..=nodes).map(|node| SocketAddr::new(address(5, node), port)).collect();
        let server = Server::start(Config::quick(256 << 20, "/export", &real)).ok()?;
        let cuts = Arc::new(AtomicU32::new(0));
        let mut proxies = Vec::new();
        for (listener, to) in listeners.into_iter().zip(real) {
            let shared = Arc::new(Shared {
                mode: Mutex::new(Mode::Pass),
                changed: Condvar::new(),
                connections: Mutex::default(),
                cuts: Arc::clone(&cuts),
                ended: AtomicBool::new(false),
            });
            proxies.push(Arc::clone(&shared));
            std::thread::spawn(move || accept(&listener, to, &shared));
        }
        let addresses = (1..=nodes).map(|node| address(4, node)).collect();
        Some(Self { server, proxies, addresses, port, cuts })
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

    /// The next reply, whichever it is, never arrives: its connection is cut instead.
    pub fn cut_next_answer(&self) {
        self.cuts.store(1, Ordering::SeqCst);
    }

    pub fn cuts_left(&self) -> u32 {
        self.cuts.load(Ordering::SeqCst)
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
        std::thread::spawn(move || pump(client, node, &up, false));
        std::thread::spawn(move || pump(back_from, back_to, &down, true));
    }
}

/// Forwards one direction until it ends.
fn pump(mut from: TcpStream, mut to: TcpStream, shared: &Shared, answers: bool) {
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
        if answers
            && shared
                .cuts
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok()
        {
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
