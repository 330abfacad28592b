//! How the server's replies complete the calls.

use fs::Status;
use paths::{ConnId, NodeId};
use rpc::Xid;
use rpc::reply::{Accept, Body as ReplyBody};
use transport::framing::{Framing, FramingError, RecordMarking};
use transport::{PayloadPlace, Sink};
use xdr::Reader;

use super::bad_replies::BadReply;
use super::{Core, JUKEBOX_DELAY};
use crate::call::{Answer, Body, CallKey, Owner, ReadBuffer, Stage, Target};
use crate::call_backs::{REPLIES_QUEUED_MAX, is_call};
use crate::engine::session::Reply;
use crate::engine::validation::Verdict;
use crate::error::Error;
use crate::protocol::Results;

/// Receives the records of one connection.
pub(super) struct Answers<'a> {
    pub core: &'a mut Core,
    pub conn: ConnId,
    /// Calls whose data have not all been sent on this connection: a reply to one of them is
    /// forged.
    pub unsent: Vec<CallKey>,
    /// A reply after which the connection can no longer be used.
    pub bad_reply: Option<BadReply>,
    /// The answer to a question of the connection's path validation.
    pub validated: Option<Verdict>,
    /// The server wants the connection to be bound to the session.
    pub must_bind: bool,
    /// The replies to the server's own calls.
    pub replies: Vec<Vec<u8>>,
}

/// Decodes the head of a reply; the reader is left at the results.
fn head<'a>(record: &'a [u8]) -> Result<(rpc::reply::Reply, Reader<'a>), String> {
    let mut reader = Reader::new(record);
    let reply = rpc::reply::decode(&mut reader).map_err(|error| error.to_string())?;
    Ok((reply, reader))
}

impl Answers<'_> {
    /// The call that a reply answers, which must be outstanding on this connection.
    fn call_of(&mut self, reply: &rpc::reply::Reply) -> Option<CallKey> {
        // A reply without a call is dropped: the call was answered through another transmission.
        let key = self.core.xids.call(reply.xid)?;
        let call = self.core.calls.0.get(key)?;
        if call.connection != Some(self.conn) {
            return None;
        }
        if self.unsent.contains(&key) {
            let reason = format!("an answer to {} before it was sent", call.operation());
            self.bad_reply = Some(BadReply::NoReply(reason));
            return None;
        }
        Some(key)
    }

    /// Marks a call as no longer outstanding on this connection. `failed`: by another status than
    /// OK.
    fn answered(&mut self, key: CallKey, failed: bool) {
        let now = self.core.now;
        if let Some(call) = self.core.calls.0.get_mut(key) {
            call.connection = None;
            if matches!(call.body, Body::Validate(..)) {
                return;
            }
            call.closes = None;
            let latency = now.saturating_sub(call.sent_at);
            let bytes = call.bytes();
            // Read the path before reporting to the table: the last reply on a draining connection
            // makes the table fail it back.
            let path = self.core.table.path_of(self.conn);
            self.core.table.answered(now, self.conn, call.class(), bytes, latency);
            if let Some(path) = path
                && let Some(counters) = self.core.counts.path(path)
            {
                counters.record(call.class(), call.operation(), u64::from(bytes), failed, latency);
            }
        }
    }

    fn results(&mut self, key: CallKey, reader: Reader<'_>) {
        let Some(call) = self.core.calls.0.get(key) else { return };
        if let Body::Validate(stage @ (Stage::Identity | Stage::Bind | Stage::BindBack), _) = &call.body {
            self.validated = Some(Verdict::of(*stage, reader.rest()));
            self.core.finish(key, Ok(Answer::Written));
            return;
        }
        let is_validation = matches!(call.body, Body::Validate(..));
        match self.core.open(key, reader) {
            Ok(Reply::Results(results)) => self.executed(key, results),
            Err(reason) => {
                self.answered(key, true);
                self.makes_no_sense(key, reason);
            }
            Ok(Reply::NotKept) if is_validation => {
                self.validated = Some(Verdict::NotKept);
                self.core.finish(key, Ok(Answer::Written));
            }
            Ok(Reply::Refused(refusal)) if is_validation => {
                self.validated = Some(Verdict::Refused(refusal));
                self.core.finish(key, Ok(Answer::Written));
            }
            Ok(Reply::NotKept) => {
                self.answered(key, false);
                self.core.not_kept(key);
            }
            Ok(Reply::Refused(refusal)) => {
                self.answered(key, true);
                self.must_bind |= self.core.refused(key, refusal);
            }
        }
    }

    /// Handles the results of a call that the server has executed.
    fn executed(&mut self, key: CallKey, mut results: Results<'_>) {
        // Read before the reply is reported: the last one on a draining connection makes the table
        // fail it back, and the unstable data are on the node that they were sent to.
        let node = self.core.node_of(self.conn);
        self.answered(key, results.status.is_some());
        let Some(call) = self.core.calls.0.get(key) else { return };
        let outcome = match &call.body {
            Body::Read { .. } => self.core.read_answered(key, results),
            Body::Write { .. } => self.core.write_answered(key, results, node),
            Body::Commit { .. } => self.core.commit_answered(key, results),
            Body::Call(request) => {
                if results.status == Some(Status::Later) && !request.is_at_once() {
                    self.core.delay(key);
                } else {
                    self.core.call_answered(key, &results);
                }
                Ok(())
            }
            Body::Validate(..) => {
                self.validated = Some(if results.status == Some(Status::Later) {
                    Verdict::Later
                } else {
                    Verdict::Root(self.core.validation(&mut results))
                });
                self.core.finish(key, Ok(Answer::Written));
                Ok(())
            }
        };
        if let Err(reason) = outcome {
            self.makes_no_sense(key, reason);
        }
    }

    /// Handles a reply to a call that its protocol does not allow.
    fn makes_no_sense(&mut self, key: CallKey, reason: String) {
        let Some(call) = self.core.calls.0.get(key) else { return };
        let described = format!("{}: {reason}", call.description());
        let error = call.misbehaved(reason);
        if matches!(call.body, Body::Commit { .. }) {
            self.core.fail_group(key, &error);
        } else {
            self.core.finish(key, Err(error));
        }
        self.bad_reply = Some(BadReply::Nonsense(described));
    }

    /// Handles a record that cannot be read.
    fn unreadable(&mut self, beginning: &[u8], reason: String) {
        let xid = beginning.first_chunk().map(|xid| Xid(u32::from_be_bytes(*xid)));
        let key = xid.and_then(|xid| self.core.xids.call(xid)).filter(|key| {
            let call = self.core.calls.0.get(*key);
            let is_here = call.is_some_and(|call| {
                call.connection == Some(self.conn) && !matches!(call.body, Body::Validate(..))
            });
            is_here && !self.unsent.contains(key)
        });
        self.bad_reply = Some(match key {
            Some(key) => BadReply::Unreadable { key, reason },
            None => BadReply::NoReply(reason),
        });
    }

    /// Answers a call of the server.
    fn called(&mut self, record: &[u8]) {
        let Some(session) = &self.core.session else {
            tracing::debug!(
                connection = self.conn.0,
                "a call of the server is dropped: nothing here serves it"
            );
            return;
        };
        match session.answer_call(record) {
            Some(reply) if self.replies.len() < REPLIES_QUEUED_MAX => self.replies.push(reply),
            Some(_) => {
                let reason = format!("more than {REPLIES_QUEUED_MAX} calls of the server at a time");
                self.bad_reply = Some(BadReply::NoReply(reason));
            }
            None => {
                self.bad_reply = Some(BadReply::NoReply("a call that ends within its header".to_owned()));
            }
        }
    }

    /// The server refused a call: the path is fine, the call is not.
    fn call_refused(&mut self, key: CallKey, reason: String) {
        self.answered(key, true);
        let Some(call) = self.core.calls.0.get(key) else { return };
        if let Body::Validate(stage, _) = call.body {
            self.validated = Some(Verdict::refused(stage, reason));
            self.core.finish(key, Err(Error::Closed));
            return;
        }
        let error = Error::Refused { operation: call.operation(), reason };
        if matches!(call.body, Body::Commit { .. }) {
            self.core.fail_group(key, &error);
        } else {
            self.core.finish(key, Err(error));
        }
    }
}

impl Sink for Answers<'_> {
    type ReceiveBuffer = ReadBuffer;

    fn choose_receive_buffer(
        &mut self,
        record: &[u8],
        record_len: usize,
    ) -> Option<PayloadPlace<ReadBuffer>> {
        let (reply, reader) = head(record).ok()?;
        let ReplyBody::Accepted(Accept::Success) = reply.body else { return None };
        let key = self.call_of(&reply)?;
        let Body::Read { target, .. } = &self.core.calls.0.get(key)?.body else { return None };
        let mut results = self.core.peek(key, reader)?;
        let head = self.core.protocol.decode_read(&mut results).ok()?.ok()?;
        let len = head.count as usize;
        let at = record.len() - results.reader.remaining();
        let after = record_len.checked_sub(at.checked_add(len)?)?;
        if len == 0 || len > target.len() || after > RecordMarking::TAIL_BYTES_MAX {
            return None;
        }
        let Body::Read { target, .. } = &mut self.core.calls.0.get_mut(key)?.body else { return None };
        Some(PayloadPlace {
            at,
            len,
            receive_buffer: ReadBuffer { key, target: std::mem::take(target), len },
        })
    }

    fn record(&mut self, record: &[u8]) {
        if self.bad_reply.is_some() {
            return;
        }
        if is_call(record) {
            return self.called(record);
        }
        match head(record) {
            Err(reason) => self.unreadable(record, reason),
            Ok((reply, reader)) => {
                let Some(key) = self.call_of(&reply) else { return };
                match reply.body {
                    ReplyBody::Accepted(Accept::Success) => self.results(key, reader),
                    ReplyBody::Accepted(other) => self.call_refused(key, format!("{other:?}")),
                    ReplyBody::Rejected(reject) => self.call_refused(key, format!("{reject:?}")),
                }
            }
        }
    }

    fn received(&mut self, head: &[u8], receive_buffer: ReadBuffer, _tail: &[u8]) {
        let key = receive_buffer.key;
        let Some(call) = self.core.calls.0.get_mut(key) else { return };
        if let Body::Read { target, .. } = &mut call.body {
            *target = receive_buffer.target;
        }
        self.answered(key, false);
        // The head was decoded when the buffer was chosen; only the end-of-file flag is decoded
        // again.
        let mut reader = Reader::new(head);
        let eof = rpc::reply::decode(&mut reader)
            .ok()
            .and_then(|_| match self.core.open(key, reader) {
                Ok(Reply::Results(mut results)) => self.core.protocol.decode_read(&mut results).ok()?.ok(),
                _ => None,
            })
            .is_some_and(|head| head.eof);
        let target = match self.core.calls.0.get_mut(key).map(|call| &mut call.body) {
            Some(Body::Read { target: target @ Target::Pipe(..), .. }) => std::mem::take(target),
            _ => Target::default(),
        };
        let answer = match target {
            Target::Pipe(pipe, _) => Answer::Piped { pipe, eof },
            Target::Memory(_) => {
                Answer::Read { count: u32::try_from(receive_buffer.len).unwrap_or(u32::MAX), eof }
            }
        };
        self.core.finish(key, Ok(answer));
    }

    /// The call was not executed, and the path is fine.
    fn refused(&mut self, xid: u32, reason: &dyn std::fmt::Display) {
        let key = self.core.xids.call(Xid(xid));
        let here = |key: &CallKey| {
            self.core.calls.0.get(*key).is_some_and(|call| call.connection == Some(self.conn))
        };
        if let Some(key) = key.filter(here) {
            self.call_refused(key, reason.to_string());
        }
    }

    fn bad_record(&mut self, beginning: &[u8], error: &FramingError) {
        if self.bad_reply.is_none() {
            self.unreadable(beginning, error.to_string());
        }
    }

    fn wants_more(&self) -> bool {
        self.bad_reply.is_none()
    }
}

impl Core {
    /// Handles a server that asks the client to wait: the operation is repeated later as a new
    /// call.
    fn delay(&mut self, key: CallKey) {
        self.forget_xid(key);
        self.queues.delay(self.now + JUKEBOX_DELAY, key);
    }

    fn fail(&mut self, key: CallKey, status: Status) {
        if status == Status::Later {
            self.delay(key);
        } else if let Some(call) = self.calls.0.get(key) {
            let error = Error::Status { operation: call.operation(), status };
            self.finish(key, Err(error));
        }
    }

    /// Stores the results in the memory of the arguments, which are no longer needed.
    fn call_answered(&mut self, key: CallKey, told: &Results<'_>) {
        let Some(call) = self.calls.0.get_mut(key) else { return };
        let Body::Call(request) = &mut call.body else { return };
        let mut results = request.take_memory();
        told.keep(&mut results);
        let left = super::session::left_open(call, &results);
        if call.may_be_repeated() {
            let before = self.counts.replays.undecided;
            call.procedure().reconcile(&mut results, &mut self.counts.replays);
            if self.counts.replays.undecided > before {
                let operation = call.operation();
                tracing::warn!(
                    operation,
                    "it was sent again, and what the server answers may be our own doing"
                );
            }
        }
        let result = match call.procedure().status_of(&results) {
            Some(status) => {
                if matches!(call.owner, Owner::Engine) {
                    tracing::info!("{} of the mount itself failed: {status}", call.description());
                }
                Err(Error::Status { operation: call.operation(), status })
            }
            None => Ok(Answer::Results(results)),
        };
        let caller = call.caller.clone();
        self.finish(key, result);
        if let Some(left) = left {
            self.close_left(&left, caller);
        }
    }

    fn read_answered(&mut self, key: CallKey, mut results: Results<'_>) -> Result<(), String> {
        let head = match self.protocol.decode_read(&mut results).map_err(|error| error.to_string())? {
            Ok(head) => head,
            Err(status) => {
                self.fail(key, status);
                return Ok(());
            }
        };
        let Some(call) = self.calls.0.get_mut(key) else { return Ok(()) };
        let Body::Read { target, .. } = &mut call.body else { return Ok(()) };
        let buffer = target.memory();
        let data = results.reader.bytes(head.count as usize).map_err(|error| error.to_string())?;
        let Some(target) = buffer.get_mut(..data.len()) else {
            return Err(format!("{} bytes for a READ of {}", data.len(), buffer.len()));
        };
        target.copy_from_slice(data);
        self.finish(key, Ok(Answer::Read { count: head.count, eof: head.eof }));
        Ok(())
    }

    fn write_answered(
        &mut self,
        key: CallKey,
        mut results: Results<'_>,
        node: Option<NodeId>,
    ) -> Result<(), String> {
        match self.protocol.decode_write(&mut results).map_err(|error| error.to_string())? {
            Ok(written) => self.written(key, &written, node),
            Err(status) => {
                self.fail(key, status);
                Ok(())
            }
        }
    }

    /// The node that a connection leads to.
    fn node_of(&self, conn: ConnId) -> Option<NodeId> {
        self.table.path_of(conn).and_then(|path| self.nodes.get(usize::from(path.0)).copied())
    }

    fn commit_answered(&mut self, key: CallKey, mut results: Results<'_>) -> Result<(), String> {
        match self.protocol.decode_commit(&mut results).map_err(|error| error.to_string())? {
            Ok(verifier) => self.committed(key, verifier),
            Err(Status::Later) => self.delay(key),
            Err(status) => self.fail_group(key, &Error::Status { operation: "COMMIT", status }),
        }
        Ok(())
    }
}
