//! Paths that fall silent, break, slow down, flap and come back under a running load: every call is
//! answered once, the data are right, and what must happen once happens once. Gaps are printed, not
//! asserted on.

#[path = "support/load.rs"]
mod load;
#[path = "support/proxy.rs"]
mod proxy;

use std::time::{Duration, Instant};

use client::{Error, Mount, Op, Pending, Settings};
use fs::{CreateMode, SetAttributes, Status};
use load::Load;
use paths::State;
use proxy::{Mode, Proxied};
use server::NodeId;

fn settings(group: &Proxied, nconnect: u16) -> Settings {
    let first = group.addresses[0];
    let remotes = group.addresses.iter().copied().map(Into::into).collect();
    Settings { remotes, nconnect, loops: 2, ..Settings::new(first, group.port, "/export") }
}

fn mount(group: &Proxied) -> Mount {
    Mount::with_settings(settings(group, 8)).unwrap()
}

/// Long: the machine may be slow and loaded.
const PATIENCE: Duration = Duration::from_secs(120);

/// Tries until it succeeds.
fn eventually<T>(what: &str, mut act: impl FnMut() -> client::Result<T>) -> T {
    testkit::Deadline::wait_until(what, PATIENCE, || act().ok())
}

/// A fault of one path: prints the gap, and gives how many calls left that path.
fn fault(name: &str, mode: Mode) -> u64 {
    let group = Proxied::start(4);
    let mount = mount(&group);
    let moved =
        || -> u64 { mount.statistics().paths[1].status.iter().map(|status| status.moved_calls).sum() };
    let gap = Load::run(&mount, |load| {
        let deadline = Instant::now() + PATIENCE;
        // A quick fault may come just when no call is on its way there.
        while moved() == 0 && Instant::now() < deadline {
            group.set(1, mode);
            load.advance(100);
            group.set(1, Mode::Pass);
            load.advance(50);
        }
    });
    let moved = moved();
    println!("{name}: longest wait for an answer {} ms, {moved} calls moved", gap.as_millis());
    moved
}

#[test]
fn a_silent_path_loses_its_calls_to_the_others() {
    assert!(fault("silent", Mode::Silent) > 0);
}

#[test]
fn a_path_that_swallows_answers_loses_its_calls_to_the_others() {
    assert!(fault("half open", Mode::HalfOpen) > 0);
}

#[test]
fn a_reset_path_loses_its_calls_to_the_others() {
    assert!(fault("reset", Mode::Reset) > 0);
}

#[test]
fn a_node_that_stops_and_starts_again_costs_nothing() {
    let group = Proxied::start(4);
    let mount = mount(&group);
    let gap = Load::run(&mount, |load| {
        for node in [2, 0] {
            group.server.stop_node(NodeId(node)).unwrap();
            load.advance(100);
            group.server.start_node(NodeId(node)).unwrap();
        }
    });
    println!("node stopped: longest wait for an answer {} ms", gap.as_millis());
}

#[test]
fn new_files_are_not_placed_on_a_node_that_is_down() {
    let group = Proxied::start(4);
    let mount = mount(&group);
    let root = mount.root();
    let on_the_third = || {
        let files: Vec<_> = (0..8).map(|_| mount.file_ref(root)).collect();
        files.iter().for_each(|file| mount.release(file));
        files.iter().filter(|file| file.home == Some(paths::NodeId(2))).count()
    };
    assert_eq!(on_the_third(), 2);
    group.server.stop_node(NodeId(2)).unwrap();
    testkit::Deadline::wait_until("the node to be known as down", PATIENCE, || {
        let status = &mount.statistics().paths[2].status;
        status.iter().any(|status| status.deaths > 0).then_some(())
    });
    assert_eq!(on_the_third(), 0);
    group.server.start_node(NodeId(2)).unwrap();
    testkit::Deadline::wait_until("files to be placed there again", PATIENCE, || {
        (on_the_third() == 2).then_some(())
    });
}

/// Whether a path whose answers come so much later is used, less than half as much as the others,
/// and never left.
fn is_used_less_and_not_cut(later: Duration) -> bool {
    let group = Proxied::start(4);
    let spread = Settings { spread_reads: true, spread_writes: true, ..settings(&group, 8) };
    let mount = Mount::with_settings(spread).unwrap();
    let calls = |mount: &Mount| -> Vec<u64> {
        let statistics = mount.statistics();
        statistics.paths.iter().map(|path| path.status.iter().map(|status| status.calls).sum()).collect()
    };
    let mut good = false;
    Load::run(&mount, |load| {
        group.set(1, Mode::Slow(later));
        load.advance(100);
        let before = calls(&mount);
        load.advance(400);
        let share: Vec<u64> = calls(&mount).iter().zip(before).map(|(now, before)| now - before).collect();
        let others = (share[0] + share[2] + share[3]) / 3;
        let status = &mount.statistics().paths[1].status;
        println!("calls by path while the second is slow by {later:?}: {share:?}; {status:?}");
        let cut = status.iter().any(|status| status.deaths > 0 || status.moved_calls > 0);
        good = share[1] > 0 && share[1] < others / 2 && !cut;
    });
    good
}

#[test]
fn a_slow_path_is_used_less_and_not_cut() {
    // On a busy machine all paths are slow, and any may fall silent for a while: then this one must
    // stand out more.
    let mut tries = [10, 20, 40, 80, 80, 80].map(Duration::from_millis).into_iter();
    assert!(tries.any(is_used_less_and_not_cut));
}

#[test]
fn calls_wait_while_no_path_answers_and_go_on_when_one_does() {
    for mode in [Mode::Reset, Mode::Silent] {
        let group = Proxied::start(4);
        let mount = mount(&group);
        let gap = Load::run(&mount, |load| {
            group.set_all(mode);
            // Not a wait for anything: this is how long nobody answers.
            std::thread::park_timeout(Duration::from_millis(1500));
            group.set_all(Mode::Pass);
            load.advance(20);
        });
        println!("all paths {mode:?} for 1500 ms: longest wait for an answer {} ms", gap.as_millis());
    }
}

#[test]
fn a_flapping_path_costs_nothing() {
    let group = Proxied::start(4);
    let mount = mount(&group);
    let gap = Load::run(&mount, |load| {
        for _ in 0..6 {
            group.set(1, Mode::Reset);
            load.advance(20);
            group.set(1, Mode::Pass);
            load.advance(20);
        }
    });
    println!("flapping: longest wait for an answer {} ms", gap.as_millis());
}

#[test]
fn a_soft_mount_gives_up_after_its_patience_and_works_again_afterwards() {
    let group = Proxied::start(2);
    let timeo = Duration::from_millis(300);
    let soft = Settings { soft: true, timeo, retrans: 1, ..settings(&group, 2) };
    // On a busy machine such short patience may be over before a server that is there has answered.
    let mount = eventually("a mount", || Mount::with_settings(soft.clone()));
    let file = eventually("a file", || mount.create_file(b"/file", 0o644));
    eventually("a write", || file.write_all_at(&[1; 4096], 0));
    group.set_all(Mode::Silent);
    let started = Instant::now();
    let write = file.write_at(vec![2; 1 << 20], 0);
    let read = file.read_at(vec![0; 4096], 0);
    for (pending, len) in [(write, 1 << 20), (read, 4096)] {
        let done = pending.wait();
        assert!(matches!(done.result, Err(Error::TimedOut { .. })), "{:?}", done.result);
        assert_eq!(done.buffer.len(), len, "the buffer comes back");
    }
    let waited = started.elapsed();
    println!("soft: gave up after {} ms, patience {} ms", waited.as_millis(), 2 * timeo.as_millis());
    assert!(waited >= 2 * timeo);
    group.set_all(Mode::Pass);
    // A call may come too early for the paths, and is given up too.
    eventually("a write on paths that are back", || file.write_all_at(&[3; 4096], 0));
    let mut back = [0; 4096];
    eventually("a read", || file.read_all_at(&mut back, 0));
    assert_eq!(back, [3; 4096]);
}

/// Does something while the answer to it is lost with its connection.
fn once<T>(group: &Proxied, what: &str, act: impl FnOnce() -> client::Result<T>) {
    group.cut_next_answer();
    if let Err(error) = act() {
        panic!("{what} was done twice, or not at all: {error}");
    }
    assert_eq!(group.cuts_left(), 0, "the answer to {what} was cut");
}

const ROUNDS: u8 = 4;

#[test]
fn what_must_happen_once_happens_once_though_the_answer_is_lost() {
    let group = Proxied::start(4);
    let mount = Mount::with_settings(Settings { loops: 1, ..settings(&group, 4) }).unwrap();
    let root = mount.root();
    for round in 0..ROUNDS {
        let name = |what: &str| format!("{what} {round}").into_bytes();
        let (one, two, three) = (name("one"), name("two"), name("three"));
        once(&group, "CREATE GUARDED", || {
            mount.create(root, &one, CreateMode::Guarded(SetAttributes::default()))
        });
        once(&group, "CREATE EXCLUSIVE", || mount.create(root, &two, CreateMode::Exclusive([round; 8])));
        once(&group, "MKDIR", || mount.make_directory(root, &name("directory"), SetAttributes::default()));
        once(&group, "SYMLINK", || mount.make_symlink(root, &name("link"), b"one"));
        once(&group, "RENAME", || mount.rename((root, &one), (root, &three)));
        let (file, _) = mount.lookup(root, &three).unwrap();
        once(&group, "LINK", || mount.link(file, root, &one));
        once(&group, "REMOVE", || mount.remove(root, &three));
        once(&group, "RMDIR", || mount.remove_directory(root, &name("directory")));
        assert_eq!(mount.lookup(root, &three).unwrap_err().status(), Some(Status::NotFound));
        assert_eq!(mount.attributes(file).unwrap().nlink, 1);
    }
    let statistics = mount.statistics();
    let moved: u64 =
        statistics.paths.iter().flat_map(|path| &path.status).map(|status| status.moved_calls).sum();
    // Now and then it is the answer to a probe that is cut.
    let all = 8 * u64::from(ROUNDS);
    assert!(moved * 4 >= all * 3, "{moved} calls of {all} moved");
    assert!(statistics.paths.iter().flat_map(|path| &path.status).any(|status| status.state == State::Up));
}

#[test]
fn writes_that_leave_a_silent_path_are_counted_as_such_that_may_be_done_late() {
    let group = Proxied::start(2);
    let mount = Mount::with_settings(Settings { spread_writes: true, ..settings(&group, 4) }).unwrap();
    let (file, _) = mount.create(mount.root(), b"f", CreateMode::Guarded(SetAttributes::default())).unwrap();
    let file = mount.file_ref(file);
    eventually("a WRITE that meets the silence", || {
        group.set(1, Mode::Silent);
        let write = |block: u64| Op::Write { file, offset: block * 4096, buffer: vec![1; 4096] };
        let pending: Vec<Pending> = (0..16).map(|block| mount.submit(write(block))).collect();
        pending.into_iter().for_each(|pending| assert!(pending.wait().result.is_ok()));
        group.set(1, Mode::Pass);
        if mount.statistics().replays.unfenced > 0 { Ok(()) } else { Err(Error::Closed) }
    });
}
