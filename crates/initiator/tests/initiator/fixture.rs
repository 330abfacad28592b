//! A target, and relays in front of its addresses.

use initiator::{Attachment, Config, HostId, Nqn, Volume};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use target::{Access, Export, Target};
use volumes::{BlockSize, Identity};

pub const SUBSYSTEM: &str = "nqn.2026-11.test:array";
pub const HOST: &str = "nqn.2026-11.test:host";
pub const VOLUME_BYTES: u64 = 64 << 20;
/// Nothing here takes longer, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn nqn(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

pub fn volume(id: u8) -> target::Volume {
    let drive = target::Drive::memory(VOLUME_BYTES, VOLUME_BYTES);
    target::Volume::new("v", Identity::of_uuid([id; 16]), &drive, Some(BlockSize::B4096)).unwrap()
}

pub fn target_with(access: Access, exports: &[Export]) -> Target {
    let addresses = ["127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap()].to_vec();
    let mut config = target::Config::new(nqn(SUBSYSTEM), "1234", access, addresses);
    config.loops = 2;
    // Where the tests of all crates share two processors, loops are late.
    config.limits.stall = Duration::from_secs(30);
    Target::start(&config, exports).unwrap()
}

pub fn target() -> Target {
    target_with(Access::Any, &[Export { nsid: 1, volume: volume(1), hosts: Access::Any }])
}

pub fn config(addresses: Vec<SocketAddr>) -> Config {
    let mut config = Config::new(nqn(HOST), HostId([7; 16]), nqn(SUBSYSTEM), addresses);
    config.keep_alive = Duration::from_secs(10);
    config
}

pub fn attach(config: Config) -> (Attachment, Volume) {
    let attachment = Attachment::start(config).unwrap();
    let volume = attachment.volume(Some(1), PATIENCE).unwrap();
    (attachment, volume)
}

pub fn wait_for_paths(attachment: &Attachment, count: usize) {
    testkit::Deadline::wait_until("paths", PATIENCE, || {
        let live = attachment.paths().iter().filter(|path| path.cntlid.is_some()).count();
        (live == count).then_some(())
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Passes,
    /// Nothing passes; what was received is kept, and passes later.
    Silent,
    /// Connections end, and new ones too.
    Cut,
}

#[derive(Debug)]
struct State {
    mode: Mutex<Mode>,
    changed: Condvar,
}

impl State {
    /// Waits while the relay is silent. Returns whether bytes pass.
    fn passes(&self) -> bool {
        let mode = self.mode.lock().unwrap();
        *self.changed.wait_while(mode, |mode| *mode == Mode::Silent).unwrap() == Mode::Passes
    }
}

/// A relay in front of an address.
pub struct Relay {
    pub address: SocketAddr,
    state: Arc<State>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub fn to(target: SocketAddr) -> Self {
        Self::replacing(target, None)
    }

    /// What the target says is changed: from the first text to the second.
    pub fn replacing(target: SocketAddr, replace: Option<(&'static [u8], &'static [u8])>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { mode: Mutex::new(Mode::Passes), changed: Condvar::new() });
        let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let relay = Self { address, state: Arc::clone(&state), streams: Arc::clone(&streams) };
        std::thread::spawn(move || {
            for host in listener.incoming() {
                let Ok(host) = host else { return };
                if *state.mode.lock().unwrap() == Mode::Cut {
                    continue;
                }
                let Ok(target) = TcpStream::connect(target) else { continue };
                host.set_nodelay(true).unwrap();
                target.set_nodelay(true).unwrap();
                streams.lock().unwrap().extend([host.try_clone().unwrap(), target.try_clone().unwrap()]);
                let (to, from) = (target.try_clone().unwrap(), host.try_clone().unwrap());
                let there = Arc::clone(&state);
                std::thread::spawn(move || copy(from, to, &there, None));
                let back = Arc::clone(&state);
                std::thread::spawn(move || copy(target, host, &back, replace));
            }
        });
        relay
    }

    fn set(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
        self.state.changed.notify_all();
    }

    pub fn silence(&self) {
        self.set(Mode::Silent);
    }

    pub fn pass(&self) {
        self.set(Mode::Passes);
    }

    pub fn cut(&self) {
        self.set(Mode::Cut);
        for stream in std::mem::take(&mut *self.streams.lock().unwrap()) {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn copy(
    mut from: TcpStream,
    mut to: TcpStream,
    state: &State,
    replace: Option<(&'static [u8], &'static [u8])>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        let data = &mut buffer[..bytes];
        let found = replace.and_then(|(old, new)| {
            let at = data.windows(old.len()).position(|window| window == old)?;
            Some((at, new))
        });
        if let Some((at, new)) = found {
            data[at..at + new.len()].copy_from_slice(new);
        }
        if !state.passes() || to.write_all(data).is_err() {
            break;
        }
    }
    // What was kept for the other end has been delivered; now it learns of the end.
    let _ = to.shutdown(Shutdown::Both);
}
