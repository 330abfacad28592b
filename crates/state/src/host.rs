//! What the state needs from the process that it runs in.

/// Bits of an [`Owner`].
pub const OWNER_BITS: u32 = 30;

/// A process, by a number that no other process of the same arena ever has. 0 is nobody.
///
/// Only the lower [`OWNER_BITS`] count: for example a place among the processes and a generation
/// that each start increments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(u32);

impl Owner {
    /// A process; `None` for 0 and for numbers that are too wide.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 || number >> OWNER_BITS != 0 { None } else { Some(Self(number)) }
    }

    /// The number of the process.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The process that uses an arena, and what it knows of the others.
pub trait Host {
    /// This process.
    fn me(&self) -> Owner;

    /// Whether a process is or may be running. Once this returns false, nothing that the process
    /// began may take effect any more, and it must never return true again.
    fn is_alive(&self, owner: Owner) -> bool;

    /// Lets others run for a moment, because one of them holds the lock; `round` counts from 0.
    /// Returns false to give up: the operation then fails with [`Error::Busy`](crate::Error::Busy).
    fn pause(&self, round: u32) -> bool;
}

/// A process that shares its arena with no other process.
#[derive(Debug, Clone, Copy, Default)]
pub struct SingleProcess;

impl Host for SingleProcess {
    fn me(&self) -> Owner {
        Owner(1)
    }

    fn is_alive(&self, _owner: Owner) -> bool {
        true
    }

    fn pause(&self, _round: u32) -> bool {
        std::thread::yield_now();
        true
    }
}
