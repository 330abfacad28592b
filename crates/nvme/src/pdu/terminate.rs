//! H2CTermReq and C2HTermReq, by which an end says why it closes the connection. NVMe/TCP Transport
//! 1.0, "Host To Controller Terminate Connection Request PDU (H2CTermReq)" and its counterpart.

use super::{CommonHeader, Malformed, PduFlags, PduType, Receiver};
use crate::layout::{layout, numbers};

/// How much of the header at fault follows, at most.
pub const TERM_DATA_BYTES_MAX: u32 = 128;

numbers! {
    /// FES: why a connection ends.
    pub struct FatalError(u16) {
        /// A field of a header is invalid; its offset follows.
        INVALID_HEADER_FIELD = 0x01,
        /// A PDU came that does not fit here.
        PDU_SEQUENCE_ERROR = 0x02,
        /// The digest of a header is wrong.
        HEADER_DIGEST = 0x03,
        /// Data outside of what was asked for.
        DATA_OUT_OF_RANGE = 0x04,
        /// More data than the limit; also: more R2Ts than the limit.
        DATA_TRANSFER_LIMIT_EXCEEDED = 0x05,
        /// A parameter is not supported; its offset follows.
        UNSUPPORTED_PARAMETER = 0x06,
    }
}

layout! {
    /// The header of both PDUs.
    pub struct Form[24] {
        /// The common header.
        header: CommonHeader = 0,
        /// FES.
        error: FatalError = 8,
        /// FEI.
        information: u32 = 10,
    }
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermReq {
    /// FES.
    pub error: FatalError,
    /// FEI: the offset of the wrong field, the received digest, or 0.
    pub information: u32,
}

impl TermReq {
    pub(super) fn load(bytes: &[u8]) -> Self {
        let form: Form = crate::layout::load(bytes, 0);
        Self { error: form.error, information: form.information }
    }

    /// The PDU for this receiver, with the beginning of the header that was at fault.
    #[must_use]
    pub fn encode(&self, receiver: Receiver, at_fault: &[u8]) -> Vec<u8> {
        let at_fault = at_fault.get(..TERM_DATA_BYTES_MAX as usize).unwrap_or(at_fault);
        let kind = match receiver {
            Receiver::Controller => PduType::H2C_TERM_REQ,
            Receiver::Host => PduType::C2H_TERM_REQ,
        };
        let hlen = Form::BYTES as u8;
        let plen = u32::from(hlen) + at_fault.len() as u32;
        let header = CommonHeader { kind, flags: PduFlags::NONE, hlen, pdo: 0, plen };
        let form = Form { header, error: self.error, information: self.information };
        [form.encode().as_slice(), at_fault].concat()
    }
}

impl From<Malformed> for TermReq {
    fn from(malformed: Malformed) -> Self {
        Self { error: malformed.error, information: malformed.information }
    }
}
