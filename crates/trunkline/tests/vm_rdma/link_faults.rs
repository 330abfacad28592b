//! Faults of the links between the guests: packets that a guest does not receive, and a carrier
//! that is lost.

use crate::pair::{TIMEOUT, pair, sh};
use lab::vm::Guest;
use testkit::Deadline;

/// The opcodes of the middle and the last packet of an operation on a reliable connection.
/// InfiniBand Architecture Specification, volume 1, the field OpCode of the base transport header.
pub const WRITE_MIDDLE_AND_LAST: [u8; 2] = [7, 8];
pub const READ_MIDDLE_AND_LAST: [u8; 2] = [14, 15];

/// The second of two links.
pub const LINK: u8 = 2;

/// A filter for packets that a guest receives, until dropped.
pub struct Filter(&'static Guest);

impl Filter {
    /// Drops packets that match.
    pub fn on(guest: &'static Guest, matches: &[String]) -> Self {
        let rule = |what| format!("nft add rule inet trouble input {what} counter drop\n");
        let rules: String = matches.iter().map(rule).collect();
        let this = Self(guest);
        sh(
            guest,
            &format!(
                "nft add table inet trouble
                 nft add chain inet trouble input '{{ type filter hook input priority 0 ; }}'
                 {rules}"
            ),
        );
        this
    }

    /// Drops RDMA packets with these opcodes, so that an operation begins and never ends.
    pub fn on_operations(guest: &'static Guest, operations: [u8; 2]) -> Self {
        // RoCE version 2 is UDP to this port; the opcode is the first byte after the UDP header.
        Self::on(guest, &operations.map(|operation| format!("udp dport 4791 @th,64,8 {operation}")))
    }

    /// Drops those that come by [`LINK`].
    pub fn on_operations_by_the_link(guest: &'static Guest, operations: [u8; 2]) -> Self {
        let rule = |operation| format!("iifname n{LINK} udp dport 4791 @th,64,8 {operation}");
        Self::on(guest, &operations.map(rule))
    }

    /// Drops everything that comes by [`LINK`].
    pub fn on_the_link(guest: &'static Guest) -> Self {
        Self::on(guest, &[format!("iifname n{LINK}")])
    }

    /// Waits until the filter has dropped a packet.
    #[track_caller]
    pub fn wait_until_met(&self) {
        Deadline::wait_until("a packet that the filter drops", TIMEOUT, || {
            let listed = sh(self.0, "nft list table inet trouble");
            let counts = listed.split("counter packets ").skip(1);
            let met = counts.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum::<u64>();
            (met > 0).then_some(())
        });
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // An error here must not fail the next case; that case would fail by itself.
        let _ = self.0.sh("nft delete table inet trouble");
    }
}

/// Guests without the carrier of a link, until dropped.
pub struct Pulled([&'static Guest; 2]);

impl Pulled {
    #[track_caller]
    pub fn out() -> Self {
        let guests = [pair().client(), pair().server()];
        for guest in guests {
            guest.set_link(LINK, false).expect("the guest has the link");
            let carrier = sh(guest, &format!("cat /sys/class/net/n{LINK}/carrier"));
            assert_eq!(carrier.trim(), "0", "the guest {} sees that the carrier is lost", guest.name());
        }
        Self(guests)
    }
}

impl Drop for Pulled {
    fn drop(&mut self) {
        for guest in self.0 {
            // A guest that is gone fails the test by itself.
            let _ = guest.set_link(LINK, true);
        }
    }
}
