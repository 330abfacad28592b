//! Limits of the process: memory that may be locked, open files.

use crate::{Evidence, Finding};

const NAME: &str = "limits.txt";
/// Registered memory of a mount or a server with many connections.
const LOCKED_BYTES_MIN: u64 = 256 << 20;
const OPEN_FILES_MIN: u64 = 4096;
/// The bit of CAP_IPC_LOCK, with which the limit does not count. capability.h
const CAP_IPC_LOCK: u32 = 14;

pub(super) fn check(evidence: &Evidence, out: &mut Vec<Finding>) {
    let has_rdma =
        evidence.text("sys-infiniband.txt").is_some() || evidence.text("ibv_devinfo.txt").is_some();
    if let Some((soft, _)) = limit(evidence, "Max locked memory").filter(|_| has_rdma) {
        let seen = if may_lock(evidence) {
            format!("locked memory: {soft}, which does not bind this user")
        } else {
            format!("locked memory: {soft}")
        };
        let finding = Finding::ok("limits.memlock", evidence.source(NAME), seen);
        out.push(if may_lock(evidence) || is_at_least(soft, LOCKED_BYTES_MIN) {
            finding
        } else {
            finding.warn(
                "memory for RDMA is locked; above the limit connections and large transfers of this user fail",
                "ulimit -l unlimited    # lasting: '* - memlock unlimited' in /etc/security/limits.conf, \
                 LimitMEMLOCK=infinity in a unit",
            )
        });
    }
    // Programs raise the soft limit up to the hard one themselves.
    if let Some((_, hard)) = limit(evidence, "Max open files") {
        let finding =
            Finding::ok("limits.open-files", evidence.source(NAME), format!("open files: at most {hard}"));
        out.push(if is_at_least(hard, OPEN_FILES_MIN) {
            finding
        } else {
            finding.warn(
                "each connection and each open file of a server needs a descriptor",
                "'* - nofile 65536' in /etc/security/limits.conf, LimitNOFILE=65536 in a unit",
            )
        });
    }
}

/// Whether this user may lock any amount of memory.
fn may_lock(evidence: &Evidence) -> bool {
    let status = evidence.text("status.txt").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1)
}

/// The soft and the hard limit, each `unlimited` or a number.
fn limit<'a>(evidence: &'a Evidence, name: &str) -> Option<(&'a str, &'a str)> {
    let line = evidence.text(NAME)?.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?))
}

fn is_at_least(limit: &str, min: u64) -> bool {
    limit == "unlimited" || limit.parse::<u64>().is_ok_and(|limit| limit >= min)
}
