//! From received records to replies: what a connection's turn does with each call.
//!
//! RFC 5531 s9's checks in order: header, program, version, procedure, credential, arguments. A message that is
//! no call at all, or ends within its header, cannot be answered and finishes the connection. NULL is answered
//! always. NFS and MOUNT are served alike on every port.

pub(crate) mod call;

use crate::client::Client;
use crate::group::Group;
use crate::nfs3::request::Request;
use crate::replies::{Payload, Replies};
use crate::reply_cache::Times;
use crate::runtime::{InFlight, Task, WorkerPool};
use crate::runtime::{Peers, Place};
use crate::statistics::{CallEnd, Counters, Slot};
use call::{Answered, Call};
pub(crate) use call::{Handover, Mode};
use drc::XidClass;
use nfs3::proc::write::ArgsHead;
use nfs3::proc::{read, readdir, readdirplus};
use nfs3::{Procedure, Wire};
use rpc::Xid;
use rpc::call::{CallError, CallHeader};
use rpc::portmap;
use rpc::reply::{Accept, Reject, encode_accept, encode_reject, encode_success};
use transport::{Place as PayloadPlace, Sink, SlicesMut};
use xdr::{Reader, Writer};

/// The most that one READ gives and one WRITE takes: rtmax and wtmax. RFC 1813 s3.3.19
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;
/// What a reply without payload takes at most, near enough to count memory by.
const SMALL_REPLY_BYTES: usize = 1 << 10;

/// Memory of a store that a WRITE is received into.
pub(crate) struct Incoming(store::ReceiveBuffer);

impl transport::ReceiveBuffer for Incoming {
    #[inline]
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>) {
        self.0.unfilled(from, out);
    }
}

/// What executes calls of one connection: on its loop, or in a worker.
pub(crate) struct Executor<'a> {
    pub group: &'a Group,
    pub peers: &'a Peers,
    pub place: Place,
    pub client: &'a mut Client,
    pub replies: &'a mut Replies,
    /// Memory for texts that a reply holds: link targets.
    pub text: &'a mut Vec<u8>,
    pub times: Times,
}

/// What became of a record.
pub(crate) enum Taken {
    /// It was answered by its procedure.
    Answered(CallEnd),
    /// It was answered and reached no procedure.
    Refused,
    /// It was answered by the port mapper, which counts nothing.
    PortMap,
    /// Its answer goes elsewhere, or it has none.
    Elsewhere,
    /// It must wait for its store: to be given to a worker.
    MustWait(Handover),
    /// The peer does not speak RPC.
    Garbage(&'static str),
}

impl Executor<'_> {
    /// Executes the call in a record; its reply is in `replies` then.
    pub fn take(
        &mut self,
        record: &[u8],
        receive_buffer: Option<store::ReceiveBuffer>,
        record_len: usize,
        mode: Mode,
    ) -> Taken {
        let mut reader = Reader::new(record);
        match rpc::call::decode(&mut reader) {
            Ok(header) => self.serve(&header, reader, receive_buffer, record_len, mode),
            Err(CallError::RpcMismatch { xid }) => self.reject(xid, Reject::RPC_VERSION),
            Err(CallError::AuthError { xid, stat }) => self.reject(xid, Reject::Auth(stat)),
            Err(CallError::NotACall) => Taken::Garbage("a message that is not a call"),
            Err(CallError::Garbage(_)) => Taken::Garbage("a record that ends within a call's header"),
        }
    }

    fn serve(
        &mut self,
        header: &CallHeader<'_>,
        reader: Reader<'_>,
        receive_buffer: Option<store::ReceiveBuffer>,
        received_bytes: usize,
        mode: Mode,
    ) -> Taken {
        if header.program == portmap::PROGRAM
            && let Some(entries) = self.group.portmap.get()
        {
            let via = portmap::Via { protocol: portmap::Protocol::Tcp, local: self.client.local.ip() };
            portmap::answer(header, reader, via, entries, self.replies.heads());
            self.replies.push(Payload::new(), 0);
            return Taken::PortMap;
        }
        let slot = match slot_of(header) {
            Ok(slot) => slot,
            Err(accept) => return self.refuse(header.xid, accept),
        };
        let start = self.replies.heads().len();
        let taken = match self.answer(header, reader, receive_buffer, mode) {
            Answered::Reply { error, replayed, payload, payload_len } => {
                let sent_bytes = self.replies.push(payload, payload_len);
                return Taken::Answered(CallEnd { slot, error, replayed, received_bytes, sent_bytes });
            }
            Answered::Accept(accept) => {
                self.replies.heads().truncate(start);
                return self.refuse(header.xid, accept);
            }
            Answered::Reject(reject) => {
                self.replies.heads().truncate(start);
                return self.reject(header.xid, reject);
            }
            Answered::Elsewhere => Taken::Elsewhere,
            Answered::MustWait(handover) => Taken::MustWait(handover),
        };
        self.replies.heads().truncate(start);
        taken
    }

    fn answer(
        &mut self,
        header: &CallHeader<'_>,
        reader: Reader<'_>,
        receive_buffer: Option<store::ReceiveBuffer>,
        mode: Mode,
    ) -> Answered {
        let out = self.replies.heads();
        if header.procedure == Procedure::Null.number() {
            // RFC 1813 s3.3.0: NULL is for testing and timing, and wants no credential.
            encode_success(&mut Writer::new(out), header.xid);
            return Answered::reply(false);
        }
        if let Err(stat) = self.client.identities.identify(header.credential_flavor, header.credential_body) {
            return Answered::Reject(Reject::Auth(stat));
        }
        // MOUNT changes nothing that a second call undoes.
        let class = match Procedure::try_from(header.procedure) {
            Ok(procedure) if header.program == nfs3::PROGRAM => procedure.xid_class(),
            _ => XidClass::Repeatable,
        };
        let (group, peers, place, times) = (self.group, self.peers, self.place, self.times);
        let call = Call {
            group,
            peers,
            place,
            client: self.client,
            out,
            text: self.text,
            times,
            mode,
            header,
            class,
            reader,
        };
        if header.program == nfs3::PROGRAM {
            crate::nfs3::serve(call, receive_buffer)
        } else {
            crate::mount::serve(call)
        }
    }

    #[cold]
    fn refuse(&mut self, xid: Xid, accept: Accept) -> Taken {
        encode_accept(&mut Writer::new(self.replies.heads()), xid, accept);
        self.replies.push(Payload::new(), 0);
        Taken::Refused
    }

    #[cold]
    fn reject(&mut self, xid: Xid, reject: Reject) -> Taken {
        encode_reject(&mut Writer::new(self.replies.heads()), xid, reject);
        self.replies.push(Payload::new(), 0);
        Taken::Refused
    }
}

/// One turn of one connection on its loop.
pub(crate) struct Service<'a> {
    pub executor: Executor<'a>,
    /// What stores are seen to hold holds for the calls of one receive.
    pub moment: Option<&'a store::ReceiveBatch>,
    pub counters: &'a mut Counters,
    pub worker_pool: &'a WorkerPool,
    /// The connection's calls that workers have.
    pub in_flight: &'a mut InFlight,
    /// Bytes of replies that still fit the connection's queue.
    pub room_bytes: usize,
    /// The most memory that a payload may be received into at once.
    pub landing_bytes_max: usize,
    pub calls_left: u32,
    /// Bytes of replies that the turn may make.
    pub reply_bytes_max: usize,
    /// Set when the peer does not speak RPC.
    pub garbage: Option<&'static str>,
}

impl Service<'_> {
    /// Whether the queue of replies is at its bound, or as many calls as may wait for their stores do.
    pub fn is_full(&self) -> bool {
        self.executor.replies.bytes() + self.in_flight.bytes() >= self.room_bytes
            || self.in_flight.is_full(self.worker_pool)
    }

    /// Whether the turn has made as many replies as it may, by their bytes.
    pub fn has_used_its_turn(&self) -> bool {
        self.executor.replies.bytes() >= self.reply_bytes_max
    }

    fn take(&mut self, record: &[u8], receive_buffer: Option<store::ReceiveBuffer>, record_len: usize) {
        self.calls_left = self.calls_left.saturating_sub(1);
        match self.executor.take(record, receive_buffer, record_len, Mode::Loop) {
            Taken::Answered(end) => self.counters.count(&end),
            Taken::Refused => self.counters.count_refused(),
            Taken::Elsewhere => self.in_flight.promise(),
            Taken::PortMap => {}
            Taken::MustWait(handover) => self.hand_over(record, handover, record_len),
            Taken::Garbage(what) => self.garbage = Some(what),
        }
    }

    /// Tells the store of a WRITE, if that is what a record with its mark holds. Whether it may be done is seen when it is.
    #[inline]
    fn foresee_write(&self, marked: &[u8]) -> Option<()> {
        let mut reader = Reader::new(marked.get(rpc::record::MARK_BYTES..)?);
        let header = rpc::call::decode(&mut reader).ok()?;
        let is_write = header.procedure == Procedure::Write.number() && header.program == nfs3::PROGRAM;
        if !is_write {
            return None;
        }
        let args = ArgsHead::decode(&mut reader).ok()?;
        let client = &*self.executor.client;
        let (export, object) = client.exports.open(args.file.as_slice(), &client.admitted).ok()?;
        // A longer one is received into a place of its own.
        if (args.data_len as usize) < transport::DIRECT_BYTES_MIN {
            export.store.foresee_write(object, args.offset, args.data_len);
        }
        Some(())
    }

    /// Gives a call to a worker.
    #[cold]
    fn hand_over(&mut self, record: &[u8], handover: Handover, record_len: usize) {
        let Executor { place, client, times, .. } = &self.executor;
        let Handover { begun, later, receive_buffer } = handover;
        let bytes = record_len + reply_bytes_max(record);
        let ticket = self.worker_pool.ticket(bytes);
        self.in_flight.take_off(bytes);
        let task = Task {
            place: *place,
            client: client.for_worker(),
            record: record.into(),
            record_len,
            receive_buffer,
            begun,
            put_off: 0,
            received: times.now,
            ticket,
        };
        if later {
            self.worker_pool.put_off(task);
        } else {
            self.worker_pool.submit(task);
        }
    }
}

/// How long the reply to a call may be, as far as that is worth counting.
fn reply_bytes_max(record: &[u8]) -> usize {
    let mut reader = Reader::new(record);
    let Ok(header) = rpc::call::decode(&mut reader) else { return 0 };
    let asked = match Procedure::try_from(header.procedure) {
        Ok(Procedure::Read) => read::Args::decode(&mut reader).map_or(0, |args| args.count),
        Ok(Procedure::ReadDir) => readdir::Args::decode(&mut reader).map_or(0, |args| args.count),
        Ok(Procedure::ReadDirPlus) => readdirplus::Args::decode(&mut reader).map_or(0, |args| args.maxcount),
        _ => 0,
    };
    SMALL_REPLY_BYTES + usize::try_from(asked.min(IO_BYTES_MAX)).unwrap_or(0)
}

/// The procedure that a call is for, or how it is refused. RFC 5531 s9
fn slot_of(header: &CallHeader<'_>) -> Result<Slot, Accept> {
    let slot = match header.program {
        nfs3::PROGRAM => Slot::nfs,
        nfs3::mount::PROGRAM => Slot::mount,
        _ => return Err(Accept::ProgUnavail),
    };
    // Both programs are at version 3 and at no other.
    if header.version != nfs3::VERSION {
        return Err(Accept::ProgMismatch { low: nfs3::VERSION, high: nfs3::VERSION });
    }
    slot(header.procedure).ok_or(Accept::ProcUnavail)
}

const _: () = assert!(nfs3::VERSION == nfs3::mount::VERSION);

impl Sink for Service<'_> {
    type ReceiveBuffer = Incoming;

    /// Finds memory of the store for the data of a WRITE. Whatever is odd about the call is left to the slow
    /// path, which has the words for it.
    fn place(&mut self, head: &[u8], record_len: usize) -> Option<PayloadPlace<Incoming>> {
        let mut reader = Reader::new(head);
        let header = rpc::call::decode(&mut reader).ok()?;
        let is_write = header.procedure == Procedure::Write.number() && header.program == nfs3::PROGRAM;
        if !is_write || header.version != nfs3::VERSION {
            return None;
        }
        let args = ArgsHead::decode(&mut reader).ok()?;
        let at = head.len() - reader.remaining();
        let len = usize::try_from(args.data_len).ok()?;
        if len == 0
            || len > self.landing_bytes_max
            || args.data_len > IO_BYTES_MAX
            || record_len != at + len + xdr::padding(len)
        {
            return None;
        }
        let Executor { client, .. } = &mut self.executor;
        client.identities.identify(header.credential_flavor, header.credential_body).ok()?;
        let identity = client.identities.current()?;
        let request = Request { client, identity, may_wait: false };
        let target = request.open_for_change_at_once(&args.file).ok()?;
        let receive_buffer = target.export.store.receive_buffer(args.offset, args.data_len)?;
        Some(PayloadPlace { at, len, receive_buffer: Incoming(receive_buffer) })
    }

    #[inline]
    fn receiving(&mut self) {
        if let Some(moment) = self.moment {
            moment.renew();
        }
    }

    /// Where the next WRITE goes no cache holds as a rule: the store asks for it while this call is executed.
    #[inline]
    fn look_ahead(&mut self, behind: &[u8]) {
        self.foresee_write(behind);
    }

    #[inline]
    fn record(&mut self, record: &[u8]) {
        self.take(record, None, record.len());
    }

    #[inline]
    fn received(&mut self, head: &[u8], receive_buffer: Incoming, tail: &[u8]) {
        let record_len = head.len() + receive_buffer.0.len() + tail.len();
        self.take(head, Some(receive_buffer.0), record_len);
    }

    #[inline]
    fn wants_more(&self) -> bool {
        self.calls_left > 0 && self.garbage.is_none() && !self.is_full() && !self.has_used_its_turn()
    }
}
