//! The readiness loop: big receives, one gathered send per batch of replies, the rest when there is
//! room.

use crate::memory::{HEADER, Places};
use crate::{CALL_BYTES, Case, HEADER_BYTES, Loop, STOP};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{IoSlice, Read};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

struct Peer {
    socket: TcpStream,
    partial: usize,
    queue: Vec<IoSlice<'static>>,
    at: usize,
    copied: Vec<u8>,
    copied_at: usize,
    blocked: bool,
}

impl Peer {
    fn idle(&self) -> bool {
        self.at == self.queue.len() && self.copied_at == self.copied.len()
    }

    /// Sends what it can; false if the socket is gone.
    fn flush(&mut self) -> bool {
        while !self.idle() {
            let one = [IoSlice::new(&self.copied[self.copied_at..])];
            let gathered = self.at < self.queue.len();
            let end = self.queue.len().min(self.at + 1024);
            let parts = if gathered { &self.queue[self.at..end] } else { &one[..] };
            let sent = sendmsg(&self.socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL);
            match sent {
                Ok(sent) if gathered => {
                    let all = self.queue.len();
                    let mut rest = &mut self.queue[self.at..];
                    IoSlice::advance_slices(&mut rest, sent);
                    self.at = all - rest.len();
                }
                Ok(sent) => self.copied_at += sent,
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        self.queue.clear();
        self.copied.clear();
        (self.at, self.copied_at) = (0, 0);
        true
    }
}

fn watch(poll: &OwnedFd, peer: &mut Peer, i: usize) {
    let blocked = !peer.idle();
    if blocked != peer.blocked {
        peer.blocked = blocked;
        let flags = if blocked { EventFlags::OUT } else { EventFlags::IN };
        epoll::modify(poll, &peer.socket, EventData::new_u64(i as u64), flags).unwrap();
    }
}

pub fn serve(sockets: Vec<TcpStream>, case: &Case) {
    let edge = case.server == Loop::EpollEdge;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let new = |socket| Peer {
        socket,
        partial: 0,
        queue: vec![],
        at: 0,
        copied: vec![],
        copied_at: 0,
        blocked: false,
    };
    let mut peers: Vec<Peer> = sockets.into_iter().map(new).collect();
    for (i, peer) in peers.iter().enumerate() {
        let flags = if edge { EventFlags::IN | EventFlags::OUT | EventFlags::ET } else { EventFlags::IN };
        epoll::add(&poll, &peer.socket, EventData::new_u64(i as u64), flags).unwrap();
    }
    let mut places = Places(1);
    let mut buffer = vec![0u8; 64 << 10];
    let mut events = Vec::with_capacity(64);
    while !STOP.load(Ordering::Relaxed) {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
        for event in &events {
            let i = event.data.u64() as usize;
            let peer = &mut peers[i];
            let flags = event.flags;
            if flags.contains(EventFlags::IN) {
                match peer.socket.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(got) => reply(peer, got, case, &mut places),
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
            if !peer.flush() {
                return;
            }
            if !edge {
                watch(&poll, peer, i);
            }
        }
    }
}

fn reply(peer: &mut Peer, got: usize, case: &Case, places: &mut Places) {
    let bytes = peer.partial + got;
    peer.partial = bytes % CALL_BYTES;
    for _ in 0..bytes / CALL_BYTES {
        if case.server == Loop::EpollCopy {
            peer.copied.extend_from_slice(&HEADER[..HEADER_BYTES]);
            places.block(case.block, |extent| peer.copied.extend_from_slice(extent));
        } else {
            peer.queue.push(IoSlice::new(&HEADER));
            places.block(case.block, |extent| peer.queue.push(IoSlice::new(extent)));
        }
    }
}
