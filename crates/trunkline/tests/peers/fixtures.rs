//! Fixtures that the tests of the suite share: our server, runs of a program, and data that depend
//! on their position.

use server::{Config, Server};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;
use testkit::{Process, Stream};

/// Ends a test that hangs; no test takes nearly as long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The path that our server exports.
pub(crate) const EXPORT: &str = "/export";

/// Our server: a group of nodes that ends when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    _server: Server,
    _place: Option<testkit::TempDir>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
}

impl Group {
    /// Starts nodes on 127.0.0.1 and the next addresses, all on one port.
    pub(crate) fn start(nodes: u8) -> Self {
        Self::start_with(nodes, None, |listens| Config::quick(1 << 30, EXPORT, listens))
    }

    /// Like [`start`](Self::start), with a directory that everybody may write to.
    pub(crate) fn start_on_disk(nodes: u8) -> Self {
        let place = testkit::temp_dir("served");
        let directory = place.path().join("data");
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let state = place.path().join("state");
        Self::start_with(nodes, Some(place), |listens| {
            Config::quick_dir(&directory, Some(&state), EXPORT, listens)
        })
    }

    fn start_with(
        nodes: u8,
        place: Option<testkit::TempDir>,
        config: impl Fn(&[SocketAddr]) -> Config,
    ) -> Self {
        let addresses: Vec<IpAddr> = (1..=nodes).map(|node| IpAddr::from([127, 0, 0, node])).collect();
        // A port that is free on the first address may be taken on another; then the next free port
        // is tried.
        for _ in 0..20 {
            let port = testkit::free_port();
            let listens: Vec<SocketAddr> = addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
            let versions = "3,4.1,4.2".parse().unwrap();
            if let Ok(server) = Server::start(Config { versions, ..config(&listens) }) {
                return Self { _server: server, _place: place, addresses, port };
            }
        }
        panic!("no port that is free on {nodes} addresses");
    }

    /// The address of a node; the index starts at 0 and wraps around.
    pub(crate) fn node(&self, index: usize) -> IpAddr {
        self.addresses[index % self.addresses.len()]
    }
}

/// Runs a program until it ends and returns its output.
///
/// # Panics
/// If the program fails.
#[track_caller]
pub(crate) fn run(command: Command) -> String {
    let line = format!("{command:?}");
    let mut process = Process::spawn(command);
    let status = process.wait(TIMEOUT);
    assert!(status.success(), "{line}: {status}\n{}", process.all_output());
    process.output(Stream::Out)
}

/// Bytes that depend on the position and the seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len.div_ceil(8)).flatten().take(len).collect()
}

/// Fails without printing megabytes if two contents differ.
#[track_caller]
pub(crate) fn assert_same(what: &str, found: &[u8], wanted: &[u8]) {
    assert_eq!(found.len(), wanted.len(), "{what}: length");
    if let Some(at) = found.iter().zip(wanted).position(|(found, wanted)| found != wanted) {
        panic!("{what}: byte {at} is {:#04x}, not {:#04x}", found[at], wanted[at]);
    }
}
