//! Names: looking up, making, removing, renaming and linking.
//!
//! NFS version 3 does not know which files are open. So a file that is removed or replaced while it
//! is open here is renamed to `.nfs` and digits in the same directory, and removed when its last
//! handle is closed ("silly rename").

use crate::attributes::split_device;
use crate::caller::Credential;
use crate::calls::Location;
use crate::core::Core;
use crate::inode::{Inode, SillyName};
use crate::kernel::Entry;
use client::options::LookupCache;
use fs::{Attributes, CreateMode, FileHandle, FileKind, SetAttributes, Special};
use fuser::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum Lookup {
    Found(Box<Entry>),
    /// There is no such name, which the kernel may cache for this time.
    Nothing(Duration),
}

fn mode_of(mode: u32) -> SetAttributes {
    SetAttributes::mode(mode & 0o7777)
}

/// Checks that an object that the server has made is of the type that was asked for. The kernel
/// refuses an object of another type, and never forgets it.
fn of_kind(created: (FileHandle, Attributes), wanted: FileKind) -> Result<(FileHandle, Attributes), Errno> {
    let found = created.1.kind;
    if found != wanted {
        tracing::warn!(?wanted, ?found, "the server has created an object of another type");
        return Err(Errno::EIO);
    }
    Ok(created)
}

impl Core {
    pub(crate) async fn lookup(
        &self,
        caller: Credential,
        parent: Arc<Inode>,
        name: Vec<u8>,
    ) -> Result<Lookup, Errno> {
        match self.call_lookup(&caller, parent.handle, &name).await {
            Ok((handle, attributes)) => {
                Ok(Lookup::Found(Box::new(self.entry(&parent, handle, &attributes).0)))
            }
            Err(error) if error == Errno::ENOENT && self.policy.lookup_cache == LookupCache::All => {
                let ttl = self.name_ttl(&parent);
                if ttl.is_zero() { Err(error) } else { Ok(Lookup::Nothing(ttl)) }
            }
            Err(error) => Err(error),
        }
    }

    /// open(2) with O_CREAT. With O_EXCL the file is created here, once, or not at all.
    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: Credential,
        parent: Arc<Inode>,
        name: Vec<u8>,
        mode: u32,
        flags: i32,
    ) -> Result<(Box<Entry>, u64), Errno> {
        let at = (parent.handle, name.as_slice());
        let exclusive = flags & libc::O_EXCL != 0;
        let created = if exclusive {
            self.call_create_exclusive(&caller, at, self.verifier(), mode & 0o7777).await
        } else {
            self.call_create(&caller, at, CreateMode::Guarded(mode_of(mode))).await
        };
        parent.changed();
        match created {
            Ok(created) => {
                let (handle, attributes) = of_kind(created, FileKind::Regular)?;
                let (entry, inode) = self.entry(&parent, handle, &attributes);
                let number = self.new_handle(caller, inode, flags);
                Ok((Box::new(entry), number))
            }
            // Another client was first, which is an error only with O_EXCL.
            Err(error) if error == Errno::EEXIST && !exclusive => {
                let (handle, attributes) = self.call_lookup(&caller, parent.handle, &name).await?;
                if attributes.kind != FileKind::Regular {
                    // The kernel looks the name up again, and opens the object as what it is.
                    return Err(Errno::ESTALE);
                }
                let (entry, inode) = self.entry(&parent, handle, &attributes);
                let opened = self.open(caller.clone(), Arc::clone(&inode), flags).await;
                let number = match opened {
                    Ok((number, _)) => number,
                    Err(error) => {
                        self.inodes.forget(inode.ino, 1);
                        return Err(error);
                    }
                };
                if flags & libc::O_TRUNC != 0 {
                    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
                    if let Err(error) = self.set_attributes(&caller, &inode, cut).await {
                        self.release(number, None).await;
                        self.inodes.forget(inode.ino, 1);
                        return Err(error);
                    }
                }
                Ok((Box::new(entry), number))
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn mkdir(
        &self,
        caller: Credential,
        parent: Arc<Inode>,
        name: Vec<u8>,
        mode: u32,
    ) -> Result<Box<Entry>, Errno> {
        let created = self.call_mkdir(&caller, (parent.handle, &name), mode_of(mode)).await;
        self.entry_of_new(&parent, created, FileKind::Directory)
    }

    pub(crate) async fn symlink(
        &self,
        caller: Credential,
        parent: Arc<Inode>,
        name: Vec<u8>,
        target: Vec<u8>,
    ) -> Result<Box<Entry>, Errno> {
        let created = self.call_symlink(&caller, (parent.handle, &name), &target).await;
        self.entry_of_new(&parent, created, FileKind::Symlink)
    }

    pub(crate) async fn mknod(
        &self,
        caller: Credential,
        parent: Arc<Inode>,
        name: Vec<u8>,
        mode: u32,
        device: u32,
    ) -> Result<Box<Entry>, Errno> {
        let (at, attributes, device) =
            ((parent.handle, name.as_slice()), mode_of(mode), split_device(device));
        let special = match mode & libc::S_IFMT {
            libc::S_IFREG | 0 => {
                let created = self.call_create(&caller, at, CreateMode::Guarded(attributes)).await;
                return self.entry_of_new(&parent, created, FileKind::Regular);
            }
            libc::S_IFCHR => Special::CharacterDevice(device),
            libc::S_IFBLK => Special::BlockDevice(device),
            libc::S_IFIFO => Special::Fifo,
            libc::S_IFSOCK => Special::Socket,
            _ => return Err(Errno::EINVAL),
        };
        let created = self.call_mknod(&caller, at, special, attributes).await;
        self.entry_of_new(&parent, created, special.kind())
    }

    fn entry_of_new(
        &self,
        parent: &Inode,
        created: Result<(FileHandle, Attributes), Errno>,
        kind: FileKind,
    ) -> Result<Box<Entry>, Errno> {
        parent.changed();
        let (handle, attributes) = of_kind(created?, kind)?;
        Ok(Box::new(self.entry(parent, handle, &attributes).0))
    }

    pub(crate) async fn link(
        self: &Arc<Self>,
        caller: Credential,
        inode: Arc<Inode>,
        parent: Arc<Inode>,
        name: Vec<u8>,
    ) -> Result<Box<Entry>, Errno> {
        self.flush(&inode).await;
        let linked = self.call_link(&caller, inode.handle, (parent.handle, &name)).await;
        inode.changed();
        parent.changed();
        let attributes = match linked? {
            Some(attributes) => attributes,
            None => self.call_getattr(&caller, inode.handle).await?,
        };
        let (handle, attributes) = of_kind((inode.handle, attributes), inode.kind)?;
        Ok(Box::new(self.entry(&parent, handle, &attributes).0))
    }

    pub(crate) async fn unlink(
        self: &Arc<Self>,
        caller: Credential,
        parent: Arc<Inode>,
        name: Vec<u8>,
    ) -> Result<(), Errno> {
        self.give_up_delegation_of(&caller, (parent.handle, &name)).await;
        let Some(inode) = self.find_open(&caller, &parent, &name).await? else {
            let outcome = self.call_remove(&caller, parent.handle, &name).await;
            parent.changed();
            return outcome;
        };
        let core = Arc::clone(self);
        self.run_to_completion(async move {
            let silly = core.new_silly_name(caller, &inode, &parent);
            let outcome = core.rename_open(&inode, &silly.caller, (parent.handle, &name), silly.at()).await;
            if outcome.is_ok() {
                core.keep_silly_name(&inode, silly).await;
            }
            inode.changed();
            parent.changed();
            outcome
        })
        .await
    }

    pub(crate) async fn rmdir(
        &self,
        caller: Credential,
        parent: Arc<Inode>,
        name: Vec<u8>,
    ) -> Result<(), Errno> {
        // Asked before the call: a name that the call finds may be gone when it returns.
        let may_hold_silly_names = !self.silly_names.is_empty();
        let mut outcome = self.call_rmdir(&caller, parent.handle, &name).await;
        if matches!(outcome, Err(Errno::ENOTEMPTY | Errno::EEXIST))
            && may_hold_silly_names
            && let Ok((directory, _)) = self.call_lookup(&caller, parent.handle, &name).await
        {
            self.silly_names.wait_for_removals(directory).await;
            outcome = self.call_rmdir(&caller, parent.handle, &name).await;
        }
        parent.changed();
        outcome
    }

    pub(crate) async fn rename(
        self: &Arc<Self>,
        caller: Credential,
        from: (Arc<Inode>, Vec<u8>),
        to: (Arc<Inode>, Vec<u8>),
    ) -> Result<(), Errno> {
        for (directory, name) in [&from, &to] {
            self.give_up_delegation_of(&caller, (directory.handle, name)).await;
        }
        if let Some(inode) = self.find_open(&caller, &to.0, &to.1).await? {
            let source = self.call_lookup(&caller, from.0.handle, &from.1).await?.0;
            if source != inode.handle {
                let core = Arc::clone(self);
                return self
                    .run_to_completion(async move {
                        let names = ((from.0.handle, from.1.as_slice()), (to.0.handle, to.1.as_slice()));
                        let silly = core.new_silly_name(caller, &inode, &to.0);
                        let outcome = core.rename_over_open(&inode, source, names, silly).await;
                        inode.changed();
                        from.0.changed();
                        to.0.changed();
                        outcome
                    })
                    .await;
            }
        }
        let outcome = self.call_rename(&caller, (from.0.handle, &from.1), (to.0.handle, &to.1)).await;
        from.0.changed();
        to.0.changed();
        outcome
    }

    /// Runs work to completion, even if the program that asked for it is killed: it must not be
    /// left half done.
    pub(crate) async fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Errno>> + Send + 'static,
    ) -> Result<T, Errno> {
        // A task that has panicked has no output. The panic was logged.
        self.executor.detach_short(work).await.unwrap_or(Err(Errno::EIO))
    }

    /// The file with a name, if it is open here and has no other name.
    async fn find_open(
        &self,
        caller: &Credential,
        parent: &Inode,
        name: &[u8],
    ) -> Result<Option<Arc<Inode>>, Errno> {
        if self.open_files.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let (handle, attributes) = match self.call_lookup(caller, parent.handle, name).await {
            Ok(found) => found,
            Err(error) if error == Errno::ENOENT => return Ok(None),
            Err(error) => return Err(error),
        };
        let inode = self.inodes.peek(handle, &attributes);
        Ok(inode.filter(|inode| {
            let links = attributes.nlink;
            inode.kind == FileKind::Regular && links <= 1 && inode.is_open()
        }))
    }

    /// A new name for an open file that is removed or replaced.
    fn new_silly_name(&self, caller: Credential, inode: &Inode, parent: &Inode) -> SillyName {
        let name = format!(".nfs{:016x}{:08x}", inode.ino, self.next_unique() as u32).into_bytes();
        SillyName { directory: parent.handle, name, caller }
    }

    /// Renames over an open file. The file gets its silly name, or keeps its name if the rename
    /// fails. The silly name is recorded only after the rename: the last close would remove it.
    async fn rename_over_open(
        &self,
        inode: &Arc<Inode>,
        source: FileHandle,
        (from, to): (Location<'_>, Location<'_>),
        silly: SillyName,
    ) -> Result<(), Errno> {
        let preserved = self.preserve(inode, to, &silly).await?;
        let outcome = self.call_rename(&silly.caller, from, to).await;
        match outcome {
            Ok(()) => self.keep_silly_name(inode, silly).await,
            Err(error) => self.undo_preserve(inode, (source, error), (to, preserved), silly).await,
        }
        outcome
    }

    /// Gives an open file that is about to lose its name another name. With a second link the old
    /// name exists at every moment. Without one it is absent until the rename.
    async fn preserve(
        &self,
        inode: &Arc<Inode>,
        at: Location<'_>,
        silly: &SillyName,
    ) -> Result<Preserved, Errno> {
        match self.call_link(&silly.caller, inode.handle, silly.at()).await {
            Ok(_) => Ok(Preserved::ByLink),
            // The link was made, and the call was sent again on another path. No other client uses
            // such a name.
            Err(error) if error == Errno::EEXIST && self.is_at(inode, &silly.caller, silly.at()).await => {
                Ok(Preserved::ByLink)
            }
            Err(error) if refuses_links(error) => {
                self.rename_open(inode, &silly.caller, at, silly.at()).await.map(|()| Preserved::ByRename)
            }
            Err(error) => Err(error),
        }
    }

    /// Undoes [`Self::preserve`] after the rename has failed: the file has its old name again, and
    /// no other.
    async fn undo_preserve(
        &self,
        inode: &Arc<Inode>,
        (source, error): (FileHandle, Errno),
        (at, preserved): (Location<'_>, Preserved),
        silly: SillyName,
    ) {
        let found = self.call_lookup(&silly.caller, at.0, at.1).await.map(|(handle, _)| handle);
        let still_there = found.is_ok_and(|handle| handle == inode.handle);
        match preserved {
            // A rename that timed out may still be executed, and then the second link is needed.
            Preserved::ByLink if still_there && error != Errno::ETIMEDOUT => {
                self.remove_silly_name(&silly).await
            }
            // Another file may have the old name by now. Then the second link may be the last.
            Preserved::ByLink => self.keep_silly_name(inode, silly).await,
            // The rename was done, and the call was sent again on another path.
            Preserved::ByRename if found.is_ok_and(|handle| handle == source) => {
                self.keep_silly_name(inode, silly).await
            }
            Preserved::ByRename => {
                // Between the lookup and this RENAME another client may give the name to another
                // file, which would be replaced: NFS version 3 has no rename that leaves it alone.
                let back = match found {
                    Err(Errno::ENOENT) => self.rename_open(inode, &silly.caller, silly.at(), at).await,
                    Ok(_) => Err(Errno::EEXIST),
                    Err(error) => Err(error),
                };
                if let Err(error) = back {
                    let [name, kept_as] =
                        [at.1, &silly.name].map(|name| String::from_utf8_lossy(name).into_owned());
                    tracing::error!(
                        name,
                        kept_as,
                        errno = error.code(),
                        "a file that was to be replaced did not get its name back, and stays under another name"
                    );
                }
            }
        }
    }

    /// Renames an open file from or to a name that no other client uses.
    async fn rename_open(
        &self,
        inode: &Inode,
        caller: &Credential,
        from: Location<'_>,
        to: Location<'_>,
    ) -> Result<(), Errno> {
        match self.call_rename(caller, from, to).await {
            // The rename was done, and the call was sent again on another path.
            Err(error) if error == Errno::ENOENT && self.is_at(inode, caller, to).await => Ok(()),
            outcome => outcome,
        }
    }

    async fn is_at(&self, inode: &Inode, caller: &Credential, at: Location<'_>) -> bool {
        self.call_lookup(caller, at.0, at.1).await.is_ok_and(|(handle, _)| handle == inode.handle)
    }

    /// A file has lost its name, and has another one for as long as it is open.
    async fn keep_silly_name(&self, inode: &Inode, silly: SillyName) {
        self.silly_names.add(silly.directory, &silly.name);
        let closed = {
            let mut state = inode.lock();
            if state.is_open() {
                state.silly_name = Some(silly.clone());
            }
            !state.is_open()
        };
        if closed {
            // It was closed meanwhile, so no close will remove it.
            self.silly_names.closed(silly.directory, &silly.name);
            self.remove_silly_name(&silly).await;
            self.silly_names.forget(silly.directory, &silly.name);
        }
    }

    async fn remove_silly_name(&self, silly: &SillyName) {
        if let Err(error) = self.call_remove(&silly.caller, silly.directory, &silly.name).await {
            let name = String::from_utf8_lossy(&silly.name).into_owned();
            tracing::warn!(name, errno = error.code(), "the second name of an open file stays on the server");
        }
    }
}

impl SillyName {
    fn at(&self) -> Location<'_> {
        (self.directory, &self.name)
    }
}

/// How an open file that is renamed over got its other name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preserved {
    /// By a second link: it has both names.
    ByLink,
    /// By a rename: it has lost the old name.
    ByRename,
}

/// Whether a LINK was refused because such a link cannot exist, while a rename may work. Anything
/// else that makes LINK fail, such as a full or a broken disk, makes the rename fail too.
fn refuses_links(error: Errno) -> bool {
    [
        // The server has no hard links.
        Errno::EOPNOTSUPP,
        // The server's file system has no hard links, or Linux protects files of other users from
        // them (fs.protected_hardlinks).
        Errno::EPERM,
        // link(2) may need rights to the file that rename(2) does not need. This is also the error
        // if the server does not implement LINK at all.
        Errno::EACCES,
        Errno::EMLINK,
        // The file belongs to another project, or to another volume below the directory.
        Errno::EXDEV,
    ]
    .contains(&error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::of_status;
    use fs::Status;

    #[test]
    fn an_open_file_is_renamed_only_if_the_server_refuses_links() {
        let refusing: Vec<_> =
            Status::ALL.iter().copied().filter(|status| refuses_links(of_status(*status))).collect();
        let expected = vec![
            Status::NotPermitted,
            Status::Access,
            Status::CrossDevice,
            Status::TooManyLinks,
            Status::NotSupported,
            // No server answers LINK with this.
            Status::BadType,
        ];
        assert_eq!(refusing, expected);
    }
}
