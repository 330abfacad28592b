//! The one trait of all messages and their parts, and its implementations for the basic types.

use xdr::{Reader, Result, Writer};

/// A message or a part of one: how it stands on the wire. `'a` is the life of the bytes it borrows
/// from.
pub trait Wire<'a>: Sized {
    /// Reads it and leaves `reader` behind its last byte.
    ///
    /// # Errors
    /// Those of [`Reader`]: bytes missing, a length above its bound, a value outside its
    /// enumeration.
    fn decode(reader: &mut Reader<'a>) -> Result<Self>;

    /// Appends it.
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

/// Fixed-length opaque data: the verifiers.
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

/// What NFS spells as a union over a boolean: `post_op_attr`, `pre_op_attr`, `post_op_fh3`,
/// `set_mode3` ...
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

/// Implements [`Wire`] for a struct that stands on the wire as its fields, in the order given here.
macro_rules! wire_fields {
    ($name:ident $(<$life:lifetime>)? { $($field:ident),+ $(,)? }) => {
        impl<'a> $crate::Wire<'a> for $name $(<$life>)? {
            #[inline]
            fn decode(reader: &mut xdr::Reader<'a>) -> xdr::Result<Self> {
                // The fields of a struct expression are evaluated in the order in which they are
                // written.
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

/// Implements [`Wire`] for an enumeration of unit variants; values that it does not name are
/// refused.
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
