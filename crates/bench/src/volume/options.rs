//! A volume as text: where it is, and the options of a route to it. Their names are those of
//! `trunkline block attach`.

use std::fmt;
use std::path::PathBuf;

use initiator::{Address, Nqn, Transport};

/// The form of a volume of a target, for messages.
pub(crate) const FORM: &str =
    "nvme-tcp://ADDR:PORT/NQN?OPTIONS, or nvme-rdma://ADDR:PORT/NQN?OPTIONS over RDMA";
/// The starts of such a text.
const SCHEMES: [(&str, Transport); 2] = [("nvme-tcp://", Transport::Tcp), ("nvme-rdma://", Transport::Rdma)];
/// The start of a text for a volume of an embedded target.
pub(crate) const EMBEDDED: &str = "volume:";

/// The addresses of an embedded target, each a path.
pub(crate) const EMBEDDED_ADDRESSES: u8 = 4;
const PATHS_MAX: u8 = 16;
const QUEUES_MAX: u16 = 32;

/// Where a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeTarget {
    /// Memory of a target in this process, on loopback.
    Embedded,
    /// A target.
    At {
        /// The address of the first path.
        address: Address,
        /// The subsystem.
        subsystem: Nqn,
    },
}

impl fmt::Display for VolumeTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => out.write_str("embedded NVMe over Fabrics target, volume in memory"),
            Self::At { address: Address { socket, transport }, subsystem } => {
                write!(out, "nvme-{}://{socket}/{subsystem}", transport.name())
            }
        }
    }
}

impl VolumeTarget {
    /// Reads `nvme-tcp://ADDR:PORT/NQN` or the same over RDMA; `None` if it is neither.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, String>> {
        let stripped = |(scheme, transport): &(&str, _)| Some((text.strip_prefix(scheme)?, *transport));
        let (place, transport) = SCHEMES.iter().find_map(stripped)?;
        Some(Self::at(place, transport))
    }

    fn at(place: &str, transport: Transport) -> Result<Self, String> {
        let (address, name) = place.split_once('/').ok_or("there is no name of a subsystem behind it")?;
        let socket =
            address.parse().map_err(|_| format!("{address} is no ADDR:PORT, as 10.0.0.1:4420 is one"))?;
        let address = Address { socket, transport };
        let subsystem = Nqn::new(name).map_err(|error| format!("{name}: {error}"))?;
        if subsystem.is_discovery() {
            return Err("the discovery service has no volumes".to_owned());
        }
        Ok(Self::At { address, subsystem })
    }
}

/// How a route reaches its volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeOptions {
    /// The addresses of further paths.
    pub(crate) connect: Vec<Address>,
    /// The number of addresses of an embedded target that are used.
    pub(crate) paths: u8,
    /// The number of the namespace; `None` for the first one.
    pub(crate) namespace: Option<u32>,
    /// The I/O queues on each path.
    pub(crate) queues: u16,
    /// The name of this host; `None` for its usual one.
    pub(crate) host: Option<Nqn>,
    /// The file with the secret of this host, if the target asks for it.
    pub(crate) secret_file: Option<PathBuf>,
    /// The file with the secret that the target must prove to have.
    pub(crate) controller_secret_file: Option<PathBuf>,
    /// Whether headers and data are checked by digests.
    pub(crate) digests: bool,
    /// Whether an embedded target is reached over RDMA.
    pub(crate) rdma: bool,
    /// Whether what is on the volume may be overwritten.
    pub(crate) overwrite: bool,
}

impl VolumeOptions {
    /// Reads the options of a route, separated by commas.
    ///
    /// # Errors
    /// The first option that is wrong or that the target does not have.
    pub(crate) fn parse(text: &str, target: &VolumeTarget) -> Result<Self, String> {
        let mut options = Self {
            connect: Vec::new(),
            paths: 1,
            namespace: None,
            queues: 2,
            host: None,
            secret_file: None,
            controller_secret_file: None,
            digests: false,
            rdma: false,
            overwrite: *target == VolumeTarget::Embedded,
        };
        for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            options.set(option, target)?;
        }
        if options.controller_secret_file.is_some() && options.secret_file.is_none() {
            return Err("controller-secret-file: only with secret-file=FILE".to_owned());
        }
        if options.digests && !options.uses_tcp(target) {
            return Err("digests: only over TCP; RDMA devices check what they carry".to_owned());
        }
        Ok(options)
    }

    /// Whether a path is over TCP.
    fn uses_tcp(&self, target: &VolumeTarget) -> bool {
        match target {
            VolumeTarget::Embedded => !self.rdma,
            VolumeTarget::At { address, .. } => {
                [address].into_iter().chain(&self.connect).any(|path| path.transport == Transport::Tcp)
            }
        }
    }

    /// How an embedded target is reached.
    pub(crate) const fn transport(&self) -> Transport {
        if self.rdma { Transport::Rdma } else { Transport::Tcp }
    }

    fn set(&mut self, option: &str, target: &VolumeTarget) -> Result<(), String> {
        let is_embedded = *target == VolumeTarget::Embedded;
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let wrong = |form: &str| format!("{option}: {form}");
        match (name, value) {
            ("queues", Some(value)) => self.queues = number(value, QUEUES_MAX).ok_or(wrong("1 to 32"))?,
            ("digests", None) => self.digests = true,
            ("rdma", None) if is_embedded => self.rdma = true,
            ("paths", Some(value)) if is_embedded => {
                self.paths = number(value, PATHS_MAX.into())
                    .and_then(|paths| u8::try_from(paths).ok())
                    .ok_or(wrong("1 to 16"))?;
            }
            ("connect", Some(value)) if !is_embedded => {
                self.connect.push(further(value, target).ok_or(wrong("ADDR:PORT, tcp: or rdma: before it"))?);
            }
            ("namespace", Some(value)) if !is_embedded => {
                let number = value.parse().ok().filter(|number| *number > 0);
                self.namespace = Some(number.ok_or(wrong("a number from 1 on"))?);
            }
            ("hostnqn", Some(value)) if !is_embedded => {
                self.host = Some(Nqn::new(value).map_err(|error| wrong(&error.to_string()))?);
            }
            ("secret-file", Some(file)) if !is_embedded => self.secret_file = Some(file.into()),
            ("controller-secret-file", Some(file)) if !is_embedded => {
                self.controller_secret_file = Some(file.into());
            }
            ("overwrite", None) if !is_embedded => self.overwrite = true,
            _ => {
                let known = match is_embedded {
                    true => "paths=N, queues=N, digests and rdma",
                    false => {
                        "connect=ADDR:PORT, namespace=N, queues=N, hostnqn=NQN, secret-file=FILE, \
                         controller-secret-file=FILE, digests, and overwrite, which destroys what is on the \
                         volume"
                    }
                };
                return Err(format!("{option} is no option of a volume there; it has {known}"));
            }
        }
        Ok(())
    }

    /// The connections for commands of a route with these options.
    pub(crate) fn connections(&self, target: &VolumeTarget) -> u32 {
        let paths = match target {
            VolumeTarget::Embedded => usize::from(self.paths),
            VolumeTarget::At { .. } => 1 + self.connect.len(),
        };
        u32::try_from(paths).unwrap_or(u32::MAX).saturating_mul(self.queues.into())
    }
}

/// The address of a further path: over the transport of the first one unless it says otherwise.
fn further(text: &str, target: &VolumeTarget) -> Option<Address> {
    match (target, text.parse()) {
        (VolumeTarget::At { address, .. }, Ok(socket)) => Some(Address { socket, ..*address }),
        _ => text.parse().ok(),
    }
}

/// A number from 1 on.
fn number(text: &str, most: u16) -> Option<u16> {
    text.parse().ok().filter(|number| (1..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> VolumeTarget {
        VolumeTarget::parse(text).unwrap().unwrap()
    }

    #[test]
    fn a_volume_of_a_target_is_named_as_block_attach_names_it() {
        let target = at("nvme-tcp://10.0.0.1:4420/nqn.2026-11.org.example:store");
        assert_eq!(target.to_string(), "nvme-tcp://10.0.0.1:4420/nqn.2026-11.org.example:store");
        let text = "connect=10.0.1.1:4420,connect=[fd00::1]:4420,namespace=3,queues=4,digests";
        let options = VolumeOptions::parse(text, &target).unwrap();
        assert_eq!((options.connect.len(), options.namespace, options.queues), (2, Some(3), 4));
        assert!(options.digests && !options.overwrite, "{options:?}");
        assert_eq!(options.connections(&target), 12);
        for wrong in ["10.0.0.1:4420", "store:4420/nqn.2026-11.org.example:store", "10.0.0.1:4420/store"] {
            let wrong = format!("nvme-rdma://{wrong}");
            assert!(VolumeTarget::parse(&wrong).unwrap().is_err(), "{wrong}");
        }
        assert_eq!(VolumeTarget::parse("10.0.0.1:4420/nqn.2026-11.org.example:store"), None);
        let discovery = VolumeTarget::parse("nvme-tcp://10.0.0.1:4420/nqn.2014-08.org.nvmexpress.discovery");
        let discovery = discovery.unwrap();
        assert_eq!(discovery, Err("the discovery service has no volumes".to_owned()));
    }

    #[test]
    fn further_paths_have_the_transport_of_the_first_one_unless_they_say_otherwise() {
        let target = at("nvme-rdma://10.0.0.1:4420/nqn.2026-11.org.example:store");
        assert_eq!(target.to_string(), "nvme-rdma://10.0.0.1:4420/nqn.2026-11.org.example:store");
        let text = "connect=10.0.1.1:4420,connect=tcp:10.0.2.1:4420,connect=rdma:[fd00::1]:4420";
        let options = VolumeOptions::parse(text, &target).unwrap();
        let read: Vec<String> = options.connect.iter().map(ToString::to_string).collect();
        assert_eq!(read, ["rdma:10.0.1.1:4420", "10.0.2.1:4420", "rdma:[fd00::1]:4420"]);
        assert!(VolumeOptions::parse("digests,connect=tcp:10.0.2.1:4420", &target).is_ok());
        let error = VolumeOptions::parse("digests,connect=10.0.2.1:4420", &target).unwrap_err();
        assert!(error.contains("only over TCP"), "{error}");
    }

    #[test]
    fn what_is_on_a_volume_is_overwritten_only_where_the_route_says_so() {
        let target = at("nvme-tcp://10.0.0.1:4420/nqn.2026-11.org.example:store");
        assert!(!VolumeOptions::parse("", &target).unwrap().overwrite);
        assert!(VolumeOptions::parse("queues=1,overwrite", &target).unwrap().overwrite);
        assert!(VolumeOptions::parse("", &VolumeTarget::Embedded).unwrap().overwrite);
    }

    #[test]
    fn options_that_are_none_are_refused_with_those_there_are() {
        let target = at("nvme-tcp://10.0.0.1:4420/nqn.2026-11.org.example:store");
        let of_target =
            ["paths=2", "queues=0", "namespace=0", "overwrite=yes", "nconnect=8", "connect=x", "secret-file"];
        for wrong in of_target {
            let error = VolumeOptions::parse(wrong, &target).unwrap_err();
            assert!(error.starts_with(wrong), "{error}");
        }
        let alone = VolumeOptions::parse("controller-secret-file=/k", &target).unwrap_err();
        assert!(alone.contains("only with secret-file=FILE"), "{alone}");
        for wrong in [
            "paths=0",
            "paths=17",
            "secret-file=/k",
            "connect=10.0.0.1:1",
            "overwrite",
            "namespace=1",
            "rdma,digests",
        ] {
            assert!(VolumeOptions::parse(wrong, &VolumeTarget::Embedded).is_err(), "{wrong}");
        }
        assert!(VolumeOptions::parse("rdma", &target).is_err());
        let options = VolumeOptions::parse("paths=4,queues=2,rdma", &VolumeTarget::Embedded).unwrap();
        assert_eq!(options.transport(), Transport::Rdma);
        assert_eq!(options.connections(&VolumeTarget::Embedded), 8);
    }
}
