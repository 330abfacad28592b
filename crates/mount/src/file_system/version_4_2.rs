//! The requests that only NFS version 4.2 can serve: extended attributes, holes, reserved storage
//! and copies on the server.
//!
//! With another version the answer is ENOSYS, after which the kernel sends no more of them and
//! does what it can without.

use super::FileSystem;
use crate::copying::CopyRange;
use crate::interrupts::EndsWith;
use crate::kernel::{Extension, Head, Reply};
use crate::space::SpaceChange;
use crate::unsupported::NOT_SUPPORTED;
use crate::xattrs::{Asked, how_to_set, wire_name, wire_name_to_read};
use client::Sought;
use fuser::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl FileSystem {
    pub(super) fn extension(&self, head: &Head, reply: Reply, extension: Extension<'_>) {
        if !self.core.mount.protocol().has_version_4_2() {
            return reply.error(Errno::ENOSYS);
        }
        match extension {
            Extension::GetXattr { name, room } => self.get_xattr(head, reply, name, room),
            Extension::ListXattrs { room } => self.list_xattrs(head, reply, room),
            Extension::SetXattr { name, value, flags } => {
                let how = how_to_set(flags).map(|how| Some((value.to_vec(), how)));
                self.change_xattr(head, reply, name, how);
            }
            Extension::RemoveXattr { name } => self.change_xattr(head, reply, name, Ok(None)),
            Extension::Seek { handle, offset, whence } => self.seek(head, reply, (handle, offset), whence),
            Extension::Allocate { handle, offset, length, mode } => {
                self.allocate(head, reply, (handle, offset, length), mode);
            }
            Extension::Copy { range, flags: 0, is_long } => self.copy(head, reply, range, is_long),
            Extension::Copy { .. } => reply.error(Errno::EINVAL),
        }
    }

    fn get_xattr(&self, head: &Head, reply: Reply, name: &[u8], room: u32) {
        // Most questions are for names that this host answers, and come before each write.
        let name = match wire_name_to_read(name) {
            Ok(name) => name.to_vec(),
            Err(error) => return reply.error(error),
        };
        let ((core, caller), ino) = (self.for_lookup(head), head.ino);
        let work = async move { core.xattr(&caller, ino, (&name, room)).await };
        self.answer(head, reply, work, send_asked);
    }

    fn list_xattrs(&self, head: &Head, reply: Reply, room: u32) {
        let ((core, caller), ino) = (self.for_lookup(head), head.ino);
        let work = async move { core.xattrs(&caller, ino, room).await };
        self.answer(head, reply, work, send_asked);
    }

    /// Sets an attribute, or removes it if there is no value.
    fn change_xattr(
        &self,
        head: &Head,
        reply: Reply,
        name: &[u8],
        value: Result<Option<(Vec<u8>, client::SetXattr)>, Errno>,
    ) {
        let (name, value) = match (wire_name(name), value) {
            (Ok(name), Ok(value)) => (name.to_vec(), value),
            (Err(error), _) | (_, Err(error)) => return reply.error(error),
        };
        let ((core, caller), ino) = (self.for_change(head), head.ino);
        let work = async move { core.change_xattr(caller, ino, name, value).await };
        self.answer(head, reply, work, |reply, ()| reply.ok());
    }

    fn seek(&self, head: &Head, reply: Reply, (handle, offset): (u64, u64), whence: i32) {
        let sought = match whence {
            libc::SEEK_DATA => Sought::Data,
            libc::SEEK_HOLE => Sought::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let core = Arc::clone(&self.core);
        let work = async move { core.seek(handle, offset, sought).await };
        self.answer(head, reply, work, Reply::number);
    }

    fn allocate(&self, head: &Head, reply: Reply, (handle, offset, length): (u64, u64, u64), mode: u32) {
        let Some(change) = SpaceChange::new(mode) else {
            return reply.error(Errno::from_i32(NOT_SUPPORTED));
        };
        let core = Arc::clone(&self.core);
        let work = async move {
            let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
            core.change_space(handle, offset..end, change).await
        };
        self.answer(head, reply, work, |reply, ()| reply.ok());
    }

    /// Copies a range. Any signal ends the copy after the piece that is under way, so that what was
    /// copied is known; a program that is killed does not wait for that.
    fn copy(&self, head: &Head, reply: Reply, range: CopyRange, is_long: bool) {
        let (core, request) = (Arc::clone(&self.core), (head.unique, head.pid));
        self.core.executor.spawn(async move {
            let (copying, stops) = (Arc::clone(&core), Arc::new(AtomicBool::new(false)));
            let stopped = Arc::clone(&stops);
            let mut work = std::pin::pin!(
                core.executor.detach(async move { copying.copy_range(range, &stopped).await })
            );
            let mut outcome = core.interrupts.guard(request, EndsWith::AnySignal, work.as_mut()).await;
            if outcome.is_none() {
                stops.store(true, Ordering::Release);
                // The kernel tells of a signal once.
                core.interrupts.mark(request.0);
                outcome = core.interrupts.guard(request, EndsWith::FatalSignal, work).await;
            }
            match outcome.map(|outcome| outcome.unwrap_or(Err(Errno::EIO))) {
                None => reply.error(Errno::EINTR),
                Some(Err(error)) => reply.error(error),
                Some(Ok(count)) if is_long => reply.number(count),
                // A piece is shorter than 4 GiB.
                Some(Ok(count)) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            }
        });
    }
}

fn send_asked(reply: Reply, asked: Asked) {
    match asked {
        Asked::Length(bytes) => reply.length(bytes),
        Asked::Content(content) => reply.data(&content),
    }
}
