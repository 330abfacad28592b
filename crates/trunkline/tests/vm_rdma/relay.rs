//! A server over RDMA that passes calls on to our server over TCP and returns the replies, except
//! for the error that a test asks for. Framing, chunks and credits are those of our protocol
//! engine; the relay corrupts what the engine produces.

use rpcrdma::header::{Body, Header, HeaderError, bytes_of};
use rpcrdma::server::{Limits, Message, Output, Payload, Piece, ReadInto, RequestId, Server, Source};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use transport::poll::{Events, Interest, Poller};
use transport::rdma::{Access, Buffer, Endpoint, Event, Incoming, Listener, Options, Part};
use xdr::{Reader, Writer};

/// The address of the relay. Calls of MOUNT that arrive there over TCP are passed on too.
pub const ADDRESS: &str = "10.77.1.1";
pub const PORT: u16 = 20998;
const SERVER: &str = "10.77.1.2:2049";
/// How often a waiting relay checks whether it must end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const CREDITS: u32 = 32;

/// An error that the relay makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Grants this number of credits in each reply.
    Grants(u32),
    /// Answers a call that nobody made, before the right reply.
    UnknownXid,
    /// Reports a longer write than the chunk that the client offered.
    LongerWrite,
    /// Reports a reply longer than the chunk for it.
    LongerReply,
    /// Writes beyond the end of the chunk.
    WritesBeyond,
    /// Answers with an error of the transport header.
    Refuses(HeaderError),
    /// Invalidates a memory region although the client did not request that.
    Invalidates,
    /// Answers with bytes that are no header.
    Garbage,
    /// Ends the connection instead of answering.
    Leaves,
}

#[derive(Debug, Default)]
struct Shared {
    misbehaviour: Mutex<Option<Misbehaviour>>,
    stop: AtomicBool,
}

impl Shared {
    fn misbehaviour(&self) -> std::sync::MutexGuard<'_, Option<Misbehaviour>> {
        self.misbehaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// See the module's documentation. The relay ends when dropped.
pub struct Relay {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let listener = Listener::bind(format!("{ADDRESS}:{PORT}").parse().expect("an address"))
            .expect("the port is free");
        let of_mount = TcpListener::bind((ADDRESS, 2049)).expect("the port is free");
        // The thread ends with the process.
        std::thread::spawn(move || of_mount.incoming().flatten().for_each(forward));
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || listen(&listener, &of_thread));
        Self { shared, thread: Some(thread) }
    }

    /// Makes the relay commit this error: credits until the next call of this function, any other
    /// error once.
    pub fn misbehave_with(&self, misbehaviour: Option<Misbehaviour>) {
        *self.shared.misbehaviour() = misbehaviour;
    }

    /// Whether the relay has committed the error.
    pub fn has_misbehaved(&self) -> bool {
        self.shared.misbehaviour().is_none()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the relay has panicked");
        }
    }
}

fn forward(client: TcpStream) {
    let Ok(server) = TcpStream::connect(SERVER) else { return };
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    let (back, there) =
        (server.try_clone().expect("a descriptor"), client.try_clone().expect("a descriptor"));
    std::thread::spawn(move || copy(back, there));
    std::thread::spawn(move || copy(client, server));
}

fn listen(listener: &Listener, shared: &Arc<Shared>) {
    let poller = Poller::new().expect("a poller");
    poller.add(listener, 0, Interest::READ).expect("the listener can be polled");
    let mut connections = Vec::new();
    while !shared.is_ending() {
        poller.wait(&mut Events::new(), Some(POLL_INTERVAL)).expect("poll works");
        while let Some(incoming) = listener.take().expect("the listener works") {
            let shared = Arc::clone(shared);
            connections.push(std::thread::spawn(move || Connection::accept(incoming).serve(&shared)));
        }
    }
    connections.into_iter().for_each(|thread| thread.join().expect("a connection of the relay has panicked"));
}

struct Connection {
    endpoint: Endpoint<RequestId>,
    server: Server,
    upstream: TcpStream,
    inbox: Vec<u8>,
    fetched: Vec<(RequestId, ReadInto, Buffer)>,
    /// The data of the reply that is being sent.
    data: Vec<u8>,
}

impl Connection {
    fn accept(incoming: Incoming) -> Self {
        let options = Options { receives: CREDITS, ..Options::default() };
        let endpoint = incoming.prepare(&options).expect("there is memory");
        let limits = Limits { credits: CREDITS, payload_bytes: 2 << 20 };
        let server = Server::new(endpoint.agreed().expect("the client has sent its offer"), limits);
        let upstream = TcpStream::connect(SERVER).expect("our server accepts");
        let (inbox, fetched, data) = (Vec::new(), Vec::new(), Vec::new());
        let mut this = Self { endpoint, server, upstream, inbox, fetched, data };
        this.execute(&Shared::default()).expect("receives are posted");
        this.endpoint.accept().expect("the client is connected");
        this
    }

    /// Serves until either end closes the connection or the relay is dropped.
    fn serve(mut self, shared: &Shared) {
        let poller = Poller::new().expect("a poller");
        let (events, completions) = self.endpoint.fds();
        for fd in [Some(events), completions].into_iter().flatten() {
            poller.add(fd, 0, Interest::READ).expect("the endpoint can be polled");
        }
        while !shared.is_ending() {
            self.endpoint.wake();
            match self.endpoint.poll(&mut self.inbox) {
                Ok(Some(Event::Received)) => self.server.handle_receive(&self.inbox),
                Ok(Some(Event::Done(request))) => self.server.handle_read_done(request),
                Ok(Some(Event::Connected(_))) => {}
                Ok(None) => poller.wait(&mut Events::new(), Some(POLL_INTERVAL)).expect("poll works"),
                Err(_) => return,
            }
            if self.execute(shared).is_none() {
                return;
            }
        }
    }

    /// Executes the outputs of the engine; `None` when the connection must end.
    fn execute(&mut self, shared: &Shared) -> Option<()> {
        while let Some(output) = self.server.poll_output() {
            match output {
                Output::PostReceives(count) => self.endpoint.post_receives(count).ok()?,
                Output::Read { request, into, chunk } => {
                    let buffer = self.endpoint.buffer(bytes_of(&chunk) as usize, Access::Local).ok()??;
                    let (mut from, count) = (0, chunk.len());
                    for (at, segment) in chunk.iter().enumerate() {
                        let part = Part { buffer: buffer.clone(), from, bytes: segment.length };
                        from += segment.length as usize;
                        let tag = (at + 1 == count).then_some(request);
                        self.endpoint.read(segment.offset, segment.handle, part, tag).ok()?;
                    }
                    self.fetched.push((request, into, buffer));
                }
                Output::Call { request, message, payload, room, .. } => {
                    let call = self.whole(request, message, payload);
                    self.answer(request, &call, room.is_some())?;
                }
                Output::Write { message, pieces, .. } => self.write(&message, &pieces, shared)?,
                Output::Send { bytes, payload, .. } => {
                    let (count, padding) = payload.unwrap_or_default();
                    let mut bytes = [&bytes, &self.data[..count as usize]].concat();
                    bytes.resize(bytes.len() + padding, 0);
                    self.send(bytes, shared)?;
                }
                Output::Reverse(_) | Output::ReverseRefused(_) => {}
                Output::Close(_) => return None,
            }
        }
        Some(())
    }

    /// Assembles a call.
    fn whole(&mut self, request: RequestId, message: Message, payload: Option<Payload>) -> Vec<u8> {
        let mut take = |into, bytes: usize| {
            let at = self
                .fetched
                .iter()
                .position(|(of, what, _)| (*of, *what) == (request, into))
                .expect("the data were read");
            let mut data = vec![0; bytes];
            self.fetched.remove(at).2.read(0, &mut data).expect("the buffer holds the data");
            data
        };
        let mut call = match message {
            Message::Received(range) => self.inbox[range].to_vec(),
            Message::Buffered(bytes) => bytes,
            Message::Read(bytes) => take(ReadInto::Message, bytes as usize),
        };
        if let Some(payload) = payload {
            let data = take(ReadInto::Payload, payload.bytes as usize);
            let at = payload.position as usize;
            call.splice(at..at, data);
            call.resize(call.len().next_multiple_of(4), 0);
        }
        call
    }

    /// Sends the call to our server; with `apart` the data of a READ are passed to the engine
    /// separately.
    fn answer(&mut self, request: RequestId, call: &[u8], apart: bool) -> Option<()> {
        // One fragment, the last. RFC 5531 s11
        let mark = (call.len() as u32 | 1 << 31).to_be_bytes();
        self.upstream.write_all(&[&mark, call].concat()).ok()?;
        let mut mark = [0; 4];
        self.upstream.read_exact(&mut mark).ok()?;
        let mut reply = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        self.upstream.read_exact(&mut reply).ok()?;
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("four bytes"));
        // After the header of an accepted reply come status, attributes, count, end of file and the
        // data. RFC 1813 s3.3.6
        if apart && reply.len() > 40 && word(24) == 0 {
            let length = 32 + 84 * word(28) as usize + 8;
            let (at, count) = (length + 4, word(length));
            self.data = reply[at..at + count as usize].to_vec();
            self.server.reply(request, reply[..at].to_vec(), Some(count));
        } else {
            self.data.clear();
            self.server.reply(request, reply, None);
        }
        Some(())
    }

    fn write(&mut self, message: &[u8], pieces: &[Piece], shared: &Shared) -> Option<()> {
        let beyond = shared
            .misbehaviour()
            .take_if(|misbehaviour| *misbehaviour == Misbehaviour::WritesBeyond)
            .is_some();
        for piece in pieces.iter().filter(|piece| piece.to.length > 0) {
            let from = match piece.source {
                Source::Message => message,
                Source::Payload => &self.data,
                Source::Padding => &[0; 4],
            };
            let buffer = self.endpoint.buffer(piece.to.length as usize, Access::Local).ok()??;
            let start = piece.start as usize;
            buffer.write(0, &from[start..start + piece.to.length as usize]).ok()?;
            let part = Part { buffer, from: 0, bytes: piece.to.length };
            let offset = piece.to.offset + if beyond { 4 << 20 } else { 0 };
            self.endpoint.write(offset, piece.to.handle, part, None).ok()?;
        }
        Some(())
    }

    /// Sends a reply, corrupted if the error that the test asks for applies to it: to replies of
    /// READ, or to long replies.
    fn send(&mut self, bytes: Vec<u8>, shared: &Shared) -> Option<()> {
        let mut reader = Reader::new(&bytes);
        let mut header = Header::decode(&mut reader).expect("the engine makes valid headers");
        let message = bytes[bytes.len() - reader.remaining()..].to_vec();
        let written = match &header.body {
            Body::Message(chunks) => chunks.writes.first().and_then(|chunk| chunk.first()).copied(),
            _ => None,
        };
        let is_long = matches!(header.body, Body::NoMessage(_));
        let about_this = |misbehaviour: &mut Misbehaviour| match misbehaviour {
            Misbehaviour::LongerReply => is_long,
            Misbehaviour::WritesBeyond => false,
            _ => written.is_some(),
        };
        let mut held = shared.misbehaviour();
        if let Some(Misbehaviour::Grants(credits)) = *held {
            header.credits = credits;
        }
        let misbehaviour = held.take_if(|misbehaviour| {
            !matches!(misbehaviour, Misbehaviour::Grants(_)) && about_this(misbehaviour)
        });
        drop(held);
        let mut invalidate = None;
        match (misbehaviour, &mut header.body) {
            (Some(Misbehaviour::UnknownXid), body) => {
                let xid = header.xid ^ 0x55;
                let mut other = encoded(&Header { xid, credits: header.credits, body: body.clone() });
                other.extend_from_slice(&xid.to_be_bytes());
                other.extend_from_slice(message.get(4..).unwrap_or_default());
                self.endpoint.send(&[&other], None, None).ok()?;
            }
            (Some(Misbehaviour::LongerWrite), Body::Message(chunks)) => chunks.writes[0][0].length += 4096,
            (Some(Misbehaviour::LongerReply), Body::NoMessage(chunks)) => {
                chunks.reply.as_mut().expect("the call had a reply chunk")[0].length += 4 << 20;
            }
            (Some(Misbehaviour::Refuses(error)), body) => {
                *body = Body::Error(error);
                return self.endpoint.send(&[&encoded(&header)], None, None).ok();
            }
            (Some(Misbehaviour::Invalidates), _) => invalidate = written.map(|segment| segment.handle),
            (Some(Misbehaviour::Garbage), _) => return self.endpoint.send(&[&[7; 9]], None, None).ok(),
            (Some(Misbehaviour::Leaves), _) => return None,
            _ => {}
        }
        self.endpoint.send(&[&encoded(&header), &message], invalidate, None).ok()
    }
}

fn encoded(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut Writer::new(&mut bytes));
    bytes
}
