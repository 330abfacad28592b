//! Where programs listen: the port mapper (version 2) and rpcbind (versions 3 and 4). RFC 1833
//!
//! [`answer`] is the server's side without a socket: it takes a call's header and arguments, and
//! appends the reply. It answers from a list that its owner provides and accepts no registrations:
//! SET and UNSET are refused, and calls are not forwarded (CALLIT), which has only ever served
//! attackers. [`encode_mapping`] and [`encode_binding`] encode the arguments with which a program
//! registers with another port mapper (version 2) or rpcbind (versions 3 and 4).
//!
//! Invariants: an answer is bounded by the list of entries; no state is kept.

use crate::call::CallHeader;
use crate::reply::{Accept, encode_accept, encode_success};
use std::net::{IpAddr, SocketAddr};
use xdr::{Reader, Writer};

/// Program number. RFC 1833 s2
pub const PROGRAM: u32 = 100_000;
/// The port of the port mapper. RFC 1833 s3
pub const PORT: u16 = 111;
/// The version of the port mapper. RFC 1833 s3
pub const VERSION_PORTMAP: u32 = 2;
/// The newest version of rpcbind. RFC 1833 s2
pub const VERSION_MAX: u32 = 4;
/// SET: registers a program's version. RFC 1833 s2.2.1, s3.2
pub const SET: u32 = 1;
/// UNSET: version 2 removes all mappings of a program's version, versions 3 and 4 that of one
/// transport. RFC 1833 s2.2.1, s3.2
pub const UNSET: u32 = 2;

/// GETPORT in version 2, GETADDR in versions 3 and 4: where a program listens. RFC 1833 s2.2.1,
/// s3.2
pub const GET: u32 = 3;

const NULL: u32 = 0;
const DUMP: u32 = 4;
const GETVERSADDR: u32 = 9;
const GETADDRLIST: u32 = 11;

// RFC 1833 s3.1 (IPPROTO_TCP, IPPROTO_UDP)
const TCP: u32 = 6;
const UDP: u32 = 17;
/// Netids, addresses and owners are short; the RFC gives no bound.
const STRING_BYTES_MAX: u32 = 256;
/// The owner of each entry in a reply. RFC 1833 s2.1
const OWNER: &[u8] = b"superuser";

/// The transport of a program's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// A stream.
    Tcp,
    /// Datagrams.
    Udp,
    /// RPC over RDMA. RFC 5665 s5.1.1
    Rdma,
}

/// One version of a program, and where it listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The transport.
    pub protocol: Protocol,
    /// The address. A wildcard stands for the address at which the caller reached this host.
    pub address: SocketAddr,
}

impl Protocol {
    /// The number of the protocol in version 2, which has numbers for protocols over IP only.
    const fn number(self) -> Option<u32> {
        match self {
            Self::Tcp => Some(TCP),
            Self::Udp => Some(UDP),
            Self::Rdma => None,
        }
    }

    /// The name of the transport, over IPv4 or IPv6. RFC 5665 s5.1.1
    #[must_use]
    pub const fn netid(self, is_ipv4: bool) -> &'static str {
        match (self, is_ipv4) {
            (Self::Tcp, true) => "tcp",
            (Self::Tcp, false) => "tcp6",
            (Self::Udp, true) => "udp",
            (Self::Udp, false) => "udp6",
            (Self::Rdma, true) => "rdma",
            (Self::Rdma, false) => "rdma6",
        }
    }

    /// `r_nc_proto` and `r_nc_semantics`, which are TPI's kinds of service: 1 is datagrams, 3 a
    /// stream with an orderly end. RFC 1833 s2.1 (rpcb_entry)
    const fn description(self) -> (&'static str, u32) {
        match self {
            Self::Tcp => ("tcp", 3),
            Self::Udp => ("udp", 1),
            Self::Rdma => ("rdma", 3),
        }
    }
}

impl Entry {
    /// The name of the transport. RFC 5665 s5.1.1
    #[must_use]
    pub const fn netid(&self) -> &'static str {
        self.protocol.netid(self.address.is_ipv4())
    }

    /// Whether a caller that reached this host at `local` can reach the entry.
    fn is_at(&self, local: IpAddr) -> bool {
        let own = self.address.ip();
        own == local || own.is_unspecified() && own.is_ipv4() == local.is_ipv4()
    }

    /// The universal address, for a caller that reached this host at `local`. RFC 5665 s5.2.3
    fn universal_address(&self, local: IpAddr) -> String {
        let own = self.address.ip();
        let ip = if own.is_unspecified() && own.is_ipv4() == local.is_ipv4() { local } else { own };
        universal(ip, self.address.port())
    }

    /// The mapping of version 2; `None` over IPv6 or RDMA.
    fn mapping(&self) -> Option<[u32; 4]> {
        let number = self.protocol.number().filter(|_| self.address.is_ipv4())?;
        Some([self.program, self.version, number, u32::from(self.address.port())])
    }
}

/// A universal address: the address as text, and the bytes of the port as decimal numbers. RFC 5665
/// s5.2.3
#[must_use]
pub fn universal(ip: IpAddr, port: u16) -> String {
    let [high, low] = port.to_be_bytes();
    format!("{ip}.{high}.{low}")
}

/// How a call was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Via {
    /// The transport.
    pub protocol: Protocol,
    /// The local address that received the call.
    pub local: IpAddr,
}

/// Answers a call of [`PROGRAM`]: appends the whole reply to `out`. `reader` is at the arguments.
pub fn answer(
    header: &CallHeader<'_>,
    mut reader: Reader<'_>,
    via: Via,
    entries: &[Entry],
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let local = via.local.to_canonical();
    let answer = Answer { local, entries, writer: Writer::new(out) };
    if let Err(refused) = answer.call(header, &mut reader, via.protocol) {
        out.truncate(start);
        encode_accept(&mut Writer::new(out), header.xid, refused);
    }
}

struct Answer<'a> {
    local: IpAddr,
    entries: &'a [Entry],
    writer: Writer<'a>,
}

impl Answer<'_> {
    fn call(
        mut self,
        header: &CallHeader<'_>,
        reader: &mut Reader<'_>,
        protocol: Protocol,
    ) -> Result<(), Accept> {
        if !(VERSION_PORTMAP..=VERSION_MAX).contains(&header.version) {
            return Err(Accept::ProgMismatch { low: VERSION_PORTMAP, high: VERSION_MAX });
        }
        encode_success(&mut self.writer, header.xid);
        match (header.version, header.procedure) {
            (_, NULL) => return Ok(()),
            (VERSION_PORTMAP, GET) => {
                let mapping = Mapping::decode(reader)?;
                // The mapping has no address, so the address family is the caller's.
                let is_v4 = self.local.is_ipv4();
                let port = self.find(mapping.program, mapping.version, |entry| {
                    entry.protocol.number() == Some(mapping.protocol) && entry.address.is_ipv4() == is_v4
                });
                self.writer.u32(port.map_or(0, |entry| u32::from(entry.address.port())));
            }
            (VERSION_PORTMAP, SET | UNSET) => {
                Mapping::decode(reader)?;
                self.writer.bool(false);
            }
            (VERSION_PORTMAP, DUMP) => self.dump_mappings(),
            (3 | 4, SET | UNSET) => {
                Binding::decode(reader)?;
                self.writer.bool(false);
            }
            (3 | 4, DUMP) => self.dump_bindings(),
            (3 | 4, GET) | (4, GETVERSADDR) => {
                let binding = Binding::decode(reader)?;
                let exact = header.procedure == GETVERSADDR;
                self.address_of(&binding, exact, protocol);
            }
            (4, GETADDRLIST) => {
                let binding = Binding::decode(reader)?;
                self.addresses_of(&binding);
            }
            _ => return Err(Accept::ProcUnavail),
        }
        reader.finish().map_err(|_| Accept::GarbageArgs)
    }

    /// The entry of this version, or of another version of the program: the program itself then
    /// reports its supported versions. An entry at the address that the caller reached comes first.
    fn find(&self, program: u32, version: u32, wanted: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        let of_program = self.entries.iter().filter(|entry| entry.program == program && wanted(entry));
        of_program.min_by_key(|entry| (entry.version != version, !entry.is_at(self.local)))
    }

    fn dump_mappings(&mut self) {
        for mapping in self.entries.iter().filter_map(Entry::mapping) {
            self.writer.bool(true);
            mapping.iter().for_each(|word| self.writer.u32(*word));
        }
        self.writer.bool(false);
    }

    fn dump_bindings(&mut self) {
        for entry in self.entries {
            self.writer.bool(true);
            self.writer.u32(entry.program);
            self.writer.u32(entry.version);
            self.writer.opaque(entry.netid().as_bytes());
            self.writer.opaque(entry.universal_address(self.local).as_bytes());
            self.writer.opaque(OWNER);
        }
        self.writer.bool(false);
    }

    /// GETADDR and GETVERSADDR: the universal address, empty if there is none. RFC 1833 s2.2.1
    fn address_of(&mut self, binding: &Binding<'_>, exact: bool, protocol: Protocol) {
        let is_v4 = self.local.is_ipv4();
        let fits = |entry: &Entry| match binding.netid {
            b"" => entry.protocol == protocol && entry.address.is_ipv4() == is_v4,
            netid => entry.netid().as_bytes() == netid,
        };
        let found = self.find(binding.program, binding.version, fits);
        let found = found.filter(|entry| !exact || entry.version == binding.version);
        let text = found.map(|entry| entry.universal_address(self.local)).unwrap_or_default();
        self.writer.opaque(text.as_bytes());
    }

    /// GETADDRLIST: all transports of a program's version. RFC 1833 s2.2.1 (rpcb_entry)
    fn addresses_of(&mut self, binding: &Binding<'_>) {
        let wanted = |entry: &&Entry| entry.program == binding.program && entry.version == binding.version;
        for entry in self.entries.iter().filter(wanted) {
            let family: &[u8] = if entry.address.is_ipv4() { b"inet" } else { b"inet6" };
            let (protocol, semantics) = entry.protocol.description();
            self.writer.bool(true);
            self.writer.opaque(entry.universal_address(self.local).as_bytes());
            self.writer.opaque(entry.netid().as_bytes());
            self.writer.u32(semantics);
            self.writer.opaque(family);
            self.writer.opaque(protocol.as_bytes());
        }
        self.writer.bool(false);
    }
}

/// `mapping` of version 2. RFC 1833 s3.1
struct Mapping {
    program: u32,
    version: u32,
    protocol: u32,
}

impl Mapping {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Accept> {
        let mut word = || reader.u32().map_err(|_| Accept::GarbageArgs);
        let mapping = Self { program: word()?, version: word()?, protocol: word()? };
        // The port, which only SET uses.
        word()?;
        Ok(mapping)
    }
}

/// `rpcb` of versions 3 and 4. RFC 1833 s2.1
struct Binding<'a> {
    program: u32,
    version: u32,
    netid: &'a [u8],
}

impl<'a> Binding<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Accept> {
        let garbage = |_| Accept::GarbageArgs;
        let (program, version) = (reader.u32().map_err(garbage)?, reader.u32().map_err(garbage)?);
        let netid = reader.opaque(STRING_BYTES_MAX).map_err(garbage)?;
        // The address and the owner, which only SET uses.
        reader.opaque(STRING_BYTES_MAX).map_err(garbage)?;
        reader.opaque(STRING_BYTES_MAX).map_err(garbage)?;
        Ok(Self { program, version, netid })
    }
}

/// Encodes the arguments of version 2's SET and UNSET for an entry. Returns false if there are
/// none: version 2 supports neither IPv6 nor RDMA.
pub fn encode_mapping(writer: &mut Writer<'_>, entry: &Entry) -> bool {
    let mapping = entry.mapping();
    mapping.iter().flatten().for_each(|word| writer.u32(*word));
    mapping.is_some()
}

/// Encodes the arguments of SET and UNSET of versions 3 and 4 for an entry. The owner is left
/// empty: rpcbind determines the owner by itself. RFC 1833 s2.1
pub fn encode_binding(writer: &mut Writer<'_>, entry: &Entry) {
    writer.u32(entry.program);
    writer.u32(entry.version);
    writer.opaque(entry.netid().as_bytes());
    writer.opaque(universal(entry.address.ip(), entry.address.port()).as_bytes());
    writer.opaque(b"");
}

#[cfg(test)]
mod tests;
