//! The Network Status Monitor version 1: tells hosts that others have restarted, so that what those
//! had locked is freed or reclaimed. XNFS s11
//!
//! Its messages have no cookie and no status of NLM. A *state number* grows with each start of a
//! host: it is odd while the host is up.

pub mod monitor;
pub mod notify;
pub mod stat;

use crate::UnknownProcedure;
use crate::wire::wire_fields;

/// The program number of NSM. XNFS s11 (SM_PROG)
pub const PROGRAM: u32 = 100_024;
/// Its only version. XNFS s11 (SM_VERS)
pub const VERSION: u32 = 1;

macro_rules! procedures {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)+) => {
        /// A procedure of NSM. XNFS s11
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Procedure { $($(#[$doc])* $variant = $number,)+ }

        impl Procedure {
            /// All procedures; the index is the procedure's number.
            pub const ALL: [Self; 7] = [$(Self::$variant),+];

            /// The name, without its prefix.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
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
    /// Does nothing.
    Null = 0, "NULL";
    /// Asks whether a host would be monitored.
    Stat = 1, "STAT";
    /// Asks to monitor a host.
    Mon = 2, "MON";
    /// Ends that.
    Unmon = 3, "UNMON";
    /// Ends that for all hosts.
    UnmonAll = 4, "UNMON_ALL";
    /// Counts as a restart of this host.
    SimuCrash = 5, "SIMU_CRASH";
    /// From another host: it has restarted.
    Notify = 6, "NOTIFY";
}

impl Procedure {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// `sm_stat`: the state number of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The number.
    pub state: i32,
}

wire_fields!(State { state });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_the_table_agree() {
        for (number, procedure) in (0..).zip(Procedure::ALL) {
            assert_eq!(procedure.number(), number);
            assert_eq!(Procedure::try_from(number), Ok(procedure));
        }
        assert_eq!(Procedure::try_from(7), Err(UnknownProcedure(7)));
    }
}
