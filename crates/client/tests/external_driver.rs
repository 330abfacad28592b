//! Tests a thread of the program that drives a loop between its own requests: calls are answered
//! whether that thread is present or not.

#[path = "support/fake.rs"]
mod fake;

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::ThreadId;
use std::time::Instant;

use client::{Done, Error, ExternalDriver, FileRef, Io, Mount, Op, Settings, Task};
use fake::{Fake, TIMEOUT, file};
use nfs3::Procedure;
use nfs3::proc::write::Stable;

const BYTES: [u8; 4096] = [7; 4096];

/// The descriptor that an external driver waits for, and its writing end.
struct Bell {
    rung: PipeReader,
    ring: PipeWriter,
}

impl Bell {
    fn new() -> Self {
        let (rung, ring) = std::io::pipe().unwrap();
        Self { rung, ring }
    }

    fn external_driver(&self, mount: &Mount) -> ExternalDriver {
        mount.external_driver(self.rung.try_clone().unwrap().into()).unwrap()
    }

    /// Sends a request to the external driver.
    fn ring(&self) {
        (&self.ring).write_all(&[1]).unwrap();
    }

    /// Receives a request.
    fn take(&self) {
        (&self.rung).read_exact(&mut [0]).unwrap();
    }
}

/// Sends a request to the external driver, and reports from which thread.
struct Rings(Arc<Bell>, Mutex<Sender<ThreadId>>);

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().send(std::thread::current().id()).unwrap();
        self.0.ring();
    }
}

fn read(mount: &Mount, file: FileRef) -> client::Pending {
    mount.submit(Op::Read { file, offset: 0, buffer: vec![0; BYTES.len()].into() })
}

fn assert_read(done: &Done) {
    assert!(done.result.is_ok() && done.buffer == BYTES, "{:?}", done.result);
}

/// Answers this many READs on a separate thread.
fn answer(fake: Fake, reads: usize) -> std::thread::JoinHandle<Fake> {
    std::thread::spawn(move || {
        (0..reads).for_each(|_| fake.next().data_read(&BYTES));
        fake
    })
}

/// The thread on which the reply to a READ was delivered while this thread drives the loop.
fn attend_a_read(
    mount: &Mount,
    file: FileRef,
    external_driver: &mut ExternalDriver,
    bell: &Arc<Bell>,
) -> ThreadId {
    let (woken, who): (_, Receiver<ThreadId>) = channel();
    let waker = Waker::from(Arc::new(Rings(Arc::clone(bell), Mutex::new(woken))));
    let mut pending = pin!(read(mount, file));
    let answered = pending.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(answered.is_pending(), "nobody has answered yet");
    assert!(external_driver.drive());
    bell.take();
    let std::task::Poll::Ready(done) = pending.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("the waker was called, so the READ has ended");
    };
    assert_read(&done);
    who.recv_timeout(TIMEOUT).unwrap()
}

#[test]
fn an_external_driver_delivers_the_replies_while_it_drives_the_loop() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    let bell = Arc::new(Bell::new());
    let mut external_driver = bell.external_driver(&mount);
    let began = Instant::now();
    let mut fake = Some(fake);
    // On a busy machine the loop's own thread may have been faster, so the test tries again.
    loop {
        let answers = answer(fake.take().unwrap(), 1);
        let who = attend_a_read(&mount, file, &mut external_driver, &bell);
        fake = Some(answers.join().unwrap());
        if who == std::thread::current().id() {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "the loop's own thread delivers all replies");
    }
}

#[test]
fn the_loops_own_thread_drives_the_loop_while_the_external_driver_is_away() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    let bell = Bell::new();
    let mut external_driver = bell.external_driver(&mount);
    for _ in 0..3 {
        // The external driver drives and returns at once; its request is not consumed.
        bell.ring();
        assert!(external_driver.drive());
        let pending = read(&mount, file);
        fake.next().data_read(&BYTES);
        assert_read(&pending.wait());
    }
}

#[test]
fn a_loop_continues_by_itself_when_its_external_driver_is_dropped() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    let bell = Bell::new();
    let mut external_driver = bell.external_driver(&mount);
    bell.ring();
    assert!(external_driver.drive());
    drop(external_driver);
    let pending = read(&mount, file);
    fake.next().data_read(&BYTES);
    assert_read(&pending.wait());
    // The loop accepts another external driver.
    let mut other = bell.external_driver(&mount);
    assert!(other.drive());
}

#[test]
fn operations_submitted_to_the_driver_go_to_the_loop_that_it_drives() {
    let fake = Fake::start(1);
    let mount = Mount::with_settings(Settings { loops: 3, ..fake.settings(3) }).unwrap();
    let files = [file(&mount), file(&mount)];
    // Submits an operation and answers its call; returns the call with its connection. Each loop
    // has one connection.
    let sent = |submit: &dyn Fn(Op) -> client::Pending, op: Op| {
        let pending = submit(op);
        let request = fake.next();
        match request.procedure {
            Procedure::Read => request.data_read(&BYTES),
            _ => request.written(BYTES.len() as u32, Stable::FileSync, 1),
        }
        assert!(pending.wait().result.is_ok());
        request
    };
    let write = |file| Op::Write { file, offset: 0, buffer: BYTES.to_vec().into() };
    let read = |file| Op::Read { file, offset: 0, buffer: vec![0; BYTES.len()].into() };
    let to_driver = |op| mount.submit_to_driver(op, None);
    let by_file = files.map(|file| sent(&to_driver, write(file)));
    assert!(!by_file[0].is_beside(&by_file[1]), "without a driver, files go to all loops");
    let bell = Bell::new();
    let _external_driver = bell.external_driver(&mount);
    let driven = sent(&to_driver, read(files[0]));
    for file in files {
        for op in [write, read] {
            assert!(sent(&to_driver, op(file)).is_beside(&driven));
        }
    }
    let by_file = files.map(|file| sent(&|op| mount.submit(op), write(file)));
    assert!(!by_file[0].is_beside(&by_file[1]), "other operations still go to all loops");
}

#[test]
fn closing_the_mount_releases_its_external_driver_and_ends_its_calls() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    let bell = Bell::new();
    let mut external_driver = bell.external_driver(&mount);
    let pending = read(&mount, file);
    let attending = std::thread::spawn(move || external_driver.drive());
    fake.next();
    drop(mount);
    assert!(matches!(pending.wait().result, Err(Error::Closed)));
    assert!(!attending.join().unwrap(), "there is nothing to drive any more");
}

#[test]
fn a_panic_while_an_external_driver_drives_the_loop_ends_the_calls_that_wait() {
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
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    let bell = Bell::new();
    let mut external_driver = bell.external_driver(&mount);
    let before = read(&mount, file);
    fake.next();
    mount.spawn(0, Box::new(Panics));
    // The panic may hit either of the two threads.
    bell.ring();
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let _ = external_driver.drive();
        let _ = external_driver.drive();
    }));
    assert!(matches!(before.wait().result, Err(Error::Closed)));
    assert!(matches!(read(&mount, file).wait().result, Err(Error::Closed)));
    assert!(!external_driver.drive());
}
