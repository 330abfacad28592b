//! Tests mounts of version 4 of our own server: every operation, files over every path, paths that
//! fail under a load, a server that restarts, and servers that cannot be mounted so.

#[path = "support/faults.rs"]
mod faults;
#[path = "support/group.rs"]
mod group;
#[path = "support/load.rs"]
mod load;
#[path = "support/proxy.rs"]
mod proxy;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use client::options::Version;
use client::{Error, Mount, MountError, Settings};
use faults::{TIMEOUT, moved_by};
use fs::{CreateMode, DirectoryPosition, FileKind, Rights, SetAttributes, SetTime, Special, Status, Time};
use group::{has, pattern, write_and_read_back};
use load::Load;
use nfs4::Operation;
use proxy::{Mode, Proxied};
use server::{Config, NodeId, Server};

const ALL_VERSIONS: &str = "3,4.1,4.2";

/// A server of these versions.
fn serve(nodes: u8, versions: &str, config: impl Fn(&[SocketAddr]) -> Config) -> (Server, Vec<IpAddr>, u16) {
    let versions = versions.parse().unwrap();
    group::serve(nodes, |listens| Config { versions, ..config(listens) })
}

fn in_memory(nodes: u8) -> (Server, Vec<IpAddr>, u16) {
    serve(nodes, ALL_VERSIONS, |listens| Config::quick(512 << 20, "/export", listens))
}

/// A directory of the user that runs the test.
fn in_directory(place: &Path, listens: &[SocketAddr]) -> Config {
    let mut config = Config::quick_dir(place, None, "/export", listens);
    config.exports[0].root_squash = false;
    config
}

fn settings(addresses: &[IpAddr], port: u16, nconnect: u16, minor: u32) -> Settings {
    Settings {
        remotes: addresses.iter().copied().map(Into::into).collect(),
        nconnect,
        version: Version::V4(Some(minor)),
        ..Settings::new(addresses[0], port, "/export")
    }
}

/// Every operation on names and attributes, once right and where it matters once wrong.
fn names_and_attributes(mount: &Mount) {
    let root = mount.root();
    let mode = SetAttributes::mode;
    let (directory, made) = mount.make_directory(root, b"directory", mode(0o750)).unwrap();
    assert_eq!((made.kind, made.mode), (FileKind::Directory, 0o750));
    let (file, made) = mount.create(directory, b"file", CreateMode::Guarded(mode(0o640))).unwrap();
    assert_eq!((made.kind, made.mode, made.size, made.nlink), (FileKind::Regular, 0o640, 0, 1));
    assert_ne!(made.change, 0, "version 4 tells changes");
    let taken = mount.create(directory, b"file", CreateMode::Guarded(mode(0o640))).unwrap_err();
    assert_eq!(taken.status(), Some(Status::Exists));
    let (same, _) = mount.create(directory, b"file", CreateMode::Unchecked(mode(0o600))).unwrap();
    assert_eq!(same, file);
    let found = mount.lookup(directory, b"file").unwrap();
    assert_eq!((found.0, found.1.fileid), (file, made.fileid));
    assert_eq!(mount.lookup(directory, b"none").unwrap_err().status(), Some(Status::NotFound));
    assert_eq!(mount.lookup(file, b"none").unwrap_err().status(), Some(Status::NotDirectory));
    assert_eq!(mount.lookup(directory, b"..").unwrap().0, root);
    assert_eq!(mount.lookup(directory, b".").unwrap().0, directory);

    let time = Time { seconds: 951_782_400, nanoseconds: 7 };
    let size = SetAttributes { size: Some(12_345), mtime: SetTime::To(time), ..mode(0o604) };
    mount.set_attributes(file, size, None).unwrap();
    let set = mount.attributes(file).unwrap();
    assert_eq!((set.size, set.mode, set.mtime), (12_345, 0o604, time));
    mount.set_attributes(file, mode(0o600), Some(set.ctime)).unwrap();
    let guarded = mount.set_attributes(file, mode(0o644), Some(time)).unwrap_err();
    assert_eq!(guarded.status(), Some(Status::NotSync));
    assert_eq!(mount.attributes(file).unwrap().mode, 0o600);
    let rights = mount.access(directory, Rights::READ | Rights::LOOKUP).unwrap();
    assert_eq!(rights, Rights::READ | Rights::LOOKUP);

    let (symlink, made) = mount.make_symlink(directory, b"symlink", b"../directory/file").unwrap();
    assert_eq!(made.kind, FileKind::Symlink);
    assert_eq!(mount.read_link(symlink).unwrap(), b"../directory/file");
    assert_eq!(mount.resolve(b"directory/symlink").unwrap().0, file);
    let (_, made) = mount.make_special(directory, b"fifo", Special::Fifo, mode(0o600)).unwrap();
    assert_eq!(made.kind, FileKind::Fifo);

    mount.link(file, root, b"second").unwrap();
    assert_eq!(mount.attributes(file).unwrap().nlink, 2);
    assert_eq!(mount.link(file, root, b"second").unwrap_err().status(), Some(Status::Exists));
    mount.rename((root, b"second"), (directory, b"third")).unwrap();
    assert_eq!(mount.lookup(directory, b"third").unwrap().0, file);
    let gone = mount.rename((root, b"second"), (directory, b"third")).unwrap_err();
    assert_eq!(gone.status(), Some(Status::NotFound));
}

/// What removes a file leaves directories alone, and the other way round.
fn removals(mount: &Mount) {
    let root = mount.root();
    let (directory, _) = mount.make_directory(root, b"removals", SetAttributes::mode(0o755)).unwrap();
    mount.create(directory, b"file", CreateMode::Guarded(SetAttributes::mode(0o644))).unwrap();
    let status = |result: client::Result<()>| result.unwrap_err().status();
    assert_eq!(status(mount.remove(root, b"removals")), Some(Status::IsDirectory));
    assert_eq!(status(mount.remove_directory(directory, b"file")), Some(Status::NotDirectory));
    assert_eq!(status(mount.remove_directory(root, b"removals")), Some(Status::NotEmpty));
    mount.remove(directory, b"file").unwrap();
    assert_eq!(status(mount.remove(directory, b"file")), Some(Status::NotFound));
    mount.remove_directory(root, b"removals").unwrap();
    assert_eq!(status(mount.remove_directory(root, b"removals")), Some(Status::NotFound));
}

/// Space, limits, and what the server told when it was mounted.
fn file_system(mount: &Mount) {
    let space = mount.space().unwrap();
    assert!(space.total_bytes >= space.free_bytes && space.total_bytes > 0);
    let limits = mount.limits(mount.root()).unwrap();
    assert!(limits.name_bytes_max >= 255 && limits.links_max > 1);
    assert_eq!(mount.transfer_sizes(), (1 << 20, 1 << 20));
    assert!(mount.info().has_symlinks && mount.info().file_bytes_max > 1 << 40);
}

fn exercise(mount: &Mount) {
    names_and_attributes(mount);
    removals(mount);
    file_system(mount);
    let data = pattern(5 << 20 | 12_345, 1);
    let file = mount.create_file(b"/data", 0o644).unwrap();
    file.write_all_at(&data, 0).unwrap();
    let mut back = vec![0; data.len() + 100];
    assert_eq!(file.read_all_at(&mut back, 0).unwrap(), data.len());
    assert!(back[..data.len()] == data[..]);
}

#[test]
fn every_operation_works_in_both_minor_versions_in_memory() {
    for minor in [1, 2] {
        let (_server, addresses, port) = in_memory(1);
        let mount = Mount::with_settings(settings(&addresses, port, 2, minor)).unwrap();
        assert_eq!(mount.protocol().version(), format!("4.{minor}"));
        exercise(&mount);
    }
}

#[test]
fn every_operation_works_in_both_minor_versions_in_a_directory() {
    for minor in [1, 2] {
        let place = testkit::temp_dir("client-nfs4");
        let (_server, addresses, port) =
            serve(1, ALL_VERSIONS, |listens| in_directory(place.path(), listens));
        let mount = Mount::with_settings(settings(&addresses, port, 2, minor)).unwrap();
        exercise(&mount);
    }
}

#[test]
fn data_written_over_four_nodes_reads_back() {
    let (server, addresses, port) = in_memory(4);
    let mount = Mount::with_settings(settings(&addresses, port, 8, 2)).unwrap();
    let data = write_and_read_back(&mount, b"/data");
    let spread = Settings { spread_reads: true, ..settings(&addresses, port, 8, 2) };
    let mount = Mount::with_settings(spread).unwrap();
    has(&mount.open(b"/data").unwrap(), &data);
    assert!(mount.statistics().paths.iter().all(|path| path.counters.read.bytes > 0), "all paths are used");
    drop(server);
}

/// Waits for a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_directory_of_thousands_is_listed_with_attributes_and_handles() {
    const COUNT: usize = 3000;
    let (_server, addresses, port) = in_memory(1);
    let mount = Mount::with_settings(settings(&addresses, port, 1, 2)).unwrap();
    let name = |at: usize| format!("a name of some length that makes the pages long {at}").into_bytes();
    for at in 0..COUNT {
        mount.create(mount.root(), &name(at), CreateMode::Guarded(SetAttributes::mode(0o644))).unwrap();
    }
    let operations = mount.operations(None);
    for plus in [true, false] {
        let (mut names, mut from, mut pages) = (Vec::new(), DirectoryPosition::default(), 0);
        loop {
            let page = block_on(operations.read_directory(mount.root(), from, plus)).unwrap();
            pages += 1;
            for entry in &page.entries {
                assert!(entry.fileid > 0);
                let (attributes, handle) = (entry.attributes, entry.handle);
                assert_eq!((attributes.is_some(), handle.is_some()), (plus, plus));
                assert!(attributes.is_none_or(|attributes| attributes.fileid == entry.fileid));
            }
            names.extend(page.entries.iter().map(|entry| entry.name.clone()));
            let Some(last) = page.entries.last().filter(|_| !page.eof) else { break };
            from = DirectoryPosition { cookie: last.cookie, verifier: page.verifier };
        }
        assert!(pages > 1, "a reply has no room for all");
        names.sort();
        let mut all: Vec<_> = (0..COUNT).map(name).collect();
        all.sort();
        assert!(names == all);
    }
}

#[test]
fn version_4_alone_is_the_highest_minor_version_of_the_server() {
    for (versions, version) in [("4.1,4.2", "4.2"), ("3,4.1", "4.1")] {
        let (_server, addresses, port) =
            serve(1, versions, |listens| Config::quick(64 << 20, "/export", listens));
        let any = Settings { version: Version::V4(None), ..settings(&addresses, port, 1, 1) };
        assert_eq!(Mount::with_settings(any).unwrap().protocol().version(), version);
    }
}

fn refusal(settings: Settings) -> MountError {
    match Mount::with_settings(settings) {
        Err(Error::Mount { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_mounted_is_refused_with_its_reason() {
    let memory = |listens: &[SocketAddr]| Config::quick(64 << 20, "/export", listens);
    let (_server, addresses, port) = serve(1, "3", memory);
    let error = refusal(settings(&addresses, port, 1, 1));
    assert!(matches!(error, MountError::NoVersion4 { .. }), "{error}");
    assert!(error.to_string().ends_with("does not speak NFS version 4: it serves version 3 only"), "{error}");

    let (_server, addresses, port) = serve(1, "3,4.1", memory);
    let error = refusal(settings(&addresses, port, 1, 2));
    assert!(matches!(error, MountError::NoMinorVersion { minor: 2, .. }), "{error}");

    let other = Settings { export: b"/other".to_vec(), ..settings(&addresses, port, 1, 1) };
    let error = refusal(other);
    assert!(matches!(error, MountError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("there is no such export"), "{error}");

    let mount = Mount::with_settings(settings(&addresses, port, 1, 1)).unwrap();
    mount.create_file(b"/file", 0o644).unwrap();
    let file = Settings { export: b"/export/file".to_vec(), ..settings(&addresses, port, 1, 1) };
    assert!(matches!(refusal(file), MountError::NotDirectory { .. }));

    let closed = settings(&[[127, 0, 0, 1].into()], testkit::free_port(), 1, 1);
    assert!(matches!(refusal(closed), MountError::Connect { .. }));
}

/// An export that this host may not use.
#[test]
fn an_export_for_other_hosts_is_refused() {
    let (_server, addresses, port) = serve(1, ALL_VERSIONS, |listens| {
        let mut config = Config::quick(64 << 20, "/export", listens);
        config.exports[0].allow = vec!["192.0.2.0/24".parse().unwrap()];
        config
    });
    let error = refusal(settings(&addresses, port, 1, 2));
    assert!(matches!(error, MountError::Refused { .. }), "{error}");
}

#[test]
fn a_directory_below_an_export_is_mounted_and_a_path_is_split_at_its_export() {
    let (_server, addresses, port) = in_memory(1);
    let mount = Mount::with_settings(settings(&addresses, port, 1, 2)).unwrap();
    let mode = SetAttributes::mode(0o755);
    let (one, _) = mount.make_directory(mount.root(), b"one", mode).unwrap();
    let (two, _) = mount.make_directory(one, b"two", mode).unwrap();
    mount.make_symlink(mount.root(), b"link", b"one/two").unwrap();
    let at = |path: &str| Settings { export: path.into(), ..settings(&addresses, port, 1, 2) };
    assert_eq!(Mount::with_settings(at("/export/one/two")).unwrap().root(), two);
    assert_eq!(Mount::with_settings(at("/export/link")).unwrap().root(), two, "through a link");
    for (path, export, below) in [
        ("/export/one/two", "/export", "/one/two"),
        ("/export/one/none", "/export", "/one/none"),
        ("/export", "/export", ""),
        ("/none/at/all", "/", "/none/at/all"),
    ] {
        let (mount, rest) = Mount::with_settings_below(at(path)).unwrap();
        assert_eq!(
            (&mount.settings().export[..], &rest[..]),
            (export.as_bytes(), below.as_bytes()),
            "{path}"
        );
    }
}

/// RFC 8881 s2.10.5
#[test]
fn an_address_of_another_server_is_refused() {
    let (_one, addresses, port) = in_memory(1);
    let other = (0..20).find_map(|step| {
        let listen = SocketAddr::from(([127, 0, 1, step + 1], port));
        let versions = ALL_VERSIONS.parse().unwrap();
        let config = Config { versions, ..Config::quick(64 << 20, "/export", &[listen]) };
        Server::start(config).ok().map(|server| (server, listen.ip()))
    });
    let (_other, elsewhere) = other.expect("an address on which the port is free");
    let both = [addresses[0], elsewhere];
    let error = refusal(settings(&both, port, 2, 2));
    let MountError::OtherFileSystem { address, reason } = &error else { panic!("{error}") };
    assert_eq!(address.ip(), elsewhere);
    assert!(reason.contains("not a path to the server of the session"), "{reason}");
}

fn proxied(nodes: u8) -> Proxied {
    Proxied::start_with(nodes, ALL_VERSIONS.parse().unwrap())
}

fn through(group: &Proxied, nconnect: u16) -> Settings {
    Settings { loops: 2, ..settings(&group.addresses, group.port, nconnect, 2) }
}

/// The number of calls that a fault of one path has moved to others.
fn fault(name: &str, mode: Mode) -> u64 {
    let group = proxied(4);
    moved_by(name, &group, &Mount::with_settings(through(&group, 8)).unwrap(), mode)
}

#[test]
fn calls_of_a_silent_path_move_to_the_others_in_their_slots() {
    assert!(fault("silent", Mode::Silent) > 0);
}

#[test]
fn calls_of_a_path_that_loses_replies_move_to_the_others_in_their_slots() {
    assert!(fault("half open", Mode::HalfOpen) > 0);
}

#[test]
fn calls_of_a_reset_path_move_to_the_others_in_their_slots() {
    assert!(fault("reset", Mode::Reset) > 0);
}

#[test]
fn no_call_fails_while_all_paths_are_cut_and_come_back() {
    let group = proxied(2);
    let mount = Mount::with_settings(through(&group, 4)).unwrap();
    Load::run(&mount, |load| {
        for mode in [Mode::Reset, Mode::Silent] {
            group.set_all(mode);
            testkit::Deadline::wait_until("the loss of every path", TIMEOUT, || {
                let paths = mount.statistics().paths;
                paths.iter().flat_map(|path| &path.status).any(|status| status.deaths > 0).then_some(())
            });
            group.set_all(Mode::Pass);
            load.advance(50);
        }
    });
}

/// Calls `act` while the reply to its compound is lost with its connection.
fn once<T>(group: &Proxied, operation: Operation, act: impl FnOnce() -> client::Result<T>) {
    group.cut_reply_to_compound(operation);
    if let Err(error) = act() {
        panic!("{operation:?} was done twice, or not at all: {error}");
    }
    assert!(group.has_cut(), "the reply to {operation:?} was cut");
}

// RFC 8881 s2.10.6.1
#[test]
fn an_operation_whose_reply_is_lost_happens_once() {
    let group = proxied(4);
    let mount = Mount::with_settings(Settings { loops: 1, ..through(&group, 4) }).unwrap();
    let (root, mode) = (mount.root(), SetAttributes::mode(0o755));
    for round in 0..4_u8 {
        let name = |what: &str| format!("{what} {round}").into_bytes();
        let (one, two, three) = (name("one"), name("two"), name("three"));
        once(&group, Operation::Open, || mount.create(root, &one, CreateMode::Guarded(mode)));
        once(&group, Operation::Open, || mount.create(root, &two, CreateMode::Exclusive([round; 8])));
        once(&group, Operation::Create, || mount.make_directory(root, &name("directory"), mode));
        once(&group, Operation::Create, || mount.make_symlink(root, &name("link"), b"one"));
        once(&group, Operation::Rename, || mount.rename((root, &one), (root, &three)));
        let (file, _) = mount.lookup(root, &three).unwrap();
        once(&group, Operation::Link, || mount.link(file, root, &one));
        once(&group, Operation::Remove, || mount.remove(root, &three));
        once(&group, Operation::Remove, || mount.remove_directory(root, &name("directory")));
        assert_eq!(mount.lookup(root, &three).unwrap_err().status(), Some(Status::NotFound));
        assert_eq!(mount.attributes(file).unwrap().nlink, 1);
    }
    let replays = mount.statistics().replays;
    assert_eq!((replays.reconciled, replays.undecided, replays.unfenced), (0, 0, 0), "the slots decided");
}

/// A server of a directory that stops, loses all sessions, and starts again.
#[test]
fn a_mount_goes_on_when_its_server_has_restarted() {
    let place = testkit::temp_dir("client-nfs4");
    let config = |listens: &[SocketAddr]| in_directory(place.path(), listens);
    let (server, addresses, port) = serve(2, ALL_VERSIONS, config);
    let mount = Mount::with_settings(settings(&addresses, port, 4, 2)).unwrap();
    let file = mount.create_file(b"/before", 0o644).unwrap();
    file.write_all_at(&pattern(3 << 20, 1), 0).unwrap();
    let restarted = |server: Server| {
        drop(server);
        let listens: Vec<SocketAddr> = addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        let versions: server::NfsVersions = ALL_VERSIONS.parse().unwrap();
        testkit::Deadline::wait_until("the port", TIMEOUT, || {
            Server::start(Config { versions, ..config(&listens) }).ok()
        })
    };
    let mut server = restarted(server);
    for round in 0..3_u8 {
        file.write_all_at(&pattern(1 << 20, round), 1 << 20).unwrap();
        let mut back = vec![0; 1 << 20];
        assert_eq!(file.read_all_at(&mut back, 1 << 20).unwrap(), 1 << 20);
        assert!(back == pattern(1 << 20, round));
        mount.create_file(format!("/after {round}").as_bytes(), 0o644).unwrap();
        server = restarted(server);
    }
    // In flight while the server is away.
    let reads: Vec<_> = (0..40).map(|at| file.read_at(vec![0; 4096], at * 4096)).collect();
    let server = restarted(server);
    assert!(reads.into_iter().all(|read| read.wait().result.is_ok()));
    drop((mount, server));
}

#[test]
fn nodes_that_stop_and_start_again_do_not_end_the_session() {
    let group = proxied(4);
    let mount = Mount::with_settings(through(&group, 8)).unwrap();
    Load::run(&mount, |load| {
        for node in [2, 0] {
            group.server.stop_node(NodeId(node)).unwrap();
            load.advance(100);
            group.server.start_node(NodeId(node)).unwrap();
        }
    });
}

#[test]
fn a_soft_mount_times_out_and_its_slots_work_again_afterwards() {
    let group = proxied(2);
    let timeo = Duration::from_millis(300);
    let soft = Settings { soft: true, timeo, retrans: 1, ..through(&group, 2) };
    let eventually = |what: &str, act: &mut dyn FnMut() -> client::Result<()>| {
        testkit::Deadline::wait_until(what, TIMEOUT, || act().ok());
    };
    let mount = testkit::Deadline::wait_until("a mount", TIMEOUT, || Mount::with_settings(soft.clone()).ok());
    eventually("a file", &mut || mount.create_file(b"/file", 0o644).map(drop));
    let file = testkit::Deadline::wait_until("the file", TIMEOUT, || mount.open(b"/file").ok());
    group.set_all(Mode::HalfOpen);
    // More calls than there are slots: those that were sent leave theirs in doubt.
    let writes: Vec<_> = (0..100).map(|at| file.write_at(vec![2; 4096], at * 4096)).collect();
    for write in writes {
        assert!(matches!(write.wait().result, Err(Error::TimedOut { .. })));
    }
    group.set_all(Mode::Pass);
    for round in 0..80_u8 {
        eventually("a write", &mut || file.write_all_at(&[round; 4096], u64::from(round) * 4096));
    }
    let mut back = vec![0; 80 * 4096];
    eventually("a read", &mut || file.read_all_at(&mut back, 0).map(drop));
    for (round, block) in back.chunks(4096).enumerate() {
        assert!(block.iter().all(|byte| usize::from(*byte) == round), "block {round}");
    }
}
