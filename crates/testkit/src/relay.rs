//! A relay in front of a TCP address, which falls silent or breaks when a test says so.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Changes what the address says on its way, as it was received.
type Change = fn(&mut [u8]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Passes,
    /// Nothing passes; what was received is kept, and passes later.
    Silent,
    /// Nothing of one connection passes, by its number.
    SilentOne(u64),
    /// Connections end, and new ones too.
    Cut,
}

#[derive(Debug)]
struct State {
    /// What was sent through it, to the address.
    bytes: AtomicU64,
    /// Connections that were made.
    made: AtomicU64,
    /// Directions of connections that have not ended.
    open: AtomicUsize,
    mode: Mutex<Mode>,
    changed: Condvar,
    streams: Mutex<Vec<TcpStream>>,
}

impl State {
    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the relay is silent for a connection. Returns whether bytes pass.
    fn passes(&self, number: u64) -> bool {
        let is_silent = |mode: &mut Mode| [Mode::Silent, Mode::SilentOne(number)].contains(mode);
        let mode = self.changed.wait_while(self.mode(), is_silent);
        *mode.unwrap_or_else(PoisonError::into_inner) != Mode::Cut
    }
}

/// A relay in front of an address. It listens until the test program ends.
#[derive(Debug)]
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Relay {
    /// A relay on 127.0.0.1 that passes everything.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn to(target: SocketAddr) -> Self {
        Self::changing(target, |_| ())
    }

    /// A relay that changes what the address says.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn changing(target: SocketAddr, change: Change) -> Self {
        let state = Arc::new(State {
            bytes: AtomicU64::new(0),
            made: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            mode: Mutex::new(Mode::Passes),
            changed: Condvar::new(),
            streams: Mutex::default(),
        });
        let listened = TcpListener::bind("127.0.0.1:0").and_then(|one| Ok((one.local_addr()?, one)));
        let (address, listener) = match listened {
            Ok(listened) => listened,
            Err(error) => panic!("a relay cannot listen: {error}"),
        };
        let of_relay = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                // Dropped: a connection that is cut, or whose target is not there.
                let _ = connect(&of_relay, client, target, change);
            }
        });
        Self { address, state }
    }

    fn set(&self, mode: Mode) {
        *self.state.mode() = mode;
        self.state.changed.notify_all();
    }

    /// How many bytes were sent through it to the address.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed)
    }

    /// Whether all connections have ended, and what was kept of them is delivered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state.open.load(Ordering::SeqCst) == 0
    }

    /// Nothing passes from now on, and what is sent is kept.
    pub fn silence(&self) {
        self.set(Mode::Silent);
    }

    /// Nothing of the newest connection passes from now on, and what is sent on it is kept.
    pub fn silence_newest(&self) {
        self.set(Mode::SilentOne(self.state.made.load(Ordering::SeqCst)));
    }

    /// Everything passes again, first what was kept.
    pub fn pass(&self) {
        self.set(Mode::Passes);
    }

    /// Ends all connections, and new ones at once.
    pub fn cut(&self) {
        self.set(Mode::Cut);
        for stream in std::mem::take(&mut *self.state.streams()) {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn connect(state: &Arc<State>, client: TcpStream, target: SocketAddr, change: Change) -> io::Result<()> {
    if *state.mode() == Mode::Cut {
        return Ok(());
    }
    let target = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    target.set_nodelay(true)?;
    state.streams().extend([client.try_clone()?, target.try_clone()?]);
    let (from, to) = (client.try_clone()?, target.try_clone()?);
    state.open.fetch_add(2, Ordering::SeqCst);
    let number = state.made.fetch_add(1, Ordering::SeqCst) + 1;
    let there = Arc::clone(state);
    std::thread::spawn(move || copy(from, to, &there, number, |_| (), true));
    let back = Arc::clone(state);
    std::thread::spawn(move || copy(target, client, &back, number, change, false));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, state: &State, number: u64, change: Change, counts: bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        if counts {
            state.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        let Some(data) = buffer.get_mut(..bytes) else { break };
        change(data);
        if !state.passes(number) || to.write_all(data).is_err() {
            break;
        }
    }
    // What was kept for the other end has been delivered; now it learns of the end.
    let _ = to.shutdown(Shutdown::Both);
    state.open.fetch_sub(1, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Deadline;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn the_newest_connection_falls_silent_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::to(listener.local_addr().unwrap());
        let pair = || {
            let mut client = TcpStream::connect(relay.address).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"1").unwrap();
            server.read_exact(&mut [0]).unwrap();
            (client, server)
        };
        let (mut old, mut new) = (pair(), pair());
        relay.silence_newest();
        new.0.write_all(b"2").unwrap();
        Deadline::wait_until("a byte more", PATIENCE, || (relay.bytes() == 3).then_some(()));
        old.0.write_all(b"2").unwrap();
        old.1.read_exact(&mut [0]).unwrap();
        new.1.set_nonblocking(true).unwrap();
        assert_eq!(new.1.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        new.1.set_nonblocking(false).unwrap();
        relay.pass();
        new.1.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn what_is_sent_while_it_is_silent_is_kept_and_a_cut_ends_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::changing(listener.local_addr().unwrap(), <[u8]>::make_ascii_uppercase);
        let mut client = TcpStream::connect(relay.address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut room = [0; 5];
        server.write_all(b"upper").unwrap();
        client.read_exact(&mut room).unwrap();
        assert_eq!(&room, b"UPPER");
        relay.silence();
        client.write_all(b"hello").unwrap();
        Deadline::wait_until("5 bytes", PATIENCE, || (relay.bytes() == 5).then_some(()));
        server.set_nonblocking(true).unwrap();
        assert_eq!(server.read(&mut room).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        server.set_nonblocking(false).unwrap();
        relay.pass();
        server.read_exact(&mut room).unwrap();
        assert_eq!(&room, b"hello");
        assert!(!relay.is_idle());
        relay.cut();
        assert_eq!(client.read(&mut room).unwrap(), 0);
        Deadline::wait_until("the end", PATIENCE, || relay.is_idle().then_some(()));
        let mut refused = TcpStream::connect(relay.address).unwrap();
        assert!(matches!(refused.read(&mut room), Ok(0) | Err(_)));
    }
}
