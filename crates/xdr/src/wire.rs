//! What the protocol crates have in common: the trait of their messages with its implementations
//! for the basic types, and macros that implement it.
//!
//! Each protocol has a trait of its own, because the types of a file system look different in each:
//! the seconds of a time are 32 bits without a sign in NFSv3 and 64 bits with one in NFSv4. So what
//! is shared are macros, which define it in the crate that uses them. There `crate` names that
//! crate, and `$crate` this one.

/// Defines the trait `Wire`, and implements it for void, integers, booleans and fixed-length opaque
/// data. To be used once, in a module that the crate's root exports as `crate::Wire`.
#[macro_export]
macro_rules! wire_trait {
    () => {
        /// The encoding of a message or of a part of one. `'a` is the lifetime of the bytes that
        /// the value borrows.
        pub trait Wire<'a>: Sized {
            /// Decodes a value and leaves `reader` after its last byte.
            ///
            /// # Errors
            /// Missing bytes, a length above its bound, or a value outside its enumeration.
            fn decode(reader: &mut $crate::Reader<'a>) -> $crate::Result<Self>;

            /// Appends the encoded value.
            fn encode(&self, writer: &mut $crate::Writer<'_>);
        }

        /// Void. RFC 4506 s4.16
        impl<'a> Wire<'a> for () {
            fn decode(_: &mut $crate::Reader<'a>) -> $crate::Result<Self> {
                Ok(())
            }

            fn encode(&self, _: &mut $crate::Writer<'_>) {}
        }

        impl<'a> Wire<'a> for u32 {
            #[inline]
            fn decode(reader: &mut $crate::Reader<'a>) -> $crate::Result<Self> {
                reader.u32()
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::Writer<'_>) {
                writer.u32(*self);
            }
        }

        impl<'a> Wire<'a> for u64 {
            #[inline]
            fn decode(reader: &mut $crate::Reader<'a>) -> $crate::Result<Self> {
                reader.u64()
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::Writer<'_>) {
                writer.u64(*self);
            }
        }

        impl<'a> Wire<'a> for bool {
            #[inline]
            fn decode(reader: &mut $crate::Reader<'a>) -> $crate::Result<Self> {
                reader.bool()
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::Writer<'_>) {
                writer.bool(*self);
            }
        }

        /// Fixed-length opaque data, such as verifiers.
        impl<'a, const N: usize> Wire<'a> for [u8; N] {
            #[inline]
            fn decode(reader: &mut $crate::Reader<'a>) -> $crate::Result<Self> {
                reader.opaque_fixed()
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::Writer<'_>) {
                writer.opaque_fixed(self);
            }
        }
    };
}

/// Implements `crate::Wire` for a struct that is encoded as its fields, in the order given here.
#[macro_export]
#[allow(clippy::crate_in_macro_def)]
macro_rules! wire_fields {
    ($name:ident $(<$life:lifetime>)? { $($field:ident),* $(,)? }) => {
        impl<'a> crate::Wire<'a> for $name $(<$life>)? {
            #[inline]
            #[allow(unused_variables)]
            fn decode(reader: &mut $crate::Reader<'a>) -> $crate::Result<Self> {
                // A struct expression evaluates its fields in the order in which they are written.
                Ok(Self { $($field: crate::Wire::decode(reader)?),* })
            }

            #[inline]
            #[allow(unused_variables)]
            fn encode(&self, writer: &mut $crate::Writer<'_>) {
                let Self { $($field),* } = self;
                $(crate::Wire::encode($field, writer);)*
            }
        }
    };
}

/// Implements `crate::Wire` for an enumeration of unit variants. Other values are refused.
#[macro_export]
#[allow(clippy::crate_in_macro_def)]
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

        impl<'a> crate::Wire<'a> for $name {
            #[inline]
            fn decode(reader: &mut $crate::Reader<'a>) -> $crate::Result<Self> {
                match reader.u32()? {
                    $($value => Ok(Self::$variant),)+
                    value => Err($crate::Error::BadDiscriminant { name: stringify!($name), value }),
                }
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::Writer<'_>) {
                writer.u32(self.number());
            }
        }
    };
}
