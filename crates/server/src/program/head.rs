//! A call's header that is decoded once, and kept beside its record until the call is served.

use rpc::call::{CREDENTIAL_AT, CallError, CallHeader};
use xdr::Reader;

/// A header without what it borrows from its record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallHead {
    header: CallHeader<'static>,
    credential_bytes: usize,
    args_at: usize,
}

impl CallHead {
    /// Decodes the header of a record, which must have been received completely.
    #[inline]
    pub fn decode(record: &[u8]) -> Result<Self, CallError> {
        let mut reader = Reader::new(record);
        let header = rpc::call::decode(&mut reader)?;
        Ok(Self {
            credential_bytes: header.credential_body.len(),
            args_at: record.len() - reader.remaining(),
            header: CallHeader { credential_body: &[], ..header },
        })
    }

    pub const fn program(&self) -> u32 {
        self.header.program
    }

    pub const fn version(&self) -> u32 {
        self.header.version
    }

    pub const fn procedure(&self) -> u32 {
        self.header.procedure
    }

    /// Where the arguments begin in the record.
    pub const fn args_at(&self) -> usize {
        self.args_at
    }

    /// The arguments, in the record that this was decoded from.
    #[inline]
    pub fn args<'r>(&self, record: &'r [u8]) -> Reader<'r> {
        Reader::new(record.get(self.args_at..).unwrap_or_default())
    }

    /// The header again, in the record that this was decoded from.
    #[inline]
    pub fn header<'r>(&self, record: &'r [u8]) -> CallHeader<'r> {
        let credential = record.get(CREDENTIAL_AT..CREDENTIAL_AT + self.credential_bytes);
        CallHeader { credential_body: credential.unwrap_or_default(), ..self.header }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdr::Writer;

    #[test]
    fn a_kept_header_finds_its_credential_and_its_arguments_again() {
        let mut record = Vec::new();
        let mut writer = Writer::new(&mut record);
        // AUTH_SYS with a body of 8 bytes.
        let credential = [[0, 0, 0, 1], [0, 0, 0, 8], *b"name", *b"more"].concat();
        rpc::call::encode(&mut writer, rpc::Xid(7), 100_003, 3, 6, &credential);
        writer.bytes(b"args");
        let head = CallHead::decode(&record).unwrap();
        let mut reader = Reader::new(&record);
        assert_eq!(head.header(&record), rpc::call::decode(&mut reader).unwrap());
        assert_eq!(head.header(&record).credential_body, b"namemore");
        assert_eq!(head.args(&record).rest(), b"args");
        assert_eq!(head.args_at(), record.len() - 4);
    }
}
