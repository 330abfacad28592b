//! The fixed client: one thread for its connections, whatever is ready in one receive of at most 1
//! MiB, as many new calls in one send as answers came.

use crate::{BLOCKS, CALL_BYTES, Case, HEADER_BYTES, STOP};
use rustix::event::epoll;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

pub fn ask(mut sockets: Vec<TcpStream>, case: &Case) {
    let answer = HEADER_BYTES + case.block;
    let calls = vec![1u8; CALL_BYTES * case.depth];
    let mut into = vec![0u8; 1 << 20];
    let mut partial = vec![0usize; sockets.len()];
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    for (i, s) in sockets.iter_mut().enumerate() {
        epoll::add(&poll, &*s, epoll::EventData::new_u64(i as u64), epoll::EventFlags::IN).unwrap();
        s.write_all(&calls).unwrap();
    }
    let mut events = Vec::with_capacity(64);
    while !STOP.load(Ordering::Relaxed) {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
        for event in &events {
            let i = event.data.u64() as usize;
            let Ok(got) = sockets[i].read(&mut into) else { continue };
            if got == 0 {
                return;
            }
            let bytes = partial[i] + got;
            let answers = bytes / answer;
            partial[i] = bytes % answer;
            if answers > 0 {
                BLOCKS.fetch_add(answers as u64, Ordering::Relaxed);
                // At most a few kilobytes are ever in flight this way, so this never finds the
                // buffer full.
                if sockets[i].write_all(&calls[..answers * CALL_BYTES]).is_err() {
                    return;
                }
            }
        }
    }
}
