//! Commands that meet: in one queue, in two, and with owners that go.

use super::*;
use crate::IoCounts;
use crate::testing::{Executed, Faults, Operations, faulty_volume};
use crate::volume::BlockSize;
use drives::{Fault as DriveFault, Segment};
use smallvec::smallvec;

const LONG: Duration = Duration::from_secs(20);
const BLOCK: usize = 4096;

/// A volume, two owners as its two controllers have them, and a queue for each.
struct Rig {
    volume: Volume,
    faults: Faults,
    owners: [Owner; 2],
    queues: [Queue; 2],
}

impl Rig {
    fn new() -> Self {
        let (volume, faults) = faulty_volume(64, BlockSize::B4096, true);
        let owners = [(); 2].map(|()| volume.open_owner().unwrap());
        let queues = [(); 2].map(|()| Queue::new(8, Choice::Automatic, Arc::default()).unwrap());
        Self { volume, faults, owners, queues }
    }

    fn submit(&mut self, at: usize, tag: u64, command: Command) -> Result<(), Refusal> {
        let taken = self.queues[at].submit(&self.volume, self.owners[at], tag, command);
        taken.map_err(|rejected| rejected.why)
    }

    /// The ends of commands and drains after a turn of a queue: tags, and what became of them.
    fn turn(&mut self, at: usize) -> Vec<(u64, Result<(), Fault>)> {
        self.turn_if(at, |_| true)
    }

    fn turn_if(&mut self, at: usize, mut admit: impl FnMut(u64) -> bool) -> Vec<(u64, Result<(), Fault>)> {
        let mut events = Vec::new();
        self.queues[at].turn(&mut admit, &mut events).unwrap();
        let end = |event| match event {
            Event::Done { tag, result } => (tag, result.map(drop)),
            Event::Drained { tag } => (tag, Ok(())),
        };
        events.into_iter().map(end).collect()
    }

    /// Waits for the descriptor of a queue.
    fn is_woken(&self, at: usize, time: Duration) -> bool {
        let limit = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.queues[at], PollFlags::IN)], Some(&limit)) != Ok(0)
    }

    fn executed(&self) -> Vec<u64> {
        let writes = |one: &Executed| one.kind == Operations::Writes;
        self.faults.executed().iter().filter(|one| writes(one)).map(|one| one.tag).collect()
    }

    fn byte(&self, lba: usize) -> u8 {
        let at = (lba * BLOCK) as u64;
        self.faults.content(at..at + 1)[0]
    }
}

fn blocks(count: usize, with: u8) -> Payload {
    let mut buffer = Arc::new(Buffers::default()).take(count * BLOCK);
    buffer.fill(with);
    smallvec![Segment::from(buffer)]
}

fn write(lba: u64, count: usize, with: u8) -> Command {
    Command::Write { lba, payload: blocks(count, with), durable: false }
}

#[test]
fn a_late_original_is_executed_before_its_retry_or_never() {
    let mut rig = Rig::new();
    rig.faults.hold_writes();
    rig.submit(0, 1, write(0, 4, 1)).unwrap();
    rig.submit(0, 2, write(2, 4, 2)).unwrap();
    assert_eq!(rig.turn(0), []);
    assert!(rig.faults.wait_held(1, LONG));
    // The connection breaks. Its first write is with the device, its second one waits for that.
    let (volume, owner) = (rig.volume.clone(), rig.owners[0]);
    assert!(rig.queues[0].drain(&volume, owner, 99));
    assert!(!rig.queues[1].drain(&volume, owner, 98), "it is being drained");
    assert_eq!(rig.turn(0), [(2, Err(Fault::Cancelled))]);
    assert_eq!(rig.submit(0, 3, write(9, 1, 3)), Err(Refusal::Drained));
    // The host sends both again on another path, and newer data.
    rig.submit(1, 11, write(0, 4, 11)).unwrap();
    rig.submit(1, 12, write(2, 4, 12)).unwrap();
    rig.submit(1, 13, write(1, 1, 13)).unwrap();
    assert_eq!(rig.turn(1), []);
    assert!(!rig.faults.wait_held(2, Duration::ZERO), "the retry waits for its original");
    rig.faults.release_writes();
    assert!(rig.is_woken(0, LONG));
    assert_eq!(rig.turn(0), [(1, Ok(())), (99, Ok(()))]);
    assert!(rig.is_woken(1, LONG), "the other queue is told");
    let mut ends = rig.turn(1);
    while ends.len() < 3 {
        assert!(rig.is_woken(1, LONG));
        ends.extend(rig.turn(1));
    }
    let content: Vec<u8> = (0..7).map(|lba| rig.byte(lba)).collect();
    assert_eq!(content, [11, 13, 12, 12, 12, 12, 0]);
    assert_eq!(rig.executed().len(), 4, "the cancelled write was never executed");
    assert!(!rig.queues[0].drain(&volume, owner, 98), "the owner is gone");
    assert_eq!(rig.volume.commands(), 0);
}

#[test]
fn what_a_connection_has_left_is_refused_when_it_would_begin() {
    let mut rig = Rig::new();
    rig.submit(0, 1, write(0, 1, 1)).unwrap();
    rig.submit(0, 2, write(1, 1, 2)).unwrap();
    rig.submit(1, 3, write(0, 1, 3)).unwrap();
    assert_eq!(rig.turn_if(0, |tag| tag == 2), [(1, Err(Fault::Cancelled)), (2, Ok(()))]);
    assert_eq!(rig.turn(1), [(3, Ok(()))]);
    assert_eq!((rig.byte(0), rig.byte(1)), (3, 2));
}

#[test]
fn a_command_is_cancelled_until_it_begins() {
    let mut rig = Rig::new();
    rig.faults.hold_writes();
    rig.submit(0, 1, write(0, 2, 1)).unwrap();
    rig.submit(0, 2, write(1, 2, 2)).unwrap();
    rig.submit(0, 3, write(2, 2, 3)).unwrap();
    assert_eq!(rig.turn(0), []);
    assert!(!rig.queues[0].cancel(1), "it has begun");
    assert!(rig.queues[0].cancel(2) && !rig.queues[0].cancel(2));
    // The third one waited for the second one alone.
    assert_eq!(rig.turn(0), [(2, Err(Fault::Cancelled))]);
    assert!(rig.faults.wait_held(2, LONG));
    rig.faults.release_writes();
    assert_eq!(rig.turn(0), [(1, Ok(())), (3, Ok(()))]);
    assert_eq!([0, 1, 2, 3].map(|lba| rig.byte(lba)), [1, 1, 3, 3]);
}

#[test]
fn a_full_queue_and_a_wrong_range_give_the_command_back() {
    let mut rig = Rig::new();
    rig.faults.hold_writes();
    for tag in 0..8 {
        rig.submit(0, tag, write(tag, 1, 1)).unwrap();
    }
    assert_eq!(rig.submit(0, 8, write(8, 1, 1)), Err(Refusal::Full));
    assert_eq!(rig.submit(0, 8, write(64, 1, 1)), Err(Refusal::OutOfRange), "that is said first");
    assert_eq!(rig.submit(1, 8, write(8, 1, 1)), Ok(()), "the other queue has room");
    assert_eq!(rig.submit(1, 9, Command::Read { lba: 63, blocks: 2 }), Err(Refusal::OutOfRange));
    assert_eq!(rig.turn(0), []);
    rig.faults.release_writes();
    assert_eq!(rig.turn(0).len(), 8);
    rig.submit(0, 8, write(8, 1, 1)).unwrap();
    assert_eq!(rig.volume.commands(), 2);
}

#[test]
fn a_read_waits_for_a_write_that_came_before_it() {
    let mut rig = Rig::new();
    rig.faults.hold_writes();
    rig.submit(0, 1, write(0, 8, 5)).unwrap();
    rig.submit(1, 2, Command::Read { lba: 7, blocks: 2 }).unwrap();
    rig.submit(1, 3, Command::Read { lba: 8, blocks: 2 }).unwrap();
    assert_eq!(rig.turn(0), []);
    assert_eq!(rig.turn(1), [(3, Ok(()))]);
    rig.faults.release_writes();
    assert_eq!(rig.turn(0), [(1, Ok(()))]);
    let mut events = Vec::new();
    rig.queues[1].turn(&mut |_| true, &mut events).unwrap();
    let Some(Event::Done { tag: 2, result: Ok(read) }) = events.pop() else { panic!("{events:?}") };
    assert_eq!((read[0].as_bytes()[0], read[0].as_bytes()[BLOCK]), (5, 0));
}

#[test]
fn a_compare_tells_where_blocks_differ_and_a_write_depends_on_it() {
    let mut rig = Rig::new();
    rig.submit(0, 1, write(0, 2, 1)).unwrap();
    assert_eq!(rig.turn(0), [(1, Ok(()))]);
    let compare = |lba| Command::Compare { lba, payload: blocks(2, 1) };
    rig.submit(0, 2, compare(0)).unwrap();
    rig.submit(0, 3, compare(1)).unwrap();
    assert_eq!(rig.turn(0), [(2, Ok(())), (3, Err(Fault::Miscompare { at: BLOCK }))]);
    let swap = |expected, with| {
        let (expected, payload) = (blocks(2, expected), blocks(2, with));
        Command::CompareAndWrite { lba: 0, expected, payload, durable: true }
    };
    // Both expect what was there; the first one changes it.
    rig.submit(0, 4, swap(1, 2)).unwrap();
    rig.submit(1, 5, swap(1, 3)).unwrap();
    let mut ends = rig.turn(0);
    ends.extend(rig.turn(1));
    assert_eq!(ends, [(4, Ok(())), (5, Err(Fault::Miscompare { at: 0 }))]);
    assert!(rig.volume.statistics().iter().all(|(_, tally)| tally.errors == 0), "no drive has failed");
    assert_eq!(rig.byte(1), 2);
    rig.faults.cut_power(0);
    assert_eq!(rig.byte(1), 2, "it was durable");
}

#[test]
#[allow(clippy::single_range_in_vec_init)]
fn a_discard_of_overlapping_ranges_does_not_wait_for_itself() {
    let mut rig = Rig::new();
    rig.submit(0, 1, write(0, 20, 1)).unwrap();
    rig.submit(0, 2, Command::Discard { ranges: smallvec![12..14, 1..3, 2..5, 8..8] }).unwrap();
    rig.submit(0, 3, write(4, 1, 7)).unwrap();
    rig.submit(0, 4, Command::Discard { ranges: smallvec![3..3] }).unwrap();
    let zero = Command::WriteZeroes { lba: 17, blocks: 2, deallocate: false, durable: false };
    rig.submit(0, 5, zero).unwrap();
    let mut ends: Vec<u64> =
        rig.turn(0).into_iter().map(|(tag, result)| result.map(|()| tag).unwrap()).collect();
    ends.sort_unstable();
    assert_eq!(ends, [1, 2, 3, 4, 5]);
    let content: Vec<u8> = (0..20).map(|lba| rig.byte(lba)).collect();
    assert_eq!(content, [1, 0, 0, 0, 7, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1]);
}

#[test]
fn a_discard_waits_for_all_its_ranges_and_a_drain_cancels_it_whole() {
    let mut rig = Rig::new();
    rig.faults.hold_writes();
    rig.submit(0, 1, write(10, 1, 1)).unwrap();
    assert_eq!(rig.turn(0), []);
    rig.submit(1, 2, Command::Discard { ranges: smallvec![0..2, 10..12, 20..22] }).unwrap();
    rig.submit(0, 3, write(20, 1, 3)).unwrap();
    assert_eq!((rig.turn(0), rig.turn(1)), (vec![], vec![]));
    assert!(!rig.faults.wait_held(2, Duration::ZERO), "the discard has its blocks already");
    let (volume, owner) = (rig.volume.clone(), rig.owners[1]);
    assert!(rig.queues[1].drain(&volume, owner, 9));
    assert_eq!(rig.turn(1), [(2, Err(Fault::Cancelled)), (9, Ok(()))]);
    assert_eq!(rig.turn(0), []);
    assert!(rig.faults.wait_held(2, LONG), "the blocks of the discard are free");
    rig.faults.release_writes();
    assert_eq!(rig.turn(0), [(1, Ok(())), (3, Ok(()))]);
}

#[test]
fn a_flush_is_not_ordered_and_is_drained_with_its_owner() {
    let mut rig = Rig::new();
    rig.submit(0, 1, write(0, 1, 1)).unwrap();
    assert_eq!(rig.turn(0), [(1, Ok(()))]);
    rig.faults.hold_writes();
    rig.submit(0, 2, write(0, 1, 2)).unwrap();
    rig.submit(0, 3, Command::Flush).unwrap();
    assert_eq!(rig.turn(0), [(3, Ok(()))]);
    rig.faults.cut_power(1);
    assert_eq!(rig.turn(0), [(2, Err(Fault::Drive(DriveFault::Gone)))]);
    assert!(matches!(rig.byte(0), 1 | 2), "what was flushed is there, or newer");
}

#[test]
fn faults_of_the_drive_end_the_command_and_free_its_blocks() {
    let mut rig = Rig::new();
    rig.faults.fail_next(Operations::Writes, DriveFault::NoSpace);
    rig.faults.fail_next(Operations::Reads, DriveFault::Medium);
    rig.submit(0, 1, write(0, 1, 1)).unwrap();
    rig.submit(0, 2, Command::Read { lba: 0, blocks: 1 }).unwrap();
    rig.submit(0, 3, write(0, 1, 3)).unwrap();
    let failed = |fault| Err(Fault::Drive(fault));
    let expected = [(1, failed(DriveFault::NoSpace)), (2, failed(DriveFault::Medium)), (3, Ok(()))];
    assert_eq!(rig.turn(0), expected);
    assert_eq!(rig.byte(0), 3);
}

#[test]
fn a_fault_tells_whether_the_blocks_were_compared() {
    let mut rig = Rig::new();
    let pair =
        || Command::CompareAndWrite { lba: 0, expected: blocks(1, 0), payload: blocks(1, 7), durable: false };
    rig.faults.fail_next(Operations::Reads, DriveFault::Medium);
    rig.submit(0, 1, pair()).unwrap();
    assert_eq!(rig.turn(0), [(1, Err(Fault::Unread(DriveFault::Medium)))]);
    rig.faults.fail_next(Operations::Writes, DriveFault::NoSpace);
    rig.submit(0, 2, pair()).unwrap();
    assert_eq!(rig.turn(0), [(2, Err(Fault::Drive(DriveFault::NoSpace)))]);
    rig.submit(0, 3, pair()).unwrap();
    assert_eq!(rig.turn(0), [(3, Ok(()))]);
    assert_eq!(rig.byte(0), 7);
}

#[test]
fn a_queue_that_is_dropped_cancels_what_has_not_begun_and_keeps_the_rest_locked() {
    let mut rig = Rig::new();
    rig.faults.hold_writes();
    rig.submit(0, 1, write(0, 2, 1)).unwrap();
    rig.submit(0, 2, write(1, 2, 2)).unwrap();
    assert_eq!(rig.turn(0), []);
    rig.submit(1, 3, write(2, 1, 3)).unwrap();
    rig.submit(1, 4, write(0, 1, 4)).unwrap();
    rig.queues[0] = Queue::new(8, Choice::Automatic, Arc::default()).unwrap();
    assert_eq!(rig.turn(1), []);
    assert!(rig.faults.wait_held(2, LONG), "the write that had not begun is gone");
    rig.faults.release_writes();
    assert_eq!(rig.turn(1), [(3, Ok(()))], "nobody knows when the write of the old queue has ended");
    assert_eq!(rig.byte(2), 3);
    assert!(rig.queues[1].cancel(4));
}

#[test]
fn commands_are_counted_by_kind_and_size_with_their_latency() {
    let mut rig = Rig::new();
    rig.faults.fail_next(Operations::Reads, DriveFault::Medium);
    rig.submit(0, 1, write(0, 4, 1)).unwrap();
    rig.submit(0, 2, Command::Read { lba: 0, blocks: 1 }).unwrap();
    assert_eq!(rig.turn(0).len(), 2);
    rig.submit(0, 3, Command::Read { lba: 0, blocks: 1 }).unwrap();
    rig.submit(0, 4, write(0, 1, 1)).unwrap();
    assert_eq!(rig.turn_if(0, |tag| tag == 3).len(), 2);
    let counts = rig.volume.statistics();
    let rows: Vec<_> = counts.iter().collect();
    let of = |at: usize| {
        let (key, tally) = rows[at];
        let (size, bytes) = (key.size.unwrap().name(), tally.received_bytes + tally.sent_bytes);
        (key.operation.as_deref().unwrap(), size, tally.count, tally.errors, bytes, tally.latency.count())
    };
    assert_eq!(rows.len(), 2, "a command that was cancelled does not count");
    assert_eq!(of(0), ("READ", "<=4K", 2, 1, 4096, 2));
    assert_eq!(of(1), ("WRITE", "<=16K", 1, 0, 16384, 1));
    assert_eq!(rows[0].0.export.as_deref(), Some("faulty"));
}

#[test]
fn data_that_move_are_counted_as_read_and_as_written() {
    let mut rig = Rig::new();
    rig.submit(0, 1, write(0, 4, 1)).unwrap();
    rig.submit(0, 2, Command::Read { lba: 0, blocks: 1 }).unwrap();
    rig.submit(0, 3, Command::Compare { lba: 0, payload: blocks(2, 1) }).unwrap();
    rig.submit(0, 4, Command::Flush).unwrap();
    rig.submit(0, 5, Command::WriteZeroes { lba: 4, blocks: 1, deallocate: false, durable: false }).unwrap();
    let (expected, payload) = (blocks(1, 1), blocks(1, 2));
    rig.submit(0, 6, Command::CompareAndWrite { lba: 0, expected, payload, durable: false }).unwrap();
    let mut ended = 0;
    while ended < 6 {
        ended += rig.turn(0).iter().map(|(_, end)| end.unwrap()).count();
    }
    let block = BLOCK as u64;
    let counts = IoCounts { reads: 3, writes: 2, read_bytes: 4 * block, written_bytes: 5 * block };
    assert_eq!(rig.volume.io_counts(), counts);
}
