//! A file of an NFS server as a disk.

use crate::client::Client;
use ::client::options::Version;
use ::client::{Mount, Settings, Sought};
use attach::{FileDisk, FileError, Server, Socket};
use server::Config;
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;

const BYTES: u64 = 16 << 20;
const KIB: u64 = 1 << 10;
const TRIM: u16 = 1 << 5;
const WRITE_ZEROES: u16 = 1 << 6;
/// The request is durable when it is replied to.
const FUA: u16 = 1;
/// Write Zeroes: no hole.
const NO_HOLE: u16 = 2;

/// Ends from above to below.
struct Fixture {
    nbd: Option<Server>,
    directory: TempDir,
    mount: Mount,
    _server: server::Server,
}

impl Fixture {
    fn start(version: Version) -> Self {
        let versions = "3,4.1,4.2".parse().expect("versions");
        let address = SocketAddr::from(([127, 0, 0, 1], testkit::free_port()));
        let config = Config { versions, ..Config::quick(256 << 20, "/export", &[address]) };
        let server = server::Server::start(config).expect("a server");
        let settings = Settings { version, ..Settings::new(address.ip(), address.port(), "/export") };
        let mount = Mount::with_settings(settings).expect("a mount");
        let file = mount.create_file(b"/disk", 0o644).expect("a file");
        file.write_all_at(&vec![7; BYTES as usize], 0).expect("room");
        let directory = TempDir::new().expect("a directory");
        let mut fixture = Self { nbd: None, directory, mount, _server: server };
        let socket = Socket::bind(&fixture.socket()).expect("a socket");
        let disk = FileDisk::open(&fixture.mount, b"/disk", "disk").expect("a disk");
        fixture.nbd = Some(Server::start(socket, disk).expect("a server"));
        fixture
    }

    fn socket(&self) -> std::path::PathBuf {
        Path::join(self.directory.path(), "disk")
    }

    /// Where the file has data, from the beginning on.
    fn first_data(&self) -> Option<u64> {
        let file = self.mount.open(b"/disk").expect("a file");
        self.mount.seek(file.handle(), 0, Sought::Data).expect("an answer")
    }
}

/// A part of the disk is zeroes, and the blocks before and behind it are as they were.
fn is_zero_within(client: &mut Client, offset: u64, bytes: u64) {
    let data = client.read(offset - 4096, bytes as u32 + 8192);
    let (head, rest) = data.split_at(4096);
    let (zeroes, tail) = rest.split_at(bytes as usize);
    assert!(zeroes.iter().all(|byte| *byte == 0));
    assert!(head.iter().chain(tail).all(|byte| *byte == 7), "its neighbours stay");
}

#[test]
fn trim_makes_holes_where_the_mount_can() {
    let fixture = Fixture::start(Version::V4(Some(2)));
    let mut client = Client::begin(&fixture.socket());
    assert_eq!(client.flags & (TRIM | WRITE_ZEROES), TRIM | WRITE_ZEROES);
    for (flags, offset, bytes) in [(0, 64 * KIB, 64 * KIB), (FUA, 1 << 20, 4 << 20)] {
        client.request(flags, 4, 1, offset, bytes as u32);
        assert_eq!(client.reply(), (1, Ok(vec![])));
        is_zero_within(&mut client, offset, bytes);
    }
    client.request(0, 4, 2, 0, 64 * KIB as u32);
    assert_eq!(client.reply(), (2, Ok(vec![])));
    assert_eq!(fixture.first_data(), Some(128 * KIB), "no storage for what was trimmed");
    let file = fixture.mount.open(b"/disk").expect("a file");
    assert_eq!(file.attributes().expect("attributes").size, BYTES);
}

/// Version 3 has no holes: zeroes are written, and TRIM is not offered.
#[test]
fn zeroes_are_written_where_the_mount_has_no_holes() {
    for version in [Version::V3, Version::V4(Some(1)), Version::V4(Some(2))] {
        let fixture = Fixture::start(version);
        let mut client = Client::begin(&fixture.socket());
        let holes = version == Version::V4(Some(2));
        assert_eq!(
            client.flags & (TRIM | WRITE_ZEROES),
            if holes { TRIM | WRITE_ZEROES } else { WRITE_ZEROES }
        );
        let mut at = 64 * KIB;
        // One byte, parts of blocks, more than is written at a time.
        for bytes in [1, 4096, 10_000, 5 << 20 | 1] {
            for flags in [0, FUA, NO_HOLE, FUA | NO_HOLE] {
                client.write(at - 4096, &vec![7; bytes as usize + 8192]);
                client.request(flags, 6, 1, at, bytes as u32);
                assert_eq!(client.reply(), (1, Ok(vec![])), "{bytes} {flags}");
                is_zero_within(&mut client, at, bytes);
            }
            at += 13 * KIB;
        }
        client.request(0, 6, 1, 0, 64 * KIB as u32);
        assert_eq!(client.reply(), (1, Ok(vec![])));
        client.request(0, 3, 2, 0, 0);
        assert_eq!(client.reply(), (2, Ok(vec![])));
        if holes {
            assert!(fixture.first_data().is_some_and(|at| at >= 64 * KIB), "zeroes are a hole");
        }
        if !holes {
            client.request(0, 4, 3, 0, 4096);
            assert!(matches!(client.reply(), (3, Err(_))), "TRIM was not offered");
        }
        let file = fixture.mount.open(b"/disk").expect("a file");
        assert_eq!(file.attributes().expect("attributes").size, BYTES);
    }
}

#[test]
fn an_empty_file_is_no_disk() {
    let fixture = Fixture::start(Version::V3);
    fixture.mount.create_file(b"/empty", 0o644).expect("a file");
    assert!(matches!(FileDisk::open(&fixture.mount, b"/empty", "e"), Err(FileError::Empty)));
}
