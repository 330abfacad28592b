//! Copies one object of a tree; this is the work of a worker thread.

use std::sync::Arc;

use crate::Options;
use crate::backend::{Anchor, Folder, Identity, Shape, Sink};
use crate::budget::Budget;
use crate::content::{Filling, digest};
use crate::digest::Digest;
use crate::entry::{Entry, NewAttributes, agree, gives_way_to_a_file, is_sparse, words};
use crate::error::{Error, Result};
use crate::links::{Links, Turn};
use crate::progress::Progress;
use crate::temporary::{good_bytes, is_resumable, name_of};
use crate::tree::Target;
use fs::{Attributes, FileKind};

/// Bytes of one file in flight in each direction: as many as 16 GB/s carry in a millisecond.
pub(crate) const FLIGHT_BYTES: usize = 16 << 20;
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
    pub source: Arc<dyn Folder>,
    pub entry: Entry,
    pub target: Arc<Target>,
    /// The name of the copy.
    pub name: Vec<u8>,
}

impl Job {
    pub(crate) fn place(&self) -> String {
        let name = String::from_utf8_lossy(&self.entry.name);
        match self.source.place().as_str() {
            place if place.ends_with('/') || name.is_empty() => format!("{place}{name}"),
            place => format!("{place}/{name}"),
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
enum Done {
    Copied,
    Skipped,
}

impl Context<'_> {
    /// Copies an object, and then links the names that waited for it.
    pub(crate) fn work(&self, job: Job) {
        let of = &job.entry.attributes;
        if !(self.options.links && of.nlink > 1 && of.kind != FileKind::Directory) {
            let done = self.copy(&job);
            self.end(&job, done);
            return;
        }
        match self.links.turn(job) {
            Turn::Kept => {}
            Turn::Link(job, anchor) => {
                let done = self.link(&job, &anchor);
                self.end(&job, done);
            }
            Turn::Copy(job) => {
                let done = self.copy(&job);
                let anchor = done.is_ok().then(|| job.target.folder.anchor(&job.name));
                let anchor = anchor.and_then(Result::ok);
                self.end(&job, done);
                for waiting in self.links.copied(&job, anchor.clone()) {
                    let done = match &anchor {
                        Some(anchor) => self.link(&waiting, anchor),
                        // The first name failed, so each of the others is copied by itself.
                        None => self.copy(&waiting),
                    };
                    self.end(&waiting, done);
                }
            }
        }
    }

    fn end(&self, job: &Job, done: Result<Done>) {
        match done {
            Ok(Done::Copied) => Progress::add(&self.progress.files_done, 1),
            Ok(Done::Skipped) => Progress::add(&self.progress.files_skipped, 1),
            Err(error) => self.progress.fail(&job.place(), error),
        }
        job.target.end(self.progress);
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
        if job.target.made {
            return Ok(None);
        }
        let found = job.target.folder.find(&job.name)?;
        match &found {
            Some(entry) if entry.attributes.kind == FileKind::Directory => {
                let words = words(job.entry.attributes.kind);
                Err(Error::Conflict(format!("{words} cannot replace the directory of that name")))
            }
            Some(entry)
                if job.entry.attributes.kind == FileKind::Regular
                    && !gives_way_to_a_file(entry.attributes.kind) =>
            {
                Err(Error::Conflict(format!("a file cannot replace {}", words(entry.attributes.kind))))
            }
            Some(entry) if is_same(job, entry)? => {
                Err(Error::Conflict("it would be copied onto itself".to_owned()))
            }
            _ => Ok(found),
        }
    }

    fn copy(&self, job: &Job) -> Result<Done> {
        if self.progress.is_stopped() {
            return Err(Error::Interrupted);
        }
        let existing = self.existing(job)?;
        if job.entry.attributes.kind == FileKind::Regular {
            return self.copy_file(job, existing.as_ref());
        }
        // Creates the object under a temporary name if its name is taken, so that the name always
        // exists.
        let folder = &job.target.folder;
        let name = match &existing {
            Some(_) => name_of(&job.entry, &job.name, false),
            None => job.name.clone(),
        };
        let made = match job.entry.attributes.kind {
            FileKind::Symlink => folder.make_symlink(&name, &job.source.read_link(&job.entry)?)?,
            _ => folder.make_special(&name, &job.entry.attributes)?,
        };
        let new = self.new_attributes(&job.entry.attributes);
        let set = if new.is_empty() { Ok(()) } else { folder.set(Some(&made), new) };
        let named =
            set.and_then(|()| if existing.is_some() { folder.rename(&name, &job.name) } else { Ok(()) });
        if named.is_err() {
            // Report the first error, not this one.
            let _ = folder.remove(&name);
        }
        named.map(|()| Done::Copied)
    }

    /// Gives a copied file another name.
    fn link(&self, job: &Job, anchor: &Anchor) -> Result<Done> {
        if self.progress.is_stopped() {
            return Err(Error::Interrupted);
        }
        let folder = &job.target.folder;
        if let Some(found) = self.existing(job)? {
            if let Anchor::Remote(handle) = anchor
                && found.handle == Some(*handle)
            {
                return Ok(Done::Skipped);
            }
            folder.remove(&job.name)?;
        }
        folder.link(anchor, &job.name)?;
        Ok(Done::Copied)
    }

    fn shape(&self, job: &Job) -> Shape {
        let block_bytes = job.source.block_bytes().min(job.target.folder.block_bytes()).max(1);
        let size = job.entry.attributes.size;
        let blocks = size.div_ceil(block_bytes as u64).max(1);
        let depth = (FLIGHT_BYTES / block_bytes).clamp(1, DEPTH_MAX);
        let depth = depth.min(usize::try_from(blocks).unwrap_or(usize::MAX));
        Shape { block_bytes, depth, spread: blocks > BLOCKS_TO_SPREAD }
    }

    fn copy_file(&self, job: &Job, existing: Option<&Entry>) -> Result<Done> {
        let (of, folder, shape) = (&job.entry.attributes, &job.target.folder, self.shape(job));
        let size = usize::try_from(of.size).unwrap_or(usize::MAX);
        // Both the bytes being read and the bytes being written count.
        let _share = self.budget.take(2 * size.min(shape.depth * shape.block_bytes));
        if self.options.resume && existing.is_some_and(|found| is_whole(of, &found.attributes)) {
            if let Some(found) = existing.filter(|_| self.options.verify)
                && !self.agree(job, found, shape)?
            {
                tracing::info!(place = %job.place(), "the copy that is there differs; it is made anew");
            } else {
                Progress::add(&self.progress.bytes_skipped, of.size);
                return Ok(Done::Skipped);
            }
        }
        let temporary = name_of(&job.entry, &job.name, folder.boot_matters());
        let (from, mut sink) = self.sink(job, &temporary, shape)?;
        let filled = self.fill(job, from, sink.as_mut(), shape).and_then(|()| {
            if is_resumable(of.size) && !sink.is_named(folder.as_ref(), &temporary)? {
                return Err(Error::Replaced);
            }
            folder.rename(&temporary, &job.name)
        });
        if let Err(error) = filled {
            drop(sink);
            let kept = is_resumable(of.size) && error.may_go_on_later();
            // Another program's file must not be removed.
            if !kept && !matches!(error, Error::Replaced) {
                // Report the first error, not this one.
                let _ = folder.remove(&temporary);
            }
            return Err(error);
        }
        Ok(Done::Copied)
    }

    /// Opens the temporary file. Returns it with the offset up to which an earlier copy filled it.
    fn sink(&self, job: &Job, temporary: &[u8], shape: Shape) -> Result<(u64, Box<dyn Sink>)> {
        let folder = &job.target.folder;
        let resumable = is_resumable(job.entry.attributes.size);
        if resumable
            && self.options.resume
            && let Some((found, sink)) = folder.reopen(temporary, shape)?
            && found <= job.entry.attributes.size
        {
            let from = good_bytes(found, shape.block_bytes as u64);
            tracing::info!(place = %job.place(), from, "taking up a partial copy");
            Progress::add(&self.progress.resumed, 1);
            Progress::add(&self.progress.bytes_skipped, from);
            return Ok((from, sink));
        }
        match folder.create(temporary, shape) {
            // The file is left from a copy that is not to be resumed, or was created by our own
            // call, which was sent twice.
            Err(error) if error.exists() => {
                folder.remove(temporary)?;
                Ok((0, folder.create(temporary, shape)?))
            }
            other => Ok((0, other?)),
        }
    }

    fn fill(&self, job: &Job, from: u64, sink: &mut dyn Sink, shape: Shape) -> Result<()> {
        let of = &job.entry.attributes;
        // To verify, the part that exists already must be read from the source again.
        let start = if self.options.verify { 0 } else { from };
        let mut source = job.source.open(&job.entry, start, shape)?;
        let mut filling = Filling {
            from,
            sparse: is_sparse(of),
            digest: self.options.verify.then(Digest::default),
            counted: 0,
            progress: self.progress,
        };
        filling.fill(source.as_mut(), sink)?;
        let holes = of.size.saturating_sub(from).saturating_sub(filling.counted);
        Progress::add(&self.progress.bytes_done, holes);
        // A single READ returns one state of the file; several may return a mixture.
        if of.size > shape.block_bytes as u64 {
            let now = source.attributes()?;
            if (now.size, now.mtime) != (of.size, of.mtime) {
                return Err(Error::Changed);
            }
        }
        if let Some(wanted) = filling.digest.take() {
            let mut back = sink.read_back(of.size, shape)?;
            if digest(back.as_mut(), self.progress)? != wanted.finish() {
                return Err(Error::Damaged);
            }
        }
        sink.finish(of.size, self.new_attributes(of), self.options.sync)
    }

    /// Whether an existing file has the content of the source.
    fn agree(&self, job: &Job, found: &Entry, shape: Shape) -> Result<bool> {
        let mut source = job.source.open(&job.entry, 0, shape)?;
        let mut copy = job.target.folder.open(found, 0, shape)?;
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
fn is_whole(source: &Attributes, copy: &Attributes) -> bool {
    copy.kind == FileKind::Regular && copy.size == source.size && agree(copy.mtime, source.mtime)
}

/// Whether source and target are the same object of the same server.
fn is_same(job: &Job, existing: &Entry) -> Result<bool> {
    let (Some(a), Some(b)) = (job.entry.handle, existing.handle) else { return Ok(false) };
    if a != b {
        return Ok(false);
    }
    let (from, to) = (job.source.identity()?, job.target.folder.identity()?);
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
