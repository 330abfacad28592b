//! Copies one object of a tree; this is the work of a worker thread.

use std::sync::Arc;

use crate::Options;
use crate::backend::{Directory, Identity, LinkSource, Sink, TransferOptions};
use crate::budget::Budget;
use crate::content::{ContentCopy, digest};
use crate::digest::Digest;
use crate::entry::{Entry, NewAttributes, agree, describe, is_replaceable_by_file, is_sparse};
use crate::error::{Error, Result};
use crate::links::{LinkAction, Links};
use crate::progress::Progress;
use crate::temporary::{is_resumable, temporary_name, trusted_bytes};
use crate::tree::Target;
use fs::{Attributes, FileKind};

/// Bytes of one file in flight in each direction: as many as 16 GB/s carry in a millisecond.
pub(crate) const IN_FLIGHT_BYTES_MAX: usize = 16 << 20;
/// The maximum number of blocks in flight, however small they are.
pub(crate) const DEPTH_MAX: usize = 128;
/// Files of more blocks than this are read and written over all paths at once. Smaller files are
/// spread over the paths file by file.
const BLOCKS_TO_SPREAD: u64 = 4;

/// An object to be copied.
#[derive(Debug)]
pub(crate) struct Job {
    /// The index of the source that the object belongs to.
    pub number: usize,
    pub source: Arc<dyn Directory>,
    pub entry: Entry,
    pub target: Arc<Target>,
    /// The name of the copy.
    pub name: Vec<u8>,
}

impl Job {
    pub(crate) fn display_name(&self) -> String {
        let name = String::from_utf8_lossy(&self.entry.name);
        match self.source.display_name().as_str() {
            display_name if display_name.ends_with('/') || name.is_empty() => format!("{display_name}{name}"),
            display_name => format!("{display_name}/{name}"),
        }
    }
}

/// The state shared by all workers.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub options: &'a Options,
    pub progress: &'a Progress,
    pub budget: Budget,
    pub links: Links,
}

/// How a job ended.
enum CopyResult {
    Copied,
    Skipped,
}

impl Context<'_> {
    /// Copies an object, and then links the names that waited for it.
    pub(crate) fn run(&self, job: Job) {
        let of = &job.entry.attributes;
        if !(self.options.links && of.nlink > 1 && of.kind != FileKind::Directory) {
            let done = self.copy(&job);
            self.finish(&job, done);
            return;
        }
        match self.links.next_action(job) {
            LinkAction::Wait => {}
            LinkAction::Link(job, link_source) => {
                let done = self.link(&job, &link_source);
                self.finish(&job, done);
            }
            LinkAction::Copy(job) => {
                let done = self.copy(&job);
                let link_source = done.is_ok().then(|| job.target.directory.link_source(&job.name));
                let link_source = link_source.and_then(Result::ok);
                self.finish(&job, done);
                for waiting in self.links.copied(&job, link_source.clone()) {
                    let done = match &link_source {
                        Some(link_source) => self.link(&waiting, link_source),
                        // The first name failed, so each of the others is copied by itself.
                        None => self.copy(&waiting),
                    };
                    self.finish(&waiting, done);
                }
            }
        }
    }

    fn finish(&self, job: &Job, done: Result<CopyResult>) {
        match done {
            Ok(CopyResult::Copied) => Progress::add(&self.progress.files_done, 1),
            Ok(CopyResult::Skipped) => Progress::add(&self.progress.files_skipped, 1),
            Err(error) => self.progress.fail(&job.display_name(), error),
        }
        job.target.child_finished(self.progress);
    }

    /// The attributes of a copy.
    pub(crate) fn new_attributes(&self, of: &Attributes) -> NewAttributes {
        let mode = mode_of(self.options, of);
        NewAttributes {
            mode: (of.kind != FileKind::Symlink).then_some(mode),
            owner: self.options.owner.then_some((of.uid, of.gid)),
            times: self.options.times.then_some((of.atime, of.mtime)),
        }
    }

    /// The object that has the name now. A directory is never replaced.
    fn existing(&self, job: &Job) -> Result<Option<Entry>> {
        if job.target.created {
            return Ok(None);
        }
        let found = job.target.directory.find(&job.name)?;
        match &found {
            Some(entry) if entry.attributes.kind == FileKind::Directory => {
                let describe = describe(job.entry.attributes.kind);
                Err(Error::Conflict(format!("{describe} cannot replace the directory of that name")))
            }
            Some(entry)
                if job.entry.attributes.kind == FileKind::Regular
                    && !is_replaceable_by_file(entry.attributes.kind) =>
            {
                Err(Error::Conflict(format!("a file cannot replace {}", describe(entry.attributes.kind))))
            }
            Some(entry) if is_same(job, entry)? => {
                Err(Error::Conflict("it would be copied onto itself".to_owned()))
            }
            _ => Ok(found),
        }
    }

    fn copy(&self, job: &Job) -> Result<CopyResult> {
        if self.progress.is_stopped() {
            return Err(Error::Interrupted);
        }
        let existing = self.existing(job)?;
        if job.entry.attributes.kind == FileKind::Regular {
            return self.copy_file(job, existing.as_ref());
        }
        // Creates the object under a temporary name if its name is taken, so that the name always
        // exists.
        let directory = &job.target.directory;
        let name = match &existing {
            Some(_) => temporary_name(&job.entry, &job.name, false),
            None => job.name.clone(),
        };
        let created = match job.entry.attributes.kind {
            FileKind::Symlink => directory.make_symlink(&name, &job.source.read_link(&job.entry)?)?,
            _ => directory.make_special(&name, &job.entry.attributes)?,
        };
        let new = self.new_attributes(&job.entry.attributes);
        let set = if new.is_empty() { Ok(()) } else { directory.set(Some(&created), new) };
        let named =
            set.and_then(|()| if existing.is_some() { directory.rename(&name, &job.name) } else { Ok(()) });
        if named.is_err() {
            // Report the first error, not this one.
            let _ = directory.remove(&name);
        }
        named.map(|()| CopyResult::Copied)
    }

    /// Gives a copied file another name.
    fn link(&self, job: &Job, link_source: &LinkSource) -> Result<CopyResult> {
        if self.progress.is_stopped() {
            return Err(Error::Interrupted);
        }
        let directory = &job.target.directory;
        if let Some(found) = self.existing(job)? {
            if let LinkSource::Remote(handle) = link_source
                && found.handle == Some(*handle)
            {
                return Ok(CopyResult::Skipped);
            }
            directory.remove(&job.name)?;
        }
        directory.link(link_source, &job.name)?;
        Ok(CopyResult::Copied)
    }

    fn transfer(&self, job: &Job) -> TransferOptions {
        let block_bytes = job.source.block_bytes().min(job.target.directory.block_bytes()).max(1);
        let size = job.entry.attributes.size;
        let blocks = size.div_ceil(block_bytes as u64).max(1);
        let depth = (IN_FLIGHT_BYTES_MAX / block_bytes).clamp(1, DEPTH_MAX);
        let depth = depth.min(usize::try_from(blocks).unwrap_or(usize::MAX));
        TransferOptions { block_bytes, depth, spread: blocks > BLOCKS_TO_SPREAD }
    }

    fn copy_file(&self, job: &Job, existing: Option<&Entry>) -> Result<CopyResult> {
        let (of, directory, transfer) = (&job.entry.attributes, &job.target.directory, self.transfer(job));
        let size = usize::try_from(of.size).unwrap_or(usize::MAX);
        // Both the bytes being read and the bytes being written count.
        let _reservation = self.budget.take(2 * size.min(transfer.depth * transfer.block_bytes));
        if self.options.resume && existing.is_some_and(|found| is_complete(of, &found.attributes)) {
            if let Some(found) = existing.filter(|_| self.options.verify)
                && !self.has_same_content(job, found, transfer)?
            {
                tracing::info!(place = %job.display_name(), "the copy that is there differs; it is made anew");
            } else {
                Progress::add(&self.progress.bytes_skipped, of.size);
                return Ok(CopyResult::Skipped);
            }
        }
        let temporary = temporary_name(&job.entry, &job.name, directory.boot_matters());
        let (from, mut sink) = self.open_sink(job, &temporary, transfer)?;
        let filled = self.copy_content(job, from, sink.as_mut(), transfer).and_then(|()| {
            if is_resumable(of.size) && !sink.is_named(directory.as_ref(), &temporary)? {
                return Err(Error::Replaced);
            }
            directory.rename(&temporary, &job.name)
        });
        if let Err(error) = filled {
            drop(sink);
            let kept = is_resumable(of.size) && error.may_resume_later();
            // Another program's file must not be removed.
            if !kept && !matches!(error, Error::Replaced) {
                // Report the first error, not this one.
                let _ = directory.remove(&temporary);
            }
            return Err(error);
        }
        Ok(CopyResult::Copied)
    }

    /// Opens the temporary file. Returns it with the offset up to which an earlier copy filled it.
    fn open_sink(
        &self,
        job: &Job,
        temporary: &[u8],
        transfer: TransferOptions,
    ) -> Result<(u64, Box<dyn Sink>)> {
        let directory = &job.target.directory;
        let resumable = is_resumable(job.entry.attributes.size);
        if resumable
            && self.options.resume
            && let Some((found, sink)) = directory.reopen(temporary, transfer)?
            && found <= job.entry.attributes.size
        {
            let from = trusted_bytes(found, transfer.block_bytes as u64);
            tracing::info!(place = %job.display_name(), from, "taking up a partial copy");
            Progress::add(&self.progress.resumed, 1);
            Progress::add(&self.progress.bytes_skipped, from);
            return Ok((from, sink));
        }
        match directory.create(temporary, transfer) {
            // The file is left from a copy that is not to be resumed, or was created by our own
            // call, which was sent twice.
            Err(error) if error.exists() => {
                directory.remove(temporary)?;
                Ok((0, directory.create(temporary, transfer)?))
            }
            other => Ok((0, other?)),
        }
    }

    fn copy_content(
        &self,
        job: &Job,
        from: u64,
        sink: &mut dyn Sink,
        transfer: TransferOptions,
    ) -> Result<()> {
        let of = &job.entry.attributes;
        // To verify, the part that exists already must be read from the source again.
        let start = if self.options.verify { 0 } else { from };
        let mut source = job.source.open(&job.entry, start, transfer)?;
        let mut content_copy = ContentCopy {
            from,
            sparse: is_sparse(of),
            digest: self.options.verify.then(Digest::default),
            counted: 0,
            progress: self.progress,
        };
        content_copy.run(source.as_mut(), sink)?;
        let holes = of.size.saturating_sub(from).saturating_sub(content_copy.counted);
        Progress::add(&self.progress.bytes_done, holes);
        // A single READ returns one state of the file; several may return a mixture.
        if of.size > transfer.block_bytes as u64 {
            let now = source.attributes()?;
            if (now.size, now.mtime) != (of.size, of.mtime) {
                return Err(Error::Changed);
            }
        }
        if let Some(wanted) = content_copy.digest.take() {
            let mut back = sink.read_back(of.size, transfer)?;
            if digest(back.as_mut(), self.progress)? != wanted.finish() {
                return Err(Error::Damaged);
            }
        }
        sink.finish(of.size, self.new_attributes(of), self.options.sync)
    }

    /// Whether an existing file has the content of the source.
    fn has_same_content(&self, job: &Job, found: &Entry, transfer: TransferOptions) -> Result<bool> {
        let mut source = job.source.open(&job.entry, 0, transfer)?;
        let mut copy = job.target.directory.open(found, 0, transfer)?;
        Ok(digest(source.as_mut(), self.progress)? == digest(copy.as_mut(), self.progress)?)
    }
}

/// The permissions of a copy.
const fn mode_of(options: &Options, of: &Attributes) -> u32 {
    match of.kind {
        _ if !options.mode => of.mode & 0o777 & !options.umask,
        _ if options.owner => of.mode,
        // Without its owner, a set-user-ID program of another user would run with this user's
        // rights, and the group and other permissions of a device would apply to different users.
        FileKind::CharacterDevice | FileKind::BlockDevice => of.mode & 0o600,
        _ => of.mode & 0o1777,
    }
}

/// Whether an existing file is a complete copy, made by an earlier run that preserved times. A file
/// gets its name only when it is complete, so equal size and time are enough.
fn is_complete(source: &Attributes, copy: &Attributes) -> bool {
    copy.kind == FileKind::Regular && copy.size == source.size && agree(copy.mtime, source.mtime)
}

/// Whether source and target are the same object of the same server.
fn is_same(job: &Job, existing: &Entry) -> Result<bool> {
    let (Some(a), Some(b)) = (job.entry.handle, existing.handle) else { return Ok(false) };
    if a != b {
        return Ok(false);
    }
    let (from, to) = (job.source.identity()?, job.target.directory.identity()?);
    Ok(match (from, to) {
        (Identity::Remote(a, a_port, _), Identity::Remote(b, b_port, _)) => {
            a_port == b_port && a.iter().any(|address| b.contains(address))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(kind: FileKind, mode: u32) -> Attributes {
        Attributes { mode, ..Attributes::of(kind) }
    }

    #[test]
    fn only_with_their_owners_programs_keep_their_rights_and_devices_their_users() {
        let with = |mode, owner| Options { mode, owner, ..Options::default() };
        let (program, device) =
            (attributes(FileKind::Regular, 0o6755), attributes(FileKind::BlockDevice, 0o666));
        assert_eq!(mode_of(&with(true, true), &program), 0o6755);
        assert_eq!(mode_of(&with(true, true), &device), 0o666);
        assert_eq!(mode_of(&with(true, false), &program), 0o755);
        assert_eq!(mode_of(&with(true, false), &device), 0o600);
        assert_eq!(mode_of(&with(false, false), &program), 0o755);
        assert_eq!(mode_of(&with(true, false), &attributes(FileKind::Directory, 0o3777)), 0o1777);
    }
}
