//! MOUNT and the port mapper over UDP: a thread beside the loops that serves one datagram after the
//! other.
//!
//! Kernel clients and `showmount` use UDP for these. NFS itself is not served over UDP: its replies
//! would not fit, and retransmissions of lost datagrams would cost everybody.

use super::mailbox::Mailboxes;
use crate::client::Client;
use crate::dispatch::Executor;
use crate::error::Error;
use crate::group::Group;
use crate::program::{CallHead, Mode};
use crate::replies::Replies;
use crate::reply_cache::Times;
use drc::Token;
use rpc::portmap::Protocol;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use transport::Address;
use transport::poll::{Events, Interest, Poller, Waker};

/// The longest call: one with the largest credential and path. RFC 5531 s8.2, RFC 1813 s5.1.3
const CALL_BYTES_MAX: usize = 4 << 10;
/// The longest reply. A longer reply, of a list, must be requested over TCP.
const REPLY_BYTES_MAX: usize = 8 << 10;
/// Datagrams served from one socket before the other sockets are served.
const DATAGRAMS_PER_TURN: usize = 64;
/// Whoever floods us with datagrams must not take the processors of the loops.
const NICE: i32 = 10;
const WAKER: u64 = u64::MAX;

/// Binds an address for datagrams. An IPv6 socket excludes IPv4, as its listener does.
pub(crate) fn bind_datagrams(address: SocketAddr) -> Result<Option<UdpSocket>, Error> {
    let open = || -> io::Result<UdpSocket> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    open().map(Some).map_err(|error| Error::Listen { address, error })
}

/// The thread that serves datagrams.
#[derive(Debug)]
pub(crate) struct Datagrams {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Datagrams {
    /// Starts the thread.
    pub fn start(
        sockets: Vec<UdpSocket>,
        group: Arc<Group>,
        mailboxes: Arc<Mailboxes>,
    ) -> Result<Self, Error> {
        let failed = |error| Error::System { what: "waiting for datagrams", error };
        let poller = Poller::new().map_err(failed)?;
        let waker = Arc::new(Waker::new(&poller, WAKER).map_err(failed)?);
        for (index, socket) in sockets.iter().enumerate() {
            poller.add(socket, index as u64, Interest::READ).map_err(failed)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serve = move || {
            // The priority of this thread. A refusal changes nothing but who runs first.
            if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                tracing::info!(%error, "datagrams are served at the priority of the loops");
            }
            let mut events = Events::new();
            while !stopped.load(Ordering::Acquire) && poller.wait(&mut events, None).is_ok() {
                for event in events.iter() {
                    let socket = usize::try_from(event.token).ok().and_then(|index| sockets.get(index));
                    if let Some(socket) = socket {
                        take_turn(socket, &group, &mailboxes);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("tl-datagram".into()).spawn(serve).map_err(failed)?;
        Ok(Self { stop, waker, thread: Some(thread) })
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread for datagrams ended by a panic");
        }
    }
}

fn take_turn(socket: &UdpSocket, group: &Group, mailboxes: &Mailboxes) {
    let mut call = [0; CALL_BYTES_MAX];
    for _ in 0..DATAGRAMS_PER_TURN {
        let Ok((len, peer)) = socket.recv_from(&mut call) else { return };
        let local = socket.local_addr().unwrap_or(peer);
        let reply =
            answer(call.get(..len).unwrap_or_default(), peer, resolve_local(local, peer), group, mailboxes);
        if let Some(reply) = reply {
            // After a lost reply the client sends the call again.
            let _ = socket.send_to(&reply, peer);
        }
    }
}

/// Our address that a peer reached: for a wildcard address, the address from which we would reach
/// the peer.
fn resolve_local(local: SocketAddr, peer: SocketAddr) -> SocketAddr {
    let probe = || -> io::Result<SocketAddr> {
        let socket = UdpSocket::bind(Address::from(local).with_port(0))?;
        socket.connect(peer)?;
        socket.local_addr()
    };
    if !local.ip().is_unspecified() {
        return local;
    }
    probe().map_or(local, |found| Address::from(found).with_port(local.port()))
}

fn answer(
    call: &[u8],
    peer: SocketAddr,
    local: SocketAddr,
    group: &Group,
    mailboxes: &Mailboxes,
) -> Option<Vec<u8>> {
    let head = CallHead::decode(call).ok()?;
    let mut out = Vec::new();
    let (mut replies, mut text) = (Replies::default(), Vec::new());
    // A datagram belongs to no node and no connection; the programs served here need neither.
    let mut client = Client::new(0, 0, peer, local, group.exports());
    let now = crate::clock::now();
    let mut executor = Executor {
        group,
        waiters: mailboxes,
        token: Token(0),
        protocol: Protocol::Udp,
        client: &mut client,
        replies: &mut replies,
        text: &mut text,
        times: Times { now, received: now },
        payload_bytes_max: u32::MAX,
    };
    executor.serve(&head, call, None, call.len(), Mode::Worker { begun: false });
    replies.drain(|head, _, _| out.extend_from_slice(head));
    // The sender's address may be forged. One that no export admits gets no more than it has sent,
    // so that nobody can make this server send much to somebody else.
    let longest = if client.admitted.is_empty() { call.len() } else { REPLY_BYTES_MAX };
    (!out.is_empty() && out.len() <= longest).then_some(out)
}
