//! Whether the files of an experiment fit, where several sets of files may share one file system.

use fs::FileHandle;

use crate::error::{Error, Result};

/// A file system in which files are made, as far as it can be told from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// The memory store of the embedded group.
    Group,
    /// An export of a server.
    Export {
        /// The host by which it is reached.
        host: String,
        /// The number of its file system.
        fsid: u64,
        /// Its root.
        root: FileHandle,
        /// The size of its file system.
        total_bytes: u64,
    },
    /// A file system of a machine.
    Mounted {
        /// Tells the machine from others.
        machine: String,
        /// The number of its device.
        device: u64,
        /// The type and the source, if it is on a network: `nfs 10.0.0.1:/data`. Several mounts of
        /// one server have several devices.
        source: Option<String>,
    },
}

impl FileSystem {
    /// Whether both have the same room. Servers choose their numbers by themselves, so that two
    /// with the same number are one only if they have the size, and the host or the root, in
    /// common.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Group, Self::Group) => true,
            (
                Self::Export { host, fsid, root, total_bytes },
                Self::Export { host: host_2, fsid: fsid_2, root: root_2, total_bytes: total_2 },
            ) => fsid == fsid_2 && total_bytes == total_2 && (host == host_2 || root == root_2),
            (
                Self::Mounted { machine, device, source },
                Self::Mounted { machine: machine_2, device: device_2, source: source_2 },
            ) => machine == machine_2 && device == device_2 || source.is_some() && source == source_2,
            _ => false,
        }
    }
}

/// A set of files that is to be made.
#[derive(Debug)]
pub(crate) struct Room {
    /// The name of its route.
    pub(crate) route: String,
    /// The bytes of its files.
    pub(crate) needed_bytes: u64,
    /// The bytes that are free for this user; `None` if they are not known. There may be room then.
    pub(crate) free_bytes: Option<u64>,
    /// Where it is made; `None` if that is not known.
    pub(crate) file_system: Option<FileSystem>,
}

/// Refuses sets for which there is less room than they need together.
///
/// # Errors
/// [`Error::NoRoom`] with the routes whose files share a file system.
pub(crate) fn check(rooms: &[Room]) -> Result<()> {
    for (at, room) in rooms.iter().enumerate() {
        let shares = |(other_at, other): &(usize, &Room)| {
            let both = room.file_system.as_ref().zip(other.file_system.as_ref());
            *other_at == at || both.is_some_and(|(one, other)| one.is_same(other))
        };
        let sharing: Vec<&Room> = rooms.iter().enumerate().filter(shares).map(|(_, room)| room).collect();
        let needed_bytes = sharing.iter().fold(0, |sum: u64, room| sum.saturating_add(room.needed_bytes));
        // The set that has the least room decides: quotas and reserves may differ.
        let Some(free_bytes) = sharing.iter().filter_map(|room| room.free_bytes).min() else { continue };
        if free_bytes < needed_bytes {
            let routes: Vec<&str> = sharing.iter().map(|room| room.route.as_str()).collect();
            return Err(Error::NoRoom { route: routes.join(", "), needed_bytes, free_bytes });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(route: &str, needed_bytes: u64, free: u64, file_system: Option<FileSystem>) -> Room {
        Room { route: route.to_owned(), needed_bytes, free_bytes: Some(free), file_system }
    }

    fn mounted(machine: &str, device: u64, source: Option<&str>) -> Option<FileSystem> {
        let source = source.map(str::to_owned);
        Some(FileSystem::Mounted { machine: machine.to_owned(), device, source })
    }

    fn export(host: &str, fsid: u64, root: u8, total_bytes: u64) -> Option<FileSystem> {
        let root = FileHandle::new(&[root]).unwrap();
        Some(FileSystem::Export { host: host.to_owned(), fsid, root, total_bytes })
    }

    /// Whether two sets of 60 bytes fit where 100 are free.
    fn fit(one: Option<FileSystem>, other: Option<FileSystem>) -> bool {
        check(&[room("a", 60, 100, one), room("b", 60, 100, other)]).is_ok()
    }

    #[test]
    fn sets_in_one_file_system_need_room_together() {
        assert!(!fit(mounted("", 7, None), mounted("", 7, None)), "two directories of one device");
        assert!(fit(mounted("", 7, None), mounted("", 8, None)));
        assert!(fit(mounted("x", 7, None), mounted("y", 7, None)), "devices of two machines");
        let nfs = Some("nfs nas:/data");
        assert!(!fit(mounted("x", 7, nfs), mounted("y", 8, nfs)), "two mounts of one export");
        assert!(fit(mounted("", 7, nfs), mounted("", 8, Some("nfs nas:/other"))));
        assert!(!fit(export("a", 1, 1, 9), export("a", 1, 2, 9)), "two directories of one server");
        assert!(!fit(export("a", 1, 1, 9), export("b", 1, 1, 9)), "two nodes of one server");
        assert!(fit(export("a", 0, 1, 9), export("b", 0, 2, 9)), "numbers of two servers");
        assert!(fit(export("a", 1, 1, 9), export("a", 2, 1, 9)));
        assert!(!fit(Some(FileSystem::Group), Some(FileSystem::Group)));
        assert!(fit(None, None), "what is not known is not refused");
    }

    #[test]
    fn the_refusal_names_all_routes_and_the_sum() {
        let one = || mounted("", 7, None);
        let rooms =
            [room("a", 60, 150, one()), room("b", 10, 20, mounted("", 8, None)), room("c", 91, 150, one())];
        let error = check(&rooms).unwrap_err();
        assert!(
            matches!(&error, Error::NoRoom { route, needed_bytes: 151, free_bytes: 150 } if route == "a, c"),
            "{error}"
        );
        let alone = check(&[room("a", 2, 1, None)]).unwrap_err();
        assert!(alone.to_string().starts_with("a: there is no room"), "{alone}");
        let unknown = Room { free_bytes: None, ..room("a", u64::MAX, 0, one()) };
        assert!(check(&[unknown, room("b", 0, 5, None)]).is_ok());
        let huge = Room { free_bytes: None, ..room("a", u64::MAX, 0, one()) };
        assert!(check(&[huge, room("b", 1, 5, one())]).is_err(), "the sum does not wrap");
    }
}
