//! The handshake and the session, against friends and strangers.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;

fn key(text: &str) -> Key {
    Key::of_pipe().derive(&[text.as_bytes()])
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

type Admitted = Result<Link, LinkError>;

/// An agent at the other end of a socket, in a thread.
fn agent(text: &'static str, refuse: Option<&'static str>) -> (TcpStream, JoinHandle<Admitted>) {
    let (here, there) = pair();
    let thread = std::thread::spawn(move || {
        let mut link = Link::tcp(there).unwrap();
        let admit = || refuse.map_or(Ok(()), |reason| Err(reason.to_owned()));
        link.admit(&key(text), admit).map(|()| link)
    });
    (here, thread)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn session() -> (Link, Link) {
    let (socket, agent) = agent("k", None);
    let mut bench = Link::tcp(socket).unwrap();
    assert_eq!(bench.greet(&key("k"), HANDSHAKE_TIMEOUT).unwrap(), env!("CARGO_PKG_VERSION"));
    (bench, agent.join().unwrap().unwrap())
}

#[test]
fn both_sides_with_the_key_exchange_messages() {
    let (mut bench, mut agent) = session();
    let long = "x".repeat(3 * HELLO_BYTES_MAX);
    bench.send(&long).unwrap();
    bench.send(&2).unwrap();
    agent.send(&[3]).unwrap();
    assert_eq!(agent.receive::<String>(soon()).unwrap(), long);
    assert_eq!(agent.receive::<u32>(soon()).unwrap(), 2);
    assert_eq!(bench.receive::<Vec<u32>>(soon()).unwrap(), [3]);
    assert!(bench.poll::<u32>(Duration::ZERO).unwrap().is_none());
    drop(bench);
    assert!(matches!(agent.receive::<u32>(soon()), Err(LinkError::Closed)));
}

#[test]
fn another_key_is_refused_by_both_sides() {
    let (socket, agent) = agent("k", None);
    let mut bench = Link::tcp(socket).unwrap();
    assert!(matches!(bench.greet(&key("other"), HANDSHAKE_TIMEOUT), Err(LinkError::OtherKey)));
    assert!(matches!(agent.join().unwrap(), Err(LinkError::OtherKey)));
    assert!(matches!(bench.send(&1), Err(LinkError::Forged)), "there is no session");
}

#[test]
fn an_agent_that_cannot_prove_the_key_is_refused() {
    let (here, there) = pair();
    let thread = std::thread::spawn(move || {
        // It repeats the proof that it got, instead of its own.
        let mut link = Link::tcp(there).unwrap();
        link.write_line(json(&hello("agent").unwrap()).unwrap()).unwrap();
        let theirs: Hello = parse(&link.line(soon()).unwrap()).unwrap();
        link.write_line(json(&Verdict::Proof(theirs.proof.unwrap())).unwrap()).unwrap();
        link.line(soon()).is_ok()
    });
    let mut bench = Link::tcp(here).unwrap();
    assert!(matches!(bench.greet(&key("k"), HANDSHAKE_TIMEOUT), Err(LinkError::OtherKey)));
    drop(bench);
    assert!(!thread.join().unwrap(), "it is told nothing more");
}

#[test]
fn a_busy_agent_says_so_to_who_has_the_key_only() {
    let refused = |text: &str| {
        let (socket, _agent) = agent("k", Some("it is busy"));
        Link::tcp(socket).unwrap().greet(&key(text), HANDSHAKE_TIMEOUT).unwrap_err().to_string()
    };
    assert_eq!(refused("k"), "it refused: it is busy");
    assert_eq!(refused("other"), "it has another key");
}

#[test]
fn another_version_of_the_protocol_is_named() {
    let (here, mut there) = pair();
    let mut other = hello("agent").unwrap();
    (other.protocol, other.version) = (PROTOCOL + 1, "9.9.9".into());
    let mut line = json(&other).unwrap();
    line.push(b'\n');
    there.write_all(&line).unwrap();
    let error = Link::tcp(here).unwrap().greet(&key("k"), HANDSHAKE_TIMEOUT).unwrap_err();
    let versions = format!("version {} of the protocol (Trunkline 9.9.9)", PROTOCOL + 1);
    assert!(error.to_string().contains(&versions), "{error}");
}

/// What an agent answers to a line that a stranger sends, and what it makes of it.
fn stranger(line: &[u8]) -> (String, LinkError) {
    let (mut socket, agent) = agent("k", None);
    socket.write_all(line).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let error = agent.join().unwrap().unwrap_err();
    let mut answer = String::new();
    let mut lines = BufReader::new(socket);
    lines.read_line(&mut answer).unwrap();
    answer.clear();
    // The socket may be reset, because not all of the line was read.
    let _ = lines.read_line(&mut answer);
    (answer, error)
}

#[test]
fn a_stranger_gets_nothing_but_a_refusal() {
    let (answer, error) = stranger(&[b'x'; 5000]);
    assert!(matches!(error, LinkError::TooLong(HELLO_BYTES_MAX)), "{error}");
    assert_eq!(answer, "");
    let (answer, error) = stranger(b"GET / HTTP/1.1\r\n\r\n");
    assert!(matches!(error, LinkError::Malformed(_)) && answer.is_empty(), "{error} {answer}");
    assert!(matches!(stranger(b"").1, LinkError::Closed));
    assert!(matches!(stranger(b"{}\n").1, LinkError::Malformed(_)));
    let unproved = json(&hello("bench").unwrap()).unwrap();
    let (answer, error) = stranger(&[unproved.as_slice(), b"\n"].concat());
    assert!(matches!(error, LinkError::OtherKey) && answer == "\"other_key\"\n", "{error} {answer}");
}

#[test]
fn a_line_that_was_changed_repeated_or_sent_back_is_refused() {
    let forged = |change: fn(Vec<u8>) -> Vec<u8>| {
        let (mut bench, mut agent) = session();
        let text = json(&1).unwrap();
        let proof = bench.keys.as_ref().unwrap()[0].prove(&[&0_u64.to_be_bytes(), &text]);
        let line = [hex(&proof).as_bytes(), b" ", &text].concat();
        for line in change(line).split(|byte| *byte == b'\n') {
            bench.write_line(line.to_vec()).unwrap();
        }
        let first = agent.receive::<u32>(soon());
        let second = if first.is_ok() { agent.receive::<u32>(soon()) } else { first };
        matches!(second, Err(LinkError::Forged))
    };
    assert!(forged(|line| [line.as_slice(), b"\n", &line].concat()), "repeated");
    assert!(forged(|mut line| {
        line.pop();
        line.push(b'2');
        line
    }));
    assert!(forged(|_| b"2".to_vec()));
    assert!(forged(|_| [[b'z'; 64].as_slice(), b" 1"].concat()));
    let (mut bench, mut agent) = session();
    bench.send(&1).unwrap();
    let own = agent.line(soon()).unwrap();
    agent.write_line(own).unwrap();
    assert!(matches!(bench.receive::<u32>(soon()), Err(LinkError::Forged)), "sent back");
}
