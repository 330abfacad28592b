//! A connection of a back channel, on which a test answers by hand.

use super::client::{Client, call, encoded};
use crate::peer::Peer;
use fs::FileHandle;
use nfs4::cb::{Args, Back, Reply, sequence};
use nfs4::compound::{ReplyReader, ReplyWriter, RequestReader};
use nfs4::op::session_control::{BindArgs, Channels, WantedChannels};
use nfs4::op::{self, Fore, kind};
use nfs4::{SessionId, Status};
use rpc::Xid;
use std::net::SocketAddr;
use xdr::{Reader, Writer};

/// What a client is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Recall { delegation: nfs4::Stateid, file: FileHandle },
    NotifyLock { owner: Vec<u8>, file: FileHandle },
}

/// A call of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    pub xid: u32,
    pub program: u32,
    pub minor: u32,
    /// Flavor and body of the credential.
    pub credential: (u32, Vec<u8>),
    pub session: SessionId,
    pub slot: u32,
    pub sequence: u32,
    pub asked: Asked,
}

impl Called {
    /// Reads a record, which must be a call of exactly two operations.
    pub fn of(record: &[u8]) -> Self {
        let mut reader = Reader::new(record);
        let header = rpc::call::decode(&mut reader).expect("a call");
        assert_eq!((header.version, header.procedure), (1, 1), "CB_COMPOUND");
        let mut requests = RequestReader::<Back>::new(reader.rest()).unwrap();
        let mut next = || requests.next_operation().unwrap().unwrap().args;
        let Args::Sequence(first) = next() else { panic!("no CB_SEQUENCE") };
        let asked = match next() {
            Args::Recall(args) => Asked::Recall { delegation: args.delegation, file: args.file },
            Args::NotifyLock(args) => {
                Asked::NotifyLock { owner: args.owner.owner.as_slice().to_vec(), file: args.file }
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(requests.operations, 2);
        Self {
            xid: header.xid.0,
            program: header.program,
            minor: requests.minor,
            credential: (header.credential_flavor, header.credential_body.to_vec()),
            session: first.session,
            slot: first.slot,
            sequence: first.sequence,
            asked,
        }
    }

    /// The reply with these results, as a record with its mark.
    pub fn reply(&self, build: impl FnOnce(&mut ReplyWriter<'_, Back>)) -> Vec<u8> {
        let mut out = vec![0; 4];
        rpc::reply::encode_success(&mut Writer::new(&mut out), Xid(self.xid));
        let mut writer = ReplyWriter::new(&mut out, b"");
        build(&mut writer);
        writer.finish();
        marked(out)
    }

    /// The result of CB_SEQUENCE.
    pub fn accepted(&self) -> sequence::Success {
        let (session, slot) = (self.session, self.slot);
        sequence::Success { session, sequence: self.sequence, slot, highest_slot: 3, target_highest_slot: 3 }
    }

    /// The reply of a client that has executed the call.
    pub fn done(&self, result: Result<(), Status>) -> Vec<u8> {
        self.reply(|to| {
            to.push(&Reply::Sequence(Ok(self.accepted())));
            to.push(&match self.asked {
                Asked::Recall { .. } => Reply::Recall(result),
                Asked::NotifyLock { .. } => Reply::NotifyLock(result),
            });
        })
    }

    /// The reply of a client that refuses the slot.
    pub fn refused(&self, status: Status) -> Vec<u8> {
        self.reply(|to| _ = to.push(&Reply::Sequence(Err(status))))
    }
}

/// A record whose first four bytes are to be its mark.
pub fn marked(mut out: Vec<u8>) -> Vec<u8> {
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
    out[..4].copy_from_slice(&mark.encode());
    out
}

/// BIND_CONN_TO_SESSION.
pub fn bind(peer: &mut Peer, session: SessionId, channels: WantedChannels) -> Result<Channels, Status> {
    let args = op::Args::BindConnToSession(BindArgs { session, channels, rdma_mode: false });
    let results = call(peer, &encoded(2, |to| _ = to.push(&args)));
    let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
    let bound = reader.expect::<kind::BindConnToSession>().unwrap()?;
    assert_eq!(bound.session, session);
    Ok(bound.channels)
}

/// A connection of its own for the call-backs of a client.
pub struct BackPeer(pub Peer);

impl BackPeer {
    pub fn new(client: &Client, address: SocketAddr) -> Self {
        let mut peer = Peer::with_credential(address, client.peer.credential.clone());
        assert_eq!(bind(&mut peer, client.session, WantedChannels::Back), Ok(Channels::Back));
        Self(peer)
    }

    /// The next call.
    pub fn called(&mut self) -> Called {
        Called::of(&self.0.receive())
    }

    /// Takes the next call, and executes it.
    pub fn answer(&mut self) -> Called {
        let called = self.called();
        self.0.send(&called.done(Ok(())));
        called
    }

    /// Answers the recall of a delegation, which must be the next call.
    pub fn recalled(&mut self) -> (nfs4::Stateid, FileHandle) {
        match self.answer().asked {
            Asked::Recall { delegation, file } => (delegation, file),
            other => panic!("{other:?}"),
        }
    }
}
