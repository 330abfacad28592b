//! UMNTALL: the caller has unmounted everything. RFC 1813 s5.2.4

/// Void.
pub type Args = ();

/// Void.
pub type Reply = ();
