//! NULL: does nothing; answered always, to show that the server is there. RFC 1813 s3.3.0

/// Void.
pub type Args = ();

/// Void; NULL is the one procedure whose reply has no status.
pub type Reply = ();
