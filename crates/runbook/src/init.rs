//! Site files to start from: commented, and valid as they stand.

use std::fmt;
use std::str::FromStr;

/// A system that a site file may describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// A NetApp EF600 and the hosts that use its volumes.
    Ef600,
    /// Linux hosts of an NVMe-oF target that exists.
    LinuxHost,
    /// Linux servers of files and volumes.
    LinuxServer,
    /// A PowerScale cluster and its clients.
    PowerScale,
    /// A Spectrum Scale cluster in SAN mode on an EF600.
    Scale,
}

impl System {
    /// Every system.
    pub const ALL: [Self; 5] =
        [Self::Ef600, Self::LinuxHost, Self::Scale, Self::PowerScale, Self::LinuxServer];

    /// The name of the system on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ef600 => "ef600",
            Self::LinuxHost => "linux-host",
            Self::LinuxServer => "linux-server",
            Self::PowerScale => "powerscale",
            Self::Scale => "scale",
        }
    }

    /// A commented site file for the system.
    #[must_use]
    pub const fn site_file(self) -> &'static str {
        match self {
            Self::Ef600 => include_str!("../../../docs/examples/site-ef600.toml"),
            Self::LinuxHost => include_str!("../../../docs/examples/site-linux-host.toml"),
            Self::LinuxServer => include_str!("../../../docs/examples/site-linux-server.toml"),
            Self::PowerScale => include_str!("../../../docs/examples/site-powerscale.toml"),
            Self::Scale => include_str!("../../../docs/examples/site-scale.toml"),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|system| system.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
            format!("a system is one of {}", names.join(", "))
        })
    }
}
