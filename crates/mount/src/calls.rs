//! NFS calls as futures: arguments in, results or errno out.

use crate::attributes::usable;
use crate::buffers::Buffer;
use crate::caller::As;
use crate::core::Core;
use crate::errno;
use crate::files::OpenFile;
use crate::reads::Fresh;
use crate::write_ranges::Writing;
use client::{Answer, Done, FileRef, Op, Pipe};
use fuser::Errno;
use nfs3::proc::{access, create, fsstat, getattr, link, lookup, mkdir, mknod, readdir, readdirplus};
use nfs3::proc::{readlink, remove, rename, rmdir, setattr, symlink};
use nfs3::types::SetTime;
use nfs3::{Created, DirOpArgs, Fattr3, FileHandle, PostOpAttr, Procedure, Sattr3, Status, Verifier, Wire};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use xdr::{Reader, Writer};

/// What a directory page asks for: names and cookies, and all in all.
const DIRECTORY_BYTES: (u32, u32) = (16 << 10, 64 << 10);

/// The longest name of a directory that the kernel takes from FUSE. FUSE_NAME_MAX
const NAME_BYTES_MAX: usize = 1024;

/// A READ of so many bytes costs less than to hand it to another thread; longer ones are spread over all loops.
const DRIVER_READ_BYTES_MAX: usize = 16 << 10;

/// One name of a directory.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub name: Vec<u8>,
    /// Its number on the file system of the directory.
    pub fileid: u64,
    pub cookie: u64,
    pub attributes: PostOpAttr,
    pub handle: Option<FileHandle>,
}

/// A part of a directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    pub names: Vec<Name>,
    pub verifier: Verifier,
    pub eof: bool,
}

fn encode<'a>(args: &impl Wire<'a>) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(128);
    args.encode(&mut Writer::new(&mut encoded));
    encoded
}

/// Decodes results. What a failure carries besides its status is of no use here.
fn accept<'a, S: Wire<'a>>(procedure: Procedure, results: &'a [u8]) -> Result<S, Errno> {
    let mut reader = Reader::new(results);
    let decoded = match Status::decode(&mut reader) {
        Ok(Status::OK) => S::decode(&mut reader),
        Ok(status) => return Err(errno::of_status(status)),
        Err(error) => Err(error),
    };
    decoded.map_err(|error| {
        tracing::warn!(procedure = procedure.name(), %error, "the server's answer makes no sense");
        Errno::EIO
    })
}

fn is_bad_cookie(results: &[u8]) -> bool {
    Status::decode(&mut Reader::new(results)) == Ok(Status::BAD_COOKIE)
}

/// A name that the kernel takes in a directory. Where it refuses one it drops the names behind it too, and forgets none.
fn usable_name(name: &[u8]) -> Result<Vec<u8>, Errno> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        tracing::warn!(name = %name.escape_ascii(), "the server tells a name that no file can have");
        return Err(Errno::EIO);
    }
    Ok(name.to_vec())
}

fn place(directory: FileHandle, name: &[u8]) -> DirOpArgs<'_> {
    DirOpArgs { directory, name }
}

impl Core {
    async fn results(&self, caller: &As, procedure: Procedure, args: Vec<u8>) -> Result<Vec<u8>, Errno> {
        let done = self.mount.submit_to_driver(Op::Call { procedure, args }, caller.clone()).await;
        match done.result {
            Ok(Answer::Results(results)) => Ok(results),
            Ok(Answer::Read { .. } | Answer::Piped { .. } | Answer::Written) => Err(Errno::EIO),
            Err(error) => Err(errno::of_error(&error)),
        }
    }

    async fn call<S: for<'w> Wire<'w>>(
        &self,
        caller: &As,
        procedure: Procedure,
        args: Vec<u8>,
    ) -> Result<S, Errno> {
        accept(procedure, &self.results(caller, procedure, args).await?)
    }

    pub(crate) async fn call_getattr(&self, caller: &As, object: FileHandle) -> Result<Fattr3, Errno> {
        let args = encode(&getattr::Args { object });
        usable(self.call::<getattr::Success>(caller, Procedure::GetAttr, args).await?.attributes)
    }

    /// Which of the wished rights the server grants.
    pub(crate) async fn call_access(
        &self,
        caller: &As,
        object: FileHandle,
        wished: u32,
    ) -> Result<u32, Errno> {
        let args = encode(&access::Args { object, access: wished });
        Ok(self.call::<access::Success>(caller, Procedure::Access, args).await?.access)
    }

    pub(crate) async fn call_setattr(
        &self,
        caller: &As,
        object: FileHandle,
        new: Sattr3,
    ) -> Result<PostOpAttr, Errno> {
        let args = encode(&setattr::Args { object, new_attributes: new, guard: None });
        let after = self.call::<setattr::Success>(caller, Procedure::SetAttr, args).await?.after;
        after.map(usable).transpose()
    }

    pub(crate) async fn call_lookup(
        &self,
        caller: &As,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(FileHandle, Fattr3), Errno> {
        let args = encode(&lookup::Args { what: place(directory, name) });
        let found = self.call::<lookup::Success>(caller, Procedure::Lookup, args).await?;
        self.whole(caller, found.object, found.attributes).await
    }

    /// A server need not send the attributes along.
    pub(crate) async fn whole(
        &self,
        caller: &As,
        handle: FileHandle,
        attributes: PostOpAttr,
    ) -> Result<(FileHandle, Fattr3), Errno> {
        match attributes {
            Some(attributes) => Ok((handle, usable(attributes)?)),
            None => Ok((handle, self.call_getattr(caller, handle).await?)),
        }
    }

    /// A server need not give the handle of what it made. RFC 1813 s3.3.8
    async fn handle_of(
        &self,
        caller: &As,
        at: (FileHandle, &[u8]),
        created: Created,
    ) -> Result<(FileHandle, Fattr3), Errno> {
        match created.object {
            Some(handle) => self.whole(caller, handle, created.attributes).await,
            None => self.call_lookup(caller, at.0, at.1).await,
        }
    }

    pub(crate) async fn call_create(
        &self,
        caller: &As,
        at: (FileHandle, &[u8]),
        how: create::How,
    ) -> Result<(FileHandle, Fattr3), Errno> {
        let args = encode(&create::Args { location: place(at.0, at.1), how });
        let created = self.call(caller, Procedure::Create, args).await?;
        self.handle_of(caller, at, created).await
    }

    /// CREATE that makes the file exactly once, however often it is sent. Its verifier stands in the file's times
    /// until they are set. RFC 1813 s3.3.8
    pub(crate) async fn call_create_exclusive(
        &self,
        caller: &As,
        at: (FileHandle, &[u8]),
        verifier: Verifier,
        mode: u32,
    ) -> Result<(FileHandle, Fattr3), Errno> {
        let made = self.call_create(caller, at, create::How::Exclusive(verifier)).await;
        let attributes = Sattr3 { mode: Some(mode), ..Sattr3::default() };
        match made {
            Err(error) if error == Errno::EOPNOTSUPP => {
                self.call_create(caller, at, create::How::Guarded(attributes)).await
            }
            Err(error) => Err(error),
            Ok((handle, _)) => {
                let times = Sattr3 { atime: SetTime::ServerTime, mtime: SetTime::ServerTime, ..attributes };
                let after = self.call_setattr(caller, handle, times).await?;
                self.whole(caller, handle, after).await
            }
        }
    }

    pub(crate) async fn call_mkdir(
        &self,
        caller: &As,
        at: (FileHandle, &[u8]),
        attributes: Sattr3,
    ) -> Result<(FileHandle, Fattr3), Errno> {
        let args = encode(&mkdir::Args { location: place(at.0, at.1), attributes });
        let created = self.call(caller, Procedure::MkDir, args).await?;
        self.handle_of(caller, at, created).await
    }

    pub(crate) async fn call_symlink(
        &self,
        caller: &As,
        at: (FileHandle, &[u8]),
        target: &[u8],
    ) -> Result<(FileHandle, Fattr3), Errno> {
        let attributes = Sattr3 { mode: Some(0o777), ..Sattr3::default() };
        let args = encode(&symlink::Args { location: place(at.0, at.1), attributes, target });
        let created = self.call(caller, Procedure::SymLink, args).await?;
        self.handle_of(caller, at, created).await
    }

    pub(crate) async fn call_mknod(
        &self,
        caller: &As,
        at: (FileHandle, &[u8]),
        what: mknod::What,
    ) -> Result<(FileHandle, Fattr3), Errno> {
        let args = encode(&mknod::Args { location: place(at.0, at.1), what });
        let created = self.call(caller, Procedure::MkNod, args).await?;
        self.handle_of(caller, at, created).await
    }

    pub(crate) async fn call_readlink(&self, caller: &As, symlink: FileHandle) -> Result<Vec<u8>, Errno> {
        let args = encode(&readlink::Args { symlink });
        let results = self.results(caller, Procedure::ReadLink, args).await?;
        Ok(accept::<readlink::Success<'_>>(Procedure::ReadLink, &results)?.target.to_vec())
    }

    pub(crate) async fn call_remove(
        &self,
        caller: &As,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(), Errno> {
        let args = encode(&remove::Args { object: place(directory, name) });
        self.call::<remove::Success>(caller, Procedure::Remove, args).await.map(|_| ())
    }

    pub(crate) async fn call_rmdir(
        &self,
        caller: &As,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(), Errno> {
        let args = encode(&rmdir::Args { object: place(directory, name) });
        self.call::<rmdir::Success>(caller, Procedure::RmDir, args).await.map(|_| ())
    }

    pub(crate) async fn call_rename(
        &self,
        caller: &As,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
    ) -> Result<(), Errno> {
        let args = encode(&rename::Args { from: place(from.0, from.1), to: place(to.0, to.1) });
        self.call::<rename::Success>(caller, Procedure::Rename, args).await.map(|_| ())
    }

    pub(crate) async fn call_link(
        &self,
        caller: &As,
        file: FileHandle,
        at: (FileHandle, &[u8]),
    ) -> Result<PostOpAttr, Errno> {
        let args = encode(&link::Args { file, link: place(at.0, at.1) });
        Ok(self.call::<link::Success>(caller, Procedure::Link, args).await?.attributes)
    }

    pub(crate) async fn call_fsstat(&self, caller: &As) -> Result<fsstat::Success, Errno> {
        let args = encode(&fsstat::Args { root: self.mount.root() });
        self.call(caller, Procedure::FsStat, args).await
    }

    /// A page of a directory, with attributes and handles if `plus`; none where the server refuses the cookie.
    pub(crate) async fn call_readdir(
        &self,
        caller: &As,
        directory: FileHandle,
        from: (u64, Verifier),
        plus: bool,
    ) -> Result<Option<Page>, Errno> {
        let (cookie, verifier) = from;
        let (dircount, maxcount) = DIRECTORY_BYTES;
        if plus {
            let args = encode(&readdirplus::Args { directory, cookie, verifier, dircount, maxcount });
            let results = self.results(caller, Procedure::ReadDirPlus, args).await?;
            if is_bad_cookie(&results) {
                return Ok(None);
            }
            let page = accept::<readdirplus::Success<'_>>(Procedure::ReadDirPlus, &results)?;
            let names = page.entries.iter().map(|entry| {
                let (cookie, handle) = (entry.cookie, entry.handle);
                let attributes = entry.attributes.map(usable).transpose()?;
                Ok(Name { name: usable_name(entry.name)?, fileid: entry.fileid, cookie, attributes, handle })
            });
            let names = names.collect::<Result<_, Errno>>()?;
            Ok(Some(Page { names, verifier: page.verifier, eof: page.eof }))
        } else {
            let args = encode(&readdir::Args { directory, cookie, verifier, count: maxcount });
            let results = self.results(caller, Procedure::ReadDir, args).await?;
            if is_bad_cookie(&results) {
                return Ok(None);
            }
            let page = accept::<readdir::Success<'_>>(Procedure::ReadDir, &results)?;
            let names = page.entries.iter().map(|entry| {
                let (name, fileid, cookie) = (usable_name(entry.name)?, entry.fileid, entry.cookie);
                Ok(Name { name, fileid, cookie, attributes: None, handle: None })
            });
            let names = names.collect::<Result<_, Errno>>()?;
            Ok(Some(Page { names, verifier: page.verifier, eof: page.eof }))
        }
    }

    /// One READ: the bytes that there are, and whether the file ends with them.
    pub(crate) async fn call_read(
        &self,
        caller: &As,
        file: FileRef,
        offset: u64,
        len: usize,
    ) -> Result<(Buffer, bool), Errno> {
        let buffer = self.buffers.take(len);
        let (op, caller) = (Op::Read { file, offset, buffer }, caller.clone());
        let done = if len <= DRIVER_READ_BYTES_MAX {
            self.mount.submit_to_driver(op, caller).await
        } else {
            self.mount.submit_as(op, caller).await
        };
        match self.answer_of_read(done)? {
            (Fresh::Memory(buffer), eof) => Ok((buffer, eof)),
            (Fresh::Pipe(_), _) => Err(Errno::EIO),
        }
    }

    /// One READ whose bytes stay in the kernel if they can, and whether the file ends with them.
    pub(crate) async fn call_read_piped(
        &self,
        caller: &As,
        file: FileRef,
        (offset, len): (u64, usize),
        pipe: Pipe,
    ) -> Result<(Fresh, bool), Errno> {
        let op = Op::ReadToPipe { file, offset, len, pipe };
        self.answer_of_read(self.mount.submit_as(op, caller.clone()).await)
    }

    fn answer_of_read(&self, done: Done) -> Result<(Fresh, bool), Errno> {
        let mut buffer = self.buffers.own(done.buffer);
        match done.result {
            Ok(Answer::Piped { pipe, eof }) => Ok((Fresh::Pipe(pipe), eof)),
            Ok(Answer::Read { count, eof }) => {
                buffer.truncate(count as usize);
                Ok((Fresh::Memory(buffer), eof))
            }
            Ok(Answer::Results(_) | Answer::Written) => Err(Errno::EIO),
            Err(error) => Err(errno::of_error(&error)),
        }
    }

    /// One WRITE that a program waits for: when it is done, the data are stable. A WRITE that is alone goes to the loop
    /// that the receiving thread drives.
    pub(crate) async fn call_write(
        &self,
        open: &OpenFile,
        offset: u64,
        buffer: Vec<u8>,
        writing: &Arc<Writing>,
    ) -> Result<(), Errno> {
        let (others, _counted) = UnderWay::count(&self.writes_under_way);
        let bytes = buffer.len();
        let (op, caller) = (Op::Write { file: open.file, offset, buffer }, open.caller.clone());
        let pending = match others {
            0 => self.mount.submit_to_driver(op, caller),
            _ => self.mount.submit_as(op, caller),
        };
        let done = self.charged(&open.inode, bytes, pending, writing).done().await;
        // Its memory is for the next one.
        drop(self.buffers.own(done.buffer));
        done.result.map(|_| ()).map_err(|error| errno::of_error(&error))
    }
}

/// One of those that are counted, until it is dropped, which it also is if whoever waited is killed.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    /// How many there are besides.
    fn count(all: &'a AtomicUsize) -> (usize, Self) {
        (all.fetch_add(1, Ordering::Relaxed), Self(all))
    }
}

impl Drop for UnderWay<'_> {
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
            assert_eq!(usable_name(name).ok().as_deref(), Some(name));
        }
        for name in [&b""[..], b"a/b", b"/", b"a\0", &[b'x'; NAME_BYTES_MAX + 1]] {
            assert!(usable_name(name).is_err(), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn what_is_under_way_is_counted_until_it_ends() {
        let all = AtomicUsize::new(0);
        let (others, first) = UnderWay::count(&all);
        assert_eq!(others, 0);
        let (others, second) = UnderWay::count(&all);
        assert_eq!(others, 1);
        drop(first);
        assert_eq!(UnderWay::count(&all).0, 1);
        drop(second);
        assert_eq!(UnderWay::count(&all).0, 0);
    }
}
