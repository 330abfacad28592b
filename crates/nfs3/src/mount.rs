//! MOUNT version 3, RFC 1813 s5: finds the handle of an export's root by its path. One file per
//! procedure.

pub mod dump;
pub mod export;
pub mod mnt;
pub mod null;
pub mod umnt;
pub mod umntall;

pub use crate::procedure::UnknownProcedure;

/// The program number of MOUNT. RFC 1813 s5.1.2
pub const PROGRAM: u32 = 100_005;
/// The version of MOUNT that goes with NFS version 3. RFC 1813 s5.1.2
pub const VERSION: u32 = 3;
/// The longest path of an export, in bytes. RFC 1813 s5.1.4 (MNTPATHLEN)
pub const PATH_BYTES_MAX: u32 = 1024;
/// The longest name of a client, in bytes. RFC 1813 s5.1.4 (MNTNAMLEN)
pub const NAME_BYTES_MAX: u32 = 255;

macro_rules! procedures {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)+) => {
        /// A procedure of MOUNT version 3. None of them changes what is exported. RFC 1813 s5.2
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Procedure { $($(#[$doc])* $variant = $number,)+ }

        impl Procedure {
            /// All procedures; the index is the procedure's number.
            pub const ALL: [Self; 6] = [$(Self::$variant),+];

            /// The name in RFC 1813.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }
        }

        impl TryFrom<u32> for Procedure {
            type Error = UnknownProcedure;

            fn try_from(number: u32) -> Result<Self, UnknownProcedure> {
                match number {
                    $($number => Ok(Self::$variant),)+
                    other => Err(UnknownProcedure(other)),
                }
            }
        }
    };
}

procedures! {
    /// Does nothing. RFC 1813 s5.2.0
    Null = 0, "NULL";
    /// Returns the handle of an export's root. RFC 1813 s5.2.1
    Mnt = 1, "MNT";
    /// Lists which client has mounted which path. RFC 1813 s5.2.2
    Dump = 2, "DUMP";
    /// The caller has unmounted a path. RFC 1813 s5.2.3
    Umnt = 3, "UMNT";
    /// The caller has unmounted everything. RFC 1813 s5.2.4
    UmntAll = 4, "UMNTALL";
    /// Lists the exports and the clients that may mount them. RFC 1813 s5.2.5
    Export = 5, "EXPORT";
}
