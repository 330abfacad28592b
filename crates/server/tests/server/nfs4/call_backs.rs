//! Back channels: which connections they have, and what a client is asked there and answers.
//! RFC 8881 s2.10.3, s18.33, s18.34, s20

use super::back::{Asked, BackPeer, Called, bind, marked};
use super::client::{Client, after_sequence, call, encoded, exchange_id, outcome, put, session_args, start};
use crate::peer::{Peer, credential, eventually};
use fs::FileHandle;
use nfs4::cb::{Reply, sequence};
use nfs4::compound::ReplyReader;
use nfs4::op::create_session::{CONN_BACK_CHAN, CallbackSecurity, GssService};
use nfs4::op::lock::LockType;
use nfs4::op::open::result_flag;
use nfs4::op::session_control::{BackchannelCtlArgs, Channels, WantedChannels};
use nfs4::op::{self, Args, Fore, kind};
use nfs4::{Array, Opaque, OwnerId, Range, SessionId, StateOwner, Stateid, Status};
use rpc::reply::Accept;
use std::net::SocketAddr;
use xdr::Writer;

const ALL: Range = Range { offset: 0, length: Range::TO_THE_END };

/// SEQ4_STATUS_*. RFC 8881 s18.46.1
const CB_PATH_DOWN: u32 = 0x1;
const CB_PATH_DOWN_SESSION: u32 = 0x200;
const BACKCHANNEL_FAULT: u32 = 0x400;

/// What a client answers to a call.
type Answer<'a> = &'a dyn Fn(&Called) -> Vec<u8>;

/// A lock that its client will wait for.
fn wait_for(client: &mut Client, file: FileHandle, open: Stateid, owner: &str) -> Status {
    let locker = client.first(open, owner);
    let args = op::lock::Args { lock_type: LockType::WriteWait, reclaim: false, range: ALL, locker };
    let results = client.send(|to| _ = to.push(&put(file)).push(&Args::Lock(args)));
    outcome(&results).0
}

fn unlock(client: &mut Client, file: FileHandle, lock: Stateid) -> Stateid {
    let args = op::lock::UnlockArgs { lock_type: LockType::Write, seqid: 0, lock, range: ALL };
    let results = client.send(|to| _ = to.push(&put(file)).push(&Args::LockU(args)));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    reader.expect::<kind::LockU>().unwrap().unwrap()
}

/// Somebody who has locked a file, and another client that can be called back and waits for it.
struct Waiting {
    address: SocketAddr,
    holder: Client,
    lock: Stateid,
    file: FileHandle,
    client: Client,
    open: Stateid,
}

impl Waiting {
    fn new(address: SocketAddr) -> Self {
        let mut holder = Client::new(address, "holder");
        let (file, open) = holder.open("file", 3, 0).unwrap();
        let first = holder.first(open, "holder");
        let lock = holder.lock(file, first, true, ALL).unwrap();
        let mut client = Client::new(address, "waits");
        let (_, open) = client.open("file", 3, 0).unwrap();
        Self { address, holder, lock, file, client, open }
    }

    fn back(&self) -> BackPeer {
        BackPeer::new(&self.client, self.address)
    }

    /// Has an owner of the client wait, and then nothing be in its way any more.
    fn wait_and_free(&mut self, owner: &str) {
        assert_eq!(wait_for(&mut self.client, self.file, self.open, owner), Status::DENIED);
        self.lock = unlock(&mut self.holder, self.file, self.lock);
    }

    /// An owner of the client gets what was reserved for it and gives it back, and the holder locks
    /// again.
    fn hold(&mut self, owner: &str) {
        let locker = self.client.first(self.open, owner);
        let lock = self.client.lock(self.file, locker, true, ALL).unwrap();
        unlock(&mut self.client, self.file, lock);
        self.lock = self.holder.lock(self.file, locker_of(self.lock), true, ALL).unwrap();
    }

    fn is_told(&self, called: &Called, owner: &str) -> bool {
        called.asked == Asked::NotifyLock { owner: owner.as_bytes().to_vec(), file: self.file }
    }
}

// RFC 8881 s9.6, s20.11
#[test]
fn a_client_that_waits_for_a_lock_is_told_when_it_is_free() {
    let (_server, address) = start();
    let mut this = Waiting::new(address);
    let mut back = this.back();
    this.wait_and_free("owner");
    let called = back.answer();
    assert!(this.is_told(&called, "owner"), "{called:?}");
    assert_eq!((called.program, called.minor, called.credential), (0x4000_0000, 2, (0, Vec::new())));
    assert_eq!((called.session, called.slot, called.sequence), (this.client.session, 0, 1));
    let theirs = locker_of(this.lock);
    assert_eq!(this.holder.lock(this.file, theirs, true, ALL), Err(Status::DENIED), "it is reserved");
    let locker = this.client.first(this.open, "owner");
    let held = this.client.lock(this.file, locker, true, ALL).unwrap();

    // Who cannot be called back, or does not wait, is not in a queue.
    assert_eq!(this.holder.lock(this.file, locker_of(this.lock), true, ALL), Err(Status::DENIED));
    let another = this.client.first(this.open, "another owner");
    assert_eq!(this.client.lock(this.file, another, true, ALL), Err(Status::DENIED));
    unlock(&mut this.client, this.file, held);
    assert!(this.holder.lock(this.file, locker_of(this.lock), true, ALL).is_ok());
}

const fn locker_of(lock: Stateid) -> op::lock::Locker<'static> {
    op::lock::Locker::Existing { lock, lock_seqid: 0 }
}

// RFC 8881 s18.16.4
#[test]
fn an_open_says_whether_the_client_will_be_told() {
    let (_server, address) = start();
    let mut client = Client::new(address, "one");
    let flags = |client: &mut Client| {
        let export = client.export();
        let owner = StateOwner { client: client.id, owner: OwnerId::new(b"o").unwrap() };
        let how = op::open::How::Unchecked(nfs4::Fattr::EMPTY);
        let claim = op::open::Claim::Name(b"file");
        let args = op::open::Args { seqid: 0, access: 3, deny: 0, owner, how, claim };
        let results = client.send(|to| _ = to.push(&put(export)).push(&Args::Open(args)));
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        reader.expect::<kind::Open>().unwrap().unwrap().flags
    };
    assert_eq!(flags(&mut client) & result_flag::MAY_NOTIFY_LOCK, 0);
    let _back = BackPeer::new(&client, address);
    assert_ne!(flags(&mut client) & result_flag::MAY_NOTIFY_LOCK, 0);
}

/// A new session of the client on its connection. Returns the flags that were granted.
fn another_session(
    client: &mut Client,
    flags: u32,
    security: Array<'_, CallbackSecurity<'_>>,
) -> (SessionId, u32) {
    let (id, sequence) = (client.id, client.next_session());
    let args = op::create_session::Args {
        flags,
        callback_program: 0x4000_1234,
        callback_security: security,
        ..session_args(id, sequence, 8)
    };
    let request = encoded(1, |to| _ = to.push(&Args::CreateSession(args)));
    let results = call(&mut client.peer, &request);
    assert_eq!(call(&mut client.peer, &request), results, "once more");
    let created = ReplyReader::<Fore>::new(&results).unwrap().expect::<kind::CreateSession>().unwrap();
    let created = created.unwrap();
    (created.session, created.flags)
}

// RFC 8881 s18.36.3
#[test]
fn the_connection_that_creates_a_session_carries_call_backs_if_it_asks_for_that() {
    let (_server, address) = start();
    let mut this = Waiting::new(address);
    let sys = CallbackSecurity::Sys {
        stamp: 5,
        machine: Opaque::new(b"server").unwrap(),
        uid: 1,
        gid: 2,
        gids: Array::default(),
    };
    let gss = CallbackSecurity::Gss { service: GssService::None, from_server: b"a", from_client: b"b" };
    assert_eq!(another_session(&mut this.client, 0, Array::default()).1, 0);
    assert_eq!(another_session(&mut this.client, CONN_BACK_CHAN, Array::from(&[gss][..])).1, 0);
    let both = [gss, sys];
    let (session, flags) = another_session(&mut this.client, CONN_BACK_CHAN, Array::from(&both[..]));
    assert_eq!(flags, CONN_BACK_CHAN);
    (this.client.session, this.client.sequence, this.client.minor) = (session, 0, 1);
    this.wait_and_free("owner");
    let called = Called::of(&this.client.peer.receive());
    assert!(this.is_told(&called, "owner"));
    assert_eq!((called.program, called.minor, called.session), (0x4000_1234, 1, session));
    let rpc::auth::Credential::Sys(of) =
        rpc::auth::Credential::parse(called.credential.0, &called.credential.1).unwrap()
    else {
        panic!("{:?}", called.credential)
    };
    assert_eq!((of.stamp, of.machine, of.uid, of.gid), (5, &b"server"[..], 1, 2));
    // Requests and call-backs share the connection.
    this.client.peer.send(&called.done(Ok(())));
    assert_eq!(this.client.flags(), 0);

    // RFC 8881 s18.33
    let mut run = |security: &[CallbackSecurity<'_>]| {
        let control = BackchannelCtlArgs { program: 0x4000_5678, security: Array::from(security) };
        this.client.run(|to| _ = to.push(&Args::BackchannelCtl(control)))
    };
    assert_eq!(run(&[]), Status::INVAL);
    assert_eq!(run(&[gss]), Status::NOENT);
    assert_eq!(run(&[CallbackSecurity::None]), Status::OK);
    this.hold("owner");
    this.wait_and_free("owner");
    let called = Called::of(&this.client.peer.receive());
    assert_eq!((called.program, called.credential.0, called.sequence), (0x4000_5678, 0, 2));
    this.client.peer.send(&called.done(Ok(())));
    assert_eq!(this.client.flags(), 0);
}

// RFC 8881 s18.34.3
#[test]
fn a_connection_carries_what_was_agreed() {
    use WantedChannels::{Back, BackOrBoth, Fore as ForeOnly, ForeOrBoth};
    let (_server, address) = start();
    let mut client = Client::new(address, "one");
    let session = client.session;
    let fresh = || Peer::with_credential(address, credential(1, b"one", 0, 0));
    let cases = [
        (vec![(ForeOnly, Ok(Channels::Fore)), (ForeOnly, Ok(Channels::Fore)), (Back, Err(Status::INVAL))]),
        (vec![(Back, Ok(Channels::Back)), (Back, Ok(Channels::Back)), (ForeOrBoth, Err(Status::INVAL))]),
        (vec![(ForeOrBoth, Ok(Channels::Both)), (ForeOnly, Err(Status::INVAL))]),
        (vec![
            (BackOrBoth, Ok(Channels::Both)),
            (Back, Err(Status::INVAL)),
            (ForeOrBoth, Ok(Channels::Both)),
        ]),
        // A client whose back channel is down gets it again where it sends its requests.
        (vec![(ForeOnly, Ok(Channels::Fore)), (ForeOrBoth, Ok(Channels::Both))]),
    ];
    for case in cases {
        let mut peer = fresh();
        for (wanted, expected) in &case {
            assert_eq!(bind(&mut peer, session, *wanted), *expected, "{wanted:?} of {case:?}");
        }
    }
    let mut stranger = Peer::with_credential(address, credential(1, b"one", 77, 77));
    assert_eq!(bind(&mut stranger, session, Back), Err(Status::WRONG_CRED));
    assert_eq!(bind(&mut fresh(), SessionId([9; 16]), Back), Err(Status::BADSESSION));
    let gss = [CallbackSecurity::Gss { service: GssService::None, from_server: b"a", from_client: b"b" }];
    let (unreachable, _) = another_session(&mut client, CONN_BACK_CHAN, Array::from(&gss[..]));
    assert_eq!(bind(&mut fresh(), unreachable, ForeOrBoth), Ok(Channels::Fore));
    assert_eq!(bind(&mut fresh(), unreachable, Back), Err(Status::INVAL));
}

// RFC 8881 s18.46.1
#[test]
fn a_session_says_when_its_back_channel_is_gone_and_gets_it_again() {
    let (_server, address) = start();
    let mut this = Waiting::new(address);
    assert_eq!(this.client.flags(), 0, "it never asked for one");
    let back = this.back();
    assert_eq!(this.client.flags(), 0);
    drop(back);
    let down = CB_PATH_DOWN | CB_PATH_DOWN_SESSION;
    eventually("the end of the connection is noticed", || this.client.flags() == down);
    assert_eq!(this.holder.flags(), 0, "another client's");
    // What it waits for meanwhile it is not told, but the lock is not lost either.
    assert_eq!(wait_for(&mut this.client, this.file, this.open, "owner"), Status::DENIED);
    let peer = &mut this.client.peer;
    assert_eq!(bind(peer, this.client.session, WantedChannels::ForeOrBoth), Ok(Channels::Both));
    assert_eq!(this.client.flags(), 0);
}

#[test]
fn what_a_connection_was_asked_when_it_ended_is_asked_on_another() {
    let (_server, address) = start();
    let mut this = Waiting::new(address);
    let (mut first, mut second) = (this.back(), this.back());
    this.wait_and_free("owner");
    let lost = first.called();
    drop(first);
    let called = second.called();
    assert_eq!(called.asked, lost.asked);
    assert_eq!(
        (called.slot, called.sequence),
        (lost.slot, lost.sequence),
        "nobody knows whether it was done"
    );
    assert_ne!(called.xid, lost.xid);
    // The client has executed the first one.
    second.0.send(&called.done(Err(Status::RETRY_UNCACHED_REP)));
    let again = second.answer();
    assert_eq!((&again.asked, again.slot, again.sequence), (&lost.asked, lost.slot, lost.sequence + 1));
    assert_eq!(this.client.flags(), 0);
}

#[test]
fn a_client_is_asked_again_as_it_wishes() {
    let (_server, address) = start();
    let mut this = Waiting::new(address);
    let mut back = this.back();
    this.wait_and_free("owner");
    let first = back.called();
    back.0.send(&first.refused(Status::DELAY));
    let second = back.called();
    assert_eq!((second.slot, second.sequence), (first.slot, first.sequence), "it was not executed");
    back.0.send(&second.refused(Status::SEQ_FALSE_RETRY));
    let third = back.called();
    assert_eq!(third.sequence, first.sequence + 1, "another call was");
    back.0.send(&third.done(Err(Status::DELAY)));
    let fourth = back.called();
    assert_eq!((fourth.sequence, &fourth.asked), (third.sequence + 1, &first.asked));
    back.0.send(&fourth.refused(Status::SEQ_MISORDERED));
    let fifth = back.answer();
    assert_eq!((fifth.slot, fifth.sequence), (1, 1), "the slot is lost");
    eventually("it has answered", || this.client.flags() == 0);
}

#[test]
fn a_client_that_does_not_answer_is_told_and_harms_nobody() {
    let (_server, address) = start();
    let mut this = Waiting::new(address);
    let mut silent = this.back();
    this.wait_and_free("first");
    let unanswered = silent.called();
    eventually("it is told", || this.client.flags() & BACKCHANNEL_FAULT != 0);
    assert_eq!(this.holder.flags(), 0);
    // What comes now goes to a connection on which it answers, by another slot.
    let mut second = this.back();
    this.hold("first");
    this.wait_and_free("second");
    let called = second.answer();
    assert!(this.is_told(&called, "second"), "{called:?}");
    assert_eq!(called.slot, 1);
    eventually("it answers", || this.client.flags() == 0);
    // A late answer is as good: its slot is used again.
    silent.0.send(&unanswered.done(Ok(())));
    assert_eq!(bind(&mut silent.0, this.client.session, WantedChannels::Back), Ok(Channels::Back), "read");
    drop(second);
    this.hold("second");
    this.wait_and_free("third");
    let called = silent.answer();
    assert_eq!((called.slot, called.sequence), (0, unanswered.sequence + 1));
}

#[test]
fn answers_that_nobody_asked_for_and_nonsense_harm_nobody_else() {
    let (_server, address) = start();
    let mut this = Waiting::new(address);
    // A reply where none is expected is no RPC.
    let called = Called {
        xid: 1,
        program: 0,
        minor: 2,
        credential: (0, Vec::new()),
        session: this.client.session,
        slot: 0,
        sequence: 1,
        asked: Asked::NotifyLock { owner: Vec::new(), file: this.file },
    };
    let mut stranger = Peer::new(address);
    stranger.send(&called.done(Ok(())));
    assert!(stranger.is_closed());

    let mut back = this.back();
    // One too many is ignored: it may be late.
    back.0.send(&called.done(Ok(())));
    let nonsense: [Answer<'_>; 6] = [
        &|called| called.reply(|to| _ = to.push(&Reply::Sequence(Ok(called.accepted())))),
        &|called| {
            let other = sequence::Success { slot: called.slot + 1, ..called.accepted() };
            called.reply(|to| {
                to.push(&Reply::Sequence(Ok(other)));
                to.push(&Reply::NotifyLock(Ok(())));
            })
        },
        &|called| {
            called.reply(|to| {
                to.push(&Reply::Sequence(Ok(called.accepted())));
                to.push(&Reply::Recall(Ok(())));
            })
        },
        &|called| [&called.done(Ok(()))[..], &[0; 8]].concat(),
        &|called| {
            let mut out = vec![0; 4];
            rpc::reply::encode_accept(&mut Writer::new(&mut out), rpc::Xid(called.xid), Accept::ProgUnavail);
            marked(out)
        },
        &|called| {
            let mut out = called.done(Ok(()));
            out.resize(1 << 20, 7);
            marked(out)
        },
    ];
    for (round, reply) in nonsense.into_iter().enumerate() {
        this.wait_and_free("owner");
        let called = back.called();
        back.0.send(&marked(reply(&called)));
        eventually("it is told", || this.client.flags() == BACKCHANNEL_FAULT);
        assert_eq!(this.holder.flags(), 0, "round {round}");
        this.hold("owner");
        // It is asked all the same, and what it says counts.
        this.wait_and_free("owner");
        back.answer();
        eventually("it answers", || this.client.flags() == 0);
        this.hold("owner");
    }
    // Neither a call nor a reply: what follows has no meaning.
    back.0.send(&marked([&[0; 4][..], &7_u32.to_be_bytes(), &9_u32.to_be_bytes(), &[0; 40]].concat()));
    assert!(back.0.is_closed());
    eventually("its end is noticed", || this.client.flags() == CB_PATH_DOWN | CB_PATH_DOWN_SESSION);
}

#[test]
fn a_session_that_ends_is_not_called_back_and_its_connection_lives_on() {
    let (_server, address) = start();
    let mut client = Client::new(address, "one");
    let (session, flags) = another_session(&mut client, CONN_BACK_CHAN, Array::default());
    assert_eq!(flags, CONN_BACK_CHAN);
    let destroy = Args::DestroySession(op::create_session::DestroyArgs { session });
    assert_eq!(client.run(|to| _ = to.push(&destroy)), Status::OK);
    assert_eq!(client.flags(), 0);
    assert_eq!(bind(&mut client.peer, session, WantedChannels::ForeOrBoth), Err(Status::BADSESSION));
    // Other sessions, and more of them than a connection keeps.
    for number in 0..80 {
        let mut peer = Peer::with_credential(address, client.peer.credential.clone());
        let owner = format!("owner {number}");
        let results = call(&mut peer, &encoded(2, |to| _ = to.push(&exchange_id(owner.as_bytes(), 1))));
        let exchanged = ReplyReader::<Fore>::new(&results).unwrap().expect::<kind::ExchangeId>().unwrap();
        let exchanged = exchanged.unwrap();
        let args = session_args(exchanged.client, exchanged.sequence, 8);
        let args = op::create_session::Args { flags: CONN_BACK_CHAN, ..args };
        let created = call(&mut client.peer, &encoded(2, |to| _ = to.push(&Args::CreateSession(args))));
        let created = ReplyReader::<Fore>::new(&created).unwrap().expect::<kind::CreateSession>().unwrap();
        assert_eq!(created.unwrap().flags, CONN_BACK_CHAN, "{number}");
    }
    assert_eq!(client.flags(), 0);
}
