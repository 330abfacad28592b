//! `DH-HMAC-CHAP_Challenge`: the controller chooses the algorithms, and challenges the host.

use super::{DH_CHAP, Malformed, Reader, header, length};

pub(super) const ID: u8 = 0x01;

/// A controller's challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// The transaction (T_ID).
    pub transaction: u16,
    /// The hash function (HashID).
    pub hash: u8,
    /// The group (DHgID).
    pub group: u8,
    /// The sequence number S1 (SEQNUM).
    pub sequence: u32,
    /// The challenge C1 (CVAL).
    pub challenge: &'a [u8],
    /// The controller's Diffie-Hellman value (DHV); empty without a group.
    pub value: &'a [u8],
}

impl<'a> Challenge<'a> {
    pub(super) fn decode(transaction: u16, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let hash_bytes = reader.u8()?;
        reader.skip(1)?;
        let (hash, group) = (reader.u8()?, reader.u8()?);
        let (value_bytes, sequence) = (reader.u16()?, reader.u32()?);
        let (challenge, value) = (reader.take(hash_bytes.into())?, reader.take(value_bytes.into())?);
        Ok(Self { transaction, hash, group, sequence, challenge, value })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = header(DH_CHAP, ID, self.transaction);
        bytes.extend([length(self.challenge), 0, self.hash, self.group]);
        bytes.extend(length::<u16>(self.value).to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.challenge);
        bytes.extend(self.value);
        bytes
    }
}
