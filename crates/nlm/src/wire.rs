//! The trait of all messages and their parts, and its implementations for the basic types.

use xdr::{Reader, Result, Writer};

xdr::wire_trait!();

impl<'a> Wire<'a> for i32 {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.u32().map(u32::cast_signed)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.cast_unsigned());
    }
}

pub(crate) use xdr::{wire_enum, wire_fields};
