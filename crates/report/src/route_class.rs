//! The class of a route: its transport, whether it has several paths, and the version of NFS.
//!
//! Routes have names as their experiment likes: `ours tcp`, `rdma host`, `kernel tcp-mp`. What a
//! route is follows from its options, its paths and how it is accessed.

use std::collections::BTreeSet;

use record::Route;

/// What kind of route it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteClass {
    /// NFS, as far as the record says how.
    Nfs(Nfs),
    /// A file system of another kind, or a load over both transports.
    Other,
    /// The record says nothing but the name, as with results of fio.
    Unknown,
}

/// A route over NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nfs {
    pub(crate) over_rdma: bool,
    /// Whether it leads to several addresses of the server.
    pub(crate) has_several_paths: bool,
    /// 3 or 4.
    pub(crate) version: u8,
}

impl Nfs {
    /// The class that a name of [`crate::published`] stands for: `tcp`, `rdma-mp`, `tcp-nfs4`.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let (name, version) = name.strip_suffix("-nfs4").map_or((name, 3), |name| (name, 4));
        let (name, has_several_paths) = name.strip_suffix("-mp").map_or((name, false), |name| (name, true));
        let over_rdma = match name {
            "tcp" => false,
            "rdma" => true,
            _ => return None,
        };
        Some(Self { over_rdma, has_several_paths, version })
    }
}

impl RouteClass {
    /// The class of a route.
    pub(crate) fn of(route: &Route) -> Self {
        let options = || route.options.split(',').map(str::trim).filter(|option| !option.is_empty());
        match &route.access {
            Some(access) if !is_nfs(access) => return Self::Other,
            None if options().next().is_none() && route.paths.is_empty() => return Self::Unknown,
            // A directory whose mount is not known.
            Some(_) if options().next().is_none() => return Self::Unknown,
            _ => {}
        }
        let value = |option: &str, names: &[&str]| {
            let (name, value) = option.split_once('=')?;
            names.contains(&name).then(|| value.to_owned())
        };
        let remotes = options().filter_map(|option| value(option, &["remoteports"])).next_back();
        let remotes = remotes.unwrap_or_default();
        let names_rdma = |option: &str| {
            option == "rdma" || value(option, &["proto"]).is_some_and(|proto| proto.starts_with("rdma"))
        };
        let by_default = options().any(names_rdma);
        let over_rdma = |remote: &str| match remote {
            _ if remote.starts_with("rdma:") => true,
            _ if remote.starts_with("tcp:") => false,
            _ => by_default,
        };
        let transports: BTreeSet<bool> = remotes.split('~').map(over_rdma).collect();
        let is_v4 = |option: &str| {
            option.starts_with("v4")
                || value(option, &["vers", "nfsvers"]).is_some_and(|version| version.starts_with('4'))
        };
        match transports.first() {
            Some(over_rdma) if transports.len() == 1 => Self::Nfs(Nfs {
                over_rdma: *over_rdma,
                has_several_paths: has_several_paths(route, &remotes),
                version: if options().any(is_v4) { 4 } else { 3 },
            }),
            _ => Self::Other,
        }
    }
}

/// Whether files of a directory are on a mount of an NFS client of the system.
pub(crate) fn is_nfs(access: &str) -> bool {
    let on = access.split_once(" on ").map_or(access, |(_, on)| on);
    let kind = on.split(',').next().unwrap_or(on);
    matches!(kind, "the kernel's NFS client" | "nfs" | "nfs4")
}

/// Whether the paths that were measured led to several addresses; before that, whether the options
/// name several.
fn has_several_paths(route: &Route, remotes: &str) -> bool {
    if route.paths.is_empty() {
        return remotes == "dns" || remotes.contains(['~', '-']);
    }
    let hosts: BTreeSet<&str> =
        route.paths.iter().filter_map(|path| crate::view::remote_host(path)).collect();
    hosts.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(options: &str, access: Option<&str>, paths: &[&str]) -> RouteClass {
        RouteClass::of(&Route {
            name: "a name that says nothing".into(),
            options: options.into(),
            access: access.map(str::to_owned),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            ..Route::default()
        })
    }

    fn nfs(name: &str) -> RouteClass {
        RouteClass::Nfs(Nfs::of_name(name).unwrap())
    }

    const KERNEL: Option<&str> = Some("O_DIRECT on the kernel's NFS client, by our threads");

    #[test]
    fn a_class_follows_from_options_paths_and_access() {
        assert_eq!(class("nconnect=4", None, &["10.0.0.1:2049"]), nfs("tcp"));
        assert_eq!(class("", None, &["10.0.0.1:2049"]), nfs("tcp"));
        let two = ["10.0.0.1:2049", "10.0.0.2:2049"];
        assert_eq!(class("remoteports=10.0.0.1~10.0.0.2", None, &two), nfs("tcp-mp"));
        assert_eq!(class("proto=rdma,port=20049", None, &["10.0.0.1:20049"]), nfs("rdma"));
        assert_eq!(class("remoteports=rdma:10.0.0.1~rdma:10.0.0.2", None, &two), nfs("rdma-mp"));
        // Two local addresses and one remote one are two paths to one address.
        let local = ["tcp 10.0.0.8 -> 10.0.0.1:2049", "tcp 10.0.0.9 -> 10.0.0.1:2049"];
        assert_eq!(class("localports=10.0.0.8~10.0.0.9", None, &local), nfs("tcp"));
        assert_eq!(class("nconnect=4,port=2049", KERNEL, &[]), nfs("tcp"));
        assert_eq!(class("nconnect=4,vers=4.2", KERNEL, &[]), nfs("tcp-nfs4"));
        assert_eq!(class("v4.1,rdma", KERNEL, &[]), nfs("rdma-nfs4"));
        assert_eq!(
            class("proto=rdma,remoteports=10.0.0.1-10.0.0.4,nfsvers=4", KERNEL, &[]),
            nfs("rdma-mp-nfs4")
        );
        let mounted = Some("buffered on nfs4, by fio, on each client");
        assert_eq!(class("vers=4.2,proto=tcp", mounted, &[]), nfs("tcp-nfs4"));
    }

    #[test]
    fn what_is_no_nfs_over_one_transport_has_no_class() {
        assert_eq!(class("", Some("O_DIRECT on ext4, by our threads"), &[]), RouteClass::Other);
        assert_eq!(class("proto=rdma", Some("O_DIRECT on fuse.nfs, by fio"), &[]), RouteClass::Other);
        assert_eq!(class("remoteports=rdma:10.0.0.1~tcp:10.0.0.1", None, &[]), RouteClass::Other);
        assert_eq!(class("", Some("O_DIRECT on nfs, by our threads"), &[]), RouteClass::Unknown);
        assert_eq!(class("", None, &[]), RouteClass::Unknown, "results of fio");
        for name in ["any", "nvme-rdma", "rdma-nfs3", "udp", ""] {
            assert_eq!(Nfs::of_name(name), None, "{name}");
        }
    }
}
