//! Values of one object on a kernel with a coarse clock, which is played: time is in milliseconds.

use super::*;
use std::cell::Cell;

const MS: u64 = 1_000_000;
/// Of the coarse clock: 100 Hz.
const TICK: u64 = 10 * MS;
/// The beginning of the played time, which is no whole second.
const START: u64 = 1_700_000_000_123_000_000;

/// A kernel with one file.
struct Kernel {
    now: Cell<u64>,
    ctime: Cell<u64>,
    /// Counts the changes.
    state: Cell<u32>,
    /// The state that was looked at last.
    seen: Cell<u32>,
    /// How long the next look is interrupted right after it has seen the file, and whether the file
    /// is changed at the beginning of that time.
    interrupt: Cell<(u64, bool)>,
    changes: Changes,
}

impl Kernel {
    fn new(local: bool) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let changes = Changes::new(SharedNumber::open(file.path()).unwrap(), false, local);
        Self {
            now: Cell::new(START),
            ctime: Cell::new(START),
            state: Cell::new(0),
            seen: Cell::new(0),
            interrupt: Cell::default(),
            changes,
        }
    }

    fn coarse(&self) -> u64 {
        self.now.get() / TICK * TICK
    }

    fn pass(&self, time: u64) {
        self.now.set(self.now.get() + time);
    }

    fn change(&self) {
        self.ctime.set(self.coarse());
        self.state.set(self.state.get() + 1);
    }

    fn stat(&self) -> Stat {
        // A real state, with another ctime.
        let mut stat = rustix::fs::stat("/").unwrap();
        stat.st_ctime = (self.ctime.get() / 1_000_000_000).cast_signed();
        stat.st_ctime_nsec = self.ctime.get() % 1_000_000_000;
        stat
    }

    fn look(&self) -> u64 {
        let clock = |id| match id {
            ClockId::RealtimeCoarse => self.coarse(),
            _ => self.now.get(),
        };
        let stat = || {
            let stat = self.stat();
            self.seen.set(self.state.get());
            let (time, changes) = self.interrupt.take();
            if changes {
                self.change();
            }
            self.pass(time);
            Ok::<_, ()>(stat)
        };
        self.changes.look_by(stat, clock).unwrap().change
    }
}

#[test]
fn states_of_one_tick_have_different_values_that_grow() {
    let kernel = Kernel::new(true);
    let mut values = vec![kernel.look()];
    for _ in 0..5 {
        kernel.change();
        values.push(kernel.look());
        values.push(kernel.look());
    }
    kernel.pass(100 * MS);
    values.push(kernel.look());
    assert!(values.is_sorted_by(|one, next| one < next), "{values:?}");
    assert_eq!(kernel.look(), *values.last().unwrap(), "it has settled");
    kernel.change();
    assert!(kernel.look() > *values.last().unwrap());
}

#[test]
fn values_grow_through_looks_and_changes_at_any_moment() {
    let kernel = Kernel::new(true);
    let mut told: Vec<(u64, u32)> = Vec::new();
    let mut random = 1_u64;
    for _ in 0..20_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = random >> 33;
        match draw % 4 {
            0 => kernel.change(),
            1 => kernel.pass(draw % (60 * MS)),
            2 => kernel.pass(draw % 1000),
            _ => {
                if draw.is_multiple_of(3) {
                    kernel.interrupt.set((draw % (80 * MS), draw.is_multiple_of(2)));
                }
                told.push((kernel.look(), kernel.seen.get()));
            }
        }
    }
    for pair in told.windows(2) {
        let [(before, of), (after, next)] = pair else { unreachable!() };
        assert!(before <= after, "{before} and then {after}");
        assert!(of == next || before < after, "states {of} and {next} have {before}");
    }
}

#[test]
fn a_look_that_is_interrupted_before_a_change_of_the_same_tick_does_not_get_its_value() {
    let kernel = Kernel::new(true);
    kernel.change();
    kernel.interrupt.set((200 * MS, true));
    let first = kernel.look();
    assert_eq!(kernel.seen.get(), 2, "the look was repeated, because the file had settled meanwhile");
    assert_eq!(kernel.look(), first);
}

#[test]
fn a_file_changed_before_the_clock_was_set_back_has_one_value_where_the_clock_is_ours() {
    for local in [true, false] {
        let kernel = Kernel::new(local);
        kernel.pass(100 * MS);
        let settled = kernel.look();
        kernel.now.set(START - 3600 * 1000 * MS);
        assert_eq!(kernel.look() == settled, local, "another machine's clock may be ahead of ours");
        kernel.change();
        let changed = kernel.look();
        assert_ne!(changed, settled);
        kernel.pass(100 * MS);
        assert!(kernel.look() > changed, "it counts from the new clock");
    }
}

#[test]
fn values_are_unique_over_processes_and_restarts() {
    let home = tempfile::tempdir().unwrap();
    let open = || Changes::new(SharedNumber::open(&home.path().join("changes")).unwrap(), false, true);
    let (one, other) = (open(), open());
    let mut values = vec![one.next(START), other.next(START), one.next(START)];
    drop((one, other));
    values.push(open().next(START));
    assert_eq!(values, [START, START + 1, START + 2, START + 3]);
}

#[test]
fn a_file_system_of_whole_seconds_gets_the_time_it_needs() {
    let kernel = Kernel::new(true);
    kernel.ctime.set(START / 1_000_000_000 * 1_000_000_000);
    let values = [kernel.look(), kernel.look()];
    assert!(values[0] < values[1], "it may still change with this ctime");
    kernel.pass(2_100 * MS);
    let settled = kernel.look();
    assert!(values[1] < settled);
    assert_eq!(kernel.look(), settled);
}
