//! One compound: what its operations share, its session and slot, and the loop over its operations.
//! RFC 8881 s2.10.6, s16.2

pub(super) mod progress;
mod sequence;

use super::pseudo::Node;
use super::status::of_target;
use super::{
    attributes, copy, delegation, handles, holes, io, layout, lock, names, open, secinfo, session, stateid,
    xattr,
};
use crate::export::Export;
use crate::group::Group;
use crate::nfs4_state::Nfs4State;
use crate::program::{Answered, Call, PlacedWrite};
use crate::replies::Payload;
use crate::request::{Request, Target, request};
use drc::Token;
use nfs4::compound::{self as wire, ReplyWriter, RequestReader};
use nfs4::op::{Args, Fore, Reply};
use nfs4::{SessionId, Stateid, Status};
use progress::Steps;
use rpc::portmap::Protocol;
use rpc::reply::{Accept, SUCCESS_BYTES, encode_success};
use sequence::{Begun, Running};
use state::{ClientRef, SessionChannels, StateId, Ticket};
use std::time::Duration;
use store::{ObjectId, ReceiveBuffer};
use xdr::Writer;

/// A result that has changed something is no longer than this. So a reply without room for it is
/// refused before anything is changed.
const CHANGE_RESULT_BYTES: usize = 160;

/// The number of an operation, and its status, before the rest of its result.
const RESULT_HEAD_BYTES: usize = 8;

/// What an operation returns, or its failure.
pub(super) type Outcome<T> = Result<T, Status>;

/// An object that a handle names.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
    /// A directory above the exports.
    Pseudo(Node<'a>),
    /// An object of an export.
    Object(&'a Export, ObjectId),
}

/// The current or the saved object, with the stateid that goes along. RFC 8881 s16.2.3.1
#[derive(Debug, Clone, Copy)]
pub(super) struct Current<'a> {
    pub place: Place<'a>,
    pub stateid: Stateid,
}

/// The session of a compound.
#[derive(Debug)]
pub(super) struct InSession {
    pub id: SessionId,
    pub ticket: Ticket,
    pub channels: SessionChannels,
    /// Whether the client asked to keep the reply.
    pub keep: bool,
}

/// What the operations of a compound share.
pub(super) struct Compound<'a> {
    pub request: Request<'a>,
    pub group: &'a Group,
    pub shared: &'a Nfs4State,
    /// The transport of the call.
    pub protocol: Protocol,
    /// The connection that the request came on.
    pub connection: Token,
    pub now: Duration,
    pub minor: u32,
    /// The data of a WRITE that were received in place.
    pub received: Option<ReceiveBuffer>,
    /// Where the reply has its data, if they are beside it.
    pub payload: Payload,
    /// The most data of one READ, or entries of a READDIR.
    pub payload_bytes_max: u32,
    /// Memory for the text of a symbolic link.
    pub text: &'a mut Vec<u8>,
    pub current: Option<Current<'a>>,
    pub saved: Option<Current<'a>>,
    pub session: Option<InSession>,
    /// What COPY has copied in this compound.
    pub copied_bytes: u32,
    /// How far it has got, if its session is that of a group of processes.
    steps: Option<Steps>,
    /// Whether an operation has changed something.
    changed: bool,
    /// Whether the operation after the present one uses the object that this one puts.
    is_used_next: bool,
    /// The delegation that the operation after the present one, a GETATTR, returns.
    pub returned_next: Option<Stateid>,
}

impl<'a> Compound<'a> {
    /// The current object.
    pub fn place(&self) -> Outcome<Place<'a>> {
        self.current.map(|current| current.place).ok_or(Status::NOFILEHANDLE)
    }

    /// The saved object.
    pub fn saved_place(&self) -> Outcome<Place<'a>> {
        // RFC 8881 s18.26.3: without a saved handle there is no handle either.
        self.saved.map(|saved| saved.place).ok_or(Status::NOFILEHANDLE)
    }

    /// Makes an object the current one, without a stateid.
    pub fn set(&mut self, place: Place<'a>) {
        self.current = Some(Current { place, stateid: Stateid::ANONYMOUS });
    }

    /// Notes a stateid that an operation returns, and returns it as it is sent.
    pub fn put_stateid(&mut self, id: StateId) -> Stateid {
        let id = to_wire(id);
        self.set_stateid(id);
        id
    }

    /// Notes the stateid that an operation returned. RFC 8881 s16.2.3.1.2
    pub fn set_stateid(&mut self, id: Stateid) {
        if let Some(current) = &mut self.current {
            current.stateid = id;
        }
    }

    /// Whether the credential is enough for an object. Everybody may look above the exports.
    pub fn check_flavor(&self, place: Place<'_>) -> Outcome<()> {
        match place {
            Place::Object(export, _) if !self.request.is_enough_for(export) => Err(Status::WRONGSEC),
            Place::Object(..) | Place::Pseudo(_) => Ok(()),
        }
    }

    /// The outcome of an operation that puts an object, which the next one may use.
    fn put(&self, outcome: Outcome<()>) -> Outcome<()> {
        outcome?;
        if self.is_used_next { self.check_flavor(self.place()?) } else { Ok(()) }
    }

    /// An object as the caller may use it.
    pub fn target(&self, export: &'a Export, object: ObjectId) -> Outcome<Target<'a>> {
        self.request.target(export, object).map_err(of_target)
    }

    /// The current object, if it is in an export; `other` if it is above the exports.
    pub fn object_or(&self, other: Status) -> Outcome<Target<'a>> {
        match self.place()? {
            Place::Object(export, object) => self.target(export, object),
            Place::Pseudo(_) => Err(other),
        }
    }

    /// An object that is to be changed. What is above the exports cannot be.
    pub fn changeable(&self, place: Place<'a>) -> Outcome<Target<'a>> {
        match place {
            Place::Object(export, object) => {
                self.request.target_for_change(export, object).map_err(of_target)
            }
            Place::Pseudo(_) => Err(Status::ROFS),
        }
    }

    /// The request, as the state of the clients knows it.
    pub fn ticket(&self) -> Outcome<&Ticket> {
        self.session.as_ref().map(|session| &session.ticket).ok_or(Status::OP_NOT_IN_SESSION)
    }

    /// The client that sent the request.
    pub fn client(&self) -> Outcome<ClientRef> {
        self.ticket().map(Ticket::client)
    }

    /// Refuses what could be in the way of a client that has not reclaimed yet.
    pub fn admits_new_state(&self, reclaim: bool) -> Outcome<()> {
        if !reclaim && self.shared.is_in_grace(self.now) { Err(Status::GRACE) } else { Ok(()) }
    }

    /// The state that a client means: it may speak of the current one. RFC 8881 s8.2.3
    pub fn stateid(&self, asked: Stateid) -> Outcome<StateId> {
        Self::stateid_of(asked, self.current)
    }

    /// The state of the saved object that a client means.
    pub fn saved_stateid(&self, asked: Stateid) -> Outcome<StateId> {
        Self::stateid_of(asked, self.saved)
    }

    fn stateid_of(asked: Stateid, of: Option<Current<'_>>) -> Outcome<StateId> {
        let id = if asked == Stateid::CURRENT { of.ok_or(Status::NOFILEHANDLE)?.stateid } else { asked };
        let is_kept = id == Stateid::ANONYMOUS || id == Stateid::READ_BYPASS;
        if id.is_special() && !is_kept {
            return Err(Status::BAD_STATEID);
        }
        Ok(of_wire(id))
    }

    /// Runs an operation and adds its result.
    fn run(&mut self, request: wire::Request<'_, Args<'_>>, is_last: bool, out: &mut Replies<'_>) -> Status {
        let operation = request.args.operation();
        let not_built = |out: &mut Replies<'_>| out.fail(operation, Status::NOTSUPP);
        match request.args {
            // The first one was taken before.
            Args::Sequence(_) => out.fail(operation, Status::SEQUENCE_POS),
            Args::BindConnToSession(_)
            | Args::ExchangeId(_)
            | Args::CreateSession(_)
            | Args::DestroySession(_)
            | Args::DestroyClientId(_)
            | Args::BackchannelCtl(_)
            | Args::ReclaimComplete(_) => self.run_on_client(request.args, is_last, out),
            Args::PutFh(_)
            | Args::PutPubFh(())
            | Args::PutRootFh(())
            | Args::GetFh(())
            | Args::SaveFh(())
            | Args::RestoreFh(()) => self.run_on_handles(request.args, out),
            Args::Lookup(args) => out.push(&Reply::Lookup(names::lookup(self, args.name))),
            Args::LookupP(()) => out.push(&Reply::LookupP(names::lookup_parent(self))),
            Args::Create(args) => out.push(&Reply::Create(names::create(self, &args))),
            Args::Remove(args) => out.push(&Reply::Remove(names::remove(self, args.name))),
            Args::Rename(args) => out.push(&Reply::Rename(names::rename(self, &args))),
            Args::Link(args) => out.push(&Reply::Link(names::link(self, args.name))),
            Args::ReadLink(()) => names::read_link(self, out),
            Args::ReadDir(args) => names::read_directory(self, &args, out),
            Args::GetAttr(args) => attributes::get(self, args.wanted, out),
            Args::SetAttr(args) => out.push(&Reply::SetAttr(attributes::set(self, &args))),
            Args::Verify(args) => out.push(&Reply::Verify(attributes::verify(self, &args.attributes, true))),
            Args::NVerify(args) => {
                out.push(&Reply::NVerify(attributes::verify(self, &args.attributes, false)))
            }
            Args::Access(args) => out.push(&Reply::Access(attributes::access(self, args.access))),
            Args::Read(args) => io::read(self, &args, is_last, out),
            Args::Write(args) => out.push(&Reply::Write(io::write(self, &args, request.payload))),
            Args::Commit(args) => out.push(&Reply::Commit(io::commit(self, &args))),
            Args::Open(_)
            | Args::OpenDowngrade(_)
            | Args::Close(_)
            | Args::Lock(_)
            | Args::LockT(_)
            | Args::LockU(_)
            | Args::DelegReturn(_)
            | Args::TestStateid(_)
            | Args::FreeStateid(_) => self.run_on_state(request.args, out),
            Args::SecInfo(args) => secinfo::by_name(self, args.name, out),
            Args::SecInfoNoName(args) => secinfo::by_style(self, args.style, out),
            Args::GetDeviceInfo(args) => layout::device(self, &args, out),
            Args::LayoutGet(args) => layout::get(self, &args, out),
            Args::LayoutCommit(args) => out.push(&Reply::LayoutCommit(layout::commit(self, &args))),
            Args::LayoutReturn(args) => out.push(&Reply::LayoutReturn(layout::give_back(self, &args))),
            Args::DelegPurge(_)
            // All copies are synchronous.
            | Args::OffloadCancel(_)
            | Args::OffloadStatus(_) => not_built(out),
            Args::ReadPlus(args) => io::read_plus(self, &args, is_last, out),
            Args::Seek(_)
            | Args::Allocate(_)
            | Args::Deallocate(_)
            | Args::IoAdvise(_)
            | Args::Copy(_)
            | Args::Clone(_)
            | Args::GetXattr(_)
            | Args::SetXattr(_)
            | Args::ListXattrs(_)
            | Args::RemoveXattr(_) => self.run_of_4_2(request.args, out),
        }
    }

    /// Runs an operation that puts, tells or saves the current object.
    fn run_on_handles(&mut self, args: Args<'_>, out: &mut Replies<'_>) -> Status {
        match args {
            Args::PutFh(args) => {
                let put = handles::put(self, &args);
                out.push(&Reply::PutFh(self.put(put)))
            }
            Args::PutPubFh(()) => {
                let put = handles::put_root(self);
                out.push(&Reply::PutPubFh(self.put(put)))
            }
            Args::PutRootFh(()) => {
                let put = handles::put_root(self);
                out.push(&Reply::PutRootFh(self.put(put)))
            }
            Args::GetFh(()) => out.push(&Reply::GetFh(handles::get(self))),
            Args::SaveFh(()) => out.push(&Reply::SaveFh(handles::save(self))),
            Args::RestoreFh(()) => {
                let put = handles::restore(self);
                out.push(&Reply::RestoreFh(self.put(put)))
            }
            other => out.fail(other.operation(), Status::SERVERFAULT),
        }
    }

    /// Runs an operation that version 4.2 added.
    fn run_of_4_2(&mut self, args: Args<'_>, out: &mut Replies<'_>) -> Status {
        match args {
            Args::Seek(args) => out.push(&Reply::Seek(holes::seek(self, &args))),
            Args::Allocate(args) => out.push(&Reply::Allocate(holes::allocate(self, &args))),
            Args::Deallocate(args) => out.push(&Reply::Deallocate(holes::deallocate(self, &args))),
            Args::IoAdvise(args) => out.push(&Reply::IoAdvise(holes::advise(self, &args))),
            Args::Copy(args) => copy::copy(self, &args, out),
            Args::Clone(args) => out.push(&Reply::Clone(copy::clone(self, &args))),
            Args::GetXattr(args) => xattr::get(self, args.name, out),
            Args::SetXattr(args) => out.push(&Reply::SetXattr(xattr::set(self, &args))),
            Args::ListXattrs(args) => xattr::list(self, &args, out),
            Args::RemoveXattr(args) => out.push(&Reply::RemoveXattr(xattr::remove(self, args.name))),
            other => out.fail(other.operation(), Status::SERVERFAULT),
        }
    }

    /// Runs an operation on clients and sessions.
    fn run_on_client(&mut self, args: Args<'_>, is_last: bool, out: &mut Replies<'_>) -> Status {
        match args {
            Args::BindConnToSession(args) => out.push(&Reply::BindConnToSession(session::bind(self, &args))),
            Args::ExchangeId(args) => session::exchange_id(self, &args, out),
            Args::CreateSession(args) => out.push(&Reply::CreateSession(session::create(self, &args))),
            Args::DestroySession(args) => {
                out.push(&Reply::DestroySession(session::destroy(self, &args, is_last)))
            }
            Args::DestroyClientId(args) => {
                out.push(&Reply::DestroyClientId(session::destroy_client(self, &args)))
            }
            Args::BackchannelCtl(args) => {
                out.push(&Reply::BackchannelCtl(session::backchannel_ctl(self, &args)))
            }
            Args::ReclaimComplete(args) => {
                out.push(&Reply::ReclaimComplete(session::reclaim_complete(self, &args)))
            }
            other => out.fail(other.operation(), Status::SERVERFAULT),
        }
    }

    /// Runs an operation on opens, locks and delegations.
    fn run_on_state(&mut self, args: Args<'_>, out: &mut Replies<'_>) -> Status {
        match args {
            Args::Open(args) => out.push(&Reply::Open(open::open(self, &args))),
            Args::OpenDowngrade(args) => out.push(&Reply::OpenDowngrade(open::downgrade(self, &args))),
            Args::Close(args) => {
                let closed = open::close(self, args.open);
                self.shared.settle_waiting(self.now);
                out.push(&Reply::Close(closed))
            }
            Args::Lock(args) => lock::lock(self, &args, out),
            Args::LockT(args) => lock::test(self, &args, out),
            Args::LockU(args) => {
                let unlocked = lock::unlock(self, &args);
                self.shared.settle_waiting(self.now);
                out.push(&Reply::LockU(unlocked))
            }
            Args::DelegReturn(args) => {
                out.push(&Reply::DelegReturn(delegation::give_back(self, args.delegation)))
            }
            Args::TestStateid(args) => stateid::test(self, &args, out),
            Args::FreeStateid(args) => out.push(&Reply::FreeStateid(stateid::free(self, args.stateid))),
            other => out.fail(other.operation(), Status::SERVERFAULT),
        }
    }

    /// Runs the first operation of a compound without SEQUENCE, which must be the only one.
    fn run_alone(
        &mut self,
        first: wire::Decoded<'_, Fore>,
        operations: u32,
        out: &mut Replies<'_>,
    ) -> Status {
        let request = match first {
            Ok(request) => request,
            Err(refused) if refused.status == Status::NOTSUPP => {
                return out.refuse(wire::Refused { status: Status::OP_NOT_IN_SESSION, ..refused });
            }
            Err(refused) => return out.refuse(refused),
        };
        let operation = request.args.operation();
        match operation.check_place(0, operations, false) {
            Ok(()) => self.run(request, true, out),
            Err(status) => out.fail(operation, status),
        }
    }

    /// Runs all operations that follow SEQUENCE.
    fn run_all(&mut self, requests: &mut RequestReader<'_, Fore>, out: &mut Replies<'_>) -> Status {
        let mut status = Status::OK;
        while status == Status::OK {
            status = match requests.next_operation() {
                None => return status,
                Some(Err(refused)) => out.refuse(refused),
                Some(Ok(request)) => {
                    self.is_used_next =
                        handles::is_put(&request.args) && handles::is_used_next(requests.clone());
                    self.returned_next = delegation::returned_next(&request.args, requests);
                    self.run_within(request, requests.operations, out)
                }
            };
        }
        status
    }

    /// Runs an operation, whose result must fit what the session allows. RFC 8881 s2.10.6.4
    fn run_within(
        &mut self,
        request: wire::Request<'_, Args<'_>>,
        operations: u32,
        out: &mut Replies<'_>,
    ) -> Status {
        let operation = request.args.operation();
        if let Err(status) = operation.check_place(request.index, operations, true) {
            return out.fail(operation, status);
        }
        let is_last = request.index + 1 == operations;
        let changes = operation.changes();
        if changes && let Err(status) = self.fits(out.len() + CHANGE_RESULT_BYTES) {
            return out.fail(operation, status);
        }
        if !self.record_before(operation, out) {
            return out.fail(operation, Status::REP_TOO_BIG_TO_CACHE);
        }
        let status = match self.left_result(&request.args, out) {
            Some(status) => status,
            None => self.run(request, is_last, out),
        };
        self.ended(operation);
        self.changed |= changes && status == Status::OK;
        match self.fits(out.len()) {
            Ok(()) if operation.runs_once() && status == Status::OK => {
                // Without room for it, nothing more is changed.
                self.record(out);
                status
            }
            Ok(()) => status,
            Err(too_long) => {
                out.replace_last(operation, too_long);
                if !out.has_payload() {
                    self.payload.clear();
                }
                too_long
            }
        }
    }

    /// How much a reply of this length may grow.
    fn bytes_left(&self, len: usize) -> u32 {
        let Some(session) = &self.session else { return u32::MAX };
        let fore = &session.channels.fore;
        let most =
            if session.keep { fore.response_bytes.min(fore.cached_bytes) } else { fore.response_bytes };
        let left = (most as usize).saturating_sub(SUCCESS_BYTES + len);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// How much data are worth getting for a reply that has this length: one byte more than the
    /// session allows is enough to know that they do not fit.
    pub fn bytes_worth_getting(&self, len: usize) -> u32 {
        self.bytes_left(len).saturating_add(1)
    }

    /// How long a list may be that is the result of the next operation of a reply of this length.
    pub fn list_bytes_max(&self, len: usize) -> u32 {
        self.bytes_left(len).saturating_sub(RESULT_HEAD_BYTES as u32)
    }

    /// The status of a list of which not even the first part fits: it is too long for the session,
    /// or for what the client has asked for.
    pub fn no_room_for_list(&self, len: usize, asked: u32) -> Status {
        self.fits(len + RESULT_HEAD_BYTES + asked as usize).err().unwrap_or(Status::TOOSMALL)
    }

    /// Whether the session allows a reply of this length.
    fn fits(&self, len: usize) -> Outcome<()> {
        let Some(session) = &self.session else { return Ok(()) };
        let fore = &session.channels.fore;
        let len = SUCCESS_BYTES + len;
        if len > fore.response_bytes as usize {
            Err(Status::REP_TOO_BIG)
        } else if session.keep && len > fore.cached_bytes as usize {
            Err(Status::REP_TOO_BIG_TO_CACHE)
        } else {
            Ok(())
        }
    }
}

/// A stateid, as the state of the clients has it.
pub(super) const fn of_wire(id: Stateid) -> StateId {
    StateId { seqid: id.seqid, other: id.other }
}

/// A stateid, as it is sent.
pub(super) const fn to_wire(id: StateId) -> Stateid {
    Stateid { seqid: id.seqid, other: id.other }
}

/// The results of a compound.
pub(super) type Replies<'w> = ReplyWriter<'w, Fore>;

/// Whoever may use no export reaches neither clients nor sessions, of others least of all.
fn refuse_stranger(first: wire::Decoded<'_, Fore>, out: &mut Replies<'_>) -> Status {
    match first {
        Ok(request) => out.fail(request.args.operation(), Status::PERM),
        Err(refused) => out.refuse(refused),
    }
}

/// Reads a compound, whose data were perhaps received in place: without padding, and nothing is
/// after them.
fn read(message: &[u8], data_beside: bool) -> Result<RequestReader<'_, Fore>, Answered> {
    let requests = if data_beside {
        RequestReader::with_payload_beside(message, &[])
    } else {
        RequestReader::new(message)
    };
    requests.map_err(|_| Answered::Accept(Accept::GarbageArgs))
}

/// Checks what is before the operations. RFC 8881 s16.2.3
fn check_head(shared: &Nfs4State, requests: &RequestReader<'_, Fore>) -> Outcome<()> {
    if !shared.versions.has_minor(requests.minor) {
        return Err(Status::MINOR_VERS_MISMATCH);
    }
    // A tag is text.
    std::str::from_utf8(requests.tag).map(drop).map_err(|_| Status::INVAL)
}

/// Ends a compound whose SEQUENCE was refused.
fn refused(replies: Replies<'_>) -> Answered {
    replies.finish();
    Answered::reply(true)
}

/// Executes the compound of a call. On a loop, no store that it can reach waits.
pub(super) fn run(
    call: Call<'_, '_>,
    shared: &Nfs4State,
    placed: Option<PlacedWrite>,
) -> Result<Answered, Answered> {
    let Call { out, text, times, mode, header, client, .. } = call;
    let message = call.reader.rest();
    let mut requests = read(message, placed.is_some())?;
    encode_success(&mut Writer::new(out), header.xid);
    let body_at = out.len();
    let mut compound = Compound {
        request: request(client, mode)?,
        group: call.group,
        shared,
        protocol: call.protocol,
        connection: call.token,
        now: times.now,
        minor: requests.minor,
        received: placed.map(|placed| placed.buffer),
        payload: Payload::new(),
        payload_bytes_max: call.payload_bytes_max,
        text,
        current: None,
        saved: None,
        session: None,
        copied_bytes: 0,
        steps: None,
        changed: false,
        is_used_next: false,
        returned_next: None,
    };
    let mut replies = Replies::new(out, requests.tag);
    if let Err(status) = check_head(shared, &requests) {
        replies.finish_with(status);
        return Ok(Answered::reply(true));
    }
    let Some(first) = requests.next_operation() else {
        replies.finish();
        return Ok(Answered::reply(false));
    };
    let status = match first {
        first if compound.request.client.admitted.is_empty() => refuse_stranger(first, &mut replies),
        Ok(wire::Request { args: Args::Sequence(args), .. }) => {
            let (call_bytes, digest) = sequence::measure(&mut compound, header, message, &requests);
            let begun = sequence::begin(&mut compound, &args, call_bytes, digest, &requests, &mut replies);
            let progress = match begun {
                Begun::Run(progress) => progress,
                Begun::Refused => return Ok(refused(replies)),
                Begun::Replay(reply) => {
                    out.truncate(body_at);
                    return Ok(sequence::replay(&compound, &args, &reply, out));
                }
                Begun::ReplayUncached => return Ok(sequence::replay_uncached(&mut requests, replies)),
            };
            let running = Running::new(shared, compound.session.as_ref());
            compound.run_or_resume(progress.as_ref(), &mut requests, &mut replies);
            let end = End::of(&compound, &replies);
            if let Some(at) = replies.finish().payload_at {
                // The data are the end of the reply; their padding is added with them.
                out.truncate(at);
            }
            let reply = out.get(body_at..).filter(|_| end.keeps);
            return Ok(if running.finish(reply) { end.answer(compound) } else { Answered::Elsewhere });
        }
        other => compound.run_alone(other, requests.operations, &mut replies),
    };
    replies.finish();
    Ok(Answered::reply(status != Status::OK))
}

/// How a compound in a session has ended.
struct End {
    is_error: bool,
    /// Whether its slot keeps the reply.
    keeps: bool,
}

impl End {
    fn of(compound: &Compound<'_>, replies: &Replies<'_>) -> Self {
        let asked = compound.session.as_ref().is_some_and(|session| session.keep);
        // What changed something is kept even if the client did not ask for it, and what costs
        // nothing.
        let is_worth_it = asked || compound.changed || replies.results() == 1;
        Self { is_error: replies.status() != Status::OK, keeps: is_worth_it && !replies.has_payload() }
    }

    fn answer(self, compound: Compound<'_>) -> Answered {
        let payload = compound.payload;
        let payload_len = payload.iter().map(store::Segment::len).sum();
        Answered::Reply { error: self.is_error, replayed: false, payload, payload_len }
    }
}
