//! Clients of the NBD server, in front of a volume of a target in this process.

use attach::{Earlier, Error, Server, Socket, VolumeDisk};
use initiator::{Attachment, Config, HostId, Nqn};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use target::{Access, Drive, Export, Target};
use tempfile::TempDir;
use volumes::{BlockSize, Identity, Volume};

const PATIENCE: Duration = Duration::from_secs(60);
const BYTES: u64 = 16 << 20;

struct Fixture {
    server: Option<Server>,
    directory: TempDir,
    _attachment: Attachment,
    _target: Target,
}

impl Fixture {
    fn start() -> Self {
        let name = Nqn::new("nqn.2026-11.test:array").expect("a name");
        let host = Nqn::new("nqn.2026-11.test:host").expect("a name");
        let listen = vec!["127.0.0.1:0".parse().expect("an address")];
        let mut config = target::Config::new(name.clone(), "1", Access::Any, listen);
        config.limits.stall = PATIENCE;
        let drive = Drive::memory(BYTES, BYTES);
        let identity = Identity::of_uuid([1; 16]);
        let volume = Volume::new("v", identity, &drive, Some(BlockSize::B4096)).expect("a volume");
        let target =
            Target::start(&config, &[Export { nsid: 1, volume, hosts: Access::Any }]).expect("a target");
        let mut config = Config::new(host, HostId([9; 16]), name, target.addresses().to_vec());
        config.keep_alive = PATIENCE;
        let attachment = Attachment::start(config).expect("a thread");
        let volume = attachment.volume(None, PATIENCE).expect("a volume");
        let directory = TempDir::new().expect("a directory");
        let socket = Socket::bind(&directory.path().join("disk")).expect("a socket");
        let server = Server::start(socket, VolumeDisk(volume)).expect("a server");
        Self { server: Some(server), directory, _attachment: attachment, _target: target }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn connect(&self) -> Client {
        let mut stream = UnixStream::connect(self.path()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        Client { stream }
    }

    fn begin(&self) -> Client {
        let mut client = self.connect();
        client.send(&3_u32.to_be_bytes());
        client.send(&option(8, &[]));
        assert_eq!(client.answer(), (1, vec![]));
        client.send(&option(7, &[0; 6]));
        while client.answer().0 != 1 {}
        client
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

struct Client {
    stream: UnixStream,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("room");
    }

    fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    /// The type and the data of an answer to an option.
    fn answer(&mut self) -> (u32, Vec<u8>) {
        let head = self.receive(20);
        (word(&head, 12), self.receive(word(&head, 16) as usize))
    }

    fn request(&mut self, flags: u16, kind: u16, cookie: u64, offset: u64, bytes: u32) {
        let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
        head.extend([flags, kind].map(u16::to_be_bytes).concat());
        head.extend([cookie, offset].map(u64::to_be_bytes).concat());
        head.extend(bytes.to_be_bytes());
        self.send(&head);
    }

    /// The cookie of the next reply, with its data, or its error.
    fn reply(&mut self) -> (u64, Result<Vec<u8>, u32>) {
        let head = self.receive(16);
        let cookie = u64::from_be_bytes(head[8..16].try_into().expect("eight bytes"));
        if word(&head, 0) == 0x6744_6698 {
            let error = word(&head, 4);
            return (cookie, if error == 0 { Ok(vec![]) } else { Err(error) });
        }
        assert_eq!(word(&head, 0), 0x668e_33ef);
        let length = self.receive(4);
        let body = self.receive(word(&length, 0) as usize);
        match word(&head, 4) {
            0x1_0001 => (cookie, Ok(body[8..].to_vec())),
            0x1_8001 => (cookie, Err(word(&body, 0))),
            other => panic!("a chunk of type {other:#x}"),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.request(1, 1, 5, offset, data.len() as u32);
        self.send(data);
        assert_eq!(self.reply(), (5, Ok(vec![])));
    }

    fn read(&mut self, offset: u64, bytes: u32) -> Vec<u8> {
        self.request(0, 0, 6, offset, bytes);
        let (cookie, data) = self.reply();
        assert_eq!(cookie, 6);
        data.expect("data")
    }

    fn has_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        // A reset is an end as well.
        self.stream.read_to_end(&mut rest).is_ok_and(|_| rest.is_empty()) || rest.is_empty()
    }
}

#[test]
fn what_one_connection_writes_another_reads() {
    let fixture = Fixture::start();
    let (mut one, mut other) = (fixture.begin(), fixture.begin());
    for (at, bytes) in [(0, 4096), (1 << 20, 3 << 20), (5 << 20, 8 << 20)] {
        let data: Vec<u8> = (0..bytes).map(|byte: u32| ((byte * 7) >> 3) as u8).collect();
        one.write(at, &data);
        assert!(other.read(at, bytes) == data, "{bytes} bytes at {at}");
    }
    for (flags, kind) in [(0, 6), (1, 6), (2, 6), (0, 4), (1, 4)] {
        one.write(0, &[7; 3 * 4096]);
        one.request(flags, kind, 8, 4096, 4096);
        assert_eq!(one.reply(), (8, Ok(vec![])));
        let data = other.read(0, 3 * 4096);
        let is = |from: usize, byte| data[from..from + 4096].iter().all(|one| *one == byte);
        assert!(is(0, 7) && is(4096, 0) && is(8192, 7), "flags {flags} of type {kind}");
    }
    one.request(0, 3, 9, 0, 0);
    assert_eq!(one.reply(), (9, Ok(vec![])));
}

#[test]
fn many_requests_at_once_are_each_replied_to_with_their_own_data() {
    let fixture = Fixture::start();
    let mut client = fixture.begin();
    for round in 0..10 {
        for block in 100 * round..100 * round + 100 {
            client.request(0, 1, block, block * 4096, 4096);
            client.send(&[block as u8; 4096]);
        }
        let mut cookies: Vec<u64> = (0..100).map(|_| client.reply().0).collect();
        cookies.sort_unstable();
        assert!(cookies.into_iter().eq(100 * round..100 * round + 100));
    }
    (0..100).for_each(|block| client.request(0, 0, block, block * 4096, 4096));
    for _ in 0..100 {
        let (cookie, data) = client.reply();
        assert_eq!(data, Ok(vec![cookie as u8; 4096]));
    }
}

#[test]
fn invalid_requests_are_refused_and_the_connection_goes_on() {
    let fixture = Fixture::start();
    let mut client = fixture.begin();
    for (flags, kind, offset, bytes, error) in [
        (0, 0, 1, 4096, 22),
        (0, 0, BYTES, 4096, 22),
        (0, 1, BYTES, 8192, 28),
        (0, 1, 0, 100, 22),
        (16, 6, 0, 4096, 22),
        (0, 7, 0, 4096, 22),
        (0, 4, u64::MAX - 4095, 4096, 28),
    ] {
        client.request(flags, kind, 3, offset, bytes);
        if kind == 1 {
            client.send(&vec![1; bytes as usize]);
        }
        assert_eq!(client.reply(), (3, Err(error)), "type {kind} {bytes} at {offset}");
    }
    assert_eq!(client.read(0, 4096), [0; 4096]);
}

#[test]
fn a_client_that_breaks_the_protocol_ends_its_own_connection_only() {
    let fixture = Fixture::start();
    let mut good = fixture.begin();
    let mut unflagged = fixture.connect();
    unflagged.send(&[0xff; 64]);
    assert!(unflagged.has_ended());
    let mut bad = fixture.begin();
    bad.send(&[0xff; 28]);
    assert!(bad.has_ended());
    let mut endless = fixture.begin();
    endless.request(0, 1, 1, 0, u32::MAX);
    assert!(endless.has_ended());
    // One that leaves within a write changes nothing.
    let mut half = fixture.begin();
    half.request(0, 1, 1, 0, 8192);
    half.send(&[1; 5000]);
    drop(half);
    let mut leaves = fixture.begin();
    leaves.request(0, 2, 1, 0, 0);
    assert!(leaves.has_ended());
    assert_eq!(good.read(0, 8192), [0; 8192]);
}

#[test]
fn a_socket_is_taken_once_and_a_killed_server_is_noticed() {
    let mut fixture = Fixture::start();
    let path = fixture.path();
    assert!(matches!(Socket::bind(&path), Err(Error::InUse(_))));
    let mut client = fixture.begin();
    client.write(0, &[1; 4096]);
    drop(fixture.server.take());
    assert!(client.has_ended());
    assert!(!path.exists());
    // A killed one leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let socket = Socket::bind(&path).expect("a socket");
    assert_eq!(socket.earlier, Earlier::Killed);
    drop(socket);
    assert_eq!(Socket::bind(&path).expect("a socket").earlier, Earlier::Ended);
    std::fs::write(&path, "x").expect("a file");
    assert!(matches!(Socket::bind(&path), Err(Error::NotASocket(_))));
}
