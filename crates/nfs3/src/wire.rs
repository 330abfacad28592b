//! The trait of all messages and their parts, and its implementations for the basic types.

use xdr::{Reader, Result, Writer};

xdr::wire_trait!();

/// A union over a boolean, as NFS writes optional data: `post_op_attr`, `pre_op_attr`,
/// `post_op_fh3`, `set_mode3` and others.
impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.optional(T::decode)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.optional(self.as_ref(), |writer, item| item.encode(writer));
    }
}

pub(crate) use xdr::{wire_enum, wire_fields};
