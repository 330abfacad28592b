//! A server that writes into a caller's memory when it should not any more: after the connection
//! was given up, and after its own reply. The memory must be left alone: it is the caller's again.
//!
//! Both ends are in one process in the guest; the test asks for itself to be run there.

use crate::guest::{is_in_guest, passes_in};
use crate::{alone, lab};
use memory::{Buffer, Buffers, Registered, Registrar};
use rpcrdma::header::{Body, Header, Segment};
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use testkit::Deadline;
use transport::poll::Poller;
use transport::rdma::{Access, Connecting, Endpoint, Event, Listener, Options, Part, Requester};
use transport::{
    AnyTransport, Expect, PayloadPlace, ReceiveBuffer, Scratch, Sink, Slices, SlicesMut, Source, Transport,
};
use verbs::{Alive, alive};
use xdr::{Reader, Writer};

const TIMEOUT: Duration = Duration::from_secs(120);
const BYTES: usize = 256 << 10;
/// What the caller writes into memory that it has back, and what the server writes too late.
const OURS: u8 = 7;
const LATE: u8 = 9;

#[test]
fn a_server_reaches_no_memory_of_a_caller_that_has_its_memory_back() {
    if is_in_guest() {
        for reset in [false, true] {
            after_the_connection_was_given_up(reset);
            assert_eq!(alive(), Alive::default());
        }
        after_the_reply();
        assert_eq!(alive(), Alive::default());
        a_key_that_the_server_invalidates_is_invalidated_once();
        assert_eq!(alive(), Alive::default());
        return;
    }
    let _turn = alone();
    passes_in(lab().client(), "late_writes::a_server_reaches_no_memory_of_a_caller_that_has_its_memory_back");
}

/// The caller: its memory, while nobody else has it, and the replies.
struct Caller {
    memory: Option<Buffer>,
    replies: usize,
}

struct Landing(Buffer);

impl ReceiveBuffer for Landing {
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>) {
        out.push(IoSliceMut::new(&mut self.0[from..]));
    }
}

impl Source<()> for Caller {
    fn slices<'a>(&'a self, (): &'a (), _: &mut Slices<'a>) {}

    fn memory(&self, (): &(), with: &Registrar) -> Option<Registered> {
        self.memory.as_ref()?.registered(with)
    }
}

impl Sink for Caller {
    type ReceiveBuffer = Landing;

    fn choose_receive_buffer(&mut self, head: &[u8], _: usize) -> Option<PayloadPlace<Landing>> {
        let receive_buffer = Landing(self.memory.take()?);
        Some(PayloadPlace { at: head.len(), len: BYTES, receive_buffer })
    }

    fn record(&mut self, _: &[u8]) {
        panic!("the payload is placed");
    }

    fn received(&mut self, _: &[u8], landing: Landing, _: &[u8]) {
        self.memory = Some(landing.0);
        self.replies += 1;
    }
}

impl Caller {
    fn new() -> Self {
        Self { memory: Some(Arc::new(Buffers::apart()).take(BYTES)), replies: 0 }
    }

    #[track_caller]
    fn has_its_memory(&self) {
        let memory = self.memory.as_ref().expect("the memory is back");
        assert!(memory.iter().all(|byte| *byte == OURS), "the server has written it");
    }

    fn use_memory(&mut self) {
        self.memory.as_mut().expect("the memory is back").fill(OURS);
    }
}

type Wire = AnyTransport<(), Landing, Requester<()>>;

/// The two ends of a connection. The server is a bare endpoint.
struct Ends {
    client: Wire,
    server: Endpoint<()>,
    inbox: Vec<u8>,
    poller: Poller,
    _listener: Listener,
}

impl Ends {
    fn connected(port: u16) -> Self {
        let address = SocketAddr::from(([10, 77, 1, 2], port));
        let listener = Listener::bind(address).expect("the guest has a device");
        let connecting = Connecting::start(None, address, 0).expect("the guest has a device");
        let (mut connecting, mut server, mut client) = (Some(connecting), None, None);
        let mut inbox = Vec::new();
        let options = Options { receives: 8, ..Options::default() };
        Deadline::wait_until("a connection", TIMEOUT, || {
            if let Some(incoming) = listener.take().expect("the device works") {
                let mut endpoint = incoming.prepare::<()>(&options).expect("there is memory");
                endpoint.post_receives(8).expect("there is room");
                endpoint.accept().expect("the client is there");
                server = Some(endpoint);
            }
            match connecting.take().map(Connecting::advance::<()>) {
                Some(step) => match step.expect("the server accepts") {
                    Ok(made) => client = Some(made),
                    Err(unfinished) => connecting = Some(unfinished),
                },
                None => return Some(()),
            }
            None
        });
        let (client, server) = (client.expect("connected"), server.expect("connected"));
        let client = Wire::Rdma(Box::new(client));
        let poller = Poller::new().expect("a poller");
        client.register(&poller, 1).expect("the descriptors can be polled");
        Self { client, server, inbox: std::mem::take(&mut inbox), poller, _listener: listener }
    }

    /// Sends a call whose reply fills the caller's memory. Returns where the server is to write.
    fn call(&mut self, caller: &Caller, xid: u32) -> Segment {
        let expect = Expect { payload_max: BYTES as u32, reply_max: 64 };
        self.client.push((), 0, expect, |head| {
            head.extend([xid, 0].into_iter().flat_map(u32::to_be_bytes));
        });
        let lent = self.client.counters().lent;
        self.client.flush(caller, usize::MAX).expect("sent");
        assert_eq!(self.client.counters().lent, lent + 1, "the memory is lent");
        let Self { server, inbox, .. } = self;
        let header = Deadline::wait_until("the call", TIMEOUT, || {
            server.wake();
            let event = server.poll(inbox).expect("the connection stands");
            (event == Some(Event::Received))
                .then(|| Header::decode(&mut Reader::new(inbox)).expect("a valid header"))
        });
        let Body::Message(chunks) = header.body else { panic!("{header:?}") };
        chunks.writes[0][0]
    }

    /// The server answers that it has filled the memory, and may invalidate the key.
    fn answer(&mut self, xid: u32, whole: Segment, invalidate: bool) {
        let mut chunks = rpcrdma::header::Chunks::default();
        chunks.writes.push(rpcrdma::header::Chunk::from_slice(&[whole]));
        let mut bytes = Vec::new();
        Header { xid, credits: 8, body: Body::Message(chunks) }.encode(&mut Writer::new(&mut bytes));
        bytes.extend([xid, 1].into_iter().flat_map(u32::to_be_bytes));
        let key = invalidate.then_some(whole.handle);
        self.server.post_receives(1).expect("there is room");
        self.server.send(&[&bytes], key, Some(())).expect("sent");
    }

    /// The caller waits for its next reply.
    fn hear(&mut self, caller: &mut Caller) {
        let replies = caller.replies;
        Deadline::wait_until("the reply", TIMEOUT, || {
            self.client.wake();
            self.client.receive(&mut Scratch::default(), caller, usize::MAX).expect("the connection stands");
            (caller.replies > replies).then_some(())
        });
    }
}

/// The server writes by a key, and finds that it may not.
fn writes_in_vain(server: &mut Endpoint<()>, inbox: &mut Vec<u8>, to: Segment) {
    let buffer = server.buffer(BYTES, Access::Local).expect("there is memory").expect("it is free");
    buffer.write(0, &[LATE; BYTES]).expect("it fits");
    let part = Part { buffer, from: 0, bytes: BYTES as u32 };
    if server.write(to.offset, to.handle, part, Some(())).is_err() {
        return;
    }
    Deadline::wait_until("the write to fail", TIMEOUT, || {
        server.wake();
        match server.poll(inbox) {
            Err(_) => Some(()),
            // An earlier message.
            Ok(_) if server.work_under_way() > 0 => None,
            Ok(event) => panic!("the server has written: {event:?}"),
        }
    });
}

fn after_the_connection_was_given_up(reset: bool) {
    let (mut ends, mut caller) = (Ends::connected(20_990), Caller::new());
    let to = ends.call(&caller, 1);
    let Ends { client, mut server, mut inbox, poller, _listener } = ends;
    let ended = client.end(reset, &poller);
    // What remains is freed later.
    caller.use_memory();
    writes_in_vain(&mut server, &mut inbox, to);
    caller.has_its_memory();
    // The memory may go before what remains.
    drop(caller);
    drop((ended, server));
}

fn after_the_reply() {
    let (mut ends, mut caller) = (Ends::connected(20_991), Caller::new());
    let to = ends.call(&caller, 1);
    // Before anything was written.
    ends.answer(1, to, false);
    ends.hear(&mut caller);
    caller.use_memory();
    let Ends { server, inbox, .. } = &mut ends;
    writes_in_vain(server, inbox, to);
    caller.has_its_memory();
}

fn a_key_that_the_server_invalidates_is_invalidated_once() {
    let (mut ends, mut caller) = (Ends::connected(20_992), Caller::new());
    let mut keys = Vec::new();
    for xid in 1..20 {
        let to = ends.call(&caller, xid);
        assert!(!keys.contains(&to.handle), "a key is not used twice in a row");
        keys = vec![to.handle];
        ends.answer(xid, to, true);
        ends.hear(&mut caller);
        caller.use_memory();
    }
    caller.has_its_memory();
}
