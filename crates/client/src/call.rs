//! Calls on their way: what was asked, for whom, and where it is.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use drc::XidClass;
use fs::{Change, FileHandle, Stability};
use paths::{Class, ConnId, NodeId, PathId};
use rpc::Xid;
use slab::Slab;
use transport::{Pipe, ReceiveBuffer, Slices, SlicesMut, Source};

use crate::error::{Error, Result};
use crate::protocol::{self, Procedure, Request};
use crate::slot::Promise;

/// A file as reads and writes name it.
#[derive(Debug, Clone, Copy)]
pub struct FileRef {
    /// Its handle on every node.
    pub handle: FileHandle,
    /// Its number within the mount: what is committed together.
    pub number: u64,
    /// The node it is placed on.
    pub home: Option<NodeId>,
}

/// What a caller asks for. The buffer of a READ or a WRITE comes back with the [`Done`].
#[derive(Debug)]
pub enum Op {
    /// READ of `buffer.len()` bytes.
    Read {
        /// Which file.
        file: FileRef,
        /// From where.
        offset: u64,
        /// Where to.
        buffer: Vec<u8>,
    },
    /// READ of `len` bytes that shall not pass through memory: they come as [`Answer::Piped`],
    /// where that can be (over TCP, if they fit the pipe), or as [`Answer::Read`] with a buffer
    /// that was not asked for.
    ReadToPipe {
        /// Which file.
        file: FileRef,
        /// From where.
        offset: u64,
        /// How many bytes.
        len: usize,
        /// Where to. It is empty.
        pipe: Pipe,
    },
    /// WRITE of the whole buffer. It is done when the data are stable.
    Write {
        /// Which file.
        file: FileRef,
        /// Where to.
        offset: u64,
        /// The data.
        buffer: Vec<u8>,
    },
    /// Any other operation of the mount's protocol.
    Call(Request),
}

impl Op {
    pub(crate) const fn procedure(&self) -> Procedure {
        match self {
            Self::Read { .. } | Self::ReadToPipe { .. } => protocol::READ,
            Self::Write { .. } => protocol::WRITE,
            Self::Call(request) => request.procedure(),
        }
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => buffer,
            Self::ReadToPipe { .. } | Self::Call(_) => Vec::new(),
        }
    }

    /// Bytes of payload, or of arguments.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Read { buffer: bytes, .. } | Self::Write { buffer: bytes, .. } => bytes.len(),
            Self::Call(request) => request.args().len(),
            Self::ReadToPipe { len, .. } => *len,
        }
    }
}

/// What an operation gave.
#[derive(Debug)]
pub enum Answer {
    /// Bytes read, and whether the file ends there.
    Read {
        /// Bytes at the start of the buffer.
        count: u32,
        /// Whether the file ends with them.
        eof: bool,
    },
    /// Bytes read, and whether the file ends there.
    Piped {
        /// It has the bytes.
        pipe: Pipe,
        /// Whether the file ends with them.
        eof: bool,
    },
    /// All is written and stable.
    Written,
    /// The results of another operation that succeeded; [`crate::Operations`] reads them.
    Results(Vec<u8>),
}

/// A finished operation.
#[derive(Debug)]
pub struct Done {
    /// How it ended.
    pub result: Result<Answer>,
    /// The caller's buffer, for reads and writes; see [`Op`]. Of a READ to a pipe that came by
    /// memory, that.
    pub buffer: Vec<u8>,
    /// From the submission to now.
    pub latency: Duration,
    /// Of a WRITE: what it did to the version of its file.
    pub change: Change,
}

impl Done {
    pub(crate) fn failed(error: Error, buffer: Vec<u8>, latency: Duration) -> Self {
        Self { result: Err(error), buffer, latency, change: Change::default() }
    }

    /// What an [`Op::Call`] has brought.
    pub(crate) fn results(self) -> Result<Vec<u8>> {
        match self.result? {
            Answer::Results(results) => Ok(results),
            Answer::Read { .. } | Answer::Piped { .. } | Answer::Written => Ok(Vec::new()),
        }
    }
}

/// Who waits for a call.
#[derive(Debug)]
pub(crate) enum Owner {
    /// A task of the loop, with its token.
    Task(usize, u64),
    /// Another thread.
    Slot(Promise),
    /// The engine itself.
    Engine,
}

/// What is asked of the server.
#[derive(Debug)]
pub(crate) enum Body {
    Read {
        file: FileRef,
        offset: u64,
        target: Target,
    },
    /// `written` bytes of the buffer are done by earlier, short writes.
    Write {
        file: FileRef,
        offset: u64,
        buffer: Vec<u8>,
        written: usize,
        stability: Stability,
        /// What the server has told of the file since.
        change: Change,
    },
    Commit {
        file: FileRef,
        node: NodeId,
    },
    Call(Request),
    /// GETATTR of the root: the connection proves where it leads.
    Validate,
}

/// Where the bytes of a READ go.
#[derive(Debug)]
pub(crate) enum Target {
    Memory(Vec<u8>),
    /// A pipe, and how many it shall have.
    Pipe(Pipe, usize),
}

impl Target {
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Memory(buffer) => buffer.len(),
            Self::Pipe(_, len) => *len,
        }
    }

    /// Memory in any case: a pipe is given up, with what it holds.
    pub(crate) fn memory(&mut self) -> &mut Vec<u8> {
        if let Self::Pipe(_, len) = self {
            *self = Self::Memory(vec![0; *len]);
        }
        match self {
            Self::Memory(buffer) => buffer,
            Self::Pipe(..) => unreachable!("it was replaced just now"),
        }
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

/// For whom a call is made, where that is not the mount's own user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
    /// Further groups; AUTH_SYS carries the first 16.
    pub gids: Vec<u32>,
}

/// One call, from its submission to its end.
#[derive(Debug)]
pub(crate) struct Call {
    pub body: Body,
    /// Whose credential it carries; the mount's where absent.
    pub caller: Option<Arc<Caller>>,
    pub owner: Owner,
    /// Kept over every retransmission; absent until the xid space has room.
    pub xid: Option<Xid>,
    /// The connection it is outstanding on.
    pub connection: Option<ConnId>,
    /// The path it was last sent on, under this xid.
    pub sent_on: Option<PathId>,
    /// It was sent more than once, under this xid: what answers it may have been done by its
    /// original.
    pub sent_again: bool,
    pub submitted_at: Duration,
    pub sent_at: Duration,
}

impl Call {
    pub(crate) fn class(&self) -> Class {
        match self.body {
            Body::Read { .. } => Class::Read,
            Body::Write { .. } | Body::Commit { .. } => Class::Write,
            Body::Call(_) | Body::Validate => Class::Metadata,
        }
    }

    pub(crate) fn home(&self) -> Option<NodeId> {
        match &self.body {
            Body::Read { file, .. } | Body::Write { file, .. } => file.home,
            Body::Commit { node, .. } => Some(*node),
            Body::Call(_) | Body::Validate => None,
        }
    }

    /// What the call moves, for the balance of the paths.
    pub(crate) fn bytes(&self) -> u32 {
        match &self.body {
            Body::Read { target, .. } => u32::try_from(target.len()).unwrap_or(u32::MAX),
            Body::Write { buffer, written, .. } => u32::try_from(buffer.len() - written).unwrap_or(u32::MAX),
            Body::Commit { .. } | Body::Call(_) | Body::Validate => 0,
        }
    }

    pub(crate) fn procedure(&self) -> Procedure {
        match &self.body {
            Body::Read { .. } => protocol::READ,
            Body::Write { .. } => protocol::WRITE,
            Body::Commit { .. } => protocol::COMMIT,
            Body::Call(request) => request.procedure(),
            Body::Validate => protocol::GETATTR,
        }
    }

    pub(crate) fn xid_class(&self) -> XidClass {
        protocol::xid_class(self.procedure())
    }

    pub(crate) fn operation(&self) -> &'static str {
        self.procedure().name()
    }

    /// The data of a WRITE that are still to be written.
    pub(crate) fn payload(&self) -> &[u8] {
        match &self.body {
            Body::Write { buffer, written, .. } => buffer.get(*written..).unwrap_or_default(),
            _ => &[],
        }
    }

    pub(crate) fn misbehaved(&self, reason: impl Into<String>) -> Error {
        Error::PeerMisbehaved { operation: self.operation(), reason: reason.into() }
    }
}

/// Names a call of an engine.
pub(crate) type CallKey = usize;

/// The calls of an engine; where the payload of queued WRITEs is found.
#[derive(Debug, Default)]
pub(crate) struct Calls(pub Slab<Call>);

impl Source<CallKey> for Calls {
    fn slices<'a>(&'a self, payload: &'a CallKey, out: &mut Slices<'a>) {
        if let Some(call) = self.0.get(*payload) {
            out.push(IoSlice::new(call.payload()));
        }
    }
}

/// A caller's buffer while the connection receives into it.
#[derive(Debug)]
pub(crate) struct ReadLanding {
    pub key: CallKey,
    pub target: Target,
    /// How much of it the server fills.
    pub len: usize,
}

impl ReadLanding {
    /// Makes a pipe fit for another try: what came is of an answer that was cut off.
    pub(crate) fn empty(&mut self) {
        if let Target::Pipe(pipe, _) = &mut self.target
            && pipe.discard().is_err()
        {
            self.target.memory();
        }
    }
}

impl ReceiveBuffer for ReadLanding {
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
            self.target = Target::Memory(buffer);
        }
        Ok(())
    }
}
