//! How long a PDU is and where its data are, from its first eight bytes, and every rule that these
//! can break. NVMe/TCP Transport 1.0, "PDU Common Header" and the figures of each PDU.

use super::{
    CapsuleCmd, CapsuleResp, CommonHeader, Digests, FatalError, HEADER_BYTES_MIN, PduFlags, PduType,
    TERM_DATA_BYTES_MAX,
};
use crate::digest::DIGEST_BYTES;

/// Which end receives; each has PDUs of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// The controller's end.
    Controller,
    /// The host's end.
    Host,
}

/// What a receiver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Which end it is.
    pub receiver: Receiver,
    /// The digests that were agreed on.
    pub digests: Digests,
    /// Data begin at a multiple of this many bytes.
    pub alignment: u8,
    /// The most data in a capsule, in bytes.
    pub capsule_data_bytes: u32,
    /// The most data in an H2CData (MAXH2CDATA) or C2HData, in bytes.
    pub data_bytes: u32,
}

/// Why a connection ends, and what its TermReq says. Its PDU is finished, and so is the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{error:?} of the PDU, information {information:#x}")]
pub struct Malformed {
    /// FES.
    pub error: FatalError,
    /// FEI: the offset of the wrong field, the received digest, or 0.
    pub information: u32,
}

impl Malformed {
    /// The field at this offset of the header is wrong.
    #[must_use]
    pub const fn header(offset: u32) -> Self {
        Self { error: FatalError::INVALID_HEADER_FIELD, information: offset }
    }

    /// The parameter at this offset is not supported.
    #[must_use]
    pub const fn unsupported(offset: u32) -> Self {
        Self { error: FatalError::UNSUPPORTED_PARAMETER, information: offset }
    }

    /// This error, about which there is no more to say.
    #[must_use]
    pub const fn of(error: FatalError) -> Self {
        Self { error, information: 0 }
    }

    /// The digest of the header, which was received as this, is wrong.
    pub(crate) fn digest(received: &[u8]) -> Self {
        let information = crate::layout::load(received, 0);
        Self { error: FatalError::HEADER_DIGEST, information }
    }
}

const FLAGS: u32 = 1;
const HLEN: u32 = 2;
const PDO: u32 = 3;
const PLEN: u32 = 4;

/// Where the parts of a PDU are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The type.
    pub kind: PduType,
    /// The flags.
    pub flags: PduFlags,
    /// The length of the header in bytes, without its digest.
    pub hlen: u8,
    /// Whether a digest follows the header.
    pub has_header_digest: bool,
    /// Where the data begin, from the start of the PDU; without data, where the PDU ends.
    pub data_offset: u8,
    /// The length of the data in bytes.
    pub data_bytes: u32,
    /// Whether a digest follows the data.
    pub has_data_digest: bool,
}

impl Layout {
    /// Reads the first [`HEADER_BYTES_MIN`] bytes of a PDU.
    ///
    /// # Errors
    /// [`Malformed`] if a rule or a bound is broken. Nothing may be taken for such a PDU.
    pub fn of(first: &[u8; HEADER_BYTES_MIN], bounds: &Bounds) -> Result<Self, Malformed> {
        let header: CommonHeader = crate::layout::load(first, 0);
        let (hlen, to_host, data_max) = match header.kind {
            PduType::IC_REQ => (128, false, None),
            PduType::IC_RESP => (128, true, None),
            PduType::H2C_TERM_REQ => (24, false, Some(TERM_DATA_BYTES_MAX)),
            PduType::C2H_TERM_REQ => (24, true, Some(TERM_DATA_BYTES_MAX)),
            PduType::CAPSULE_CMD => (CapsuleCmd::HLEN, false, Some(bounds.capsule_data_bytes)),
            PduType::CAPSULE_RESP => (CapsuleResp::HLEN, true, None),
            PduType::H2C_DATA => (24, false, Some(bounds.data_bytes)),
            PduType::C2H_DATA => (24, true, Some(bounds.data_bytes)),
            PduType::R2T => (24, true, None),
            _ => return Err(Malformed::header(0)),
        };
        if to_host != (bounds.receiver == Receiver::Host) {
            return Err(Malformed::header(0));
        }
        if header.hlen != hlen {
            return Err(Malformed::header(HLEN));
        }
        match header.kind {
            PduType::H2C_TERM_REQ | PduType::C2H_TERM_REQ => Self::of_term_req(&header),
            _ => Self::of_parts(&header, bounds, data_max),
        }
    }

    /// A TermReq has no digests; what follows its header is the header that was at fault.
    fn of_term_req(header: &CommonHeader) -> Result<Self, Malformed> {
        let data_bytes = header.plen.checked_sub(header.hlen.into());
        let data_bytes = data_bytes.filter(|bytes| *bytes <= TERM_DATA_BYTES_MAX);
        Ok(Self {
            kind: header.kind,
            flags: header.flags,
            hlen: header.hlen,
            has_header_digest: false,
            data_offset: header.hlen,
            data_bytes: data_bytes.ok_or(Malformed::header(PLEN))?,
            has_data_digest: false,
        })
    }

    fn of_parts(header: &CommonHeader, bounds: &Bounds, data_max: Option<u32>) -> Result<Self, Malformed> {
        // The digests are agreed on by the first two PDUs, which have none.
        let negotiating = matches!(header.kind, PduType::IC_REQ | PduType::IC_RESP);
        let has_header_digest = bounds.digests.header && !negotiating;
        if header.flags.has(PduFlags::HEADER_DIGEST) != has_header_digest {
            return Err(Malformed::header(FLAGS));
        }
        let end = header.hlen + if has_header_digest { DIGEST_BYTES as u8 } else { 0 };
        let layout = Self {
            kind: header.kind,
            flags: header.flags,
            hlen: header.hlen,
            has_header_digest,
            data_offset: end,
            data_bytes: 0,
            has_data_digest: false,
        };
        if header.plen == u32::from(end) {
            return Ok(layout);
        }
        let data_max = data_max.ok_or(Malformed::header(PLEN))?;
        if header.flags.has(PduFlags::DATA_DIGEST) != bounds.digests.data {
            return Err(Malformed::header(FLAGS));
        }
        if header.pdo < end || !header.pdo.is_multiple_of(bounds.alignment.max(4)) {
            return Err(Malformed::header(PDO));
        }
        let trailer = if bounds.digests.data { DIGEST_BYTES as u32 } else { 0 };
        let data_bytes = header.plen.checked_sub(u32::from(header.pdo) + trailer).filter(|bytes| *bytes > 0);
        let data_bytes = data_bytes.ok_or(Malformed::header(PLEN))?;
        if data_bytes > data_max {
            return Err(Malformed::of(FatalError::DATA_TRANSFER_LIMIT_EXCEEDED));
        }
        Ok(Self { data_offset: header.pdo, data_bytes, has_data_digest: bounds.digests.data, ..layout })
    }

    /// The bytes that [`Pdu::decode`](super::Pdu::decode) needs: the header and its digest.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        usize::from(self.hlen) + if self.has_header_digest { DIGEST_BYTES } else { 0 }
    }

    /// The length of the whole PDU in bytes.
    #[must_use]
    pub fn pdu_bytes(&self) -> u64 {
        let trailer = if self.has_data_digest { DIGEST_BYTES as u64 } else { 0 };
        u64::from(self.data_offset) + u64::from(self.data_bytes) + trailer
    }
}
