//! Tests that every call ends, with its reply or with the mount, and that calls are sent in order.

#[path = "support/fake.rs"]
mod fake;

use client::{Done, Error, Io, Mount, MountError, Op, Pending, Settings, Task};
use fake::{Fake, block_write, file};
use std::sync::mpsc;
use std::time::Duration;

struct Panics;

impl Task for Panics {
    fn start(&mut self, _io: &mut Io<'_>) {
        panic!("a task of this test panics");
    }
    fn finished(&mut self, _io: &mut Io<'_>, _token: u64, _done: Done) {}
    fn ended(&self) -> bool {
        true
    }
}

#[test]
fn closing_the_mount_ends_calls_under_way_and_gives_their_buffers_back() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    let pending: Vec<Pending> = (0..4).map(|block| mount.submit(block_write(file, block, 4096))).collect();
    fake.next_writes(4)[1].written_as_asked(1);
    drop(mount);
    for pending in pending {
        let done = pending.wait();
        assert!(matches!(done.result, Err(Error::Closed)));
        assert_eq!(done.buffer.len(), 4096);
    }
}

#[test]
fn a_loop_that_panics_ends_the_calls_that_wait() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    let before = mount.submit(block_write(file, 0, 4096));
    fake.next();
    mount.spawn(0, Box::new(Panics));
    assert!(matches!(before.wait().result, Err(Error::Closed)));
    let after = mount.submit(block_write(file, 0, 4096)).wait();
    assert!(matches!(after.result, Err(Error::Closed)));
    assert_eq!(after.buffer.len(), 4096);
    assert_eq!(mount.statistics().paths.len(), 1);
}

/// Holds its loop until the sender is dropped.
struct Hangs(mpsc::Receiver<()>);

impl Task for Hangs {
    fn start(&mut self, _io: &mut Io<'_>) {
        let _ = self.0.recv();
    }
    fn finished(&mut self, _io: &mut Io<'_>, _token: u64, _done: Done) {}
    fn ended(&self) -> bool {
        true
    }
}

#[test]
fn a_loop_that_hangs_is_told_with_the_age_of_its_last_round() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    assert_eq!(mount.statistics().silent_for, Duration::ZERO);
    let (release, gate) = mpsc::channel();
    mount.spawn(0, Box::new(Hangs(gate)));
    let first = mount.statistics().silent_for;
    let second = mount.statistics().silent_for;
    assert!(first > Duration::ZERO && second > first, "{first:?} {second:?}");
    drop(release);
    testkit::Deadline::wait_until("the loop to answer", Duration::from_secs(60), || {
        mount.statistics().silent_for.is_zero().then_some(())
    });
}

#[test]
fn calls_beyond_the_window_wait_and_come_in_order() {
    const CALLS: u32 = 1_500;
    let fake = Fake::start(1);
    let mount = fake.mount();
    let call = |number: u32| Op::from(mount.protocol().remove(mount.root(), &number.to_be_bytes()));
    let pending: Vec<Pending> = (0..CALLS).map(|number| mount.submit(call(number))).collect();
    let oldest = fake.next();
    // The window does not move while its oldest call is unanswered.
    let window = drc::AHEAD_REPLY_MAX;
    for number in 1..window {
        let request = fake.next();
        assert!(request.args.ends_with(&number.to_be_bytes()));
        request.reply(&[0; 4]);
    }
    oldest.reply(&[0; 4]);
    for number in window..CALLS {
        let request = fake.next();
        assert!(request.args.ends_with(&number.to_be_bytes()));
        request.reply(&[0; 4]);
    }
    for pending in pending {
        assert!(pending.wait().result.is_ok());
    }
}

#[test]
fn impossible_settings_are_an_error() {
    let fake = Fake::start(1);
    let good = fake.settings(1);
    for bad in [
        Settings { nconnect: 0, ..good.clone() },
        Settings { nconnect: client::options::CONNECTIONS_MAX + 1, ..good.clone() },
        Settings { nconnect: u16::MAX, mdconnect: u16::MAX, ..good.clone() },
        Settings { remotes: Vec::new(), ..good },
    ] {
        let error = Mount::with_settings(bad).unwrap_err();
        assert!(matches!(error, Error::Mount { cause: MountError::Local(_), .. }), "{error:?}");
    }
}

#[test]
fn an_operation_too_large_for_a_record_is_refused_and_returns_its_buffer() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (file, len) = (file(&mount), (1 << 20) + 1);
    for op in [
        Op::Read { file, offset: 0, buffer: vec![0; len].into() },
        Op::Write { file, offset: 0, buffer: vec![0; len].into() },
    ] {
        let done = mount.submit(op).wait();
        assert!(matches!(done.result, Err(Error::Misuse(_))), "{:?}", done.result);
        assert_eq!(done.buffer.len(), len);
    }
    fake.nothing_more();
}

/// Asks to be woken a few times, and reports when it was woken.
struct Alarm {
    wakes: u32,
    next: std::time::Duration,
    told: std::sync::mpsc::Sender<[std::time::Duration; 2]>,
}

impl Task for Alarm {
    fn start(&mut self, io: &mut Io<'_>) {
        self.next = io.now() + std::time::Duration::from_millis(5);
    }
    fn finished(&mut self, _io: &mut Io<'_>, _token: u64, _done: Done) {}
    fn wakes_at(&self) -> Option<std::time::Duration> {
        Some(self.next)
    }
    fn woken(&mut self, io: &mut Io<'_>) {
        self.told.send([self.next, io.now()]).unwrap();
        self.next = io.now() + std::time::Duration::from_millis(5);
        self.wakes -= 1;
    }
    fn ended(&self) -> bool {
        self.wakes == 0
    }
}

#[test]
fn a_task_is_woken_when_its_time_has_come_and_dropped_when_it_has_ended() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (told, wakes) = std::sync::mpsc::channel();
    mount.spawn(0, Box::new(Alarm { wakes: 3, next: std::time::Duration::ZERO, told }));
    let wakes: Vec<[std::time::Duration; 2]> = wakes.iter().collect();
    assert_eq!(wakes.len(), 3);
    assert!(wakes.iter().all(|[named, woken]| woken >= named), "{wakes:?}");
}
