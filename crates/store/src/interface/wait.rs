//! Whether an operation may wait, and the answer of an operation that would have to.

use crate::dir::ReceiveBatch;

/// Whether an operation may wait for a device or a network.
#[derive(Debug, Clone, Copy)]
pub enum Wait<'a> {
    /// The operation may wait as long as the device needs.
    Allowed,
    /// The thread is a loop: an operation that would have to wait has no effect and says so by
    /// [`WouldBlock`].
    ///
    /// With a batch, the loop answers the calls of one receive and sends what it reads only by
    /// system calls, so that the store may return pages that only the kernel may access.
    Refused(Option<&'a ReceiveBatch>),
}

impl Wait<'_> {
    /// Whether the operation may wait.
    #[must_use]
    #[inline]
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed)
    }
}

/// The operation would have to wait, which [`Wait::Refused`] forbids. Nothing was done: a thread
/// that may wait has to do the whole operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WouldBlock;

/// The result of an operation, or [`WouldBlock`]. With [`Wait::Allowed`] it is always a result.
pub type Attempt<T> = std::result::Result<T, WouldBlock>;
