//! The completion loop: a receive and at most one gathered send (MSG_WAITALL: the kernel finishes
//! short sends itself) per connection in flight, one `io_uring_enter` per turn.

use crate::memory::{HEADER, Places};
use crate::{CALL_BYTES, Case, Loop, STOP};
use io_uring::types::{Fd, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const BUFFERS: u16 = 64;
const BUFFER_BYTES: usize = 16 << 10;

struct Peer {
    socket: TcpStream,
    buffer: Vec<u8>,
    partial: usize,
    calls: usize,
    sending: bool,
    parts: Vec<libc::iovec>,
    at: usize,
    message: Box<libc::msghdr>,
}

impl Peer {
    fn new(socket: TcpStream) -> Self {
        let message = Box::new(unsafe { std::mem::zeroed() });
        let buffer = vec![0; 64 << 10];
        Peer { socket, buffer, partial: 0, calls: 0, sending: false, parts: vec![], at: 0, message }
    }

    fn receive(&mut self, i: usize, multi: bool) -> squeue::Entry {
        let fd = Fd(self.socket.as_raw_fd());
        let entry = if multi {
            opcode::RecvMulti::new(fd, 0).build()
        } else {
            opcode::Recv::new(fd, self.buffer.as_mut_ptr(), self.buffer.len() as u32).build()
        };
        entry.user_data((i as u64) << 1 | RECEIVE)
    }

    /// Starts to send what is queued, at most 1024 parts of it.
    fn send(&mut self, i: usize) -> squeue::Entry {
        self.sending = true;
        self.message.msg_iov = self.parts[self.at..].as_mut_ptr();
        self.message.msg_iovlen = (self.parts.len() - self.at).min(1024);
        opcode::SendMsg::new(Fd(self.socket.as_raw_fd()), &*self.message)
            .flags((libc::MSG_WAITALL | libc::MSG_NOSIGNAL) as u32)
            .build()
            .user_data((i as u64) << 1 | SEND)
    }

    fn sent(&mut self, mut bytes: usize) {
        self.sending = false;
        while self.at < self.parts.len() && bytes >= self.parts[self.at].iov_len {
            bytes -= self.parts[self.at].iov_len;
            self.at += 1;
        }
        if bytes > 0 {
            let part = &mut self.parts[self.at];
            part.iov_base = part.iov_base.wrapping_byte_add(bytes);
            part.iov_len -= bytes;
        }
        if self.at == self.parts.len() {
            self.parts.clear();
            self.at = 0;
        }
    }

    fn gather(&mut self, block: usize, places: &mut Places) {
        for _ in 0..std::mem::take(&mut self.calls) {
            let mut push = |b: &'static [u8]| {
                self.parts.push(libc::iovec { iov_base: b.as_ptr() as _, iov_len: b.len() })
            };
            push(&HEADER);
            places.block(block, push);
        }
    }
}

fn push(ring: &mut IoUring, entry: squeue::Entry) {
    // SAFETY (of the spike): peers, their parts and buffers outlive the ring's last completion.
    unsafe { ring.submission().push(&entry).unwrap() }
}

pub fn serve(sockets: Vec<TcpStream>, case: &Case) {
    let multi = case.server == Loop::UringMulti;
    let mut ring: IoUring =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_cqsize(1024).build(256).unwrap();
    // The ring of provided buffers: 16-byte entries, the tail in the last 2 bytes of the first.
    let layout = std::alloc::Layout::from_size_align(16 * BUFFERS as usize, 4096).unwrap();
    let entries = unsafe { std::alloc::alloc_zeroed(layout) } as *mut types::BufRingEntry;
    let mut pool = vec![0u8; BUFFERS as usize * BUFFER_BYTES];
    let mut tail = 0u16;
    let mut provide = |id: u16| unsafe {
        let entry = &mut *entries.add((tail % BUFFERS) as usize);
        entry.set_addr(pool[id as usize * BUFFER_BYTES..].as_mut_ptr() as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(id);
        tail = tail.wrapping_add(1);
        (*(types::BufRingEntry::tail(entries) as *const std::sync::atomic::AtomicU16))
            .store(tail, Ordering::Release);
    };
    if multi {
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, 0, 0).unwrap() };
        (0..BUFFERS).for_each(&mut provide);
    }
    let mut peers: Vec<Peer> = sockets.into_iter().map(Peer::new).collect();
    let mut places = Places(1);
    for (i, peer) in peers.iter_mut().enumerate() {
        push(&mut ring, peer.receive(i, multi));
    }
    let mut done: Vec<(u64, i32, u32)> = Vec::new();
    let mut open = true;
    while open && !STOP.load(Ordering::Relaxed) {
        let patience = Timespec::new().nsec(100_000_000);
        let _ = ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&patience));
        done.extend(ring.completion().map(|c| (c.user_data(), c.result(), c.flags())));
        for (user, result, flags) in done.drain(..) {
            let (i, peer) = ((user >> 1) as usize, &mut peers[(user >> 1) as usize]);
            if user & 1 == SEND {
                if result <= 0 {
                    open = false;
                    continue;
                }
                peer.sent(result as usize);
            } else {
                if let Some(id) = cqueue::buffer_select(flags) {
                    provide(id);
                }
                if result <= 0 && result != -libc::ENOBUFS {
                    open = false;
                    continue;
                }
                let bytes = peer.partial + result.max(0) as usize;
                peer.calls += bytes / CALL_BYTES;
                peer.partial = bytes % CALL_BYTES;
                if !multi || !cqueue::more(flags) {
                    push(&mut ring, peer.receive(i, multi));
                }
            }
            if !peer.sending {
                peer.gather(case.block, &mut places);
                if !peer.parts.is_empty() {
                    push(&mut ring, peer.send(i));
                }
            }
        }
    }
    // Ends what is in flight before the memory it points to goes.
    let _ = ring.submitter().register_sync_cancel(None, types::CancelBuilder::any());
    drop(ring);
    unsafe { std::alloc::dealloc(entries as *mut u8, layout) };
}
