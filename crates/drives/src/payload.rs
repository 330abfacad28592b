//! What is read and written: segments of memory that do not change on their way.

use memory::{Buffer, Buffers, Piece, Registrar};
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The unit in which the memory drive keeps its content, and in which holes are read.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// The content of holes.
static ZEROS: LazyLock<Arc<Buffer>> = LazyLock::new(|| {
    let mut zeros = Arc::new(Buffers::default()).take(CHUNK_BYTES);
    zeros.fill(0);
    Arc::new(zeros)
});

/// Segments in order.
pub type Payload = SmallVec<[Segment; 1]>;

/// The length of a payload in bytes.
#[must_use]
pub fn payload_bytes(payload: &[Segment]) -> usize {
    payload.iter().map(Segment::len).sum()
}

/// Bytes in memory that do not change until the segment is dropped: all or a part of a buffer that
/// it owns, or that it shares with the memory drive or with other segments.
pub struct Segment {
    memory: Memory,
    from: usize,
    len: usize,
}

enum Memory {
    Owned(Buffer),
    Shared(Arc<Buffer>),
}

impl Segment {
    /// A part of a buffer, as far as the buffer has it, so that several commands can be received
    /// into one buffer.
    #[must_use]
    pub fn shared(buffer: Arc<Buffer>, from: usize, len: usize) -> Self {
        let from = from.min(buffer.len());
        let len = len.min(buffer.len() - from);
        Self { memory: Memory::Shared(buffer), from, len }
    }

    /// Zeros: of `len` bytes, but no more than a chunk.
    pub(crate) fn zeros(len: usize) -> Self {
        Self::shared(Arc::clone(&ZEROS), 0, len)
    }

    /// The length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.buffer().get(self.from..self.from + self.len).unwrap_or_default()
    }

    /// The bytes, and how a device addresses them where they can be registered. A caller that gives
    /// them to a device keeps the segment until the device is done.
    #[must_use]
    pub fn piece(&self, with: Option<&Registrar>) -> Piece<'_> {
        let registered = with.and_then(|with| self.buffer().registered(with));
        let registered = registered.map(|whole| whole.part(self.from, self.len));
        Piece { bytes: self.as_bytes(), registered }
    }

    /// The bytes to fill, if nobody else has them.
    pub(crate) fn as_bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.memory {
            Memory::Owned(buffer) => buffer.get_mut(self.from..self.from + self.len),
            Memory::Shared(_) => None,
        }
    }

    /// The buffer, if the segment owns it and is all of it.
    pub(crate) fn into_whole(self) -> Result<Buffer, Self> {
        match self.memory {
            Memory::Owned(buffer) if self.from == 0 && self.len == buffer.len() => Ok(buffer),
            memory => Err(Self { memory, ..self }),
        }
    }

    fn buffer(&self) -> &Buffer {
        match &self.memory {
            Memory::Owned(buffer) => buffer,
            Memory::Shared(buffer) => buffer,
        }
    }
}

impl From<Buffer> for Segment {
    fn from(buffer: Buffer) -> Self {
        let len = buffer.len();
        Self { memory: Memory::Owned(buffer), from: 0, len }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// The largest buffer that is taken from a pool.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// Owned buffers for `bytes` bytes, of unspecified content, each aligned to pages.
pub(crate) fn buffers_for(bytes: usize, pool: &Arc<Buffers>) -> Payload {
    let mut payload = Payload::new();
    let mut left = bytes;
    while left > 0 {
        let len = left.min(BUFFER_BYTES_MAX);
        payload.push(pool.take(len).into());
        left -= len;
    }
    payload
}

/// Buffers to receive `bytes` bytes into that the memory drive keeps as its chunks, wherever they
/// cover one.
pub(crate) fn chunks_for(at: u64, bytes: usize, pool: &Arc<Buffers>) -> SmallVec<[Buffer; 1]> {
    let mut buffers = SmallVec::new();
    let (mut from, mut left) = ((at % CHUNK_BYTES as u64) as usize, bytes);
    while left > 0 {
        let len = left.min(CHUNK_BYTES - from);
        buffers.push(pool.take(len));
        (from, left) = (0, left - len);
    }
    buffers
}

/// Copies the bytes of a payload into memory that is aligned to pages.
pub(crate) fn copied(payload: &[Segment], pool: &Arc<Buffers>) -> Payload {
    let mut copy = buffers_for(payload_bytes(payload), pool);
    let mut sources = payload.iter().map(Segment::as_bytes);
    let mut source: &[u8] = &[];
    for target in copy.iter_mut().filter_map(Segment::as_bytes_mut) {
        let mut filled = 0;
        while filled < target.len() {
            if source.is_empty() {
                let Some(next) = sources.next() else { break };
                source = next;
            }
            let count = source.len().min(target.len() - filled);
            let (now, later) = source.split_at(count);
            target[filled..filled + count].copy_from_slice(now);
            (source, filled) = (later, filled + count);
        }
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_same_bytes_in_whole_buffers() {
        let pool = Arc::new(Buffers::default());
        let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut payload = Payload::new();
        for part in content.chunks(700_001) {
            let mut buffer = pool.take(part.len() + 3);
            buffer[3..].copy_from_slice(part);
            payload.push(Segment::shared(Arc::new(buffer), 3, part.len()));
        }
        let copy = copied(&payload, &pool);
        assert_eq!(copy.iter().map(Segment::len).collect::<Vec<_>>(), [1 << 20, 1 << 20, 902_848]);
        let bytes: Vec<u8> = copy.iter().flat_map(|segment| segment.as_bytes().to_vec()).collect();
        assert!(bytes == content);
    }

    #[test]
    fn a_part_stays_within_its_buffer() {
        let pool = Arc::new(Buffers::default());
        let buffer = Arc::new(pool.take(10));
        assert_eq!(Segment::shared(Arc::clone(&buffer), 8, 9).len(), 2);
        assert!(Segment::shared(buffer, 11, usize::MAX).is_empty());
        assert!(Segment::from(pool.take(5)).into_whole().is_ok());
        assert!(Segment::zeros(CHUNK_BYTES).into_whole().is_err());
    }
}
