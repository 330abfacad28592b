//! The PDUs that move data: H2CData, C2HData, and R2T that asks for data. NVMe/TCP Transport 1.0,
//! "Host To Controller Data Transfer PDU (H2CData)", "Controller To Host Data Transfer PDU
//! (C2HData)", "Ready to Transfer PDU (R2T)".

use super::{CommonHeader, Layout, Malformed, PduFlags, PduType, Sender};
use crate::layout::layout;

layout! {
    /// All three have the same form.
    pub struct Form[24] {
        /// The common header.
        header: CommonHeader = 0,
        /// CCCID: the command.
        cccid: u16 = 8,
        /// TTAG: the controller's tag of the transfer; reserved in C2HData.
        ttag: u16 = 10,
        /// DATAO or R2TO: the offset in the data of the command.
        offset: u32 = 12,
        /// DATAL or R2TL: the length in bytes.
        length: u32 = 16,
    }
}

const LENGTH: u32 = 16;

impl Form {
    fn encode_as(self, kind: PduType, flags: PduFlags, data_bytes: u32, sender: Sender, out: &mut Vec<u8>) {
        let bytes = self.encode();
        sender.encode(kind, flags, bytes.get(CommonHeader::BYTES..).unwrap_or_default(), data_bytes, out);
    }

    /// Reads a PDU whose data must have the length that the header says.
    fn with_data(bytes: &[u8], layout: &Layout) -> Result<Self, Malformed> {
        let form: Self = crate::layout::load(bytes, 0);
        if form.length != layout.data_bytes || form.length == 0 {
            return Err(Malformed::header(LENGTH));
        }
        Ok(form)
    }

    fn new(cccid: u16, ttag: u16, offset: u32, length: u32) -> Self {
        Self { cccid, ttag, offset, length, ..Self::default() }
    }
}

/// Data from the host, asked for by an R2T.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct H2cData {
    /// The command.
    pub cccid: u16,
    /// The tag of the R2T.
    pub ttag: u16,
    /// Where the data belong, from the beginning of the command's data.
    pub offset: u32,
    /// Their length in bytes, at least 1.
    pub length: u32,
    /// Whether they end what the R2T asked for.
    pub last: bool,
}

impl H2cData {
    pub(super) fn load(bytes: &[u8], layout: &Layout) -> Result<Self, Malformed> {
        let Form { cccid, ttag, offset, length, .. } = Form::with_data(bytes, layout)?;
        Ok(Self { cccid, ttag, offset, length, last: layout.flags.has(PduFlags::LAST) })
    }

    /// Appends the PDU up to its data.
    pub fn encode(&self, sender: Sender, out: &mut Vec<u8>) {
        let flags = if self.last { PduFlags::LAST } else { PduFlags::NONE };
        let form = Form::new(self.cccid, self.ttag, self.offset, self.length);
        form.encode_as(PduType::H2C_DATA, flags, self.length, sender, out);
    }
}

/// Data from the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct C2hData {
    /// The command.
    pub cccid: u16,
    /// Where the data belong, from the beginning of the command's data.
    pub offset: u32,
    /// Their length in bytes, at least 1.
    pub length: u32,
    /// Whether they are the last of the command.
    pub last: bool,
    /// Whether the command has succeeded and no CapsuleResp follows. Only with `last`.
    pub success: bool,
}

impl C2hData {
    pub(super) fn load(bytes: &[u8], layout: &Layout) -> Result<Self, Malformed> {
        let Form { cccid, offset, length, .. } = Form::with_data(bytes, layout)?;
        let (last, success) = (layout.flags.has(PduFlags::LAST), layout.flags.has(PduFlags::SUCCESS));
        if success && !last {
            return Err(Malformed::header(1));
        }
        Ok(Self { cccid, offset, length, last, success })
    }

    /// Appends the PDU up to its data.
    pub fn encode(&self, sender: Sender, out: &mut Vec<u8>) {
        let mut flags = PduFlags::NONE;
        if self.last {
            flags = flags.with(PduFlags::LAST);
            if self.success {
                flags = flags.with(PduFlags::SUCCESS);
            }
        }
        let form = Form::new(self.cccid, 0, self.offset, self.length);
        form.encode_as(PduType::C2H_DATA, flags, self.length, sender, out);
    }
}

/// The controller is ready for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct R2t {
    /// The command.
    pub cccid: u16,
    /// The tag that the data will bear.
    pub ttag: u16,
    /// The first byte that is asked for, from the beginning of the command's data.
    pub offset: u32,
    /// The number of bytes.
    pub length: u32,
}

impl R2t {
    pub(super) fn load(bytes: &[u8]) -> Self {
        let Form { cccid, ttag, offset, length, .. } = crate::layout::load(bytes, 0);
        Self { cccid, ttag, offset, length }
    }

    /// Appends the PDU.
    pub fn encode(&self, sender: Sender, out: &mut Vec<u8>) {
        let form = Form::new(self.cccid, self.ttag, self.offset, self.length);
        form.encode_as(PduType::R2T, PduFlags::NONE, 0, sender, out);
    }
}
