//! Files and block devices with direct I/O: their operations, as worker threads execute them.

mod content;
pub(crate) mod open;

use crate::operation::Fault;
use crate::payload::{CHUNK_BYTES, Payload, Segment, copied};
use crate::sys;
use memory::Buffers;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags, preadv, pwritev2};
use smallvec::SmallVec;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most slices that the system takes at a time (`UIO_MAXIOV`).
pub(crate) const SLICES_MAX: usize = 1024;
/// How often an operation is tried again that the system interrupts or cannot take at the moment.
pub(crate) const RETRIES_MAX: u32 = 64;
/// Zeros that are written at a time where the system cannot make them.
const ZEROS_BYTES: usize = 1 << 20;

/// An open file or block device.
#[derive(Debug)]
pub(crate) struct Disk {
    pub file: File,
    pub is_device: bool,
    /// What the address of memory must be a multiple of.
    pub memory_align: usize,
    /// What offsets and lengths must be multiples of.
    pub block_bytes: u32,
    /// Payload that was copied because its memory was not aligned.
    pub bounced_bytes: AtomicU64,
}

impl Disk {
    /// The same bytes in memory that the system accepts: the payload itself if it can be.
    pub fn aligned(&self, payload: Payload, pool: &Arc<Buffers>) -> Payload {
        let is_aligned = |segment: &Segment| {
            segment.as_bytes().as_ptr().addr().is_multiple_of(self.memory_align)
                && segment.len().is_multiple_of(self.block_bytes as usize)
        };
        if payload.iter().all(is_aligned) {
            return payload;
        }
        let copy = copied(&payload, pool);
        self.bounced_bytes.fetch_add(crate::payload_bytes(&copy) as u64, Ordering::Relaxed);
        copy
    }

    /// Fills the payload's buffers.
    pub fn read(&self, at: u64, payload: &mut Payload) -> Result<(), Fault> {
        let whole = crate::payload_bytes(payload);
        progress(whole, |done| {
            let mut slices: SmallVec<[IoSliceMut<'_>; 4]> = SmallVec::new();
            let mut skip = done;
            for buffer in payload.iter_mut().filter_map(Segment::as_bytes_mut) {
                let from = skip.min(buffer.len());
                skip -= from;
                slices.extend(buffer.get_mut(from..).filter(|rest| !rest.is_empty()).map(IoSliceMut::new));
            }
            slices.truncate(SLICES_MAX);
            preadv(&self.file, &mut slices, at + done as u64)
        })
    }

    /// Writes the payload, which is [aligned](Self::aligned).
    pub fn write(&self, at: u64, payload: &[Segment], durable: bool) -> Result<(), Fault> {
        let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        progress(crate::payload_bytes(payload), |done| {
            let slices: SmallVec<[IoSlice<'_>; 16]> = rest(payload, done).map(IoSlice::new).collect();
            pwritev2(&self.file, &slices, at + done as u64, flags)
        })
    }

    /// Makes durable what was written.
    pub fn flush(&self) -> Result<(), Fault> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    /// Has a range read as zeros, in the quickest way that the system has.
    pub fn zero(&self, at: u64, bytes: u64, deallocate: bool, durable: bool) -> Result<(), Fault> {
        let made = if deallocate { self.punch(at, bytes) } else { Err(Errno::OPNOTSUPP) };
        let made = match made {
            Err(Errno::OPNOTSUPP) if self.is_device => sys::device_zero(self.file.as_fd(), at, bytes),
            Err(Errno::OPNOTSUPP) if !deallocate => {
                fallocate(&self.file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, at, bytes)
            }
            made => made,
        };
        match made {
            Err(Errno::OPNOTSUPP) => self.write_zeros(at, bytes)?,
            made => made?,
        }
        if durable { self.flush() } else { Ok(()) }
    }

    /// Gives back the storage of a range, where the system can do that.
    pub fn discard(&self, at: u64, bytes: u64) -> Result<(), Fault> {
        let done = if self.is_device {
            sys::device_discard(self.file.as_fd(), at, bytes)
        } else {
            self.punch(at, bytes)
        };
        match done {
            Err(Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Gives back the storage of a range, which reads as zeros then; also block devices have this.
    fn punch(&self, at: u64, bytes: u64) -> Result<(), Errno> {
        fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, bytes)
    }

    fn write_zeros(&self, at: u64, bytes: u64) -> Result<(), Fault> {
        let (mut at, end) = (at, at + bytes);
        while at < end {
            let count = (end - at).min(ZEROS_BYTES as u64) as usize;
            let chunks = (0..count).step_by(CHUNK_BYTES).map(|from| Segment::zeros(count - from));
            self.write(at, &chunks.collect::<Payload>(), false)?;
            at += count as u64;
        }
        Ok(())
    }
}

/// The slices of a payload after its first `done` bytes, as many as the system takes at a time.
pub(crate) fn rest(payload: &[Segment], done: usize) -> impl Iterator<Item = &[u8]> {
    let mut skip = done;
    let slices = payload.iter().filter_map(move |segment| {
        let from = skip.min(segment.len());
        skip -= from;
        segment.as_bytes().get(from..).filter(|rest| !rest.is_empty())
    });
    slices.take(SLICES_MAX)
}

/// Repeats a transfer until all is done. A transfer that moves nothing has met the end of a file
/// that somebody has made shorter.
fn progress(whole: usize, mut transfer: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), Fault> {
    let (mut done, mut retries) = (0, 0);
    while done < whole {
        match transfer(done) {
            Ok(0) => return Err(Fault::Gone),
            Ok(count) => done += count,
            Err(Errno::INTR | Errno::AGAIN) if retries < RETRIES_MAX => retries += 1,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_go_on_where_they_stopped() {
        let mut counts = [Ok(3), Err(Errno::INTR), Ok(5), Ok(2)].into_iter();
        let mut seen = Vec::new();
        let end = progress(10, |done| {
            seen.push(done);
            counts.next().unwrap()
        });
        assert_eq!((end, seen), (Ok(()), vec![0, 3, 3, 8]));
        assert_eq!(progress(10, |_| Ok(0)), Err(Fault::Gone));
        assert_eq!(progress(10, |_| Err(Errno::AGAIN)), Err(Fault::Io(Errno::AGAIN.raw_os_error())));
        assert_eq!(progress(10, |_| Err(Errno::NOSPC)), Err(Fault::NoSpace));
    }

    #[test]
    fn the_rest_of_a_payload_begins_where_it_stopped() {
        let pool = Arc::new(Buffers::default());
        let payload: Payload = [3, 4].into_iter().map(|len| Segment::from(pool.take(len))).collect();
        let lens = |done| rest(&payload, done).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(
            (lens(0), lens(2), lens(3), lens(6), lens(7)),
            (vec![3, 4], vec![1, 4], vec![4], vec![1], vec![])
        );
    }
}
