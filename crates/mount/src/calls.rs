//! The client's operations as the mount needs them: with results that the kernel accepts, and with
//! an errno if they fail.

use crate::attributes::usable;
use crate::buffers::Buffer;
use crate::caller::Credential;
use crate::core::Core;
use crate::errno;
use crate::files::OpenFile;
use crate::reads::ReadData;
use crate::write_ranges::WriteGuard;
use client::{Answer, Done, Error, FileRef, Op, Operations, Pipe};
use fs::{
    Attributes, CreateMode, DirectoryPage, DirectoryPosition, FileHandle, Rights, SetAttributes, Space,
    Special, Status, Verifier,
};
use fuser::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest name in a directory that the kernel accepts from FUSE. FUSE_NAME_MAX
const NAME_BYTES_MAX: usize = 1024;

/// A READ of at most this size costs less than handing it to another thread; longer READs are
/// spread over all loops.
const DRIVER_READ_BYTES_MAX: usize = 16 << 10;

/// The location of a name: its directory and the name itself.
pub(crate) type Location<'a> = (FileHandle, &'a [u8]);

/// The errno for a failed call. What makes no sense is logged.
pub(crate) fn errno_of(error: Error) -> Errno {
    if let Error::PeerMisbehaved { operation, reason } = &error {
        tracing::warn!(operation, reason, "the server's answer makes no sense");
    }
    errno::of_error(&error)
}

/// Checks that the kernel accepts the object's attributes.
fn checked(found: client::Result<(FileHandle, Attributes)>) -> Result<(FileHandle, Attributes), Errno> {
    let (handle, attributes) = found.map_err(errno_of)?;
    Ok((handle, usable(attributes)?))
}

fn checked_option(reported: client::Result<Option<Attributes>>) -> Result<Option<Attributes>, Errno> {
    reported.map_err(errno_of)?.map(usable).transpose()
}

/// Refuses a name that the kernel does not accept in a directory listing: the kernel would also
/// drop the names after it, and never forget their objects.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        tracing::warn!(name = %name.escape_ascii(), "the server has returned a name that no file can have");
        return Err(Errno::EIO);
    }
    Ok(())
}

impl Core {
    pub(crate) fn operations(&self, caller: &Credential) -> Operations<'_> {
        self.mount.operations(caller.clone())
    }

    pub(crate) async fn call_getattr(
        &self,
        caller: &Credential,
        object: FileHandle,
    ) -> Result<Attributes, Errno> {
        usable(self.operations(caller).getattr(object).await.map_err(errno_of)?)
    }

    /// Returns which of the requested rights the server grants.
    pub(crate) async fn call_access(
        &self,
        caller: &Credential,
        object: FileHandle,
        wanted: Rights,
    ) -> Result<Rights, Errno> {
        self.operations(caller).access(object, wanted).await.map_err(errno_of)
    }

    pub(crate) async fn call_setattr(
        &self,
        caller: &Credential,
        object: FileHandle,
        new: SetAttributes,
    ) -> Result<Option<Attributes>, Errno> {
        checked_option(self.operations(caller).setattr(object, new, None).await)
    }

    pub(crate) async fn call_lookup(
        &self,
        caller: &Credential,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(FileHandle, Attributes), Errno> {
        checked(self.operations(caller).lookup(directory, name).await)
    }

    pub(crate) async fn call_create(
        &self,
        caller: &Credential,
        at: Location<'_>,
        mode: CreateMode,
    ) -> Result<(FileHandle, Attributes), Errno> {
        checked(self.operations(caller).create(at, mode).await)
    }

    pub(crate) async fn call_create_exclusive(
        &self,
        caller: &Credential,
        at: Location<'_>,
        verifier: Verifier,
        mode: u32,
    ) -> Result<(FileHandle, Attributes), Errno> {
        checked(self.operations(caller).create_exclusive(at, verifier, mode).await)
    }

    pub(crate) async fn call_mkdir(
        &self,
        caller: &Credential,
        at: Location<'_>,
        new: SetAttributes,
    ) -> Result<(FileHandle, Attributes), Errno> {
        checked(self.operations(caller).mkdir(at, new).await)
    }

    pub(crate) async fn call_symlink(
        &self,
        caller: &Credential,
        at: Location<'_>,
        target: &[u8],
    ) -> Result<(FileHandle, Attributes), Errno> {
        checked(self.operations(caller).symlink(at, target).await)
    }

    pub(crate) async fn call_mknod(
        &self,
        caller: &Credential,
        at: Location<'_>,
        special: Special,
        new: SetAttributes,
    ) -> Result<(FileHandle, Attributes), Errno> {
        checked(self.operations(caller).mknod(at, special, new).await)
    }

    pub(crate) async fn call_readlink(
        &self,
        caller: &Credential,
        symlink: FileHandle,
    ) -> Result<Vec<u8>, Errno> {
        self.operations(caller).readlink(symlink).await.map_err(errno_of)
    }

    pub(crate) async fn call_remove(
        &self,
        caller: &Credential,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.operations(caller).remove(directory, name).await.map_err(errno_of)
    }

    pub(crate) async fn call_rmdir(
        &self,
        caller: &Credential,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.operations(caller).rmdir(directory, name).await.map_err(errno_of)
    }

    pub(crate) async fn call_rename(
        &self,
        caller: &Credential,
        from: Location<'_>,
        to: Location<'_>,
    ) -> Result<(), Errno> {
        self.operations(caller).rename(from, to).await.map_err(errno_of)
    }

    pub(crate) async fn call_link(
        &self,
        caller: &Credential,
        file: FileHandle,
        at: Location<'_>,
    ) -> Result<Option<Attributes>, Errno> {
        checked_option(self.operations(caller).link(file, at).await)
    }

    pub(crate) async fn call_statfs(&self, caller: &Credential) -> Result<Space, Errno> {
        self.operations(caller).statfs().await.map_err(errno_of)
    }

    /// Reads a page of a directory, with attributes and handles if `plus`. Returns `None` if the
    /// server refuses the cookie.
    pub(crate) async fn call_readdir(
        &self,
        caller: &Credential,
        directory: FileHandle,
        from: DirectoryPosition,
        plus: bool,
    ) -> Result<Option<DirectoryPage>, Errno> {
        let page = match self.operations(caller).read_directory(directory, from, plus).await {
            Err(Error::Status { status: Status::BadCookie, .. }) => return Ok(None),
            page => page.map_err(errno_of)?,
        };
        for entry in &page.entries {
            check_name(&entry.name)?;
            entry.attributes.map(usable).transpose()?;
        }
        Ok(Some(page))
    }

    /// Sends one READ. Returns the bytes read, and whether the file ends with them.
    pub(crate) async fn call_read(
        &self,
        caller: &Credential,
        file: FileRef,
        offset: u64,
        len: usize,
    ) -> Result<(Buffer, bool), Errno> {
        // Over RDMA the server writes into memory of the client.
        let buffer = self.mount.registrable_buffer(len).unwrap_or_else(|| self.buffers.take(len).into());
        let (op, caller) = (Op::Read { file, offset, buffer }, caller.clone());
        let done = if len <= DRIVER_READ_BYTES_MAX {
            self.mount.submit_to_driver(op, caller).await
        } else {
            self.mount.submit_as(op, caller).await
        };
        match self.answer_of_read(done)? {
            (ReadData::Memory(buffer), eof) => Ok((buffer, eof)),
            (ReadData::Pipe(_), _) => Err(Errno::EIO),
        }
    }

    /// Sends one READ whose bytes stay in the kernel if possible. Also returns whether the file
    /// ends with them.
    pub(crate) async fn call_read_piped(
        &self,
        caller: &Credential,
        file: FileRef,
        (offset, len): (u64, usize),
        pipe: Pipe,
    ) -> Result<(ReadData, bool), Errno> {
        let op = Op::ReadToPipe { file, offset, len, pipe };
        self.answer_of_read(self.mount.submit_as(op, caller.clone()).await)
    }

    fn answer_of_read(&self, done: Done) -> Result<(ReadData, bool), Errno> {
        let mut buffer = self.buffers.own(done.buffer);
        match done.result {
            Ok(Answer::Piped { pipe, eof }) => Ok((ReadData::Pipe(pipe), eof)),
            Ok(Answer::Read { count, eof }) => {
                buffer.truncate(count as usize);
                Ok((ReadData::Memory(buffer), eof))
            }
            Ok(Answer::Results(_) | Answer::Written) => Err(Errno::EIO),
            Err(error) => Err(errno::of_error(&error)),
        }
    }

    /// Sends one WRITE that a program waits for; on return the data are stable. A WRITE with no
    /// other under way goes to the loop that the receiving thread drives.
    pub(crate) async fn call_write(
        &self,
        open: &OpenFile,
        offset: u64,
        buffer: Vec<u8>,
        write_guard: &Arc<WriteGuard>,
    ) -> Result<(), Errno> {
        let (others, _counted) = InFlightGuard::count(&self.writes_in_flight);
        let bytes = buffer.len();
        let (op, caller) =
            (Op::Write { file: open.file, offset, buffer: buffer.into() }, open.caller.clone());
        let pending = match others {
            0 => self.mount.submit_to_driver(op, caller),
            _ => self.mount.submit_as(op, caller),
        };
        let done = self.charge(&open.inode, bytes, pending, write_guard).done().await;
        // Return the memory to the pool for the next request.
        drop(self.buffers.own(done.buffer));
        done.result.map(|_| ()).map_err(|error| errno::of_error(&error))
    }
}

/// Counts an operation as under way until dropped, which also happens if the waiting program is
/// killed.
struct InFlightGuard<'a>(&'a AtomicUsize);

impl<'a> InFlightGuard<'a> {
    /// Counts one more operation. Returns how many others are under way.
    fn count(all: &'a AtomicUsize) -> (usize, Self) {
        (all.fetch_add(1, Ordering::Relaxed), Self(all))
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_file_can_have_is_an_error() {
        for name in [&b"a"[..], b".", b"\xff\n", &[b'x'; NAME_BYTES_MAX]] {
            assert!(check_name(name).is_ok(), "{}", name.escape_ascii());
        }
        for name in [&b""[..], b"a/b", b"/", b"a\0", &[b'x'; NAME_BYTES_MAX + 1]] {
            assert!(check_name(name).is_err(), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn what_is_under_way_is_counted_until_it_ends() {
        let all = AtomicUsize::new(0);
        let (others, first) = InFlightGuard::count(&all);
        assert_eq!(others, 0);
        let (others, second) = InFlightGuard::count(&all);
        assert_eq!(others, 1);
        drop(first);
        assert_eq!(InFlightGuard::count(&all).0, 1);
        drop(second);
        assert_eq!(InFlightGuard::count(&all).0, 0);
    }
}
