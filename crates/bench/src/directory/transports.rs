//! The connections of a mount of the kernel's NFS client, which are not always those that its
//! options ask for: mounts of one server share connections.

/// The kind of each connection, `tcp` or `rdma`, of what is mounted at this path, written as in
/// proc_pid_mountinfo(5).
pub(crate) fn at(mount_point: &str) -> Vec<String> {
    let statistics = std::fs::read_to_string("/proc/self/mountstats").unwrap_or_default();
    listed(&statistics, mount_point)
}

/// The same in the text of `/proc/self/mountstats`. Of several mounts at a path the last one
/// counts.
fn listed(statistics: &str, mount_point: &str) -> Vec<String> {
    let (mut found, mut is_here) = (Vec::new(), false);
    for line in statistics.lines().map(str::trim) {
        if let Some((_, rest)) = line.strip_prefix("device ").and_then(|rest| rest.split_once(" mounted on "))
        {
            let at = rest.rsplit_once(" with fstype ").map(|(at, _)| at);
            is_here = at == Some(mount_point);
            if is_here {
                found.clear();
            }
        } else if let Some(words) = line.strip_prefix("xprt:").filter(|_| is_here) {
            found.extend(words.split_whitespace().next().map(str::to_owned));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_of_the_last_mount_at_a_path_are_listed() {
        let statistics = "device proc mounted on /proc with fstype proc\n\
            device a:/x mounted on /mnt with fstype nfs statvers=1.1\n\topts:\trw,vers=3\n\
            \txprt:\trdma 0 0 1 0 0 9 9\n\
            device a:/y mounted on /mnt\\040b with fstype nfs4 statvers=1.1\n\
            \txprt:\ttcp 800 1 1 0 0 5 5\n\txprt:\ttcp 801 1 1 0 0 4 4\n\tper-op statistics\n\
            device b:/x mounted on /mnt with fstype nfs4 statvers=1.1\n\txprt:\ttcp 802 1 1\n\
            device tmpfs mounted on /tmp with fstype tmpfs\n";
        assert_eq!(listed(statistics, "/mnt\\040b"), ["tcp", "tcp"]);
        assert_eq!(listed(statistics, "/mnt"), ["tcp"]);
        for none in ["/tmp", "/proc", "/mnt/below", ""] {
            assert!(listed(statistics, none).is_empty(), "{none}");
        }
        assert!(listed("device x mounted on\nxprt:\n", "/mnt").is_empty());
    }
}
