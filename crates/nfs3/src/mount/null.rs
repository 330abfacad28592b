//! NULL: does nothing; always answered. RFC 1813 s5.2.0

/// Void.
pub type Args = ();

/// Void.
pub type Reply = ();
