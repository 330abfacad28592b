//! A relay between the forwarding sockets of two nodes, which can be cut while both live.

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
use std::sync::{Arc, Mutex};

/// It takes the place of a socket that listens.
pub struct UnixRelay(Arc<Mutex<Vec<UnixStream>>>);

impl UnixRelay {
    /// Who dials the socket comes here from now on.
    pub fn before(socket: &Path) -> Self {
        let behind = socket.with_extension("behind");
        std::fs::rename(socket, &behind).unwrap();
        let listener = UnixListener::bind(socket).unwrap();
        let streams: Arc<Mutex<Vec<UnixStream>>> = Arc::default();
        let of_relay = Arc::clone(&streams);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // The directory goes with the test.
                let Ok(server) = UnixStream::connect(&behind) else { return };
                if pass_hello(&client, &server).is_err() {
                    continue;
                }
                of_relay.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || copy(from, to));
                std::thread::spawn(move || copy(server, client));
            }
        });
        Self(streams)
    }

    /// How many connections passed since the last cut.
    pub fn connections(&self) -> usize {
        self.0.lock().unwrap().len() / 2
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in std::mem::take(&mut *self.0.lock().unwrap()) {
            let _ = stream.shutdown(Shutdown::Both);
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

fn copy(mut from: UnixStream, mut to: UnixStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
