//! The versions of NFS that a server offers at an address.

use super::{chain, proto_name};
use ::check::Finding;
use client::options::{Proto, Version};
use client::{MountError, Offer, Offered};
use std::net::SocketAddr;

const VERSION: &str = "server.version";

/// The version that is to be mounted is needed; other versions, and a transport that was not asked
/// for, are told and not judged.
pub(super) fn offered(offer: &Offer, mounted: Version) -> Finding {
    let Offer { address, proto, is_meant, version, answer, .. } = offer;
    let name = format!("NFS version {version} over {} at {address}", proto_name(*proto));
    let wanted = match mounted {
        Version::V3 => 3,
        Version::V4(_) => 4,
    };
    let is_needed = *is_meant && *version == wanted;
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
            "this version is to be mounted",
            format!("switch NFSv{wanted} on at the server, or mount another version: -o vers=N"),
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

/// Which minor versions of version 4 are offered, if version 4 is. A mount says itself which one it
/// lacks.
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
    use client::Minor;

    /// RFC 8881 s15.1.3.1: a server refuses a minor version that it does not have.
    #[test]
    fn minor_versions_are_told_apart_as_offered_refused_and_unknown() {
        let offer = |minors| Offer {
            address: "10.0.0.1:2049".parse().unwrap(),
            proto: Proto::Tcp,
            is_meant: true,
            version: 4,
            answer: Err(MountError::NoRdma { cause: verbs::Error::NoDevice.into() }),
            minors,
        };
        let minor = |number, answer| Minor { number, answer };
        let told = minors(&offer(vec![minor(0, Ok(false)), minor(1, Ok(true)), minor(2, Ok(true))])).unwrap();
        assert_eq!((told.rule, told.status), ("server.minor-versions", Status::Ok));
        assert_eq!(told.seen, "NFS over TCP at 10.0.0.1:2049: offered are 4.1, 4.2; not offered: 4.0");
        let none = minors(&offer(vec![minor(1, Ok(false))])).unwrap();
        assert_eq!(none.seen, "NFS over TCP at 10.0.0.1:2049: offered are none; not offered: 4.1");
        let silent = MountError::NoRdma { cause: verbs::Error::NoDevice.into() };
        let unknown = minors(&offer(vec![minor(1, Ok(true)), minor(2, Err(silent))])).unwrap();
        assert_eq!(unknown.status, Status::Unknown);
        assert!(unknown.seen.contains("offered are 4.1; no answer for 4.2: "), "{unknown:?}");
        assert!(unknown.mend.contains("AUTH_SYS"), "{unknown:?}");
        assert!(minors(&offer(Vec::new())).is_none(), "version 4 is not offered");
    }

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
        let unasked = offered(&offer(false), Version::V3);
        assert_eq!((unasked.status, unasked.rule), (Status::Unknown, VERSION));
        assert!(unasked.seen.starts_with("NFS over RDMA at 10.0.0.1:20049: not asked; "), "{unasked:?}");
        let cause = verbs::Error::NoDevice.to_string();
        assert!(unasked.seen.contains(&cause) && !unasked.mend.is_empty(), "{unasked:?}");
        assert_eq!(offered(&offer(true), Version::V3).status, Status::Fail);
        let other = offered(&offer(true), Version::V4(None));
        assert_eq!(other.status, Status::Ok, "version 3 is not what is to be mounted");
    }
}
