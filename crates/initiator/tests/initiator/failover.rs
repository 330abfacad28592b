//! Paths that break or fall silent: nothing is lost, and no late original is executed.

use crate::fixture::{self, PATIENCE, attach, config, target, target_with, wait_for_paths};
use initiator::{Completion, Config, Error, Operation, Volume};
use nvme::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use target::{Access, Export, Node, Target};
use testkit::Relay;

const BLOCKS: u64 = 256;

fn relays(target: &Target, change: fn(&mut [u8])) -> [Relay; 2] {
    [0, 1].map(|at: usize| Relay::changing(target.addresses()[at], change))
}

/// Where Identify Controller says that there is End Controller, if that is in these bytes.
fn end_controller(bytes: &[u8]) -> Option<usize> {
    bytes.windows(8).position(|window| window == b"TRNKEND1")
}

/// As a target that knows the standard's command only.
fn standard(bytes: &mut [u8]) {
    if let Some(at) = end_controller(bytes) {
        bytes[at] = b'-';
    }
}

/// As a target that knows neither command.
fn old(bytes: &mut [u8]) {
    if let Some(at) = end_controller(bytes) {
        // CCRL.
        bytes[at - 3072 + 1807] = 0;
        bytes[at] = b'-';
    }
}

/// As a target that takes no more than 8 KiB with a command.
fn small_commands(bytes: &mut [u8]) {
    if let Some(at) = end_controller(bytes) {
        // MDTS.
        bytes[at - 3072 + 77] = 1;
    }
}

/// Whether the next answer is to be changed.
static INACCESSIBLE_NEXT: AtomicBool = AtomicBool::new(false);

/// How many more answers are to be changed, and to which status.
static REFUSED: AtomicU32 = AtomicU32::new(0);
static REFUSED_WITH: AtomicU16 = AtomicU16::new(0);

/// A response capsule of success.
fn is_success(pdu: &[u8]) -> bool {
    pdu.starts_with(&[5, 0, 24, 0, 24, 0, 0, 0]) && pdu[22..24] == [0, 0]
}

/// As a target that does not execute some commands.
fn refuse_some(bytes: &mut [u8]) {
    let Some(at) = bytes.windows(24).position(is_success) else { return };
    let left = REFUSED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if left.is_ok() {
        bytes[at + 22..at + 24].copy_from_slice(&(REFUSED_WITH.load(Ordering::Relaxed) << 1).to_le_bytes());
    }
}

/// As a target whose answer to one write says that the namespace is not accessible here, when the
/// ANA log says already that it is again. NVMe Base, "Asymmetric Namespace Access Inaccessible"
fn inaccessible_next(bytes: &mut [u8]) {
    let Some(at) = bytes.windows(24).position(is_success) else { return };
    if INACCESSIBLE_NEXT.swap(false, Ordering::Relaxed) {
        bytes[at + 22..at + 24].copy_from_slice(&(0x302_u16 << 1).to_le_bytes());
    }
}

/// Writes with a number in each block; remembers the last one that was acknowledged.
struct Load {
    volume: Volume,
    reply: Sender<Completion>,
    completions: Receiver<Completion>,
    round: u64,
}

impl Load {
    fn new(volume: &Volume) -> Self {
        let (reply, completions) = channel();
        Self { volume: volume.clone(), reply, completions, round: 0 }
    }

    /// Begins to write every block.
    fn submit(&mut self) {
        self.round += 1;
        for block in 0..BLOCKS {
            let data = Arc::new(vec![self.round as u8; 4096]);
            let operation = Operation::Write { offset: block * 4096, data, durable: false };
            self.volume.submit(operation, block, &self.reply);
        }
    }

    fn wait(&self) {
        for _ in 0..BLOCKS {
            self.completions.recv_timeout(PATIENCE).unwrap().result.unwrap();
        }
    }

    fn check(&self) {
        let data = self.volume.read(0, (BLOCKS * 4096) as usize).unwrap();
        assert!(data.iter().all(|byte| *byte == self.round as u8), "round {}", self.round);
    }
}

#[test]
fn a_path_that_is_cut_under_load_loses_nothing_and_comes_back() {
    let target = target();
    let relays = relays(&target, |_| ());
    let (attachment, volume) = attach(config(relays.iter().map(|relay| relay.address).collect()));
    wait_for_paths(&attachment, 2);
    let mut load = Load::new(&volume);
    for turn in 0..6 {
        load.submit();
        relays[turn % 2].cut();
        load.wait();
        load.check();
        relays[turn % 2].pass();
        wait_for_paths(&attachment, 2);
    }
}

#[test]
fn what_waits_for_a_path_is_divided_into_what_that_path_takes() {
    let target = target();
    let relays = [relays(&target, |_| ()), relays(&target, small_commands)];
    let [[first, _], [_, small]] = &relays;
    small.cut();
    let (attachment, volume) = attach(config(vec![first.address, small.address]));
    let data: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    volume.write(0, data.clone()).unwrap();
    assert_eq!(attachment.counters()[0].commands, 1, "1 MiB with one command");
    first.cut();
    testkit::Deadline::wait_until("no path", PATIENCE, || {
        attachment.paths().iter().all(|path| path.cntlid.is_none()).then_some(())
    });
    let (reply, completions) = channel();
    volume.submit(Operation::Read { offset: 0, memory: vec![0; data.len()] }, 0, &reply);
    small.pass();
    let read = completions.recv_timeout(PATIENCE).unwrap().result.unwrap();
    assert!(read == data, "each part in its place");
    assert_eq!(attachment.counters()[1].commands, 128);
}

/// Each path falls silent in turn while writes are on their way. They and newer data are written on
/// the other path, and then what was held is delivered.
#[track_caller]
fn newer_data_stay(config: fn(&mut Config), silence: fn(&Relay)) {
    let target = target();
    let relays = relays(&target, |_| ());
    let mut host = fixture::config(relays.iter().map(|relay| relay.address).collect());
    config(&mut host);
    let (attachment, volume) = attach(host);
    let mut load = Load::new(&volume);
    for turn in 0..4 {
        wait_for_paths(&attachment, 2);
        let relay = &relays[turn % 2];
        silence(relay);
        // Some of these are held by the relay, and are sent again on the other path.
        load.submit();
        load.wait();
        // Newer data.
        load.submit();
        load.wait();
        load.check();
        // Now the relay delivers the late originals.
        relay.pass();
        wait_for_paths(&attachment, 2);
        load.check();
    }
}

#[test]
fn a_write_held_on_a_silent_path_is_never_executed_after_its_retry() {
    newer_data_stay(|_| (), Relay::silence);
}

/// The connection of one I/O queue is lost on its way, and those of the others are not.
#[test]
fn a_queue_that_falls_silent_is_left_although_its_controller_answers() {
    // It is not a command that takes too long.
    newer_data_stay(|config| config.timing.command = Duration::from_secs(3600), Relay::silence_newest);
}

/// A drive takes long, and there are more commands than the queues take: they are asked, and
/// answer.
#[test]
fn a_queue_whose_commands_wait_for_a_drive_is_not_taken_for_lost() {
    let (volume, faults) = volumes::testing::faulty_volume(4096, volumes::BlockSize::B4096, false);
    let export = Export { nsid: 1, volume, hosts: Access::Any, owner: Node::A };
    let target = target_with(Access::Any, &[export]);
    let mut config = config(target.addresses().to_vec());
    // Short to be asked often, and long enough for an answer of a busy machine.
    config.timing.suspect = Duration::from_millis(20);
    config.timing.silent = Duration::from_secs(5);
    config.entries = 8;
    let (attachment, volume) = attach(config);
    wait_for_paths(&attachment, 2);
    let controllers = || attachment.paths().iter().map(|path| path.cntlid).collect::<Vec<_>>();
    let before = controllers();
    let mut load = Load::new(&volume);
    faults.hold_writes();
    load.submit();
    std::thread::sleep(Duration::from_secs(8));
    assert!(load.completions.try_recv().is_err(), "the drive had them");
    assert_eq!(controllers(), before);
    faults.release_writes();
    load.wait();
    load.check();
    assert_eq!(controllers(), before);
}

#[test]
fn a_namespace_that_is_not_accessible_for_a_moment_is_asked_for_again() {
    let target = target();
    let relay = Relay::changing(target.addresses()[0], inaccessible_next);
    let (_attachment, volume) = attach(config(vec![relay.address]));
    let mut load = Load::new(&volume);
    // From here on, only writes are answered.
    load.submit();
    load.wait();
    INACCESSIBLE_NEXT.store(true, Ordering::Relaxed);
    load.submit();
    load.wait();
    assert!(!INACCESSIBLE_NEXT.load(Ordering::Relaxed));
    load.check();
}

#[test]
fn errors_are_repeated_ten_times_and_changes_of_a_path_do_not_count() {
    const ANA_TRANSITION: u16 = 0x303;
    const COMMAND_INTERRUPTED: u16 = 0x21;
    let target = target();
    let relay = Relay::changing(target.addresses()[0], refuse_some);
    let (_attachment, volume) = attach(config(vec![relay.address]));
    // From here on, only writes are answered.
    volume.write(0, vec![0; 4096]).unwrap();
    let write = |status: u16, times: u32| {
        REFUSED_WITH.store(status, Ordering::Relaxed);
        REFUSED.store(times, Ordering::Relaxed);
        volume.write(0, vec![1; 4096])
    };
    write(ANA_TRANSITION, 25).unwrap();
    write(COMMAND_INTERRUPTED, 10).unwrap();
    let error = write(COMMAND_INTERRUPTED, 12).unwrap_err();
    assert!(matches!(error, Error::Command(status) if status.is(Status::COMMAND_INTERRUPTED)), "{error:?}");
    assert_eq!(REFUSED.load(Ordering::Relaxed), 1, "the first one and ten more");
}

#[test]
fn with_one_path_requests_wait_for_its_return() {
    let target = target();
    let relay = Relay::to(target.addresses()[0]);
    let (_attachment, volume) = attach(config(vec![relay.address]));
    let mut load = Load::new(&volume);
    load.submit();
    relay.cut();
    load.submit();
    relay.pass();
    load.wait();
    load.wait();
    load.check();
}

#[test]
fn a_target_that_cannot_say_when_it_is_finished_gets_its_reads_again_at_once_and_writes_later() {
    let target = target();
    let relays = relays(&target, old);
    let mut config = config(relays.iter().map(|relay| relay.address).collect());
    config.keep_alive = Duration::from_secs(3);
    let (attachment, volume) = attach(config);
    wait_for_paths(&attachment, 2);
    let mut load = Load::new(&volume);
    load.submit();
    load.wait();

    relays[0].silence();
    load.submit();
    let (reply, reads) = channel();
    for block in 0..64 {
        let operation = Operation::Read { offset: (BLOCKS + block) * 4096, memory: vec![0; 4096] };
        volume.submit(operation, block, &reply);
    }
    for _ in 0..64 {
        reads.recv_timeout(PATIENCE).unwrap().result.unwrap();
    }
    // Writes of other blocks, which go after all that may be sent.
    for block in 0..64 {
        volume.write((2 * BLOCKS + block) * 4096, vec![9; 4096]).unwrap();
    }
    // Those that were sent on the silent path are still held back, for nine seconds.
    let done = load.completions.try_iter().count() as u64;
    assert!(done < BLOCKS, "writes were sent again before the old controller was finished");
    for _ in done..BLOCKS {
        load.completions.recv_timeout(PATIENCE).unwrap().result.unwrap();
    }
    load.check();
}

/// It had a longer keep-alive timeout than this one, and that is what its controllers go by.
#[test]
fn after_a_crash_changes_wait_until_the_controllers_of_the_one_before_are_over() {
    let target = target();
    let relays = relays(&target, old);
    let mut config = config(relays.iter().map(|relay| relay.address).collect());
    config.keep_alive = Duration::from_secs(1);
    config.after_crash = Some(Duration::from_secs(3));
    let began = Instant::now();
    let (attachment, volume) = attach(config);
    volume.read(0, 4096).unwrap();
    assert!(!attachment.is_settled());
    volume.write(0, vec![9; 4096]).unwrap();
    assert!(attachment.is_settled());
    assert!(began.elapsed() >= Duration::from_secs(9), "{:?}", began.elapsed());
    assert!(volume.read(0, 4096).unwrap() == [9; 4096]);
}

#[test]
fn a_target_of_others_is_asked_by_cross_controller_reset_and_writes_move_at_once() {
    let target = target();
    let relays = relays(&target, standard);
    let mut config = config(relays.iter().map(|relay| relay.address).collect());
    // Nothing is over by time alone before the test is.
    config.keep_alive = 4 * PATIENCE;
    let (attachment, volume) = attach(config);
    wait_for_paths(&attachment, 2);
    let mut load = Load::new(&volume);
    for turn in 0..4 {
        load.submit();
        relays[turn % 2].silence();
        load.submit();
        load.wait();
        load.wait();
        relays[turn % 2].pass();
        wait_for_paths(&attachment, 2);
    }
    load.check();
}

#[test]
fn an_attachment_ends_what_an_earlier_one_has_left() {
    let target = target();
    let relay = Relay::to(target.addresses()[0]);
    let (first, volume) = attach(config(vec![relay.address]));
    volume.write(0, vec![1; 4096]).unwrap();
    // The first one is killed while a write of it is on its way.
    relay.silence();
    let (reply, _completions) = channel();
    let late = Operation::Write { offset: 0, data: Arc::new(vec![2; 4096]), durable: false };
    volume.submit(late, 0, &reply);
    let stayed = target.usage().controllers;
    assert_eq!(stayed, 1);
    let (second, volume) = attach(config(vec![target.addresses()[1]]));
    assert_eq!(target.usage().controllers, 1, "the older controller is gone");
    volume.write(0, vec![3; 4096]).unwrap();
    relay.pass();
    drop(first);
    assert!(volume.read(0, 4096).unwrap() == vec![3; 4096]);
    drop(second);
}
