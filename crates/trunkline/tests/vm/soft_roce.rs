//! Tests the RDMA libraries over Soft-RoCE: both ends of a connection in one guest, with every kind
//! of work, and everything freed.
//!
//! The test runs itself in the guest, where it does the work.

#![allow(unsafe_code, reason = "the test shares memory with a device")]

use crate::guest::{is_in_guest, passes_in};
use crate::{alone, lab};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use testkit::Deadline;
use verbs::{
    Access, Alive, Capacity, Completion, Domain, Event, EventChannel, EventKind, Identifier, Queue, Region,
    Registration, Slice, Terms, Window, Work, alive, devices,
};

const TIMEOUT: Duration = Duration::from_secs(120);

const CAPACITY: Capacity = Capacity { work: 16, receives: 16, slices: 4 };

fn terms(private_data: &[u8]) -> Terms<'_> {
    Terms { private_data, reads_served: 4, reads_made: 4 }
}

#[test]
fn every_kind_of_work_is_done_and_every_object_is_freed() {
    if is_in_guest() {
        the_device_is_described();
        exchange();
        assert_eq!(alive(), Alive::default());
        windows();
        assert_eq!(alive(), Alive::default());
        refused_where_nobody_listens();
        assert_eq!(alive(), Alive::default());
        who_gives_up_before_it_is_let_in_is_known_to_be_gone();
        assert_eq!(alive(), Alive::default());
        // The kernel counts too: only the objects of its own management datagrams remain.
        let held =
            Command::new("rdma").args(["resource", "show", "qp", "type", "RC"]).output().expect("rdma runs");
        assert_eq!(String::from_utf8_lossy(&held.stdout).trim(), "");
        return;
    }
    let _turn = alone();
    passes_in(lab().client(), "soft_roce::every_kind_of_work_is_done_and_every_object_is_freed");
}

fn the_device_is_described() {
    let found = devices().expect("the libraries are installed");
    let device = found.iter().find(|device| device.name == "rxe1").expect("the guest has the device");
    let port = device.ports.first().expect("the device has a port");
    assert!(port.active && port.ethernet);
    assert_eq!(port.mtu_bytes, 4096, "the link takes 9000 bytes");
    let address = "10.77.1.2".parse::<std::net::IpAddr>().expect("an address");
    assert!(port.addresses.iter().any(|one| one.address == address && one.roce_v2), "{port:?}");
}

/// The next event, which must be of this kind.
#[track_caller]
fn expect(channel: &Arc<EventChannel>, kind: EventKind) -> Event {
    let event =
        Deadline::wait_until(&format!("{kind:?}"), TIMEOUT, || channel.poll().expect("an event or none"));
    assert_eq!(event.kind, kind, "{event:?}");
    event
}

/// This many completions, in order; all must have succeeded.
#[track_caller]
fn complete(queue: &Queue, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    Deadline::wait_until("completions", TIMEOUT, || {
        queue.poll(&mut done).expect("the device works");
        (done.len() >= count).then_some(())
    });
    assert!(done.len() == count && done.iter().all(|one| one.failure.is_none()), "{done:?}");
    done
}

/// One end of a connection.
struct End {
    domain: Arc<Domain>,
    queue: Arc<Queue>,
}

impl End {
    fn of(identifier: &mut Identifier) -> Self {
        let domain = Domain::on(identifier).expect("a domain");
        let queue = Queue::on(identifier, 64).expect("a queue");
        identifier.create_queue_pair(&domain, &queue, &queue, CAPACITY).expect("a queue pair");
        Self { domain, queue }
    }

    fn region(&self, bytes: usize, access: Access) -> Region {
        Region::new(&self.domain, bytes, access).expect("memory")
    }
}

fn whole(region: &Region) -> Slice {
    region.slice(0, u32::try_from(region.bytes()).expect("small")).expect("all of it")
}

fn listening(channel: &Arc<EventChannel>, address: SocketAddr) -> Identifier {
    let listener = Identifier::new(channel).expect("an identifier");
    listener.listen(address, 4).expect("the identifier listens");
    listener
}

/// An identifier that connects, with its address and route resolved.
fn on_its_way(channel: &Arc<EventChannel>, to: SocketAddr) -> Identifier {
    let identifier = Identifier::new(channel).expect("an identifier");
    identifier.resolve(None, to, TIMEOUT).expect("resolving the address begins");
    assert_eq!(expect(channel, EventKind::AddressResolved).token, identifier.token());
    identifier.resolve_route(TIMEOUT).expect("resolving the route begins");
    expect(channel, EventKind::RouteResolved);
    identifier
}

fn exchange() {
    let address: SocketAddr = "10.77.1.2:20999".parse().expect("an address");
    let (ours, theirs) = (EventChannel::new().expect("a channel"), EventChannel::new().expect("a channel"));
    let listener = listening(&theirs, address);
    let mut client = on_its_way(&ours, address);
    let client_end = End::of(&mut client);
    client.connect(&terms(b"hello")).expect("connecting begins");

    let request = expect(&theirs, EventKind::ConnectRequest);
    assert_eq!(request.token, listener.token());
    assert_eq!(&request.private_data[..5], b"hello");
    let mut server = request.incoming.expect("a connection");
    let server_end = End::of(&mut server);
    let inbox = server_end.region(64, Access::Local);
    server.post_receive(7, whole(&inbox)).expect("posted");
    server.accept(&terms(b"welcome")).expect("the server accepts");
    assert_eq!(&expect(&ours, EventKind::Established).private_data[..7], b"welcome");
    expect(&theirs, EventKind::Established);

    send_and_wake(&client, &client_end, &server_end, &inbox);
    write_and_read(&server, &server_end, &client_end);
    a_wrong_key_ends_the_connection(&server, &server_end, &client_end);

    client.disconnect().expect("the client was connected");
    expect(&ours, EventKind::Disconnected);
    expect(&theirs, EventKind::Disconnected);
}

/// Sends a message of two slices; its arrival wakes the thread that waits at the descriptor of the
/// queue.
fn send_and_wake(client: &Identifier, client_end: &End, server_end: &End, inbox: &Region) {
    server_end.queue.arm().expect("armed");
    let outbox = client_end.region(100, Access::Local);
    outbox.write(0, b"first").expect("room");
    outbox.write(50, b"second").expect("room");
    let slices = [(0, 5), (50, 6)].map(|(offset, bytes)| outbox.slice(offset, bytes).expect("in there"));
    client.post(1, Work::Send { invalidate: None }, &slices, true, false).expect("posted");
    complete(&client_end.queue, 1);
    Deadline::wait_until("a notice", TIMEOUT, || {
        (server_end.queue.take_notices().expect("the queue works") > 0).then_some(())
    });
    let received = complete(&server_end.queue, 1);
    assert_eq!((received[0].id, received[0].received, received[0].bytes), (7, true, 11));
    let mut bytes = [0; 11];
    inbox.read(0, &mut bytes).expect("in there");
    assert_eq!(&bytes, b"firstsecond");
}

/// The server writes into the client's memory and reads from it, as it does for READ and WRITE.
fn write_and_read(server: &Identifier, server_end: &End, client_end: &End) {
    const BYTES: usize = 1 << 20;
    let receive_buffer = client_end.region(BYTES, Access::RemoteWrite);
    let source = client_end.region(BYTES, Access::RemoteRead);
    let pattern: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at % 251).expect("small")).collect();
    source.write(0, &pattern).expect("room");
    let pool = server_end.region(BYTES, Access::Local);
    let read = Work::Read { address: source.address(), key: source.remote_key() };
    server.post(2, read, &[whole(&pool)], true, false).expect("posted");
    assert_eq!(complete(&server_end.queue, 1)[0].id, 2);
    // Only the last write has a completion; the others are done before it.
    let half = u32::try_from(BYTES / 2).expect("small");
    for (offset, last) in [(0, false), (BYTES / 2, true)] {
        let write = Work::Write {
            address: receive_buffer.address() + offset as u64,
            key: receive_buffer.remote_key(),
        };
        let slice = pool.slice(offset, half).expect("in there");
        server.post(3, write, &[slice], last, true).expect("posted");
    }
    complete(&server_end.queue, 1);
    let mut bytes = vec![0; BYTES];
    receive_buffer.read(0, &mut bytes).expect("in there");
    assert!(bytes == pattern);
}

fn a_wrong_key_ends_the_connection(server: &Identifier, server_end: &End, client_end: &End) {
    let receive_buffer = client_end.region(64, Access::RemoteRead);
    let pool = server_end.region(64, Access::Local);
    let write = Work::Write { address: receive_buffer.address(), key: receive_buffer.remote_key() };
    server.post(4, write, &[whole(&pool)], true, false).expect("posted");
    let mut done = Vec::new();
    Deadline::wait_until("a completion", TIMEOUT, || {
        server_end.queue.poll(&mut done).expect("the device works");
        (!done.is_empty()).then_some(())
    });
    assert!(done[0].failure.is_some(), "memory that may be read must not be written: {done:?}");
    let mut bytes = [1; 64];
    receive_buffer.read(0, &mut bytes).expect("in there");
    assert_eq!(bytes, [0; 64]);
}

/// Two connected ends.
struct Joined {
    client: Identifier,
    server: Identifier,
    client_end: End,
    server_end: End,
    _listener: Identifier,
}

fn joined(address: SocketAddr) -> Joined {
    let (ours, theirs) = (EventChannel::new().expect("a channel"), EventChannel::new().expect("a channel"));
    let listener = listening(&theirs, address);
    let mut client = on_its_way(&ours, address);
    let client_end = End::of(&mut client);
    client.connect(&terms(&[])).expect("connecting begins");
    let mut server = expect(&theirs, EventKind::ConnectRequest).incoming.expect("a connection");
    let server_end = End::of(&mut server);
    server.accept(&terms(&[])).expect("the server accepts");
    expect(&ours, EventKind::Established);
    expect(&theirs, EventKind::Established);
    Joined { client, server, client_end, server_end, _listener: listener }
}

/// Memory that a server reaches only while a window to it is bound.
fn windows() {
    const BYTES: u32 = 64 << 10;
    let usize_of = |bytes: u32| usize::try_from(bytes).expect("small");
    let address: SocketAddr = "10.77.1.2:20996".parse().expect("an address");
    let area = memory::Area::map(usize_of(2 * BYTES)).expect("memory");
    let joined = joined(address);
    let Joined { client, server, client_end, server_end, .. } = &joined;
    assert!(client_end.domain.has_windows().expect("the device says"), "Soft-RoCE has windows");
    // SAFETY: the area is dropped after the registration.
    let registration = unsafe { Registration::for_windows(&client_end.domain, area.start(), area.bytes()) };
    let registration = registration.expect("memory may be locked");
    let mut window = Window::new(&client_end.domain).expect("a window");
    let first = area.start().as_ptr();
    let at = first.addr() as u64;
    let pool = server_end.region(usize_of(BYTES), Access::Local);
    let mut keys = Vec::new();
    for round in 0..300_u32 {
        let byte = u8::try_from(round % 255).expect("small");
        let access = if round % 2 == 0 { Access::RemoteWrite } else { Access::RemoteRead };
        // SAFETY: the memory is left alone until the invalidation has completed.
        let key = unsafe { client.bind_window(1, &mut window, (&registration, at, BYTES), access, true) };
        let key = key.expect("posted");
        assert!(keys.last() != Some(&key) && window.key() == key, "the key changes");
        keys.push(key);
        complete(&client_end.queue, 1);
        let work = if access == Access::RemoteWrite {
            pool.write(0, &vec![byte; usize_of(BYTES)]).expect("room");
            Work::Write { address: at, key }
        } else {
            Work::Read { address: at, key }
        };
        server.post(2, work, &[whole(&pool)], true, false).expect("posted");
        complete(&server_end.queue, 1);
        client.post(3, Work::Invalidate { key }, &[], true, false).expect("posted");
        complete(&client_end.queue, 1);
        if access == Access::RemoteWrite {
            // SAFETY: the server reaches the memory no more.
            let seen = unsafe { std::slice::from_raw_parts(first, usize_of(2 * BYTES)) };
            let (within, beyond) = seen.split_at(usize_of(BYTES));
            assert!(within.iter().all(|seen| *seen == byte) && beyond.iter().all(|seen| *seen == 0));
        }
    }
    let late = Work::Write { address: at, key: keys.pop().expect("some") };
    server.post(4, late, &[whole(&pool)], true, false).expect("posted");
    let mut done = Vec::new();
    Deadline::wait_until("a completion", TIMEOUT, || {
        server_end.queue.poll(&mut done).expect("the device works");
        (!done.is_empty()).then_some(())
    });
    assert!(done[0].failure.is_some(), "the key was used after its end: {done:?}");
    drop((window, registration));
    drop(joined);
    drop(area);
}

fn refused_where_nobody_listens() {
    let channel = EventChannel::new().expect("a channel");
    let mut client = on_its_way(&channel, "10.77.1.2:20998".parse().expect("an address"));
    let _end = End::of(&mut client);
    client.connect(&terms(&[])).expect("connecting begins");
    expect(&channel, EventKind::Rejected);
}

/// A server that is slow to accept may find clients that have left. The system reports no event for
/// that, and answers requests for these clients as invalid.
fn who_gives_up_before_it_is_let_in_is_known_to_be_gone() {
    let address = "10.77.1.2:20997".parse().expect("an address");
    let listener = transport::rdma::Listener::bind(address).expect("the listener listens");
    let next = || Deadline::wait_until("a request", TIMEOUT, || listener.take().expect("the device works"));
    let options = transport::rdma::Options::default();
    // The requests of two clients may overtake each other, so the test repeats until they do not.
    Deadline::wait_until("the client that left to be reported as closed", TIMEOUT, || {
        let channel = EventChannel::new().expect("a channel");
        let (early, early_came) = (asking(&channel, address), next());
        drop(early);
        let (_patient, patient_came) = (asking(&channel, address), next());
        patient_came.prepare::<()>(&options).expect("the client that waits is accepted");
        match early_came.prepare::<()>(&options) {
            Err(transport::rdma::Error::Closed) => Some(()),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        }
    });
}

/// A client, with its queue pair, that has asked for a connection.
fn asking(channel: &Arc<EventChannel>, to: SocketAddr) -> (Identifier, End) {
    let mut identifier = on_its_way(channel, to);
    let end = End::of(&mut identifier);
    identifier.connect(&terms(&[])).expect("connecting begins");
    (identifier, end)
}
