//! How the processes of a pair connect to each other for forwarding.
//!
//! A host whose connection ends because this process does may send its command again to the owner
//! at once. So the owner must see that this process ends before the host does. A process that is
//! killed closes its descriptors in one order: by their numbers, from the lowest or, on kernels of
//! today, from the highest. Therefore it shows its end at both sides of its hosts' connections: by
//! the connection to the owner, whose number is above all others, and by a *watch*, whose number is
//! below, since it is set aside before anything listens. The other end of the watch is sent to the
//! owner with the first message.

use super::wire::{HEAD_BYTES, Message};
use nvme::controller::Node;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::{DupFlags, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Descriptors of a process beside those of its hosts.
const OTHERS: usize = 4096;

/// Where a node takes what is forwarded to it.
pub(crate) fn path(directory: &Path, node: Node) -> PathBuf {
    directory.join(format!("forward-{node}.sock"))
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Takes connections of the other node there. Nobody else is this node.
pub(crate) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = socket()?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 64)?;
    Ok(socket)
}

/// The next connection, if there is one.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Some(socket).filter(|socket| is_own(socket.as_fd()))),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether it is a process of the same user.
fn is_own(socket: BorrowedFd<'_>) -> bool {
    let own = rustix::process::geteuid();
    let is_own = sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == own);
    if !is_own {
        tracing::warn!("another user's process is no node of this pair");
    }
    is_own
}

/// The numbers that are set aside for the connection of a loop.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Of the watch; nothing while there is no connection.
    watch: OwnedFd,
    nothing: OwnedFd,
    /// Above those of hosts' connections.
    high: i32,
}

impl Numbers {
    /// To be called before anything listens, for a process that takes so many connections.
    pub(crate) fn set_aside(connections: usize, loops: usize) -> io::Result<Self> {
        let [watch, nothing] = [(); 2].map(|()| eventfd(0, EventfdFlags::CLOEXEC));
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        // Near the limit, if that is low.
        let high = connections.saturating_add(OTHERS).min(limit.saturating_sub(loops + 1));
        Ok(Self { watch: watch?, nothing: nothing?, high: i32::try_from(high).unwrap_or(i32::MAX) })
    }

    /// Connects to the process of the other node and says who this one is; `None` if it is not
    /// there, or has no room.
    pub(crate) fn dial(&mut self, path: &Path, hello: &Message) -> io::Result<Option<OwnedFd>> {
        let connection = socket()?;
        if rustix::net::connect(&connection, &SocketAddrUnix::new(path)?).is_err()
            || !is_own(connection.as_fd())
        {
            return Ok(None);
        }
        let connection = rustix::io::fcntl_dupfd_cloexec(&connection, self.high)?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::io::dup3(&ours, &mut self.watch, DupFlags::CLOEXEC)?;
        let head = hello.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let fds = [theirs.as_fd()];
        rights.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = rustix::net::sendmsg(&connection, &[IoSlice::new(&head)], &mut rights, flags);
        Ok((sent == Ok(HEAD_BYTES)).then_some(connection))
    }

    /// The connection is gone.
    pub(crate) fn hang_up(&mut self) {
        // Only a descriptor that is none cannot be replaced.
        let _ = rustix::io::dup3(&self.nothing, &mut self.watch, DupFlags::CLOEXEC);
    }
}

/// The first message of who has dialled, and its watch. `None` if it has not come yet.
pub(crate) fn greet(socket: BorrowedFd<'_>) -> io::Result<Option<(Message, OwnedFd)>> {
    let mut head = [0; HEAD_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut into = [IoSliceMut::new(&mut head)];
    let got = match rustix::net::recvmsg(socket, &mut into, &mut rights, flags) {
        Ok(got) => got.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let watch = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let message = Some(&head).filter(|_| got == HEAD_BYTES).and_then(Message::decode);
    match message.zip(watch) {
        Some(greeting) => Ok(Some(greeting)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Whether the process at the other end is there, as far as the system knows now.
pub(crate) fn is_there(socket: BorrowedFd<'_>, watch: BorrowedFd<'_>) -> bool {
    let end = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
    let mut fds = [socket, watch].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::RDHUP));
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match rustix::event::poll(&mut fds, Some(&now)) {
            Ok(_) => return fds.iter().all(|fd| !fd.revents().intersects(end)),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
