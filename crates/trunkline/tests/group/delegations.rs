//! Tests delegations that clients hold while nodes of their group are killed: what one node is
//! asked to change is recalled by way of another, which has the client's back channel.

use crate::fixtures::{Directories, Node, file, write};
use crate::peer::{Peer, SOON, encoded};
use crate::session::{Build, Session, after_sequence, call, put, status};
use fs::FileHandle;
use nfs3::{Procedure, Sattr3, proc};
use nfs4::cb::{Args as CallBack, Back, Reply, sequence};
use nfs4::compound::{ReplyWriter, RequestReader};
use nfs4::op::open::{Claim, Delegation, How, access};
use nfs4::op::{self, Args, kind};
use nfs4::{OwnerId, StateOwner, Stateid, Status};
use rpc::Xid;
use std::io::Write;
use std::net::SocketAddr;
use testkit::Deadline;
use xdr::{Reader, Writer};

/// SEQ4_STATUS_CB_PATH_DOWN and SEQ4_STATUS_CB_PATH_DOWN_SESSION. RFC 8881 s18.46.1
const DOWN: u32 = 0x201;

/// A recall.
struct Recall {
    xid: u32,
    slot: sequence::Success,
    delegation: Stateid,
}

/// The next record, which must be a recall.
fn recalled(back: &mut Peer) -> Recall {
    let record = back.try_receive().expect("a call-back");
    let mut reader = Reader::new(&record);
    let header = rpc::call::decode(&mut reader).expect("a call");
    let mut requests = RequestReader::<Back>::new(reader.rest()).expect("a compound");
    let mut next = || requests.next_operation().expect("an operation").expect("sound").args;
    let CallBack::Sequence(first) = next() else { panic!("no CB_SEQUENCE") };
    let CallBack::Recall(recall) = next() else { panic!("no CB_RECALL") };
    let (session, slot) = (first.session, first.slot);
    let sequence = first.sequence;
    let slot = sequence::Success { session, sequence, slot, highest_slot: 0, target_highest_slot: 0 };
    Recall { xid: header.xid.0, slot, delegation: recall.delegation }
}

fn answer(back: &mut Peer, recall: &Recall, result: Result<(), Status>) {
    let mut out = vec![0; 4];
    rpc::reply::encode_success(&mut Writer::new(&mut out), Xid(recall.xid));
    let mut writer = ReplyWriter::<Back>::new(&mut out, b"");
    writer.push(&Reply::Sequence(Ok(recall.slot)));
    writer.push(&Reply::Recall(result));
    writer.finish();
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).expect("short") };
    out[..4].copy_from_slice(&mark.encode());
    back.stream.write_all(&out).expect("sent");
}

/// Two nodes, of which the first has the back channel of a client with a delegation.
struct Fixture {
    first: Node,
    second: Node,
    session: Session,
    back: Peer,
    /// At the second node.
    requests: Peer,
    file: FileHandle,
    delegation: Stateid,
    /// The file for version 3.
    object: nfs3::FileHandle,
    xid: u32,
    // Outlives its nodes.
    _directories: Directories,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let directories = Directories::with_versions(name, "3,4.2").exclusive();
        let (first, second) = (Node::start(&directories, 1), Node::start(&directories, 2));
        file(&directories, "file", b"data");
        let mut requests = Peer::foreign(second.address);
        let mut session = Session::new(&mut requests);
        let mut back = Peer::foreign(first.address);
        session.bind_back(&mut back);
        let owner = StateOwner { client: session.client, owner: OwnerId::new(b"o").expect("short") };
        let (claim, how) = (Claim::Name(b"file"), How::NoCreate);
        let asked = access::READ | access::WANT_READ;
        let open = Args::Open(op::open::Args { seqid: 0, access: asked, deny: 0, owner, how, claim });
        let export = session.export;
        // Its record is being written.
        let (file, delegation) = Deadline::wait_until("the client may open", SOON, || {
            let build: Build<'_> = &|to| _ = to.push(&put(export)).push(&open).push(&Args::GetFh(()));
            let request = session.next(build);
            let results = call(&mut requests, &request);
            let mut reader = after_sequence(&results);
            reader.expect::<kind::PutFh>().expect("a result").expect("the export");
            let opened = reader.expect::<kind::Open>().expect("a result").ok()?;
            let Delegation::Read { stateid, .. } = opened.delegation else { panic!("{opened:?}") };
            let file = reader.expect::<kind::GetFh>().expect("a result").expect("its handle").handle;
            Some((file, stateid))
        });
        let mut three = Peer::foreign(second.address);
        let root = three.mount("/export");
        let what = nfs3::DirOpArgs { directory: root, name: b"file" };
        let found = three.exchange(5, Procedure::Lookup, &encoded(&proc::lookup::Args { what }));
        let found = <proc::lookup::Reply as nfs3::Wire>::decode(&mut Reader::new(&found)).expect("a reply");
        let object = found.into_result().expect("the file").object;
        let _directories = directories;
        Self { first, second, session, back, requests, file, delegation, object, xid: 100, _directories }
    }

    /// A client of version 3 sets the mode, by way of the second node.
    fn set_mode(&mut self) -> nfs3::Status {
        let new_attributes = Sattr3 { mode: Some(0o600), ..Sattr3::default() };
        let args = encoded(&proc::setattr::Args { object: self.object, new_attributes, guard: None });
        self.xid += 1;
        let results = Peer::foreign(self.second.address).exchange(self.xid, Procedure::SetAttr, &args);
        nfs3::Status(u32::from_be_bytes(results[..4].try_into().expect("a status")))
    }

    fn give_back(&mut self) -> Status {
        let (file, delegation) = (self.file, self.delegation);
        let args = Args::DelegReturn(op::delegation::ReturnArgs { delegation });
        let request = self.session.next(&|to| _ = to.push(&put(file)).push(&args));
        status(&call(&mut self.requests, &request))
    }

    /// The flags in the result of SEQUENCE, at the second node.
    fn flags(&mut self) -> u32 {
        let results = call(&mut self.requests, &self.session.next(&|_| {}));
        let mut reader = nfs4::compound::ReplyReader::<op::Fore>::new(&results).expect("a reply");
        reader.expect::<kind::Sequence>().expect("a result").expect("a slot").flags
    }
}

#[test]
fn what_one_node_is_asked_to_change_is_recalled_by_way_of_another() {
    let mut fixture = Fixture::new("group-recall");
    assert_eq!(fixture.flags(), 0);
    assert_eq!(fixture.set_mode(), nfs3::Status::JUKEBOX);
    let recall = recalled(&mut fixture.back);
    assert_eq!(recall.delegation, fixture.delegation);
    answer(&mut fixture.back, &recall, Ok(()));
    assert_eq!(fixture.set_mode(), nfs3::Status::JUKEBOX);
    assert_eq!(fixture.give_back(), Status::OK);
    assert_eq!(fixture.set_mode(), nfs3::Status::OK);
    drop(fixture.first);
}

#[test]
fn a_recall_is_asked_again_by_a_neighbour_of_a_node_that_was_killed_before_the_answer() {
    let mut fixture = Fixture::new("group-recall-killed");
    assert_eq!(fixture.set_mode(), nfs3::Status::JUKEBOX);
    let lost = recalled(&mut fixture.back);
    fixture.first.kill();
    Deadline::wait_until("the client is told", SOON, || (fixture.flags() == DOWN).then_some(()));
    assert_eq!(fixture.set_mode(), nfs3::Status::JUKEBOX, "it is still delegated");
    let mut back = Peer::foreign(fixture.second.address);
    fixture.session.bind_back(&mut back);
    assert_eq!(fixture.flags(), 0);
    // Nobody knows whether the client has executed the lost one: it has.
    let doubtful = recalled(&mut back);
    assert_eq!(doubtful.delegation, fixture.delegation);
    assert_eq!((doubtful.slot.slot, doubtful.slot.sequence), (lost.slot.slot, lost.slot.sequence));
    answer(&mut back, &doubtful, Err(Status::RETRY_UNCACHED_REP));
    let again = recalled(&mut back);
    assert_eq!((again.slot.sequence, again.delegation), (lost.slot.sequence + 1, fixture.delegation));
    answer(&mut back, &again, Ok(()));
    assert_eq!(fixture.give_back(), Status::OK);
    assert_eq!(fixture.set_mode(), nfs3::Status::OK);
}

/// Whether a call has arrived on a connection.
fn is_called(back: &Peer) -> bool {
    back.stream.set_nonblocking(true).expect("a socket");
    let arrived = back.stream.peek(&mut [0]);
    back.stream.set_nonblocking(false).expect("a socket");
    matches!(arrived, Ok(bytes) if bytes > 0)
}

/// A connection to a node that lives: what the client does by way of it.
struct Survivor {
    peer: Peer,
    address: SocketAddr,
}

impl Survivor {
    fn new(address: SocketAddr) -> Self {
        Self { peer: Peer::foreign(address), address }
    }

    fn give_back(&mut self, fixture: &mut Fixture) -> Status {
        let (file, delegation) = (fixture.file, fixture.delegation);
        let args = Args::DelegReturn(op::delegation::ReturnArgs { delegation });
        let request = fixture.session.next(&|to| _ = to.push(&put(file)).push(&args));
        status(&call(&mut self.peer, &request))
    }

    /// What the client reads, by the delegation or without.
    fn read(&mut self, fixture: &mut Fixture, stateid: Stateid) -> Vec<u8> {
        let (file, args) = (fixture.file, op::read::Args { stateid, offset: 0, count: 100 });
        let request = fixture.session.next(&|to| _ = to.push(&put(file)).push(&Args::Read(args)));
        let results = call(&mut self.peer, &request);
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().expect("a result").expect("the file");
        let head = reader.expect::<kind::Read>().expect("a result").expect("data");
        match reader.data(&head).expect("in the reply") {
            nfs4::compound::Payload::Here(data) => data.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// A client of version 3 writes.
    fn write(&self, fixture: &mut Fixture, data: &[u8]) -> nfs3::Status {
        fixture.xid += 1;
        let args = write(fixture.object, data);
        let results = Peer::foreign(self.address).exchange(fixture.xid, Procedure::Write, &args);
        nfs3::Status(u32::from_be_bytes(results[..4].try_into().expect("a status")))
    }
}

/// The node that has sent the recall is killed, whichever it is; the session has another path
/// already. The writer goes on by way of the other node, and the holder reads what was written.
#[test]
fn a_recall_comes_by_another_path_when_its_node_is_killed_and_the_writer_goes_on() {
    let mut fixture = Fixture::new("group-recall-path");
    let mut there = Peer::foreign(fixture.second.address);
    fixture.session.bind_back(&mut there);
    let mut either = Survivor::new(fixture.second.address);
    let delegation = fixture.delegation;
    assert_eq!(either.read(&mut fixture, delegation), b"data");
    assert_eq!(either.write(&mut fixture, b"later"), nfs3::Status::JUKEBOX);
    let at_first = Deadline::wait_until("a recall", SOON, || {
        let (first, second) = (is_called(&fixture.back), is_called(&there));
        (first || second).then_some(first)
    });
    let (lost, mut back, mut survivor) = if at_first {
        let lost = recalled(&mut fixture.back);
        fixture.first.kill();
        (lost, there, either)
    } else {
        let lost = recalled(&mut there);
        let back = std::mem::replace(&mut fixture.back, there);
        fixture.second.kill();
        (lost, back, Survivor::new(fixture.first.address))
    };
    assert_eq!(lost.delegation, fixture.delegation);
    // Nobody knows whether the client has executed the one that was lost: it has.
    let again = loop {
        let recall = recalled(&mut back);
        if (recall.slot.slot, recall.slot.sequence) != (lost.slot.slot, lost.slot.sequence) {
            break recall;
        }
        answer(&mut back, &recall, Err(Status::RETRY_UNCACHED_REP));
    };
    assert_eq!(again.delegation, fixture.delegation);
    assert_eq!(survivor.write(&mut fixture, b"later"), nfs3::Status::JUKEBOX, "it is still delegated");
    assert_eq!(survivor.read(&mut fixture, delegation), b"data", "nobody has written");
    answer(&mut back, &again, Ok(()));
    assert_eq!(survivor.give_back(&mut fixture), Status::OK);
    assert_eq!(survivor.write(&mut fixture, b"later"), nfs3::Status::OK);
    assert_eq!(survivor.read(&mut fixture, Stateid::ANONYMOUS), b"later");
}
