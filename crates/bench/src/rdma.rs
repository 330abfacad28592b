//! RDMA on this machine: the addresses at which a group can be reached, and the counters of the
//! devices' ports.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use record::PortCounters;
use transport::rdma::Counters;

use crate::group::Group;

/// Where the kernel shows devices, their ports and the ports' counters.
const DEVICES: &str = "/sys/class/infiniband";
/// The size of the words that `port_xmit_data` and `port_rcv_data` count.
const WORD_BYTES: u64 = 4;

/// The local addresses on which devices can listen; only IPv4 addresses if there are any.
///
/// # Errors
/// The reason why there is none, as the end of a sentence.
pub fn addresses() -> Result<Vec<IpAddr>, String> {
    let devices = match verbs::devices() {
        Ok(devices) => devices,
        Err(error @ verbs::Error::Missing { .. }) => return Err(error.to_string()),
        Err(_) => Vec::new(),
    };
    if devices.is_empty() {
        return Err("no RDMA device here; `trunkline lab vm` has Soft-RoCE".into());
    }
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    let names = names.join(", ");
    if !devices.iter().flat_map(|device| &device.ports).any(|port| port.active) {
        return Err(format!("no port of the RDMA devices here ({names}) is active; `rdma link` shows them"));
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut found: Vec<IpAddr> = interfaces.iter().map(if_addrs::Interface::ip).collect();
    found.retain(|address| {
        let of_a_link = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        !address.is_loopback() && !of_a_link && can_listen(*address)
    });
    if found.iter().any(IpAddr::is_ipv4) {
        found.retain(IpAddr::is_ipv4);
    }
    if found.is_empty() {
        return Err(format!(
            "the RDMA devices here ({names}) have no address; give their network interface one: ip addr add"
        ));
    }
    Ok(found)
}

/// Whether a device can listen on this address.
fn can_listen(address: IpAddr) -> bool {
    let try_it =
        || verbs::Identifier::new(&verbs::EventChannel::new()?)?.listen(SocketAddr::new(address, 0), 1);
    try_it().is_ok()
}

/// The RDMA counters of a group's nodes since their start.
#[must_use]
pub fn served_counters(group: &Group) -> Counters {
    let mut sum = Counters::default();
    group.server.statistics().nodes.iter().for_each(|node| sum.add(&node.rdma));
    sum
}

/// Adds the work of one end between two counter readings, under the record's names.
pub fn add_work(sum: &mut BTreeMap<String, u64>, before: &Counters, after: &Counters) {
    let named = |done: &Counters| {
        [
            ("rdma_completions", done.completions),
            ("rdma_interrupts", done.notices),
            ("rdma_messages", done.sends),
            ("rdma_reads", done.reads),
            ("rdma_work_requests", done.work()),
            ("rdma_writes", done.writes),
        ]
    };
    for ((name, before), (_, after)) in named(before).into_iter().zip(named(after)) {
        let count = sum.entry(name.to_owned()).or_default();
        *count = count.saturating_add(after.saturating_sub(before));
    }
}

/// The counters of all devices' ports since the system started.
#[derive(Debug, Clone, Default)]
pub struct Ports(BTreeMap<String, BTreeMap<String, u64>>);

impl Ports {
    /// The present counters.
    #[must_use]
    pub fn now() -> Self {
        Self::under(Path::new(DEVICES))
    }

    fn under(devices: &Path) -> Self {
        let mut ports = BTreeMap::new();
        for (device, directory) in entries(devices) {
            for (port, directory) in entries(&directory.join("ports")) {
                // The counters of the standard come last, so that they win if a name occurs twice.
                let counters = ["hw_counters", "counters"].map(|kind| entries(&directory.join(kind)));
                let values = counters.into_iter().flatten().filter_map(|(name, file)| {
                    Some((name, fs::read_to_string(file).ok()?.trim().parse().ok()?))
                });
                ports.insert(format!("{device}/{port}"), values.collect());
            }
        }
        Self(ports)
    }

    /// What each port has counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Vec<PortCounters> {
        let of_port = |(port, now): (&String, &BTreeMap<String, u64>)| {
            let then = before.0.get(port);
            let since = |(name, now): (&String, &u64)| {
                let then = then.and_then(|then| then.get(name)).copied().unwrap_or(0);
                (name.clone(), now.saturating_sub(then))
            };
            counters(port, now.iter().map(since).collect())
        };
        self.0.iter().map(of_port).collect()
    }
}

/// A port's counters by their meaning. Of the remaining ones, those that are not zero, by the
/// kernel's names.
fn counters(port: &str, mut by_name: BTreeMap<String, u64>) -> PortCounters {
    let mut first = |names: &[&str]| {
        // All names are removed, so that none is reported twice.
        let found: Vec<u64> = names.iter().filter_map(|name| by_name.remove(*name)).collect();
        found.first().copied()
    };
    let words = |count: u64| count.saturating_mul(WORD_BYTES);
    let sent_bytes = first(&["port_xmit_data"]).map(words);
    let received_bytes = first(&["port_rcv_data"]).map(words);
    let sent_packets = first(&["port_xmit_packets", "sent_pkts"]);
    let received_packets = first(&["port_rcv_packets", "rcvd_pkts"]);
    let _no_count = first(&["lifespan"]);
    by_name.retain(|_, count| *count > 0);
    PortCounters {
        port: port.to_owned(),
        sent_bytes,
        received_bytes,
        sent_packets,
        received_packets,
        others: by_name,
    }
}

/// The entries of a directory by name; none if the directory does not exist.
fn entries(directory: &Path) -> Vec<(String, std::path::PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> =
        entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path()))).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, counters: &[(&str, &str)]) {
        fs::create_dir_all(directory).unwrap();
        for (name, value) in counters {
            fs::write(directory.join(name), value).unwrap();
        }
    }

    #[test]
    fn ports_count_in_words_and_packets_or_in_packets_alone() {
        let root = tempfile::tempdir().unwrap();
        let (real, soft) = (root.path().join("mlx5_0/ports/1"), root.path().join("rxe1/ports/1"));
        write(&real.join("counters"), &[("port_xmit_data", "10\n"), ("port_rcv_data", "7\n")]);
        write(&soft.join("hw_counters"), &[("sent_pkts", "5\n"), ("rcvd_pkts", "5"), ("lifespan", "10\n")]);
        let before = Ports::under(root.path());
        write(&real.join("counters"), &[("port_xmit_data", "110\n"), ("port_xmit_wait", "3\n")]);
        write(
            &soft.join("hw_counters"),
            &[("sent_pkts", "9\n"), ("send_err", "1\n"), ("link_downed", "N/A\n")],
        );
        let since = Ports::under(root.path()).since(&before);
        let [real, soft] = since.as_slice() else { panic!("{since:?}") };
        assert_eq!(
            (real.port.as_str(), real.sent_bytes, real.received_bytes),
            ("mlx5_0/1", Some(400), Some(0))
        );
        assert_eq!((real.sent_packets, real.others.get("port_xmit_wait")), (None, Some(&3)));
        assert_eq!((soft.sent_bytes, soft.sent_packets, soft.received_packets), (None, Some(4), Some(0)));
        assert_eq!(soft.others, BTreeMap::from([("send_err".to_owned(), 1)]));
    }

    #[test]
    fn work_is_counted_from_one_moment_to_another_and_summed() {
        let before = Counters { sends: 3, places: 64, completions: 4, ..Counters::default() };
        let after =
            Counters { sends: 5, writes: 7, places: 70, completions: 9, notices: 1, ..Counters::default() };
        let mut sum = BTreeMap::new();
        add_work(&mut sum, &before, &after);
        add_work(&mut sum, &before, &after);
        let shown: Vec<(&str, u64)> = sum.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let wanted = [
            ("rdma_completions", 10),
            ("rdma_interrupts", 2),
            ("rdma_messages", 4),
            ("rdma_reads", 0),
            ("rdma_work_requests", 30),
            ("rdma_writes", 14),
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn a_machine_without_devices_counts_nothing() {
        assert!(Ports::under(Path::new("/nonexistent")).since(&Ports::default()).is_empty());
    }
}
