//! From records to replies: how each call is processed, on a loop or in a worker.
//!
//! RFC 5531 s9's checks in order: header, program, version, procedure, credential, arguments. A
//! message that is not a call, or ends within its header, cannot be answered and ends the
//! connection. NULL is always answered. All programs are served alike on every port.

use crate::client::{CallSubject, Client};
use crate::group::Group;
use crate::program::{
    Answered, Call, CallHead, Handover, IO_BYTES_MAX, Mode, PartialCall, PlacedWrite, Program,
};
use crate::replies::{Payload, Replies};
use crate::reply_cache::{Times, Waiters};
use crate::statistics::{CallEnd, Slot};
use drc::Token;
use rpc::Xid;
use rpc::auth::AuthStat;
use rpc::call::{CallError, CallHeader};
use rpc::portmap::Protocol;
use rpc::reply::{Accept, Reject, encode_accept, encode_reject, encode_success};
use xdr::{Reader, Writer};

/// The most memory of a reply without payload, accurate enough to count memory.
pub(crate) const SMALL_REPLY_BYTES: usize = 1 << 10;

/// The number of the procedure that does nothing, of every program. RFC 5531 s12.1
const NULL: u32 = 0;

/// The programs that are served. Statistics show them in this order.
pub(crate) static PROGRAMS: [&dyn Program; 6] = [
    &crate::nfs3::Nfs3,
    &crate::nfs4::Nfs4,
    &crate::mount::Mount,
    &crate::portmap::PortMapper,
    &crate::nlm::Nlm,
    &crate::nsm::Nsm,
];

/// Whether clients connect for calls of the program with this number.
pub(crate) fn serves_files(number: u32) -> bool {
    PROGRAMS.iter().any(|program| program.number() == number && program.serves_files())
}

/// Executes calls of one connection: on its loop, or in a worker.
pub(crate) struct Executor<'a> {
    pub group: &'a Group,
    pub waiters: &'a dyn Waiters,
    /// The connection, for the reply cache.
    pub token: Token,
    /// The transport of the calls. RDMA counts as TCP.
    pub protocol: Protocol,
    pub client: &'a mut Client,
    pub replies: &'a mut Replies,
    /// Memory for texts that a reply holds: link targets.
    pub text: &'a mut Vec<u8>,
    pub times: Times,
    /// The most payload, or entries of a list, that a reply may have; at least 4 KiB.
    pub payload_bytes_max: u32,
}

/// The result for a record.
pub(crate) enum Dispatched {
    /// It was answered by its procedure.
    Answered(CallEnd),
    /// It was answered and reached no procedure.
    Refused,
    /// It was answered by a program without counters.
    Uncounted,
    /// Its answer was sent elsewhere, or it has none.
    Elsewhere,
    /// It must wait for its store: a worker must execute it.
    WouldBlock(Handover),
    /// The peer does not speak RPC.
    Garbage(&'static str),
}

impl Executor<'_> {
    /// Finds memory for the payload of a call whose beginning has been received, at most
    /// `bytes_max` bytes.
    pub fn choose_receive_buffer(
        &mut self,
        head: &CallHead,
        record: &[u8],
        record_bytes: usize,
        bytes_max: usize,
    ) -> Option<(usize, PlacedWrite)> {
        let (_, program) = find(&PROGRAMS, self.group, self.protocol, head).ok()?;
        self.identify(&head.header(record)).ok()?;
        let placement = program.choose_receive_buffer(PartialCall {
            client: self.client,
            procedure: head.procedure(),
            args: head.args(record),
            all_args_bytes: record_bytes.checked_sub(head.args_at())?,
            payload_bytes_max: bytes_max,
        })?;
        Some((head.args_at() + placement.args_bytes, placement.write))
    }

    /// How long the reply to a call may be, as far as that is worth counting.
    pub fn reply_bytes_max(&self, head: &CallHead, record: &[u8]) -> usize {
        let Ok((_, program)) = find(&PROGRAMS, self.group, self.protocol, head) else { return 0 };
        let asked = program.reply_payload_bytes_max(head.procedure(), head.args(record));
        SMALL_REPLY_BYTES + usize::try_from(asked.min(IO_BYTES_MAX).min(self.payload_bytes_max)).unwrap_or(0)
    }

    /// Answers a record whose header is not sound, if it can be answered.
    #[cold]
    pub fn refuse_record(&mut self, record: &[u8], error: &CallError) -> Dispatched {
        match *error {
            CallError::RpcMismatch { xid } => self.reject(xid, Reject::RPC_VERSION),
            CallError::AuthError { xid, stat } => self.reject(xid, Reject::Auth(stat)),
            CallError::NotACall if self.take_reply(record) => Dispatched::Uncounted,
            CallError::NotACall => Dispatched::Garbage("a message that is not a call"),
            CallError::Garbage(_) => Dispatched::Garbage("a record that ends within a call's header"),
        }
    }

    /// Takes the reply to a call-back, if the connection may have one.
    fn take_reply(&self, record: &[u8]) -> bool {
        let state = self.group.nfs4.as_ref();
        state.is_some_and(|state| state.take_reply(self.times.now, &self.client.back, record))
    }

    /// The client's transport has refused a call-back.
    #[cold]
    pub fn take_refusal(&self, xid: u32) {
        if let Some(state) = &self.group.nfs4 {
            state.take_refusal(self.times.now, &self.client.back, xid);
        }
    }

    /// Executes the call in a record; its reply is then in `replies`. `placed` is the call with its
    /// payload, if that was received in place: then the record contains only the bytes before it.
    pub fn serve(
        &mut self,
        head: &CallHead,
        record: &[u8],
        placed: Option<PlacedWrite>,
        received_bytes: usize,
        mode: Mode<'_>,
    ) -> Dispatched {
        let header = head.header(record);
        let (index, program) = match find(&PROGRAMS, self.group, self.protocol, head) {
            Ok(found) => found,
            Err(accept) => return self.refuse(header.xid, accept),
        };
        let names = program.procedures();
        let slot = Slot::new(index, names, header.procedure);
        if slot.is_none() && !names.is_empty() {
            return self.refuse(header.xid, Accept::ProcUnavail);
        }
        let start = self.replies.heads().len();
        self.client.subject.take();
        let dispatched = match self.answer(program, &header, head.args(record), placed, mode) {
            Answered::Reply { error, replayed, payload, payload_len } => {
                let sent_bytes = self.replies.push(payload, payload_len);
                let CallSubject { file, payload_bytes } = self.client.subject.get();
                let payload_bytes = (payload_len as u64).max(payload_bytes.into());
                let end =
                    |slot| CallEnd { slot, error, replayed, received_bytes, sent_bytes, payload_bytes, file };
                return slot.map_or(Dispatched::Uncounted, |slot| Dispatched::Answered(end(slot)));
            }
            Answered::Accept(accept) => {
                self.replies.heads().truncate(start);
                return self.refuse(header.xid, accept);
            }
            Answered::Reject(reject) => {
                self.replies.heads().truncate(start);
                return self.reject(header.xid, reject);
            }
            Answered::Elsewhere => Dispatched::Elsewhere,
            Answered::WouldBlock(handover) => Dispatched::WouldBlock(handover),
        };
        self.replies.heads().truncate(start);
        dispatched
    }

    fn answer(
        &mut self,
        program: &'static dyn Program,
        header: &CallHeader<'_>,
        args: Reader<'_>,
        placed: Option<PlacedWrite>,
        mode: Mode<'_>,
    ) -> Answered {
        if header.procedure == NULL {
            // NULL is for testing and timing, and wants no credential. RFC 1813 s3.3.0
            encode_success(&mut Writer::new(self.replies.heads()), header.xid);
            return Answered::reply(false);
        }
        if program.needs_identity()
            && let Err(stat) = self.identify(header)
        {
            return Answered::Reject(Reject::Auth(stat));
        }
        let call = Call {
            group: self.group,
            waiters: self.waiters,
            token: self.token,
            protocol: self.protocol,
            client: self.client,
            out: self.replies.heads(),
            text: self.text,
            times: self.times,
            mode,
            header,
            class: program.xid_class(header.procedure),
            reader: args,
            payload_bytes_max: self.payload_bytes_max,
        };
        program.serve(call, placed)
    }

    #[inline]
    fn identify(&mut self, header: &CallHeader<'_>) -> Result<(), AuthStat> {
        self.client.identities.identify(header.credential_flavor, header.credential_body)
    }

    #[cold]
    fn refuse(&mut self, xid: Xid, accept: Accept) -> Dispatched {
        encode_accept(&mut Writer::new(self.replies.heads()), xid, accept);
        self.replies.push(Payload::new(), 0);
        Dispatched::Refused
    }

    #[cold]
    fn reject(&mut self, xid: Xid, reject: Reject) -> Dispatched {
        encode_reject(&mut Writer::new(self.replies.heads()), xid, reject);
        self.replies.push(Payload::new(), 0);
        Dispatched::Refused
    }
}

/// The program that a call is for, with its index, or how the call is refused. RFC 5531 s9
#[inline]
fn find(
    programs: &[&'static dyn Program],
    group: &Group,
    protocol: Protocol,
    head: &CallHead,
) -> Result<(usize, &'static dyn Program), Accept> {
    let mut versions: Option<(u32, u32)> = None;
    for (index, program) in programs.iter().enumerate() {
        let by_datagram = protocol == Protocol::Udp;
        if program.number() != head.program()
            || !program.is_served(group)
            || by_datagram && !program.protocols().contains(&Protocol::Udp)
        {
            continue;
        }
        let (low, high) = program.versions().into_inner();
        if (low..=high).contains(&head.version()) {
            return Ok((index, *program));
        }
        versions =
            Some(versions.map_or((low, high), |(lowest, highest)| (lowest.min(low), highest.max(high))));
    }
    Err(versions.map_or(Accept::ProgUnavail, |(low, high)| Accept::ProgMismatch { low, high }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::config::Config;
    use nfs3::{DirOpArgs, Procedure, Sattr3, Wire, proc};
    use rpc::auth::AuthSys;

    #[test]
    fn a_call_finds_its_program_by_number_version_and_transport() {
        let group_of = |versions: &str| {
            let mut config = Config::quick(1 << 20, "/export", &["127.0.0.1:0".parse().unwrap()]);
            config.versions = versions.parse().unwrap();
            Group::new(&config, |_| None).unwrap()
        };
        let (group, with_4, only_4) = (group_of("3"), group_of("3,4.1"), group_of("4.2"));
        let find = |group: &Group, protocol, number, version| {
            let mut record = Vec::new();
            rpc::call::encode(&mut Writer::new(&mut record), Xid(1), number, version, 1, &[0; 8]);
            let head = CallHead::decode(&record).unwrap();
            find(&PROGRAMS, group, protocol, &head).map(|(index, _)| index)
        };
        let mismatch = |low, high| Err(Accept::ProgMismatch { low, high });
        assert_eq!(find(&with_4, Protocol::Tcp, nfs3::PROGRAM, 4), Ok(1));
        assert_eq!(find(&with_4, Protocol::Tcp, nfs3::PROGRAM, 3), Ok(0));
        assert_eq!(find(&with_4, Protocol::Tcp, nfs3::PROGRAM, 5), mismatch(3, 4));
        assert_eq!(find(&group, Protocol::Tcp, nfs3::PROGRAM, 4), mismatch(3, 3));
        assert_eq!(find(&only_4, Protocol::Tcp, nfs3::PROGRAM, 3), mismatch(4, 4));
        assert_eq!(find(&group, Protocol::Udp, nfs3::mount::PROGRAM, 3), Ok(2));
        assert_eq!(find(&with_4, Protocol::Udp, nfs3::PROGRAM, 4), Err(Accept::ProgUnavail));
        // The port mapper is unavailable before this server has its port.
        assert_eq!(find(&group, Protocol::Tcp, rpc::portmap::PROGRAM, 2), Err(Accept::ProgUnavail));
        assert!(group.portmap.set(Vec::new()).is_ok());
        assert_eq!(find(&group, Protocol::Tcp, rpc::portmap::PROGRAM, 2), Ok(3));
    }

    #[test]
    fn procedures_are_counted_under_the_names_of_their_programs() {
        let name = |number, procedure| {
            let (index, program) =
                PROGRAMS.iter().enumerate().find(|(_, program)| program.number() == number)?;
            Slot::new(index, program.procedures(), procedure).map(Slot::name)
        };
        assert_eq!(
            [0, 6, 21, 22].map(|number| name(nfs3::PROGRAM, number)),
            [Some("NULL"), Some("READ"), Some("COMMIT"), None]
        );
        assert_eq!(
            [1, 5, 6].map(|number| name(nfs3::mount::PROGRAM, number)),
            [Some("MOUNT MNT"), Some("MOUNT EXPORT"), None]
        );
    }

    #[test]
    fn no_two_programs_serve_the_same_version() {
        for (index, program) in PROGRAMS.iter().enumerate() {
            let same = |other: &&&dyn Program| {
                let (ours, others) = (program.versions(), other.versions());
                other.number() == program.number()
                    && ours.start() <= others.end()
                    && others.start() <= ours.end()
            };
            assert_eq!(PROGRAMS.iter().skip(index).filter(same).count(), 1, "{}", program.number());
        }
    }

    struct NoWaiters;

    impl Waiters for NoWaiters {
        fn reply(&self, _waiter: Token, _reply: &[u8]) {}
        fn abandon(&self, _waiter: Token) {}
        fn check_acknowledgements(&self) {}
    }

    /// A client at a privileged port of this host.
    fn client(group: &Group) -> Client {
        let address = "127.0.0.1:700".parse().unwrap();
        Client::new(1, 0, address, address, group.exports())
    }

    fn executor<'a>(
        group: &'a Group,
        client: &'a mut Client,
        replies: &'a mut Replies,
        text: &'a mut Vec<u8>,
    ) -> Executor<'a> {
        let now = clock::now();
        Executor {
            group,
            waiters: &NoWaiters,
            token: Token(1),
            protocol: Protocol::Tcp,
            client,
            replies,
            text,
            times: Times { now, received: now },
            payload_bytes_max: u32::MAX,
        }
    }

    /// A call of NFS by root.
    fn nfs3_call<'a>(procedure: Procedure, args: &impl Wire<'a>) -> Vec<u8> {
        nfs3_call_from(b"test", procedure, args)
    }

    fn nfs3_call_from<'a>(machine: &[u8], procedure: Procedure, args: &impl Wire<'a>) -> Vec<u8> {
        let sys = AuthSys { stamp: 7, machine, uid: 0, gid: 0, gids: Default::default() };
        let (mut credential, mut record) = (Vec::new(), Vec::new());
        sys.encode_opaque(&mut Writer::new(&mut credential));
        let writer = &mut Writer::new(&mut record);
        rpc::call::encode(writer, Xid(1), nfs3::PROGRAM, nfs3::VERSION, procedure.number(), &credential);
        args.encode(writer);
        record
    }

    #[test]
    fn the_arguments_of_a_placed_write_are_decoded_once() {
        const LEN: u32 = 64 << 10;
        let mut config = Config::quick(64 << 20, "/export", &["127.0.0.1:0".parse().unwrap()]);
        config.exports[0].root_squash = false;
        let group = Group::new(&config, |_| None).unwrap();
        let exports = group.exports();
        let (_, export) = exports.iter().next().unwrap();
        let (mut client, mut replies, mut text) = (client(&group), Replies::default(), Vec::new());
        let mut executor = executor(&group, &mut client, &mut replies, &mut text);
        let location = DirOpArgs { directory: export.handle(export.store.root()), name: b"file" };
        let how = proc::create::How::Unchecked(Sattr3::default());
        let record = nfs3_call(Procedure::Create, &proc::create::Args { location, how });
        let head = CallHead::decode(&record).unwrap();
        let created = executor.serve(&head, &record, None, record.len(), Mode::Loop(None));
        assert!(matches!(created, Dispatched::Answered(end) if !end.error));
        let caller = store::Caller { uid: 0, gid: 0, gids: &[] };
        let find = || export.store.lookup(caller, export.store.root(), b"file", store::Wait::Allowed);
        let file = export.handle(find().unwrap().1.unwrap().object);

        let stable = proc::write::Stable::Unstable;
        let args = proc::write::Args { file, offset: 0, count: LEN, stable, data_len: LEN };
        let mut record = nfs3_call(Procedure::Write, &args);
        let head = CallHead::decode(&record).unwrap();
        let record_len = record.len() + LEN as usize;
        let (at, mut placed) =
            executor.choose_receive_buffer(&head, &record, record_len, usize::MAX).unwrap();
        assert_eq!((at, placed.buffer.len()), (record.len(), LEN as usize));
        let mut memory = transport::SlicesMut::new();
        placed.buffer.unfilled(0, &mut memory);
        memory.iter_mut().for_each(|slice| slice.fill(7));
        drop(memory);
        // Whatever decodes the arguments once more finds garbage.
        record[head.args_at()..].fill(0xff);
        let written = executor.serve(&head, &record, Some(placed), record_len, Mode::Loop(None));
        assert!(matches!(written, Dispatched::Answered(end) if !end.error));
        assert_eq!(find().unwrap().1.unwrap().attributes.size, u64::from(LEN));
    }

    #[test]
    fn calls_of_clients_that_no_export_admits_take_no_place_in_the_reply_cache() {
        let entries_after = |admitted: bool| {
            let mut config = Config::quick(64 << 20, "/export", &["127.0.0.1:0".parse().unwrap()]);
            if !admitted {
                config.exports[0].allow.clear();
            }
            let group = Group::new(&config, |_| None).unwrap();
            let exports = group.exports();
            let (_, export) = exports.iter().next().unwrap();
            let own = drc::machine_name(7);
            for machine in [b"test".as_slice(), own.as_ref()] {
                let location = DirOpArgs { directory: export.handle(export.store.root()), name: b"d" };
                let args = proc::mkdir::Args { location, attributes: Sattr3::default() };
                let record = nfs3_call_from(machine, Procedure::MkDir, &args);
                let head = CallHead::decode(&record).unwrap();
                let (mut client, mut replies, mut text) = (client(&group), Replies::default(), Vec::new());
                let mut executor = executor(&group, &mut client, &mut replies, &mut text);
                let answered = executor.serve(&head, &record, None, record.len(), Mode::Loop(None));
                assert!(matches!(answered, Dispatched::Answered(_)));
            }
            group.reply_cache.entries()
        };
        assert_eq!(entries_after(false), (0, 0));
        let (windows, calls) = entries_after(true);
        assert!(windows == 1 && calls >= 1, "{windows} {calls}");
    }
}
