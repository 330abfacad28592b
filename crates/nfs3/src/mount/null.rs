//! NULL: does nothing; answered always. RFC 1813 s5.2.0

/// Void.
pub type Args = ();

/// Void.
pub type Reply = ();
