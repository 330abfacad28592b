//! Who this host is, and who a disk of it is.
//!
//! The first thing that an attachment does is to end older controllers of its host identifier. So
//! each disk has its own, which is the same after a restart: it is made from the name of the host
//! and the path of the socket.

use nvme::{HostId, Nqn};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Where nvme-cli keeps the name of the host.
const HOSTNQN: &str = "/etc/nvme/hostnqn";

/// What is different on each host.
const MACHINE_ID: &str = "/etc/machine-id";

/// Why a host has no name: the file, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Nameless(String);

/// The name of this host: that in `/etc/nvme/hostnqn`, else one of `/etc/machine-id`.
///
/// # Errors
/// [`Nameless`] if neither is there, or the first is no name.
pub fn host() -> Result<Nqn, Nameless> {
    if let Ok(text) = std::fs::read_to_string(HOSTNQN) {
        return Nqn::new(text.trim()).map_err(|error| Nameless(format!("{HOSTNQN}: {error}")));
    }
    let machine = std::fs::read(MACHINE_ID).map_err(|error| Nameless(format!("{MACHINE_ID}: {error}")))?;
    Ok(Nqn::of_uuid(hash(&[b"host", &machine])))
}

/// The identifier of the host itself, for discovery.
#[must_use]
pub fn of_host(host: &Nqn) -> HostId {
    HostId(hash(&[b"discovery", host.as_str().as_bytes()]))
}

/// The identifier of a disk of the host.
#[must_use]
pub fn of_disk(host: &Nqn, socket: &Path) -> HostId {
    let machine = std::fs::read(MACHINE_ID).unwrap_or_default();
    HostId(hash(&[b"disk", host.as_str().as_bytes(), &machine, socket.as_os_str().as_bytes()]))
}

/// FNV-1a of 128 bits: the same for ever, which the standard library does not promise of its own.
fn hash(parts: &[&[u8]]) -> [u8; 16] {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in parts.iter().flat_map(|part| part.iter().copied().chain([0])) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    }
    hash.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_has_an_identifier_that_stays() {
        let host = Nqn::new("nqn.2026-11.test:host").unwrap();
        let of = |path: &str| of_disk(&host, Path::new(path));
        assert_eq!(of("/run/a.sock"), of("/run/a.sock"));
        assert_ne!(of("/run/a.sock"), of("/run/b.sock"));
        assert_ne!(of("/run/a.sock"), of_host(&host));
        // The known value of the empty text, continued by one zero byte for each part.
        assert_eq!(hash(&[]), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128.to_be_bytes());
    }
}
