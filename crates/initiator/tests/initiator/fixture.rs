//! A target, and a host of it.

use initiator::{Attachment, Config, HostId, Nqn, Volume};
use std::net::SocketAddr;
use std::time::Duration;
use target::{Access, Export, Node, Target};
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

/// Two nodes with an address each; volume 1 is owned by the first.
pub fn pair() -> Target {
    let addresses = ["127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap()].to_vec();
    let mut config = target::Config::new(nqn(SUBSYSTEM), "1234", Access::Any, addresses);
    config.listen[1].node = Node::B;
    config.loops = 2;
    config.limits.stall = Duration::from_secs(30);
    let export = Export { nsid: 1, volume: volume(1), hosts: Access::Any, owner: Node::A };
    Target::start(&config, &[export]).unwrap()
}

pub fn target() -> Target {
    target_with(Access::Any, &[Export { nsid: 1, volume: volume(1), hosts: Access::Any, owner: Node::A }])
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
