//! Names: looking up, making, removing, renaming, linking.
//!
//! A file that is removed or renamed over while it is open here lives on under a name `.nfs` and digits in the same
//! directory, until its last handle is closed: NFS version 3 has no open files.

use crate::attributes::split_device;
use crate::caller::As;
use crate::core::Core;
use crate::inode::{Hidden, Inode};
use crate::kernel::Entry;
use client::options::LookupCache;
use fuser::Errno;
use nfs3::proc::{create::How, mknod::What};
use nfs3::{Fattr3, FileHandle, FileType, Sattr3};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a lookup found.
#[derive(Debug)]
pub(crate) enum Lookup {
    Found(Box<Entry>),
    /// There is no such name, and that may be believed for a time.
    Nothing(Duration),
}

fn mode_of(mode: u32) -> Sattr3 {
    Sattr3 { mode: Some(mode & 0o7777), ..Sattr3::default() }
}

/// What a server says it has made, if it is of the type that was asked for. The kernel refuses what is of another, and
/// does not forget it.
fn of_type(made: (FileHandle, Fattr3), wanted: FileType) -> Result<(FileHandle, Fattr3), Errno> {
    let found = made.1.file_type;
    if found != wanted {
        tracing::warn!(?wanted, ?found, "the server has made something else than it was asked for");
        return Err(Errno::EIO);
    }
    Ok(made)
}

impl Core {
    pub(crate) async fn lookup(
        &self,
        caller: As,
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

    /// open(2) with O_CREAT. With O_EXCL the file is made here, once, or not at all.
    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: As,
        parent: Arc<Inode>,
        name: Vec<u8>,
        mode: u32,
        flags: i32,
    ) -> Result<(Box<Entry>, u64), Errno> {
        let at = (parent.handle, name.as_slice());
        let exclusive = flags & libc::O_EXCL != 0;
        let made = if exclusive {
            self.call_create_exclusive(&caller, at, self.verifier(), mode & 0o7777).await
        } else {
            self.call_create(&caller, at, How::Guarded(mode_of(mode))).await
        };
        parent.changed();
        match made {
            Ok(made) => {
                let (handle, attributes) = of_type(made, FileType::Regular)?;
                let (entry, inode) = self.entry(&parent, handle, &attributes);
                let number = self.hold(caller, inode, flags);
                Ok((Box::new(entry), number))
            }
            // Somebody else was first, which is fine without O_EXCL.
            Err(error) if error == Errno::EEXIST && !exclusive => {
                let (handle, attributes) = self.call_lookup(&caller, parent.handle, &name).await?;
                if attributes.file_type != FileType::Regular {
                    // The kernel looks it up and opens it as what it is.
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
                    let cut = Sattr3 { size: Some(0), ..Sattr3::default() };
                    if let Err(error) = self.set_attributes(&caller, &inode, cut).await {
                        self.release(number).await;
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
        caller: As,
        parent: Arc<Inode>,
        name: Vec<u8>,
        mode: u32,
    ) -> Result<Box<Entry>, Errno> {
        let made = self.call_mkdir(&caller, (parent.handle, &name), mode_of(mode)).await;
        self.made(&parent, made, FileType::Directory)
    }

    pub(crate) async fn symlink(
        &self,
        caller: As,
        parent: Arc<Inode>,
        name: Vec<u8>,
        target: Vec<u8>,
    ) -> Result<Box<Entry>, Errno> {
        let made = self.call_symlink(&caller, (parent.handle, &name), &target).await;
        self.made(&parent, made, FileType::Symlink)
    }

    pub(crate) async fn mknod(
        &self,
        caller: As,
        parent: Arc<Inode>,
        name: Vec<u8>,
        mode: u32,
        device: u32,
    ) -> Result<Box<Entry>, Errno> {
        let (at, attributes, device) =
            ((parent.handle, name.as_slice()), mode_of(mode), split_device(device));
        let (what, file_type) = match mode & libc::S_IFMT {
            libc::S_IFREG | 0 => {
                let made = self.call_create(&caller, at, How::Guarded(attributes)).await;
                return self.made(&parent, made, FileType::Regular);
            }
            libc::S_IFCHR => (What::CharacterDevice(attributes, device), FileType::CharacterDevice),
            libc::S_IFBLK => (What::BlockDevice(attributes, device), FileType::BlockDevice),
            libc::S_IFIFO => (What::Fifo(attributes), FileType::Fifo),
            libc::S_IFSOCK => (What::Socket(attributes), FileType::Socket),
            _ => return Err(Errno::EINVAL),
        };
        let made = self.call_mknod(&caller, at, what).await;
        self.made(&parent, made, file_type)
    }

    fn made(
        &self,
        parent: &Inode,
        made: Result<(FileHandle, Fattr3), Errno>,
        file_type: FileType,
    ) -> Result<Box<Entry>, Errno> {
        parent.changed();
        let (handle, attributes) = of_type(made?, file_type)?;
        Ok(Box::new(self.entry(parent, handle, &attributes).0))
    }

    pub(crate) async fn link(
        self: &Arc<Self>,
        caller: As,
        inode: Arc<Inode>,
        parent: Arc<Inode>,
        name: Vec<u8>,
    ) -> Result<Box<Entry>, Errno> {
        self.flush(&inode).await;
        let linked = self.call_link(&caller, inode.handle, (parent.handle, &name)).await;
        inode.changed();
        parent.changed();
        let whole = self.whole(&caller, inode.handle, linked?).await?;
        let (handle, attributes) = of_type(whole, inode.file_type)?;
        Ok(Box::new(self.entry(&parent, handle, &attributes).0))
    }

    pub(crate) async fn unlink(&self, caller: As, parent: Arc<Inode>, name: Vec<u8>) -> Result<(), Errno> {
        let open = self.open_under(&caller, &parent, &name).await?;
        let outcome = match &open {
            Some(inode) => self.hide(&caller, inode, &parent, &name, Hiding::Move).await,
            None => self.call_remove(&caller, parent.handle, &name).await,
        };
        parent.changed();
        outcome
    }

    pub(crate) async fn rmdir(&self, caller: As, parent: Arc<Inode>, name: Vec<u8>) -> Result<(), Errno> {
        let outcome = self.call_rmdir(&caller, parent.handle, &name).await;
        parent.changed();
        outcome
    }

    pub(crate) async fn rename(
        self: &Arc<Self>,
        caller: As,
        from: (Arc<Inode>, Vec<u8>),
        to: (Arc<Inode>, Vec<u8>),
    ) -> Result<(), Errno> {
        // What is renamed over and open lives on under a second name, so that there is always a file of that name.
        if let Some(inode) = self.open_under(&caller, &to.0, &to.1).await? {
            let source = self.call_lookup(&caller, from.0.handle, &from.1).await?;
            if source.0 != inode.handle {
                self.hide(&caller, &inode, &to.0, &to.1, Hiding::Link).await?;
            }
        }
        let outcome = self.call_rename(&caller, (from.0.handle, &from.1), (to.0.handle, &to.1)).await;
        from.0.changed();
        to.0.changed();
        outcome
    }

    /// The file of a name, if it is open here and would be gone without that name.
    async fn open_under(
        &self,
        caller: &As,
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
            inode.file_type == FileType::Regular && links <= 1 && inode.is_open()
        }))
    }

    /// Gives an open file a name to live on under.
    async fn hide(
        &self,
        caller: &As,
        inode: &Arc<Inode>,
        parent: &Inode,
        name: &[u8],
        how: Hiding,
    ) -> Result<(), Errno> {
        let hidden = format!(".nfs{:016x}{:08x}", inode.ino, self.next_unique() as u32).into_bytes();
        let (old, new) = ((parent.handle, name), (parent.handle, hidden.as_slice()));
        let linked = match how {
            Hiding::Move => Err(Errno::EOPNOTSUPP),
            Hiding::Link => self.call_link(caller, inode.handle, new).await.map(|_| ()),
        };
        match linked {
            Ok(()) => {}
            // Not every server has hard links, or allows them to everybody.
            Err(_) => self.call_rename(caller, old, new).await?,
        }
        inode.changed();
        let place = Hidden { directory: parent.handle, name: hidden, caller: caller.clone() };
        let closed = {
            let mut state = inode.lock();
            if state.is_open() {
                state.hidden = Some(place.clone());
            }
            !state.is_open()
        };
        if !closed {
            return Ok(());
        }
        // Closed meanwhile: nobody would remove it any more.
        self.call_remove(&place.caller, place.directory, &place.name).await
    }
}

/// How an open file gets its other name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hiding {
    /// Its old name is to be gone.
    Move,
    /// Its old name is about to be another file's.
    Link,
}
