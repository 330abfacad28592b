//! `[[target]]`: an NVMe-oF target that is set up by other means.

use super::At;
use serde::Deserialize;

/// A target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    /// Its name, for comments.
    pub(crate) name: At<String>,
    /// The transport of its addresses.
    pub(crate) transport: Transport,
    /// The addresses at which it answers, each a path.
    pub(crate) addresses: At<Vec<At<String>>>,
    /// The port.
    #[serde(default = "nvme_port")]
    pub(crate) port: u16,
}

/// The port that IANA registered for NVMe over Fabrics.
pub(crate) const fn nvme_port() -> u16 {
    4420
}

/// A transport of NVMe-oF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    Rdma,
    Tcp,
}

impl Transport {
    /// The name that `nvme` and nvmet use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
        }
    }
}
