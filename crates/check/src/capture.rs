//! Captures: the facts about a host, as text.

use std::collections::BTreeMap;

/// How a capture is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The standard output of a command.
    Command(&'static [&'static str]),
    /// The text of a file.
    File(&'static str),
    /// The values of small files, one per line, as `grep -r . FILES` prints them: `PATH:VALUE`. A
    /// `*` stands for any name within one directory.
    Tree(&'static [&'static str]),
    /// The output of a command that runs on a storage array, and never here.
    OnArray(&'static str),
}

/// One kind of capture.
#[derive(Debug, Clone, Copy)]
pub struct Capture {
    /// Its name, which is also its file name in a directory of captures.
    pub name: &'static str,
    /// How it is made.
    pub how: How,
}

impl Capture {
    /// The command whose output it is, as for a shell.
    pub fn command(&self) -> String {
        match self.how {
            How::Command(words) => words.join(" "),
            How::File(path) => format!("cat {path}"),
            How::Tree(forms) => format!("grep -r . {}", forms.join(" ")),
            How::OnArray(command) => command.to_owned(),
        }
    }
}

const fn capture(name: &'static str, how: How) -> Capture {
    Capture { name, how }
}

/// All captures.
pub const CAPTURES: &[Capture] = &[
    capture("kernel-release.txt", How::File("/proc/sys/kernel/osrelease")),
    capture("sys-infiniband.txt", How::Tree(SYS_INFINIBAND)),
    capture("ibv_devinfo.txt", How::Command(&["ibv_devinfo"])),
    capture("rdma-link.txt", How::Command(&["rdma", "link", "show"])),
    capture("sys-net.txt", How::Tree(SYS_NET)),
    // As text: the ip of RHEL 7 prints no JSON.
    capture("ip-addr.txt", How::Command(&["ip", "-o", "addr", "show"])),
    capture("ip-rule.txt", How::Command(&["ip", "rule", "show"])),
    capture("ip-rule6.txt", How::Command(&["ip", "-6", "rule", "show"])),
    capture("ip-route.txt", How::Command(&["ip", "route", "show"])),
    capture("ip-route6.txt", How::Command(&["ip", "-6", "route", "show"])),
    capture("sysctl.txt", How::Tree(SYSCTL)),
    // Modules that are built into the kernel are there too, unlike in lsmod.
    capture("sys-module.txt", How::Command(&["ls", "/sys/module"])),
    capture("limits.txt", How::File("/proc/self/limits")),
    // Of a host, no more than `planned_accounts` keeps.
    capture("passwd.txt", How::Command(&["getent", "passwd"])),
    capture("status.txt", How::File("/proc/self/status")),
    capture("numa.txt", How::Tree(&["/sys/devices/system/node/node*/cpulist"])),
    capture("mountstats.txt", How::File("/proc/self/mountstats")),
    capture("sys-nvme.txt", How::Tree(SYS_NVME)),
    capture("nvme-hostnqn.txt", How::File("/etc/nvme/hostnqn")),
    // Of each, the JSON of `-o json` is read too.
    capture("nvme-list.txt", How::Command(&["nvme", "list"])),
    capture("nvme-list-subsys.txt", How::Command(&["nvme", "list-subsys"])),
    capture("nvme-netapp-smdevices.txt", How::Command(&["nvme", "netapp", "smdevices"])),
    capture("multipath.txt", How::Command(&["multipath", "-ll"])),
    capture("sys-block.txt", How::Tree(SYS_BLOCK)),
    capture("timedatectl.txt", How::Command(&["timedatectl"])),
    capture("isi-network-interfaces.txt", How::OnArray("isi network interfaces list -v")),
    capture("isi-network-pools.txt", How::OnArray("isi network pools list -v")),
    capture("isi-nfs-exports.txt", How::OnArray("isi nfs exports list -v --zone ZONE")),
    capture("isi-nfs-settings.txt", How::OnArray("isi nfs settings global view")),
    capture(
        "isi-statistics-protocol.txt",
        How::OnArray(
            "isi statistics protocol list --protocols=nfs3,nfs4,nfsrdma --classes=read,write \
             --sort=Ops --output=Node,Proto,Class,Ops",
        ),
    ),
    // With `--format top` it has the same columns, and is written anew until somebody ends it.
    capture("isi-statistics-system.txt", How::OnArray("isi statistics system -n=all")),
];

const SYS_INFINIBAND: &[&str] = &[
    "/sys/class/infiniband/*/fw_ver",
    "/sys/class/infiniband/*/node_type",
    "/sys/class/infiniband/*/device/numa_node",
    "/sys/class/infiniband/*/ports/*/state",
    "/sys/class/infiniband/*/ports/*/link_layer",
    "/sys/class/infiniband/*/ports/*/gids/*",
    "/sys/class/infiniband/*/ports/*/gid_attrs/types/*",
    "/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*",
];

const SYS_NET: &[&str] =
    &["/sys/class/net/*/mtu", "/sys/class/net/*/speed", "/sys/class/net/*/device/numa_node"];

const SYSCTL: &[&str] = &[
    "/proc/sys/net/ipv4/conf/*/rp_filter",
    "/proc/sys/net/ipv4/conf/*/arp_ignore",
    "/proc/sys/net/ipv4/conf/*/arp_announce",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
];

const SYS_NVME: &[&str] = &[
    "/sys/class/nvme-subsystem/*/subsysnqn",
    "/sys/class/nvme-subsystem/*/iopolicy",
    "/sys/class/nvme/*/transport",
    "/sys/class/nvme/*/address",
    "/sys/class/nvme/*/state",
    "/sys/class/nvme/*/subsysnqn",
    "/sys/class/nvme/*/hostnqn",
    "/sys/class/nvme/*/nvme*/ana_state",
    "/sys/class/nvme/*/nvme*/nsid",
    "/sys/module/nvme_core/parameters/multipath",
];

const SYS_BLOCK: &[&str] = &[
    "/sys/block/*/queue/max_sectors_kb",
    "/sys/block/*/queue/max_hw_sectors_kb",
    "/sys/block/*/queue/optimal_io_size",
];

/// A line of a capture of small files.
pub fn tree_line(path: &str, value: &str) -> String {
    format!("{path}:{}\n", value.trim_end())
}

/// One capture as it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The command or file that shows it.
    pub source: String,
    /// Its text, or why there is none.
    pub text: Result<String, String>,
}

/// All captures of a host or an array, by their names.
#[derive(Debug, Clone, Default)]
pub struct Evidence(pub BTreeMap<&'static str, Captured>);

impl Evidence {
    /// The text of a capture, if there is one.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.text.as_deref().ok().filter(|text| !text.trim().is_empty())
    }

    /// What shows the text of a capture.
    pub(crate) fn source(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |captured| &captured.source)
    }

    /// The lines of a capture of small files whose paths have this form, with what each `*` of the
    /// form stands for, and the value.
    pub(crate) fn tree<'a>(&'a self, name: &str, form: &str) -> Vec<(Vec<&'a str>, &'a str)> {
        let lines = self.text(name).unwrap_or_default().lines();
        lines.filter_map(|line| matched(line, form)).collect()
    }

    /// The value of one small file.
    pub(crate) fn value<'a>(&'a self, name: &str, path: &str) -> Option<&'a str> {
        self.tree(name, path).into_iter().next().map(|(_, value)| value)
    }
}

/// Matches `PATH:VALUE` with a form whose names may be `*` or begin with text before one.
pub(crate) fn matched<'a>(line: &'a str, form: &str) -> Option<(Vec<&'a str>, &'a str)> {
    let (mut rest, mut stars) = (line, Vec::new());
    let mut names = form.split('/').skip(1).peekable();
    while let Some(name) = names.next() {
        rest = rest.strip_prefix('/')?;
        // A value, and the name of a device before it, may have colons. No name of ours may.
        let end = if names.peek().is_some() { rest.find('/')? } else { rest.find(':')? };
        let (found, after) = rest.split_at_checked(end)?;
        match name.split_once('*') {
            Some((before, after)) => {
                found.strip_prefix(before)?.strip_suffix(after)?;
                stars.push(found);
            }
            None if name == found => {}
            None => return None,
        }
        rest = after;
    }
    Some((stars, rest.strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_small_files_match_forms() {
        let line = "/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE";
        assert_eq!(
            matched(line, "/sys/class/infiniband/*/ports/*/state"),
            Some((vec!["mlx5_0", "1"], "4: ACTIVE"))
        );
        assert_eq!(matched(line, "/sys/class/infiniband/*/ports/*/rate"), None);
        assert_eq!(matched(line, "/sys/class/infiniband/*/fw_ver"), None);
        let line = "/sys/class/nvme/nvme1/nvme0c1n2/ana_state:optimized";
        assert_eq!(
            matched(line, "/sys/class/nvme/*/nvme*/ana_state"),
            Some((vec!["nvme1", "nvme0c1n2"], "optimized"))
        );
        assert_eq!(matched("rubbish", "/sys/class/net/*/mtu"), None);
    }

    #[test]
    fn names_of_captures_are_file_names_and_differ() {
        let names: std::collections::HashSet<_> = CAPTURES.iter().map(|capture| capture.name).collect();
        assert_eq!(names.len(), CAPTURES.len());
        assert!(names.iter().all(|name| !name.contains('/')));
    }
}
