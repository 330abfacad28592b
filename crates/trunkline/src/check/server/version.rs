//! The versions of NFS that a server offers at an address.

use super::{chain, proto_name};
use ::check::Finding;
use client::options::Proto;
use client::{MountError, Offer, Offered};
use std::net::SocketAddr;

const VERSION: &str = "server.version";

/// This program mounts version 3; other versions, and a transport that was not asked for, are told
/// and not judged.
pub(super) fn offered(offer: &Offer) -> Finding {
    let Offer { address, proto, is_meant, version, answer, .. } = offer;
    let name = format!("NFS version {version} over {} at {address}", proto_name(*proto));
    let is_needed = *is_meant && *version == 3;
    if let (false, Err(error @ MountError::NoRdma { .. })) = (*is_meant, answer) {
        let seen = format!("NFS over RDMA at {address}: not asked; {}", chain(error));
        let mend = "rdma link; ibv_devices    # an RDMA device on this host allows it";
        return Finding::unknown(VERSION, format!("NULL call to {address}"), seen, mend);
    }
    let (seen, why, mend) = match answer {
        Ok(Offered::Served) => {
            return Finding::ok(VERSION, format!("NULL call to {address}"), format!("{name}: offered"));
        }
        Ok(Offered::Between { low, high }) => (
            format!("not offered; versions {low} to {high} are"),
            "Trunkline mounts version 3",
            "switch NFSv3 on at the server".to_owned(),
        ),
        Ok(Offered::NotNfs) => (
            "not offered; another program answers".to_owned(),
            "the port does not serve NFS",
            format!("rpcinfo -p {}    # then: -o port=N", address.ip()),
        ),
        Err(error) => (
            format!("not offered; {}", chain(error)),
            "without an answer nothing can be mounted here",
            advice(*address, *proto),
        ),
    };
    let finding = Finding::ok(VERSION, format!("NULL call to {address}"), format!("{name}: {seen}"));
    if is_needed { finding.fail(why, mend) } else { finding }
}

fn advice(address: SocketAddr, proto: Proto) -> String {
    match proto {
        Proto::Tcp => format!(
            "is nfsd running there, and does a firewall pass port {}? ping {}; rpcinfo -p {}",
            address.port(),
            address.ip(),
            address.ip()
        ),
        Proto::Rdma => format!(
            "is NFS over RDMA enabled there (knfsd: echo rdma {} > /proc/fs/nfsd/portlist), and is an RDMA device \
             on the way? rdma link; ip route get {}",
            address.port(),
            address.ip()
        ),
    }
}

/// Which minor versions of version 4 are offered, if version 4 is. None of them is needed here.
pub(super) fn minors(offer: &Offer) -> Option<Finding> {
    const RULE: &str = "server.minor-versions";
    if offer.minors.is_empty() {
        return None;
    }
    let (mut offered, mut refused, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for minor in &offer.minors {
        let name = format!("4.{}", minor.number);
        match &minor.answer {
            Ok(true) => offered.push(name),
            Ok(false) => refused.push(name),
            Err(error) => unknown.push(format!("{name}: {}", chain(error))),
        }
    }
    let words = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let (address, proto) = (offer.address, proto_name(offer.proto));
    let mut seen = format!("NFS over {proto} at {address}: offered are {}", words(&offered));
    if !refused.is_empty() {
        seen.push_str(&format!("; not offered: {}", words(&refused)));
    }
    let source = format!("COMPOUND call to {address}");
    if unknown.is_empty() {
        return Some(Finding::ok(RULE, source, seen));
    }
    seen.push_str(&format!("; no answer for {}", words(&unknown)));
    let mend = "does an export of the server admit this host's address, and AUTH_SYS?";
    Some(Finding::unknown(RULE, source, seen, mend))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::check::Status;

    /// A host without RDMA knows nothing of what a server offers over it.
    #[test]
    fn what_nobody_could_ask_is_unknown_and_what_was_asked_for_fails() {
        let offer = |is_meant| Offer {
            address: "10.0.0.1:20049".parse().unwrap(),
            proto: Proto::Rdma,
            is_meant,
            version: 3,
            answer: Err(MountError::NoRdma { cause: verbs::Error::NoDevice.into() }),
            minors: Vec::new(),
        };
        let unasked = offered(&offer(false));
        assert_eq!((unasked.status, unasked.rule), (Status::Unknown, VERSION));
        assert!(unasked.seen.starts_with("NFS over RDMA at 10.0.0.1:20049: not asked; "), "{unasked:?}");
        let cause = verbs::Error::NoDevice.to_string();
        assert!(unasked.seen.contains(&cause) && !unasked.mend.is_empty(), "{unasked:?}");
        assert_eq!(offered(&offer(true)).status, Status::Fail);
    }
}
