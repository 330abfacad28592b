//! What can go wrong with RDMA, split by whose fault it is.

use std::io;

/// Why something could not be done over RDMA.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library is not installed, or lacks something.
    #[error(
        "RDMA needs {library}: {said}; try: apt-get install libibverbs1 librdmacm1 ibverbs-providers rdma-core"
    )]
    Missing {
        /// Its file.
        library: &'static str,
        /// What the loader said.
        said: String,
    },
    /// The kernel has no RDMA devices, or the user may not use them.
    #[error("no RDMA device is here")]
    NoDevice,
    /// No device of ours reaches an address.
    #[error("no RDMA device reaches {0}")]
    NoRoute(std::net::SocketAddr),
    /// Memory could not be registered: the system bounds what may be locked.
    #[error("cannot register {bytes} bytes of memory: {source}; try: ulimit -l unlimited")]
    Register {
        /// How much.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The other end does not want us.
    #[error("the connection was refused (reason {0})")]
    Refused(i32),
    /// The caller asked for something that makes no sense.
    #[error("{0}")]
    Misuse(&'static str),
    /// The system said no.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// What was tried, and `errno`.
    pub(crate) fn last(what: &'static str) -> Self {
        Self::Io { what, source: io::Error::last_os_error() }
    }

    /// What was tried, and an error number that a call returned itself.
    pub(crate) fn number(what: &'static str, number: i32) -> Self {
        Self::Io { what, source: io::Error::from_raw_os_error(number) }
    }
}
