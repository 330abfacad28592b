//! The addresses on which the processes of a group listen: a directory with a file for each.
//!
//! Two bytes of a file are only locked, as the members' bytes are ([`members`]): one by the process
//! whose configuration has the address, one by the process that listens there. They differ while
//! another process listens in the place of one that has ended. A process that is stopped keeps its
//! locks. The file contains the name of the node, once it has listened.
//!
//! `docs/decisions/0008-group.md` has the reasons.

use super::members;
use crate::config::ListenAddress;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// More than the processes of a group have; files beyond that are not looked at.
const ADDRESSES_MAX: usize = 1024;
/// The longest name of a node that is read.
const NODE_BYTES_MAX: usize = 255;
/// What follows the name of the node in the file.
const END: u8 = b'\n';

/// Bytes that are only locked, far behind the end of the file.
const OWNER_LOCK: i64 = 1 << 40;
const LISTENER_LOCK: i64 = OWNER_LOCK + 1;

/// The addresses of a group.
#[derive(Debug)]
pub(crate) struct AddressDirectory(OwnedFd);

/// An address of a process of the group. The locks that are taken through this end with it.
#[derive(Debug)]
pub(crate) struct AddressFile {
    pub address: ListenAddress,
    file: OwnedFd,
    identity: (u64, u64),
}

impl AddressDirectory {
    /// Its name in the directory of the group.
    pub(super) const NAME: &str = "addresses";

    /// Opens the directory within that of the group, or creates it.
    pub(super) fn open(group: BorrowedFd<'_>) -> io::Result<Self> {
        match rustix::fs::mkdirat(group, Self::NAME, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(group, Self::NAME, how, Mode::empty())?))
    }

    /// All addresses. What is in the directory besides is ignored.
    pub fn list(&self) -> io::Result<Vec<ListenAddress>> {
        let mut addresses = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            addresses.extend(name.parse::<ListenAddress>());
            if addresses.len() == ADDRESSES_MAX {
                break;
            }
        }
        Ok(addresses)
    }

    /// Opens the file of an address, or creates it.
    pub fn create(&self, address: ListenAddress) -> io::Result<AddressFile> {
        self.open_file(address, OFlags::CREATE)
    }

    /// Opens the file of an address.
    pub fn find(&self, address: ListenAddress) -> io::Result<AddressFile> {
        self.open_file(address, OFlags::empty())
    }

    fn open_file(&self, address: ListenAddress, how: OFlags) -> io::Result<AddressFile> {
        let how = how | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, address.to_string(), how, Mode::RUSR | Mode::WUSR)?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(AddressFile { address, file, identity: (stat.st_dev, stat.st_ino) })
    }

    /// Whether this is still the file of its address: it may have been removed.
    pub fn has(&self, file: &AddressFile) -> bool {
        let there = rustix::fs::statat(&self.0, file.address.to_string(), AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| (there.st_dev, there.st_ino) == file.identity)
    }

    /// Removes the addresses that no process has, when a group begins: its configuration may be
    /// another.
    pub(super) fn forget(&self) -> io::Result<()> {
        for address in self.list()? {
            let in_use = self.find(address).is_ok_and(|file| file.has_owner() || file.has_listener());
            if !in_use
                && let Err(error) = rustix::fs::unlinkat(&self.0, address.to_string(), AtFlags::empty())
            {
                tracing::warn!(%address, %error, "a note of an address that nobody has cannot be removed");
            }
        }
        Ok(())
    }
}

impl AddressFile {
    /// Makes this process the one whose address this is, unless another one is.
    pub fn try_own(&self) -> io::Result<bool> {
        members::try_lock(self.file.as_fd(), OWNER_LOCK)
    }

    /// Makes this process the one that listens, unless another one does.
    pub fn try_listen(&self) -> io::Result<bool> {
        members::try_lock(self.file.as_fd(), LISTENER_LOCK)
    }

    /// Leaves listening to others.
    pub fn stop_listening(&self) {
        members::unlock(self.file.as_fd(), LISTENER_LOCK);
    }

    /// Whether another process whose address this is lives. If the kernel cannot say, it may.
    pub fn has_owner(&self) -> bool {
        members::is_locked(self.file.as_fd(), OWNER_LOCK, 1).unwrap_or(true)
    }

    /// Whether another process listens, or is about to.
    pub fn has_listener(&self) -> bool {
        members::is_locked(self.file.as_fd(), LISTENER_LOCK, 1).unwrap_or(true)
    }

    /// Notes the name of the node, which has listened now.
    pub fn set_node(&self, name: &str) -> io::Result<()> {
        let mut line = name.as_bytes().get(..NODE_BYTES_MAX).unwrap_or(name.as_bytes()).to_vec();
        line.push(END);
        rustix::io::pwrite(&self.file, &line, 0)?;
        Ok(())
    }

    /// The name of the node; `None` if it has never listened.
    pub fn node(&self) -> Option<String> {
        let mut bytes = [0; NODE_BYTES_MAX + 1];
        let len = rustix::io::pread(&self.file, &mut bytes, 0).ok()?;
        let line = bytes.get(..len)?.split(|byte| *byte == END).next().filter(|_| len > 0)?;
        Some(String::from_utf8_lossy(line).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, AddressDirectory) {
        let group = tempfile::tempdir().unwrap();
        let opened = std::fs::File::open(group.path()).unwrap();
        let directory = AddressDirectory::open(opened.as_fd()).unwrap();
        (group, directory)
    }

    fn at(text: &str) -> ListenAddress {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_one_owner_and_one_listener_who_are_free_when_their_process_ends() {
        let (_group, directory) = directory();
        let address = at("10.0.0.1:2049");
        let owner = directory.create(address).unwrap();
        assert!(owner.try_own().unwrap() && owner.try_listen().unwrap());
        let [first, second] = [(); 2].map(|()| directory.find(address).unwrap());
        assert!(first.has_owner() && first.has_listener() && !first.try_listen().unwrap());
        assert!(!first.try_own().unwrap(), "it has an owner");
        drop(owner);
        assert!(!first.has_owner() && first.try_listen().unwrap());
        assert!(!second.try_listen().unwrap() && second.has_listener(), "one is enough");
        // Nobody sees the own locks as another's.
        assert!(!first.has_listener());
        first.stop_listening();
        assert!(second.try_listen().unwrap());
    }

    #[test]
    fn addresses_are_listed_with_their_transports_and_nothing_else_is() {
        let (group, directory) = directory();
        let addresses = ["10.0.0.1:2049", "[fd00::1]:2049", "rdma:10.0.0.1:20049"].map(at);
        for address in addresses {
            directory.create(address).unwrap();
        }
        std::fs::write(group.path().join("addresses/readme"), b"").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", group.path().join("addresses/10.0.0.9:1")).unwrap();
        let mut listed = directory.list().unwrap();
        listed.sort_by_key(ToString::to_string);
        let mut expected = [&addresses[..], &[at("10.0.0.9:1")]].concat();
        expected.sort_by_key(ToString::to_string);
        assert_eq!(listed, expected);
        assert!(directory.find(at("10.0.0.9:1")).is_err(), "a link is not followed");
        assert!(directory.find(at("10.0.0.2:2049")).is_err());
        std::fs::create_dir(group.path().join("addresses/10.0.0.8:1")).unwrap();
        assert!(directory.create(at("10.0.0.8:1")).is_err(), "no file");
    }

    #[test]
    fn a_node_is_named_once_it_has_listened() {
        let (group, directory) = directory();
        let file = directory.create(at("10.0.0.1:2049")).unwrap();
        assert_eq!(file.node(), None);
        file.set_node("first").unwrap();
        assert_eq!(file.node().unwrap(), "first");
        file.set_node("2").unwrap();
        assert_eq!(file.node().unwrap(), "2");
        file.set_node(&"n".repeat(1000)).unwrap();
        assert_eq!(file.node().unwrap().len(), NODE_BYTES_MAX);
        assert!(directory.has(&file));
        std::fs::remove_file(group.path().join("addresses/10.0.0.1:2049")).unwrap();
        assert!(!directory.has(&file), "it was removed");
        directory.create(at("10.0.0.1:2049")).unwrap();
        assert!(!directory.has(&file), "it was replaced");
    }

    #[test]
    fn a_group_that_begins_forgets_the_addresses_that_nobody_has() {
        let (_group, directory) = directory();
        let [kept, also, _gone] =
            ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"].map(|text| directory.create(at(text)).unwrap());
        assert!(kept.try_own().unwrap() && also.try_listen().unwrap());
        directory.forget().unwrap();
        let mut left = directory.list().unwrap();
        left.sort_by_key(ToString::to_string);
        assert_eq!(left, [at("10.0.0.1:1"), at("10.0.0.2:1")]);
    }
}
