//! Which versions of NFS a server offers at its addresses, found without a mount: one NULL call per
//! address, transport and version.

use std::net::SocketAddr;

use rpc::reply::{Accept, Body};

use crate::caller::{self, Caller, Program};
use crate::error::MountError;
use crate::options::{Proto, Remote};
use crate::protocol::NFS;
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

/// Asks all addresses of the settings, over TCP and, where this machine can, over RDMA.
#[must_use]
pub fn offers(settings: &Settings) -> Vec<Offer> {
    let own = [Remote::from(settings.server)];
    let remotes = if settings.remotes.is_empty() { &own[..] } else { &settings.remotes };
    let mut seen = Vec::new();
    let mut offers = Vec::new();
    for remote in remotes {
        for proto in [Proto::Tcp, Proto::Rdma] {
            let is_meant = settings.proto_of(remote) == proto;
            if proto == Proto::Rdma && !is_meant && caller::require_rdma().is_err() {
                continue;
            }
            // A port that was given belongs to the transport that was asked for.
            let port = if is_meant { settings.address_of(remote).port() } else { proto.usual_port() };
            let address = remote.address.with_port(port);
            if seen.contains(&(address, proto)) {
                continue;
            }
            seen.push((address, proto));
            offers.extend(ask(settings, address, proto, is_meant));
        }
    }
    offers
}

/// Asks one address for each version; one connection failure is reported once.
fn ask(settings: &Settings, address: SocketAddr, proto: Proto, is_meant: bool) -> Vec<Offer> {
    let connect = || match proto {
        Proto::Tcp => Caller::connect(address, &AUTH_NONE, settings.reserved_port),
        Proto::Rdma => Caller::connect_rdma(settings.locals.first().copied(), address, &AUTH_NONE),
    };
    let mut offers = Vec::new();
    for version in VERSIONS {
        // A server may end the connection after a version that it does not know.
        let answer = connect().and_then(|mut caller| offered(&mut caller, version));
        let failed = matches!(
            answer,
            Err(MountError::Connect { .. } | MountError::Rdma { .. } | MountError::NoRdma { .. })
        );
        offers.push(Offer { address, proto, is_meant, version, answer });
        if failed {
            break;
        }
    }
    offers
}

fn offered(caller: &mut Caller, version: u32) -> Result<Offered, MountError> {
    let program = Program { number: NFS.number, version };
    match caller.reply(program, NULL, |_| {})?.0 {
        Body::Accepted(Accept::Success) => Ok(Offered::Served),
        Body::Accepted(Accept::ProgMismatch { low, high }) => Ok(Offered::Between { low, high }),
        Body::Accepted(Accept::ProgUnavail) => Ok(Offered::NotNfs),
        other => Err(caller.protocol(format!("{other:?}"))),
    }
}
