//! A client that sends arbitrary bytes: raw messages and memory over its own connection, and what
//! the server does in answer.

use crate::pair::TIMEOUT;
use nfs3::FileHandle;
use rpcrdma::header::{Body, Chunk, Chunks, Header, HeaderError, ReadSegment, Segment};
use testkit::Deadline;
use transport::rdma::{Access, Buffer, Endpoint, Event, Options};
use xdr::{Reader, Writer};

/// Procedures. RFC 1813 s3.3
const NULL: u32 = 0;
const READ: u32 = 6;
const WRITE: u32 = 7;

/// What a server did.
#[derive(Debug)]
pub enum Received {
    /// Sent a message with this header.
    Message(Box<Header>),
    /// Answered with an error of the transport header.
    Refused(HeaderError),
    /// Ended the connection.
    Ended(String),
}

/// See the module's documentation.
pub struct RawPeer {
    pub endpoint: Endpoint<()>,
    inbox: Vec<u8>,
}

impl RawPeer {
    /// Connects to the server and posts receives.
    pub fn new() -> Self {
        let options = Options { receives: 128, sends: 256, work: 512, ..Options::default() };
        let server = "10.77.1.2:20049".parse().expect("an address");
        let endpoint = Endpoint::connect(None, server, &options).expect("the guest has a device");
        let mut this = Self { endpoint, inbox: Vec::new() };
        Deadline::wait_until("a connection", TIMEOUT, || {
            this.endpoint.wake();
            this.endpoint.poll(&mut this.inbox).expect("the server takes connections")
        });
        this.endpoint.post_receives(128).expect("there is room");
        this
    }

    /// Sends the bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.endpoint.send(&[bytes], None, Some(())).expect("the message fits");
    }

    /// Waits until the message is sent; the server may already have ended the connection because of
    /// it.
    pub fn wait_until_sent(&mut self) {
        Deadline::wait_until("the acknowledgement of the server's device", TIMEOUT, || {
            self.endpoint.wake();
            match self.endpoint.poll(&mut self.inbox) {
                Ok(Some(Event::Done(()))) | Err(_) => Some(()),
                Ok(_) => None,
            }
        });
    }

    /// Sends a call with these chunks.
    pub fn call(&mut self, body: Body, message: &[u8]) {
        let mut bytes = Vec::new();
        Header { xid: xid_of(message), credits: 32, body }.encode(&mut Writer::new(&mut bytes));
        bytes.extend_from_slice(message);
        self.send(&bytes);
    }

    /// The next message or event.
    pub fn receive(&mut self) -> Received {
        Deadline::wait_until("the server's answer", TIMEOUT, || {
            self.endpoint.wake();
            match self.endpoint.poll(&mut self.inbox) {
                Ok(Some(Event::Received)) => {
                    let header = Header::decode(&mut Reader::new(&self.inbox))
                        .expect("our server sends valid headers");
                    Some(match header.body {
                        Body::Error(error) => Received::Refused(error),
                        _ => Received::Message(Box::new(header)),
                    })
                }
                Ok(_) => None,
                Err(error) => Some(Received::Ended(error.to_string())),
            }
        })
    }

    /// Memory of this client for the server to access, filled with a byte.
    pub fn memory(&self, bytes: usize, access: Access, byte: u8) -> Buffer {
        let buffer = self
            .endpoint
            .buffer(bytes, access)
            .expect("the device registers memory")
            .expect("the pool is empty");
        buffer.write(0, &vec![byte; bytes]).expect("the data fit");
        buffer
    }
}

/// A segment that describes a buffer to the server, with this length.
pub fn segment(buffer: &Buffer, length: u32) -> Segment {
    Segment { handle: buffer.region().remote_key(), length, offset: buffer.region().address() }
}

/// The chunks of a call whose argument the server reads.
pub fn with_read(position: u32, segment: Segment) -> Chunks {
    Chunks { reads: [ReadSegment { position, segment }].into_iter().collect(), ..Chunks::default() }
}

/// The chunks of a call whose result the server writes.
pub fn with_write(segment: Segment) -> Chunks {
    Chunks { writes: [Chunk::from_slice(&[segment])].into_iter().collect(), ..Chunks::default() }
}

/// The chunks of a call whose reply the server writes.
pub fn with_reply(segment: Segment) -> Chunks {
    Chunks { reply: Some(Chunk::from_slice(&[segment])), ..Chunks::default() }
}

fn xid_of(message: &[u8]) -> u32 {
    message.first_chunk().copied().map_or(0, u32::from_be_bytes)
}

/// The header of a call by root. RFC 5531 s9
fn head(xid: u32, procedure: u32) -> Vec<u8> {
    let credential = [1, 20, 7, 0, 0, 0, 0];
    let words = [xid, 0, 2, 100_003, 3, procedure].into_iter().chain(credential).chain([0, 0]);
    words.flat_map(u32::to_be_bytes).collect()
}

fn push_handle(call: &mut Vec<u8>, file: FileHandle) {
    let bytes = file.as_slice();
    call.extend((bytes.len() as u32).to_be_bytes());
    call.extend_from_slice(bytes);
    call.resize(call.len().next_multiple_of(4), 0);
}

/// A NULL call.
pub fn null(xid: u32) -> Vec<u8> {
    head(xid, NULL)
}

/// A READ from the beginning of a file.
pub fn read(xid: u32, file: FileHandle, count: u32) -> Vec<u8> {
    let mut call = head(xid, READ);
    push_handle(&mut call, file);
    call.extend([0, 0, count].into_iter().flat_map(u32::to_be_bytes));
    call
}

/// A WRITE to the beginning of a file, without the data.
pub fn write(xid: u32, file: FileHandle, count: u32) -> Vec<u8> {
    let mut call = head(xid, WRITE);
    push_handle(&mut call, file);
    // Stable, and the length of the data that follow.
    call.extend([0, 0, count, 2, count].into_iter().flat_map(u32::to_be_bytes));
    call
}
