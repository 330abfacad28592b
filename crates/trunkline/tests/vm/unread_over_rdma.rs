//! A write over RDMA that lies unread in the receive queue of a node that stands still does not
//! land after newer data, which its host has written at the owner of the volume.
//!
//! The node that stands still is a process of its own, this test program once more. It does not own
//! the volume. All are in a guest with Soft-RoCE.

use crate::guest::{again, is_in_guest, passes_in};
use crate::rdma_host::{BLOCK, Host, PATIENCE, blocks, host_config};
use crate::{alone, lab};
use nvme::end_controller::{EndController, Instance};
use nvme::host::CommandData;
use nvme::identify::{Cns, CommandSet, Controller, IDENTIFY_BYTES, Identify};
use nvme::{IoOpcode, Sgl, Status};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use target::pair::Record;
use target::{Access, BlockSize, Config, Facts, Listen, Namespace, Node, Reach, Target, Transport, Volume};
use tempfile::TempDir;
use testkit::{Deadline, Process};
use volumes::testing::faulty_volume;

const NAME: &str = "unread_over_rdma::\
     a_write_that_is_unread_where_a_node_stands_still_does_not_land_after_newer_data";
/// The directory of a process that is to be the node B.
const BE: &str = "TRUNKLINE_TEST_NODE_B";
/// How many seconds that node may stand still and keep its connections.
const STALL: &str = "TRUNKLINE_TEST_STALL";
/// Emulated loops are late, but not as late.
const SHORT_STALL: Duration = Duration::from_secs(8);
const OWNED: Record = Record { owner: Node::A, epoch: 1 };

/// What becomes of the connections that the host has to B, while that stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The host ends its I/O queue.
    Closed,
    /// Nothing, for longer than B accepts.
    Stalled,
    /// The process of B is killed.
    Killed,
    /// Nothing. A host must not write elsewhere then, and what it wrote here first lands last. This
    /// shows that the write was there, in all the other cases too.
    Nothing,
}

fn volume() -> (Volume, volumes::testing::Faults) {
    faulty_volume(64, BlockSize::B4096, false)
}

fn start(node: Node, volume: &Volume, directory: &Path, stall: Duration) -> Target {
    let mut config = Config::new(host_config().subsystem, "1234", Access::Any, Vec::new());
    let address = "10.77.1.2:0".parse().expect("an address");
    config.listen = vec![Listen { address, transport: Transport::Rdma, node }];
    config.loops = 1;
    config.limits.stall = stall;
    let namespace = Namespace { nsid: 1, facts: Facts::of(volume), hosts: Access::Any, owner: Node::A };
    Target::start_node(&config, &[namespace], directory).expect("a node")
}

fn be_the_node(directory: &Path) {
    let stall = std::env::var(STALL).expect("it is set").parse().expect("seconds");
    let target = start(Node::B, &volume().0, directory, Duration::from_secs(stall));
    target.set_reach(1, OWNED, Reach::Serving);
    println!("\nnode B at {}", target.addresses()[0]);
    loop {
        std::thread::park();
    }
}

fn started_node(directory: &Path, stall: Duration) -> (Process, SocketAddr) {
    let mut command = again(NAME);
    command.env(BE, directory).env(STALL, stall.as_secs().to_string());
    let node = Process::spawn(command);
    let line = node.wait_for_line("node B at ", PATIENCE);
    let address = line.rsplit(' ').next().and_then(|address| address.trim().parse().ok());
    (node, address.expect("an address"))
}

fn stand_still(node: &Process) {
    node.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", node.id());
    Deadline::wait_until("B stands still", PATIENCE, || {
        std::fs::read_to_string(&stat).expect("it is there").contains(") T ").then_some(())
    });
}

/// What the controller of a host is called by those who have it ended.
fn instance(host: &mut Host) -> Instance {
    let identify = Identify { cns: Cns::CONTROLLER, cntid: 0, command_set: CommandSet(0), nsid: 0 };
    let bytes = IDENTIFY_BYTES as u32;
    let cid = host.admin.submit(&identify.command(0, Sgl::NONE), CommandData::Receive(bytes));
    let (cqe, data) = host.admin.wait(cid);
    assert_eq!(cqe.status, Status::SUCCESS);
    Instance::of(&Controller::decode(&data).expect("a controller")).expect("it has a name")
}

fn write(host: &mut Host, fill: u8) -> u16 {
    host.io.submit(&blocks(IoOpcode::WRITE, 0, 1), CommandData::Send(vec![fill; BLOCK]))
}

fn run(loss: Loss) {
    let directory = TempDir::new().expect("a directory");
    let (volume, _faults) = volume();
    let owner = start(Node::A, &volume, directory.path(), PATIENCE);
    owner.set_backing(1, &volume).expect("it is the owner");
    owner.set_reach(1, OWNED, Reach::Serving);
    let stall = if loss == Loss::Stalled { SHORT_STALL } else { PATIENCE };
    let (mut node, address) = started_node(directory.path(), stall);
    let mut direct = Host::connect(owner.addresses()[0], host_config());
    let mut old = Host::connect(address, host_config());
    let ends = EndController::One(instance(&mut old)).command(0);

    stand_still(&node);
    let original = write(&mut old, 1);
    // The device delivers it meanwhile, which needs nothing of either process.
    std::thread::sleep(Duration::from_secs(1));
    match loss {
        Loss::Closed => old.io.end(),
        Loss::Stalled => std::thread::sleep(SHORT_STALL),
        Loss::Killed => node.kill(),
        Loss::Nothing => {}
    }
    let newer = write(&mut direct, 2);
    assert_eq!(direct.io.wait(newer).0.status, Status::SUCCESS, "{loss:?}");
    if loss != Loss::Killed {
        // A command counts as that of a connected host for 50 ms.
        std::thread::sleep(Duration::from_secs(1));
        node.signal(Signal::CONT);
        match loss {
            Loss::Nothing => assert_eq!(old.io.wait(original).0.status, Status::SUCCESS),
            Loss::Stalled => old.io.wait_for_end(),
            Loss::Closed | Loss::Killed => {}
        }
        // Nothing of the old controller is left after that.
        let mut last = Host::connect(address, host_config());
        let ended = last.admin.submit(&ends, CommandData::None);
        assert_eq!(last.admin.wait(ended).0.status, Status::SUCCESS, "{loss:?}");
    }
    Deadline::wait_until("the end of all", PATIENCE, || (volume.commands() == 0).then_some(()));
    let found = direct.read(0, 1);
    assert!(found == [found[0]; BLOCK]);
    assert_eq!(found[0], if loss == Loss::Nothing { 1 } else { 2 }, "{loss:?}");
}

#[test]
fn a_write_that_is_unread_where_a_node_stands_still_does_not_land_after_newer_data() {
    if !is_in_guest() {
        let _turn = alone();
        return passes_in(lab().server(), NAME);
    }
    if let Some(directory) = std::env::var_os(BE) {
        return be_the_node(Path::new(&directory));
    }
    std::thread::scope(|scope| {
        for loss in [Loss::Closed, Loss::Stalled, Loss::Killed, Loss::Nothing] {
            scope.spawn(move || run(loss));
        }
    });
}
