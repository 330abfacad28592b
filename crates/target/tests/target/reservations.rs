//! Reservations among hosts: who may do what, what a preemption waits for, and what a restart
//! keeps. NVMe Base, "Reservations".

use crate::peer::{
    BLOCK, Host, PATIENCE, Queue, blocks, config, export, host_config, memory_volume, nqn, random_bytes,
    wait_until_empty,
};
use nvme::command::{FUSE_FIRST, FUSE_SECOND};
use nvme::feature::{Event, Feature, FeatureId};
use nvme::host::{CommandData, HostConfig};
use nvme::io::{DatasetManagement, IoFlags};
use nvme::log_page::{GetLogPage, LogId, ReservationEvent, ReservationNotification};
use nvme::pdu::Digests;
use nvme::reservation::{
    Acquire, AcquireAction, GetReport, Key, Keys, Persistence, Register, RegisterAction, Release,
    ReleaseAction, Report, ReservationType,
};
use nvme::tcp::HostReceived;
use nvme::{HostId, IoOpcode, Sgl, Sqe, Status};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use target::{
    Access, Config, Error, Facts, Identity, Listen, Namespace, Node, Reach, ReservationStore, Target,
    Transport, Volume,
};
use testkit::Deadline;
use volumes::BlockSize;

const NO_SGL: Sgl = Sgl::Transport { length: 0 };
const CONFLICT: Status = Status::RESERVATION_CONFLICT.no_retry();
const TYPES: [ReservationType; 6] = [
    ReservationType::WRITE_EXCLUSIVE,
    ReservationType::EXCLUSIVE_ACCESS,
    ReservationType::WRITE_EXCLUSIVE_REGISTRANTS,
    ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS,
    ReservationType::WRITE_EXCLUSIVE_ALL,
    ReservationType::EXCLUSIVE_ACCESS_ALL,
];

/// Keeps reservations in memory, and fails when it is told to.
#[derive(Debug, Default)]
pub struct Store {
    saved: Mutex<BTreeMap<[u8; 16], Report>>,
    fails: AtomicBool,
    saves: AtomicUsize,
}

impl ReservationStore for Store {
    fn load(&self, volume: &Identity) -> io::Result<Option<Report>> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("the state is lost"));
        }
        Ok(self.saved.lock().unwrap().get(&volume.uuid).cloned())
    }

    fn save(&self, volume: &Identity, reservations: &Report) -> io::Result<()> {
        self.saves.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is full"));
        }
        self.saved.lock().unwrap().insert(volume.uuid, reservations.clone());
        Ok(())
    }
}

pub fn with(store: &Arc<Store>) -> Config {
    let store: Arc<dyn ReservationStore> = Arc::<Store>::clone(store);
    Config { reservations: Some(store), ..config() }
}

fn serve(store: &Arc<Store>, volume: Volume) -> Target {
    Target::start(&with(store), &[export(1, volume)]).unwrap()
}

/// A host of its own for each number.
fn of(number: u8, queues: u16) -> HostConfig {
    let host = nqn(&format!("nqn.2026-11.test:host-{number}"));
    HostConfig { host, host_id: HostId([number; 16]), ..host_config(queues) }
}

fn connect(target: &Target, number: u8, queues: u16) -> Host {
    Host::connect_with(target, of(number, queues), Digests::default()).unwrap()
}

fn keys(current: u64, other: u64) -> CommandData {
    CommandData::Send(Keys { current, other }.encode().to_vec())
}

pub fn register(queue: &mut Queue, persistence: Persistence, key: u64) -> Status {
    let action = RegisterAction::REGISTER;
    let register = Register { action, ignore_existing_key: false, persistence };
    queue.command(&register.command(0, 1, NO_SGL), keys(0, key)).0.status
}

fn acquire_sqe(action: AcquireAction, kind: ReservationType) -> Sqe {
    Acquire { action, ignore_existing_key: false, kind }.command(0, 1, NO_SGL)
}

pub fn acquire(
    queue: &mut Queue,
    action: AcquireAction,
    kind: ReservationType,
    (current, other): (u64, u64),
) -> Status {
    queue.command(&acquire_sqe(action, kind), keys(current, other)).0.status
}

pub fn release_command(action: ReleaseAction, kind: ReservationType, key: u64) -> (Sqe, CommandData) {
    let sqe = Release { action, ignore_existing_key: false, kind }.command(0, 1, NO_SGL);
    (sqe, CommandData::Send(Key { current: key }.encode().to_vec()))
}

fn release(queue: &mut Queue, action: ReleaseAction, kind: ReservationType, key: u64) -> Status {
    let (sqe, key) = release_command(action, kind, key);
    queue.command(&sqe, key).0.status
}

pub fn report(queue: &mut Queue, bytes: u32) -> Report {
    let sqe = GetReport { bytes: bytes.into(), extended: true }.command(0, 1, NO_SGL);
    let (cqe, data) = queue.command(&sqe, CommandData::Receive(bytes));
    assert_eq!((cqe.status, data.len()), (Status::SUCCESS, bytes as usize));
    Report::decode(&data).unwrap()
}

/// A command that touches blocks; how it ends.
fn try_io(queue: &mut Queue, opcode: IoOpcode) -> Status {
    let sqe = blocks(opcode, 1, 3, 1, IoFlags::NONE);
    let (sqe, data) = match opcode {
        IoOpcode::READ => (sqe, CommandData::Receive(BLOCK as u32)),
        IoOpcode::WRITE => (sqe, CommandData::Send(vec![1; BLOCK])),
        IoOpcode::DATASET_MANAGEMENT => {
            let sqe = DatasetManagement { ranges: 1, deallocate: true }.command(0, 1, NO_SGL);
            (sqe, CommandData::Send(vec![0; 16]))
        }
        _ => (sqe, CommandData::None),
    };
    queue.command(&sqe, data).0.status
}

/// Compares a block that nobody writes.
fn try_compare(queue: &mut Queue) -> Status {
    let compare = blocks(IoOpcode::COMPARE, 1, 99, 1, IoFlags::NONE);
    queue.command(&compare, CommandData::Send(vec![0; BLOCK])).0.status
}

/// The halves of a pair that compares that block, and writes what is there already.
fn halves() -> (Sqe, Sqe) {
    let of = |opcode, part| {
        let sqe = blocks(opcode, 1, 99, 1, IoFlags::NONE);
        Sqe { flags: sqe.flags | part, ..sqe }
    };
    (of(IoOpcode::COMPARE, FUSE_FIRST), of(IoOpcode::WRITE, FUSE_SECOND))
}

fn try_pair(queue: &mut Queue) -> (Status, Status) {
    let (first, second) = halves();
    let first = queue.submit(&first, CommandData::Send(vec![0; BLOCK]));
    let second = queue.submit(&second, CommandData::Send(vec![0; BLOCK]));
    (queue.wait(first).0.status, queue.wait(second).0.status)
}

/// NVMe Base, "Command Behavior in the Presence of a Reservation"
#[test]
fn hosts_may_do_what_the_type_of_the_reservation_and_their_registration_say() {
    let target = serve(&Arc::default(), memory_volume(1));
    let mut hosts: Vec<Host> = (1..=3).map(|number| connect(&target, number, 2)).collect();
    let writes = [IoOpcode::WRITE, IoOpcode::WRITE_ZEROES, IoOpcode::DATASET_MANAGEMENT, IoOpcode::FLUSH];
    for host in [0, 1] {
        let key = host as u64 + 1;
        assert_eq!(register(&mut hosts[host].io[0], Persistence::NO_CHANGE, key), Status::SUCCESS);
    }
    // Whether a registrant writes and reads, and whether a stranger reads.
    let table = [
        (false, true, true),
        (false, false, false),
        (true, true, true),
        (true, true, false),
        (true, true, true),
        (true, true, false),
    ];
    for (kind, (registrant_writes, registrant_reads, stranger_reads)) in TYPES.into_iter().zip(table) {
        assert_eq!(acquire(&mut hosts[0].io[1], AcquireAction::ACQUIRE, kind, (1, 0)), Status::SUCCESS);
        let rights = [(true, true), (registrant_writes, registrant_reads), (false, stranger_reads)];
        for (host, (may_write, may_read)) in hosts.iter_mut().zip(rights) {
            let expected = |may| if may { Status::SUCCESS } else { CONFLICT };
            // Both queues of a host, whichever loops they are on.
            for queue in &mut host.io {
                assert_eq!(try_io(queue, IoOpcode::READ), expected(may_read), "{kind:?}");
                let compared = try_compare(queue);
                assert_eq!(compared, expected(may_read), "{kind:?}");
                let of_pair = match (may_read, may_write) {
                    (true, true) => (Status::SUCCESS, Status::SUCCESS),
                    (true, false) => (Status::FAILED_FUSED, CONFLICT),
                    _ => (CONFLICT, Status::FAILED_FUSED),
                };
                assert_eq!(try_pair(queue), of_pair, "{kind:?}");
                for opcode in writes {
                    assert_eq!(try_io(queue, opcode), expected(may_write), "{kind:?} {opcode:?}");
                }
            }
        }
        assert_eq!(acquire(&mut hosts[1].io[0], AcquireAction::ACQUIRE, TYPES[0], (2, 0)), CONFLICT);
        assert_eq!(acquire(&mut hosts[2].io[0], AcquireAction::ACQUIRE, kind, (3, 0)), CONFLICT);
        assert_eq!(release(&mut hosts[0].io[0], ReleaseAction::RELEASE, kind, 1), Status::SUCCESS);
        assert_eq!(try_io(&mut hosts[2].io[0], IoOpcode::WRITE), Status::SUCCESS, "nothing is reserved");
    }
    drop(hosts);
    wait_until_empty(&target);
}

#[test]
fn a_report_names_hosts_and_their_controllers_whatever_its_length() {
    let target = serve(&Arc::default(), memory_volume(1));
    let mut one = connect(&target, 1, 1);
    let digests = Digests { header: true, data: true };
    let mut other = Host::connect_with(&target, of(2, 1), digests).unwrap();
    assert_eq!(register(&mut one.io[0], Persistence::PERSISTENT, 7), Status::SUCCESS);
    assert_eq!(register(&mut other.io[0], Persistence::NO_CHANGE, 8), Status::SUCCESS);
    assert_eq!(acquire(&mut one.io[0], AcquireAction::ACQUIRE, TYPES[2], (7, 0)), Status::SUCCESS);
    let whole = report(&mut other.io[0], 4096);
    assert_eq!((whole.generation, whole.kind, whole.persistent), (2, TYPES[2], true));
    let rows: Vec<_> = whole.registrants.iter().map(|one| (one.cntlid, one.holds, one.key)).collect();
    assert_eq!(rows, [(one.limits.cntlid, 1, 7), (other.limits.cntlid, 0, 8)]);
    assert_eq!(report(&mut other.io[0], 64 << 10), whole);
    assert_eq!(report(&mut one.io[0], 1 << 20), whole);
    // Its head alone says how many there are.
    let sqe = GetReport { bytes: 64, extended: true }.command(0, 1, NO_SGL);
    let (_, head) = one.io[0].command(&sqe, CommandData::Receive(64));
    assert_eq!(head[5], 2);
    let short = GetReport { bytes: 64, extended: false }.command(0, 1, NO_SGL);
    let status = one.io[0].command(&short, CommandData::Receive(64)).0.status;
    assert_eq!(status, Status::HOST_ID_INCONSISTENT.no_retry());
}

/// What has begun ends before the preemption is answered; what has not begun is refused.
#[test]
fn a_preemption_is_answered_only_when_what_the_old_host_has_begun_has_ended() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, false);
    let target = serve(&Arc::default(), volume.clone());
    let (mut good, mut old) = (connect(&target, 1, 2), connect(&target, 2, 2));
    let kind = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS;
    assert_eq!(register(&mut good.io[0], Persistence::NO_CHANGE, 1), Status::SUCCESS);
    assert_eq!(register(&mut old.io[0], Persistence::NO_CHANGE, 2), Status::SUCCESS);
    assert_eq!(acquire(&mut old.io[0], AcquireAction::ACQUIRE, kind, (2, 0)), Status::SUCCESS);
    faults.hold_writes();
    let one = |at| blocks(IoOpcode::WRITE, 1, at, 1, IoFlags::NONE);
    // The first one is with the drive, the second one waits for its blocks on another queue.
    let begun = old.io[0].submit(&one(0), CommandData::Send(vec![1; BLOCK]));
    assert!(faults.wait_held(1, PATIENCE));
    let waits = old.io[1].submit(&one(0), CommandData::Send(vec![2; BLOCK]));
    Deadline::wait_until("the second write", PATIENCE, || (volume.commands() == 2).then_some(()));
    // The data of the third one were asked for, and are not sent yet.
    let large = blocks(IoOpcode::WRITE, 1, 0, 64, IoFlags::NONE);
    let asked = old.io[1].submit(&large, CommandData::Send(vec![3; 64 * BLOCK]));
    assert_eq!(old.io[1].receive_only().unwrap(), HostReceived::Asked { cid: asked });
    let sqe = acquire_sqe(AcquireAction::PREEMPT_AND_ABORT, kind);
    let preemption = good.io[0].submit(&sqe, keys(1, 2));
    assert_eq!(old.io[1].wait(waits).0.status, CONFLICT, "it had not begun");
    assert_eq!(try_io(&mut old.io[0], IoOpcode::WRITE), CONFLICT);
    // Whatever else the good host does is answered, the preemption is not.
    for _ in 0..20 {
        assert_eq!(good.io[0].read(1, 9, 1), vec![0; BLOCK]);
    }
    assert!(!good.io[0].is_done(preemption) && faults.held() == 1);
    faults.release_writes();
    assert_eq!(old.io[0].wait(begun).0.status, Status::SUCCESS);
    assert_eq!(good.io[0].wait(preemption).0.status, Status::SUCCESS);
    assert_eq!(good.io[1].write(1, 0, &vec![4; 64 * BLOCK]), Status::SUCCESS);
    // The old host sends what it was asked for: nothing of it is written.
    old.io[1].send_asked(asked, usize::MAX);
    assert_eq!(old.io[1].wait(asked).0.status, CONFLICT);
    assert!(good.io[0].read(1, 0, 64) == vec![4; 64 * BLOCK]);
    assert_eq!(report(&mut old.io[0], 4096).registrants.len(), 1);
    drop((good, old));
    wait_until_empty(&target);
}

/// Of each queue of the old host, a pair is at another point when the preemption comes.
#[test]
fn a_pair_that_is_not_whole_when_its_host_is_preempted_fails_in_both_halves() {
    let target = serve(&Arc::default(), memory_volume(1));
    let (mut good, mut old) = (connect(&target, 1, 1), connect(&target, 2, 5));
    let kind = ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS;
    assert_eq!(register(&mut good.io[0], Persistence::NO_CHANGE, 1), Status::SUCCESS);
    assert_eq!(register(&mut old.io[0], Persistence::NO_CHANGE, 2), Status::SUCCESS);
    assert_eq!(acquire(&mut old.io[0], AcquireAction::ACQUIRE, kind, (2, 0)), Status::SUCCESS);
    let (first, second) = halves();
    let data = |byte| CommandData::Send(vec![byte; BLOCK]);
    // The queues: only the first half, with or without its data; both, and both are asked for, or
    // one has sent one half or the other.
    let mut sent = Vec::new();
    for (at, queue) in old.io.iter_mut().enumerate() {
        queue.machine.set_capsule_data_bytes(if at == 0 { 8192 } else { 0 });
        let one = queue.submit(&first, data(0));
        let other = (at >= 2).then(|| queue.submit(&second, data(7)));
        if let Some(other) = other {
            for _ in 0..2 {
                assert!(matches!(queue.receive_only().unwrap(), HostReceived::Asked { .. }));
            }
            match at {
                3 => queue.send_asked(one, usize::MAX),
                4 => queue.send_asked(other, usize::MAX),
                _ => {}
            }
        }
        sent.push((one, other));
    }
    // What was sent is taken before the preemption is: the queue answers in between.
    for queue in &mut old.io[3..] {
        queue.machine.set_capsule_data_bytes(8192);
        assert_eq!(queue.read(1, 0, 1), vec![0; BLOCK]);
    }
    assert_eq!(acquire(&mut good.io[0], AcquireAction::PREEMPT, kind, (1, 2)), Status::SUCCESS);
    for (at, (queue, (one, other))) in old.io.iter_mut().zip(sent).enumerate() {
        let other = other.unwrap_or_else(|| queue.submit(&second, data(7)));
        match at {
            2 => [one, other].into_iter().for_each(|cid| queue.send_asked(cid, usize::MAX)),
            3 => queue.send_asked(other, usize::MAX),
            4 => queue.send_asked(one, usize::MAX),
            _ => {}
        }
        let statuses = (queue.wait(one).0.status, queue.wait(other).0.status);
        let failed = |status: Status| status == CONFLICT || status == Status::FAILED_FUSED;
        assert!(failed(statuses.0) && failed(statuses.1), "{at}: {statuses:?}");
        assert!(statuses.0 == CONFLICT || statuses.1 == CONFLICT, "{at}: {statuses:?}");
        // The tags of the pair are free again, and mean nothing.
        for _ in 0..3 {
            assert_eq!(try_pair(queue), (CONFLICT, Status::FAILED_FUSED));
        }
    }
    assert_eq!(good.io[0].read(1, 99, 1), vec![0; BLOCK]);
    drop((good, old));
    wait_until_empty(&target);
}

/// A host that is silent is what preemptions are for.
#[test]
fn a_preemption_does_not_wait_for_a_host_that_sends_nothing_and_survives_its_end() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, BlockSize::B4096, false);
    let target = serve(&Arc::default(), volume);
    let (mut good, mut old) = (connect(&target, 1, 1), connect(&target, 2, 2));
    assert_eq!(register(&mut good.io[0], Persistence::NO_CHANGE, 1), Status::SUCCESS);
    let large = blocks(IoOpcode::WRITE, 1, 0, 64, IoFlags::NONE);
    let asked = old.io[1].submit(&large, CommandData::Send(vec![3; 64 * BLOCK]));
    assert_eq!(old.io[1].receive_only().unwrap(), HostReceived::Asked { cid: asked });
    let kind = ReservationType::EXCLUSIVE_ACCESS;
    assert_eq!(acquire(&mut good.io[0], AcquireAction::ACQUIRE, kind, (1, 0)), Status::SUCCESS);
    assert_eq!(release(&mut good.io[0], ReleaseAction::RELEASE, kind, 1), Status::SUCCESS);
    // A write that is with the drive when its connection ends is waited for all the same.
    faults.hold_writes();
    old.io[0].submit(&blocks(IoOpcode::WRITE, 1, 5, 1, IoFlags::NONE), CommandData::Send(vec![7; BLOCK]));
    assert!(faults.wait_held(1, PATIENCE));
    drop(old);
    // That of the write stays until the write has ended.
    Deadline::wait_until("the end of the host", PATIENCE, || (target.usage().connections == 3).then_some(()));
    let again = good.io[0].submit(&acquire_sqe(AcquireAction::ACQUIRE, kind), keys(1, 0));
    for _ in 0..20 {
        assert_eq!(good.io[0].read(1, 9, 1), vec![0; BLOCK]);
    }
    assert!(!good.io[0].is_done(again));
    faults.release_writes();
    assert_eq!(good.io[0].wait(again).0.status, Status::SUCCESS);
    assert_eq!(good.io[0].read(1, 5, 1), vec![7; BLOCK]);
    drop(good);
    wait_until_empty(&target);
}

/// Writes of every size, on several queues, while the right to write is taken away.
#[test]
fn after_a_preemption_nothing_of_the_old_host_is_written() {
    const REGION: u64 = 256;
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = serve(&Arc::default(), crate::data::file_volume(dir.path()));
    let mut good = connect(&target, 1, 1);
    let kind = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS;
    assert_eq!(register(&mut good.io[0], Persistence::NO_CHANGE, 1), Status::SUCCESS);
    for round in 0..10 {
        let mut old = connect(&target, 2, 3);
        assert_eq!(register(&mut old.io[0], Persistence::NO_CHANGE, 2), Status::SUCCESS);
        assert_eq!(acquire(&mut old.io[0], AcquireAction::ACQUIRE, kind, (2, 0)), Status::SUCCESS);
        let written = Arc::new(AtomicUsize::new(0));
        let write = |(index, mut queue): (usize, Queue)| {
            let written = Arc::clone(&written);
            move || {
                let mut random = fastrand::Rng::with_seed(round * 10 + index as u64);
                loop {
                    let writes: Vec<u16> = (0..8)
                        .map(|_| {
                            let count = [1, 2, 7, 32][random.usize(..4)];
                            let at = random.u64(..REGION - count);
                            let sqe = blocks(IoOpcode::WRITE, 1, at, count as usize, IoFlags::NONE);
                            queue.submit(&sqe, CommandData::Send(vec![1; count as usize * BLOCK]))
                        })
                        .collect();
                    let ends: Vec<Status> = writes.into_iter().map(|cid| queue.wait(cid).0.status).collect();
                    assert!(ends.iter().all(|end| end.is_success() || *end == CONFLICT), "{ends:?}");
                    written.fetch_add(ends.iter().filter(|end| end.is_success()).count(), Ordering::SeqCst);
                    if ends.contains(&CONFLICT) {
                        break;
                    }
                }
            }
        };
        let threads: Vec<_> = old.io.drain(..).enumerate().map(|queue| thread::spawn(write(queue))).collect();
        Deadline::wait_until("writes", PATIENCE, || (written.load(Ordering::SeqCst) > 20).then_some(()));
        let action = if round % 2 == 0 { AcquireAction::PREEMPT } else { AcquireAction::PREEMPT_AND_ABORT };
        assert_eq!(acquire(&mut good.io[0], action, kind, (1, 2)), Status::SUCCESS);
        let mine = random_bytes(round, REGION as usize * BLOCK);
        assert_eq!(good.io[0].write(1, 0, &mine), Status::SUCCESS);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(good.io[0].read(1, 0, REGION as usize) == mine, "round {round}");
        assert_eq!(release(&mut good.io[0], ReleaseAction::RELEASE, kind, 1), Status::SUCCESS);
    }
}

#[test]
fn what_is_to_persist_is_there_after_a_restart_and_the_rest_is_not() {
    let store = Arc::new(Store::default());
    let volume = memory_volume(1);
    let target = serve(&store, volume.clone());
    let (mut one, mut other) = (connect(&target, 1, 1), connect(&target, 2, 1));
    assert_eq!(register(&mut other.io[0], Persistence::NO_CHANGE, 2), Status::SUCCESS);
    assert_eq!(store.saves.load(Ordering::SeqCst), 0, "nothing is to persist");
    assert_eq!(register(&mut one.io[0], Persistence::PERSISTENT, 1), Status::SUCCESS);
    assert_eq!(acquire(&mut one.io[0], AcquireAction::ACQUIRE, TYPES[1], (1, 0)), Status::SUCCESS);
    assert_eq!(store.saves.load(Ordering::SeqCst), 2);
    let before = report(&mut one.io[0], 4096);
    drop((one, other));
    target.stop();
    // A host that comes first after the restart finds the reservation of the other one.
    let target = serve(&store, volume.clone());
    let mut other = connect(&target, 2, 1);
    assert_eq!(try_io(&mut other.io[0], IoOpcode::READ), CONFLICT);
    assert_eq!(try_io(&mut other.io[0], IoOpcode::WRITE), CONFLICT);
    let mut one = connect(&target, 1, 1);
    let after = report(&mut one.io[0], 4096);
    assert_eq!((after.generation, after.kind, after.persistent), (before.generation, TYPES[1], true));
    assert_eq!(after.registrants.len(), 2);
    assert_eq!(try_io(&mut one.io[0], IoOpcode::WRITE), Status::SUCCESS);
    // From now on it is not to persist, which is kept too.
    let volatile = Register {
        action: RegisterAction::REPLACE,
        ignore_existing_key: false,
        persistence: Persistence::VOLATILE,
    };
    assert_eq!(one.io[0].command(&volatile.command(0, 1, NO_SGL), keys(1, 1)).0.status, Status::SUCCESS);
    drop((one, other));
    target.stop();
    let target = serve(&store, volume);
    let mut other = connect(&target, 2, 1);
    assert_eq!(try_io(&mut other.io[0], IoOpcode::WRITE), Status::SUCCESS);
    assert_eq!(report(&mut other.io[0], 4096).registrants, []);
}

#[test]
fn a_command_whose_state_cannot_be_saved_fails_and_changes_nothing() {
    let store = Arc::new(Store::default());
    let target = serve(&store, memory_volume(1));
    let (mut one, mut other) = (connect(&target, 1, 1), connect(&target, 2, 1));
    assert_eq!(register(&mut one.io[0], Persistence::PERSISTENT, 1), Status::SUCCESS);
    store.fails.store(true, Ordering::SeqCst);
    let failed = acquire(&mut one.io[0], AcquireAction::ACQUIRE, TYPES[1], (1, 0));
    assert_eq!(failed, Status::INTERNAL_ERROR);
    assert_eq!(register(&mut other.io[0], Persistence::NO_CHANGE, 2), Status::INTERNAL_ERROR);
    let persistence = Feature::set(0, FeatureId::RESERVATION_PERSISTENCE, 0, NO_SGL);
    let persistence = Sqe { nsid: 1, ..persistence };
    assert_eq!(one.admin.command(&persistence, CommandData::None).0.status, Status::INTERNAL_ERROR);
    let before = report(&mut other.io[0], 4096);
    assert_eq!((before.kind, before.registrants.len(), before.persistent), (ReservationType::NONE, 1, true));
    assert_eq!(try_io(&mut other.io[0], IoOpcode::WRITE), Status::SUCCESS);
    store.fails.store(false, Ordering::SeqCst);
    assert_eq!(acquire(&mut one.io[0], AcquireAction::ACQUIRE, TYPES[1], (1, 0)), Status::SUCCESS);
    assert_eq!(try_io(&mut other.io[0], IoOpcode::READ), CONFLICT);
    assert_eq!(one.admin.command(&persistence, CommandData::None).0.status, Status::SUCCESS);
    let get = Feature::get(0, FeatureId::RESERVATION_PERSISTENCE, 0, NO_SGL);
    assert_eq!(one.admin.command(&Sqe { nsid: 1, ..get }, CommandData::None).0.result, 0);
}

#[test]
fn a_target_does_not_start_without_the_reservations_that_were_saved() {
    let store = Arc::new(Store::default());
    let start = || Target::start(&with(&store), &[export(1, memory_volume(1))]);
    store.fails.store(true, Ordering::SeqCst);
    let error = start().unwrap_err();
    assert!(matches!(&error, Error::Reservations { name, .. } if name == "v"), "{error}");
    store.fails.store(false, Ordering::SeqCst);
    let damaged = Report { generation: 1, kind: TYPES[0], persistent: true, registrants: Vec::new() };
    store.saved.lock().unwrap().insert([1; 16], damaged);
    assert!(matches!(start(), Err(Error::Reservations { .. })), "a reservation without a holder");
}

/// NVMe Base, "Reservation Notifications"
#[test]
fn hosts_are_told_of_what_others_have_taken_from_them() {
    let target = serve(&Arc::default(), memory_volume(1));
    let (mut one, mut other) = (connect(&target, 1, 1), connect(&target, 2, 1));
    let kind = ReservationType::WRITE_EXCLUSIVE;
    assert_eq!(register(&mut one.io[0], Persistence::NO_CHANGE, 1), Status::SUCCESS);
    assert_eq!(register(&mut other.io[0], Persistence::NO_CHANGE, 2), Status::SUCCESS);
    assert_eq!(acquire(&mut other.io[0], AcquireAction::ACQUIRE, kind, (2, 0)), Status::SUCCESS);
    assert_eq!(acquire(&mut one.io[0], AcquireAction::PREEMPT, kind, (1, 2)), Status::SUCCESS);
    // After the answers to what it has asked for before.
    loop {
        if let HostReceived::Completed(end) = other.admin.receive_only().unwrap()
            && Event::of(end.result) == Event::RESERVATIONS
        {
            break;
        }
    }
    let get = GetLogPage {
        log: LogId::RESERVATIONS,
        parameter: 0,
        retain_event: false,
        bytes: 64,
        offset: 0,
        nsid: nvme::NSID_ALL,
    };
    let (_, log) = other.admin.command(&get.command(0, NO_SGL), CommandData::Receive(64));
    let notification = ReservationNotification::decode(&log).unwrap();
    assert_eq!((notification.event, notification.nsid), (ReservationEvent::REGISTRATION_PREEMPTED, 1));
}

#[test]
fn without_a_store_there_are_no_reservations() {
    let target = crate::peer::start();
    let mut host = Host::connect(&target, 1);
    let refused = Status::INVALID_OPCODE.no_retry();
    assert_eq!(register(&mut host.io[0], Persistence::NO_CHANGE, 1), refused);
    assert!(!host.limits.commands.has(nvme::identify::OptionalCommands::RESERVATIONS));
}

/// The reservations of a volume go with it to another node, whether they are to persist or not.
#[test]
fn reservations_go_with_the_volume_to_the_other_node() {
    let (store, volume) = (Arc::new(Store::default()), memory_volume(1));
    let namespace = Namespace { nsid: 1, facts: Facts::of(&volume), hosts: Access::Any, owner: Node::A };
    let directory = tempfile::TempDir::new().unwrap();
    let start = |node| {
        let listen =
            vec![Listen { address: "127.0.0.1:0".parse().unwrap(), transport: Transport::Tcp, node }];
        let config = Config { listen, ..with(&store) };
        Target::start_node(&config, std::slice::from_ref(&namespace), directory.path()).unwrap()
    };
    let owned = |owner| target::pair::Record { owner, epoch: 1 };
    let take = |target: &Target, node| {
        target.set_backing(1, &volume).unwrap();
        target.set_reach(1, owned(node), Reach::Serving);
    };
    for persistence in [Persistence::VOLATILE, Persistence::PERSISTENT] {
        store.saved.lock().unwrap().clear();
        let [first, second] = [Node::A, Node::B].map(start);
        take(&first, Node::A);
        let mut one = connect(&first, 1, 1);
        assert!(register(&mut one.io[0], persistence, 0xa).is_success());
        let kind = ReservationType::WRITE_EXCLUSIVE;
        assert!(acquire(&mut one.io[0], AcquireAction::ACQUIRE, kind, (0xa, 0)).is_success());
        first.remove_backing(1);
        let refused = register(&mut one.io[0], persistence, 0xa);
        assert_eq!(refused, Status::ANA_TRANSITION);
        take(&second, Node::B);
        first.set_reach(1, owned(Node::B), Reach::Serving);
        let [mut one, mut two] = [1, 2].map(|number| connect(&second, number, 1));
        assert_eq!(two.io[0].write(1, 0, &vec![2; BLOCK]), CONFLICT);
        assert_eq!(one.io[0].write(1, 0, &vec![1; BLOCK]), Status::SUCCESS);
        assert!(register(&mut two.io[0], persistence, 0xb).is_success());
        let preempt = acquire(&mut two.io[0], AcquireAction::PREEMPT, kind, (0xb, 0xa));
        assert!(preempt.is_success());
        // And back, as the second one has left them.
        second.remove_backing(1);
        second.set_reach(1, owned(Node::A), Reach::Serving);
        take(&first, Node::A);
        let [mut one, mut two] = [1, 2].map(|number| connect(&first, number, 1));
        assert_eq!(one.io[0].write(1, 0, &vec![1; BLOCK]), CONFLICT);
        assert_eq!(two.io[0].write(1, 0, &vec![2; BLOCK]), Status::SUCCESS);
    }
}
