//! `/proc/self/mountstats`: what mounted NFS file systems really use.

/// A mounted NFS file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NfsMount {
    pub device: String,
    pub directory: String,
    /// The options in effect, in their order.
    pub options: Vec<(String, String)>,
    /// Calls sent by each transport.
    pub transports: Vec<Transport>,
}

/// One connection of a mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Transport {
    /// `tcp` or `rdma`.
    pub kind: String,
    pub connects: u64,
    pub sends: u64,
}

impl NfsMount {
    /// The value of an option; empty for one without.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(of, _)| of == name).map(|(_, value)| &**value)
    }
}

/// All NFS mounts, in their order.
pub(crate) fn nfs_mounts(text: &str) -> Vec<NfsMount> {
    let mut mounts = Vec::<NfsMount>::new();
    let mut is_nfs = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(rest) = trimmed.strip_prefix("device ") {
            let mount = head(rest);
            is_nfs = mount.is_some();
            mounts.extend(mount);
        }
        let Some(mount) = mounts.last_mut().filter(|_| is_nfs) else { continue };
        if let Some(options) = trimmed.strip_prefix("opts:") {
            mount.options = options.trim().split(',').map(option).collect();
        } else if let Some(transport) = trimmed.strip_prefix("xprt:") {
            mount.transports.push(self::transport(transport));
        }
    }
    mounts
}

/// All mounts: device, directory and type.
pub(crate) fn mounted(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.lines().filter_map(|line| words_of(line.trim().strip_prefix("device ")?))
}

/// `DEVICE mounted on /DIRECTORY with fstype TYPE statvers=1.1`
fn words_of(text: &str) -> Option<(&str, &str, &str)> {
    let (device, rest) = text.split_once(" mounted on ")?;
    let (directory, kind) = rest.rsplit_once(" with fstype ")?;
    Some((device, directory, kind.split_whitespace().next()?))
}

/// `SERVER:/EXPORT mounted on /DIRECTORY with fstype nfs4 statvers=1.1`, if it is NFS.
fn head(text: &str) -> Option<NfsMount> {
    let (device, directory, kind) = words_of(text)?;
    let is_nfs = matches!(kind, "nfs" | "nfs4");
    let mount =
        NfsMount { device: device.to_owned(), directory: directory.to_owned(), ..NfsMount::default() };
    is_nfs.then_some(mount)
}

fn option(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (name.to_owned(), value.to_owned())
}

/// The fields after the kind: source port, binds, connects, time to connect, idle, sends, ...; over
/// a socket of the local host there is no source port.
fn transport(text: &str) -> Transport {
    let mut words = text.split_whitespace();
    let kind = words.next().unwrap_or_default().to_owned();
    let fields: Vec<u64> = words.map(|word| word.parse().unwrap_or_default()).collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or_default();
    if kind == "local" {
        return Transport { kind, connects: field(1), sends: field(4) };
    }
    Transport { kind, connects: field(2), sends: field(5) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "device proc mounted on /proc with fstype proc\n\
        device 10.0.0.1:/ifs/a b mounted on /mnt/a with fstype nfs statvers=1.1\n\
        \topts:\trw,vers=3,rsize=1048576,wsize=524288,proto=tcp,nconnect=2,local_lock=none\n\
        \tage:\t7\n\tcaps:\tcaps=0x1,wtmult=4096\n\
        \txprt:\ttcp 876 1 1 0 0 1000 1000 0 10000 0 2 0 0\n\
        \txprt:\ttcp 877 1 3 0 0 10 10 0 10000 0 2 0 0\n\
        device none mounted on /x with fstype tmpfs\n\
        device s:/b mounted on /mnt/b with fstype nfs4 statvers=1.1\n\
        \topts:\trw,vers=4.1,proto=rdma\n\txprt:\trdma 0 1 2 0 5 77 77 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn nfs_mounts_are_read_and_others_skipped() {
        let mounts = nfs_mounts(TEXT);
        assert_eq!(mounts.len(), 2);
        assert_eq!((&*mounts[0].device, &*mounts[0].directory), ("10.0.0.1:/ifs/a b", "/mnt/a"));
        assert_eq!(mounts[0].option("wsize"), Some("524288"));
        assert_eq!((mounts[0].option("rw"), mounts[0].option("ro")), (Some(""), None));
        let sends: Vec<_> = mounts[0].transports.iter().map(|transport| transport.sends).collect();
        assert_eq!(sends, [1000, 10]);
        assert_eq!(mounts[0].transports[1].connects, 3);
        let rdma = Transport { kind: "rdma".into(), connects: 2, sends: 77 };
        assert_eq!(mounts[1].transports, [rdma]);
        assert!(nfs_mounts("device\nopts:\n").is_empty());
        let all: Vec<_> = mounted(TEXT).map(|(_, directory, kind)| (directory, kind)).collect();
        assert_eq!(all, [("/proc", "proc"), ("/mnt/a", "nfs"), ("/x", "tmpfs"), ("/mnt/b", "nfs4")]);
    }
}
