//! From records to replies: what is done with each call, wherever it is executed.
//!
//! RFC 5531 s9's checks in order: header, program, version, procedure, credential, arguments. A message that is
//! no call at all, or ends within its header, cannot be answered and finishes the connection. NULL is answered
//! always. NFS and MOUNT are served alike on every port.

pub(crate) mod call;

use crate::client::Client;
use crate::group::Group;
use crate::replies::{Payload, Replies};
use crate::reply_cache::{Times, Waiters};
use crate::statistics::{CallEnd, Slot};
use call::{Answered, Call};
pub(crate) use call::{Handover, Mode};
use drc::{Token, XidClass};
use nfs3::proc::{read, readdir, readdirplus};
use nfs3::{Procedure, Wire};
use rpc::Xid;
use rpc::call::{CallError, CallHeader};
use rpc::portmap;
use rpc::reply::{Accept, Reject, encode_accept, encode_reject, encode_success};
use xdr::{Reader, Writer};

/// The most that one READ gives and one WRITE takes: rtmax and wtmax. RFC 1813 s3.3.19
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;
/// What a reply without payload takes at most, near enough to count memory by.
const SMALL_REPLY_BYTES: usize = 1 << 10;

/// What executes calls of one connection: on its loop, or in a worker.
pub(crate) struct Executor<'a> {
    pub group: &'a Group,
    pub waiters: &'a dyn Waiters,
    /// The connection, for the reply cache.
    pub token: Token,
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
        let (group, waiters, token, times) = (self.group, self.waiters, self.token, self.times);
        let call = Call {
            group,
            waiters,
            token,
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

/// How long the reply to a call may be, as far as that is worth counting.
pub(crate) fn reply_bytes_max(record: &[u8]) -> usize {
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
