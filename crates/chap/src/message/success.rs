//! `DH-HMAC-CHAP_Success1`: the controller has authenticated the host, and may prove who it is.
//! `DH-HMAC-CHAP_Success2`: the host has authenticated the controller.

use super::{DH_CHAP, Malformed, Reader, header};

pub(super) const ID_1: u8 = 0x03;
pub(super) const ID_2: u8 = 0x04;

/// The host is authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Success1<'a> {
    /// The transaction (T_ID).
    pub transaction: u16,
    /// The length of a hash (HL).
    pub hash_bytes: u8,
    /// The response R2 (RVAL), if the host has challenged the controller (RVALID).
    pub response: Option<&'a [u8]>,
}

impl<'a> Success1<'a> {
    /// Some controllers leave the room of a response out if there is none, so it may be missing
    /// then.
    pub(super) fn decode(transaction: u16, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let hash_bytes = reader.u8()?;
        reader.skip(1)?;
        let is_answered = reader.flag("RVALID")?;
        reader.skip(7)?;
        let response = if is_answered {
            Some(reader.take(hash_bytes.into())?)
        } else {
            reader.skip(reader.rest().len().min(hash_bytes.into()))?;
            None
        };
        Ok(Self { transaction, hash_bytes, response })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = header(DH_CHAP, ID_1, self.transaction);
        bytes.extend([self.hash_bytes, 0, self.response.is_some().into(), 0, 0, 0, 0, 0, 0, 0]);
        match self.response {
            Some(response) => bytes.extend(response),
            None => bytes.extend((0..self.hash_bytes).map(|_| 0)),
        }
        bytes
    }
}

/// The controller is authenticated too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Success2 {
    /// The transaction (T_ID).
    pub transaction: u16,
}

impl Success2 {
    const RESERVED_BYTES: usize = 10;

    pub(super) fn decode(transaction: u16, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.skip(Self::RESERVED_BYTES)?;
        Ok(Self { transaction })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = header(DH_CHAP, ID_2, self.transaction);
        bytes.extend([0; Self::RESERVED_BYTES]);
        bytes
    }
}
