//! Clients of the NBD server, in front of a volume of a target in this process.

use crate::client::{Client, PATIENCE};
use attach::{Earlier, Error, Server, Socket, VolumeDisk};
use initiator::{Attachment, Config, HostId, Nqn};
use std::path::PathBuf;
use target::{Access, Drive, Export, Target};
use tempfile::TempDir;
use volumes::{BlockSize, Identity, Volume};

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
            Target::start(&config, &[Export { nsid: 1, volume, hosts: Access::Any, owner: target::Node::A }])
                .expect("a target");
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
        Client::connect(&self.path())
    }

    fn begin(&self) -> Client {
        Client::begin(&self.path())
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
fn a_trim_that_is_not_on_blocks_changes_the_whole_blocks_only() {
    let fixture = Fixture::start();
    let mut client = fixture.begin();
    // The range, and how many blocks of the four at 4096 are whole in it.
    for (offset, bytes, first, whole) in [
        (4096, 16384, 0, 4),
        (5000, 15480, 1, 3),
        (4096, 16383, 0, 3),
        (5120, 1024, 0, 0),
        (8191, 4097, 1, 1),
    ] {
        for flags in [0, 1] {
            client.write(0, &[7; 6 * 4096]);
            client.request(flags, 4, 5, offset, bytes);
            assert_eq!(client.reply(), (5, Ok(vec![])), "{bytes} at {offset}");
            let data = client.read(0, 6 * 4096);
            for (block, data) in data.chunks(4096).enumerate() {
                let byte = if (1 + first..1 + first + whole).contains(&block) { 0 } else { 7 };
                assert!(data.iter().all(|one| *one == byte), "block {block}, {bytes} at {offset}");
            }
        }
    }
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
    let left: Vec<_> = std::fs::read_dir(fixture.directory.path()).expect("a directory").collect();
    assert_eq!(left.len(), 1, "no lock is left: {left:?}");
}

/// What one of them removes is never what another one has just bound.
#[test]
fn of_many_that_find_the_socket_of_a_killed_server_one_takes_it() {
    const RIVALS: usize = 4;
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = directory.path().join("disk");
    for round in 0..200 {
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
        let barrier = std::sync::Barrier::new(RIVALS);
        let rival = || {
            barrier.wait();
            let socket = Socket::bind(&path);
            // Nobody lets go before all have tried.
            barrier.wait();
            match socket {
                Ok(socket) => {
                    assert_eq!(socket.earlier, Earlier::Killed);
                    std::os::unix::net::UnixStream::connect(&path).expect("it listens");
                    1
                }
                Err(Error::InUse(_)) => 0,
                Err(error) => panic!("{error}"),
            }
        };
        let winners: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..RIVALS).map(|_| scope.spawn(rival)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(winners, 1, "round {round}");
        assert!(!path.exists());
    }
}

/// Two that come while a third one goes: who takes the lock has the file that others see.
#[test]
fn a_socket_that_is_let_go_is_taken_by_one_at_a_time() {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = directory.path().join("disk");
    let (owners, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let rival = || {
        for _ in 0..2000 {
            match Socket::bind(&path) {
                Ok(socket) => {
                    assert_eq!(owners.fetch_add(1, SeqCst), 0, "one at a time");
                    assert_eq!(socket.earlier, Earlier::Ended);
                    taken.fetch_add(1, SeqCst);
                    owners.fetch_sub(1, SeqCst);
                }
                Err(Error::InUse(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(rival)));
    });
    assert!(taken.load(SeqCst) > 0);
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

#[test]
fn a_server_ends_also_where_its_socket_was_removed() {
    let mut fixture = Fixture::start();
    let mut client = fixture.begin();
    std::fs::remove_file(fixture.path()).expect("a socket");
    drop(fixture.server.take());
    assert!(client.has_ended());
}
