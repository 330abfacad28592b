//! A client that sends compounds and reads their results.

use crate::peer::{Peer, config, credential};
use fs::FileHandle;
use nfs4::compound::{ReplyReader, RequestWriter};
use nfs4::op::{self, Args, Fore, kind};
use nfs4::{
    Attributes, Bitmap, ClientId, ClientOwner, Fattr, OwnerId, Range, SessionId, StateOwner, Stateid, Status,
};
use rpc::reply::{Accept, Body};
use server::{Config, Server};
use std::net::SocketAddr;

/// A configuration that serves all versions, with delegations.
pub fn config_with_4() -> Config {
    let mut config = Config { versions: "3,4.1,4.2".parse().unwrap(), ..config() };
    config.exports[0].delegations = true;
    config
}

/// A server of one export in memory.
pub fn start() -> (Server, SocketAddr) {
    start_with(config_with_4())
}

pub fn start_with(config: Config) -> (Server, SocketAddr) {
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

/// The arguments of a compound.
pub fn encoded(minor: u32, build: impl FnOnce(&mut RequestWriter<'_, Fore>)) -> Vec<u8> {
    encoded_with(minor, &[], build)
}

/// The arguments of a compound with the data of its WRITE.
pub fn encoded_with(minor: u32, data: &[u8], build: impl FnOnce(&mut RequestWriter<'_, Fore>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RequestWriter::new(&mut out, b"a tag", minor, 0);
    build(&mut writer);
    if let Some(at) = writer.finish().payload_at {
        out.splice(at..at, data.iter().copied());
    }
    out
}

/// Channels such as Linux asks for.
pub fn channels(requests: u32) -> op::create_session::ChannelAttributes {
    nfs4::sizes::fore_channel(1 << 20, requests, 16)
}

/// A client with one session, which uses its slot 0.
pub struct Client {
    pub peer: Peer,
    pub minor: u32,
    pub id: ClientId,
    pub session: SessionId,
    pub sequence: u32,
    /// The sequence id of the last CREATE_SESSION.
    pub created: u32,
}

pub fn exchange_id(owner: &[u8], verifier: u64) -> Args<'_> {
    Args::ExchangeId(op::exchange_id::Args {
        client: ClientOwner { verifier: verifier.to_be_bytes(), owner: OwnerId::new(owner).unwrap() },
        flags: 0,
        protection: op::exchange_id::Protection::None,
        implementation: None,
    })
}

/// A session without a back channel.
pub fn create_session(client: ClientId, sequence: u32, requests: u32) -> Args<'static> {
    Args::CreateSession(session_args(client, sequence, requests))
}

pub fn session_args(client: ClientId, sequence: u32, requests: u32) -> op::create_session::Args<'static> {
    op::create_session::Args {
        client,
        sequence,
        flags: 0,
        fore: channels(requests),
        back: op::create_session::ChannelAttributes { operations_max: 2, ..channels(4) },
        callback_program: 0x4000_0000,
        callback_security: nfs4::Array::default(),
    }
}

/// Sends a compound and returns its results.
pub fn call(peer: &mut Peer, args: &[u8]) -> Vec<u8> {
    let (body, results) = peer.call_any(nfs4::PROGRAM, 4, nfs4::PROCEDURE_COMPOUND, args);
    assert_eq!(body, Body::Accepted(Accept::Success));
    results
}

/// The status of a compound, and the number of its results.
pub fn outcome(results: &[u8]) -> (Status, u32) {
    let reader = ReplyReader::<Fore>::new(results).unwrap();
    assert_eq!(reader.tag, b"a tag");
    (reader.status, reader.results)
}

impl Client {
    /// A client of version 4.2 that has done what comes before the first open.
    pub fn new(address: SocketAddr, owner: &str) -> Self {
        Self::of_user(address, owner, 0)
    }

    pub fn of_user(address: SocketAddr, owner: &str, uid: u32) -> Self {
        Self::of_peer(Peer::with_credential(address, credential(1, owner.as_bytes(), uid, uid)), owner)
    }

    /// A client that sends AUTH_NONE.
    pub fn of_nobody(address: SocketAddr, owner: &str) -> Self {
        Self::of_peer(Peer::with_credential(address, vec![0; 8]), owner)
    }

    pub fn of_peer(peer: Peer, owner: &str) -> Self {
        let mut this = Self::reclaiming(peer, owner);
        assert_eq!(this.reclaim_complete(), Status::OK);
        this
    }

    /// A client that may still reclaim what it had before a restart of the server.
    pub fn reclaiming(mut peer: Peer, owner: &str) -> Self {
        let minor = 2;
        let results = call(&mut peer, &encoded(minor, |to| _ = to.push(&exchange_id(owner.as_bytes(), 1))));
        let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
        let exchanged = reader.expect::<kind::ExchangeId>().unwrap().unwrap();
        let (id, sequence) = (exchanged.client, exchanged.sequence);
        let results = call(&mut peer, &encoded(minor, |to| _ = to.push(&create_session(id, sequence, 8))));
        let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
        let session = reader.expect::<kind::CreateSession>().unwrap().unwrap().session;
        Self { peer, minor, id, session, sequence: 0, created: sequence }
    }

    pub fn reclaim_complete(&mut self) -> Status {
        let done = Args::ReclaimComplete(op::reclaim_complete::Args { one_file_system: false });
        self.run(|to| _ = to.push(&done))
    }

    /// The sequence id of the next CREATE_SESSION.
    pub fn next_session(&mut self) -> u32 {
        self.created += 1;
        self.created
    }

    /// Another session of the same client, on a connection of its own.
    pub fn another_session(&mut self, address: SocketAddr) -> Self {
        let mut peer = Peer::with_credential(address, self.peer.credential.clone());
        let (id, minor, created) = (self.id, self.minor, self.next_session());
        let results = call(&mut peer, &encoded(minor, |to| _ = to.push(&create_session(id, created, 8))));
        let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
        let session = reader.expect::<kind::CreateSession>().unwrap().unwrap().session;
        Self { peer, minor, id, session, sequence: 0, created }
    }

    pub fn sequence_args(&self, cache: bool) -> op::sequence::Args {
        let (session, sequence) = (self.session, self.sequence);
        op::sequence::Args { session, sequence, slot: 0, highest_slot: 0, cache }
    }

    /// The next request, with SEQUENCE in front.
    pub fn request(&mut self, data: &[u8], build: impl FnOnce(&mut RequestWriter<'_, Fore>)) -> Vec<u8> {
        self.sequence += 1;
        let sequence = self.sequence_args(false);
        encoded_with(self.minor, data, |to| {
            to.push(&Args::Sequence(sequence));
            build(to);
        })
    }

    /// Sends operations, and returns the results.
    pub fn send(&mut self, build: impl FnOnce(&mut RequestWriter<'_, Fore>)) -> Vec<u8> {
        self.send_with(&[], build)
    }

    pub fn send_with(&mut self, data: &[u8], build: impl FnOnce(&mut RequestWriter<'_, Fore>)) -> Vec<u8> {
        let request = self.request(data, build);
        call(&mut self.peer, &request)
    }

    /// The flags in the result of SEQUENCE.
    pub fn flags(&mut self) -> u32 {
        let results = self.send(|_| {});
        let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
        reader.expect::<kind::Sequence>().unwrap().unwrap().flags
    }

    /// Sends operations, and returns the status of the compound.
    pub fn run(&mut self, build: impl FnOnce(&mut RequestWriter<'_, Fore>)) -> Status {
        outcome(&self.send(build)).0
    }

    /// The handle at the end of a path.
    pub fn walk(&mut self, path: &[&str]) -> Result<FileHandle, Status> {
        let results = self.send(|to| {
            to.push(&Args::PutRootFh(()));
            for name in path {
                to.push(&lookup(name));
            }
            to.push(&Args::GetFh(()));
        });
        let mut reader = after_sequence(&results);
        let status = reader.status;
        if status != Status::OK {
            return Err(status);
        }
        reader.expect::<kind::PutRootFh>().unwrap().unwrap();
        path.iter().for_each(|_| reader.expect::<kind::Lookup>().unwrap().unwrap());
        Ok(reader.expect::<kind::GetFh>().unwrap().unwrap().handle)
    }

    pub fn export(&mut self) -> FileHandle {
        self.walk(&["export"]).unwrap()
    }

    /// Opens a file of the export, which is created if it is missing.
    pub fn open(&mut self, name: &str, access: u32, deny: u32) -> Result<(FileHandle, Stateid), Status> {
        let export = self.export();
        let owner = StateOwner { client: self.id, owner: OwnerId::new(b"opener").unwrap() };
        let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
        let how = op::open::How::Unchecked(Fattr::all(&mode));
        let claim = op::open::Claim::Name(name.as_bytes());
        let args = op::open::Args { seqid: 0, access, deny, owner, how, claim };
        // What is sent has to be what is received.
        let results =
            self.send(|to| _ = to.push(&put(export)).push(&Args::Open(args)).push(&Args::GetFh(())));
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        let opened = reader.expect::<kind::Open>().unwrap()?;
        Ok((reader.expect::<kind::GetFh>().unwrap().unwrap().handle, opened.stateid))
    }

    pub fn write(
        &mut self,
        file: FileHandle,
        stateid: Stateid,
        offset: u64,
        data: &[u8],
    ) -> Result<u32, Status> {
        let count = u32::try_from(data.len()).unwrap();
        let args = op::write::ArgsHead { stateid, offset, stable: fs::Stability::Unstable, count };
        // As Linux does, an operation follows.
        let wanted = Bitmap::of(&[4]);
        let results = self.send_with(data, |to| {
            to.push(&put(file)).push(&Args::Write(args)).push(&Args::GetAttr(op::getattr::Args { wanted }));
        });
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        let written = reader.expect::<kind::Write>().unwrap()?;
        reader.expect::<kind::GetAttr>().unwrap().unwrap();
        reader.finish().unwrap();
        Ok(written.count)
    }

    pub fn read(
        &mut self,
        file: FileHandle,
        stateid: Stateid,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), Status> {
        let args = op::read::Args { stateid, offset, count };
        let results = self.send(|to| _ = to.push(&put(file)).push(&Args::Read(args)));
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        let head = reader.expect::<kind::Read>().unwrap()?;
        let data = match reader.data(&head).unwrap() {
            nfs4::compound::Payload::Here(data) => data.to_vec(),
            other => panic!("{other:?}"),
        };
        reader.finish().unwrap();
        Ok((data, head.eof))
    }

    pub fn close(&mut self, file: FileHandle, open: Stateid) -> Status {
        self.run(|to| _ = to.push(&put(file)).push(&Args::Close(op::close::Args { seqid: 0, open })))
    }

    pub fn lock(
        &mut self,
        file: FileHandle,
        locker: op::lock::Locker<'_>,
        exclusive: bool,
        range: Range,
    ) -> Result<Stateid, Status> {
        let lock_type = if exclusive { op::lock::LockType::Write } else { op::lock::LockType::Read };
        let args = op::lock::Args { lock_type, reclaim: false, range, locker };
        let results = self.send(|to| _ = to.push(&put(file)).push(&Args::Lock(args)));
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        match reader.expect::<kind::Lock>().unwrap() {
            op::lock::Outcome::Granted(id) => Ok(id),
            other => Err(other.status()),
        }
    }

    /// The locker of a first lock.
    pub fn first<'a>(&self, open: Stateid, owner: &'a str) -> op::lock::Locker<'a> {
        let owner = StateOwner { client: self.id, owner: OwnerId::new(owner.as_bytes()).unwrap() };
        op::lock::Locker::New { open_seqid: 0, open, lock_seqid: 0, owner }
    }
}

/// The results after that of SEQUENCE.
pub fn after_sequence(results: &[u8]) -> ReplyReader<'_, Fore> {
    let mut reader = ReplyReader::new(results).unwrap();
    reader.expect::<kind::Sequence>().unwrap().unwrap();
    reader
}

pub fn put(handle: FileHandle) -> Args<'static> {
    Args::PutFh(op::handles::PutArgs { handle })
}

pub fn lookup(name: &str) -> Args<'_> {
    Args::Lookup(op::lookup::Args { name: name.as_bytes() })
}
