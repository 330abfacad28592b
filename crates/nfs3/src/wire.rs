//! The trait of all messages and their parts, and its implementations for the basic types.

use xdr::{Reader, Result, Writer};

/// The encoding of a message or of a part of one. `'a` is the lifetime of the bytes that the value
/// borrows.
pub trait Wire<'a>: Sized {
    /// Decodes a value and leaves `reader` after its last byte.
    ///
    /// # Errors
    /// Missing bytes, a length above its bound, or a value outside its enumeration.
    fn decode(reader: &mut Reader<'a>) -> Result<Self>;

    /// Appends the encoded value.
    fn encode(&self, writer: &mut Writer<'_>);
}

/// Void. RFC 4506 s4.16
impl<'a> Wire<'a> for () {
    fn decode(_: &mut Reader<'a>) -> Result<Self> {
        Ok(())
    }

    fn encode(&self, _: &mut Writer<'_>) {}
}

impl<'a> Wire<'a> for u32 {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.u32()
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(*self);
    }
}

impl<'a> Wire<'a> for u64 {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.u64()
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u64(*self);
    }
}

impl<'a> Wire<'a> for bool {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.bool()
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.bool(*self);
    }
}

/// Fixed-length opaque data, such as verifiers.
impl<'a, const N: usize> Wire<'a> for [u8; N] {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.opaque_fixed()
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque_fixed(self);
    }
}

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

/// Implements [`Wire`] for a struct that is encoded as its fields, in the order given here.
macro_rules! wire_fields {
    ($name:ident $(<$life:lifetime>)? { $($field:ident),+ $(,)? }) => {
        impl<'a> $crate::Wire<'a> for $name $(<$life>)? {
            #[inline]
            fn decode(reader: &mut xdr::Reader<'a>) -> xdr::Result<Self> {
                // A struct expression evaluates its fields in the order in which they are written.
                Ok(Self { $($field: $crate::Wire::decode(reader)?),+ })
            }

            #[inline]
            fn encode(&self, writer: &mut xdr::Writer<'_>) {
                let Self { $($field),+ } = self;
                $($crate::Wire::encode($field, writer);)+
            }
        }
    };
}

/// Implements [`Wire`] for an enumeration of unit variants. Other values are refused.
macro_rules! wire_enum {
    ($name:ident { $($variant:ident = $value:literal),+ $(,)? }) => {
        impl $name {
            /// The number on the wire.
            #[must_use]
            #[inline]
            pub const fn number(self) -> u32 {
                match self {
                    $(Self::$variant => $value),+
                }
            }
        }

        impl<'a> $crate::Wire<'a> for $name {
            #[inline]
            fn decode(reader: &mut xdr::Reader<'a>) -> xdr::Result<Self> {
                match reader.u32()? {
                    $($value => Ok(Self::$variant),)+
                    value => Err(xdr::Error::BadDiscriminant { name: stringify!($name), value }),
                }
            }

            #[inline]
            fn encode(&self, writer: &mut xdr::Writer<'_>) {
                writer.u32(self.number());
            }
        }
    };
}

pub(crate) use {wire_enum, wire_fields};
