//! Walks the source: creates its directories, and passes everything else to the workers. Each level
//! of the tree holds one page of names, and for a directory on a server possibly the next page too.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use crate::backend::{Directory, Entries};
use crate::descent::Descent;
use crate::endpoints::{Destination, Origin};
use crate::entry::{Entry, NewAttributes, describe};
use crate::error::{Error, Result};
use crate::exclude::Exclude;
use crate::job::{Context, Job};
use crate::progress::Progress;
use crate::tree::Target;
use fs::FileKind;

/// A directory that is being walked.
struct Level {
    source: Arc<dyn Directory>,
    entries: Entries,
    target: Arc<Target>,
}

/// Walks the sources of a copy.
pub(crate) struct Walker<'a> {
    pub context: &'a Context<'a>,
    pub jobs: &'a SyncSender<Job>,
}

impl Walker<'_> {
    /// Walks one source.
    pub(crate) fn walk(&self, number: usize, from: &Origin, onto: &Destination) {
        if let Err(error) = self.try_walk(number, from, onto) {
            self.context.progress.fail(from.display_name(), error);
        }
    }

    fn try_walk(&self, number: usize, from: &Origin, onto: &Destination) -> Result<()> {
        let name = onto.name_for(from)?;
        if let Some(stream) = &from.stream {
            self.context.copy_from_stream(stream, onto, &name)?;
            Progress::add(&self.context.progress.files_done, 1);
            return Ok(());
        }
        let top = Target::new(Arc::clone(&onto.directory), false, NewAttributes::default(), None);
        let walked = if from.kind() == FileKind::Directory {
            self.directory(number, from, onto, name, &top)
        } else {
            check_kind(self.context, from).map(|()| {
                let (source, entry) = (Arc::clone(&from.directory), from.entry.clone());
                self.send(Job { number, source, entry, target: Arc::clone(&top), name });
            })
        };
        top.child_finished(self.context.progress);
        walked
    }

    fn directory(
        &self,
        number: usize,
        from: &Origin,
        onto: &Destination,
        name: Vec<u8>,
        top: &Arc<Target>,
    ) -> Result<()> {
        if !self.context.options.recursive {
            return Err(Error::Conflict("it is a directory, and -r was not given".to_owned()));
        }
        let source = from.directory.child(&from.entry);
        let itself = source.identity()?;
        if onto.trail.iter().any(|above| above.is(&itself)) {
            return Err(Error::Conflict("a directory cannot be copied into itself".to_owned()));
        }
        let target = if name.is_empty() {
            // The contents go into the existing directory, which gets the attributes of the source.
            let new = self.attributes_of_existing(&from.entry);
            Target::new(Arc::clone(&onto.directory), false, new, Some(top))
        } else {
            self.target(top, &name, &from.entry)?
        };
        let (mut levels, mut descent) = (Vec::new(), Descent::new(&from.entry));
        self.descend(&mut levels, source, target);
        while let Some(level) = levels.last_mut() {
            let next = if self.context.progress.is_stopped() { None } else { level.entries.next() };
            match next {
                None => {
                    level.target.child_finished(self.context.progress);
                    levels.pop();
                    descent.leave();
                }
                // The listing ends with this error.
                Some(Err(error)) => self.context.progress.fail(&level.source.display_name(), error),
                Some(Ok(entry)) if self.context.options.exclude.matches(&descent.path_of(&entry), &entry) => {
                }
                Some(Ok(entry)) if entry.attributes.kind == FileKind::Directory => {
                    let source = level.source.child(&entry);
                    let target = Arc::clone(&level.target);
                    let created =
                        descent.check(&entry).and_then(|()| self.target(&target, &entry.name, &entry));
                    match created {
                        Ok(target) => {
                            if self.descend(&mut levels, source, target) {
                                descent.enter(&entry);
                            }
                        }
                        Err(error) => self.context.progress.fail(&source.display_name(), error),
                    }
                }
                Some(Ok(entry)) => {
                    let (source, target) = (Arc::clone(&level.source), Arc::clone(&level.target));
                    let name = entry.name.clone();
                    self.send(Job { number, source, entry, target, name });
                }
            }
        }
        Ok(())
    }

    /// Begins to list a directory. Returns whether it can be listed.
    fn descend(&self, levels: &mut Vec<Level>, source: Arc<dyn Directory>, target: Arc<Target>) -> bool {
        match source.list() {
            Ok(entries) => {
                Progress::add(&self.context.progress.files_done, 1);
                levels.push(Level { source, entries, target });
                true
            }
            Err(error) => {
                self.context.progress.fail(&source.display_name(), error);
                target.child_finished(self.context.progress);
                false
            }
        }
    }

    /// The attributes for a directory that existed before.
    fn attributes_of_existing(&self, like: &Entry) -> NewAttributes {
        let new = self.context.new_attributes(&like.attributes);
        NewAttributes { mode: new.mode.filter(|_| self.context.options.mode), ..new }
    }

    /// The directory with this name, created if it does not exist.
    fn target(&self, parent: &Arc<Target>, name: &[u8], like: &Entry) -> Result<Arc<Target>> {
        let directory = &parent.directory;
        let existing = if parent.created { None } else { directory.find(name)? };
        let mut new = self.context.new_attributes(&like.attributes);
        let (entry, created) = match existing {
            Some(found) if found.attributes.kind == FileKind::Directory => {
                new = self.attributes_of_existing(like);
                (found, false)
            }
            Some(found) => {
                let describe = describe(found.attributes.kind);
                return Err(Error::Conflict(format!("a directory cannot replace {describe} of that name")));
            }
            None => (directory.make_directory(name, like.attributes.mode)?, true),
        };
        Ok(Target::new(directory.child(&entry), created, new, Some(parent)))
    }

    fn send(&self, job: Job) {
        job.target.add_child();
        // The workers outlive the walker.
        let _ = self.jobs.send(job);
    }
}

/// Refuses a source that is neither file, link nor directory, unless the copy is recursive.
fn check_kind(context: &Context<'_>, from: &Origin) -> Result<()> {
    match from.kind() {
        FileKind::Regular | FileKind::Symlink => Ok(()),
        _ if context.options.recursive => Ok(()),
        kind => Err(Error::Conflict(format!("it is {}, which -r makes anew", describe(kind)))),
    }
}

/// Visits everything in a source, including directories, with paths relative to the source. A
/// directory that contains itself is recorded as a failure if `report_cycles`.
pub(crate) fn visit(
    from: &Origin,
    (recursive, exclude): (bool, &Exclude),
    progress: &Progress,
    report_cycles: bool,
    visit: &mut dyn FnMut(&[u8], &Entry),
) -> Result<()> {
    visit(b"", &from.entry);
    if from.kind() != FileKind::Directory || !recursive {
        return Ok(());
    }
    let top = from.directory.child(&from.entry);
    let mut descent = Descent::new(&from.entry);
    let mut levels = vec![(top.list()?, top)];
    while let Some((entries, directory)) = levels.last_mut() {
        if progress.is_stopped() {
            return Err(Error::Interrupted);
        }
        match entries.next() {
            Some(Ok(entry)) => {
                let below = descent.path_of(&entry);
                if exclude.matches(&below, &entry) {
                    continue;
                }
                if entry.attributes.kind != FileKind::Directory {
                    visit(&[b"/", below.as_slice()].concat(), &entry);
                    continue;
                }
                let child = directory.child(&entry);
                match descent.check(&entry) {
                    Ok(()) => {
                        visit(&[b"/", below.as_slice()].concat(), &entry);
                        levels.push((child.list()?, child));
                        descent.enter(&entry);
                    }
                    Err(error) if report_cycles => progress.fail(&child.display_name(), error),
                    Err(_) => {}
                }
            }
            Some(Err(error)) => return Err(error),
            None => {
                levels.pop();
                descent.leave();
            }
        }
    }
    Ok(())
}

/// Counts the objects to copy, to show how far the copy is.
pub(crate) fn count(sources: &[Origin], what: (bool, &Exclude), progress: &Progress) {
    for from in sources {
        // The walk meets the same errors, and reports them.
        let _ = visit(from, what, progress, false, &mut |_, entry| {
            Progress::add(&progress.files_found, 1);
            if entry.attributes.kind == FileKind::Regular {
                Progress::add(&progress.bytes_found, entry.attributes.size);
            }
        });
    }
    progress.counted.store(true, Ordering::SeqCst);
}
