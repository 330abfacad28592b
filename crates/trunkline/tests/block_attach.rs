//! Tests `trunkline block attach` and `trunkline attach` as a user starts them, with the programs
//! of others that take disks by NBD.

use rustix::process::Signal;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use testkit::{Process, Stream};

const TIMEOUT: Duration = Duration::from_secs(60);
const HOST: &str = "nqn.2026-11.test:host";
const SUBSYSTEM: &str = "nqn.2026-11.test:store";

fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments).env_remove("TRUNKLINE_LOG");
    command
}

fn start(arguments: &[&str]) -> Process {
    let process = Process::spawn(trunkline(arguments));
    process.wait_for_line("ready", TIMEOUT);
    process
}

/// A target with a volume of memory on two addresses.
fn target(directory: &Path) -> (Process, Vec<String>) {
    let state = directory.join("state").display().to_string();
    let process = start(&[
        "block",
        "serve",
        "--volume",
        "mem:128MiB",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "127.0.0.1:0",
        "--allow",
        HOST,
        "--nqn",
        SUBSYSTEM,
        "--state",
        &state,
    ]);
    let out = process.output(Stream::Out);
    let addresses = out.lines().filter_map(|line| line.strip_prefix("listening on ")?.split(' ').next());
    let addresses = addresses.map(str::to_owned);
    let addresses: Vec<String> = addresses.collect();
    assert_eq!(addresses.len(), 2, "{out}");
    (process, addresses)
}

fn arguments<'a>(addresses: &'a [String], socket: &'a str) -> Vec<&'a str> {
    let mut arguments = vec!["block", "attach", "--hostnqn", HOST, "--nqn", SUBSYSTEM, "--socket", socket];
    arguments.extend(addresses.iter().flat_map(|address| ["--connect", address.as_str()]));
    arguments
}

/// Runs a command that is expected to end; returns its outcome and all that it printed.
fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn qemu_io(uri: &str, commands: &[&str]) {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for one in commands {
        command.args(["-c", one]);
    }
    let (is_well, text) = run(command.arg(uri));
    assert!(is_well && !text.contains("failed"), "{text}");
}

fn uri(socket: &str) -> String {
    format!("nbd+unix:///?socket={socket}")
}

#[test]
fn programs_of_others_read_and_write_the_volume() {
    let directory = TempDir::new().expect("a directory");
    let (_target, addresses) = target(directory.path());
    let socket = directory.path().join("disk 1,2.sock").display().to_string();
    let mut attached = start(&arguments(&addresses, &socket));
    let out = attached.output(Stream::Out);
    let uri = out.lines().find_map(|line| line.strip_prefix("disk at ")).expect("how it is reached");
    let (is_well, text) = run(Command::new("nbdinfo").arg(uri));
    assert!(is_well, "{text}");
    for expected in
        ["export-size: 134217728", "can_multi_conn: true", "can_trim: true", "block_size_minimum: 4096"]
    {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    qemu_io(
        uri,
        &[
            "write -P 7 0 4M",
            "read -P 7 0 4M",
            "write -z 1M 1M",
            "read -P 0 1M 1M",
            "discard 2M 1M",
            // QEMU passes on what its guest's file system does not need any more, byte by byte.
            "discard 3071k 2k",
            "flush",
            "write -f -P 9 8k 4k",
            "read -P 9 8k 4k",
            "read -P 7 3M 1M",
        ],
    );
    let file = directory.path().join("image");
    let mut bytes = vec![0; 16 << 20];
    fastrand::Rng::with_seed(5).fill(&mut bytes);
    std::fs::write(&file, &bytes).expect("a file");
    let (is_well, text) = run(Command::new("nbdcopy").arg(&file).arg(uri));
    assert!(is_well, "{text}");
    let back = directory.path().join("back");
    let (is_well, text) = run(Command::new("nbdcopy").arg("--connections=4").arg(uri).arg(&back));
    assert!(is_well, "{text}");
    let read = std::fs::read(&back).expect("a copy");
    assert!(read.get(..bytes.len()) == Some(&bytes[..]), "another copy");
    attached.signal(Signal::TERM);
    assert!(attached.wait(TIMEOUT).success());
    assert!(!Path::new(&socket).exists(), "its socket is gone");
}

#[test]
fn an_attachment_that_was_killed_starts_again_on_its_socket() {
    let directory = TempDir::new().expect("a directory");
    let (_target, addresses) = target(directory.path());
    let socket = directory.path().join("disk.sock").display().to_string();
    let mut first = start(&arguments(&addresses, &socket));
    qemu_io(&uri(&socket), &["write -P 3 0 64k"]);
    let (is_well, text) = run(&mut trunkline(&arguments(&addresses, &socket)));
    assert!(!is_well && text.contains("is served by another process"), "{text}");
    first.signal(Signal::KILL);
    first.wait(TIMEOUT);
    assert!(Path::new(&socket).exists());
    let _second = start(&arguments(&addresses, &socket));
    qemu_io(&uri(&socket), &["read -P 3 0 64k", "write -P 4 0 64k", "read -P 4 0 64k"]);
}

/// Without a path a request waits for minutes. The first signal waits for it, the second does not.
#[test]
fn a_second_signal_ends_an_attachment_that_has_lost_its_target() {
    let directory = TempDir::new().expect("a directory");
    let (mut target, addresses) = target(directory.path());
    let socket = directory.path().join("disk.sock").display().to_string();
    let mut attached = start(&arguments(&addresses, &socket));
    qemu_io(&uri(&socket), &["write -P 3 0 64k"]);
    target.signal(Signal::KILL);
    target.wait(TIMEOUT);
    let mut writer = Command::new("qemu-io");
    let mut writer =
        writer.args(["-f", "raw", "-c", "write -P 4 0 64k"]).arg(uri(&socket)).spawn().expect("qemu-io");
    // By then its write is under way; if not, this test only shows less.
    std::thread::sleep(Duration::from_millis(500));
    attached.signal(Signal::TERM);
    if attached.wait_at_most(Duration::from_secs(1)).is_none() {
        attached.signal(Signal::TERM);
        attached.wait(TIMEOUT);
    }
    writer.wait().expect("it ends with its disk");
}

#[test]
fn without_a_name_it_lists_what_there_is_and_errors_say_what_to_do() {
    let directory = TempDir::new().expect("a directory");
    let (_target, addresses) = target(directory.path());
    let socket = directory.path().join("disk.sock").display().to_string();
    let list = ["block", "attach", "--hostnqn", HOST, "--connect", addresses[0].as_str()];
    let (is_well, text) = run(&mut trunkline(&list));
    assert!(is_well && text.contains(SUBSYSTEM), "{text}");
    assert!(addresses.iter().all(|address| text.contains(address.as_str())), "{text}");
    let stranger = ["block", "attach", "--hostnqn", "nqn.2026-11.test:x", "--connect", addresses[0].as_str()];
    let (is_well, text) = run(&mut trunkline(&stranger));
    assert!(!is_well && text.contains("--allow nqn.2026-11.test:x"), "{text}");

    let nobody = ["block", "attach", "--hostnqn", HOST, "--connect", "127.0.0.1:1"];
    let (is_well, text) = run(&mut trunkline(&nobody));
    assert!(!is_well && text.contains("no discovery service at 127.0.0.1:1"), "{text}");

    let base = ["block", "attach", "--connect", addresses[0].as_str(), "--socket", socket.as_str()];
    for (more, expected) in [
        (&["--hostnqn", HOST, "--nqn", "nqn.2026-11.test:other"][..], "refuses"),
        (&["--hostnqn", "nqn.2026-11.test:x", "--nqn", SUBSYSTEM][..], "--allow nqn.2026-11.test:x"),
        (&["--hostnqn", HOST, "--nqn", "store"][..], "--nqn"),
        (&["--hostnqn", HOST, "--nqn", SUBSYSTEM, "--namespace", "9"][..], "there is no namespace 9"),
    ] {
        let (is_well, text) = run(trunkline(&base).args(more));
        assert!(!is_well && text.contains(expected), "{expected} in {text}");
        assert!(!Path::new(&socket).exists(), "nothing is left: {text}");
    }
}

/// No device leads to this machine's own loopback.
#[test]
fn what_is_missing_for_rdma_is_said_with_what_to_do() {
    let base = ["block", "attach", "--hostnqn", HOST];
    for (more, expected) in [
        (&["--connect", "rdma:127.0.0.1:1"][..], "rdma link"),
        (&["--connect", "rdma:127.0.0.1:1", "--digests"][..], "without --digests"),
        (&["--connect", "rdma:127.0.0.1"][..], "\"rdma:127.0.0.1\" is no address with a port"),
    ] {
        let (is_well, text) = run(trunkline(&base).args(more));
        assert!(!is_well && text.contains(expected), "{expected} in {text}");
    }
}

/// Both ask for the driver before they ask a server for anything: nobody listens at these
/// addresses.
#[test]
fn without_the_driver_a_block_device_is_refused_with_what_to_do() {
    let block = ["block", "attach", "--hostnqn", HOST, "--nqn", SUBSYSTEM, "--connect", "127.0.0.1:1"];
    let file = ["attach", "nfs://127.0.0.1:1/export/disk.img"];
    let expected = if Path::new("/dev/ublk-control").exists() { "cannot" } else { "modprobe ublk_drv" };
    for base in [&block[..], &file[..]] {
        let (is_well, text) = run(trunkline(base).args(["--ublk", "0"]));
        assert!(!is_well && text.contains(expected), "{expected} in {text}");
        for more in [&["--ublk", "0", "--socket", "disk.sock"][..], &[][..]] {
            let status = trunkline(base).args(more).output().expect("it runs").status;
            assert_eq!(status.code(), Some(2), "one place for the disk: {base:?} {more:?}");
        }
    }
}

/// Secrets of hosts and of a controller.
const SECRETS: [&str; 3] = [
    "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
    "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
];

#[test]
fn an_address_where_another_subsystem_is_is_refused_and_one_where_nobody_answers_is_not() {
    let directory = TempDir::new().expect("a directory");
    let (_target, addresses) = target(directory.path());
    let state = directory.path().join("other").display().to_string();
    let other = ["block", "serve", "--volume", "mem:1MiB", "--listen", "127.0.0.1:0", "--allow", "any"];
    let mut other = start(&[&other[..], &["--state", &state]].concat());
    let out = other.output(Stream::Out);
    let wrong =
        out.lines().find_map(|line| line.strip_prefix("listening on ")).expect("an address").to_owned();
    let socket = directory.path().join("disk.sock").display().to_string();
    let attach = [&arguments(&addresses, &socket)[..], &["--connect", &wrong]].concat();
    let (is_well, text) = run(&mut trunkline(&attach));
    let cause = format!("{wrong} is the address of no controller of {SUBSYSTEM}");
    assert!(!is_well && text.contains(&cause), "{text}");
    assert!(text.contains(&format!("trunkline block attach --connect {wrong}` lists")), "{text}");
    assert!(!Path::new(&socket).exists(), "nothing is left: {text}");
    assert!(other.terminate(TIMEOUT).success());
    let attached = start(&attach);
    let said = attached.output(Stream::Out);
    assert!(said.contains(&format!("path {wrong}: warning: not connected")), "{said}");
}

#[test]
fn a_host_with_an_identifier_is_attached_by_who_has_it() {
    const ID: &str = "01234567-89ab-4def-8123-456789abcdef";
    let directory = TempDir::new().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let text = format!(
        "nqn = \"{SUBSYSTEM}\"\nlisten = [\"127.0.0.1:0\"]\nstate = \"{}\"\nallow = [\"one\"]\n\
         [[host]]\nname = \"one\"\nnqn = \"{HOST}\"\nid = \"{ID}\"\n[[volume]]\nsource = \"mem:16MiB\"\n",
        at("state")
    );
    std::fs::write(at("block.toml"), text).expect("a file");
    let target = start(&["block", "serve", "-c", &at("block.toml")]);
    let out = target.output(Stream::Out);
    let address = out.lines().find_map(|line| line.strip_prefix("listening on ")).expect("an address");
    let (socket, addresses) = (at("disk.sock"), [address.to_owned()]);
    let base = arguments(&addresses, &socket);
    let (is_well, text) = run(&mut trunkline(&base));
    assert!(!is_well && text.contains("--hostid"), "{text}");
    let said = || target.output(Stream::Err).contains("expects another host identifier").then_some(());
    testkit::Deadline::wait_until("the target's log", TIMEOUT, said);
    let (is_well, text) = run(trunkline(&base).args(["--hostid", "one"]));
    assert!(!is_well && text.contains("a host identifier is a UUID"), "{text}");
    let attached = start(&[&base[..], &["--hostid", ID]].concat());
    qemu_io(&uri(&socket), &["write -P 7 0 64k", "read -P 7 0 64k"]);
    drop(attached);
}

#[test]
fn a_volume_with_a_secret_is_attached_by_who_has_it() {
    let directory = TempDir::new().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let write = |name: &str, text: &str| {
        std::fs::write(at(name), text).expect("a file");
        std::fs::set_permissions(at(name), Permissions::from_mode(0o600)).expect("its mode");
        at(name)
    };
    let secrets = [0, 1, 2].map(|of| write(&format!("secret-{of}"), SECRETS[of]));
    let [host, other, controller] = secrets.each_ref().map(String::as_str);
    let none = at("none");
    let config = |secret: &str| {
        let text = format!(
            "nqn = \"{SUBSYSTEM}\"\nlisten = [\"127.0.0.1:0\"]\nstate = \"{}\"\nallow = [\"one\"]\n\
             [[host]]\nname = \"one\"\nnqn = \"{HOST}\"\nsecret_file = \"{secret}\"\n\
             controller_secret_file = \"{controller}\"\n[[volume]]\nsource = \"mem:16MiB\"\n",
            at("state")
        );
        write("block.toml", &text)
    };
    let target = start(&["block", "serve", "-c", &config(host)]);
    let out = target.output(Stream::Out);
    let address = out.lines().find_map(|line| line.strip_prefix("listening on ")).expect("an address");
    let socket = at("disk.sock");
    let addresses = [address.to_owned()];
    let base = arguments(&addresses, &socket);
    for (more, expected) in [
        (&[][..], "--secret-file FILE with the secret that the target has for"),
        (&["--secret-file", other], "the secrets that the target has for"),
        (&["--secret-file", host, "--controller-secret-file", other], "the secrets that the target has for"),
        (&["--secret-file", &none], "umask 077"),
        (&["--controller-secret-file", controller], "--secret-file <FILE>"),
    ] {
        let (is_well, text) = run(trunkline(&base).args(more));
        assert!(!is_well && text.contains(expected), "{expected} in {text}");
        assert!(!text.contains("AAEC") && !text.contains("ia6z"), "{text}");
    }
    let mine = [&base[..], &["--secret-file", host, "--controller-secret-file", controller]].concat();
    let mut attached = start(&mine);
    qemu_io(&uri(&socket), &["write -P 7 4k 1M", "read -P 7 4k 1M"]);
    // Another secret counts for those that connect from now on.
    config(other);
    target.signal(Signal::HUP);
    let reloaded = || target.output(Stream::Err).contains("reloaded: ").then_some(());
    testkit::Deadline::wait_until("the other secret", TIMEOUT, reloaded);
    qemu_io(&uri(&socket), &["read -P 7 4k 1M"]);
    attached.signal(Signal::TERM);
    attached.wait(TIMEOUT);
    let (is_well, text) = run(&mut trunkline(&mine));
    assert!(!is_well && text.contains("authentication has failed"), "{text}");
    let _attached = start(&[&base[..], &["--secret-file", other]].concat());
    qemu_io(&uri(&socket), &["read -P 7 4k 1M"]);
}

/// A server of NFS with a file of 32 MiB, and where that is.
fn nfs_server(directory: &Path) -> (Process, String, PathBuf) {
    let export = directory.join("export");
    std::fs::create_dir(&export).expect("a directory");
    let image = export.join("disk.img");
    std::fs::File::create(&image).expect("a file").set_len(32 << 20).expect("a size");
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    let name = export.display().to_string();
    let of_export = ["--dir", &name, "--export", "/export", "--no-root-squash"];
    let versions = ["--nfs-versions", "3,4.1,4.2"];
    let server = start(&[&["serve", "--listen", &listen][..], &of_export, &versions].concat());
    (server, format!("nfs://{listen}/export/disk.img"), image)
}

#[test]
fn a_file_of_an_nfs_server_is_a_disk() {
    let directory = TempDir::new().expect("a directory");
    let (_server, place, image) = nfs_server(directory.path());
    let blocks = || std::fs::metadata(&image).expect("a file").blocks();
    for (options, holes) in [("nconnect=2", false), ("vers=4.2", true)] {
        let socket = directory.path().join(format!("{options}.sock")).display().to_string();
        let _attached = start(&["attach", &format!("{place}?{options}"), "--socket", &socket]);
        let uri = uri(&socket);
        qemu_io(
            &uri,
            &["write -P 5 1M 3M", "read -P 5 1M 3M", "read -P 0 30M 1M", "write -f -P 6 512 512", "flush"],
        );
        qemu_io(&uri, &["write -P 7 8M 8M", "write -z 9M 64k", "read -P 0 9M 64k", "read -P 7 8M 1M"]);
        let before = blocks();
        // With leave to make a hole, and a trim, which qemu-io drops where it is not offered.
        qemu_io(&uri, &["write -z -u 10M 5M", "read -P 0 10M 5M", "read -P 7 15M 1M", "flush"]);
        assert_eq!(blocks() < before, holes, "{options}");
        qemu_io(&uri, &["write -P 8 20M 4M"]);
        let before = blocks();
        qemu_io(&uri, &["discard 20M 4M", "read -P 7 15M 1M"]);
        assert_eq!(blocks() < before, holes, "{options}");
        qemu_io(&uri, &[if holes { "read -P 0 20M 4M" } else { "read -P 8 20M 4M" }]);
    }
}

#[test]
fn a_file_of_a_read_only_mount_is_a_disk_that_is_not_written() {
    let directory = TempDir::new().expect("a directory");
    let (_server, place, _) = nfs_server(directory.path());
    let socket = directory.path().join("ro.sock").display().to_string();
    let _attached = start(&["attach", &format!("{place}?ro"), "--socket", &socket]);
    let (is_well, text) = run(Command::new("nbdinfo").arg(uri(&socket)));
    assert!(is_well && text.contains("is_read_only: true"), "{text}");
    let (_, text) =
        run(Command::new("qemu-io").args(["-f", "raw", "-r", "-c", "read -P 0 0 1M", &uri(&socket)]));
    assert!(text.contains("read 1048576/1048576"), "{text}");
    let (is_well, text) = run(Command::new("qemu-io").args(["-f", "raw", "-c", "write 0 4k", &uri(&socket)]));
    assert!(!is_well || text.contains("read only") || text.contains("read-only"), "{text}");
}

/// Both find the socket of one that was killed. What is refused says why, and what to do.
#[test]
fn of_two_that_start_at_once_on_the_socket_of_a_killed_one_one_serves() {
    let directory = TempDir::new().expect("a directory");
    let (_server, place, _) = nfs_server(directory.path());
    let socket = directory.path().join("disk.sock").display().to_string();
    let arguments = ["attach", &place, "--socket", &socket];
    for round in 0..20 {
        drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket"));
        let mut both = [Process::spawn(trunkline(&arguments)), Process::spawn(trunkline(&arguments))];
        let refused = testkit::Deadline::wait_until("one that is refused", TIMEOUT, || {
            both.iter_mut().position(|one| !one.is_running())
        });
        assert!(!both[refused].wait(TIMEOUT).success());
        let text = both[refused].all_output();
        assert!(text.contains("is served by another process") && text.contains("another --socket"), "{text}");
        let serves = &mut both[1 - refused];
        serves.wait_for_line("ready", TIMEOUT);
        qemu_io(&uri(&socket), &[&format!("write -P {} 0 4k", round + 1), "flush"]);
        if round % 2 == 0 {
            serves.kill();
            assert!(Path::new(&socket).exists(), "a killed one leaves its socket");
            std::fs::remove_file(&socket).expect("a socket");
        } else {
            assert!(serves.terminate(TIMEOUT).success());
        }
    }
}
