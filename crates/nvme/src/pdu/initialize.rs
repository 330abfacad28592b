//! ICReq and ICResp, which begin a connection. NVMe/TCP Transport 1.0, "Initialize Connection
//! Request PDU (ICReq)", "Initialize Connection Response PDU (ICResp)".

use super::{CommonHeader, Digests, Malformed, PduFlags, PduType};
use crate::layout::{Field, layout};

/// The only version of the PDUs (PFV).
pub const PDU_FORMAT_VERSION: u16 = 0;

/// The largest value of HPDA and CPDA: data begin at a multiple of 128 bytes.
pub const ALIGNMENT_MAX: u8 = 31;

/// The smallest MAXH2CDATA.
pub const MAXH2CDATA_MIN: u32 = 4096;

const BYTES: u8 = 128;

layout! {
    /// Both PDUs have the same form.
    pub struct Form[128] {
        /// The common header.
        header: CommonHeader = 0,
        /// PFV.
        version: u16 = 8,
        /// HPDA or CPDA.
        alignment: u8 = 10,
        /// DGST.
        digests: u8 = 11,
        /// MAXR2T or MAXH2CDATA.
        limit: u32 = 12,
    }
}

impl Form {
    fn new(kind: PduType) -> Self {
        let header = CommonHeader { kind, flags: PduFlags::NONE, hlen: BYTES, pdo: 0, plen: BYTES.into() };
        Self { header, version: PDU_FORMAT_VERSION, alignment: 0, digests: 0, limit: 0 }
    }

    fn check(bytes: &[u8]) -> Result<Self, Malformed> {
        let form = Self::decode(bytes).map_err(|_| Malformed::header(2))?;
        if form.version != PDU_FORMAT_VERSION {
            return Err(Malformed::unsupported(8));
        }
        if form.alignment > ALIGNMENT_MAX {
            return Err(Malformed::header(10));
        }
        Ok(form)
    }
}

/// What the host asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcReq {
    /// HPDA: data to the host begin at a multiple of (this + 1) x 4 bytes. At most
    /// [`ALIGNMENT_MAX`].
    pub hpda: u8,
    /// The digests that the host asks for.
    pub digests: Digests,
    /// How many R2Ts the host takes for one command at a time, minus one.
    pub maxr2t: u32,
}

impl IcReq {
    pub(super) fn load(bytes: &[u8]) -> Result<Self, Malformed> {
        let form = Form::check(bytes)?;
        Ok(Self { hpda: form.alignment, digests: Digests::decode(form.digests), maxr2t: form.limit })
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> [u8; 128] {
        let form = Form::new(PduType::IC_REQ);
        Form { alignment: self.hpda, digests: self.digests.encode(), limit: self.maxr2t, ..form }.encode()
    }
}

/// What the controller grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcResp {
    /// CPDA: data to the controller begin at a multiple of (this + 1) x 4 bytes. At most
    /// [`ALIGNMENT_MAX`].
    pub cpda: u8,
    /// The digests of the connection.
    pub digests: Digests,
    /// The most data in one H2CData, in bytes: a multiple of 4, at least [`MAXH2CDATA_MIN`].
    pub maxh2cdata: u32,
}

impl IcResp {
    pub(super) fn load(bytes: &[u8]) -> Result<Self, Malformed> {
        let form = Form::check(bytes)?;
        if form.limit < MAXH2CDATA_MIN || !form.limit.is_multiple_of(4) {
            return Err(Malformed::header(12));
        }
        Ok(Self { cpda: form.alignment, digests: Digests::decode(form.digests), maxh2cdata: form.limit })
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> [u8; 128] {
        let form = Form::new(PduType::IC_RESP);
        let digests = self.digests.encode();
        Form { alignment: self.cpda, digests, limit: self.maxh2cdata, ..form }.encode()
    }
}

const _: () = assert!(<Form as Field>::BYTES == BYTES as usize);
