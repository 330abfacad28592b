//! The work of one turn of a connection, which is not visible from outside.

mod admission;
mod held;
mod stalls;

use super::balance::{BUSY_PERMILLE, Load};
use super::*;
use crate::config::Config;
use crate::runtime::mailbox::Link;
use nfs3::{DirOpArgs, FileHandle, Procedure, Sattr3, Wire, proc};
use rpc::Xid;
use rpc::auth::AuthSys;
use rpc::record_marking::Mark;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use transport::Transport;
use transport::poll::Waker;
use xdr::{Reader, Writer};

const BLOCK: u32 = 1 << 20;

/// A connection without a loop, and its client.
struct Single {
    group: Arc<Group>,
    mailboxes: Arc<Mailboxes>,
    worker_pool: WorkerPool,
    work: Workspace,
    connection: Connection,
    client: TcpStream,
}

fn encoded<'a>(args: &impl Wire<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    args.encode(&mut Writer::new(&mut out));
    out
}

fn record(program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let sys = AuthSys { stamp: 1, machine: b"test", uid: 0, gid: 0, gids: Default::default() };
    let (mut credential, mut out) = (Vec::new(), vec![0; 4]);
    sys.encode_opaque(&mut Writer::new(&mut credential));
    rpc::call::encode(&mut Writer::new(&mut out), Xid(1), program, 3, procedure, &credential);
    out.extend_from_slice(args);
    let mark = Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
    out[..4].copy_from_slice(&mark.encode());
    out
}

fn nfs<'a>(procedure: Procedure, args: &impl Wire<'a>) -> Vec<u8> {
    record(nfs3::PROGRAM, procedure.number(), &encoded(args))
}

fn group() -> Arc<Group> {
    // Disables the stall check, however long a test is kept from running.
    group_with_stall(Duration::from_secs(3600))
}

fn group_with_stall(stall_max: Duration) -> Arc<Group> {
    let mut config = Config::quick(64 << 20, "/export", &["127.0.0.1:0".parse().unwrap()]);
    config.exports[0].root_squash = false;
    config.limits.stall_ms_max = u64::try_from(stall_max.as_millis()).unwrap();
    Arc::new(Group::new(&config, |_| None).unwrap())
}

/// A connection with this number, and its client's end.
fn connected(group: &Group, id: u64) -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, peer) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let local = socket.local_addr().unwrap();
    let accepted = Accepted { link: Link::Tcp(socket.into()), peer, local, node: 0, id };
    (Connection::new(accepted, group, clock::now()), client)
}

impl Single {
    fn new() -> Self {
        let group = group();
        let mailboxes = Arc::new(Mailboxes::new(Vec::new()));
        let (connection, client) = connected(&group, 1);
        let worker_pool = WorkerPool::new(Arc::clone(&group), Arc::clone(&mailboxes));
        let work = Workspace { scratch: Scratch::new(), replies: Replies::default(), text: Vec::new() };
        Self { group, mailboxes, worker_pool, work, connection, client }
    }

    /// Sends records, and waits until the server's socket has received them.
    fn send(&self, records: &[u8]) {
        let here = || rustix::io::ioctl_fionread(self.connection.socket().unwrap()).unwrap();
        let all = here() + records.len() as u64;
        (&self.client).write_all(records).unwrap();
        let deadline = clock::now() + Duration::from_secs(120);
        while here() < all {
            assert!(clock::now() < deadline, "the system delivers nothing");
            std::thread::yield_now();
        }
    }

    fn turn(&mut self, short: bool) -> Step {
        self.turn_with(None, short)
    }

    fn turn_with(&mut self, room: Option<usize>, short: bool) -> Step {
        self.turn_until(None, room, short)
    }

    fn turn_until(&mut self, ends: Option<Duration>, room: Option<usize>, short: bool) -> Step {
        let context = TurnContext {
            group: &self.group,
            mailboxes: &self.mailboxes,
            worker_pool: &self.worker_pool,
            room,
            short,
            ends,
            address: ConnectionAddress { on_loop: 0, key: 0 },
            now: clock::now(),
        };
        self.connection.turn(&mut self.work, context)
    }

    /// The results of a call that is answered in one turn.
    fn call(&mut self, call: &[u8]) -> Vec<u8> {
        self.send(call);
        assert!(matches!(self.turn(false), Step::Wait));
        let mut mark = [0; 4];
        (&self.client).read_exact(&mut mark).unwrap();
        let mut reply = vec![0; Mark::decode(mark).len as usize];
        (&self.client).read_exact(&mut reply).unwrap();
        let mut reader = Reader::new(&reply);
        rpc::reply::decode(&mut reader).unwrap();
        reader.rest().to_vec()
    }

    fn root(&mut self) -> FileHandle {
        let mnt = encoded(&nfs3::mount::mnt::Args { path: b"/export" });
        let results = self.call(&record(nfs3::mount::PROGRAM, 1, &mnt));
        let mounted = nfs3::mount::mnt::Reply::decode(&mut Reader::new(&results)).unwrap();
        mounted.into_result().unwrap().root
    }

    /// A file with a block of data.
    fn file(&mut self) -> FileHandle {
        let location = DirOpArgs { directory: self.root(), name: b"file" };
        let how = proc::create::How::Unchecked(Sattr3 { mode: Some(0o644), ..Sattr3::default() });
        let results = self.call(&nfs(Procedure::Create, &proc::create::Args { location, how }));
        let created = proc::create::Reply::decode(&mut Reader::new(&results)).unwrap();
        let file = created.into_result().unwrap().object.unwrap();
        let stable = proc::write::Stable::FileSync;
        let mut args = proc::write::Args { file, offset: 0, count: 1, stable, data_len: 1 };
        // Its last byte: the rest is a hole.
        args.offset = u64::from(BLOCK) - 1;
        let results = self.call(&record(
            nfs3::PROGRAM,
            Procedure::Write.number(),
            &[&encoded(&args)[..], &[7, 0, 0, 0]].concat(),
        ));
        assert!(proc::write::Reply::decode(&mut Reader::new(&results)).unwrap().into_result().is_ok());
        file
    }

    fn reads(&self) -> u64 {
        let mut procedures = self.connection.counters.procedures().iter();
        procedures.find(|(name, _)| *name == "READ").map_or(0, |(_, counts)| counts.count)
    }
}

#[test]
fn turns_are_light_that_move_little_and_are_close_together() {
    let mut single = Single::new();
    let file = single.file();
    let mut now = clock::now();
    let mut light = |single: &mut Single, count: u32, apart: Duration| {
        single.send(&nfs(Procedure::Read, &proc::read::Args { file, offset: 0, count }));
        single.turn(false);
        now += apart;
        single.connection.load.end_turn(Duration::ZERO, now)
    };
    let (soon, late) = (LIGHT_INTERVAL / 2, LIGHT_INTERVAL * 2);
    assert!(
        !light(&mut single, 4096, soon) && !light(&mut single, 4096, soon),
        "nobody who is busy waits for it"
    );
    single.connection.load.begin();
    assert!(light(&mut single, 4096, soon) && light(&mut single, 8192, soon));
    assert!(!light(&mut single, 4096, late), "one call now and then");
    assert!(light(&mut single, 4096, soon));
    assert!(!light(&mut single, 256 << 10, soon));
    assert!(!light(&mut single, 4096, soon), "one small call among large ones does not make it light");
    assert!((0..20).any(|_| light(&mut single, 4096, soon)));
    assert!((0..20).all(|_| light(&mut single, 32 << 10, soon)));
    assert!(!single.connection.load.end_turn(Duration::ZERO, now), "a turn of nothing");
}

#[test]
fn a_turn_beside_light_ones_is_short_and_goes_on_in_the_next() {
    let mut single = Single::new();
    let file = single.file();
    let read = nfs(Procedure::Read, &proc::read::Args { file, offset: 0, count: BLOCK });
    single.send(&read.repeat(8));
    // Each reply alone is longer than a turn may send.
    for turn in 1..=4 {
        assert!(matches!(single.turn(true), Step::Yield), "turn {turn}");
        assert!((1..=turn).contains(&single.reads()), "{} in {turn} turns", single.reads());
    }
    // Without light turns beside it the connection sends the rest at once, as far as its client
    // receives it.
    assert!(matches!(single.turn(false), Step::Wait));
    assert_eq!(single.reads(), 8);
}

#[test]
fn a_turn_whose_time_is_over_executes_a_few_calls_and_goes_on_in_the_next() {
    let mut single = Single::new();
    let file = single.file();
    single.send(&nfs(Procedure::Read, &proc::read::Args { file, offset: 0, count: 1 }).repeat(30));
    let past = Some(clock::now());
    for turn in 1..=6 {
        assert!(matches!(single.turn_until(past, None, false), Step::Yield), "turn {turn}");
        assert!((turn..=4 * turn).contains(&single.reads()), "{} in {turn} turns", single.reads());
    }
    // There is time enough for the rest.
    let later = Some(clock::now() + Duration::from_secs(3600));
    assert!(matches!(single.turn_until(later, None, false), Step::Wait));
    assert_eq!(single.reads(), 30);
}

fn mailboxes(loops: usize) -> (Vec<Poller>, Mailboxes) {
    let pollers: Vec<_> = (0..loops).map(|_| Poller::new().unwrap()).collect();
    let wakers = pollers.iter().map(|poller| Waker::new(poller, WAKER).unwrap()).collect();
    (pollers, Mailboxes::new(wakers))
}

#[test]
fn a_connection_goes_where_less_is_to_do_and_there_is_room() {
    let (_pollers, mailboxes) = mailboxes(3);
    (0..5).for_each(|_| mailboxes.enter(0));
    assert_eq!(mailboxes.connections(0), 5);
    // There is no load: the connection stays.
    assert_eq!(mailboxes.reserve_on_other_loop(0, 100, 0, 10, || None), None);
    mailboxes.add_load(0, 100);
    assert_eq!(mailboxes.reserve_on_other_loop(0, 300, 0, 10, || None), Some(1));
    assert_eq!([0, 1].map(|index| mailboxes.connections(index)), [4, 1]);
    assert_eq!(mailboxes.reserve_on_other_loop(0, 10, 0, 0, || None), None, "nobody has room");
    assert_eq!(mailboxes.reserve_on_other_loop(0, 10, 0, 10, || None), Some(2));
    mailboxes.retire(2);
    assert_eq!(mailboxes.reserve_on_other_loop(0, 10, 0, 10, || None), None, "nobody else has less to do");
    // A small difference in load is not worth a move.
    mailboxes.take_load(1, 250);
    assert_eq!(mailboxes.reserve_on_other_loop(0, 10, 0, 10, || None), None);
    mailboxes.take_load(1, 1);
    // A loop that has been in one round for long is given nothing until it is done.
    mailboxes.begin_round(1, clock::now().saturating_sub(Duration::from_secs(1)));
    assert_eq!(mailboxes.reserve_on_other_loop(0, 10, 0, 10, || None), None);
    mailboxes.end_round(1);
    assert_eq!(mailboxes.reserve_on_other_loop(0, 10, 0, 10, || None), Some(1));
}

#[test]
fn loops_without_time_left_are_evened_out_by_their_connections() {
    for (own, other, evens) in
        [(2, 0, true), (2, 1, false), (3, 1, true), (4, 1, true), (3, 2, false), (4, 2, true), (6, 5, false)]
    {
        let (_pollers, mailboxes) = mailboxes(2);
        let permille = |of: usize| 1000_usize.checked_div(of).map_or(0, |time| time + BUSY_PERMILLE);
        (0..own).for_each(|_| mailboxes.enter(0));
        (0..own).for_each(|_| mailboxes.add_load(0, permille(own)));
        (0..other).for_each(|_| mailboxes.add_load(1, permille(other)));
        let before = [mailboxes.load(0), mailboxes.load(1)];
        assert_eq!(
            mailboxes.reserve_on_other_loop(0, permille(own), permille(own), 10, || None).is_some(),
            evens,
            "{own} : {other}"
        );
        let moved = if evens { permille(own) } else { 0 };
        assert_eq!([mailboxes.load(0), mailboxes.load(1)], [before[0] - moved, before[1] + moved]);
    }
}

#[test]
fn of_loops_with_as_little_to_do_a_connection_goes_where_its_packets_come_in() {
    let (_pollers, mailboxes) = mailboxes(4);
    let take = |counted, processor| mailboxes.reserve_on_other_loop(0, 450, counted, 10, || Some(processor));
    let undo = |target| {
        mailboxes.take_load(target, 450);
        mailboxes.leave(target);
        mailboxes.enter(0);
    };
    (0..9).for_each(|_| mailboxes.enter(0));
    (0..4).for_each(|index| mailboxes.report_cpu(index, Some(index as u32)));
    (0..4).for_each(|index| mailboxes.add_load(index, 500));
    for processor in 1..4 {
        assert_eq!(take(0, processor), Some(processor as usize), "a new connection");
        undo(processor as usize);
    }
    assert_eq!(take(0, 0), None, "its packets come in here");
    assert_eq!(take(0, 7), None, "no loop runs there");
    // A connection that is counted here stays, and goes to that processor's loop only if it has to
    // move.
    mailboxes.add_load(0, 450);
    assert_eq!(take(450, 2), None);
    mailboxes.add_load(0, 450);
    assert_eq!(take(450, 2), Some(2));
    mailboxes.add_load(0, 450);
    assert_eq!(take(450, 2), Some(1), "loop 2 has more to do by now");
    mailboxes.take_load(3, 500);
    assert_eq!(take(0, 3), Some(3), "it has the least to do, wherever it runs");
    let (_pollers, mailboxes) = self::mailboxes(2);
    mailboxes.report_cpu(1, Some(5));
    mailboxes.enter(0);
    assert_eq!(
        mailboxes.reserve_on_other_loop(0, 450, 0, 10, || Some(5)),
        None,
        "nobody knows where an idle loop runs"
    );
}

/// Two loops, the first with `connections` busy connections.
fn two_loops(connections: u64) -> (Arc<Mailboxes>, [EventLoop; 2], Vec<TcpStream>) {
    two_loops_of(group(), connections)
}

fn two_loops_of(group: Arc<Group>, connections: u64) -> (Arc<Mailboxes>, [EventLoop; 2], Vec<TcpStream>) {
    let (pollers, mailboxes) = mailboxes(2);
    let mailboxes = Arc::new(mailboxes);
    let worker_pool = Arc::new(WorkerPool::new(Arc::clone(&group), Arc::clone(&mailboxes)));
    let mut clients = Vec::new();
    let mut pollers = pollers.into_iter();
    let mut loops = [0, 1].map(|index| {
        let (group, worker_pool) = (Arc::clone(&group), Arc::clone(&worker_pool));
        let (poller, busy) = (pollers.next().unwrap(), BusyPoll::new(Duration::ZERO));
        EventLoop::new(index, group, Arc::clone(&mailboxes), worker_pool, poller, busy)
    });
    for number in 0..connections {
        let (mut connection, client) = connected(&group, number);
        let load = connection.load.begin();
        let entry = loops[0].connections.vacant_entry();
        connection.register(&loops[0].poller, entry.key() as u64).unwrap();
        entry.insert(connection);
        mailboxes.enter(0);
        mailboxes.add_load(0, load);
        clients.push(client);
    }
    (mailboxes, loops, clients)
}

fn ids(of: &EventLoop) -> Vec<u64> {
    let mut ids: Vec<_> = of.connections.iter().map(|(_, connection)| connection.client.id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_loop_with_more_to_do_hands_connections_on_until_the_loops_are_even() {
    let (mailboxes, mut loops, _clients) = two_loops(4);
    loops[0].connections[0].is_queued = true;
    loops[0].try_to_rebalance(0);
    assert_eq!(ids(&loops[0]), [0, 1, 2, 3], "it waits for its next turn");
    for key in [1, 2] {
        loops[0].try_to_rebalance(key);
        loops[1].take_messages();
    }
    assert_eq!([ids(&loops[0]), ids(&loops[1])], [[0, 3], [1, 2]]);
    loops[0].try_to_rebalance(3);
    assert_eq!(ids(&loops[0]), [0, 3], "they are even");
    assert_eq!(
        [0, 1].map(|index| (mailboxes.connections(index), mailboxes.load(index))),
        [(2, 2 * BUSY_PERMILLE); 2]
    );
    assert_eq!(loops[0].statistics.moved, 2);
    // A connection that has just arrived stays until its load is known.
    mailboxes.add_load(1, 5 * BUSY_PERMILLE);
    let arrived = loops[1].connections.iter().next().unwrap().0;
    loops[1].try_to_rebalance(arrived);
    assert_eq!(ids(&loops[1]), [1, 2]);
    loops[1].alive += Duration::from_secs(1);
    loops[1].try_to_rebalance(arrived);
    loops[0].take_messages();
    assert_eq!(ids(&loops[1]), [2]);
}

#[test]
fn a_connection_for_a_loop_that_has_ended_is_closed() {
    let (mailboxes, mut loops, clients) = two_loops(2);
    loops[0].connections[1].load.begin();
    // A slot was reserved just before the loop ended.
    loops[0].try_to_rebalance(1);
    mailboxes.retire(1);
    loops[1].take_messages();
    assert_eq!([ids(&loops[0]), ids(&loops[1])], [vec![0], vec![]]);
    clients[1].set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(!(&clients[1]).read(&mut [0]).is_ok_and(|read| read > 0));
}

#[test]
fn the_load_of_a_connection_is_what_its_turns_take() {
    let mut single = Single::new();
    let file = single.file();
    let connection = &mut single.connection;
    connection.load.begin();
    let (start, second) = (connection.active, Duration::from_secs(1));
    for _ in 0..5 {
        connection.load.end_turn(Duration::from_millis(50), start);
    }
    connection.count_load(second, start);
    assert_eq!((connection.load.permille(), connection.load.is_busy()), (250 + BUSY_PERMILLE, true));
    connection.load.end_turn(3 * second, start);
    connection.count_load(second, start);
    assert_eq!(connection.load.permille(), 1000 + BUSY_PERMILLE, "no more than all");
    connection.load.end_turn(second / 2, start);
    connection.count_load(second, start + 2 * second);
    assert!(connection.load.is_busy(), "it has worked, however long ago that is");
    connection.count_load(second, start + 2 * second);
    assert!(!connection.load.is_busy(), "it was idle");
    // A client that does not read its replies is not idle, and causes no load.
    connection.load.begin();
    let read = nfs(Procedure::Read, &proc::read::Args { file, offset: 0, count: BLOCK });
    single.send(&read.repeat(40));
    single.turn(false);
    assert!(single.connection.held_bytes() > 0);
    single.connection.count_load(second, start + 100 * second);
    assert_eq!((single.connection.load.permille(), single.connection.load.is_busy()), (BUSY_PERMILLE, true));
}

#[test]
fn strangers_and_mounts_are_not_busy_and_who_has_something_here_stays() {
    let mut single = Single::new();
    let file = single.file();
    single.send(&record(nfs3::mount::PROGRAM, 0, &[]));
    assert!(!single.connection.calls_for_files());
    assert!(matches!(single.turn(false), Step::Wait));
    assert!(!single.connection.calls_for_files(), "nothing has come");
    let getattr = nfs(Procedure::GetAttr, &proc::getattr::Args { object: file });
    single.send(&getattr[..19]);
    assert!(!single.connection.calls_for_files(), "its program has not come whole");
    single.send(&getattr[19..]);
    assert!(single.connection.calls_for_files() && single.connection.may_move());
    single.connection.client.admitted = Default::default();
    assert!(!single.connection.calls_for_files(), "a stranger");
    assert!(matches!(single.turn(false), Step::Wait));
    // Within a record the connection stays.
    single.send(&getattr[..50]);
    assert!(matches!(single.turn(false), Step::Wait));
    assert!(!single.connection.may_move());
    single.send(&getattr[50..]);
    assert!(matches!(single.turn(false), Step::Wait));
    assert!(single.connection.may_move());
    single.connection.push_reply(&[0; 28]);
    assert!(!single.connection.may_move(), "it has a reply to send");
}

#[test]
fn a_connection_between_the_same_ends_is_the_same_clients_and_another_ones_is_a_neighbours() {
    let mut single = Single::new();
    let location = DirOpArgs { directory: single.root(), name: b"made" };
    let how = proc::create::How::Guarded(Sattr3::default());
    let create = nfs(Procedure::Create, &proc::create::Args { location, how });
    let made = single.call(&create);
    assert_eq!(made[..4], [0; 4]);
    // The client closes in order.
    let cached = Arc::clone(&single.connection.client.cache_client.connection);
    single.group.reply_cache.connections().end(cached.id().unwrap(), true);
    let (connection, client) = connected(&single.group, 2);
    (single.connection, single.client) = (connection, client);
    assert_eq!(single.call(&create)[..4], nfs3::Status::EXIST.0.to_be_bytes(), "another port");
    // A connection from the port of the first one, as far as the server knows.
    let (connection, client) = connected(&single.group, 3);
    (single.connection, single.client) = (connection, client);
    single.connection.client.cache_client.connection = Arc::new(cached.reopened());
    assert_eq!(single.call(&create), made);
}

#[test]
fn a_connection_whose_address_has_used_its_share_waits_and_is_then_served_as_a_busy_one() {
    let (mailboxes, [mut first, _second], clients) = two_loops(1);
    mailboxes.take_load(0, BUSY_PERMILLE);
    let [own, _other] = ["10.0.0.1", "10.0.0.2"].map(|address| first.shares.enter(address.parse().unwrap()));
    let connection = &mut first.connections[0];
    (connection.load, connection.share) = (Load::default(), own);
    (&clients[0]).write_all(&record(nfs3::PROGRAM, 0, &[])).unwrap();
    let deadline = clock::now() + Duration::from_secs(120);
    while !first.connections[0].calls_for_files() {
        assert!(clock::now() < deadline, "the system delivers nothing");
        std::thread::yield_now();
    }
    first.shares.begin_round(clock::now());
    first.shares.end_turn(own, Duration::from_millis(1));
    first.serve_ready(0);
    assert!(first.connections[0].is_queued && !first.connections[0].load.is_busy());
    let rounds = (0..100).take_while(|_| {
        first.shares.begin_round(clock::now());
        let due = std::mem::take(&mut first.run_queue);
        first.serve_queued(due);
        first.connections[0].is_queued
    });
    assert_eq!(rounds.count(), 1, "it owed one share more than its own");
    assert!(first.connections[0].load.is_busy());
    assert_eq!(first.connections[0].counters.procedures().iter().map(|(_, of)| of.count).sum::<u64>(), 1);
}
