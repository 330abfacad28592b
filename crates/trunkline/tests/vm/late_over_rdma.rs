//! A write over RDMA that was stopped on its way does not land after newer data: wherever it was,
//! and however its host was lost. The hosts are of this test and do what stock hosts do: they do
//! not wait until the old controller is finished. Target and hosts are in a guest with Soft-RoCE.

use crate::guest::{is_in_guest, passes_in};
use crate::rdma_host::{BLOCK, Host, PATIENCE, host_config};
use crate::{alone, lab};
use nvme::end_controller::EndController;
use nvme::host::{CommandData, HostConfig};
use nvme::{AdminOpcode, HostId, IoOpcode, Nqn, Sqe, Status};
use std::time::Duration;
use target::{Access, BlockSize, Config, Export, Listen, Node, Target, Transport, Volume};
use testkit::Deadline;
use volumes::testing::{Faults, faulty_volume};

/// Where the original is when its path breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The target has read the command, and has no memory for its data.
    WithoutMemory,
    /// It waits for another write of the same blocks.
    Locked,
    /// The drive has it.
    Submitted,
}

/// How its path breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    /// The connections are ended.
    Closed,
    /// The target hears nothing, until the keep-alive timeout is over.
    Silent,
    /// The target hears nothing of it, and the host ends its old controller on another path.
    Ended,
}

const BLOCKS: u64 = 8192;
const MEBIBYTE: usize = 256;
/// Short, because silent hosts are waited for; long enough to get a write on its way in a guest.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

struct Case {
    place: Place,
    breaks: Break,
    /// The blocks of the original: one goes within its capsule, more are read by the target.
    count: usize,
    volume: Volume,
    faults: Faults,
    target: Target,
}

fn write(host: &mut Host, start: u64, count: usize, fill: u8) -> u16 {
    let sqe = crate::rdma_host::blocks(IoOpcode::WRITE, start, count);
    host.io.submit(&sqe, CommandData::Send(vec![fill; count * BLOCK]))
}

/// A command that nothing keeps from being answered.
fn keep_alive(host: &mut Host) {
    let keep_alive = Sqe::new(AdminOpcode::KEEP_ALIVE.0, 0, 0);
    let cid = host.admin.submit(&keep_alive, CommandData::None);
    assert!(host.admin.wait(cid).0.status.is_success());
}

impl Case {
    fn new((place, breaks, count): (Place, Break, usize)) -> Self {
        let (volume, faults) = faulty_volume(BLOCKS, BlockSize::B4096, false);
        let listen = |node| Listen {
            address: "10.77.1.2:0".parse().expect("an address"),
            transport: Transport::Rdma,
            node,
        };
        let subsystem = host_config().subsystem;
        let mut config = Config::new(subsystem, "1234", Access::Any, Vec::new());
        config.listen = vec![listen(Node::A), listen(Node::B)];
        // Whoever is answered knows that what came before was seen.
        config.loops = 1;
        // Emulated loops are late.
        config.limits.stall = PATIENCE;
        if place == Place::WithoutMemory {
            config.limits.memory_bytes = 8 << 20;
        }
        let export = Export { nsid: 1, volume: volume.clone(), hosts: Access::Any, owner: Node::A };
        let target = Target::start(&config, &[export]).expect("a target");
        Self { place, breaks, count, volume, faults, target }
    }

    fn connect(&self, node: usize, config: HostConfig) -> Host {
        Host::connect(self.target.addresses()[node], config)
    }

    /// Sends the original, which gets no further than to its place.
    fn send(&self, old: &mut Host) {
        match self.place {
            Place::Submitted => {
                write(old, 0, self.count, 1);
                assert!(self.faults.wait_held(1, PATIENCE));
            }
            Place::Locked => {
                write(old, 0, self.count, 1);
                Deadline::wait_until("both writes at the volume", PATIENCE, || {
                    (self.volume.commands() == 2).then_some(())
                });
            }
            Place::WithoutMemory => {
                // There is memory for four at most, and the drive keeps what it has.
                for at in 1..12 {
                    write(old, at * MEBIBYTE as u64, MEBIBYTE, 9);
                }
                write(old, 0, self.count, 1);
                assert!(self.faults.wait_held(1, PATIENCE));
            }
        }
    }

    /// The host loses its path.
    fn break_path(&self, mut old: Host, other: &mut Host) {
        match self.breaks {
            Break::Closed => {
                let connections = self.target.usage().connections;
                old.io.end();
                old.admin.end();
                // The admin queue, which has nothing under way, is the last one that was ended.
                Deadline::wait_until("the end of the connections to be seen", PATIENCE, || {
                    keep_alive(other);
                    (self.target.usage().connections < connections).then_some(())
                });
            }
            Break::Silent => {
                old.io.wait_for_end();
                old.admin.wait_for_end();
            }
            Break::Ended => {
                let ended = other.admin.submit(&EndController::Older.command(0), CommandData::None);
                if matches!(self.place, Place::Submitted | Place::WithoutMemory) {
                    // It waits for what the drive has, while other commands are answered.
                    keep_alive(other);
                    keep_alive(other);
                    assert!(!other.admin.is_done(ended), "ended while the drive writes");
                }
                self.faults.release_writes();
                assert_eq!(other.admin.wait(ended).0.status, Status::SUCCESS);
            }
        }
    }

    fn run(&self) {
        let what = format!("{:?} {:?} {} blocks", self.place, self.breaks, self.count);
        let name = Nqn::new("nqn.2026-11.test:c").expect("a name");
        let another = HostConfig { host: name, host_id: HostId([9; 16]), ..host_config() };
        let mut blocker = (self.place == Place::Locked).then(|| self.connect(1, another));
        // Older controllers are ended by a newer one; a silent host is to be there for a short
        // time.
        let is_silent = self.breaks == Break::Silent;
        let first = is_silent.then(|| self.connect(1, host_config()));
        let time = if is_silent { KEEP_ALIVE } else { host_config().keep_alive };
        let mut old = self.connect(0, HostConfig { keep_alive: time, ..host_config() });
        let mut other = first.unwrap_or_else(|| self.connect(1, host_config()));
        self.faults.hold_writes();
        let blocks_it = blocker.as_mut().map(|blocker| {
            let cid = write(blocker, 0, 1, 3);
            assert!(self.faults.wait_held(1, PATIENCE));
            cid
        });
        self.send(&mut old);
        self.break_path(old, &mut other);
        let again = write(&mut other, 0, self.count, 1);
        let newer = write(&mut other, 0, self.count, 2);
        self.faults.release_writes();
        for cid in [again, newer] {
            assert_eq!(other.io.wait(cid).0.status, Status::SUCCESS, "{what}");
        }
        let is_newer = |host: &mut Host| host.read(0, self.count) == vec![2; self.count * BLOCK];
        assert!(is_newer(&mut other), "{what}");
        if let (Some(mut blocker), Some(cid)) = (blocker, blocks_it) {
            assert_eq!(blocker.io.wait(cid).0.status, Status::SUCCESS, "{what}");
        }
        Deadline::wait_until("the end of the old controller", PATIENCE, || {
            (self.target.usage().controllers == 1).then_some(())
        });
        assert!(is_newer(&mut other), "{what}");
    }
}

#[test]
fn a_late_original_over_rdma_does_not_land_wherever_it_was_and_however_its_host_was_lost() {
    const NAME: &str = "late_over_rdma::\
         a_late_original_over_rdma_does_not_land_wherever_it_was_and_however_its_host_was_lost";
    if !is_in_guest() {
        let _turn = alone();
        return passes_in(lab().server(), NAME);
    }
    let mut cases = Vec::new();
    for breaks in [Break::Closed, Break::Silent, Break::Ended] {
        for (place, count) in [
            (Place::WithoutMemory, 16),
            (Place::Locked, 1),
            (Place::Locked, 16),
            (Place::Submitted, 1),
            (Place::Submitted, 16),
        ] {
            cases.push((place, breaks, count));
        }
    }
    let count = cases.len();
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || Case::new(case).run());
        }
    });
    println!("{count} late originals over RDMA");
}
