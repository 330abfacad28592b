//! The connection to the partner, and its process.
//!
//! Node A listens on a UNIX socket in the directory of the pair, and node B connects. Packets keep
//! their bounds (SOCK_SEQPACKET). A lock of each node keeps two processes from being the same one,
//! and so the socket's name is free to be taken.

use super::MemberError;
use super::wire::{PACKET_BYTES_MAX, Packet};
use nvme::controller::{EndRequest, Node};
use nvme::pair::Message;
use nvme::{HostId, Nqn, Status};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use transport::poll::{Interest, Poller};

/// What the poller's tokens matter for: that something happened. A turn looks at all.
const TOKEN: u64 = 1;
/// How often it is tried again to send what there was no room for.
const AGAIN: Duration = Duration::from_millis(5);
/// How often node B tries to connect.
const DIAL: Duration = Duration::from_millis(100);
/// How long it waits after it has met a process that speaks another version.
const STRANGER: Duration = Duration::from_secs(5);
/// Packets that are taken in one turn.
const PACKETS_MAX: usize = 256;

/// What the link has learnt.
#[derive(Debug)]
pub(super) enum Heard {
    /// The partner is connected.
    Connected,
    Message(Message),
    /// The partner asks to end controllers.
    End(EndRequest),
    /// Who has a host identifier at the partner.
    HostId {
        host_id: HostId,
        host: Option<Nqn>,
    },
    /// What the partner was asked to end has ended, or it refuses that.
    EndAnswered {
        id: u64,
        status: Status,
    },
    /// The process of the partner has ended. Its instances are below this one.
    Ended {
        before: u64,
    },
}

/// The partner's process.
#[derive(Debug)]
struct Process {
    pidfd: OwnedFd,
    /// `None` once it is closed.
    socket: Option<OwnedFd>,
    is_known: bool,
    /// What there was no room for yet, in its order.
    unsent: VecDeque<Packet>,
    /// Where instances began when it said who it is: those of its target are below.
    served: u64,
}

#[derive(Debug)]
pub(super) struct Link {
    node: Node,
    address: SocketAddrUnix,
    /// Of node A.
    listener: Option<OwnedFd>,
    partner: Option<Process>,
    dials_at: Instant,
    _lock: File,
}

fn nonblocking() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Whether this holds of a descriptor now.
fn is(fd: BorrowedFd<'_>, flag: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, flag)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Interrupted: the next turn looks again.
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
        && fds.iter().any(|fd| fd.revents().intersects(flag))
}

impl Link {
    /// Becomes the node, and listens if it is A.
    pub(super) fn open(node: Node, directory: &Path) -> Result<Self, MemberError> {
        let path = directory.join(format!("node-{node}"));
        let failed = |what| {
            let path = path.clone();
            move |source| MemberError::System { what, path, source }
        };
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(failed("open"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(MemberError::Runs(node)),
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        let path = directory.join("pair.sock");
        let failed = |what| {
            let path = path.clone();
            move |source: Errno| MemberError::System { what, path, source: source.into() }
        };
        let address = SocketAddrUnix::new(&path).map_err(failed("use"))?;
        let mut listener = None;
        if node == Node::A {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(MemberError::System { what: "remove", path, source: error });
                }
                _ => {}
            }
            let socket = nonblocking().map_err(MemberError::Thread)?;
            rustix::net::bind(&socket, &address).map_err(failed("listen on"))?;
            rustix::net::listen(&socket, 4).map_err(failed("listen on"))?;
            listener = Some(socket);
        }
        let (partner, dials_at) = (None, Instant::now());
        Ok(Self { node, address, listener, partner, dials_at, _lock: lock })
    }

    pub(super) fn register(&self, poller: &Poller) -> io::Result<()> {
        self.listener.as_ref().map_or(Ok(()), |listener| poller.add(listener, TOKEN, Interest::READ))
    }

    /// When there is something to do even if nothing happens.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let dials = self.partner.is_none() && self.listener.is_none();
        let sends = self.partner.as_ref().is_some_and(|partner| !partner.unsent.is_empty());
        let dials = dials.then(|| self.dials_at.saturating_duration_since(Instant::now()));
        sends.then_some(AGAIN).into_iter().chain(dials).min()
    }

    /// Sends a packet, as soon as there is room; false if there is nobody to whom.
    pub(super) fn send(&mut self, packet: Packet) -> bool {
        let Some(partner) = self.partner.as_mut().filter(|partner| partner.is_known) else { return false };
        if partner.socket.is_none() {
            return false;
        }
        partner.unsent.push_back(packet);
        partner.flush();
        true
    }

    /// Whether a process of the partner is there, or one that has not been seen to end.
    pub(super) const fn has_process(&self) -> bool {
        self.partner.is_some()
    }

    pub(super) fn kill(&self) {
        if let Some(partner) = &self.partner {
            tracing::error!("the other node of the pair is silent: its process is killed");
            if let Err(error) = pidfd_send_signal(&partner.pidfd, Signal::KILL) {
                tracing::error!(%error, "it cannot be killed; its volumes wait for its end");
            }
        }
    }

    /// Looks at everything that may have happened.
    pub(super) fn turn(&mut self, poller: &Poller, heard: &mut Vec<Heard>) -> io::Result<()> {
        // A new process of the partner waits until the end of the old one was seen.
        if self.partner.is_none() {
            self.connect(poller)?;
        }
        let Some(partner) = &mut self.partner else { return Ok(()) };
        // Before its last words are read, so that there are none after them.
        let has_ended = is(partner.pidfd.as_fd(), PollFlags::IN);
        partner.receive(self.node, poller, heard)?;
        partner.flush();
        let is_stranger = partner.socket.is_none() && !partner.is_known;
        if is_stranger {
            poller.remove(&partner.pidfd)?;
            self.partner = None;
            self.dials_at = Instant::now() + STRANGER;
        } else if has_ended {
            poller.remove(&partner.pidfd)?;
            // One that never said who it was is no loss.
            if partner.is_known {
                tracing::warn!("the process of the other node has ended");
                heard.push(Heard::Ended { before: partner.served });
            }
            self.partner = None;
            self.dials_at = Instant::now();
        }
        Ok(())
    }

    fn connect(&mut self, poller: &Poller) -> io::Result<()> {
        let socket = match &self.listener {
            Some(listener) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                match rustix::net::accept_with(listener, flags) {
                    Ok(socket) => socket,
                    Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
            None => {
                if Instant::now() < self.dials_at {
                    return Ok(());
                }
                self.dials_at = Instant::now() + DIAL;
                let socket = nonblocking()?;
                // It is not there, or has no room now.
                if rustix::net::connect(&socket, &self.address).is_err() {
                    return Ok(());
                }
                socket
            }
        };
        let peer = sockopt::socket_peercred(&socket)?;
        if peer.uid != rustix::process::geteuid() {
            tracing::warn!(uid = peer.uid.as_raw(), "another user's process is no node of this pair");
            return Ok(());
        }
        // It may have ended already.
        let Ok(pidfd) = pidfd_open(peer.pid, PidfdFlags::empty()) else { return Ok(()) };
        // While its end of the connection is open, it lives, and the number is no other process's.
        if is(socket.as_fd(), PollFlags::HUP) {
            return Ok(());
        }
        poller.add(&socket, TOKEN, Interest::READ)?;
        poller.add(&pidfd, TOKEN, Interest::READ)?;
        put(socket.as_fd(), &Packet::Hello(self.node));
        self.partner = Some(Process {
            pidfd,
            socket: Some(socket),
            is_known: false,
            unsent: VecDeque::new(),
            served: 0,
        });
        Ok(())
    }
}

/// Sends a packet; false if there is no room for it now.
fn put(socket: BorrowedFd<'_>, packet: &Packet) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match rustix::net::send(socket, &packet.encode(), flags) {
        Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => false,
        Ok(_) => true,
        Err(error) => {
            // It has ended, which is seen by itself.
            tracing::debug!(%error, ?packet, "not sent to the other node");
            true
        }
    }
}

impl Process {
    /// Sends what there is room for. A partner that reads nothing is silent, and is killed then.
    fn flush(&mut self) {
        let Some(socket) = &self.socket else { return self.unsent.clear() };
        while self.unsent.front().is_some_and(|packet| put(socket.as_fd(), packet)) {
            self.unsent.pop_front();
        }
    }

    /// Reads what it has said.
    fn receive(&mut self, here: Node, poller: &Poller, heard: &mut Vec<Heard>) -> io::Result<()> {
        for _ in 0..PACKETS_MAX {
            let Some(socket) = &self.socket else { return Ok(()) };
            // One byte more than a packet shows a longer one.
            let mut room = [0; PACKET_BYTES_MAX + 1];
            let packet = match rustix::net::recv(socket, &mut room[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => return self.close(poller),
                Ok((bytes, _)) => Packet::decode(room.get(..bytes).unwrap_or_default()),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            match packet {
                Some(Packet::Hello(node)) if !self.is_known && node != here => {
                    self.is_known = true;
                    self.served = crate::controllers::instance_base();
                    heard.push(Heard::Connected);
                }
                Some(Packet::Message(message)) if self.is_known => heard.push(Heard::Message(message)),
                Some(Packet::End(request)) if self.is_known => heard.push(Heard::End(request)),
                Some(Packet::HostId { host_id, host }) if self.is_known => {
                    heard.push(Heard::HostId { host_id, host });
                }
                Some(Packet::Ended { id, status }) if self.is_known => {
                    heard.push(Heard::EndAnswered { id, status });
                }
                _ => {
                    tracing::error!("the other process speaks another version of what nodes of a pair say");
                    return self.close(poller);
                }
            }
        }
        Ok(())
    }

    fn close(&mut self, poller: &Poller) -> io::Result<()> {
        self.socket.take().map_or(Ok(()), |socket| poller.remove(&socket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::socketpair;

    /// A node that takes a partner's place has as many volumes to tell of.
    #[test]
    fn what_there_is_no_room_for_is_sent_later_and_in_its_order() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let packet = |nsid| Packet::Message(Message::Owned { nsid, epoch: 1 });
        let mut process = Process {
            pidfd: there.try_clone().unwrap(),
            socket: Some(here),
            is_known: true,
            unsent: (1..=2000).map(packet).collect(),
            served: 0,
        };
        let mut arrived = Vec::new();
        process.flush();
        assert!(!process.unsent.is_empty(), "there was room for all");
        while arrived.len() < 2000 {
            let mut room = [0; PACKET_BYTES_MAX];
            match rustix::net::recv(&there, &mut room[..], RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => arrived.push(Packet::decode(&room[..bytes])),
                Err(error) => {
                    assert_eq!(error, Errno::AGAIN);
                    process.flush();
                }
            }
        }
        assert!(arrived.into_iter().eq((1..=2000).map(|nsid| Some(packet(nsid)))));
        process.socket = None;
        process.unsent.push_back(packet(1));
        process.flush();
        assert!(process.unsent.is_empty(), "nobody is there");
    }
}
