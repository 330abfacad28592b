//! A session of NFS version 4, whose requests are sent one by one to any node of a group.

use crate::peer::Peer;
use fs::FileHandle;
use nfs4::compound::{ReplyReader, RequestWriter};
use nfs4::op::{self, Args, Fore, kind};
use nfs4::{Array, ClientId, ClientOwner, OwnerId, SessionId, StateOwner, Status};
use std::io::Write;

pub type Build<'a> = &'a dyn Fn(&mut RequestWriter<'_, Fore>);

fn compound(build: Build<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RequestWriter::new(&mut out, b"", 2, 0);
    build(&mut writer);
    writer.finish();
    out
}

pub fn send(peer: &mut Peer, args: &[u8]) {
    let record = peer.record_of(9, (nfs4::PROGRAM, nfs4::VERSION), nfs4::PROCEDURE_COMPOUND, args);
    peer.stream.write_all(&record).expect("sent");
}

pub fn call(peer: &mut Peer, args: &[u8]) -> Vec<u8> {
    send(peer, args);
    peer.receive().1
}

pub fn put(handle: FileHandle) -> Args<'static> {
    Args::PutFh(op::handles::PutArgs { handle })
}

/// A session, whichever node it is used on.
pub struct Session {
    pub client: ClientId,
    id: SessionId,
    sequence: u32,
    pub export: FileHandle,
}

impl Session {
    pub fn new(peer: &mut Peer) -> Self {
        let owner = ClientOwner { verifier: [1; 8], owner: OwnerId::new(b"struck").expect("short") };
        let (flags, protection) = (0, op::exchange_id::Protection::None);
        let exchange = op::exchange_id::Args { client: owner, flags, protection, implementation: None };
        let results = call(peer, &compound(&|to| _ = to.push(&Args::ExchangeId(exchange))));
        let mut reader = ReplyReader::<Fore>::new(&results).expect("a reply");
        let found = reader.expect::<kind::ExchangeId>().expect("a result").expect("a client");
        let fore = nfs4::sizes::fore_channel(1 << 20, 8, 16);
        let create = op::create_session::Args {
            client: found.client,
            sequence: found.sequence,
            flags: 0,
            fore,
            back: op::create_session::ChannelAttributes { operations_max: 2, ..fore },
            callback_program: 0x4000_0000,
            callback_security: Array::default(),
        };
        let results = call(peer, &compound(&|to| _ = to.push(&Args::CreateSession(create))));
        let mut reader = ReplyReader::<Fore>::new(&results).expect("a reply");
        let made = reader.expect::<kind::CreateSession>().expect("a result").expect("a session");
        let export = FileHandle::new(&[0]).expect("short");
        let mut this = Self { client: found.client, id: made.session, sequence: 0, export };
        let done = Args::ReclaimComplete(op::reclaim_complete::Args { one_file_system: false });
        assert_eq!(status(&call(peer, &this.next(&|to| _ = to.push(&done)))), Status::OK);
        let results = call(
            peer,
            &this.next(&|to| {
                to.push(&Args::PutRootFh(()));
                to.push(&Args::Lookup(op::lookup::Args { name: b"export" })).push(&Args::GetFh(()));
            }),
        );
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutRootFh>().expect("a result").expect("the root");
        reader.expect::<kind::Lookup>().expect("a result").expect("the export");
        this.export = reader.expect::<kind::GetFh>().expect("a result").expect("its handle").handle;
        this
    }

    /// The next request.
    pub fn next(&mut self, build: Build<'_>) -> Vec<u8> {
        self.sequence += 1;
        let (session, sequence) = (self.id, self.sequence);
        let args = op::sequence::Args { session, sequence, slot: 0, highest_slot: 0, cache: false };
        compound(&|to| {
            to.push(&Args::Sequence(args));
            build(to);
        })
    }

    /// Has a connection carry the call-backs of the session.
    pub fn bind_back(&self, peer: &mut Peer) {
        let channels = op::session_control::WantedChannels::Back;
        let bind = op::session_control::BindArgs { session: self.id, channels, rdma_mode: false };
        let results = call(peer, &compound(&|to| _ = to.push(&Args::BindConnToSession(bind))));
        assert_eq!(status(&results), Status::OK);
    }

    pub fn open<'a>(&self, name: &'a [u8], how: op::open::How<'a>) -> Args<'a> {
        let owner = StateOwner { client: self.client, owner: OwnerId::new(b"opener").expect("short") };
        let claim = op::open::Claim::Name(name);
        Args::Open(op::open::Args { seqid: 0, access: 3, deny: 0, owner, how, claim })
    }
}

pub fn after_sequence(results: &[u8]) -> ReplyReader<'_, Fore> {
    let mut reader = ReplyReader::new(results).expect("a reply");
    reader.expect::<kind::Sequence>().expect("a result").expect("a slot");
    reader
}

pub fn status(results: &[u8]) -> Status {
    ReplyReader::<Fore>::new(results).expect("a reply").status
}
