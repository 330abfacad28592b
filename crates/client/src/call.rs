//! Calls: what they ask for, for whom, and which connection they are on.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use drc::XidClass;
use fs::{Change, FileHandle, Stability};
use memory::{Registered, Registrar};
use paths::{Class, ConnId, NodeId, PathId};
use rpc::Xid;
use slab::Slab;
use transport::{Expect, Pipe, ReceiveBuffer, Slices, SlicesMut, Source};

use crate::buffer::Buffer;
use crate::engine::Closes;
use crate::error::{Error, Result};
use crate::protocol::nfs4::{DATA_OPERATIONS, SlotUse, operations_of};
use crate::protocol::{Procedure, Protocol, Request};
use crate::slot::Promise;

/// The longest reply except those that list or name things: head, status, attributes before and
/// after. Together with the header, the reply fits the smallest message that a peer over RDMA must
/// accept (RFC 8166 s3.3.2).
const REPLY_BYTES: u32 = 640;

/// The reference to a file in reads and writes.
#[derive(Debug, Clone, Copy)]
pub struct FileRef {
    /// The file's handle, valid on every node.
    pub handle: FileHandle,
    /// The file's number within the mount; writes with the same number are committed together.
    pub number: u64,
    /// The node that the file is placed on (its preferred node).
    pub home: Option<NodeId>,
}

/// An operation. The buffer of a READ or a WRITE is returned with the [`Done`].
#[derive(Debug)]
pub enum Op {
    /// READ of `buffer.len()` bytes.
    Read {
        /// The file.
        file: FileRef,
        /// Offset of the first byte to read.
        offset: u64,
        /// The buffer to read into.
        buffer: Buffer,
    },
    /// READ of `len` bytes that need not pass through memory: they are returned as
    /// [`Answer::Piped`] if possible (over TCP, if they fit the pipe), otherwise as
    /// [`Answer::Read`] with a newly allocated buffer.
    ReadToPipe {
        /// The file.
        file: FileRef,
        /// Offset of the first byte to read.
        offset: u64,
        /// The number of bytes.
        len: usize,
        /// The pipe to read into. Must be empty.
        pipe: Pipe,
    },
    /// WRITE of the whole buffer. The operation is done when the data are stable.
    Write {
        /// The file.
        file: FileRef,
        /// Offset of the first byte to write.
        offset: u64,
        /// The data.
        buffer: Buffer,
    },
    /// Any other operation of the mount's protocol.
    Call(Request),
}

impl Op {
    pub(crate) const fn procedure(&self, protocol: Protocol) -> Procedure {
        match self {
            Self::Read { .. } | Self::ReadToPipe { .. } => protocol.read(),
            Self::Write { .. } => protocol.write(),
            Self::Call(request) => request.procedure(),
        }
    }

    pub(crate) fn into_buffer(self) -> Buffer {
        match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => buffer,
            Self::ReadToPipe { .. } | Self::Call(_) => Buffer::default(),
        }
    }

    /// Length of the payload, or of the arguments, in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Read { buffer: bytes, .. } | Self::Write { buffer: bytes, .. } => bytes.len(),
            Self::Call(request) => request.args().len(),
            Self::ReadToPipe { len, .. } => *len,
        }
    }
}

/// The result of a successful operation.
#[derive(Debug)]
pub enum Answer {
    /// The bytes are in the buffer.
    Read {
        /// Number of bytes at the start of the buffer.
        count: u32,
        /// Whether the file ends with them.
        eof: bool,
    },
    /// The bytes are in the pipe.
    Piped {
        /// The pipe that holds the bytes.
        pipe: Pipe,
        /// Whether the file ends with them.
        eof: bool,
    },
    /// All data are written and stable.
    Written,
    /// The results of any other operation that succeeded; [`crate::Operations`] decodes them.
    Results(Vec<u8>),
}

/// A finished operation.
#[derive(Debug)]
pub struct Done {
    /// The outcome.
    pub result: Result<Answer>,
    /// The caller's buffer, for reads and writes; see [`Op`]. For a READ to a pipe that was
    /// received in memory, the buffer with the data.
    pub buffer: Buffer,
    /// Time since the submission.
    pub latency: Duration,
    /// For a WRITE: how it changed the version of its file.
    pub change: Change,
}

impl Done {
    pub(crate) fn failed(error: Error, buffer: Buffer, latency: Duration) -> Self {
        Self { result: Err(error), buffer, latency, change: Change::default() }
    }

    /// The results of an [`Op::Call`].
    pub(crate) fn results(self) -> Result<Vec<u8>> {
        match self.result? {
            Answer::Results(results) => Ok(results),
            Answer::Read { .. } | Answer::Piped { .. } | Answer::Written => Ok(Vec::new()),
        }
    }
}

/// The recipient of a call's outcome.
#[derive(Debug)]
pub(crate) enum Owner {
    /// A task of the loop, with its token.
    Task(usize, u64),
    /// Another thread.
    Slot(Promise),
    /// The engine itself.
    Engine,
}

/// The request to the server.
#[derive(Debug)]
pub(crate) enum Body {
    Read {
        file: FileRef,
        offset: u64,
        target: Target,
    },
    /// `written` bytes of the buffer were written by earlier, short writes.
    Write {
        file: FileRef,
        offset: u64,
        buffer: Buffer,
        written: usize,
        stability: Stability,
        /// The change of the file that the server has reported so far.
        change: Change,
    },
    Commit {
        file: FileRef,
        node: NodeId,
    },
    Call(Request),
    /// A call that validates the connection.
    Validate(Stage, Request),
}

/// What is asked on a new connection before it carries calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Who the server is (version 4). RFC 8881 s2.10.5
    Identity,
    /// To count the connection to the session (version 4). RFC 8881 s18.34
    Bind,
    /// Which file system it leads to: GETATTR of the root.
    Root,
    /// To have a connection that carries calls carry call-backs as well. RFC 8881 s18.34
    BindBack,
}

/// The destination of the bytes of a READ.
#[derive(Debug)]
pub(crate) enum Target {
    Memory(Buffer),
    /// A pipe, and the number of bytes to read into it.
    Pipe(Pipe, usize),
}

impl Target {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Memory(buffer) => buffer.len(),
            Self::Pipe(_, len) => *len,
        }
    }

    /// Returns memory in any case: a pipe is given up together with its contents.
    pub(crate) fn memory(&mut self) -> &mut Buffer {
        if let Self::Pipe(_, len) = self {
            *self = Self::Memory(vec![0; *len].into());
        }
        match self {
            Self::Memory(buffer) => buffer,
            Self::Pipe(..) => unreachable!("it was replaced just now"),
        }
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::Memory(Buffer::default())
    }
}

/// The user on whose behalf a call is made, if not the mount's own user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
    /// Supplementary groups; AUTH_SYS carries the first 16.
    pub gids: Vec<u32>,
}

/// One call, from its submission to its end.
#[derive(Debug)]
pub(crate) struct Call {
    pub body: Body,
    pub protocol: Protocol,
    /// The user whose credential the call carries; `None` for the mount's own user.
    pub caller: Option<Arc<Caller>>,
    pub owner: Owner,
    /// Kept across retransmissions; `None` until the xid space has room.
    pub xid: Option<Xid>,
    /// The slot of a call in a session, kept in the same way until the server has executed the
    /// call.
    pub slot: Option<SlotUse>,
    /// The connection on which the call is outstanding.
    pub connection: Option<ConnId>,
    /// The path on which the call was last sent under this xid.
    pub sent_on: Option<PathId>,
    /// The call was sent more than once under this xid: its reply may reflect an earlier execution
    /// of the same call.
    pub sent_again: bool,
    /// An earlier session may have executed the call.
    pub in_doubt: bool,
    /// How often a reply to the call could not be read.
    pub bad_replies: u32,
    /// The connections that the server ended instead of an answer.
    pub closes: Option<Box<Closes>>,
    /// How often the data of a WRITE had to be written again because of what the server answered.
    pub rewrites: u32,
    pub submitted_at: Duration,
    pub sent_at: Duration,
}

impl Call {
    pub(crate) fn class(&self) -> Class {
        match self.body {
            Body::Read { .. } => Class::Read,
            Body::Write { .. } | Body::Commit { .. } => Class::Write,
            Body::Call(_) | Body::Validate(..) => Class::Metadata,
        }
    }

    pub(crate) fn home(&self) -> Option<NodeId> {
        match &self.body {
            Body::Read { file, .. } | Body::Write { file, .. } => file.home,
            Body::Commit { node, .. } => Some(*node),
            Body::Call(_) | Body::Validate(..) => None,
        }
    }

    /// The bytes that the call moves, for balancing the paths.
    pub(crate) fn bytes(&self) -> u32 {
        match &self.body {
            Body::Read { target, .. } => u32::try_from(target.len()).unwrap_or(u32::MAX),
            Body::Write { buffer, written, .. } => u32::try_from(buffer.len() - written).unwrap_or(u32::MAX),
            Body::Commit { .. } | Body::Call(_) | Body::Validate(..) => 0,
        }
    }

    pub(crate) fn procedure(&self) -> Procedure {
        match &self.body {
            Body::Read { .. } => self.protocol.read(),
            Body::Write { .. } => self.protocol.write(),
            Body::Commit { .. } => self.protocol.commit(),
            Body::Call(request) | Body::Validate(_, request) => request.procedure(),
        }
    }

    pub(crate) fn xid_class(&self) -> XidClass {
        self.procedure().xid_class()
    }

    pub(crate) fn operation(&self) -> &'static str {
        self.procedure().name()
    }

    /// The number of the operations that follow SEQUENCE, of a call in a session.
    pub(crate) fn operations(&self) -> u32 {
        match &self.body {
            Body::Call(request) | Body::Validate(_, request) => operations_of(request.args()),
            Body::Read { .. } | Body::Write { .. } | Body::Commit { .. } => DATA_OPERATIONS,
        }
    }

    /// Whether the reply may reflect an earlier execution of the call: the server takes the last
    /// transmission for a new call.
    pub(crate) const fn may_be_repeated(&self) -> bool {
        self.in_doubt || self.sent_again && !self.protocol.has_sessions()
    }

    /// What the call asks for, for the log.
    pub(crate) fn description(&self) -> String {
        let operation = self.operation();
        match &self.body {
            Body::Read { file, offset, .. } | Body::Write { file, offset, .. } => {
                format!("{operation} at offset {offset} of the file with handle {}", file.handle)
            }
            Body::Commit { file, .. } => format!("{operation} of the file with handle {}", file.handle),
            Body::Call(request) => request.procedure().describe(request.args()),
            Body::Validate(Stage::Root, _) => format!("{operation} of the root"),
            Body::Validate(..) => operation.to_owned(),
        }
    }

    /// The data of a WRITE that are not written yet.
    pub(crate) fn payload(&self) -> &[u8] {
        match &self.body {
            Body::Write { buffer, written, .. } => buffer.get(*written..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// What the call expects in reply. RFC 8166 s4.3.3
    pub(crate) fn expect(&self) -> Expect {
        let (payload_max, more) = match &self.body {
            Body::Read { target, .. } => (u32::try_from(target.len()).unwrap_or(u32::MAX), 0),
            Body::Call(request) | Body::Validate(_, request) => {
                (0, request.procedure().reply_bytes_max(request.args()))
            }
            Body::Write { .. } | Body::Commit { .. } => (0, 0),
        };
        Expect { payload_max, reply_max: REPLY_BYTES + more }
    }

    pub(crate) fn misbehaved(&self, reason: impl Into<String>) -> Error {
        Error::PeerMisbehaved { operation: self.operation(), reason: reason.into() }
    }
}

/// Identifies a call of an engine.
pub(crate) type CallKey = usize;

/// The calls of an engine; also the source of the payload of queued WRITEs.
#[derive(Debug, Default)]
pub(crate) struct Calls(pub Slab<Call>);

impl Source<CallKey> for Calls {
    fn slices<'a>(&'a self, payload: &'a CallKey, out: &mut Slices<'a>) {
        if let Some(call) = self.0.get(*payload) {
            out.push(IoSlice::new(call.payload()));
        }
    }

    /// While a call is outstanding on a connection, its body is neither read nor written here.
    fn memory(&self, payload: &CallKey, with: &Registrar) -> Option<Registered> {
        match &self.0.get(*payload)?.body {
            Body::Read { target: Target::Memory(buffer), .. } => buffer.registered(0, with),
            Body::Write { buffer, written, .. } => buffer.registered(*written, with),
            _ => None,
        }
    }
}

/// A caller's buffer while the connection receives into it.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    pub key: CallKey,
    pub target: Target,
    /// The number of bytes that the server fills.
    pub len: usize,
}

impl ReadBuffer {
    /// Empties a pipe for another attempt: its contents are from a reply that was cut off.
    pub(crate) fn empty(&mut self) {
        if let Target::Pipe(pipe, _) = &mut self.target
            && pipe.discard().is_err()
        {
            self.target.memory();
        }
    }
}

impl ReceiveBuffer for ReadBuffer {
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>) {
        out.push(IoSliceMut::new(self.target.memory().get_mut(from..self.len).unwrap_or_default()));
    }

    fn pipe(&mut self) -> Option<&mut Pipe> {
        match &mut self.target {
            Target::Memory(_) => None,
            Target::Pipe(pipe, _) => Some(pipe),
        }
    }

    fn leave_pipe(&mut self) -> std::io::Result<()> {
        if let Target::Pipe(pipe, len) = &mut self.target {
            let mut buffer = vec![0; *len];
            pipe.read(&mut buffer)?;
            self.target = Target::Memory(buffer.into());
        }
        Ok(())
    }
}
