//! A write whose connection ends while its loop stands still, so that the loop has not seen the end
//! when the blocks of the write become free, is not executed: the system is asked right before. Nor
//! is a release of a reservation.

use crate::late::{BLOCKS, asked, data, keep_alive, write};
use crate::nodes::{of_nodes, owned};
use crate::peer::{BLOCK, Host, PATIENCE, blocks, host_config, nqn};
use crate::reservations::{Store, acquire, register, release_command, report};
use nvme::host::{CommandData, HostConfig};
use nvme::io::IoFlags;
use nvme::pdu::Digests;
use nvme::reservation::{AcquireAction, Persistence, ReleaseAction, ReservationType};
use nvme::{HostId, IoOpcode, Sqe, Status};
use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use target::{Node, Target};
use testkit::Deadline;
use volumes::testing::{Faults, faulty_volume};
use volumes::{BlockSize, Volume};

/// Longer than a command counts as that of a connected host without a look at its connection.
const STALE: Duration = Duration::from_millis(10);
/// The blocks of the write that must not be executed, of another one, and of a READ.
const UNSEEN: u64 = 0;
const OTHER: u64 = 100;
const READ: u64 = 200;
/// The blocks of the largest write.
const MEBIBYTE: usize = (1 << 20) / BLOCK;

/// What the target's system knows of the connection when the loop goes on.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The host has closed its side (FIN).
    Closed,
    /// It is reset (RST).
    Reset,
}

struct Case {
    volume: Volume,
    faults: Faults,
    target: Target,
}

impl Case {
    fn new() -> Self {
        let (volume, faults) = faulty_volume(BLOCKS, BlockSize::B4096, false);
        let mut config = of_nodes(&[Node::A]);
        config.loops = 1;
        config.reservations = Some(Arc::new(Store::default()));
        let target = Target::start(&config, &[owned(1, volume.clone(), Node::A)]).unwrap();
        Self { volume, faults, target }
    }

    fn connect(&self, config: HostConfig) -> Host {
        Host::connect_to(self.target.addresses()[0], config, Digests::default()).unwrap()
    }

    /// The host whose connection ends, and another one.
    fn hosts(&self) -> [Host; 2] {
        let another =
            HostConfig { host: nqn("nqn.2026-11.test:c"), host_id: HostId([9; 16]), ..host_config(1) };
        [self.connect(host_config(1)), self.connect(another)]
    }

    fn wait_for_commands(&self, commands: usize) {
        let there = || (self.volume.commands() == commands).then_some(());
        Deadline::wait_until("commands at the volume", PATIENCE, there);
    }

    /// What the first of these blocks holds.
    fn fill_of(&self, block: u64) -> u8 {
        self.faults.content(block * BLOCK as u64..block * BLOCK as u64 + 1)[0]
    }
}

fn read() -> Sqe {
    blocks(IoOpcode::READ, 1, READ, 1, IoFlags::NONE)
}

/// Ends a connection, and waits until the system of the target knows that.
fn end(stream: TcpStream, end: End) {
    let [target, host] = [stream.peer_addr(), stream.local_addr()].map(|address| address.unwrap().port());
    let ours = match end {
        End::Closed => {
            stream.shutdown(Shutdown::Write).unwrap();
            Some(stream)
        }
        End::Reset => {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            drop(stream);
            None
        }
    };
    // proc_net_tcp(5): the number of a line, the local and the remote address, and the state.
    let ends = [format!("0100007F:{target:04X}"), format!("0100007F:{host:04X}"), "01".to_owned()];
    Deadline::wait_until("the end of a connection", PATIENCE, || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let is_established = |line: &str| line.split_whitespace().skip(1).take(3).eq(ends.iter());
        (!table.lines().any(is_established)).then_some(())
    });
    drop(ours);
}

/// The command waits behind another one of its blocks. The loop goes on to end that, and then finds
/// the blocks of the command free, all before it looks at the network again.
#[test]
fn a_write_that_has_waited_is_not_begun_when_its_connection_has_ended_unseen() {
    for how in [End::Closed, End::Reset] {
        let case = Case::new();
        let [mut old, mut other] = case.hosts();
        case.faults.hold_writes();
        let blocks_it = other.io[0].submit(&write(UNSEEN, 1), data(3, 1));
        assert!(case.faults.wait_held(1, PATIENCE));
        old.io[0].submit(&write(UNSEEN, 1), data(1, 1));
        case.wait_for_commands(2);
        std::thread::sleep(STALE);
        // The loop has had a turn since: that it was idle is not why it asks the system.
        keep_alive(&mut other);
        let stopped = case.faults.stop_submitters();
        let reads = other.io[0].submit(&read(), CommandData::Receive(BLOCK as u32));
        assert!(stopped.wait_stopped(1, PATIENCE));
        end(old.io.remove(0).stream, how);
        case.faults.release_writes();
        drop(stopped);
        for cid in [blocks_it, reads] {
            assert_eq!(other.io[0].wait(cid).0.status, Status::SUCCESS);
        }
        case.wait_for_commands(0);
        assert_eq!(case.fill_of(UNSEEN), 3, "{how:?}");
    }
}

/// The command is read at once when the loop goes on, which cannot know how long the command had
/// been in its socket.
#[test]
fn a_write_that_is_read_by_a_late_loop_is_not_begun_when_its_connection_has_ended_unseen() {
    for how in [End::Closed, End::Reset] {
        let case = Case::new();
        let [mut old, mut other] = case.hosts();
        let stopped = case.faults.stop_submitters();
        let reads = other.io[0].submit(&read(), CommandData::Receive(BLOCK as u32));
        assert!(stopped.wait_stopped(1, PATIENCE));
        let mut both = Vec::new();
        old.io[0].prepare(&write(OTHER, 1), data(2, 1), &mut both);
        old.io[0].prepare(&write(UNSEEN, 1), data(1, 1), &mut both);
        old.io[0].stream.write_all(&both).unwrap();
        std::thread::sleep(STALE);
        stopped.let_one_on();
        // The first of both is begun, while the second one, read in the same round, is not.
        assert!(stopped.wait_stopped(2, PATIENCE));
        end(old.io.remove(0).stream, how);
        drop(stopped);
        assert_eq!(other.io[0].wait(reads).0.status, Status::SUCCESS);
        case.wait_for_commands(0);
        assert_eq!((case.fill_of(OTHER), case.fill_of(UNSEEN)), (2, 0), "{how:?}");
    }
}

/// A host that has lost a path may release on another one, and acquire again: a release that comes
/// late must not end the new reservation.
#[test]
fn a_release_that_is_read_by_a_late_loop_is_not_executed_when_its_connection_has_ended() {
    let kind = ReservationType::WRITE_EXCLUSIVE;
    let case = Case::new();
    let [mut old, mut other] = case.hosts();
    assert_eq!(register(&mut old.io[0], Persistence::NO_CHANGE, 1), Status::SUCCESS);
    assert_eq!(acquire(&mut old.io[0], AcquireAction::ACQUIRE, kind, (1, 0)), Status::SUCCESS);
    // More than a loop receives of one connection in a round is before the release.
    let mut queue = old.io.remove(0);
    let cids: Vec<u16> = (0..5).map(|_| queue.submit(&write(OTHER, MEBIBYTE), data(2, MEBIBYTE))).collect();
    for _ in &cids {
        asked(&mut queue);
    }
    let stopped = case.faults.stop_submitters();
    let reads = other.io[0].submit(&read(), CommandData::Receive(BLOCK as u32));
    assert!(stopped.wait_stopped(1, PATIENCE));
    let (release, key) = release_command(ReleaseAction::RELEASE, kind, 1);
    let sends = std::thread::spawn(move || {
        cids.into_iter().for_each(|cid| queue.send_asked(cid, usize::MAX));
        queue.submit(&release, key);
        queue
    });
    std::thread::sleep(STALE);
    stopped.let_one_on();
    assert!(stopped.wait_stopped(2, PATIENCE));
    end(sends.join().unwrap().stream, End::Closed);
    std::thread::sleep(STALE);
    drop(stopped);
    assert_eq!(other.io[0].wait(reads).0.status, Status::SUCCESS);
    let ended = || (case.target.usage().io_queues == 1).then_some(());
    Deadline::wait_until("the end of its queue", PATIENCE, ended);
    assert_eq!(report(&mut other.io[0], 4096).kind, kind);
}
