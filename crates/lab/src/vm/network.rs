//! The links of the guests: addresses, names, and the scripts that set them up in the guests.
//!
//! The addresses are the same as in `lab net`: link n is `n<n>`, its client end has 10.77.n.1 and
//! `fd77:n::1`, its server end 10.77.n.2 and `fd77:n::2`. The Soft-RoCE device on it is `rxe<n>`. A
//! single guest has both ends of link 1 on one device, because two Soft-RoCE devices of one guest
//! cannot reach each other.

use super::spec::{Guests, LINKS};
use std::ffi::OsString;

/// The end of a link that a guest has; this is the last part of its addresses.
pub(super) const CLIENT_END: u8 = 1;
/// The end of a link that the server has, see [`CLIENT_END`].
pub(super) const SERVER_END: u8 = 2;

/// A script for each of two guests: finds the devices by their hardware addresses, and sets their
/// names and addresses.
pub(super) fn joined(end: u8, rdma: bool) -> String {
    let mut script = String::from("set -e\nip link set lo up\nmodprobe virtio_net\n");
    for link in 1..=LINKS {
        script.push_str(&format!(
            "for at in /sys/class/net/*; do\n\
             if [ $(cat $at/address) = 52:54:00:77:{link:02x}:{end:02x} ]; then\n\
             ip link set $(basename $at) name n{link}\nfi\ndone\n\
             ip addr add 10.77.{link}.{end}/24 dev n{link}\n\
             ip addr add fd77:{link}::{end}/64 dev n{link} nodad\n\
             ip link set n{link} up\n"
        ));
    }
    script.push_str(&devices(LINKS, rdma));
    script
}

/// A script for a single guest: creates one device with the addresses of both ends.
pub(super) fn alone(rdma: bool) -> String {
    let mut script = String::from(
        "set -e\nip link set lo up\nmodprobe veth\n\
         ip link add n1 mtu 9000 type veth peer name n1-peer mtu 9000\n\
         ip addr add 10.77.1.1/24 dev n1\nip addr add 10.77.1.2/24 dev n1\n\
         ip addr add fd77:1::1/64 dev n1 nodad\nip addr add fd77:1::2/64 dev n1 nodad\n\
         ip link set n1 up\nip link set n1-peer up\n",
    );
    script.push_str(&devices(1, rdma));
    script
}

fn devices(links: u8, rdma: bool) -> String {
    if !rdma {
        return String::new();
    }
    let mut script = String::from("modprobe -a rdma_rxe rdma_ucm ib_uverbs\n");
    for link in 1..=links {
        script.push_str(&format!("rdma link add rxe{link} type rxe netdev n{link}\n"));
    }
    script
}

/// The variables of commands in a guest, the same as in `lab net`.
pub(super) fn variables(guests: Guests) -> Vec<(OsString, OsString)> {
    let links = if guests == Guests::Two { LINKS } else { 1 };
    let list =
        |form: &dyn Fn(u8) -> String, joint: &str| (1..=links).map(form).collect::<Vec<_>>().join(joint);
    let pairs = [
        ("TRUNKLINE_LAB_NODES", list(&|link| format!("10.77.{link}.{SERVER_END}"), ",")),
        ("TRUNKLINE_LAB_NODES_V6", list(&|link| format!("fd77:{link}::{SERVER_END}"), ",")),
        ("TRUNKLINE_LAB_CLIENT", list(&|link| format!("10.77.{link}.{CLIENT_END}"), ",")),
        ("TRUNKLINE_LAB_CLIENT_V6", list(&|link| format!("fd77:{link}::{CLIENT_END}"), ",")),
        ("TRUNKLINE_LAB_LISTEN", list(&|link| format!("--listen 10.77.{link}.{SERVER_END}:2049"), " ")),
    ];
    pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_of_two_guests_has_its_device_and_addresses() {
        let script = joined(CLIENT_END, true);
        for link in 1..=LINKS {
            assert!(script.contains(&format!("10.77.{link}.1/24 dev n{link}")), "{script}");
            assert!(script.contains(&format!("rxe{link} type rxe netdev n{link}")), "{script}");
        }
        assert!(!joined(SERVER_END, false).contains("rxe"));
    }

    #[test]
    fn commands_find_the_addresses() {
        let pairs = variables(Guests::Two);
        let nodes = pairs.iter().find(|(name, _)| name == "TRUNKLINE_LAB_NODES").expect("it is set");
        assert_eq!(nodes.1, "10.77.1.2,10.77.2.2,10.77.3.2,10.77.4.2");
    }
}
