//! A write that was stopped on its way by the node that does not own its volume does not land after
//! newer data that its host has written at the owner: wherever it was, and however the way broke.
//!
//! The node that forwards is a process of its own, so that it can stand still and be killed. It is
//! this test program once more.

use crate::forward::of_node;
use crate::late::{BLOCKS, Break, KEEP_ALIVE, MEBIBYTE, asked, data, keep_alive, write};
use crate::nodes::of_nodes;
use crate::peer::{BLOCK, Host, PATIENCE, Queue, host_config, nqn};
use crate::unix_relay::UnixRelay;
use nvme::end_controller::{EndController, Instance};
use nvme::host::{CommandData, HostConfig};
use nvme::identify::{Cns, CommandSet, Controller, IDENTIFY_BYTES, Identify};
use nvme::pdu::Digests;
use nvme::{HostId, Sgl, Sqe, Status};
use rustix::process::Signal;
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use target::pair::Record;
use target::{Access, Facts, Namespace, Node, Reach, Target, Volume};
use tempfile::TempDir;
use testkit::{Deadline, Process};
use volumes::BlockSize;
use volumes::testing::{Faults, faulty_volume};

/// The directory of a process that is to be the node B.
const BE: &str = "TRUNKLINE_TEST_FORWARDER";
/// The largest writes of a volume that the owner takes at a time from the other node.
const WINDOW: usize = 6;

/// Where the original is when the way breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the socket of B, which stands still.
    Unread,
    /// B has asked for its data, and has half of them.
    HalfReceived,
    /// B has all of it, and the owner takes no more now.
    NotForwarded,
    /// B has forwarded it, and the owner has not read it.
    Forwarded,
    /// At the owner, it waits for another write of the same blocks.
    Locked,
    /// The drive of the owner has it.
    Submitted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Of(Break),
    /// The process of B is killed.
    Killed,
}

fn namespace(volume: &Volume) -> Namespace {
    Namespace { nsid: 1, facts: Facts::of(volume), hosts: Access::Any, owner: Node::A }
}

fn volume() -> (Volume, Faults) {
    faulty_volume(BLOCKS, BlockSize::B4096, false)
}

fn start(node: Node, volume: &Volume, directory: &Path) -> Target {
    let mut config = of_node(&of_nodes(&[node]), node);
    // Whoever is answered knows that what came before was seen.
    config.loops = 1;
    Target::start_node(&config, &[namespace(volume)], directory).unwrap()
}

const OWNED: Record = Record { owner: Node::A, epoch: 1 };

/// Is the node B, if this process is to be that.
fn be_the_forwarder() {
    let Some(directory) = std::env::var_os(BE) else { return };
    let target = start(Node::B, &volume().0, Path::new(&directory));
    target.set_reach(1, OWNED, Reach::Serving);
    println!("\nnode B at {}", target.addresses()[0]);
    loop {
        std::thread::park();
    }
}

struct Case {
    place: Place,
    loss: Loss,
    count: usize,
    volume: Volume,
    faults: Faults,
    owner: Target,
    forwarder: Process,
    address: SocketAddr,
    relay: UnixRelay,
    _directory: TempDir,
}

impl Case {
    fn new(test: &str, place: Place, loss: Loss, count: usize) -> Self {
        let directory = TempDir::new().unwrap();
        let (volume, faults) = volume();
        let owner = start(Node::A, &volume, directory.path());
        owner.set_backing(1, &volume).unwrap();
        owner.set_reach(1, OWNED, Reach::Serving);
        let relay = UnixRelay::before(&directory.path().join("forward-A.sock"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(BE, directory.path());
        let forwarder = Process::spawn(command);
        let line = forwarder.wait_for_line("node B at ", PATIENCE);
        let address = line.rsplit(' ').next().unwrap().trim().parse().unwrap();
        Self { place, loss, count, volume, faults, owner, forwarder, address, relay, _directory: directory }
    }

    fn connect(&self, address: SocketAddr, config: HostConfig) -> Host {
        Host::connect_to(address, config, Digests::default()).unwrap()
    }

    /// Another host has the blocks of the original at the owner, or all that this takes from B.
    fn occupy(&self) -> Option<(Host, Vec<u16>)> {
        let another =
            HostConfig { host: nqn("nqn.2026-11.test:c"), host_id: HostId([9; 16]), ..host_config(1) };
        match self.place {
            Place::Locked => {
                let mut host = self.connect(self.owner.addresses()[0], another);
                self.faults.hold_writes();
                let cid = host.io[0].submit(&write(0, 1), data(3, 1));
                assert!(self.faults.wait_held(1, PATIENCE));
                Some((host, vec![cid]))
            }
            Place::NotForwarded => {
                let mut host = self.connect(self.address, another);
                self.faults.hold_writes();
                let large = |at: usize| write((at * MEBIBYTE) as u64, MEBIBYTE);
                let submit = |at| host.io[0].submit(&large(at), data(9, MEBIBYTE));
                let cids = (1..=WINDOW).map(submit).collect();
                (0..WINDOW).for_each(|_| _ = host.io[0].receive().unwrap());
                assert!(self.faults.wait_held(WINDOW, PATIENCE));
                Some((host, cids))
            }
            _ => None,
        }
    }

    /// Sends the original, which gets no further than to its place.
    fn send(&self, io: &mut Queue, other: &mut Option<Host>) {
        match self.place {
            Place::Unread => {
                self.forwarder.signal(Signal::STOP);
                let stat = format!("/proc/{}/stat", self.forwarder.id());
                Deadline::wait_until("B stands still", PATIENCE, || {
                    std::fs::read_to_string(&stat).unwrap().contains(") T ").then_some(())
                });
            }
            Place::Forwarded => self.relay.hold(),
            Place::Submitted => self.faults.hold_writes(),
            Place::HalfReceived | Place::NotForwarded | Place::Locked => {}
        }
        io.submit(&write(0, self.count), data(1, self.count));
        if self.place == Place::HalfReceived {
            let cid = asked(io);
            return io.send_asked(cid, self.count * BLOCK / 2);
        }
        if self.count > 1 {
            io.receive().unwrap();
        }
        match self.place {
            Place::Unread | Place::HalfReceived => {}
            Place::NotForwarded => other.iter_mut().for_each(see_what_came_before),
            Place::Forwarded => {
                Deadline::wait_until("forwarded", PATIENCE, || (self.relay.kept_bytes() > 0).then_some(()));
            }
            Place::Locked => Deadline::wait_until("commands at the volume", PATIENCE, || {
                (self.volume.commands() == 2).then_some(())
            }),
            Place::Submitted => assert!(self.faults.wait_held(1, PATIENCE)),
        }
    }

    /// The host loses its way by B. Returns the admin queue if the host still has it: the I/O queues
    /// are closed first, and their commands move at once.
    fn lose(&mut self, old: Host, other: &mut Option<Host>, ends: &Sqe) -> Option<Queue> {
        let keeps_admin = self.place == Place::Unread;
        let Host { admin, io: mut queues, .. } = old;
        let admin = if keeps_admin {
            Some(admin)
        } else {
            queues.push(admin);
            None
        };
        match self.loss {
            Loss::Of(Break::Closed) => {
                queues.iter().for_each(|queue| queue.stream.shutdown(Shutdown::Write).unwrap());
            }
            Loss::Of(Break::Reset) => queues.iter().for_each(|queue| {
                rustix::net::sockopt::set_socket_linger(&queue.stream, Some(Duration::ZERO)).unwrap();
            }),
            Loss::Of(Break::Silent) => queues.iter_mut().for_each(Queue::wait_for_end),
            Loss::Of(Break::Ended) => self.end_controller(other.as_mut().unwrap(), ends),
            Loss::Killed => self.forwarder.kill(),
        }
        drop(queues);
        if self.place != Place::Unread && self.loss != Loss::Killed {
            other.iter_mut().for_each(see_what_came_before);
        }
        admin
    }

    /// The host ends its old controller by another connection to B.
    fn end_controller(&self, other: &mut Host, ends: &Sqe) {
        let ended = other.admin.submit(ends, CommandData::None);
        if matches!(self.place, Place::Forwarded | Place::Submitted) {
            // The owner may still execute what B has forwarded.
            see_what_came_before(other);
            assert!(!other.admin.is_done(ended), "{:?}: ended", self.place);
            self.thaw();
        }
        assert_eq!(other.admin.wait(ended).0.status, Status::SUCCESS);
    }

    fn thaw(&self) {
        if self.loss != Loss::Killed {
            self.forwarder.signal(Signal::CONT);
        }
        self.relay.pass();
        self.faults.release_writes();
    }

    fn run(&mut self) {
        let what = format!("{:?} {:?} {} blocks", self.place, self.loss, self.count);
        let is_silent = self.loss == Loss::Of(Break::Silent);
        let keep_alive = if is_silent { KEEP_ALIVE } else { host_config(1).keep_alive };
        let mut occupied = self.occupy();
        let mut direct = self.connect(self.owner.addresses()[0], host_config(1));
        let mut old = self.connect(self.address, HostConfig { keep_alive, ..host_config(1) });
        let mut other = (!is_silent).then(|| self.connect(self.address, host_config(1)));
        let ends = EndController::One(instance(&mut old)).command(0);
        self.send(&mut old.io[0], &mut other);
        let _admin = self.lose(old, &mut other, &ends);
        let newer = direct.io[0].submit(&write(0, self.count), data(2, self.count));
        if self.count > 1 {
            direct.io[0].receive().unwrap();
        }
        match self.place {
            // They wait for those that the drive has.
            Place::Locked | Place::Submitted => self.thaw(),
            Place::NotForwarded => {
                assert!(self.faults.wait_held(WINDOW + 1, PATIENCE), "{what}");
                assert!(self.faults.release_nth(WINDOW));
            }
            Place::Unread | Place::HalfReceived | Place::Forwarded => {}
        }
        assert_eq!(direct.io[0].wait(newer).0.status, Status::SUCCESS, "{what}");
        // A command counts as that of a connected host for 50 ms.
        std::thread::sleep(Duration::from_millis(60));
        self.thaw();
        if self.loss != Loss::Killed {
            if let Some((host, cids)) = &mut occupied {
                cids.iter().for_each(|cid| assert_eq!(host.io[0].wait(*cid).0.status, Status::SUCCESS));
            }
            // Nothing of the old controller is left after that.
            let mut last = self.connect(self.address, host_config(1));
            let ended = last.admin.command(&ends, CommandData::None);
            assert_eq!(ended.0.status, Status::SUCCESS, "{what}");
        }
        Deadline::wait_until("the end of all", PATIENCE, || (self.volume.commands() == 0).then_some(()));
        assert!(direct.io[0].read(1, 0, self.count) == vec![2; self.count * BLOCK], "{what}");
    }
}

/// What the controller of a host is called by those who have it ended.
fn instance(host: &mut Host) -> Instance {
    let identify = Identify { cns: Cns::CONTROLLER, cntid: 0, command_set: CommandSet(0), nsid: 0 };
    let bytes = IDENTIFY_BYTES as u32;
    let sqe = identify.command(0, Sgl::Transport { length: bytes });
    let (cqe, data) = host.admin.command(&sqe, CommandData::Receive(bytes));
    assert_eq!(cqe.status, Status::SUCCESS);
    Instance::of(&Controller::decode(&data).unwrap()).unwrap()
}

/// The only loop of B has had two turns since then.
fn see_what_came_before(host: &mut Host) {
    keep_alive(host);
    keep_alive(host);
}

fn cases() -> Vec<(Place, Loss)> {
    let mut cases = Vec::new();
    let breaks = [Break::Closed, Break::Reset, Break::Silent, Break::Ended].map(Loss::Of);
    for place in [Place::HalfReceived, Place::NotForwarded, Place::Forwarded, Place::Locked, Place::Submitted]
    {
        cases.extend(breaks.into_iter().chain([Loss::Killed]).map(|loss| (place, loss)));
    }
    // While B stands still, it ends nothing.
    let breaks = [Break::Closed, Break::Reset].map(Loss::Of);
    cases.extend(breaks.into_iter().chain([Loss::Killed]).map(|loss| (Place::Unread, loss)));
    cases
}

#[test]
fn a_late_original_does_not_land_by_way_of_the_node_that_forwards() {
    be_the_forwarder();
    let test = "forwarding_late::a_late_original_does_not_land_by_way_of_the_node_that_forwards";
    std::thread::scope(|scope| {
        for (place, loss) in cases() {
            scope.spawn(move || {
                for count in [1, 16] {
                    // Only what is asked for comes later; only what is in the capsule is there.
                    let is_there = match place {
                        Place::HalfReceived => count > 1,
                        Place::Unread => count == 1,
                        _ => true,
                    };
                    if is_there {
                        Case::new(test, place, loss, count).run();
                    }
                }
            });
        }
    });
}
