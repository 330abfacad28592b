//! The PDUs of NVMe/TCP. NVMe/TCP Transport 1.0, "NVMe/TCP PDUs".
//!
//! ```text
//! | common header, 8 bytes | rest of the header | header digest? | padding | data | data digest? |
//! |<------------- HLEN ------------------------>|                |<- PDO: begin of data
//! |<--------------------------------------- PLEN ----------------------------------------------->|
//! ```
//!
//! Data never pass through here. [`Layout::of`] says from the first eight bytes how long a PDU is
//! and where its data begin and end, and refuses what breaks a rule before anything is taken for
//! it; [`Pdu::decode`] reads the header; the `encode` of each PDU writes all that stands before its
//! data.

mod data;
mod frame;
mod initialize;
mod terminate;

pub use data::{C2hData, H2cData, R2t};
pub use frame::{Bounds, Layout, Malformed, Receiver};
pub use initialize::{ALIGNMENT_MAX, IcReq, IcResp, MAXH2CDATA_MIN, PDU_FORMAT_VERSION};
pub use terminate::{FatalError, TERM_DATA_BYTES_MAX, TermReq};

use crate::command::{Cqe, Sqe};
use crate::digest::{self, DIGEST_BYTES};
use crate::layout::{Field, flags, layout, numbers};

numbers! {
    /// The type of a PDU. "NVMe/TCP PDU Types"
    pub struct PduType(u8) {
        /// Initialize Connection Request, host to controller.
        IC_REQ = 0x00,
        /// Initialize Connection Response, controller to host.
        IC_RESP = 0x01,
        /// The host ends the connection.
        H2C_TERM_REQ = 0x02,
        /// The controller ends the connection.
        C2H_TERM_REQ = 0x03,
        /// A command.
        CAPSULE_CMD = 0x04,
        /// A completion.
        CAPSULE_RESP = 0x05,
        /// Data from the host.
        H2C_DATA = 0x06,
        /// Data from the controller.
        C2H_DATA = 0x07,
        /// Ready to Transfer: the controller asks for data.
        R2T = 0x09,
    }
}

flags! {
    /// The flags of the common header; which of them mean something depends on the type. "PDU
    /// Common Header"
    pub struct PduFlags(u8) {
        /// HDGSTF: a header digest follows the header.
        HEADER_DIGEST = 1 << 0,
        /// DDGSTF: a data digest follows the data.
        DATA_DIGEST = 1 << 1,
        /// LAST_PDU: the last data of the transfer.
        LAST = 1 << 2,
        /// SUCCESS: the command succeeded, and no CapsuleResp follows.
        SUCCESS = 1 << 3,
    }
}

/// The length of the common header, from which the length of a PDU is known.
pub const HEADER_BYTES_MIN: usize = 8;

layout! {
    /// The common header. "PDU Common Header"
    pub struct CommonHeader[8] {
        /// The type.
        kind: PduType = 0,
        /// The flags.
        flags: PduFlags = 1,
        /// HLEN: the length of the header in bytes, without its digest.
        hlen: u8 = 2,
        /// PDO: where data begin, from the start of the PDU.
        pdo: u8 = 3,
        /// PLEN: the length of the PDU in bytes.
        plen: u32 = 4,
    }
}

/// Which digests a connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digests {
    /// Headers have one.
    pub header: bool,
    /// Data have one.
    pub data: bool,
}

impl Digests {
    /// The field DGST of ICReq and ICResp.
    #[must_use]
    pub fn encode(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }

    /// Reads the field; reserved bits are ignored.
    #[must_use]
    pub const fn decode(field: u8) -> Self {
        Self { header: field & 1 != 0, data: field & 2 != 0 }
    }

    const fn header_bytes(self) -> usize {
        if self.header { DIGEST_BYTES } else { 0 }
    }
}

/// How one end sends: what both have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// The digests.
    pub digests: Digests,
    /// Data begin at a multiple of this many bytes: (HPDA + 1) x 4 to the host, (CPDA + 1) x 4 to
    /// the controller. "PDU Data Alignment"
    pub alignment: u8,
}

impl Default for Sender {
    fn default() -> Self {
        Self { digests: Digests::default(), alignment: 4 }
    }
}

impl Sender {
    /// Where data begin after a header of this length.
    fn data_offset(self, hlen: u8) -> u8 {
        let end = usize::from(hlen) + self.digests.header_bytes();
        let alignment = usize::from(self.alignment.max(4));
        u8::try_from(end.next_multiple_of(alignment)).unwrap_or(u8::MAX)
    }

    /// Appends all that stands before the data: the common header, the rest of the header, its
    /// digest, and padding. `rest` has the header from its ninth byte on.
    fn encode(self, kind: PduType, flags: PduFlags, rest: &[u8], data_bytes: u32, out: &mut Vec<u8>) {
        let hlen = u8::try_from(HEADER_BYTES_MIN + rest.len()).unwrap_or(u8::MAX);
        let head_bytes = usize::from(hlen) + self.digests.header_bytes();
        let mut flags = flags;
        if self.digests.header {
            flags = flags.with(PduFlags::HEADER_DIGEST);
        }
        let (mut pdo, mut plen) = (0, u32::try_from(head_bytes).unwrap_or(u32::MAX));
        if data_bytes > 0 {
            pdo = self.data_offset(hlen);
            plen = u32::from(pdo) + data_bytes;
            if self.digests.data {
                flags = flags.with(PduFlags::DATA_DIGEST);
                plen += DIGEST_BYTES as u32;
            }
        }
        let start = out.len();
        out.extend_from_slice(&CommonHeader { kind, flags, hlen, pdo, plen }.encode());
        out.extend_from_slice(rest);
        if self.digests.header {
            let digest = digest::of(out.get(start..).unwrap_or_default());
            out.extend_from_slice(&digest.to_bytes());
        }
        let end = start + head_bytes.max(usize::from(pdo));
        out.resize(end, 0);
    }
}

/// A command. Its data, if they are in the capsule, follow. "Command Capsule PDU (CapsuleCmd)"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapsuleCmd {
    /// The command.
    pub sqe: Sqe,
}

impl CapsuleCmd {
    /// The length of the header.
    pub const HLEN: u8 = 72;

    /// Appends the PDU up to its data, of which `data_bytes` follow.
    pub fn encode(&self, sender: Sender, data_bytes: u32, out: &mut Vec<u8>) {
        sender.encode(PduType::CAPSULE_CMD, PduFlags::NONE, &self.sqe.encode(), data_bytes, out);
    }
}

/// A completion. "Response Capsule PDU (CapsuleResp)"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapsuleResp {
    /// The completion.
    pub cqe: Cqe,
}

impl CapsuleResp {
    /// The length of the header.
    pub const HLEN: u8 = 24;

    /// Appends the PDU.
    pub fn encode(&self, sender: Sender, out: &mut Vec<u8>) {
        sender.encode(PduType::CAPSULE_RESP, PduFlags::NONE, &self.cqe.encode(), 0, out);
    }
}

/// The header of any PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pdu {
    /// Initialize Connection Request.
    IcReq(IcReq),
    /// Initialize Connection Response.
    IcResp(IcResp),
    /// The host ends the connection.
    H2cTermReq(TermReq),
    /// The controller ends the connection.
    C2hTermReq(TermReq),
    /// A command.
    CapsuleCmd(CapsuleCmd),
    /// A completion.
    CapsuleResp(CapsuleResp),
    /// Data from the host.
    H2cData(H2cData),
    /// Data from the controller.
    C2hData(C2hData),
    /// The controller asks for data.
    R2t(R2t),
}

impl Pdu {
    /// Reads the header of a PDU with this layout: its first [`Layout::header_bytes`]. Checks the
    /// header's digest, and that the length of data agrees with the layout.
    ///
    /// # Errors
    /// [`Malformed`]: the connection ends with a TermReq.
    pub fn decode(layout: &Layout, header: &[u8]) -> Result<Self, Malformed> {
        let hlen = usize::from(layout.hlen);
        let (Some(bytes), Some(rest)) = (header.get(..hlen), header.get(HEADER_BYTES_MIN..hlen)) else {
            return Err(Malformed::header(0));
        };
        if layout.has_header_digest {
            let received = header.get(hlen..hlen + DIGEST_BYTES).unwrap_or_default();
            if !digest::of(bytes).matches(received) {
                return Err(Malformed::digest(received));
            }
        }
        let short = |_| Malformed::header(0);
        let pdu = match layout.kind {
            PduType::IC_REQ => Self::IcReq(IcReq::load(bytes)?),
            PduType::IC_RESP => Self::IcResp(IcResp::load(bytes)?),
            PduType::H2C_TERM_REQ => Self::H2cTermReq(TermReq::load(bytes)),
            PduType::C2H_TERM_REQ => Self::C2hTermReq(TermReq::load(bytes)),
            PduType::CAPSULE_CMD => Self::CapsuleCmd(CapsuleCmd { sqe: Sqe::decode(rest).map_err(short)? }),
            PduType::CAPSULE_RESP => Self::CapsuleResp(CapsuleResp { cqe: Cqe::load(rest) }),
            PduType::H2C_DATA => Self::H2cData(H2cData::load(bytes, layout)?),
            PduType::C2H_DATA => Self::C2hData(C2hData::load(bytes, layout)?),
            PduType::R2T => Self::R2t(R2t::load(bytes)),
            _ => return Err(Malformed::header(0)),
        };
        Ok(pdu)
    }
}

#[cfg(test)]
mod tests;
