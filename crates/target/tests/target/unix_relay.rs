//! A relay between the forwarding sockets of two nodes, which can be cut while both live, and which
//! can keep what is sent to the owner.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

/// It takes the place of a socket that listens.
pub struct UnixRelay(Arc<Shared>);

#[derive(Default)]
struct Shared {
    streams: Mutex<Vec<UnixStream>>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

/// Of what is sent to the owner.
#[derive(Default)]
struct Gate {
    is_shut: bool,
    kept_bytes: usize,
}

impl UnixRelay {
    /// Who dials the socket comes here from now on.
    pub fn before(socket: &Path) -> Self {
        let behind = socket.with_extension("behind");
        std::fs::rename(socket, &behind).unwrap();
        let listener = UnixListener::bind(socket).unwrap();
        let shared: Arc<Shared> = Arc::default();
        let of_relay = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // The directory goes with the test.
                let Ok(server) = UnixStream::connect(&behind) else { return };
                if pass_hello(&client, &server).is_err() {
                    continue;
                }
                let both = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                of_relay.streams.lock().unwrap().extend(both);
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let gate = Arc::clone(&of_relay);
                std::thread::spawn(move || copy(from, to, |from, bytes| gate.wait(from, bytes)));
                std::thread::spawn(move || copy(server, client, |_, _| {}));
            }
        });
        Self(shared)
    }

    /// Keeps what is sent to the owner from now on.
    pub fn hold(&self) {
        self.0.gate.lock().unwrap().is_shut = true;
    }

    /// How many bytes are kept, or more.
    pub fn kept_bytes(&self) -> usize {
        self.0.gate.lock().unwrap().kept_bytes
    }

    /// Passes what was kept, at once, as if the owner had not read it before.
    pub fn pass(&self) {
        self.0.gate.lock().unwrap().is_shut = false;
        self.0.changed.notify_all();
    }

    /// How many connections passed since the last cut.
    pub fn connections(&self) -> usize {
        self.0.streams.lock().unwrap().len() / 2
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in std::mem::take(&mut *self.0.streams.lock().unwrap()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// Waits while the gate is shut; takes what has come meanwhile.
    fn wait(&self, from: &UnixStream, bytes: &mut Vec<u8>) {
        let mut gate = self.gate.lock().unwrap();
        if !gate.is_shut {
            return;
        }
        gate.kept_bytes = bytes.len();
        gate = self.changed.wait_while(gate, |gate| gate.is_shut).unwrap();
        gate.kept_bytes = 0;
        drop(gate);
        let mut more = [0; 64 << 10];
        while let Ok((got @ 1.., _)) = rustix::net::recv(from, &mut more, RecvFlags::DONTWAIT) {
            bytes.extend_from_slice(&more[..got]);
        }
    }
}

/// The first message comes with a descriptor.
fn pass_hello(from: &UnixStream, to: &UnixStream) -> io::Result<()> {
    let mut bytes = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let got =
        rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let fds: Vec<OwnedFd> = rights
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(to, &[IoSlice::new(&bytes[..got.bytes])], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn copy(mut from: UnixStream, mut to: UnixStream, gate: impl Fn(&UnixStream, &mut Vec<u8>)) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(got @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..got].to_vec();
        gate(&from, &mut bytes);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
