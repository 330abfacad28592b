//! Connections that another thread makes. Here the test makes them, over TCP, when it likes.

use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use transport::{AnyTransport, Limits, Remains, Stream};

use super::*;
use crate::connector::{Arrival, Order, Purpose, Ticket};

/// What was ordered and given up.
#[derive(Debug, Default)]
struct Ordered {
    orders: Mutex<Vec<(Ticket, Order)>>,
    given_up: Mutex<Vec<Ticket>>,
    tickets: AtomicU64,
}

impl Connects for Arc<Ordered> {
    fn make(&self, order: Order) -> Ticket {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        self.orders.lock().unwrap().push((ticket, order));
        ticket
    }

    fn give_up(&self, ticket: Ticket) {
        self.given_up.lock().unwrap().push(ticket);
    }

    fn free(&self, remains: Remains) {
        assert!(remains.is_empty(), "nothing of a stream remains");
    }
}

impl Ordered {
    fn next(&self) -> (Ticket, Order) {
        self.orders.lock().unwrap().remove(0)
    }
}

/// Delivers what was ordered.
fn deliver(ticket: Ticket, order: &Order) {
    let socket = TcpStream::connect(order.remote).unwrap();
    socket.set_nonblocking(true).unwrap();
    let wire = AnyTransport::Tcp(Stream::new(socket.into(), Limits { record_bytes_max: 1 << 16 }));
    order.to.add(Arrival { ticket, outcome: Ok(wire) });
}

fn fail(ticket: Ticket, order: &Order) {
    let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
    order.to.add(Arrival { ticket, outcome: Err(error.into()) });
}

#[test]
fn the_calls_of_other_connections_go_on_while_a_connection_is_being_made() {
    let ordered = Arc::new(Ordered::default());
    let mut ends = Ends::over([Proto::Rdma, Proto::Tcp], vec![HOME, ABROAD], Box::new(Arc::clone(&ordered)));
    let abroad = ends.accept(ABROAD);
    let (ticket, order) = ordered.next();
    assert_eq!((order.purpose, order.remote), (Purpose::Calls, ends.listeners[0].local_addr().unwrap()));
    ends.work_until("the other connection", |engine| engine.slots.all()[1].is_open());
    validate(&abroad);
    ends.work_until("its validation", |engine| engine.core.table.usable());

    let call = protocol::Protocol::NFS3.getattr(ends.engine.setup.root);
    ends.engine.submit(call.into(), None, Owner::Engine);
    ends.work();
    (&abroad).write_all(&answer(&abroad, &[])).unwrap();
    ends.work_until("the reply", |engine| engine.core.calls.0.is_empty());

    deliver(ticket, &order);
    let home = ends.accept(HOME);
    ends.work_until("what was ordered", |engine| engine.slots.all()[0].is_open());
    validate(&home);
    ends.work_until("its validation", |engine| {
        engine.core.table.path(HOME).is_some_and(|path| path.state == State::Up)
    });
}

#[test]
fn a_connection_that_arrives_after_it_was_given_up_is_ended_and_changes_nothing() {
    let ordered = Arc::new(Ordered::default());
    let mut ends = Ends::over([Proto::Rdma, Proto::Tcp], vec![HOME], Box::new(Arc::clone(&ordered)));
    let (ticket, order) = ordered.next();
    let (table, now) = (&mut ends.engine.core.table, ends.engine.core.now);
    table.disconnected(now, ConnId(0));
    ends.work();
    assert_eq!(*ordered.given_up.lock().unwrap(), [ticket]);
    deliver(ticket, &order);
    let mut late = ends.accept(HOME);
    let abroad = ends.accept(ABROAD);
    ends.connect();
    validate(&abroad);
    ends.work_until("the validation abroad", |engine| engine.core.table.usable());
    ends.engine.core.table.path_of(ConnId(0)).filter(|path| *path == ABROAD).unwrap();
    let mut rest = Vec::new();
    let ended = late.read_to_end(&mut rest);
    assert!(rest.is_empty() && ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
}

#[test]
fn a_connection_that_cannot_be_made_is_a_failure_of_its_path() {
    let ordered = Arc::new(Ordered::default());
    let mut ends = Ends::over([Proto::Rdma, Proto::Tcp], vec![HOME], Box::new(Arc::clone(&ordered)));
    let (ticket, order) = ordered.next();
    fail(ticket, &order);
    let elsewhere = |engine: &Engine| engine.core.table.path_of(ConnId(0)) == Some(ABROAD);
    ends.work_until("the way abroad", elsewhere);
    let abroad = ends.accept(ABROAD);
    ends.connect();
    validate(&abroad);
    ends.work_until("the validation abroad", |engine| engine.core.table.usable());
}
