//! A write that was stopped on its way does not land after newer data: wherever it was, and however
//! its host was lost.

use crate::nodes::{of_nodes, owned};
use crate::peer::{BLOCK, Host, PATIENCE, Queue, blocks, host_config, nqn};
use nvme::end_controller::EndController;
use nvme::host::{CommandData, HostConfig};
use nvme::io::IoFlags;
use nvme::pdu::Digests;
use nvme::tcp::HostReceived;
use nvme::{AdminOpcode, HostId, IoOpcode, Sqe, Status};
use std::net::Shutdown;
use std::time::Duration;
use target::{Node, Target};
use testkit::Deadline;
use volumes::testing::{Faults, faulty_volume};
use volumes::{BlockSize, Volume};

/// Where the original is when its path breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The target has asked for its data, and has half of them.
    HalfReceived,
    /// The target has read the command, and has no memory for its data.
    WithoutMemory,
    /// It waits for another write of the same blocks.
    Locked,
    /// The drive has it.
    Submitted,
}

/// How its path breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The connection is closed (FIN).
    Closed,
    /// The connection is reset (RST).
    Reset,
    /// The target hears nothing, until the keep-alive timeout is over.
    Silent,
    /// The target hears nothing of it, and the host ends its old controller on another path.
    Ended,
}

/// Blocks of the original, and those that fill the memory.
pub const BLOCKS: u64 = 8192;
pub const MEBIBYTE: usize = 256;
/// Short, because silent hosts are waited for; long enough to get a write on its way.
pub const KEEP_ALIVE: Duration = Duration::from_secs(3);

struct Case {
    place: Place,
    breaks: Break,
    /// The blocks of the original: one goes within its capsule.
    count: usize,
    volume: Volume,
    faults: Faults,
    target: Target,
}

pub fn write(start: u64, count: usize) -> Sqe {
    blocks(IoOpcode::WRITE, 1, start, count, IoFlags::NONE)
}

pub fn data(fill: u8, count: usize) -> CommandData {
    CommandData::Send(vec![fill; count * BLOCK])
}

/// A command that nothing keeps from being answered.
pub fn keep_alive(host: &mut Host) {
    let keep_alive = Sqe::new(AdminOpcode::KEEP_ALIVE.0, 0, 0);
    assert!(host.admin.command(&keep_alive, CommandData::None).0.status.is_success());
}

/// The next command for whose data the target asks.
pub fn asked(queue: &mut Queue) -> u16 {
    loop {
        if let HostReceived::Asked { cid } = queue.receive_only().unwrap() {
            return cid;
        }
    }
}

impl Case {
    fn new(place: Place, breaks: Break, count: usize) -> Self {
        let (volume, faults) = faulty_volume(BLOCKS, BlockSize::B4096, false);
        let mut config = of_nodes(&[Node::A, Node::B]);
        if matches!(breaks, Break::Reset | Break::Ended) || place == Place::WithoutMemory {
            // Whoever is answered knows that what came before was seen.
            config.loops = 1;
        }
        if place == Place::WithoutMemory {
            config.limits.memory_bytes = 8 << 20;
        }
        let target = Target::start(&config, &[owned(1, volume.clone(), Node::A)]).unwrap();
        Self { place, breaks, count, volume, faults, target }
    }

    fn connect(&self, node: usize, config: HostConfig) -> Host {
        Host::connect_to(self.target.addresses()[node], config, Digests::default()).unwrap()
    }

    fn wait_for_commands(&self, commands: usize) {
        let there = || (self.volume.commands() == commands).then_some(());
        Deadline::wait_until("commands at the volume", PATIENCE, there);
    }

    /// Sends the original, which gets no further than to its place.
    fn send(&self, io: &mut Queue) {
        match self.place {
            Place::Submitted => {
                io.submit(&write(0, self.count), data(1, self.count));
                if self.count > 1 {
                    io.receive().unwrap();
                }
                assert!(self.faults.wait_held(1, PATIENCE));
            }
            Place::Locked => {
                io.submit(&write(0, self.count), data(1, self.count));
                if self.count > 1 {
                    io.receive().unwrap();
                }
                self.wait_for_commands(2);
            }
            Place::HalfReceived => {
                io.submit(&write(0, self.count), data(1, self.count));
                let cid = asked(io);
                io.send_asked(cid, self.count * BLOCK / 2);
            }
            Place::WithoutMemory => {
                // There is memory for four at most, and the drive keeps what it has.
                for at in 1..20 {
                    io.submit(&write(at * MEBIBYTE as u64, MEBIBYTE), data(9, MEBIBYTE));
                }
                io.submit(&write(0, self.count), data(1, self.count));
                let first = asked(io);
                io.send_asked(first, usize::MAX);
                assert!(self.faults.wait_held(1, PATIENCE));
            }
        }
    }

    /// The host loses its path.
    fn break_path(&self, mut old: Host, other: &mut Host) {
        match self.breaks {
            Break::Closed => {
                for queue in [&mut old.io[0], &mut old.admin] {
                    queue.stream.shutdown(Shutdown::Write).unwrap();
                    // The target has seen it.
                    queue.wait_for_end();
                }
            }
            Break::Reset => {
                for queue in [&old.io[0], &old.admin] {
                    rustix::net::sockopt::set_socket_linger(&queue.stream, Some(Duration::ZERO)).unwrap();
                }
                drop(old);
                // The only loop has had a turn since then.
                keep_alive(other);
                keep_alive(other);
            }
            Break::Silent => {
                old.io[0].wait_for_end();
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
                assert_eq!(self.target.usage().controllers, self.others());
                // Without waiting for the host to close them: each of the others has two.
                Deadline::wait_until("the end of its connections", PATIENCE, || {
                    (self.target.usage().connections == 2 * self.others()).then_some(())
                });
                drop(old);
            }
        }
    }

    /// Controllers that stay.
    fn others(&self) -> usize {
        if self.place == Place::Locked { 2 } else { 1 }
    }

    fn run(&self) {
        let what = format!("{:?} {:?} {} blocks", self.place, self.breaks, self.count);
        let another =
            HostConfig { host: nqn("nqn.2026-11.test:c"), host_id: HostId([9; 16]), ..host_config(1) };
        let mut blocker = (self.place == Place::Locked).then(|| self.connect(1, another));
        let keep_alive = if self.breaks == Break::Silent { KEEP_ALIVE } else { host_config(1).keep_alive };
        // Older controllers are ended by a newer one; a silent host is to be there for a short time.
        let first = (self.breaks == Break::Silent).then(|| self.connect(1, host_config(1)));
        let mut old = self.connect(0, HostConfig { keep_alive, ..host_config(1) });
        let mut other = first.unwrap_or_else(|| self.connect(1, host_config(1)));
        self.faults.hold_writes();
        let blocks_it = blocker.as_mut().map(|blocker| {
            let cid = blocker.io[0].submit(&write(0, 1), data(3, 1));
            assert!(self.faults.wait_held(1, PATIENCE));
            cid
        });
        self.send(&mut old.io[0]);
        self.break_path(old, &mut other);
        let again = other.io[0].submit(&write(0, self.count), data(1, self.count));
        let newer = other.io[0].submit(&write(0, self.count), data(2, self.count));
        self.faults.release_writes();
        for cid in [again, newer] {
            assert_eq!(other.io[0].wait(cid).0.status, Status::SUCCESS, "{what}");
        }
        assert!(other.io[0].read(1, 0, self.count) == vec![2; self.count * BLOCK], "{what}");
        if let (Some(mut blocker), Some(cid)) = (blocker, blocks_it) {
            assert_eq!(blocker.io[0].wait(cid).0.status, Status::SUCCESS, "{what}");
            drop(blocker);
        }
        Deadline::wait_until("the end of the old controller", PATIENCE, || {
            (self.target.usage().controllers == 1).then_some(())
        });
        assert!(other.io[0].read(1, 0, self.count) == vec![2; self.count * BLOCK], "{what}");
    }
}

#[test]
fn a_late_original_does_not_land_wherever_it_was_and_however_its_host_was_lost() {
    let mut cases = Vec::new();
    for place in [Place::HalfReceived, Place::WithoutMemory, Place::Locked, Place::Submitted] {
        for breaks in [Break::Closed, Break::Reset, Break::Silent, Break::Ended] {
            for count in [1, 16] {
                // Only data that are asked for come later, or need memory.
                let comes_with_its_data = matches!(place, Place::HalfReceived | Place::WithoutMemory);
                if count > 1 || !comes_with_its_data {
                    cases.push((place, breaks, count));
                }
            }
        }
    }
    std::thread::scope(|scope| {
        for (place, breaks, count) in cases {
            scope.spawn(move || Case::new(place, breaks, count).run());
        }
    });
}
