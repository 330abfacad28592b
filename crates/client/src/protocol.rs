//! The file protocol of a mount: how operations are encoded, and what their results mean.
//!
//! This module is the only part of the client that knows a wire format: everything outside of it
//! uses the types of [`fs`]. The engine asks this module for what depends on the protocol: the
//! bytes of a call, the meaning of a reply, whether a procedure may run twice, and how long its
//! reply may be.
//!
//! [`Protocol`] is a choice between the protocols, each of which has a module: [`nfs3`] and
//! [`nfs4`]. What the engine asks about one call it asks the call's [`Procedure`].

mod nfs3;
pub(crate) mod nfs4;
mod operations;

use ::nfs3::Procedure as Nfs3Procedure;
use ::nfs4::Operation as Nfs4Operation;
use drc::XidClass;
use fs::{Attributes, Change, FileHandle, Stability, Status, Verifier};
use rpc::Xid;
use xdr::{Reader, Writer};

#[cfg(test)]
pub(crate) use self::nfs3::root_reply;
pub(crate) use self::nfs3::{MOUNT_PROGRAM, NFS as NFS3, exports, mnt};
use self::nfs4::SlotUse;
use crate::call::Op;
use crate::caller::Program;
use crate::error::{Error, Result};
use crate::owners::{Names, SetOwners};
use crate::statistics::Replays;

/// The file protocol of a mount; it creates the mount's operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol(Version);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Nfs3,
    Nfs4 {
        minor: u32,
        /// The longest page of a directory.
        page_bytes: u32,
    },
}

/// What a call asks for: a procedure of version 3, or a compound of version 4, which is named for
/// the operation that it is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Procedure {
    Nfs3(Nfs3Procedure),
    Nfs4(Nfs4Operation),
}

impl Procedure {
    /// The name in the protocol's standard.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nfs3(procedure) => procedure.name(),
            Self::Nfs4(operation) => operation.name(),
        }
    }

    /// Whether the call changes something on the server.
    pub(crate) const fn changes(self) -> bool {
        match self {
            Self::Nfs3(procedure) => procedure.changes(),
            Self::Nfs4(operation) => operation.changes(),
        }
    }

    /// Whether it matters that the call may have been executed although nobody knows.
    pub(crate) fn leaves_doubt(self) -> bool {
        match self {
            Self::Nfs3(procedure) => procedure.xid_class() != XidClass::Repeatable,
            Self::Nfs4(operation) => operation.changes(),
        }
    }

    /// Whether a server may run the call twice, which determines the class of its xid.
    pub(crate) fn xid_class(self) -> XidClass {
        match self {
            Self::Nfs3(procedure) => procedure.xid_class(),
            // Its slot tells a repeated call, not its xid. RFC 8881 s2.10.6
            Self::Nfs4(_) => XidClass::Repeatable,
        }
    }

    /// Whether a call that the server executes late undoes newer changes.
    pub(crate) fn may_undo(self) -> bool {
        match self {
            Self::Nfs3(procedure) => nfs3::may_undo(procedure),
            // A late call finds its slot taken by the next one.
            Self::Nfs4(_) => false,
        }
    }

    /// Whether the call carries data, which RDMA may transfer separately.
    pub(crate) fn sends_data(self) -> bool {
        match self {
            Self::Nfs3(procedure) => nfs3::sends_data(procedure),
            Self::Nfs4(operation) => operation == Nfs4Operation::Write,
        }
    }

    /// How much longer than other replies the reply to the call may be.
    pub(crate) fn reply_bytes_max(self, args: &[u8]) -> u32 {
        match self {
            Self::Nfs3(procedure) => nfs3::reply_bytes_max(procedure, args),
            Self::Nfs4(operation) => nfs4::reply_bytes_max(operation),
        }
    }

    /// The error status at the beginning of the results of a call; `None` if the call succeeded or
    /// there is no status.
    pub(crate) fn status_of(self, results: &[u8]) -> Option<Status> {
        match self {
            Self::Nfs3(_) => nfs3::status_of(results),
            Self::Nfs4(operation) => nfs4::status_of(operation, results),
        }
    }

    /// What a call with these arguments asks for, for the log.
    pub(crate) fn describe(self, args: &[u8]) -> String {
        match self {
            Self::Nfs3(procedure) => nfs3::describe(procedure, args),
            Self::Nfs4(operation) => nfs4::describe(operation, args),
        }
    }

    /// Corrects the results of a call that may have been executed before. The results begin with
    /// their status.
    pub(crate) fn reconcile(self, results: &mut Vec<u8>, replays: &mut Replays) {
        match self {
            Self::Nfs3(procedure) => nfs3::reconcile(procedure, results, replays),
            Self::Nfs4(operation) => nfs4::reconcile(operation, results, replays),
        }
    }
}

impl Protocol {
    /// The minor version of version 4, or 0.
    pub(crate) const fn minor(self) -> u32 {
        match self.0 {
            Version::Nfs3 => 0,
            Version::Nfs4 { minor, .. } => minor,
        }
    }

    /// The longest page of names that is asked for; 0 where the protocol does not bound it.
    pub(crate) const fn page_bytes(self) -> u32 {
        match self.0 {
            Version::Nfs3 => 0,
            Version::Nfs4 { page_bytes, .. } => page_bytes,
        }
    }

    /// Whether the protocol has extended attributes, holes, reserved storage and copies that the
    /// server makes: version 4.2. A server may support some of these.
    #[must_use]
    pub const fn has_version_4_2(self) -> bool {
        self.minor() >= 2
    }

    /// NFS version 3.
    pub(crate) const NFS3: Self = Self(Version::Nfs3);

    /// A minor version of NFS version 4, for directories in pages of so many bytes.
    pub(crate) const fn nfs4(minor: u32, page_bytes: u32) -> Self {
        Self(Version::Nfs4 { minor, page_bytes })
    }

    /// Whether calls are made in sessions, whose slots tell repeated calls. RFC 8881 s2.10
    pub(crate) const fn has_sessions(self) -> bool {
        matches!(self.0, Version::Nfs4 { .. })
    }

    /// The version, as people write it: `3`, `4.2`.
    #[must_use]
    pub fn version(self) -> String {
        match self.0 {
            Version::Nfs3 => "3".to_owned(),
            Version::Nfs4 { minor, .. } => format!("4.{minor}"),
        }
    }

    /// The program, for calls without a mount.
    pub(crate) const fn program(self) -> Program {
        match self.0 {
            Version::Nfs3 => NFS3,
            Version::Nfs4 { .. } => nfs4::PROGRAM,
        }
    }

    pub(crate) const fn read(self) -> Procedure {
        match self.0 {
            Version::Nfs3 => Procedure::Nfs3(Nfs3Procedure::Read),
            Version::Nfs4 { .. } => Procedure::Nfs4(Nfs4Operation::Read),
        }
    }

    pub(crate) const fn write(self) -> Procedure {
        match self.0 {
            Version::Nfs3 => Procedure::Nfs3(Nfs3Procedure::Write),
            Version::Nfs4 { .. } => Procedure::Nfs4(Nfs4Operation::Write),
        }
    }

    pub(crate) const fn commit(self) -> Procedure {
        match self.0 {
            Version::Nfs3 => Procedure::Nfs3(Nfs3Procedure::Commit),
            Version::Nfs4 { .. } => Procedure::Nfs4(Nfs4Operation::Commit),
        }
    }

    /// Writes the header of a call; its arguments follow.
    pub(crate) fn encode_call(
        self,
        writer: &mut Writer<'_>,
        xid: Xid,
        procedure: Procedure,
        credential: &[u8],
    ) {
        let Program { number, version } = self.program();
        let procedure = match procedure {
            Procedure::Nfs3(procedure) => procedure.number(),
            Procedure::Nfs4(_) => nfs4::COMPOUND,
        };
        rpc::call::encode(writer, xid, number, version, procedure, credential);
    }

    /// Writes a NULL call, which a server answers without accessing a file. RFC 1813 s3.3.0
    pub(crate) fn encode_null(self, writer: &mut Writer<'_>, xid: Xid) {
        let mut credential = Vec::new();
        rpc::auth::encode_none(&mut Writer::new(&mut credential));
        let Program { number, version } = self.program();
        rpc::call::encode(writer, xid, number, version, NULL, &credential);
    }

    /// Writes the arguments of a call that are encoded already. A call of version 4 begins with its
    /// slot, unless it is made outside of a session.
    pub(crate) fn encode_request(self, writer: &mut Writer<'_>, request: &Request, slot: Option<&SlotUse>) {
        match request.procedure {
            Procedure::Nfs3(_) => writer.bytes(&request.args),
            Procedure::Nfs4(operation) => nfs4::encode_request(writer, operation, &request.args, slot),
        }
    }

    pub(crate) fn encode_read(
        self,
        writer: &mut Writer<'_>,
        slot: Option<&SlotUse>,
        file: FileHandle,
        (offset, count): (u64, u32),
    ) {
        match (self.0, slot) {
            (Version::Nfs3, _) => nfs3::encode_read(writer, file, offset, count),
            (Version::Nfs4 { minor, .. }, Some(slot)) => {
                nfs4::encode_read(writer, minor, slot, file, (offset, count));
            }
            (Version::Nfs4 { .. }, None) => debug_assert!(false, "{WITHOUT_SLOT}"),
        }
    }

    pub(crate) fn encode_write(
        self,
        writer: &mut Writer<'_>,
        slot: Option<&SlotUse>,
        file: FileHandle,
        (offset, count, stability): (u64, u32, Stability),
    ) {
        match (self.0, slot) {
            (Version::Nfs3, _) => nfs3::encode_write(writer, file, offset, count, stability),
            (Version::Nfs4 { minor, .. }, Some(slot)) => {
                nfs4::encode_write(writer, minor, slot, file, (offset, count, stability));
            }
            (Version::Nfs4 { .. }, None) => debug_assert!(false, "{WITHOUT_SLOT}"),
        }
    }

    /// Commits the whole file.
    pub(crate) fn encode_commit(self, writer: &mut Writer<'_>, slot: Option<&SlotUse>, file: FileHandle) {
        match (self.0, slot) {
            (Version::Nfs3, _) => nfs3::encode_commit(writer, file),
            (Version::Nfs4 { minor, .. }, Some(slot)) => nfs4::encode_commit(writer, minor, slot, file),
            (Version::Nfs4 { .. }, None) => debug_assert!(false, "{WITHOUT_SLOT}"),
        }
    }

    /// Leaves the results at the data of the READ.
    pub(crate) fn decode_read(self, results: &mut Results<'_>) -> Answered<ReadHead> {
        match self.0 {
            Version::Nfs3 => nfs3::decode_read(&mut results.reader),
            Version::Nfs4 { .. } => nfs4::decode_read(results),
        }
    }

    pub(crate) fn decode_write(self, results: &mut Results<'_>) -> Answered<Written> {
        match self.0 {
            Version::Nfs3 => nfs3::decode_write(&mut results.reader),
            Version::Nfs4 { .. } => nfs4::decode_write(results),
        }
    }

    pub(crate) fn decode_commit(self, results: &mut Results<'_>) -> Answered<Verifier> {
        match self.0 {
            Version::Nfs3 => nfs3::decode_commit(&mut results.reader),
            Version::Nfs4 { .. } => nfs4::decode_commit(results),
        }
    }

    /// The attributes of the root, which validate a connection.
    pub(crate) fn decode_root(self, results: &mut Results<'_>) -> Answered<Attributes> {
        match self.0 {
            Version::Nfs3 => nfs3::decode_root(&mut results.reader),
            Version::Nfs4 { .. } => nfs4::decode_root(results),
        }
    }
}

/// Whether SETATTR has failed because the server does not take an owner as it was sent.
/// RFC 8881 s15.1.15.2
pub(crate) fn is_bad_owner(error: &Error) -> bool {
    error.status() == Some(Status::Other(::nfs4::Status::BADOWNER.0))
}

/// A status of version 4 as a file system speaks of it.
pub(crate) const fn status_of_nfs4(status: ::nfs4::Status) -> Status {
    nfs4::status(status)
}

/// A call is sent only when it has its slot.
const WITHOUT_SLOT: &str = "a call of version 4 without a slot";

/// The results of a call that the server has executed.
#[derive(Debug, Clone)]
pub(crate) struct Results<'a> {
    /// The failure, if it failed.
    pub status: Option<Status>,
    /// The status of a compound, which does not precede the results here.
    number: Option<u32>,
    /// The results, in version 3 from their status on.
    pub reader: Reader<'a>,
}

impl<'a> Results<'a> {
    /// Those of a call of version 3.
    pub(crate) fn nfs3(reader: Reader<'a>) -> Self {
        Self { status: nfs3::status_of(reader.rest()), number: None, reader }
    }

    /// Keeps them, with their status first, for [`Reading::read`].
    pub(crate) fn keep(&self, into: &mut Vec<u8>) {
        if let Some(number) = self.number {
            into.extend_from_slice(&number.to_be_bytes());
        }
        into.extend_from_slice(self.reader.rest());
    }

    #[cfg(test)]
    pub(crate) const fn for_tests(reader: Reader<'a>) -> Self {
        Self { status: None, number: Some(0), reader }
    }
}

/// The procedure that does nothing, in every version. RFC 1813 s3.3.0, RFC 8881 s16.1
const NULL: u32 = 0;

/// An operation other than READ and WRITE, encoded for the wire.
#[derive(Debug)]
pub struct Request {
    procedure: Procedure,
    args: Vec<u8>,
    is_at_once: bool,
}

impl Request {
    pub(crate) const fn new(procedure: Procedure, args: Vec<u8>) -> Self {
        Self { procedure, args, is_at_once: false }
    }

    /// Whether the call fails where the server wants to be asked later.
    pub(crate) const fn is_at_once(&self) -> bool {
        self.is_at_once
    }

    pub(crate) const fn procedure(&self) -> Procedure {
        self.procedure
    }

    pub(crate) fn args(&self) -> &[u8] {
        &self.args
    }

    /// Whether this is SEQUENCE and nothing else.
    pub(crate) fn is_bare_sequence(&self) -> bool {
        self.procedure == Procedure::Nfs4(Nfs4Operation::Sequence)
    }

    /// Whether the request concerns opens and locks alone, and neither names nor files.
    pub(crate) fn is_of_state(&self) -> bool {
        use Nfs4Operation as Nfs;
        match self.procedure {
            Procedure::Nfs3(_) => false,
            Procedure::Nfs4(Nfs::Lock | Nfs::LockU | Nfs::Close | Nfs::FreeStateid | Nfs::DelegReturn) => {
                true
            }
            Procedure::Nfs4(Nfs::Open) => !nfs4::may_create(&self.args),
            Procedure::Nfs4(_) => false,
        }
    }

    /// Takes the memory of the arguments once they are no longer needed.
    pub(crate) fn take_memory(&mut self) -> Vec<u8> {
        let mut memory = std::mem::take(&mut self.args);
        memory.clear();
        memory
    }

    /// Copies the request into existing memory, such as that of the last results.
    #[must_use]
    pub fn again(&self, mut memory: Vec<u8>) -> Self {
        memory.clear();
        memory.extend_from_slice(&self.args);
        Self { procedure: self.procedure, args: memory, is_at_once: self.is_at_once }
    }
}

/// Decodes the results of a successful call, which follow the status.
type Decode<T> = fn(&mut xdr::Reader<'_>) -> xdr::Result<T>;

/// The same where owners may be names.
type DecodeOwned<T> = fn(&mut xdr::Reader<'_>, &Names<'_>) -> xdr::Result<T>;

#[derive(Debug)]
enum Decoding<T> {
    Plain(Decode<T>),
    WithOwners(DecodeOwned<T>),
}

/// An operation, and how its results are decoded.
#[derive(Debug)]
pub struct Operation<T> {
    request: Request,
    reading: Reading<T>,
}

/// How the results of an operation are decoded.
#[derive(Debug)]
pub(crate) struct Reading<T> {
    procedure: Procedure,
    decoding: Decoding<T>,
}

impl<T> Operation<T> {
    pub(crate) const fn new(procedure: Procedure, args: Vec<u8>, decode: Decode<T>) -> Self {
        Self::decoded_by(procedure, args, Decoding::Plain(decode))
    }

    /// An operation with owners in its results.
    pub(crate) const fn with_owners(procedure: Procedure, args: Vec<u8>, decode: DecodeOwned<T>) -> Self {
        Self::decoded_by(procedure, args, Decoding::WithOwners(decode))
    }

    const fn decoded_by(procedure: Procedure, args: Vec<u8>, decoding: Decoding<T>) -> Self {
        let reading = Reading { procedure, decoding };
        Self { request: Request::new(procedure, args), reading }
    }

    /// The operation fails where the server wants to be asked later.
    pub(crate) fn at_once(mut self) -> Self {
        self.request.is_at_once = true;
        self
    }

    pub(crate) fn into_parts(self) -> (Request, Reading<T>) {
        (self.request, self.reading)
    }

    /// The request alone, for a caller that needs to know only whether it succeeded.
    #[must_use]
    pub fn into_request(self) -> Request {
        self.request
    }
}

impl<T> From<Operation<T>> for Op {
    fn from(operation: Operation<T>) -> Self {
        Self::Call(operation.request)
    }
}

impl<T> Reading<T> {
    /// Decodes the results of a call, starting with the status. Owners are numbers.
    pub(crate) fn read(&self, results: &[u8]) -> Result<T> {
        self.read_with(results, &Names::none())
    }

    /// Decodes the results of a call, starting with the status.
    pub(crate) fn read_with(&self, results: &[u8], names: &Names<'_>) -> Result<T> {
        let operation = self.procedure.name();
        if let Some(status) = self.procedure.status_of(results) {
            return Err(Error::Status { operation, status });
        }
        // Results too short for a status are refused like any that are too short.
        let mut reader = xdr::Reader::new(results);
        let decoded = reader.u32().and_then(|_| match self.decoding {
            Decoding::Plain(decode) => decode(&mut reader),
            Decoding::WithOwners(decode) => decode(&mut reader, names),
        });
        decoded.map_err(|error| Error::PeerMisbehaved { operation, reason: error.to_string() })
    }
}

/// A newly created object, as far as the server describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The handle. A server need not return the handle of a new object. RFC 1813 s3.3.8
    pub handle: Option<FileHandle>,
    /// The attributes.
    pub attributes: Option<Attributes>,
}

/// The head of the reply to a READ; the data follow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadHead {
    pub count: u32,
    pub eof: bool,
}

/// The reply to a WRITE.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub change: Change,
    pub count: u32,
    pub stability: Stability,
    pub verifier: Verifier,
}

/// A decoded reply: its contents, or the server's error.
pub(crate) type Answered<T> = xdr::Result<std::result::Result<T, Status>>;
