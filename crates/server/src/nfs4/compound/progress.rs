//! How far a compound has got, for the process of a group that goes on with it if this one ends.
//! RFC 8881 s2.10.6.1
//!
//! Before an operation that must not be done twice, the slot gets the results of all before it,
//! with the current and the saved object; after it, its own. In between there is a note of what the
//! operation found: [`Compound::note`], or the change of the state itself. What may be repeated is
//! executed again, and recorded only with what comes after it.

use super::{Compound, Current, Outcome, Replies};
use crate::nfs4::handles;
use crate::nfs4::pseudo::handle_of;
use crate::nfs4::{delegation, lock, open, session};
use crate::request::Target;
use drc::shared::PreOpState;
use fs::FileHandle;
use nfs4::compound::RequestReader;
use nfs4::op::handles::PutArgs;
use nfs4::op::{Args, Fore, Operation, Reply};
use nfs4::{ChangeInfo, Stateid, Status};
use state::{HeapWords, NOTE_WORDS, NextOperation, Progress, State};
use std::cell::Cell;

const STATEID_BYTES: usize = 16;

/// What a name was before an operation, in its note.
const ABSENT: u64 = 1;
const OBJECT: u64 = 2;

/// What a process that has ended left with the operation that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Left {
    #[default]
    Nothing,
    /// It may have been done.
    Doubt(Option<PreOpState>),
    /// It was done, as part of a change of the state.
    Committed([u64; NOTE_WORDS]),
}

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::nfs4) struct Steps {
    /// Operations after SEQUENCE whose results are in the slot.
    recorded: u32,
    /// Where the first result begins that is not.
    from: usize,
    left: Left,
    /// Whether an operation has told something that is not in the slot, and that is another thing
    /// after a change.
    has_looked: bool,
    /// What the operation under way has to find out about.
    doubt: Cell<Option<Option<PreOpState>>>,
}

impl Steps {
    fn new(from: usize) -> Self {
        Self { recorded: 0, from, left: Left::Nothing, has_looked: false, doubt: Cell::new(None) }
    }
}

/// The note of what a name was.
const fn note_of(state: PreOpState) -> [u64; NOTE_WORDS] {
    match state {
        PreOpState::Absent => [ABSENT, 0, 0, 0, 0],
        PreOpState::Object(fileid, name) => [OBJECT, fileid, name, 0, 0],
    }
}

const fn of_note(note: [u64; NOTE_WORDS]) -> Option<PreOpState> {
    match note {
        [ABSENT, ..] => Some(PreOpState::Absent),
        [OBJECT, fileid, name, ..] => Some(PreOpState::Object(fileid, name)),
        _ => None,
    }
}

// A record: the number of operations, the length of their results, the results, and both objects.
// An object is the length of its handle, the handle, and its stateid; without a handle there is
// none.

fn push_object(bytes: &mut Vec<u8>, object: Option<Current<'_>>) {
    let handle = object.and_then(|object| Some((handle_of(object.place).ok()?, object.stateid)));
    let Some((handle, stateid)) = handle else { return bytes.push(0) };
    let handle = handle.as_slice();
    bytes.push(u8::try_from(handle.len()).unwrap_or(0));
    bytes.extend_from_slice(handle);
    bytes.extend_from_slice(&stateid.seqid.to_be_bytes());
    bytes.extend_from_slice(&stateid.other);
}

fn split<'b>(bytes: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (first, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(first)
}

/// A handle and its stateid.
type Object = Option<(FileHandle, Stateid)>;

fn object(bytes: &mut &[u8]) -> Option<Object> {
    let len = usize::from(*split(bytes, 1)?.first()?);
    if len == 0 {
        return Some(None);
    }
    let handle = FileHandle::new(split(bytes, len)?)?;
    let stateid = split(bytes, STATEID_BYTES)?;
    let (seqid, other) = stateid.split_first_chunk()?;
    Some(Some((handle, Stateid { seqid: u32::from_be_bytes(*seqid), other: other.try_into().ok()? })))
}

/// A record of operations that were done together.
struct Done<'b> {
    count: u32,
    results: &'b [u8],
    current: Object,
    saved: Object,
}

impl<'b> Done<'b> {
    fn read(bytes: &mut &'b [u8]) -> Option<Self> {
        let count = u32::from(*split(bytes, 1)?.first()?);
        let len = split(bytes, 2)?;
        let results = split(bytes, usize::from(u16::from_be_bytes([len[0], len[1]])))?;
        Some(Self { count, results, current: object(bytes)?, saved: object(bytes)? })
    }
}

impl<'a> Compound<'a> {
    /// Records the results that are not in the slot yet. Returns false if they do not fit: then
    /// nothing may be changed any more that must not be done twice.
    pub(super) fn record(&mut self, out: &Replies<'_>) -> bool {
        let (Some(steps), Some(session)) = (&mut self.steps, &self.session) else { return true };
        let count = out.results().saturating_sub(1).saturating_sub(steps.recorded);
        if count == 0 {
            return true;
        }
        let results = out.since(steps.from);
        let (Ok(number), Ok(len)) = (u8::try_from(count), u16::try_from(results.len())) else { return false };
        if out.has_payload() {
            return false;
        }
        let mut bytes = vec![number];
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(results);
        push_object(&mut bytes, self.current);
        push_object(&mut bytes, self.saved);
        let shared = self.shared;
        if !shared.state.end_operations(shared.host(), &session.ticket, count, &bytes) {
            return false;
        }
        steps.recorded += count;
        steps.from = out.position();
        steps.has_looked = false;
        true
    }

    /// Records what is needed before an operation. Returns false if it may not be executed.
    pub(super) fn record_before(&mut self, operation: Operation, out: &Replies<'_>) -> bool {
        if operation.runs_once() {
            return self.record(out);
        }
        if operation.changes() && self.steps.as_ref().is_some_and(|steps| steps.has_looked) {
            // If it does not fit, the client learns of a later look than that which came first.
            self.record(out);
        }
        true
    }

    /// Runs all operations that follow SEQUENCE, or those that a process which has ended has not
    /// done.
    pub(super) fn run_or_resume(
        &mut self,
        progress: Option<&Progress>,
        requests: &mut RequestReader<'_, Fore>,
        out: &mut Replies<'_>,
    ) {
        if self.shared.is_in_group() {
            self.steps = Some(Steps::new(out.position()));
        }
        let is_sound = progress.is_none_or(|progress| self.resume(progress, requests, out).is_some());
        if is_sound {
            self.run_all(requests, out);
            // What it wants of others, or has made free for them.
            self.shared.call_back_if_needed(self.now);
            return;
        }
        tracing::error!("what a process that has ended left of a request is damaged");
        match requests.next_operation() {
            Some(Ok(next)) => _ = out.fail(next.args.operation(), Status::SERVERFAULT),
            Some(Err(refused)) => _ = out.refuse(refused),
            None => {}
        }
    }

    /// Goes on with the compound of a process that has ended: adds the results of the operations
    /// that were done, and skips these. `None` if the record is damaged.
    fn resume(
        &mut self,
        progress: &Progress,
        requests: &mut RequestReader<'_, Fore>,
        out: &mut Replies<'_>,
    ) -> Option<()> {
        let mut bytes = progress.results.as_slice();
        let (mut count, mut last) = (0, None);
        while !bytes.is_empty() {
            let done = Done::read(&mut bytes)?;
            out.restore(done.count, done.results);
            count += done.count;
            last = Some(done);
        }
        if count != progress.done {
            return None;
        }
        for _ in 0..count {
            let request = requests.next_operation()?.ok()?;
            self.changed |= request.args.operation().changes();
        }
        if let Some(done) = last {
            self.saved = self.restored(done.saved);
            self.current = self.restored(done.current);
        }
        let left = match progress.next {
            NextOperation::NotBegun => Left::Nothing,
            NextOperation::InDoubt => Left::Doubt(of_note(progress.note)),
            NextOperation::Committed => Left::Committed(progress.note),
        };
        let steps = self.steps.as_mut()?;
        (steps.recorded, steps.from, steps.left) = (count, out.position(), left);
        Some(())
    }

    /// An object of a record. The export may be gone.
    fn restored(&mut self, object: Object) -> Option<Current<'a>> {
        let (handle, stateid) = object?;
        handles::put(self, &PutArgs { handle }).ok()?;
        self.set_stateid(stateid);
        self.current
    }

    /// The result of the next operation, if a process that has ended has done it as a change of the
    /// state. Otherwise it may be in doubt, and is to be run.
    pub(super) fn left_result(&mut self, args: &Args<'_>, out: &mut Replies<'_>) -> Option<Status> {
        let steps = self.steps.as_mut()?;
        match std::mem::take(&mut steps.left) {
            Left::Nothing => None,
            Left::Doubt(before) => {
                steps.doubt.set(Some(before));
                None
            }
            Left::Committed(note) => self.committed(args, note, out),
        }
    }

    fn committed(
        &mut self,
        args: &Args<'_>,
        note: [u64; NOTE_WORDS],
        out: &mut Replies<'_>,
    ) -> Option<Status> {
        let id = State::<HeapWords>::committed_state(note);
        Some(match args {
            // An open that was taken back again left no stateid.
            Args::Open(_) if id.is_special() => return None,
            Args::Open(args) => out.push(&Reply::Open(open::committed(self, args, id, note))),
            Args::OpenDowngrade(_) => out.push(&Reply::OpenDowngrade(Ok(self.put_stateid(id)))),
            Args::Close(_) => out.push(&Reply::Close(Ok(open::closed(self)))),
            Args::Lock(_) => lock::granted(self, id, out),
            Args::LockU(_) => out.push(&Reply::LockU(Ok(self.put_stateid(id)))),
            Args::FreeStateid(_) => out.push(&Reply::FreeStateid(Ok(()))),
            Args::DelegReturn(_) => out.push(&Reply::DelegReturn(delegation::given_back(self))),
            Args::ReclaimComplete(_) => {
                session::wait_for_record(self);
                out.push(&Reply::ReclaimComplete(Ok(())))
            }
            _ => return None,
        })
    }

    /// Ends the operation under way.
    pub(super) fn ended(&mut self, operation: Operation) {
        if let Some(steps) = &mut self.steps {
            steps.doubt.set(None);
            steps.has_looked |= !matches!(
                operation,
                Operation::PutFh
                    | Operation::PutPubFh
                    | Operation::PutRootFh
                    | Operation::GetFh
                    | Operation::SaveFh
                    | Operation::RestoreFh
            );
        }
    }

    /// Whether a process that has ended may have done the operation under way.
    pub fn is_in_doubt(&self) -> bool {
        self.steps.as_ref().is_some_and(|steps| steps.doubt.get().is_some())
    }

    /// What a name was before a process, which has ended, may have done the operation under way.
    pub fn doubt(&self) -> Option<PreOpState> {
        self.steps.as_ref()?.doubt.get().flatten()
    }

    /// Notes what the operation under way is about to change: it is in doubt if this process ends
    /// before its result is recorded. `None` is for what cannot be told.
    pub fn note(&self, before: Option<PreOpState>) -> Outcome<()> {
        let (Some(_), Some(before)) = (&self.steps, before) else { return Ok(()) };
        let shared = self.shared;
        let is_noted = shared.state.start_operation(shared.host(), self.ticket()?, note_of(before));
        // The request has become another process's: nobody gets this reply.
        if is_noted { Ok(()) } else { Err(Status::SERVERFAULT) }
    }

    /// As [`note`](Self::note), of what a name in a directory is now.
    pub fn note_name(&self, at: &Target<'_>, name: &[u8]) -> Outcome<()> {
        if self.steps.is_none() {
            return Ok(());
        }
        self.note(at.find(name).map(|(now, _)| now))
    }

    /// Whether a name, which the operation under way takes away, was taken away by a process that
    /// has ended. Then the directory is synced, which that process may not have done.
    pub fn is_taken_away(&self, at: &Target<'_>, name: &[u8]) -> Outcome<bool> {
        let Some(before @ PreOpState::Object(..)) = self.doubt() else { return Ok(false) };
        match at.find(name) {
            Some((now, _)) if now != before => sync(at).map(|()| true),
            _ => Ok(false),
        }
    }

    /// The object of a name, which the operation under way creates, if a process that has ended has
    /// created it: it satisfies `is`, and its name was free.
    pub fn made_before(
        &self,
        at: &Target<'_>,
        name: &[u8],
        is: impl FnOnce(&store::Found) -> bool,
    ) -> Outcome<Option<store::Found>> {
        if self.doubt() != Some(PreOpState::Absent) {
            return Ok(None);
        }
        let found = at.find(name).and_then(|(_, found)| found).filter(is);
        if found.is_some() {
            sync(at)?;
        }
        Ok(found)
    }
}

fn sync(at: &Target<'_>) -> Outcome<()> {
    at.export.store.sync_names(at.object).map_err(Status::from_fs)
}

/// A directory that a process which has ended has changed: what it was before is not known.
pub(in crate::nfs4) fn changed_before(at: &Target<'_>) -> ChangeInfo {
    let now = match at.attributes() {
        Ok(Ok(attributes)) => attributes.change,
        _ => 0,
    };
    ChangeInfo { atomic: false, before: now, after: now }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two operations, an object and its stateid, and no saved object.
    const RECORD: &[u8] = b"\x02\x00\x03abc\x04hand\0\0\x07\x07\0\0\0\0\0\0\0\0\0\0\0\x09\0";

    #[test]
    fn a_record_is_read_as_it_was_written_and_none_that_was_cut_off_is() {
        let mut bytes = RECORD;
        let done = Done::read(&mut bytes).expect("whole");
        assert_eq!((done.count, done.results, bytes.len()), (2, &b"abc"[..], 0));
        let (handle, stateid) = done.current.expect("an object");
        assert_eq!(handle.as_slice(), b"hand");
        assert_eq!((stateid.seqid, stateid.other), (0x0000_0707, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]));
        assert!(done.saved.is_none());
        for cut in 0..RECORD.len() {
            assert!(Done::read(&mut &RECORD[..cut]).is_none(), "{cut} bytes");
        }
    }

    #[test]
    fn a_note_says_what_a_name_was_and_another_one_says_nothing() {
        for state in [PreOpState::Absent, PreOpState::Object(7, u64::MAX)] {
            assert_eq!(of_note(note_of(state)), Some(state));
        }
        assert_eq!((of_note([0; NOTE_WORDS]), of_note([u64::MAX; NOTE_WORDS])), (None, None));
    }
}
