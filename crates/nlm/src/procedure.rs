//! The table of the procedures of NLM version 4. RFC 1813 s6.3

use Form::{Call, Message, Outcome};

/// How the two sides of a procedure talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// A call that is answered by its reply.
    Call,
    /// A call without results, which is answered by a call of the other side (`_MSG`).
    Message,
    /// That call: the results are its arguments (`_RES`).
    Outcome,
}

macro_rules! procedures {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $form:ident;)+) => {
        /// A procedure of NLM version 4. RFC 1813 s6.3
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Procedure { $($(#[$doc])* $variant = $number,)+ }

        impl Procedure {
            /// All procedures, by number. The numbers 17 to 19 have none.
            pub const ALL: [Self; 20] = [$(Self::$variant),+];

            /// The name, without its prefix.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// How the two sides talk.
            #[must_use]
            pub const fn form(self) -> Form {
                match self {
                    $(Self::$variant => $form),+
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
    Null = 0, "NULL", Call;
    /// Asks whether a lock would be granted.
    Test = 1, "TEST", Call;
    /// Locks a range.
    Lock = 2, "LOCK", Call;
    /// Ends a request that waits.
    Cancel = 3, "CANCEL", Call;
    /// Unlocks a range.
    Unlock = 4, "UNLOCK", Call;
    /// From the server: a request that waited has its lock.
    Granted = 5, "GRANTED", Call;
    /// TEST as a message.
    TestMsg = 6, "TEST_MSG", Message;
    /// LOCK as a message.
    LockMsg = 7, "LOCK_MSG", Message;
    /// CANCEL as a message.
    CancelMsg = 8, "CANCEL_MSG", Message;
    /// UNLOCK as a message.
    UnlockMsg = 9, "UNLOCK_MSG", Message;
    /// GRANTED as a message.
    GrantedMsg = 10, "GRANTED_MSG", Message;
    /// The result of TEST_MSG.
    TestRes = 11, "TEST_RES", Outcome;
    /// The result of LOCK_MSG.
    LockRes = 12, "LOCK_RES", Outcome;
    /// The result of CANCEL_MSG.
    CancelRes = 13, "CANCEL_RES", Outcome;
    /// The result of UNLOCK_MSG.
    UnlockRes = 14, "UNLOCK_RES", Outcome;
    /// The result of GRANTED_MSG.
    GrantedRes = 15, "GRANTED_RES", Outcome;
    /// Reserves a file by access and denial.
    Share = 20, "SHARE", Call;
    /// Ends a reservation.
    Unshare = 21, "UNSHARE", Call;
    /// Locks for a host that is not monitored.
    NmLock = 22, "NM_LOCK", Call;
    /// Frees all that a host has.
    FreeAll = 23, "FREE_ALL", Call;
}

impl Procedure {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The procedure by which a message is answered; `None` for others.
    #[must_use]
    pub const fn outcome(self) -> Option<Self> {
        match self {
            Self::TestMsg => Some(Self::TestRes),
            Self::LockMsg => Some(Self::LockRes),
            Self::CancelMsg => Some(Self::CancelRes),
            Self::UnlockMsg => Some(Self::UnlockRes),
            Self::GrantedMsg => Some(Self::GrantedRes),
            _ => None,
        }
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
        for (number, procedure) in (0..=15).chain(20..=23).zip(Procedure::ALL) {
            assert_eq!(procedure.number(), number);
            assert_eq!(Procedure::try_from(number), Ok(procedure));
        }
        for number in [16, 17, 19, 24] {
            assert_eq!(Procedure::try_from(number), Err(UnknownProcedure(number)));
        }
    }

    #[test]
    fn each_message_is_answered_by_a_result_of_its_name() {
        for procedure in Procedure::ALL {
            let answer = procedure.outcome();
            assert_eq!(answer.is_some(), procedure.form() == Form::Message, "{procedure:?}");
            if let Some(answer) = answer {
                assert_eq!(answer.form(), Form::Outcome);
                assert_eq!(procedure.name().replace("_MSG", "_RES"), answer.name());
            }
        }
    }
}
