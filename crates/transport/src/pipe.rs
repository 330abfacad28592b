//! A payload that stays in the kernel: pages in a pipe, on their way from one descriptor to
//! another.
//!
//! Bytes from a socket to another descriptor need not pass through this process's memory: splice(2)
//! hands on the pages. The capacity of a pipe is counted in pieces, not bytes. A piece from a
//! socket is what the network card or the sender put into one place: an Ethernet frame, or on
//! loopback up to 32 KiB. So a payload may not fit; the rest is then received into memory
//! ([`crate::ReceiveBuffer::leave_pipe`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Room for 256 pieces with pages of 4 KiB, one page each: the default maximum for unprivileged
/// users, who may have 64 such pipes. pipe(7)
const ROOM_BYTES: usize = 1 << 20;
/// Room for 1,024 pieces: 1 MiB even if each segment is one Ethernet frame. Requires
/// CAP_SYS_RESOURCE by default.
const LARGE_ROOM_BYTES: usize = 4 << 20;

/// See the module's documentation.
#[derive(Debug)]
pub struct Pipe {
    from: OwnedFd,
    into: OwnedFd,
    held: usize,
    is_large: bool,
    _one: Counted,
}

/// Maximum number of pipes of this process: others need descriptors, and share the system's limit
/// on a user's pipes.
const PIPES_MAX: usize = 128;
static PIPES: AtomicUsize = AtomicUsize::new(0);

/// Counts one pipe until dropped.
#[derive(Debug)]
struct Counted;

impl Counted {
    fn one() -> io::Result<Self> {
        let others = PIPES.fetch_add(1, Ordering::Relaxed);
        // Dropped again if there are too many.
        let one = Self;
        if others < PIPES_MAX { Ok(one) } else { Err(Errno::MFILE.into()) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pipe {
    /// Creates a pipe with room for 256 pieces.
    ///
    /// # Errors
    /// If this process has the maximum number of pipes, or the system has no descriptor left or
    /// refuses this user a pipe of this size.
    pub fn new() -> io::Result<Self> {
        Self::with_room(ROOM_BYTES)
    }

    /// Creates a pipe with room for 1,024 pieces.
    ///
    /// # Errors
    /// As [`Pipe::new`].
    pub fn large() -> io::Result<Self> {
        Self::with_room(LARGE_ROOM_BYTES)
    }

    fn with_room(bytes: usize) -> io::Result<Self> {
        let one = Counted::one()?;
        let (from, into) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&into, bytes)?;
        Ok(Self { from, into, held: 0, is_large: bytes == LARGE_ROOM_BYTES, _one: one })
    }

    /// Whether the pipe was created with room for 1,024 pieces.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        self.is_large
    }

    /// The number of bytes in the pipe.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.held
    }

    /// Whether the pipe is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Moves up to `len` bytes from a descriptor into the pipe. Returns 0 at the descriptor's end.
    ///
    /// # Errors
    /// `AGAIN` if the descriptor has no bytes or the pipe has no room; other errors come from the
    /// descriptor.
    pub fn take_from(&mut self, source: BorrowedFd<'_>, len: usize) -> rustix::io::Result<usize> {
        let got = splice(source, None, &self.into, None, len, SpliceFlags::NONBLOCK)?;
        self.held += got;
        Ok(got)
    }

    /// Moves up to `len` bytes from the pipe to a descriptor.
    ///
    /// # Errors
    /// Errors of the descriptor.
    pub fn give_to(&mut self, target: BorrowedFd<'_>, len: usize) -> rustix::io::Result<usize> {
        let gone = splice(&self.from, None, target, None, len.min(self.held), SpliceFlags::NONBLOCK)?;
        self.held = self.held.saturating_sub(gone);
        Ok(gone)
    }

    /// Appends the contents of this pipe to another, as far as that has room.
    ///
    /// # Errors
    /// `AGAIN` if the other pipe has no room.
    pub fn move_to(&mut self, other: &mut Self) -> rustix::io::Result<()> {
        while self.held > 0 {
            other.held += self.give_to(other.into.as_fd(), self.held)?;
        }
        Ok(())
    }

    /// Appends bytes. Returns how many fit.
    ///
    /// # Errors
    /// `AGAIN` if none fit.
    pub fn put(&mut self, bytes: &[u8]) -> rustix::io::Result<usize> {
        let put = rustix::io::write(&self.into, bytes)?;
        self.held += put;
        Ok(put)
    }

    /// Reads bytes from the front of the pipe, as many as there are and as `target` holds.
    ///
    /// # Errors
    /// Errors of the system, but none if there are too few bytes.
    pub fn read(&mut self, target: &mut [u8]) -> rustix::io::Result<usize> {
        let mut done = 0;
        while self.held > 0
            && let Some(rest) = target.get_mut(done..)
            && !rest.is_empty()
        {
            match rustix::io::read(&self.from, &mut *rest)? {
                0 => return Err(Errno::IO),
                got => {
                    done += got;
                    self.held = self.held.saturating_sub(got);
                }
            }
        }
        Ok(done)
    }

    /// Discards the contents of the pipe.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn discard(&mut self) -> rustix::io::Result<()> {
        let mut dropped = [0; 4096];
        while self.held > 0 {
            self.read(&mut dropped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 % 251) as u8).collect()
    }

    #[test]
    fn data_put_into_a_pipe_are_read_in_order() {
        let mut pipe = Pipe::new().unwrap();
        assert_eq!(pipe.put(b"head"), Ok(4));
        let (mut other, data) = (Pipe::new().unwrap(), bytes(100_000));
        assert_eq!(other.put(&data), Ok(data.len()));
        other.move_to(&mut pipe).unwrap();
        assert!(other.is_empty());
        assert_eq!(pipe.len(), data.len() + 4);
        let mut all = vec![0; pipe.len() + 10];
        assert_eq!(pipe.read(&mut all), Ok(data.len() + 4));
        assert_eq!((&all[..4], &all[4..data.len() + 4]), (&b"head"[..], data.as_slice()));
        assert_eq!(pipe.read(&mut all), Ok(0));
    }

    #[test]
    fn discarded_data_are_gone() {
        let mut pipe = Pipe::new().unwrap();
        pipe.put(&bytes(10_000)).unwrap();
        pipe.discard().unwrap();
        assert!(pipe.is_empty());
        pipe.put(b"new").unwrap();
        let mut seen = [0; 3];
        assert_eq!((pipe.read(&mut seen), &seen), (Ok(3), b"new"));
    }

    #[test]
    fn pages_move_between_a_socket_and_a_pipe() {
        let (one, other) = crate::socket::pair().unwrap();
        let (mut first, mut second) = (Pipe::new().unwrap(), Pipe::new().unwrap());
        assert_eq!(second.take_from(other.as_fd(), 10), Err(Errno::AGAIN));
        let data = bytes(50_000);
        first.put(&data).unwrap();
        while !first.is_empty() {
            let len = first.len();
            first.give_to(one.as_fd(), len).unwrap();
            while second.take_from(other.as_fd(), usize::MAX >> 1).is_ok() {}
        }
        let mut back = vec![0; data.len()];
        assert_eq!(second.read(&mut back), Ok(data.len()));
        assert!(back == data);
        drop(one);
        assert_eq!(second.take_from(other.as_fd(), 10), Ok(0));
    }

    #[test]
    fn a_pipe_is_full_of_pieces_however_short_they_are() {
        let (one, other) = crate::socket::pair().unwrap();
        let mut pipe = Pipe::new().unwrap();
        let pieces_max = rustix::pipe::fcntl_getpipe_size(&pipe.into).unwrap() / rustix::param::page_size();
        for _ in 0..pieces_max {
            rustix::io::write(&one, b"x").unwrap();
            assert_eq!(pipe.take_from(other.as_fd(), 1), Ok(1));
        }
        rustix::io::write(&one, b"x").unwrap();
        assert_eq!(pipe.take_from(other.as_fd(), 1), Err(Errno::AGAIN));
    }
}
