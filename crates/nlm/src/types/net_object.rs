//! Opaque objects and names, each with its bound. XNFS s10 (`netobj`, `LM_MAXSTRLEN`)

use crate::{NAME_BYTES_MAX, NET_OBJECT_BYTES_MAX, Wire};
use xdr::{Reader, Result, Writer};

/// `netobj`: a cookie, a file handle, or a part of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NetObj<'a>(pub &'a [u8]);

impl<'a> Wire<'a> for NetObj<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.opaque(NET_OBJECT_BYTES_MAX).map(Self)
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.0);
    }
}

/// The name of a host: any bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Text<'a>(pub &'a [u8]);

impl<'a> Wire<'a> for Text<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.opaque(NAME_BYTES_MAX).map(Self)
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_or_name_above_its_bound_is_refused() {
        let of_len = |len: usize| {
            let mut bytes = Vec::new();
            Writer::new(&mut bytes).opaque(&vec![7; len]);
            bytes
        };
        let (longest, longer) = (of_len(1024), of_len(1025));
        assert_eq!(NetObj::decode(&mut Reader::new(&longest)).map(|object| object.0.len()), Ok(1024));
        assert_eq!(Text::decode(&mut Reader::new(&longest)).map(|name| name.0.len()), Ok(1024));
        let refused = xdr::Error::TooLong { len: 1025, max: 1024 };
        assert_eq!(NetObj::decode(&mut Reader::new(&longer)), Err(refused));
        assert_eq!(Text::decode(&mut Reader::new(&longer)), Err(refused));
    }
}
