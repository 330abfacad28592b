//! The transport header before each RPC message: RFC 8166 s4.1 to s4.3, both directions.
//!
//! Bounded: no list is longer than its named limit, nothing is allocated for a length that the peer
//! claims, and the lengths of a chunk are summed in 64 bits. An unknown procedure is kept as a
//! number, so that it can be answered.

use smallvec::SmallVec;
use xdr::{Reader, Writer};

/// The only version of the protocol. RFC 8166 s4.2.2
pub const VERSION: u32 = 1;

/// A header without any chunk: xid, version, credits, procedure, three empty lists. RFC 8166 s4.1
pub const HEADER_BYTES_MIN: usize = 28;

/// Maximum number of segments in all lists of one header. 4 KiB of header hold fewer than 256; this
/// leaves room for larger inline thresholds and bounds the work that a peer can cause with one
/// message.
pub const SEGMENTS_MAX: usize = 512;

/// Maximum number of write chunks in one header: one for each result that may be placed directly.
/// NFS version 3 has at most one, version 4 one for each READ of a compound.
pub const WRITE_CHUNKS_MAX: usize = 16;

// Procedures. RFC 8166 s4.2.4
const RDMA_MSG: u32 = 0;
const RDMA_NOMSG: u32 = 1;
const RDMA_DONE: u32 = 3;
const RDMA_ERROR: u32 = 4;

// Errors. RFC 8166 s4.5
const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// Memory of the requester that the responder may read or write. RFC 8166 s3.4.3
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The key of the registration.
    pub handle: u32,
    /// The length in bytes.
    pub length: u32,
    /// The start address, as the requester's device counts.
    pub offset: u64,
}

/// The memory of one piece of a message, in order. RFC 8166 s3.4.4
pub type Chunk = SmallVec<[Segment; 4]>;

/// The length of a chunk in bytes.
#[must_use]
pub fn bytes_of(chunk: &[Segment]) -> u64 {
    chunk.iter().map(|segment| u64::from(segment.length)).sum()
}

/// A segment of the read list. RFC 8166 s3.4.5
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadSegment {
    /// The position of the bytes in the message; segments with the same position form one chunk.
    pub position: u32,
    /// The memory.
    pub segment: Segment,
}

/// The three lists of a header. RFC 8166 s4.3
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunks {
    /// Memory that the responder reads: parts of the call, or at position 0 all of it.
    pub reads: SmallVec<[ReadSegment; 4]>,
    /// Memory for results that may be placed directly; in a reply, how much was placed there.
    pub writes: SmallVec<[Chunk; 1]>,
    /// Memory for the whole reply if it does not fit inline.
    pub reply: Option<Chunk>,
}

/// The content after a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The message follows the header, except what is in chunks. RFC 8166 s3.5.2
    Message(Chunks),
    /// The whole message is in a chunk. RFC 8166 s3.5.3
    NoMessage(Chunks),
    /// The peer could not process this end's header. RFC 8166 s4.5
    Error(HeaderError),
}

/// The error that one end reports for the other's header. RFC 8166 s4.5
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// The version is not supported.
    Version {
        /// The lowest supported version.
        low: u32,
        /// The highest supported version.
        high: u32,
    },
    /// The chunks could not be decoded or used.
    Chunk,
    /// An unknown error number.
    Other(u32),
}

/// A transport header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The xid of the call, the same as in the message. RFC 8166 s4.2.1
    pub xid: u32,
    /// Credits requested by a call or granted by a reply. RFC 8166 s4.2.3
    pub credits: u32,
    /// The content.
    pub body: Body,
}

/// Why bytes are not a usable header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Another version: answered with the supported version. RFC 8166 s4.5.1
    #[error("version {version} of RPC-over-RDMA in call {xid:#010x}; only version 1 is spoken here")]
    Version {
        /// The xid of the message.
        xid: u32,
        /// The version of the message.
        version: u32,
    },
    /// The lists are invalid or exceed a limit: answered with an error. RFC 8166 s4.5.2
    #[error("the chunks of call {xid:#010x} make no sense")]
    Chunks {
        /// The xid of the message.
        xid: u32,
    },
    /// An obsolete procedure, which is ignored. RFC 8166 s4.6.2
    #[error("RDMA_DONE, which nobody sends any more")]
    Done,
    /// The bytes are shorter than the fixed fields.
    #[error("{0} bytes are no header")]
    Short(usize),
}

impl Header {
    /// Decodes a header; the rest of the reader is the inline message.
    ///
    /// # Errors
    /// [`DecodeError`] has enough information to answer.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = reader.remaining();
        let mut fixed = || reader.u32().map_err(|_| DecodeError::Short(length));
        let (xid, version, credits, procedure) = (fixed()?, fixed()?, fixed()?, fixed()?);
        if version != VERSION {
            return Err(DecodeError::Version { xid, version });
        }
        let wrong = DecodeError::Chunks { xid };
        let body = match procedure {
            RDMA_MSG => Body::Message(decode_chunks(reader).ok_or(wrong)?),
            RDMA_NOMSG => Body::NoMessage(decode_chunks(reader).ok_or(wrong)?),
            RDMA_ERROR => Body::Error(decode_error(reader).ok_or(wrong)?),
            RDMA_DONE => return Err(DecodeError::Done),
            // RDMA_MSGP, number 2, is no longer supported and is answered like a header that cannot
            // be decoded, as are unknown procedures. RFC 8166 s4.6.1
            _ => return Err(wrong),
        };
        Ok(Self { xid, credits, body })
    }

    /// Appends the encoded header.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.xid);
        writer.u32(VERSION);
        writer.u32(self.credits);
        match &self.body {
            Body::Message(chunks) => {
                writer.u32(RDMA_MSG);
                encode_chunks(writer, chunks);
            }
            Body::NoMessage(chunks) => {
                writer.u32(RDMA_NOMSG);
                encode_chunks(writer, chunks);
            }
            Body::Error(error) => {
                writer.u32(RDMA_ERROR);
                match error {
                    HeaderError::Version { low, high } => {
                        [ERR_VERS, *low, *high].map(|word| writer.u32(word)).len()
                    }
                    HeaderError::Chunk => [ERR_CHUNK].map(|word| writer.u32(word)).len(),
                    HeaderError::Other(code) => [*code].map(|word| writer.u32(word)).len(),
                };
            }
        }
    }

    /// The encoded length.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        match &self.body {
            Body::Message(chunks) | Body::NoMessage(chunks) => 16 + chunks.encoded_bytes(),
            Body::Error(HeaderError::Version { .. }) => 28,
            Body::Error(_) => 20,
        }
    }
}

impl Chunks {
    /// The encoded length of the three lists.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let chunk = |chunk: &Chunk| 4 + 16 * chunk.len();
        let reads = 24 * self.reads.len();
        let writes: usize = self.writes.iter().map(|list| 4 + chunk(list)).sum();
        12 + reads + writes + self.reply.as_ref().map_or(0, chunk)
    }

    /// Whether all lists are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    /// The key of the first segment, which a reply may invalidate. RFC 8797 s3.2
    #[must_use]
    pub fn first_handle(&self) -> Option<u32> {
        let written = self.writes.iter().flatten().chain(self.reply.iter().flatten());
        let read = self.reads.iter().map(|read| &read.segment);
        read.chain(written).map(|segment| segment.handle).next()
    }
}

fn decode_segment(reader: &mut Reader<'_>) -> Option<Segment> {
    Some(Segment { handle: reader.u32().ok()?, length: reader.u32().ok()?, offset: reader.u64().ok()? })
}

/// Decodes a chunk; `left` is how many more segments this header may have.
fn decode_chunk(reader: &mut Reader<'_>, left: &mut usize) -> Option<Chunk> {
    let count = usize::try_from(reader.u32().ok()?).ok()?;
    *left = left.checked_sub(count)?;
    // Checked against the available bytes before memory is allocated.
    if count.checked_mul(16)? > reader.remaining() {
        return None;
    }
    (0..count).map(|_| decode_segment(reader)).collect()
}

fn decode_chunks(reader: &mut Reader<'_>) -> Option<Chunks> {
    let mut left = SEGMENTS_MAX;
    let mut chunks = Chunks::default();
    while reader.bool().ok()? {
        left = left.checked_sub(1)?;
        let position = reader.u32().ok()?;
        chunks.reads.push(ReadSegment { position, segment: decode_segment(reader)? });
    }
    while reader.bool().ok()? {
        if chunks.writes.len() == WRITE_CHUNKS_MAX {
            return None;
        }
        chunks.writes.push(decode_chunk(reader, &mut left)?);
    }
    if reader.bool().ok()? {
        chunks.reply = Some(decode_chunk(reader, &mut left)?);
    }
    Some(chunks)
}

fn decode_error(reader: &mut Reader<'_>) -> Option<HeaderError> {
    Some(match reader.u32().ok()? {
        ERR_VERS => HeaderError::Version { low: reader.u32().ok()?, high: reader.u32().ok()? },
        ERR_CHUNK => HeaderError::Chunk,
        other => HeaderError::Other(other),
    })
}

fn encode_segment(writer: &mut Writer<'_>, segment: &Segment) {
    writer.u32(segment.handle);
    writer.u32(segment.length);
    writer.u64(segment.offset);
}

fn encode_chunk(writer: &mut Writer<'_>, chunk: &Chunk) {
    // This end's chunks have a few segments, and a peer's had fewer than the limit.
    writer.u32(u32::try_from(chunk.len()).unwrap_or(u32::MAX));
    chunk.iter().for_each(|segment| encode_segment(writer, segment));
}

fn encode_chunks(writer: &mut Writer<'_>, chunks: &Chunks) {
    for read in &chunks.reads {
        writer.bool(true);
        writer.u32(read.position);
        encode_segment(writer, &read.segment);
    }
    writer.bool(false);
    for chunk in &chunks.writes {
        writer.bool(true);
        encode_chunk(writer, chunk);
    }
    writer.bool(false);
    writer.bool(chunks.reply.is_some());
    if let Some(chunk) = &chunks.reply {
        encode_chunk(writer, chunk);
    }
}
