//! The output of commands of a PowerScale cluster.

/// A network interface of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub node: String,
    pub name: String,
    pub addresses: String,
    /// The pools that it belongs to; empty or `-` for none.
    pub owners: String,
    pub status: String,
    pub mtu: Option<u32>,
    pub flags: String,
    pub speed: String,
}

impl Interface {
    /// Whether it carries addresses of a pool.
    pub fn is_used(&self) -> bool {
        self.pools().next().is_some()
    }

    /// The pools that it belongs to, each with groupnet and subnet.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.owners.split([',', ' ']).filter(|pool| !matches!(*pool, "" | "-"))
    }
}

/// The interfaces of `isi network interfaces list -v`: blocks of `Key: value`, each of which begins
/// with its addresses.
pub(crate) fn interfaces(text: &str) -> Vec<Interface> {
    let mut interfaces = Vec::<Interface>::new();
    for line in text.lines() {
        // An address of IPv6 has colons too, but no key before it.
        let Some((key, value)) = line.split_once(": ").or_else(|| line.trim_end().split_once(':')) else {
            continue;
        };
        let value = value.trim().to_owned();
        match (key.trim(), interfaces.last_mut()) {
            ("IP Addresses", _) => {
                interfaces.push(Interface { addresses: value, ..Interface::default() });
            }
            ("LNN", Some(interface)) => interface.node = value,
            ("Name", Some(interface)) => interface.name = value,
            ("Owners", Some(interface)) => interface.owners = value,
            ("Status", Some(interface)) => interface.status = value,
            ("MTU", Some(interface)) => interface.mtu = value.parse().ok(),
            ("Flags", Some(interface)) => interface.flags = value,
            ("Negotiated Speed", Some(interface)) => interface.speed = value,
            _ => {}
        }
    }
    interfaces
}

/// A pool of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    /// With groupnet and subnet.
    pub id: String,
    pub zone: String,
    /// `LNN:NAME` of each.
    pub interfaces: Vec<String>,
    /// `FIRST-LAST` of each.
    pub ranges: Vec<String>,
}

/// The pools of `isi network pools list -v`.
pub(crate) fn pools(text: &str) -> Vec<Pool> {
    let mut pools = Vec::<Pool>::new();
    for (key, value) in fields(text) {
        match (key, pools.last_mut()) {
            ("ID", _) => pools.push(Pool { id: value.to_owned(), ..Pool::default() }),
            ("Access Zone", Some(pool)) => pool.zone = value.to_owned(),
            ("Ifaces", Some(pool)) => pool.interfaces = words(value),
            ("IP Ranges", Some(pool)) => pool.ranges = words(value),
            _ => {}
        }
    }
    pools
}

/// An NFS export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Export {
    pub paths: Vec<String>,
    /// Who may mount; all if there are none.
    pub clients: Vec<String>,
    /// Who may only read, whatever the rest says.
    pub readers: Vec<String>,
    /// Who may write, whatever the rest says.
    pub writers: Vec<String>,
    /// Whether all others may only read.
    pub is_read_only: bool,
}

/// The exports of `isi nfs exports list -v`.
pub(crate) fn exports(text: &str) -> Vec<Export> {
    let mut exports = Vec::<Export>::new();
    for (key, value) in fields(text) {
        match (key, exports.last_mut()) {
            ("ID", _) => exports.push(Export::default()),
            ("Paths", Some(export)) => export.paths = words(value),
            ("Clients", Some(export)) => export.clients = words(value),
            ("Read Only Clients", Some(export)) => export.readers = words(value),
            ("Read Write Clients", Some(export)) => export.writers = words(value),
            ("Read Only", Some(export)) => export.is_read_only = matches!(value, "Yes" | "True"),
            _ => {}
        }
    }
    exports.retain(|export| !export.paths.is_empty());
    exports
}

/// The lines `Key: value`.
fn fields(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()))
}

/// A list with commas; `-` is none.
fn words(value: &str) -> Vec<String> {
    let all = value.split(',').map(str::trim).filter(|word| !matches!(*word, "" | "-"));
    all.map(str::to_owned).collect()
}

/// The lines `Key: Yes` or `Key: No` of `isi nfs settings global view`.
pub(crate) fn settings(text: &str) -> Vec<(String, bool)> {
    let line = |line: &str| {
        let (key, value) = line.rsplit_once(':')?;
        let is_on = match value.trim() {
            "Yes" | "True" => true,
            "No" | "False" => false,
            _ => return None,
        };
        Some((key.trim().to_owned(), is_on))
    };
    text.lines().filter_map(line).collect()
}

/// Operations per second by node, from `isi statistics protocol list` with the columns Ops and Node
/// among others, in any order. Of several tables (`--repeat`) the last that has rows counts.
pub(crate) fn protocol_operations(text: &str) -> Vec<(String, f64)> {
    let (mut last, mut current) = (Vec::<(String, f64)>::new(), Vec::<(String, f64)>::new());
    let mut columns = None;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let column = |name: &str| words.iter().position(|word| word.eq_ignore_ascii_case(name));
        if let (Some(operations), Some(node)) = (column("Ops"), column("Node")) {
            columns = Some((operations, node));
        } else if words.first() == Some(&"Total:") {
            if !current.is_empty() {
                last = std::mem::take(&mut current);
            }
        } else if let Some((operations, node)) = columns {
            let rate = words.get(operations).and_then(|word| rate_of(word));
            let node = words.get(node).filter(|node| node.parse::<u32>().is_ok());
            let (Some(rate), Some(node)) = (rate, node) else { continue };
            match current.iter_mut().find(|(of, _)| of == node) {
                Some((_, all)) => *all += rate,
                None => current.push(((*node).to_owned(), rate)),
            }
        }
    }
    if current.is_empty() { last } else { current }
}

/// Bytes of NFS per second by node, from `isi statistics system` with the columns Node and NFS
/// among others, in any order. The row of all nodes together is left out. Of several tables the
/// last one that has rows counts.
pub(crate) fn nfs_traffic(text: &str) -> Vec<(String, f64)> {
    let (mut last, mut current) = (Vec::<(String, f64)>::new(), Vec::<(String, f64)>::new());
    let mut columns = None;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let column = |name: &str| words.iter().position(|word| word.eq_ignore_ascii_case(name));
        if let (Some(node), Some(nfs)) = (column("Node"), column("NFS")) {
            columns = Some((node, nfs));
            if !current.is_empty() {
                last = std::mem::take(&mut current);
            }
        } else if let Some((node, nfs)) = columns {
            let node = words.get(node).filter(|node| node.parse::<u32>().is_ok());
            let rate = words.get(nfs).and_then(|word| rate_of(word));
            let (Some(node), Some(rate)) = (node, rate) else { continue };
            current.push(((*node).to_owned(), rate));
        }
    }
    if current.is_empty() { last } else { current }
}

/// `5.5k`, `12`, `1.2M`, `6.4G`.
fn rate_of(text: &str) -> Option<f64> {
    let units = [("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
    let unit = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (number, unit) = unit.unwrap_or((text, 1.0));
    number.parse::<f64>().ok().filter(|rate| rate.is_finite()).map(|rate| rate * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read() {
        let text = "        IP Addresses: 10.99.99.98\n                 LNN: 1\n                Name: 25gige-2\n\
            \x20           NIC Name: mce1\n              Owners: groupnet0.a.b\n              Status: Up\n\
            Default IPv6 Gateway: -\n                 MTU: 9000\n\
            \x20              Flags: ACCEPT_ROUTER_ADVERT, SUPPORTS_RDMA_RRoCE\n    Negotiated Speed: 25Gbps\n\n\
            \x20       IP Addresses: -\n                 LNN: 2\n              Owners: -\n              Status: Down\n";
        let found = interfaces(text);
        assert_eq!(found.len(), 2);
        assert_eq!((&*found[0].name, found[0].mtu, found[0].is_used()), ("25gige-2", Some(9000), true));
        assert!(found[0].flags.contains("SUPPORTS_RDMA_RRoCE"));
        assert_eq!((&*found[1].status, found[1].mtu, found[1].is_used()), ("Down", None, false));
    }

    // The form that OneFS 8 and 9 print.
    #[test]
    fn pools_and_exports_are_read() {
        let text = "                     ID: groupnet0.subnet0.pool0\n                   Name: pool0\n\
            \x20           Access Zone: System\n                 Ifaces: 1:10gige-1, 2:10gige-1\n\
            \x20             IP Ranges: 10.1.1.5-10.1.1.6\n        Static Routes: -\n\n\
            \x20                    ID: groupnet0.subnet0.none\n                 Ifaces: -\n";
        let [pool, none] = &pools(text)[..] else { panic!() };
        assert_eq!((&*pool.id, &*pool.zone), ("groupnet0.subnet0.pool0", "System"));
        assert_eq!(pool.interfaces, ["1:10gige-1", "2:10gige-1"]);
        assert_eq!(pool.ranges, ["10.1.1.5-10.1.1.6"]);
        assert!(none.interfaces.is_empty() && pools("Ifaces: 1:a\n").is_empty());
        let text = "  ID: 15\n Zone: z\n Paths: /ifs/a, /ifs/b\n Description: a: b\n Clients: -\n\
            \x20  Root Clients: x\n Read Only Clients: 10.0.0.0/8\n\n ID: 16\n Paths: /ifs/c\n Clients: 10.0.0.1\n";
        let [first, second] = &exports(text)[..] else { panic!() };
        assert_eq!((&first.paths[..], first.clients.len()), (&["/ifs/a".into(), "/ifs/b".into()][..], 0));
        assert_eq!(
            (&first.readers[..], &second.clients[..]),
            (&["10.0.0.0/8".into()][..], &["10.0.0.1".into()][..])
        );
        assert!(exports("ID: 1\n").is_empty() && exports("Paths: /ifs\n").is_empty());
    }

    #[test]
    fn settings_are_read() {
        let text = "NFS Service Enabled: Yes\n      NFSv3 Enabled: Yes\n        NFSv3 RDMA Enabled: No\n\
            \x20 v4.1 Enabled: Yes\n\nRquota Enabled: No\nNo words here\n";
        let found = settings(text);
        assert_eq!(found.len(), 5);
        assert!(found.contains(&("NFSv3 RDMA Enabled".to_owned(), false)));
    }

    #[test]
    fn the_last_table_with_rows_counts() {
        let text = "Ops Node Proto Class\n------\nTotal: 0\n5.5k     1 nfsrdma   read\n1.4k     1 nfsrdma  write\n\
            ----\nTotal: 2\n11.7k     1 nfsrdma   read\n900     2 nfsrdma  write\n----\nTotal: 2\n----\nTotal: 0\n";
        assert_eq!(protocol_operations(text), [("1".to_owned(), 11_700.0), ("2".to_owned(), 900.0)]);
        let other = "Node Ops\n----\n3 2k\n4 1\nTotal: 2\n";
        assert_eq!(protocol_operations(other), [("3".to_owned(), 2000.0), ("4".to_owned(), 1.0)]);
        assert!(protocol_operations("").is_empty());
    }

    #[test]
    fn traffic_of_nfs_is_read_by_node() {
        let head = "Node   CPU  SMB  NFS  Total\n";
        let first = format!("{head}------\n All 12.6%  0.0 6.4G   6.4G\n   1 28.7%  0.0 6.4G   6.4G\n");
        let second = format!("{head}   1  1.0%  0.0  1.5M   1.5M\n   2  1.0%  0.0  300.5  300.5\n");
        let one = ("1".to_owned(), 1.5e6);
        assert_eq!(nfs_traffic(&format!("{first}{second}{head}")), [one, ("2".to_owned(), 300.5)]);
        assert_eq!(nfs_traffic(&first), [("1".to_owned(), 6.4e9)]);
        assert!(nfs_traffic("Node CPU\n1 2%\n").is_empty() && nfs_traffic("1 2 3").is_empty());
    }
}
