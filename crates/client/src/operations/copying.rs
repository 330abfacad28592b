//! Copies that the server makes from one of its files to another. RFC 7862 s4, s15.2

use ::nfs4::Stateid;
use fs::{FileHandle, Stability, Status, Verifier};

use super::Operations;
use super::space::declined;
use crate::error::{Error, Result};
use crate::protocol::nfs4::copying::{self, CopyDone};

const COPY: &str = "COPY";
/// The most bytes that one call asks for: no call takes long, and a program that is to stop does
/// not wait for more.
const PIECE_BYTES: u64 = 16 << 20;
/// How many answers may say that less was copied than was asked for, before what was copied is all
/// for now. Linux copies 4 MiB at once: 256 of these are 1 GiB.
const SHORT_MAX: usize = 256;
/// How often a copy is made because the server has lost it before it was stable.
const TRIES: usize = 3;

/// A place in a file.
pub type Place = (FileHandle, u64);

/// How far a copy is.
#[derive(Debug, Default)]
struct Progress {
    count: u64,
    /// The verifier of the first part that is not stable yet, and whether all others have the same.
    unstable: Option<(Verifier, bool)>,
}

impl Progress {
    fn add(&mut self, count: u64, stability: Stability, verifier: Verifier) {
        self.count += count;
        if stability == Stability::Unstable {
            let (first, is_same) = *self.unstable.get_or_insert((verifier, true));
            self.unstable = Some((first, is_same && first == verifier));
        }
    }
}

impl Operations<'_> {
    /// Has the server copy `count` bytes between two of its files, or within one if the ranges do
    /// not overlap. Returns how many were copied, which are stable: fewer if the source ends
    /// before, if something fails after the first piece, if the server copies in many small parts,
    /// or once `goes_on`, which is asked before each piece but the first, returns false. No data
    /// move over the network.
    ///
    /// # Errors
    /// Those of the server and of the mount. [`Status::NotSupported`] before version 4.2, and if
    /// the server goes on with copies after its answer; [`Error::Declined`] if it does not make
    /// this one; [`Status::Invalid`] for ranges of one file that overlap.
    pub async fn copy(&self, from: Place, to: Place, count: u64, goes_on: impl Fn() -> bool) -> Result<u64> {
        let minor = self.version_4_2(COPY)?;
        let is_past_end = from.1.checked_add(count).is_none() || to.1.checked_add(count).is_none();
        if is_past_end || (from.0 == to.0 && from.1.abs_diff(to.1) < count) {
            return Err(Error::Status { operation: COPY, status: Status::Invalid });
        }
        for _ in 0..TRIES {
            let copied = self.copy_pieces(minor, from, to, count, &goes_on).await?;
            let Some((verifier, is_same)) = copied.unstable else { return Ok(copied.count) };
            // What was copied before a restart of the server is lost with its verifier.
            if is_same && self.run(copying::commit(minor, to.0)).await? == verifier {
                return Ok(copied.count);
            }
        }
        let reason = format!("the server has lost the data of a copy {TRIES} times");
        Err(Error::PeerMisbehaved { operation: COPY, reason })
    }

    async fn copy_pieces(
        &self,
        minor: u32,
        from: Place,
        to: Place,
        mut count: u64,
        goes_on: &impl Fn() -> bool,
    ) -> Result<Progress> {
        let (mut progress, mut short) = (Progress::default(), 0);
        while progress.count < count && (progress.count == 0 || (short < SHORT_MAX && goes_on())) {
            let done = progress.count;
            let piece = (count - done).min(PIECE_BYTES);
            match self.copy_piece(minor, (from.0, from.1 + done), (to.0, to.1 + done), piece).await {
                // A server that copies nothing of what is there would have a program take the file
                // for shorter than it is; one that finds nothing there is right.
                Ok(CopyDone::Now { count: 0, .. }) if done == 0 => {
                    let is_there = self.getattr(from.0).await?.size > from.1;
                    return if is_there { Err(copies_nothing()) } else { Ok(progress) };
                }
                Ok(CopyDone::Now { count: 0, .. }) => break,
                Ok(CopyDone::Now { count: copied, stability, verifier }) => {
                    short += usize::from(copied < piece);
                    progress.add(copied, stability, verifier);
                }
                Ok(CopyDone::UnderWay(copy)) => {
                    self.end_copy(minor, to.0, copy).await;
                    // A server that does this does it with each copy. None is begun any more.
                    return Err(Error::Status { operation: COPY, status: Status::NotSupported });
                }
                Err(error) if error.status() == Some(Status::Invalid) => {
                    // The source has become shorter. RFC 7862 s15.2.3
                    let left = self.getattr(from.0).await?.size.saturating_sub(from.1);
                    if left >= done + piece || short == SHORT_MAX {
                        return after(progress, error);
                    }
                    short += 1;
                    count = left;
                }
                Err(error) => return after(progress, error),
            }
        }
        Ok(progress)
    }

    async fn copy_piece(&self, minor: u32, from: Place, to: Place, count: u64) -> Result<CopyDone> {
        match self.run(copying::copy(minor, from, to, count)).await.map_err(declined)? {
            CopyDone::Now { count: copied, .. } if copied > count => {
                let reason = format!("{copied} bytes were copied where {count} were asked for");
                Err(Error::PeerMisbehaved { operation: COPY, reason })
            }
            copied => Ok(copied),
        }
    }

    /// Ends a copy that nobody has asked for in this form. One that goes on would change the file
    /// later.
    async fn end_copy(&self, minor: u32, file: FileHandle, copy: Stateid) {
        tracing::warn!(
            "the server copies after its answer, which it was asked not to; its copies are not used"
        );
        if let Err(error) = self.run(copying::cancel(minor, file, copy)).await {
            tracing::warn!(%error, "a copy that the server has begun may still change its target");
        }
    }
}

fn copies_nothing() -> Error {
    Error::Declined { operation: COPY, reason: "nothing is copied of what is there".to_owned() }
}

/// A failure after the first piece is left to the next copy.
fn after(progress: Progress, error: Error) -> Result<Progress> {
    if progress.count == 0 { Err(error) } else { Ok(progress) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_not_stable_must_have_one_verifier() {
        let mut progress = Progress::default();
        progress.add(5, Stability::FileSync, [1; 8]);
        assert_eq!((progress.count, progress.unstable), (5, None));
        progress.add(5, Stability::Unstable, [2; 8]);
        progress.add(5, Stability::Unstable, [2; 8]);
        assert_eq!((progress.count, progress.unstable), (15, Some(([2; 8], true))));
        progress.add(1, Stability::Unstable, [3; 8]);
        assert_eq!(progress.unstable, Some(([2; 8], false)));
    }

    #[test]
    fn what_fails_after_something_was_copied_does_not_fail_the_copy() {
        assert!(after(Progress::default(), copies_nothing()).is_err());
        let some = Progress { count: 1, unstable: None };
        assert_eq!(after(some, copies_nothing()).unwrap().count, 1);
    }
}
