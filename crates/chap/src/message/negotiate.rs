//! `AUTH_Negotiate`: the host says which protocols, hash functions and groups it accepts.

use super::{COMMON, Malformed, Reader, header};

pub(super) const ID: u8 = 0x00;

/// The room for identifiers in each list of a protocol.
const LIST: usize = 30;

/// What a host offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiate {
    /// The transaction (T_ID).
    pub transaction: u16,
    /// What concatenation with TLS the host asks for (SC_C); 0 for none.
    pub concatenation: u8,
    /// The protocols, in the host's order.
    pub protocols: Vec<Protocol>,
}

/// A protocol of authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// DH-HMAC-CHAP, with identifiers in the host's order.
    DhChap {
        /// Hash functions.
        hashes: Vec<u8>,
        /// Groups.
        groups: Vec<u8>,
    },
    /// Another one: its 64 bytes.
    Other([u8; Protocol::BYTES]),
}

impl Protocol {
    const BYTES: usize = 4 + 2 * LIST;
    const DH_CHAP: u8 = 0x01;

    fn decode(bytes: [u8; Self::BYTES]) -> Result<Self, Malformed> {
        let [id, _, hashes, groups, lists @ ..] = bytes;
        if id != Self::DH_CHAP {
            return Ok(Self::Other(bytes));
        }
        let (first, second) = lists.split_at(LIST);
        let list = |list: &[u8], count: u8| match list.get(..usize::from(count)) {
            Some(ids) => Ok(ids.to_vec()),
            None => Err(Malformed::List(count)),
        };
        Ok(Self::DhChap { hashes: list(first, hashes)?, groups: list(second, groups)? })
    }

    fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        match self {
            Self::Other(other) => bytes = *other,
            Self::DhChap { hashes, groups } => {
                let count = |list: &[u8]| list.len().min(LIST) as u8;
                let fixed = [Self::DH_CHAP, 0, count(hashes), count(groups)];
                let hashes = hashes.iter().copied().chain(std::iter::repeat(0)).take(LIST);
                let groups = groups.iter().copied().take(LIST);
                let all = fixed.into_iter().chain(hashes).chain(groups);
                bytes.iter_mut().zip(all).for_each(|(place, byte)| *place = byte);
            }
        }
        bytes
    }
}

impl Negotiate {
    pub(super) fn decode(transaction: u16, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (concatenation, count) = (reader.u8()?, reader.u8()?);
        let protocols = (0..count).map(|_| Protocol::decode(reader.array()?)).collect::<Result<_, _>>()?;
        Ok(Self { transaction, concatenation, protocols })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = header(COMMON, ID, self.transaction);
        let count = u8::try_from(self.protocols.len()).unwrap_or(u8::MAX);
        bytes.extend([self.concatenation, count]);
        self.protocols.iter().take(count.into()).for_each(|protocol| bytes.extend(protocol.encode()));
        bytes
    }
}
