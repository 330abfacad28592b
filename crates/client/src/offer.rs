//! Which versions of NFS a server offers at its addresses, found without a mount: one NULL call per
//! address, transport and version, and for each minor version of NFSv4 an empty COMPOUND, which
//! changes no state.

use std::net::SocketAddr;

use rpc::reply::{Accept, Body};

use crate::bootstrap::at_mount;
use crate::caller::{self, Caller, Program};
use crate::error::MountError;
use crate::mount::credential;
use crate::options::{Proto, Remote};
use crate::protocol::{MOUNT_PROGRAM, NFS3, nfs4};
use crate::settings::Settings;

/// The versions that are asked for.
const VERSIONS: [u32; 2] = [3, 4];
/// The procedure that does nothing, in every version. RFC 1813 s3.3.0, RFC 8881 s16.1
const NULL: u32 = 0;
/// No credential and no verifier, which every server takes for NULL. RFC 5531 s10.1
const AUTH_NONE: [u8; 8] = [0; 8];

/// What a server answered for one version at one address.
#[derive(Debug)]
pub struct Offer {
    /// The address.
    pub address: SocketAddr,
    /// The transport.
    pub proto: Proto,
    /// The settings name this transport for the address.
    pub is_meant: bool,
    /// The version of NFS that was asked for.
    pub version: u32,
    /// The answer, or why there was none.
    pub answer: Result<Offered, MountError>,
    /// The minor versions of a version 4 that is served.
    pub minors: Vec<Minor>,
}

/// What a server answered for a minor version of NFSv4.
#[derive(Debug)]
pub struct Minor {
    /// The minor version: 1 of NFSv4.1.
    pub number: u32,
    /// Whether it is offered, or why there was no answer.
    pub answer: Result<bool, MountError>,
}

/// Whether a version is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It is.
    Served,
    /// Only these versions are. RFC 5531 s9 (PROG_MISMATCH)
    Between {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The port does not serve NFS at all.
    NotNfs,
}

/// Asks all addresses of the settings, over TCP and over RDMA. Where this machine has no RDMA, and
/// the settings do not name it, one offer for each address says so ([`MountError::NoRdma`]).
#[must_use]
pub fn offers(settings: &Settings) -> Vec<Offer> {
    let own = [Remote::from(settings.server)];
    let remotes = if settings.remotes.is_empty() { &own[..] } else { &settings.remotes };
    let mut seen = Vec::new();
    let mut offers = Vec::new();
    for remote in remotes {
        for proto in [Proto::Tcp, Proto::Rdma] {
            let is_meant = settings.proto_of(remote) == proto;
            // A port that was given belongs to the transport that was asked for.
            let port = if is_meant { settings.address_of(remote).port() } else { proto.usual_port() };
            let address = remote.address.with_port(port);
            if seen.contains(&(address, proto)) {
                continue;
            }
            seen.push((address, proto));
            match caller::require_rdma() {
                Err(error) if proto == Proto::Rdma && !is_meant => offers.push(unasked(address, error)),
                _ => offers.extend(ask(settings, address, proto, is_meant)),
            }
        }
    }
    offers
}

/// Where the MOUNT program of the server answers, over TCP: found as a mount finds it.
/// RFC 1813 s5.1
///
/// # Errors
/// Why it was not found, or gave no answer.
pub fn mount_service(settings: &Settings) -> Result<SocketAddr, MountError> {
    let remote = Remote::from(settings.server);
    let ask = |caller: &mut Caller| caller.call(MOUNT_PROGRAM, NULL, |_| {}).map(drop);
    Ok(at_mount(settings, &remote, &AUTH_NONE, ask)?.0.address())
}

/// An address that nobody asked over RDMA.
fn unasked(address: SocketAddr, error: MountError) -> Offer {
    let proto = Proto::Rdma;
    Offer { address, proto, is_meant: false, version: VERSIONS[0], answer: Err(error), minors: Vec::new() }
}

/// Asks one address for each version; one connection failure is reported once.
fn ask(settings: &Settings, address: SocketAddr, proto: Proto, is_meant: bool) -> Vec<Offer> {
    let connect = |credential: &[u8]| match proto {
        Proto::Tcp => {
            Caller::connect(settings.local_for(address.ip()), address, credential, settings.reserved_port)
        }
        Proto::Rdma => Caller::connect_rdma(settings.local_for(address.ip()), address, credential),
    };
    let mut offers = Vec::new();
    for version in VERSIONS {
        // A server may end the connection after a version that it does not know.
        let answer = connect(&AUTH_NONE).and_then(|mut caller| offered(&mut caller, version));
        let failed = matches!(
            answer,
            Err(MountError::Connect { .. } | MountError::Rdma { .. } | MountError::NoRdma { .. })
        );
        let mut minors = Vec::new();
        if version == 4 && matches!(answer, Ok(Offered::Served)) {
            // A server answers NULL to anybody; for COMPOUND it wants to know who asks.
            let credential = credential(settings, crate::random_u64());
            minors.extend(nfs4::MINOR_VERSIONS.map(|number| Minor {
                number,
                answer: connect(&credential).and_then(|mut caller| minor_offered(&mut caller, number)),
            }));
        }
        offers.push(Offer { address, proto, is_meant, version, answer, minors });
        if failed {
            break;
        }
    }
    offers
}

fn minor_offered(caller: &mut Caller, minor: u32) -> Result<bool, MountError> {
    let results =
        caller.call(nfs4::PROGRAM, nfs4::COMPOUND, |args| nfs4::encode_empty_compound(args, minor))?;
    nfs4::has_minor_version(&results).map_err(|error| caller.protocol(error.to_string()))
}

fn offered(caller: &mut Caller, version: u32) -> Result<Offered, MountError> {
    let program = Program { number: NFS3.number, version };
    match caller.reply(program, NULL, |_| {})?.0 {
        Body::Accepted(Accept::Success) => Ok(Offered::Served),
        Body::Accepted(Accept::ProgMismatch { low, high }) => Ok(Offered::Between { low, high }),
        Body::Accepted(Accept::ProgUnavail) => Ok(Offered::NotNfs),
        other => Err(caller.protocol(format!("{other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::JoinHandle;

    /// Answers one call on each of some connections: NULL of version 4, and COMPOUND of the minor
    /// version 1 only; others are refused by their status, or (`minor` 2) by the credential.
    fn serve(connections: usize) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            for _ in 0..connections {
                answer(listener.accept().unwrap().0);
            }
        });
        (address, thread)
    }

    fn answer(mut stream: TcpStream) {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).unwrap();
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call).unwrap();
        let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
        let (xid, version, procedure) = (word(0), word(16), word(20));
        let minor = word(call.len() - 8);
        // xid, REPLY, accepted, no verifier, success; then status, tag and results.
        let accepted = |rest: &[u32]| [&[xid, 1, 0, 0, 0, 0][..], rest].concat();
        let words = match (version, procedure, minor) {
            // PROG_MISMATCH, from 4 to 4
            (3, ..) => vec![xid, 1, 0, 0, 0, 2, 4, 4],
            (4, NULL, _) => accepted(&[]),
            (4, nfs4::COMPOUND, 0) => accepted(&[10_021, 0, 0]),
            (4, nfs4::COMPOUND, 1) => accepted(&[0, 0, 0]),
            // Denied: AUTH_ERROR, AUTH_TOOWEAK
            _ => vec![xid, 1, 1, 1, 5],
        };
        let mut reply = (0x8000_0000 | (words.len() * 4) as u32).to_be_bytes().to_vec();
        reply.extend(words.into_iter().flat_map(u32::to_be_bytes));
        stream.write_all(&reply).unwrap();
    }

    // RFC 8881 s15.1.3.1
    #[test]
    fn minor_versions_are_told_from_their_mismatch_and_from_a_refusal() {
        let (address, server) = serve(5);
        let mut settings = Settings::new(address.ip(), address.port(), "/export");
        settings.reserved_port = Some(false);
        let offers = ask(&settings, address, Proto::Tcp, true);
        server.join().unwrap();
        let answers: Vec<_> =
            offers.iter().map(|offer| (offer.version, *offer.answer.as_ref().unwrap())).collect();
        assert_eq!(answers, [(3, Offered::Between { low: 4, high: 4 }), (4, Offered::Served)]);
        assert!(offers[0].minors.is_empty());
        let [zero, one, two] = &offers[1].minors[..] else { panic!("{offers:?}") };
        assert_eq!((zero.number, *zero.answer.as_ref().unwrap()), (0, false));
        assert_eq!((one.number, *one.answer.as_ref().unwrap()), (1, true));
        assert!(matches!(&two.answer, Err(MountError::Protocol { .. })), "{two:?}");
    }

    /// A machine without RDMA has asked nobody over it, which is no answer of the server.
    #[test]
    fn every_transport_has_an_offer_whether_this_machine_can_use_it_or_not() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut settings = Settings::new(closed.ip(), closed.port(), "/export");
        settings.reserved_port = Some(false);
        let offers = offers(&settings);
        let [tcp, rdma] = &offers[..] else { panic!("{offers:?}") };
        assert!(matches!(tcp.answer, Err(MountError::Connect { .. })) && tcp.is_meant, "{tcp:?}");
        assert_eq!((rdma.proto, rdma.is_meant, rdma.address.port()), (Proto::Rdma, false, 20_049));
        let is_unasked = matches!(rdma.answer, Err(MountError::NoRdma { .. }));
        assert_eq!(is_unasked, caller::require_rdma().is_err(), "{rdma:?}");
    }
}
