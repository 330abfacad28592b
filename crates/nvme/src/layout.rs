//! Structures of fixed size with little-endian fields at fixed offsets, which is what all of NVMe
//! consists of. One table of a structure gives its reading and its writing, so that they cannot
//! disagree; the compiler checks that fields neither overlap nor leave the structure.
//!
//! Reading cannot fail but for too few bytes: unknown values survive as numbers, and reserved bytes
//! are ignored, as the specification asks ("Numerical Descriptions", "reserved").

use std::fmt;

/// Fewer bytes than a structure has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{got} bytes where {needed} are needed")]
pub struct Short {
    /// The bytes that were needed.
    pub needed: usize,
    /// The bytes that were there.
    pub got: usize,
}

impl Short {
    /// The first `needed` bytes.
    pub(crate) fn check(bytes: &[u8], needed: usize) -> Result<&[u8], Self> {
        bytes.get(..needed).ok_or(Self { needed, got: bytes.len() })
    }
}

/// A value of fixed size.
pub trait Field: Copy {
    /// Its length in bytes.
    const BYTES: usize;
    /// The value of which all bytes are zero.
    const ZERO: Self;

    /// Reads a value from exactly [`Field::BYTES`] bytes.
    fn load(bytes: &[u8]) -> Self;

    /// Writes the value to exactly [`Field::BYTES`] bytes.
    fn store(&self, bytes: &mut [u8]);
}

macro_rules! integers {
    ($($type:ty)+) => {
        $(impl Field for $type {
            const BYTES: usize = size_of::<$type>();
            const ZERO: Self = 0;

            #[inline]
            fn load(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(0, <$type>::from_le_bytes)
            }

            #[inline]
            fn store(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        })+
    };
}

integers!(u8 u16 u32 u64 u128);

impl<T: Field, const N: usize> Field for [T; N] {
    const BYTES: usize = T::BYTES * N;
    const ZERO: Self = [T::ZERO; N];

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        std::array::from_fn(|at| load(bytes, at * T::BYTES))
    }

    #[inline]
    fn store(&self, bytes: &mut [u8]) {
        for (at, item) in self.iter().enumerate() {
            store(item, bytes, at * T::BYTES);
        }
    }
}

/// Reads the field at this offset. The tables guarantee that it is inside.
#[inline]
pub(crate) fn load<T: Field>(bytes: &[u8], at: usize) -> T {
    bytes.get(at..at + T::BYTES).map_or(T::ZERO, T::load)
}

/// Writes the field at this offset. The tables guarantee that it is inside.
#[inline]
pub(crate) fn store<T: Field>(value: &T, bytes: &mut [u8], at: usize) {
    if let Some(place) = bytes.get_mut(at..at + T::BYTES) {
        value.store(place);
    }
}

/// Copies text into a field of fixed size, filled up with `fill`; what is too long is cut.
pub(crate) fn text<const N: usize>(text: &str, fill: u8) -> [u8; N] {
    let mut bytes = [fill; N];
    for (place, byte) in bytes.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    bytes
}

/// Shows bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
}

/// Declares a structure by the table of its fields: `name: type = offset`.
macro_rules! layout {
    ($(#[$doc:meta])* pub struct $name:ident[$bytes:expr] {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $at:expr,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        #[allow(dead_code, reason = "private structures are read as parts of others")]
        impl $name {
            /// The length of the structure in bytes.
            pub const BYTES: usize = $bytes;

            /// Reads the structure from the front of the bytes.
            ///
            /// # Errors
            /// [`Short`](crate::Short) if there are fewer than [`Self::BYTES`].
            #[inline]
            pub fn decode(bytes: &[u8]) -> Result<Self, crate::Short> {
                let bytes = crate::Short::check(bytes, Self::BYTES)?;
                Ok(<Self as crate::layout::Field>::load(bytes))
            }

            /// Writes the structure; reserved bytes are zero.
            #[inline]
            #[must_use]
            pub fn encode(&self) -> [u8; $bytes] {
                let mut bytes = [0; $bytes];
                crate::layout::Field::store(self, &mut bytes);
                bytes
            }
        }

        impl crate::layout::Field for $name {
            const BYTES: usize = $bytes;
            const ZERO: Self = Self { $($field: <$type as crate::layout::Field>::ZERO,)+ };

            #[inline]
            fn load(bytes: &[u8]) -> Self {
                Self { $($field: crate::layout::load(bytes, $at),)+ }
            }

            #[inline]
            fn store(&self, bytes: &mut [u8]) {
                $(crate::layout::store(&self.$field, bytes, $at);)+
            }
        }

        /// All zero.
        impl Default for $name {
            fn default() -> Self {
                <Self as crate::layout::Field>::ZERO
            }
        }

        const _: () = {
            let end = 0;
            $(
                assert!($at >= end, "fields overlap");
                let end = $at + <$type as crate::layout::Field>::BYTES;
            )+
            assert!(end <= $bytes, "a field leaves the structure");
        };
    };
}

/// Declares a number whose known values have names; others survive.
macro_rules! numbers {
    ($(#[$doc:meta])* pub struct $name:ident($type:ty) {
        $($(#[$value_doc:meta])* $value:ident = $number:expr,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $type);

        impl $name {
            $($(#[$value_doc])* pub const $value: Self = Self($number);)+

            /// The name of a known value.
            #[must_use]
            #[allow(unreachable_patterns, reason = "a number may have two names")]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$value => Some(stringify!($value)),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => formatter.write_str(name),
                    None => write!(formatter, "{}({:#x})", stringify!($name), self.0),
                }
            }
        }

        crate::layout::transparent!($name, $type);
    };
}

/// Declares a set of bits whose known members have names; others survive.
macro_rules! flags {
    ($(#[$doc:meta])* pub struct $name:ident($type:ty) {
        $($(#[$value_doc:meta])* $value:ident = $number:expr,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name(pub $type);

        impl $name {
            /// No bit.
            pub const NONE: Self = Self(0);
            $($(#[$value_doc])* pub const $value: Self = Self($number);)+

            /// Whether all of these bits are set.
            #[must_use]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These bits and those.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        crate::layout::transparent!($name, $type);
    };
}

/// A type whose field is its only part.
macro_rules! transparent {
    ($name:ident, $type:ty) => {
        impl crate::layout::Field for $name {
            const BYTES: usize = size_of::<$type>();
            const ZERO: Self = Self(<$type as crate::layout::Field>::ZERO);

            #[inline]
            fn load(bytes: &[u8]) -> Self {
                Self(crate::layout::Field::load(bytes))
            }

            #[inline]
            fn store(&self, bytes: &mut [u8]) {
                crate::layout::Field::store(&self.0, bytes);
            }
        }
    };
}

pub(crate) use {flags, layout, numbers, transparent};

#[cfg(test)]
mod tests {
    use super::*;

    layout! {
        /// For the tests.
        pub struct Sample[12] {
            /// A byte.
            small: u8 = 1,
            /// An array.
            pair: [u16; 2] = 2,
            /// A word.
            word: u32 = 8,
        }
    }

    #[test]
    fn fields_are_little_endian_and_reserved_bytes_are_ignored_and_written_as_zero() {
        let bytes = [0xff, 7, 1, 0, 2, 0, 0xff, 0xff, 0x78, 0x56, 0x34, 0x12, 99];
        let sample = Sample::decode(&bytes).expect("long enough");
        assert_eq!(sample, Sample { small: 7, pair: [1, 2], word: 0x1234_5678 });
        assert_eq!(sample.encode(), [0, 7, 1, 0, 2, 0, 0, 0, 0x78, 0x56, 0x34, 0x12]);
        assert_eq!(Sample::default().encode(), [0; 12]);
    }

    #[test]
    fn too_few_bytes_are_told() {
        assert_eq!(Sample::decode(&[0; 11]), Err(Short { needed: 12, got: 11 }));
    }

    #[test]
    fn text_is_filled_and_cut() {
        assert_eq!(text::<4>("ab", b' '), *b"ab  ");
        assert_eq!(text::<2>("abc", 0), *b"ab");
    }
}
