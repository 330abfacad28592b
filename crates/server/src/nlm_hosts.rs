//! The hosts that lock by NLM: their names in the state of clients, and calls to the lock manager
//! and the status monitor of each ([`CallBacks`]).
//!
//! A host is known by its address, by the address of this server that it uses, and by the name that
//! it gives itself. Without the first, anybody could end the locks of others by their name. With
//! the second, an owner that a client numbers separately for each of the server's addresses, as
//! Linux does, is not taken for another; and calls to the host come from the address that it knows.
//!
//! A client of ours goes on at another address when a path dies. It has a name that nobody can
//! guess, is known by that alone, and is never called: it finds out by itself what it wants to
//! know, and renews a lease ([`is_ours`](NlmHost::is_ours)).

mod call_backs;
mod remote;

pub(crate) use call_backs::{CallBacks, Grant};

use std::net::{IpAddr, Ipv4Addr};

/// A host. Its encoded form is its name in the state of clients, and in stable storage.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NlmHost {
    pub client: IpAddr,
    /// The address of this server.
    pub server: IpAddr,
    /// `caller_name`
    pub name: Vec<u8>,
}

const V4: u8 = 4;
const V6: u8 = 6;
/// The most bytes of a name that logs show.
const LOGGED_BYTES_MAX: usize = 80;

impl NlmHost {
    pub fn new(client: IpAddr, server: IpAddr, name: &[u8]) -> Self {
        let name = name.to_vec();
        if drc::is_machine_name(&name) {
            let nowhere = Ipv4Addr::UNSPECIFIED.into();
            return Self { client: nowhere, server: nowhere, name };
        }
        Self { client: client.to_canonical(), server: server.to_canonical(), name }
    }

    /// Whether it is a client of ours.
    pub fn is_ours(&self) -> bool {
        self.client.is_unspecified()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * 17 + self.name.len());
        for address in [self.client, self.server] {
            match address {
                IpAddr::V4(address) => {
                    out.push(V4);
                    out.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    out.push(V6);
                    out.extend(address.octets());
                }
            }
        }
        out.extend_from_slice(&self.name);
        out
    }

    /// `None` for what [`encode`](Self::encode) has not written.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (client, rest) = take_address(bytes)?;
        let (server, name) = take_address(rest)?;
        Some(Self { client, server, name: name.to_vec() })
    }

    /// Whether a host at this address that calls itself `name` is this one, whatever address of the
    /// server it uses. Status monitors tend to give the name with its domain, or the address.
    pub fn is_called(&self, client: IpAddr, name: &[u8]) -> bool {
        let label =
            |name: &[u8]| name.split(|byte| *byte == b'.').next().unwrap_or_default().to_ascii_lowercase();
        if self.is_ours() {
            return name == self.name;
        }
        let address = std::str::from_utf8(name).ok().and_then(|text| text.parse::<IpAddr>().ok());
        self.client == client.to_canonical()
            && match address {
                Some(address) => address.to_canonical() == self.client,
                None => label(name) == label(&self.name),
            }
    }
}

impl std::fmt::Display for NlmHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.get(..LOGGED_BYTES_MAX).unwrap_or(&self.name);
        write!(f, "{} at {}", name.escape_ascii(), self.client)
    }
}

fn take_address(bytes: &[u8]) -> Option<(IpAddr, &[u8])> {
    match bytes.split_first()? {
        (&V4, rest) => rest.split_first_chunk::<4>().map(|(octets, rest)| (IpAddr::from(*octets), rest)),
        (&V6, rest) => rest.split_first_chunk::<16>().map(|(octets, rest)| (IpAddr::from(*octets), rest)),
        _ => None,
    }
}

/// The owner of a lock: `svid` and `oh`, as one string for the state.
pub(crate) fn encode_owner(svid: i32, owner: &[u8]) -> Vec<u8> {
    [&svid.to_be_bytes()[..], owner].concat()
}

/// What [`encode_owner`] has encoded; no process for others.
pub(crate) fn decode_owner(bytes: &[u8]) -> (i32, &[u8]) {
    match bytes.split_first_chunk::<4>() {
        Some((svid, owner)) => (i32::from_be_bytes(*svid), owner),
        None => (0, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(client: &str, name: &str) -> NlmHost {
        NlmHost::new(client.parse().unwrap(), "10.0.0.9".parse().unwrap(), name.as_bytes())
    }

    #[test]
    fn a_host_is_read_as_it_was_written_and_hosts_are_told_apart() {
        let mut seen = std::collections::HashSet::new();
        for (client, name) in
            [("10.0.0.1", "alpha"), ("10.0.0.1", ""), ("fd00::1", "alpha"), ("10.0.0.2", "alpha")]
        {
            let host = host(client, name);
            let encoded = host.encode();
            assert_eq!(NlmHost::decode(&encoded), Some(host));
            assert!(seen.insert(encoded));
        }
        assert_eq!(host("::ffff:10.0.0.1", "a"), host("10.0.0.1", "a"));
        for damaged in [&b""[..], b"\x04\x0a\0\0", b"\x05aaaa\x04aaaa", b"\x04aaaa\x06aaaa"] {
            assert_eq!(NlmHost::decode(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn a_host_is_called_by_its_name_with_or_without_domain_or_by_its_address() {
        let alpha = host("10.0.0.1", "alpha");
        let here = "10.0.0.1".parse().unwrap();
        for name in ["alpha", "Alpha.example.org", "10.0.0.1"] {
            assert!(alpha.is_called(here, name.as_bytes()), "{name}");
        }
        for name in ["alphabet", "10.0.0.2", "", "example.alpha"] {
            assert!(!alpha.is_called(here, name.as_bytes()), "{name}");
        }
        assert!(!alpha.is_called("10.0.0.2".parse().unwrap(), b"alpha"), "another host of that name");
    }

    #[test]
    fn a_client_of_ours_is_known_by_its_name_alone() {
        let name = drc::machine_name(7);
        let name = std::str::from_utf8(&name).unwrap();
        let ours = host("10.0.0.1", name);
        assert!(ours.is_ours() && !host("10.0.0.1", "alpha").is_ours());
        assert_eq!(ours, host("fd00::1", name), "it goes on at another address");
        assert_eq!(NlmHost::decode(&ours.encode()), Some(ours.clone()));
        let anywhere = "10.0.0.2".parse().unwrap();
        assert!(ours.is_called(anywhere, name.as_bytes()));
        assert!(!ours.is_called(anywhere, b"0.0.0.0") && !ours.is_called(anywhere, b"trunkline"));
    }

    #[test]
    fn owners_of_nlm_are_process_and_name() {
        assert_eq!(decode_owner(&encode_owner(-7, b"7@alpha")), (-7, &b"7@alpha"[..]));
        assert_eq!(decode_owner(b"abc"), (0, &b"abc"[..]));
    }
}
