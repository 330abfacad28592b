//! Interfaces and TCP: MTU, congestion control, buffers.

use crate::{Evidence, Expected, Finding};

const NET: &str = "sys-net.txt";
const SYSCTL: &str = "sysctl.txt";
/// The round trip for which the buffers of a connection should suffice: a data centre's.
const ROUND_TRIP_MS: u64 = 1;
/// No interface is faster, in Mb/s.
const MBITS_MAX: u64 = 10_000_000;

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    mtu(evidence, expected, out);
    numa(evidence, expected, out);
    congestion_control(evidence, out);
    buffers(evidence, out);
}

/// Only interfaces that carry storage are judged: others, such as the one of management, have an
/// MTU of their own.
fn mtu(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    const RULE: &str = "net.mtu";
    let (Some(wanted), Some(_)) = (expected.mtu, evidence.text(NET)) else { return };
    let names = storage_interfaces(evidence, expected);
    if names.is_empty() {
        let seen = "which interfaces carry storage is not known";
        out.push(Finding::unknown(RULE, "/sys/class/net", seen, "--interface NAME"));
    }
    for name in names {
        let path = format!("/sys/class/net/{name}/mtu");
        let Some(mtu) = evidence.value(NET, &path) else {
            let seen = format!("there is no interface {name}");
            out.push(Finding::ok(RULE, path, seen).fail("it cannot carry storage", "ip link"));
            continue;
        };
        let seen = format!("{name} has an MTU of {mtu}; {wanted} is expected");
        let finding = Finding::ok(RULE, path, seen);
        out.push(if mtu.parse() == Ok(wanted) {
            finding
        } else {
            finding.fail(
                "frames of the expected size do not pass, or small ones cost several times as many",
                format!("ip link set dev {name} mtu {wanted}    # and on every switch port between"),
            )
        });
    }
}

/// The interfaces that carry storage: those that were named, else those of RDMA ports.
fn storage_interfaces<'a>(evidence: &'a Evidence, expected: &'a Expected) -> Vec<&'a str> {
    let given: Vec<&str> = expected.interfaces.iter().map(String::as_str).collect();
    if given.is_empty() { super::rdma::used_interfaces(evidence) } else { given }
}

/// A card that carries storage over TCP should be used from the processors beside it too. Virtual
/// interfaces have no device.
fn numa(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    for name in storage_interfaces(evidence, expected) {
        let path = format!("/sys/class/net/{name}/device/numa_node");
        let node = evidence.value(NET, &path);
        out.extend(node.and_then(|node| super::rdma::beside(evidence, "net.numa", name, node, &path)));
    }
}

fn congestion_control(evidence: &Evidence, out: &mut Vec<Finding>) {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let Some(name) = evidence.value(SYSCTL, path) else { return };
    let finding = Finding::ok("tcp.congestion-control", path, format!("TCP uses {name}"));
    // Those that need help of the network, or are made for slow links.
    let is_odd = !["cubic", "bbr", "dctcp", "reno", "htcp"].contains(&name);
    out.push(if is_odd {
        finding.warn(
            "it is not made for fast storage networks",
            "sysctl -w net.ipv4.tcp_congestion_control=cubic",
        )
    } else if name == "dctcp" {
        finding.warn(
            "dctcp collapses where switches do not mark packets (ECN)",
            "check that every switch port marks, or: sysctl -w net.ipv4.tcp_congestion_control=cubic",
        )
    } else {
        finding
    });
}

/// The largest buffers of a TCP connection should hold what the fastest interface carries in a
/// round trip.
fn buffers(evidence: &Evidence, out: &mut Vec<Finding>) {
    let speeds = evidence.tree(NET, "/sys/class/net/*/speed");
    // Virtual interfaces show -1, or that as a number without sign.
    let known = |speed: &&str| speed.parse::<u64>().ok().filter(|mbits| (1..=MBITS_MAX).contains(mbits));
    let Some(mbits) = speeds.iter().filter_map(|(_, speed)| known(speed)).max() else { return };
    let needed = mbits * 1_000_000 / 8 * ROUND_TRIP_MS / 1000;
    for name in ["tcp_rmem", "tcp_wmem"] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let Some(value) = evidence.value(SYSCTL, &path) else { continue };
        let fields: Vec<u64> = value.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let [min, default, max] = fields[..] else { continue };
        let seen =
            format!("{name} is at most {max} bytes; {mbits} Mb/s over {ROUND_TRIP_MS} ms are {needed}");
        let finding = Finding::ok("tcp.buffers", path, seen);
        out.push(if max >= needed {
            finding
        } else {
            finding.warn(
                "one connection cannot fill the link over a round trip of a millisecond",
                format!("sysctl -w net.ipv4.{name}='{min} {default} {}'", needed.next_power_of_two()),
            )
        });
    }
}
