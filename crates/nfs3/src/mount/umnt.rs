//! UMNT: the caller has unmounted a path. RFC 1813 s5.2.3

/// The path, as for MNT.
pub type Args<'a> = super::mnt::Args<'a>;

/// Void.
pub type Reply = ();
