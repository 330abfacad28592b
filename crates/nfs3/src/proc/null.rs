//! NULL: does nothing; always answered, to show that the server is up. RFC 1813 s3.3.0

/// Void.
pub type Args = ();

/// Void. NULL is the only procedure whose reply has no status.
pub type Reply = ();
