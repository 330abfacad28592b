//! What a turn of a connection takes, which nobody sees from outside.

use super::balance::BUSY_PERMILLE;
use super::*;
use crate::config::Config;
use crate::runtime::mailbox::Offer;
use nfs3::{DirOpArgs, FileHandle, Procedure, Sattr3, Wire, proc};
use rpc::Xid;
use rpc::auth::AuthSys;
use rpc::record::Mark;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use transport::poll::Waker;
use xdr::{Reader, Writer};

const BLOCK: u32 = 1 << 20;

/// A connection without a loop, and its client.
struct Single {
    group: Arc<Group>,
    peers: Arc<Peers>,
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
    let mut config = Config::quick(64 << 20, "/export", &["127.0.0.1:0".parse().unwrap()]);
    config.exports[0].root_squash = false;
    // However long a test is kept from running.
    config.limits.stall_ms_max = 3_600_000;
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
        let peers = Arc::new(Peers::new(Vec::new()));
        let (connection, client) = connected(&group, 1);
        let worker_pool = WorkerPool::new(Arc::clone(&group), Arc::clone(&peers));
        let work = Workspace { scratch: Scratch::new(), replies: Replies::default(), text: Vec::new() };
        Self { group, peers, worker_pool, work, connection, client }
    }

    /// Sends, and waits until it is there.
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
        let around = Surroundings {
            group: &self.group,
            peers: &self.peers,
            worker_pool: &self.worker_pool,
            share: None,
            short,
            place: Place { on_loop: 0, key: 0 },
            now: clock::now(),
        };
        self.connection.turn(&mut self.work, around)
    }

    /// The results of a call that is served at once.
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
    let (soon, late) = (LIGHT_APART / 2, LIGHT_APART * 2);
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
    // Each reply alone is more than a turn may send.
    for turn in 1..=4 {
        assert!(matches!(single.turn(true), Step::Again), "turn {turn}");
        assert!((1..=turn).contains(&single.reads()), "{} in {turn} turns", single.reads());
    }
    // Alone it does the rest at once, as far as its client takes it.
    assert!(matches!(single.turn(false), Step::Wait));
    assert_eq!(single.reads(), 8);
}

fn peers(loops: usize) -> (Vec<Poller>, Peers) {
    let pollers: Vec<_> = (0..loops).map(|_| Poller::new().unwrap()).collect();
    let wakers = pollers.iter().map(|poller| Waker::new(poller, WAKER).unwrap()).collect();
    (pollers, Peers::new(wakers))
}

#[test]
fn a_connection_goes_where_less_is_to_do_and_there_is_room() {
    let (_pollers, peers) = peers(3);
    (0..5).for_each(|_| peers.enter(0));
    assert_eq!(peers.connections(0), 5);
    // Nothing is to do: it stays.
    assert_eq!(peers.take_place_from(0, 100, 0, 10), None);
    peers.add_load(0, 100);
    assert_eq!(peers.take_place_from(0, 300, 0, 10), Some(1));
    assert_eq!([0, 1].map(|index| peers.connections(index)), [4, 1]);
    assert_eq!(peers.take_place_from(0, 10, 0, 0), None, "nobody has room");
    assert_eq!(peers.take_place_from(0, 10, 0, 10), Some(2));
    peers.retire(2);
    assert_eq!(peers.take_place_from(0, 10, 0, 10), None, "nobody else has less to do");
    // Little more or less is not worth it.
    peers.take_load(1, 250);
    assert_eq!(peers.take_place_from(0, 10, 0, 10), None);
    peers.take_load(1, 1);
    assert_eq!(peers.take_place_from(0, 10, 0, 10), Some(1));
}

#[test]
fn loops_without_time_left_are_evened_out_by_their_connections() {
    for (own, other, evens) in
        [(2, 0, true), (2, 1, false), (3, 1, true), (4, 1, true), (3, 2, false), (4, 2, true), (6, 5, false)]
    {
        let (_pollers, peers) = peers(2);
        let share = |of: usize| 1000_usize.checked_div(of).map_or(0, |time| time + BUSY_PERMILLE);
        (0..own).for_each(|_| peers.enter(0));
        (0..own).for_each(|_| peers.add_load(0, share(own)));
        (0..other).for_each(|_| peers.add_load(1, share(other)));
        let before = [peers.load(0), peers.load(1)];
        assert_eq!(peers.take_place_from(0, share(own), share(own), 10).is_some(), evens, "{own} : {other}");
        let moved = if evens { share(own) } else { 0 };
        assert_eq!([peers.load(0), peers.load(1)], [before[0] - moved, before[1] + moved]);
    }
}

#[test]
fn a_connection_goes_home_where_loops_have_as_much_to_do_then() {
    let (_pollers, peers) = peers(3);
    assert_eq!(peers.loop_on(0), None);
    peers.tell_place(0, Some(7), None);
    peers.tell_place(1, Some(0), None);
    assert_eq!([0, 7, 1, u32::MAX].map(|processor| peers.loop_on(processor)), [Some(1), Some(0), None, None]);
    (0..3).for_each(|_| peers.enter(0));
    peers.add_load(0, 1500);
    peers.add_load(1, 600);
    assert_eq!(peers.take_place_at_home(0, 1, 500, 0), None, "no room");
    assert_eq!(peers.take_place_at_home(0, 1, 500, 10), Some(None));
    assert_eq!([peers.load(0), peers.load(1)], [1000, 1100]);
    assert_eq!([peers.connections(0), peers.connections(1)], [2, 1]);
    assert_eq!(
        peers.take_place_at_home(0, 1, 500, 10),
        None,
        "it would have more to do than this one has now"
    );
    // What is given back for it counts, once.
    peers.offer(1, Some(Offer { home: 2, permille: 480 }));
    assert_eq!(peers.take_place_at_home(0, 1, 500, 10), None, "that is for another loop");
    for permille in [100, 900] {
        peers.offer(1, Some(Offer { home: 0, permille }));
        assert_eq!(peers.take_place_at_home(0, 1, 500, 10), None, "too little for it, or harder to catch");
    }
    let offer = Some(Offer { home: 0, permille: 480 });
    peers.offer(1, offer);
    assert_eq!(peers.take_place_at_home(0, 1, 500, 1), None, "no room if it should not come");
    assert_eq!(peers.take_place_at_home(0, 1, 500, 10), Some(offer));
    assert_eq!(peers.take_place_at_home(0, 1, 500, 10), None);
    peers.retire(1);
    assert_eq!(peers.loop_on(0), None);
}

#[test]
fn a_loop_belongs_where_its_clients_run_if_another_one_belongs_where_it_is() {
    // Where each runs, and where its clients do; which of them belong there.
    for (loops, belong) in [
        ([(0, Some(0)), (1, Some(1))], [false, false]),
        ([(0, Some(1)), (1, Some(0))], [true, true]),
        // Both on one processor, their clients on the other: the second goes, and then somebody else is moved.
        ([(0, Some(1)), (0, Some(1))], [false, true]),
        ([(0, Some(0)), (0, Some(1))], [false, true]),
        ([(0, Some(1)), (0, Some(0))], [true, false]),
        // Nothing is known of the other's clients, or it would have no place.
        ([(0, Some(1)), (0, None)], [false, false]),
        ([(0, Some(1)), (1, Some(1))], [false, false]),
        // There are free processors: the scheduler's business.
        ([(0, Some(2)), (1, Some(3))], [false, false]),
    ] {
        let (_pollers, peers) = peers(2);
        for (index, (runs_on, hears_from)) in loops.into_iter().enumerate() {
            peers.tell_place(index, Some(runs_on), hears_from);
        }
        let found = [0, 1].map(|index| {
            let (here, there) = loops[index];
            there.is_some_and(|there| here != there && peers.belongs_there(index, here, there))
        });
        assert_eq!(found, belong, "{loops:?}");
    }
}

/// Two loops with so many busy connections each: the first of each is at home, the others on the other loop.
fn two_loops(each: usize) -> (Arc<Peers>, [EventLoop; 2], Vec<TcpStream>) {
    let group = group();
    let (pollers, peers) = peers(2);
    let peers = Arc::new(peers);
    let worker_pool = Arc::new(WorkerPool::new(Arc::clone(&group), Arc::clone(&peers)));
    let mut clients = Vec::new();
    let mut pollers = pollers.into_iter();
    let loops = [0, 1].map(|index| {
        let (group, worker_pool) = (Arc::clone(&group), Arc::clone(&worker_pool));
        let (poller, busy) = (pollers.next().unwrap(), BusyPoll::new(Duration::ZERO));
        let mut own =
            EventLoop::new(index, Arc::clone(&group), Arc::clone(&peers), worker_pool, poller, busy);
        for number in 0..each {
            let (mut connection, client) = connected(&group, (index * each + number) as u64);
            let load = connection.load.begin();
            connection.load.is_at_home_on((number > 0).then_some(1 - index));
            let entry = own.connections.vacant_entry();
            connection.register(&own.poller, entry.key() as u64).unwrap();
            entry.insert(connection);
            peers.enter(index);
            peers.add_load(index, load);
            clients.push(client);
        }
        let offer = Offer { home: 1 - index, permille: BUSY_PERMILLE };
        peers.tell_place(index, u32::try_from(index).ok(), None);
        peers.offer(index, Some(offer));
        own
    });
    (peers, loops, clients)
}

fn ids(of: &EventLoop) -> Vec<u64> {
    let mut ids: Vec<_> = of.connections.iter().map(|(_, connection)| connection.client.id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn two_loops_exchange_connections_that_are_at_home_on_each_other() {
    let (peers, mut loops, _clients) = two_loops(2);
    loops[0].try_to_move(0);
    assert_eq!(ids(&loops[0]), [0, 1], "that one is at home");
    loops[0].try_to_move(1);
    assert_eq!(ids(&loops[0]), [0]);
    loops[1].take_messages();
    assert_eq!(ids(&loops[1]), [1, 2], "it has given one back");
    loops[0].take_messages();
    assert_eq!(ids(&loops[0]), [0, 3]);
    assert_eq!(
        [0, 1].map(|index| (peers.connections(index), peers.load(index))),
        [(2, 2 * BUSY_PERMILLE); 2]
    );
    assert_eq!([0, 1].map(|index| (loops[index].statistics.moved, loops[index].owes())), [(1, false); 2]);
    assert_eq!(
        peers.take_place_at_home(0, 1, BUSY_PERMILLE, 10),
        None,
        "both have taken back what they offered"
    );
}

#[test]
fn two_loops_that_find_each_other_at_once_exchange_one_for_one() {
    let (peers, mut loops, _clients) = two_loops(3);
    loops[0].try_to_move(1);
    loops[1].try_to_move(1);
    assert_eq!([ids(&loops[0]), ids(&loops[1])], [[0, 2], [3, 5]]);
    loops[1].take_messages();
    loops[0].take_messages();
    assert_eq!([ids(&loops[0]), ids(&loops[1])], [[0, 2, 4], [1, 3, 5]]);
    assert_eq!([0, 1].map(|index| (peers.connections(index), loops[index].owes())), [(3, false); 2]);
}

#[test]
fn all_connections_of_a_loop_of_our_own_client_come_to_one_loop_after_one_count() {
    const EACH: usize = 6;
    let (_peers, mut loops, _clients) = two_loops(EACH);
    for own in &mut loops {
        own.alive = clock::now();
        for (key, connection) in own.connections.iter_mut() {
            let number = u8::try_from(key % 2).unwrap() + 1;
            let id = drc::id_of_loop(0x0123_4567_89ab_ce00, number);
            let machine = drc::machine_name(id);
            let sys =
                AuthSys { stamp: id as u32, machine: &machine, uid: 0, gid: 0, gids: Default::default() };
            let mut credential = Vec::new();
            sys.encode_opaque(&mut Writer::new(&mut credential));
            connection.client.identities.identify(rpc::auth::AUTH_SYS, &credential[8..]).unwrap();
            connection.active = own.alive;
        }
        own.count_homeless();
    }
    let loops_of = |own: &EventLoop| -> Vec<u64> {
        own.connections.iter().map(|(_, connection)| connection.client.local_loop().unwrap() % 2).collect()
    };
    assert_eq!([0, 1].map(|index| loops_of(&loops[index])), [[1, 0, 1, 0, 1, 0]; 2]);
    for _ in 0..EACH {
        for own in &mut loops {
            let keys: Vec<usize> = own.connections.iter().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| own.even_out(key));
            own.take_messages();
        }
    }
    assert_eq!([0, 1].map(|index| loops_of(&loops[index])), [[0; EACH], [1; EACH]]);
}

#[test]
fn a_client_elsewhere_or_of_others_tells_no_loops_apart() {
    let group = group();
    let (mut connection, _client) = connected(&group, 1);
    assert_eq!(connection.client.local_loop(), None, "it has said nothing yet");
    let says_of = |client: &mut crate::client::Client, stamp: u32, machine: &[u8]| {
        let mut credential = Vec::new();
        let sys = AuthSys { stamp, machine, uid: 0, gid: 0, gids: Default::default() };
        sys.encode_opaque(&mut Writer::new(&mut credential));
        client.identities.identify(rpc::auth::AUTH_SYS, &credential[8..]).unwrap();
        client.local_loop()
    };
    let says = |client: &mut crate::client::Client, machine: &[u8]| says_of(client, 5, machine);
    let ours = drc::machine_name(5);
    assert_eq!(says(&mut connection.client, b"host"), None);
    assert_eq!(says(&mut connection.client, &ours), Some(5));
    let alone = drc::machine_name(0x0500);
    assert_eq!(says_of(&mut connection.client, 0x0500, &alone), None, "it has but one");
    connection.client.peer = "192.0.2.7:700".parse().unwrap();
    assert_eq!(says(&mut connection.client, &ours), None, "it comes from elsewhere");
    connection.client.local = "192.0.2.7:2049".parse().unwrap();
    assert_eq!(says(&mut connection.client, &ours), Some(5), "by an address of this machine");
}

#[test]
fn what_cannot_be_given_back_is_owed_until_it_may_move() {
    let (peers, mut loops, _clients) = two_loops(2);
    // It waits for its next turn.
    loops[1].connections[1].again = true;
    loops[0].try_to_move(1);
    loops[1].take_messages();
    assert_eq!(ids(&loops[1]), [1, 2, 3]);
    assert!(loops[1].owes());
    loops[1].connections[1].again = false;
    loops[1].try_to_move(1);
    loops[0].take_messages();
    assert_eq!([ids(&loops[0]), ids(&loops[1])], [[0, 3], [1, 2]]);
    assert_eq!([0, 1].map(|index| (peers.connections(index), loops[index].owes())), [(2, false); 2]);
}

#[test]
fn whoever_is_refused_at_home_does_not_keep_others_from_being_evened_out() {
    let (peers, mut loops, _clients) = two_loops(2);
    // Its home has more to do already.
    peers.offer(1, None);
    peers.add_load(1, 5 * BUSY_PERMILLE);
    loops[0].try_to_move(1);
    assert_eq!(ids(&loops[0]), [0, 1]);
    // Once the others' time has come, whoever is at home here goes where there is less to do.
    peers.take_load(1, 7 * BUSY_PERMILLE);
    loops[0].alive += Duration::from_millis(50);
    loops[0].try_to_even_out(0);
    assert_eq!(ids(&loops[0]), [1]);
}

#[test]
fn nothing_goes_back_to_a_loop_that_has_ended() {
    let (peers, mut loops, _clients) = two_loops(2);
    loops[0].try_to_move(1);
    peers.retire(0);
    loops[1].take_messages();
    assert_eq!(ids(&loops[1]), [1, 2, 3]);
}

#[test]
fn a_loop_offers_no_connection_that_is_gone() {
    let (peers, mut loops, _clients) = two_loops(2);
    loops[1].close(1, Close::Peer);
    assert_eq!(
        peers.take_place_at_home(0, 1, BUSY_PERMILLE, 10),
        Some(None),
        "only because there is less to do"
    );
    assert_eq!(peers.loop_on(1), Some(1));
    loops[1].close(0, Close::Peer);
    assert_eq!(peers.loop_on(1), None, "it may sleep now");
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
    // Whoever does not read what it has asked for is not idle, and no load.
    connection.load.begin();
    let read = nfs(Procedure::Read, &proc::read::Args { file, offset: 0, count: BLOCK });
    single.send(&read.repeat(40));
    single.turn(false);
    assert!(single.connection.holds() > 0);
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
    // Within a record it stays.
    single.send(&getattr[..50]);
    assert!(matches!(single.turn(false), Step::Wait));
    assert!(!single.connection.may_move());
    single.send(&getattr[50..]);
    assert!(matches!(single.turn(false), Step::Wait));
    assert!(single.connection.may_move());
    single.connection.push_answer(&[0; 28]);
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
    let called_from = Arc::clone(&single.connection.client.caller.called_from);
    single.group.reply_cache.connections().end(called_from.known_as().unwrap(), true);
    let (connection, client) = connected(&single.group, 2);
    (single.connection, single.client) = (connection, client);
    assert_eq!(single.call(&create)[..4], nfs3::Status::EXIST.0.to_be_bytes(), "another port");
    // One that comes from the first one's port, as far as the server knows.
    let (connection, client) = connected(&single.group, 3);
    (single.connection, single.client) = (connection, client);
    single.connection.client.caller.called_from = Arc::new(called_from.again());
    assert_eq!(single.call(&create), made);
}
