//! `DH-HMAC-CHAP_Reply`: the host answers the challenge, and may challenge the controller.

use super::{DH_CHAP, Malformed, Reader, header, length};

pub(super) const ID: u8 = 0x02;

/// A host's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The transaction (T_ID).
    pub transaction: u16,
    /// The sequence number S2 (SEQNUM).
    pub sequence: u32,
    /// The response R1 (RVAL).
    pub response: &'a [u8],
    /// The challenge C2 (CVAL), if the controller shall prove who it is (CVALID).
    pub challenge: Option<&'a [u8]>,
    /// The host's Diffie-Hellman value (DHV); empty without a group.
    pub value: &'a [u8],
}

impl<'a> Reply<'a> {
    pub(super) fn decode(transaction: u16, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let hash_bytes = usize::from(reader.u8()?);
        reader.skip(1)?;
        let is_challenged = reader.flag("CVALID")?;
        reader.skip(1)?;
        let (value_bytes, sequence) = (reader.u16()?, reader.u32()?);
        let (response, challenge) = (reader.take(hash_bytes)?, reader.take(hash_bytes)?);
        let value = reader.take(value_bytes.into())?;
        let challenge = is_challenged.then_some(challenge);
        Ok(Self { transaction, sequence, response, challenge, value })
    }

    /// The room of a challenge is there even if there is none.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = header(DH_CHAP, ID, self.transaction);
        bytes.extend([length(self.response), 0, self.challenge.is_some().into(), 0]);
        bytes.extend(length::<u16>(self.value).to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.response);
        match self.challenge {
            Some(challenge) => bytes.extend(challenge),
            None => bytes.extend(self.response.iter().map(|_| 0)),
        }
        bytes.extend(self.value);
        bytes
    }
}
