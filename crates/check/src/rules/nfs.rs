//! What the kernel's NFS mounts really use, whatever was asked for.

use crate::parse::{NfsMount, nfs_mounts};
use crate::{Evidence, Finding};

const NAME: &str = "mountstats.txt";
/// A transfer size below which each megabyte takes several calls.
const TRANSFER_BYTES: u64 = 1 << 20;
/// Transports whose calls differ by less than this factor share the load.
const UNBALANCED: u64 = 4;
/// Calls below which nothing can be said about the balance.
const CALLS_MIN: u64 = 1000;

pub(super) fn check(evidence: &Evidence, out: &mut Vec<Finding>) {
    let Some(text) = evidence.text(NAME) else { return };
    let source = evidence.source(NAME);
    for mount in nfs_mounts(text) {
        out.push(connections(evidence, &mount, source));
        out.extend(balance(&mount, source));
        out.extend(transfer_size(&mount, source));
    }
}

/// The numbers of a release: `6.1` of `6.1.0-28-amd64`.
fn kernel(evidence: &Evidence) -> Option<(u32, u32)> {
    release(evidence.text("kernel-release.txt")?)
}

pub(super) fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn connections(evidence: &Evidence, mount: &NfsMount, source: &str) -> Finding {
    let NfsMount { directory, device, transports, .. } = mount;
    let option = |name| mount.option(name).unwrap_or("?");
    let (version, proto) = (option("vers"), option("proto"));
    let asked: usize = mount.option("nconnect").and_then(|count| count.parse().ok()).unwrap_or(1);
    let used = transports.len();
    let mut seen =
        format!("{device} on {directory}: NFS {version} over {proto}, {used} connections, nconnect={asked}");
    let is_old = kernel(evidence).is_some_and(|release| release < (6, 9));
    let ignores = used <= 1 && version.starts_with('4') && proto == "rdma" && is_old;
    // Linux before 6.9, fs/nfs/nfs4client.c: nfs4_set_client keeps nconnect for TCP only. So
    // mountstats does not show it either, and nobody knows from there whether it was asked for.
    if ignores && asked <= 1 {
        seen.push_str(" (for NFSv4 over RDMA kernels before 6.9 ignore nconnect, and do not show it)");
    }
    let finding = Finding::ok("nfs.connections", source, seen);
    if ignores && asked > 1 {
        finding.warn(
            "kernels before 6.9 ignore nconnect for NFSv4 over RDMA, unless a vendor has changed them: all calls \
             share one connection",
            "a kernel from 6.9 on, vers=3, or: trunkline mount",
        )
    } else if used < asked {
        finding.warn(
            "a mount of a server that is mounted already shares its connections, and nconnect of the first \
             mount counts",
            "unmount all mounts of this server, and mount again with nconnect",
        )
    } else {
        finding
    }
}

fn balance(mount: &NfsMount, source: &str) -> Option<Finding> {
    let sends: Vec<u64> = mount.transports.iter().map(|transport| transport.sends).collect();
    let all = sends.iter().fold(0_u64, |all, sends| all.saturating_add(*sends));
    let most = *sends.iter().max()?;
    let least = *sends.iter().min()?;
    if sends.len() < 2 || all < CALLS_MIN {
        return None;
    }
    let seen = format!("{}: calls by connection: {sends:?}", mount.directory);
    let finding = Finding::ok("nfs.balance", source, seen);
    Some(if most > least.saturating_mul(UNBALANCED) {
        finding.warn(
            "one connection does most of the work: the others add nothing",
            "are all addresses reachable, and do they lead to different interfaces? trunkline bench shows each \
             route alone",
        )
    } else {
        finding
    })
}

fn transfer_size(mount: &NfsMount, source: &str) -> Option<Finding> {
    let size = |name| mount.option(name).and_then(|bytes| bytes.parse::<u64>().ok());
    let (read, write) = (size("rsize")?, size("wsize")?);
    let seen = format!("{}: rsize={read}, wsize={write}", mount.directory);
    let finding = Finding::ok("nfs.transfer-size", source, seen);
    Some(if read.min(write) < TRANSFER_BYTES {
        finding.warn(
            "smaller transfers cost more calls for the same bytes",
            "-o rsize=1048576,wsize=1048576    # without them some servers prefer less; if the server allows no \
             more, raise its limit (knfsd: /proc/fs/nfsd/max_block_size before nfsd starts)",
        )
    } else {
        finding
    })
}
