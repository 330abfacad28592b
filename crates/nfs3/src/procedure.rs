//! The table of the 22 procedures of NFS version 3, RFC 1813 s3.3: number, name, class and effect.

use Class::{Metadata, Read, Write};
use Effect::{Changes, Nothing, Repeatable};

/// The load to which a procedure belongs: how its calls are counted, and which connections carry
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Small calls and replies.
    Metadata,
    /// READ: payload from the server.
    Read,
    /// WRITE and COMMIT: payload to the server, and what makes it stable.
    Write,
}

/// What the second execution of a call does; the reply cache depends on this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The call changes nothing except times of last access.
    Nothing,
    /// The call changes something. Repeated at once, it leaves the same state; repeated late, it
    /// undoes newer changes.
    Repeatable,
    /// The call changes something. Repeated, it fails or changes something else, so it must run
    /// only once.
    Changes,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// The procedure.
    pub procedure: Procedure,
    /// The name in RFC 1813.
    pub name: &'static str,
    /// The class of its load.
    pub class: Class,
    /// The effect of repeating a call.
    pub effect: Effect,
}

macro_rules! procedures {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $class:ident, $effect:ident;)+) => {
        /// A procedure of NFS version 3. RFC 1813 s3.3
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Procedure { $($(#[$doc])* $variant = $number,)+ }

        impl Procedure {
            /// All procedures; the index is the procedure's number.
            pub const ALL: [Self; 22] = [$(Self::$variant),+];

            /// The names in RFC 1813, by number.
            pub const NAMES: [&'static str; 22] = [$($name),+];

            /// The procedure's row of the table.
            #[must_use]
            pub const fn description(self) -> Description {
                match self {
                    $(Self::$variant => Description { procedure: self, name: $name, class: $class, effect: $effect },)+
                }
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
    /// Does nothing. RFC 1813 s3.3.0
    Null = 0, "NULL", Metadata, Nothing;
    /// Returns the attributes of an object. RFC 1813 s3.3.1
    GetAttr = 1, "GETATTR", Metadata, Nothing;
    /// Sets attributes. RFC 1813 s3.3.2
    SetAttr = 2, "SETATTR", Metadata, Repeatable;
    /// Finds the object of a name. RFC 1813 s3.3.3
    Lookup = 3, "LOOKUP", Metadata, Nothing;
    /// Returns what the caller may do. RFC 1813 s3.3.4
    Access = 4, "ACCESS", Metadata, Nothing;
    /// Returns the target of a symbolic link. RFC 1813 s3.3.5
    ReadLink = 5, "READLINK", Metadata, Nothing;
    /// Reads data of a file. RFC 1813 s3.3.6
    Read = 6, "READ", Read, Nothing;
    /// Writes data of a file. RFC 1813 s3.3.7
    Write = 7, "WRITE", Write, Repeatable;
    /// Creates a file. RFC 1813 s3.3.8
    Create = 8, "CREATE", Metadata, Changes;
    /// Creates a directory. RFC 1813 s3.3.9
    MkDir = 9, "MKDIR", Metadata, Changes;
    /// Creates a symbolic link. RFC 1813 s3.3.10
    SymLink = 10, "SYMLINK", Metadata, Changes;
    /// Creates a device, socket or named pipe. RFC 1813 s3.3.11
    MkNod = 11, "MKNOD", Metadata, Changes;
    /// Removes a name. RFC 1813 s3.3.12
    Remove = 12, "REMOVE", Metadata, Changes;
    /// Removes a directory. RFC 1813 s3.3.13
    RmDir = 13, "RMDIR", Metadata, Changes;
    /// Renames an object. RFC 1813 s3.3.14
    Rename = 14, "RENAME", Metadata, Changes;
    /// Creates a hard link. RFC 1813 s3.3.15
    Link = 15, "LINK", Metadata, Changes;
    /// Lists a directory. RFC 1813 s3.3.16
    ReadDir = 16, "READDIR", Metadata, Nothing;
    /// Lists a directory with attributes and handles. RFC 1813 s3.3.17
    ReadDirPlus = 17, "READDIRPLUS", Metadata, Nothing;
    /// Returns the space of a file system, total and free. RFC 1813 s3.3.18
    FsStat = 18, "FSSTAT", Metadata, Nothing;
    /// Returns what the server supports. RFC 1813 s3.3.19
    FsInfo = 19, "FSINFO", Metadata, Nothing;
    /// Returns the limits of names and links. RFC 1813 s3.3.20
    PathConf = 20, "PATHCONF", Metadata, Nothing;
    /// Makes written data stable. RFC 1813 s3.3.21
    Commit = 21, "COMMIT", Write, Nothing;
}

impl Procedure {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The name in RFC 1813.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.description().name
    }

    /// Whether a call changes something, so that executing it late or twice can do harm.
    #[must_use]
    pub const fn changes(self) -> bool {
        !matches!(self.description().effect, Nothing)
    }

    /// Whether a call must not run twice: repeated, it fails or changes something else.
    #[must_use]
    pub const fn runs_once(self) -> bool {
        matches!(self.description().effect, Changes)
    }

    /// The class of the procedure's load.
    #[must_use]
    pub const fn class(self) -> Class {
        self.description().class
    }
}

/// A number that is not a procedure's; the answer is PROC_UNAVAIL. RFC 5531 s9
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownProcedure(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_the_table_agree() {
        for (number, procedure) in (0..).zip(Procedure::ALL) {
            assert_eq!(procedure.number(), number);
            assert_eq!(Procedure::try_from(number), Ok(procedure));
        }
        assert_eq!(Procedure::try_from(22), Err(UnknownProcedure(22)));
    }

    #[test]
    fn ten_procedures_change_something_and_eight_of_them_must_run_once() {
        let changing: Vec<_> = Procedure::ALL.into_iter().filter(|procedure| procedure.changes()).collect();
        assert_eq!(changing.len(), 10);
        let once: Vec<_> =
            changing.iter().filter(|procedure| procedure.runs_once()).map(|one| one.name()).collect();
        assert_eq!(once, ["CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK"]);
    }
}
