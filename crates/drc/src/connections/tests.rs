//! What tells a retry from a neighbour's call: case by case, and in a world of clients with seeds.

use super::*;
use crate::shared::SingleProcess;
use crate::{Begin, Outcome, Stored, Table, Token};
use proptest::prelude::*;
use rpc::Xid;
use rpc::call::CallHeader;
use std::cell::Cell;

pub(crate) fn context<'a>(words: &'a [AtomicU64], host: &'a dyn Host, now: Duration) -> LookupContext<'a> {
    LookupContext::new(ConnectionTable::new(words, host), now, now)
}

fn memory() -> Vec<AtomicU64> {
    std::iter::repeat_with(AtomicU64::default).take(CONNECTIONS_WORDS).collect()
}

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_secs(1000);

/// One of two processes.
struct Member {
    number: u8,
    other_is_alive: Cell<bool>,
}

impl Host for Member {
    fn me(&self) -> Owner {
        Owner { member: self.number, generation: 7 }
    }

    fn is_alive(&self, _owner: Owner) -> bool {
        self.other_is_alive.get()
    }

    fn pause(&self, _round: u32) -> bool {
        false
    }
}

#[test]
fn the_end_of_a_connection_tells_a_retry_from_a_neighbours_call() {
    let words = memory();
    let context = context(&words, &SingleProcess, NOW);
    let table = context.connections;
    for (cleanly, relation) in [(true, Relation::Neighbour), (false, Relation::Retry)] {
        let id = table.open();
        assert_eq!(table.relation(id, None, &context), Relation::Undecided, "its client waits for the reply");
        table.end(id, cleanly);
        assert_eq!(table.relation(id, Some(NOW - SECOND), &context), relation);
    }
    assert_eq!(table.relation(ConnectionId::NONE, None, &context), Relation::Retry);
}

#[test]
fn the_owner_of_an_open_connection_is_queried_and_only_a_check_after_the_query_counts() {
    let words = memory();
    let context = context(&words, &SingleProcess, NOW);
    let (table, ended) = (context.connections, Some(NOW - SECOND));
    for (acknowledged, relation) in [(true, Relation::Neighbour), (false, Relation::Retry)] {
        let id = table.open();
        assert!(!table.has_pending_query(id));
        assert_eq!(table.relation(id, ended, &context), Relation::Undecided);
        assert!(table.has_pending_query(id));
        table.answer_query(id, NOW - SECOND / 2, true);
        assert_eq!(table.relation(id, ended, &context), Relation::Undecided, "it may have been reset since");
        assert!(table.has_pending_query(id));
        table.answer_query(id, NOW, acknowledged);
        assert!(!table.has_pending_query(id));
        assert_eq!(table.relation(id, ended, &context), relation);
    }
}

#[test]
fn an_owner_that_answers_nothing_for_long_has_lost_the_connection() {
    let words = memory();
    let mut context = context(&words, &SingleProcess, NOW);
    let id = context.connections.open();
    // Rubbish of another process: it ended in the future.
    let ended = Some(Duration::MAX);
    assert_eq!(context.connections.relation(id, ended, &context), Relation::Undecided);
    context.now += OWNER_REPLY_TIMEOUT;
    assert_eq!(context.connections.relation(id, Some(NOW), &context), Relation::Retry);
}

#[test]
fn connections_of_a_killed_process_are_lost_unless_they_were_closed_cleanly() {
    let words = memory();
    let killed = Member { number: 1, other_is_alive: Cell::new(true) };
    let other = Member { number: 2, other_is_alive: Cell::new(true) };
    let table = ConnectionTable::new(&words, &killed);
    let (open, closed) = (table.open(), table.open());
    table.end(closed, true);
    let context = context(&words, &other, NOW);
    let relation = |id| context.connections.relation(id, Some(NOW), &context);
    assert_eq!((relation(open), relation(closed)), (Relation::Undecided, Relation::Neighbour));
    other.other_is_alive.set(false);
    assert_eq!((relation(open), relation(closed)), (Relation::Retry, Relation::Neighbour));
}

#[test]
fn a_slot_is_reused_after_all_others_and_never_while_its_connection_is_open() {
    let words = memory();
    let context = context(&words, &SingleProcess, NOW);
    let table = context.connections;
    let (stays, closed) = (table.open(), table.open());
    table.end(closed, true);
    for _ in 0..CONNECTIONS_MAX - 2 {
        table.end(table.open(), true);
    }
    assert_eq!(table.relation(closed, Some(NOW), &context), Relation::Neighbour, "as many are remembered");
    let next = table.open();
    assert_eq!((next.slot(), next.lap()), (closed.slot(), 1));
    assert_eq!(table.relation(closed, Some(NOW), &context), Relation::Retry, "nothing is known of it");
    table.end(closed, true);
    assert_eq!(table.relation(next, None, &context), Relation::Undecided, "its number ends no other");
    assert_eq!(table.relation(stays, None, &context), Relation::Undecided);
    let open = std::iter::repeat_with(|| table.open()).take_while(|id| *id != ConnectionId::NONE).count();
    assert_eq!(open, CONNECTIONS_MAX - 2, "then all are open");
}

#[test]
fn both_ends_make_the_path() {
    let end = |text: &str| text.parse().unwrap();
    let path = path_of(end("10.0.0.1:700"), end("10.0.0.2:2049"));
    assert_eq!(path, path_of(end("[::ffff:10.0.0.1]:700"), end("10.0.0.2:2049")));
    for (peer, local) in [
        ("10.0.0.1:701", "10.0.0.2:2049"),
        ("10.0.0.3:700", "10.0.0.2:2049"),
        ("10.0.0.1:700", "10.0.0.2:2050"),
        ("10.0.0.1:700", "10.0.0.3:2049"),
    ] {
        assert_ne!(path, path_of(end(peer), end(local)));
    }
}

fn origin(connection: ConnectionId, path: u64) -> Origin {
    Origin { connection, path }
}

#[test]
fn what_comes_over_the_same_connection_or_path_is_a_retry_and_precedes_all_else() {
    let words = memory();
    let context = context(&words, &SingleProcess, NOW);
    let [lost, old, other, new] = [(); 4].map(|()| context.connections.open());
    context.connections.end(lost, false);
    context.connections.end(old, true);
    let candidate = |at, connection, path| Candidate {
        at,
        origin: origin(connection, path),
        waiter: None,
        ended: Some(NOW),
    };
    let all = [candidate(0, lost, 1), candidate(1, old, 2), candidate(2, other, 3)];
    let chosen = |candidates: &[Candidate<u32>], connection, path| {
        choose(candidates, origin(connection, path), &context)
    };
    assert_eq!(chosen(&all, other, 3), Choice::Retry(2));
    assert_eq!(
        chosen(&all, new, 2),
        Choice::Retry(1),
        "the same path, though the old one was closed in order"
    );
    assert_eq!(chosen(&all, new, 4), Choice::Retry(0), "the first was lost");
    assert_eq!(chosen(&all[1..2], new, 4), Choice::New);
    assert_eq!(chosen(&all[1..], new, 4), Choice::Undecided);
    context.connections.end(new, true);
    assert_eq!(
        chosen(&all[2..], new, 4),
        Choice::Retry(2),
        "nothing is executed for who is gone if it may be a copy"
    );
}

const CLIENTS: usize = 3;

/// What a client of the model does next.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Sends its call, or the next one if the last has its answer.
    Send,
    /// Its running call ends.
    Finish,
    /// It receives its answer.
    Receive,
    /// Its connection breaks, and it connects again.
    Break,
    /// The client closes cleanly, if it has its reply, and another client counts from 0 again.
    Leave,
    /// The server checks the acknowledgements of its connection.
    Look,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        4 => Just(Step::Send),
        3 => Just(Step::Finish),
        3 => Just(Step::Receive),
        1 => Just(Step::Break),
        1 => Just(Step::Leave),
        3 => Just(Step::Look),
    ];
    proptest::collection::vec((0..CLIENTS, step), 1..200)
}

/// One client at the address that all share. All count from 0 and send the same calls.
struct ModelClient {
    /// Tells it from those who came before it.
    person: u32,
    connection: ConnectionId,
    path: u64,
    xid: u32,
    /// Whether it waits for the answer to its call, which was executed or is.
    waits: bool,
    running: Option<Origin>,
    /// The server's answer is on its way.
    answer: Option<u32>,
}

/// A call that was executed.
struct Execution {
    xid: u32,
    person: u32,
    /// The connection on which it was sent last.
    connection: ConnectionId,
}

struct World<'a> {
    connections: ConnectionTable<'a>,
    table: Table,
    clients: Vec<ModelClient>,
    executions: Vec<Execution>,
    broken: Vec<ConnectionId>,
    now: Duration,
    /// Paths and persons.
    count: u32,
}

fn call(xid: u32, origin: Origin) -> ForeignCall {
    let header = CallHeader {
        xid: Xid(xid),
        program: 100_003,
        version: 3,
        procedure: 8,
        credential_flavor: 1,
        credential_body: b"embedded",
    };
    ForeignCall { key: CallKey::new(&header, 0, [192, 0, 2, 1].into()), origin }
}

impl World<'_> {
    fn connect(&mut self, client: usize) {
        self.count += 1;
        let (connection, path) = (self.connections.open(), u64::from(self.count));
        (self.clients[client].connection, self.clients[client].path) = (connection, path);
    }

    fn step(&mut self, index: usize, step: Step) {
        self.now += Duration::from_millis(10);
        let client = &mut self.clients[index];
        let origin = Origin { connection: client.connection, path: client.path };
        match step {
            Step::Send => self.send(index, origin),
            Step::Finish => {
                let Some(ran_for) = client.running.take() else { return };
                // The answer names whose it is.
                let reply = client.person.to_be_bytes();
                self.table.finish(&call(client.xid, ran_for), Outcome::Reply(&reply), self.now);
                client.answer = Some(client.person);
            }
            Step::Receive => {
                let Some(answer) = client.answer.take() else { return };
                assert_eq!(answer, client.person, "another's answer");
                (client.waits, client.xid) = (false, client.xid + 1);
            }
            Step::Break => {
                client.answer = None;
                self.connections.end(origin.connection, false);
                self.broken.push(origin.connection);
                self.connect(index);
            }
            Step::Leave if !client.waits => {
                self.count += 1;
                (client.xid, client.person) = (0, self.count);
                self.connections.end(origin.connection, true);
                self.connect(index);
            }
            // What the client has not received its system has not acknowledged here.
            Step::Look if client.answer.is_none() && client.running.is_none() => {
                self.connections.answer_query(client.connection, self.now, true);
            }
            Step::Leave | Step::Look => {}
        }
    }

    /// Whether another one has called for the same and its connection broke. Nothing tells its
    /// retry from the call of a neighbour, so nobody else sends that call here.
    fn is_anothers_retry(&self, person: u32, xid: u32) -> bool {
        let is_lost = |execution: &Execution| {
            execution.xid == xid && execution.person != person && self.broken.contains(&execution.connection)
        };
        self.executions.iter().any(is_lost)
    }

    fn send(&mut self, index: usize, origin: Origin) {
        let ModelClient { xid, person, .. } = self.clients[index];
        if self.is_anothers_retry(person, xid) {
            return;
        }
        let context = LookupContext::new(self.connections, self.now, self.now);
        let begin = self.table.begin(&call(xid, origin), Token(index as u64), &context);
        let client = &mut self.clients[index];
        match begin {
            Begin::Run => {
                assert!(!client.waits, "executed twice");
                (client.waits, client.running) = (true, Some(origin));
                self.executions.push(Execution { xid, person, connection: origin.connection });
                return;
            }
            Begin::Replay(Stored::Reply(reply)) => {
                let answer = u32::from_be_bytes(reply[..].try_into().unwrap());
                assert_eq!(answer, person, "another's answer");
                assert!(client.waits, "answered though it was not executed");
                client.answer = Some(answer);
            }
            Begin::Attached => assert!(client.running.is_some(), "another's call"),
            Begin::Defer => return,
            other => panic!("{other:?}"),
        }
        let own = |execution: &&mut Execution| (execution.xid, execution.person) == (xid, person);
        self.executions.iter_mut().find(own).unwrap().connection = origin.connection;
    }
}

proptest! {
    #[test]
    fn clients_at_one_address_that_send_the_same_each_have_their_own_answers(steps in steps()) {
        let words = memory();
        let mut world = World {
            connections: ConnectionTable::new(&words, &SingleProcess),
            table: Table::new(10_000),
            clients: Vec::new(),
            executions: Vec::new(),
            broken: Vec::new(),
            now: NOW,
            count: 0,
        };
        for index in 0..CLIENTS {
            world.count += 1;
            world.clients.push(ModelClient {
                person: world.count,
                connection: ConnectionId::NONE,
                path: 0,
                xid: 0,
                waits: false,
                running: None,
                answer: None,
            });
            world.connect(index);
        }
        for (client, step) in steps {
            world.step(client, step);
        }
    }
}
