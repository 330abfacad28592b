//! GRANTED: the server tells a client that a request which waited has its lock. RFC 1813 s6.3.5

/// `nlm4_testargs`: the lock as it was asked for.
pub type Args<'a> = super::test::Args<'a>;

/// `nlm4_res`: whether the client still wants the lock.
pub type Reply<'a> = super::Reply<'a>;
