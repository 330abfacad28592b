//! The connection between the coordinator and an agent: lines of JSON, each with a proof.
//!
//! 1. The agent says its protocol, its version and a nonce.
//! 2. The coordinator says the same, and proves that it has the key: HMAC-SHA-256 over both nonces
//!    and versions. An agent whose peer does not prove it says only that it refuses.
//! 3. The agent proves that it has the key.
//! 4. Each later line is `PROOF JSON`, where the proof is over a counter and the JSON, with a key
//!    of this connection and direction.
//!
//! Nobody without the key can take part, and no line can be changed, repeated, left out or sent to
//! the other side again. The lines are not secret.
//!
//! Before the proof, a line has at most 1 KiB, and all of it must come within five seconds.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::key::{Key, PROOF_BYTES, hex, unhex};

/// The version of the messages. Both sides have the same; each change of a message changes it.
pub(super) const PROTOCOL: u32 = 3;
/// The maximum length of a line before the peer has proved that it has the key.
pub(super) const HELLO_BYTES_MAX: usize = 1024;
/// The maximum length of a line after that. The results of a client with full histograms of reads
/// and writes are shorter.
const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// How long the handshake may take.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The lines that wait to be read. A peer that sends more waits.
const LINES_MAX: usize = 4;
/// How long a peer may not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const NONCE_BYTES: usize = 32;
/// A version is shorter.
const VERSION_BYTES_MAX: usize = 64;

/// Why the peer cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the connection ended")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("there was no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("it sent a line of more than {0} bytes")]
    TooLong(usize),
    #[error("it sent a line that does not bear the proof of this connection")]
    Forged,
    #[error("it sent something else than was expected: {0}")]
    Malformed(String),
    #[error("it speaks version {theirs} of the protocol (Trunkline {version}), this is version {PROTOCOL}")]
    OtherProtocol { theirs: u32, version: String },
    #[error("it has another key")]
    OtherKey,
    #[error("it refused: {0}")]
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    trunkline: String,
    protocol: u32,
    version: String,
    nonce: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proof: Option<String>,
}

/// What the agent answers to the coordinator's hello.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Proof(String),
    /// The keys differ.
    OtherKey,
    /// Another reason.
    Refused(String),
}

/// Ends a connection, so that the thread that reads ends too.
#[derive(Debug)]
pub(super) enum Closer {
    Tcp(TcpStream),
    Child(Child),
    /// The standard input and output of this process.
    Standard,
}

/// A connection to a peer.
pub(super) struct Link {
    writer: Box<dyn Write + Send>,
    lines: Receiver<Result<Vec<u8>, LinkError>>,
    line_bytes_max: Arc<AtomicUsize>,
    /// The keys of what is sent and received, after the handshake.
    keys: Option<[Key; 2]>,
    sent: u64,
    received: u64,
    closer: Closer,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Link").field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A connection that has ended already cannot be ended again.
        match &mut self.closer {
            Closer::Tcp(socket) => {
                let _ = socket.shutdown(Shutdown::Both);
            }
            Closer::Child(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Closer::Standard => {}
        }
    }
}

impl Link {
    /// A connection over a TCP socket.
    pub(super) fn tcp(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        keep_alive(&socket)?;
        let (reader, writer) = (socket.try_clone()?, socket.try_clone()?);
        Self::new(reader, Box::new(writer), Closer::Tcp(socket))
    }

    /// A connection over a pair of streams.
    pub(super) fn new(
        reader: impl Read + Send + 'static,
        writer: Box<dyn Write + Send>,
        closer: Closer,
    ) -> io::Result<Self> {
        let (sender, lines) = sync_channel(LINES_MAX);
        let line_bytes_max = Arc::new(AtomicUsize::new(HELLO_BYTES_MAX));
        let most = Arc::clone(&line_bytes_max);
        std::thread::Builder::new()
            .name("tl-client-link".into())
            .spawn(move || read_lines(reader, &most, &sender))?;
        Ok(Self { writer, lines, line_bytes_max, keys: None, sent: 0, received: 0, closer })
    }

    /// The coordinator's handshake. Returns the agent's version of Trunkline.
    pub(super) fn greet(&mut self, key: &Key, within: Duration) -> Result<String, LinkError> {
        let until = Instant::now() + within;
        let theirs: Hello = parse(&self.line(until)?)?;
        check_hello(&theirs, "agent")?;
        let mut ours = hello("bench")?;
        let seen = [theirs.nonce, theirs.version.clone(), ours.nonce.clone(), ours.version.clone()];
        ours.proof = Some(hex(&key.prove(&parts("bench", &seen))));
        self.write_line(json(&ours)?)?;
        let proof = match parse(&self.line(until)?)? {
            Verdict::Proof(proof) => proof,
            Verdict::OtherKey => return Err(LinkError::OtherKey),
            Verdict::Refused(reason) => return Err(LinkError::Refused(reason)),
        };
        if !unhex(&proof).is_some_and(|proof| key.verifies(&parts("agent", &seen), &proof)) {
            return Err(LinkError::OtherKey);
        }
        self.begin_session(key, &seen, ["from bench", "from agent"]);
        Ok(theirs.version)
    }

    /// The agent's handshake. `admit` is asked once the peer has proved that it has the key; it may
    /// still refuse, with a reason.
    pub(super) fn admit<T>(
        &mut self,
        key: &Key,
        admit: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, LinkError> {
        let until = Instant::now() + HANDSHAKE_TIMEOUT;
        let ours = hello("agent")?;
        self.write_line(json(&ours)?)?;
        let theirs: Hello = parse(&self.line(until)?)?;
        if let Err(error) = check_hello(&theirs, "bench") {
            self.write_line(json(&Verdict::Refused(error.to_string()))?)?;
            return Err(error);
        }
        let seen = [ours.nonce, ours.version, theirs.nonce, theirs.version];
        let proof = theirs.proof.as_deref().and_then(unhex).unwrap_or_default();
        if !key.verifies(&parts("bench", &seen), &proof) {
            self.write_line(json(&Verdict::OtherKey)?)?;
            return Err(LinkError::OtherKey);
        }
        let admitted = match admit() {
            Ok(admitted) => admitted,
            Err(reason) => {
                self.write_line(json(&Verdict::Refused(reason.clone()))?)?;
                return Err(LinkError::Refused(reason));
            }
        };
        // The next line may be long.
        self.begin_session(key, &seen, ["from agent", "from bench"]);
        self.write_line(json(&Verdict::Proof(hex(&key.prove(&parts("agent", &seen)))))?)?;
        Ok(admitted)
    }

    fn begin_session(&mut self, key: &Key, seen: &[String; 4], labels: [&str; 2]) {
        self.keys = Some(labels.map(|label| key.derive(&parts(label, seen))));
        self.line_bytes_max.store(MESSAGE_BYTES_MAX, Ordering::SeqCst);
    }

    /// Sends a message of the session.
    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), LinkError> {
        let text = json(message)?;
        let proof = match &self.keys {
            Some([ours, _]) => ours.prove(&[&self.sent.to_be_bytes(), &text]),
            None => return Err(LinkError::Forged),
        };
        self.sent += 1;
        let mut line = hex(&proof).into_bytes();
        line.push(b' ');
        line.extend(text);
        self.write_line(line)
    }

    /// The next message of the session, if it comes before `until`.
    pub(super) fn receive<T: DeserializeOwned>(&mut self, until: Instant) -> Result<T, LinkError> {
        let line = self.line(until)?;
        let (proof, text) = line.split_at_checked(2 * PROOF_BYTES).ok_or(LinkError::Forged)?;
        let text = text.strip_prefix(b" ").ok_or(LinkError::Forged)?;
        let proof = std::str::from_utf8(proof).ok().and_then(unhex).ok_or(LinkError::Forged)?;
        let good = self
            .keys
            .as_ref()
            .is_some_and(|[_, theirs]| theirs.verifies(&[&self.received.to_be_bytes(), text], &proof));
        if !good {
            return Err(LinkError::Forged);
        }
        self.received += 1;
        parse(text)
    }

    /// The next message, if one has come within this time; `None` if none has.
    pub(super) fn poll<T: DeserializeOwned>(&mut self, within: Duration) -> Result<Option<T>, LinkError> {
        match self.receive(Instant::now() + within) {
            Ok(message) => Ok(Some(message)),
            Err(LinkError::Timeout(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn line(&mut self, until: Instant) -> Result<Vec<u8>, LinkError> {
        let left = until.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => Err(LinkError::Timeout(left)),
            Err(RecvTimeoutError::Disconnected) => Err(LinkError::Closed),
        }
    }

    fn write_line(&mut self, mut line: Vec<u8>) -> Result<(), LinkError> {
        line.push(b'\n');
        let written = self.writer.write_all(&line);
        written.and_then(|()| self.writer.flush()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LinkError::Closed,
            _ => error.into(),
        })
    }
}

/// A peer whose machine is gone is noticed within half a minute.
fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(socket);
    let probes = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(4);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(30)))
}

/// Reads lines until the stream ends, an error, or a line that is too long.
fn read_lines(mut from: impl Read, most: &AtomicUsize, to: &SyncSender<Result<Vec<u8>, LinkError>>) {
    let (mut line, mut part) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        let got = match from.read(&mut part) {
            Ok(0) => {
                let _ = to.send(Err(LinkError::Closed));
                return;
            }
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let reset = error.kind() == io::ErrorKind::ConnectionReset;
                let _ = to.send(Err(if reset { LinkError::Closed } else { error.into() }));
                return;
            }
        };
        for piece in part.get(..got).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            let most = most.load(Ordering::SeqCst);
            if line.len() > most {
                let _ = to.send(Err(LinkError::TooLong(most)));
                return;
            }
            if line.last() == Some(&b'\n') {
                line.pop();
                if to.send(Ok(std::mem::take(&mut line))).is_err() {
                    return;
                }
            }
        }
    }
}

fn hello(side: &str) -> Result<Hello, LinkError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| LinkError::Io(io::Error::other(error.to_string())))?;
    Ok(Hello {
        trunkline: side.to_owned(),
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        nonce: hex(&nonce),
        proof: None,
    })
}

fn check_hello(hello: &Hello, side: &str) -> Result<(), LinkError> {
    if hello.trunkline != side {
        return Err(LinkError::Malformed(format!("a hello that is not of trunkline {side}")));
    }
    if hello.version.len() > VERSION_BYTES_MAX || hello.version.contains(char::is_control) {
        return Err(LinkError::Malformed("a version that is not one".to_owned()));
    }
    if hello.protocol != PROTOCOL {
        return Err(LinkError::OtherProtocol { theirs: hello.protocol, version: hello.version.clone() });
    }
    match unhex(&hello.nonce) {
        Some(nonce) if nonce.len() == NONCE_BYTES => Ok(()),
        _ => Err(LinkError::Malformed("a nonce of another length".to_owned())),
    }
}

/// What a proof is over: its purpose, and what both sides have said.
fn parts<'a>(purpose: &'a str, seen: &'a [String; 4]) -> [&'a [u8]; 6] {
    let [a, b, c, d] = seen;
    [b"trunkline agent 1", purpose.as_bytes(), a.as_bytes(), b.as_bytes(), c.as_bytes(), d.as_bytes()]
}

fn json(message: &impl Serialize) -> Result<Vec<u8>, LinkError> {
    serde_json::to_vec(message).map_err(|error| LinkError::Malformed(error.to_string()))
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, LinkError> {
    serde_json::from_slice(text).map_err(|error| LinkError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests;
