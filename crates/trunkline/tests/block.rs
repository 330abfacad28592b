//! Tests `trunkline block serve` as a user starts it: what it prints, whom it admits, what it
//! keeps, and what it refuses. What hosts then read and write is tested in the crate `target`, and
//! with a stock kernel in `vm`.

use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, Connected, Property};
use nvme::pdu::{Digests, HEADER_BYTES_MIN};
use nvme::register::{CC, Configuration};
use nvme::tcp::{HostConnection, HostData, HostReceived, HostSettings};
use nvme::{Cqe, HostId, IoOpcode, Nqn, Sgl, Sqe, Status};
use rustix::process::Signal;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use testkit::{Process, Stream};

const TIMEOUT: Duration = Duration::from_secs(60);
const HOST: &str = "nqn.2026-11.test:host";

fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.arg("block").arg("serve").args(arguments).env_remove("TRUNKLINE_LOG");
    command
}

/// Where direct I/O is possible.
fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn file_in(directory: &Path, name: &str, bytes: u64) -> String {
    let path = directory.join(name);
    File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
    path.display().to_string()
}

fn start(arguments: &[&str]) -> Process {
    let process = Process::spawn(trunkline(arguments));
    process.wait_for_line("ready", TIMEOUT);
    process
}

fn wait_for_error(process: &Process, part: &str) {
    let said = || process.output(Stream::Err).contains(part).then_some(());
    testkit::Deadline::wait_until(part, TIMEOUT, said);
}

/// The rest of the first line that begins so.
fn line(process: &Process, start: &str) -> String {
    let out = process.output(Stream::Out);
    let found = out.lines().find_map(|line| line.trim_start().strip_prefix(start));
    found.unwrap_or_else(|| panic!("no line {start:?} in:\n{out}")).to_owned()
}

/// Connects an admin queue; returns the connection with the status.
fn connect(process: &Process, host: &str) -> (TcpStream, Status) {
    let (peer, cqe) = Peer::connect(process, host, 0, CNTLID_DYNAMIC);
    (peer.stream, cqe.status)
}

/// A connection of a host.
struct Peer {
    stream: TcpStream,
    machine: HostConnection,
}

impl Peer {
    /// Connects a queue of this controller; returns what Connect was answered.
    fn connect(process: &Process, host: &str, qid: u16, cntlid: u16) -> (Self, Cqe) {
        let address: SocketAddr = line(process, "listening on ").parse().expect("an address");
        let subsystem = Nqn::new(&line(process, "subsystem ")).expect("a name");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let settings = HostSettings { digests: Digests::default(), entries: 32, transfer_bytes: 1 << 20 };
        let mut out = Vec::new();
        let machine = HostConnection::new(settings, &mut out);
        stream.write_all(&out).expect("sent");
        let mut peer = Self { stream, machine };
        assert_eq!(peer.receive(), HostReceived::Ready);
        let host = Nqn::new(host).expect("a name");
        let data = ConnectData::new(HostId([7; 16]), cntlid, &subsystem, &host).encode();
        let kato_ms = if qid == 0 { 120_000 } else { 0 };
        let connect = Connect { recfmt: 0, qid, sqsize: 31, attributes: ConnectAttributes::NONE, kato_ms };
        let cqe = peer.command(&connect.command(0, Sgl::Transport { length: 0 }), &data);
        (peer, cqe)
    }

    fn command(&mut self, sqe: &Sqe, data: &[u8]) -> Cqe {
        let bytes = data.len() as u32;
        let kind = if bytes == 0 { HostData::None } else { HostData::ToController(bytes) };
        let mut out = Vec::new();
        self.machine.submit(sqe, kind, &mut out).expect("taken");
        out.extend_from_slice(data);
        self.stream.write_all(&out).expect("sent");
        match self.receive() {
            HostReceived::Completed(cqe) => cqe,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self) -> HostReceived {
        let mut first = [0; HEADER_BYTES_MIN];
        self.stream.read_exact(&mut first).expect("a PDU");
        let layout = self.machine.layout(&first).expect("a good PDU");
        let mut pdu = vec![0; layout.pdu_bytes() as usize];
        pdu[..HEADER_BYTES_MIN].copy_from_slice(&first);
        self.stream.read_exact(&mut pdu[HEADER_BYTES_MIN..]).expect("a whole PDU");
        self.machine.handle_header(&layout, &pdu[..layout.header_bytes()]).expect("a good PDU")
    }
}

#[test]
fn a_host_is_admitted_by_its_name_and_told_what_to_type() {
    let state = directory();
    let state = state.path().display().to_string();
    let quick = ["--volume", "mem:1MiB", "--listen", "127.0.0.1:0", "--state", &state];
    let process = start(&[&quick[..], &["--allow", HOST]].concat());
    let (subsystem, address) = (line(&process, "subsystem "), line(&process, "listening on "));
    let port = address.rsplit(':').next().expect("a port");
    assert!(subsystem.starts_with("nqn.2014-08.org.nvmexpress:uuid:"), "{subsystem}");
    assert_eq!(line(&process, "namespace 1: "), "memory, 1.0 MiB, blocks of 4096 bytes");
    assert_eq!(line(&process, "nvme connect -t tcp -a 127.0.0.1 -s "), format!("{port} -n {subsystem}"));
    assert!(line(&process, "nvme connect-all -t tcp -a 127.0.0.1 -s ").starts_with(port));
    assert!(connect(&process, HOST).1.is_success());
    assert!(connect(&process, "nqn.2026-11.test:other").1.is(Status::CONNECT_INVALID_HOST));
    drop(process);
    let process = start(&quick);
    line(&process, "no host may connect");
    assert!(connect(&process, HOST).1.is(Status::CONNECT_INVALID_HOST));
    assert_eq!(line(&process, "subsystem "), subsystem, "the name is kept");
    drop(process);
    let process = start(&[&quick[..], &["--allow", "any", "--nqn", "nqn.2026-11.test:chosen"]].concat());
    assert_eq!(line(&process, "subsystem "), "nqn.2026-11.test:chosen");
    assert!(connect(&process, HOST).1.is_success());
}

#[test]
fn a_file_keeps_its_identity_and_what_its_hosts_have_put_on_it() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (state, one, two) = (
        at("state"),
        file_in(directory.path(), "one.img", 1 << 20),
        file_in(directory.path(), "two.img", 2 << 20),
    );
    let common = ["--state", &state, "--listen", "127.0.0.1:0", "--allow", "any"];
    let serve = |volumes: &[&str]| {
        let volumes = volumes.iter().flat_map(|volume| ["--volume", volume]);
        common.into_iter().chain(volumes).map(str::to_owned).collect::<Vec<_>>()
    };
    let started = |volumes: &[&str]| {
        let arguments = serve(volumes);
        start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let process = started(&[&one, &two]);
    assert_eq!(line(&process, "namespace 2: "), format!("{two}, 2.0 MiB, blocks of 4096 bytes"));
    drop(process);
    let kept = std::fs::read_to_string(directory.path().join("state/block.toml")).expect("the state");
    // A guest has made a file system; the volume is known, so nothing is asked.
    let made = Command::new("mkfs.ext4").args(["-q", "-F", &two]).status().expect("mkfs.ext4 runs");
    assert!(made.success());
    // Its number stays, whatever else is served.
    let process = started(&[&two]);
    line(&process, &format!("namespace 2: {two}"));
    drop(process);
    let again = std::fs::read_to_string(directory.path().join("state/block.toml")).expect("the state");
    assert_eq!(again, kept);
    // Hosts know it as larger.
    File::options().write(true).open(&two).and_then(|file| file.set_len(1 << 20)).expect("a file");
    let arguments = serve(&[&two]);
    let error = refused(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), 1);
    assert!(error.contains("hosts know it with 2097152"), "{error}");
}

#[test]
fn a_configuration_file_says_what_options_say() {
    let directory = directory();
    let image = file_in(directory.path(), "a.img", 1 << 20);
    let state = directory.path().join("state");
    let file = directory.path().join("block.toml");
    let text = format!(
        "nqn = \"nqn.2026-11.test:file\"\nlisten = [\"127.0.0.1:0\", \"[::1]:0\"]\nallow = [\"{HOST}\"]\n\
         state = \"{}\"\nloops = 1\nmemory = \"64MiB\"\n[[volume]]\nsource = \"{image}\"\nnsid = 9\n",
        state.display()
    );
    std::fs::write(&file, text).expect("a file");
    let process = start(&["-c", &file.display().to_string()]);
    assert_eq!(line(&process, "subsystem "), "nqn.2026-11.test:file");
    line(&process, "namespace 9: ");
    line(&process, "listening on [::1]:");
    assert!(connect(&process, HOST).1.is_success());
}

/// SIGHUP takes over who sees what, and nothing else.
#[test]
fn hosts_and_groups_of_the_file_see_their_volumes_and_are_read_again() {
    let directory = directory();
    let state = directory.path().join("state");
    let file = directory.path().join("block.toml");
    let write = |members: &str, loops: u16| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nstate = \"{}\"\nloops = {loops}\n\
             [[host]]\nname = \"one\"\nnqn = \"{HOST}\"\n\
             [[group]]\nname = \"cluster\"\nhosts = [{members}]\n\
             [[volume]]\nsource = \"mem:1MiB\"\nhosts = [\"cluster\"]\n\
             [[volume]]\nsource = \"mem:2MiB\"\n",
            state.display()
        );
        std::fs::write(&file, text).expect("a file");
    };
    let other = "nqn.2026-11.test:other";
    write("\"one\"", 1);
    let process = start(&["-c", &file.display().to_string()]);
    assert_eq!(line(&process, "for "), HOST);
    line(&process, "warning: no host sees namespace 2");
    assert!(connect(&process, HOST).1.is_success());
    assert!(connect(&process, other).1.is(Status::CONNECT_INVALID_HOST));
    write(&format!("\"{other}\""), 2);
    process.signal(Signal::HUP);
    wait_for_error(&process, "reloaded: ");
    let error = process.output(Stream::Err);
    assert!(error.contains("only after the next start"), "{error}");
    assert!(connect(&process, HOST).1.is(Status::CONNECT_INVALID_HOST));
    assert!(connect(&process, other).1.is_success());
    // A file that is wrong changes nothing.
    write("\"nobody\"", 1);
    process.signal(Signal::HUP);
    wait_for_error(&process, "not reloaded: ");
    assert!(connect(&process, other).1.is_success());
}

#[test]
fn a_signal_ends_it_with_its_connections_and_frees_the_volume() {
    let directory = directory();
    let state = directory.path().join("state").display().to_string();
    let image = file_in(directory.path(), "a.img", 1 << 20);
    let arguments = ["--volume", &image, "--listen", "127.0.0.1:0", "--state", &state, "--allow", "any"];
    for signal in [Signal::TERM, Signal::INT] {
        let mut process = start(&arguments);
        let (mut stream, status) = connect(&process, HOST);
        assert!(status.is_success());
        process.signal(signal);
        let status = process.wait(TIMEOUT);
        assert!(status.success(), "{status}");
        let end = stream.read(&mut [0; 8]);
        assert!(!matches!(end, Ok(1..)), "{end:?}");
    }
}

/// The hosts may have sent their commands again elsewhere.
#[test]
fn a_server_that_stood_still_ends_the_io_connections_of_its_hosts() {
    let state = directory();
    let state = state.path().display().to_string();
    let common = ["--volume", "mem:1MiB", "--listen", "127.0.0.1:0", "--state", &state];
    let process = start(&[&common[..], &["--allow", "any"]].concat());
    let (mut admin, cqe) = Peer::connect(&process, HOST, 0, CNTLID_DYNAMIC);
    let cntlid = Connected::of(cqe.result).cntlid;
    assert!(admin.command(&Property::set(0, CC, Configuration::ENABLE.0), &[]).status.is_success());
    let (mut io, cqe) = Peer::connect(&process, HOST, 1, cntlid);
    assert!(cqe.status.is_success());
    process.signal(Signal::STOP);
    // Longer than the server accepts; what is tested is how long it stood still.
    std::thread::sleep(Duration::from_secs(7));
    let flush = Sqe::new(IoOpcode::FLUSH.0, 0, 1);
    let mut out = Vec::new();
    io.machine.submit(&flush, HostData::None, &mut out).expect("taken");
    io.stream.write_all(&out).expect("sent");
    process.signal(Signal::CONT);
    let answer = io.stream.read(&mut [0; 24]);
    assert!(!matches!(answer, Ok(1..)), "the command was executed: {answer:?}");
    let again = admin.command(&Property::get(0, CC, false), &[]);
    assert!(again.status.is_success(), "the controller is still there");
    let (mut io, cqe) = Peer::connect(&process, HOST, 1, cntlid);
    assert!(cqe.status.is_success());
    assert!(io.command(&flush, &[]).status.is_success());
}

/// Runs what has to fail; returns what it says.
fn refused(arguments: &[&str], status: i32) -> String {
    let output = trunkline(arguments).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty());
    error
}

#[test]
fn wrong_usage_is_refused_with_its_cause() {
    for (arguments, expected) in [
        (&[][..], "no volume was given"),
        (&["--volume", "mem:much"], "does not begin with a number"),
        (&["--volume", "mem:1B"], "no block"),
        (&["--volume", "mem:1MiB", "--allow", "host"], "\"nqn.\""),
        (&["--volume", "mem:1MiB", "--nqn", "nqn.x"], "year and month"),
        (&["--volume", "mem:1MiB", "--nqn", nvme::nqn::DISCOVERY_NQN], "discovery"),
        (&["--volume", "mem:1MiB", "--listen", "here"], "--listen"),
        (&["--volume", "mem:1MiB", "--loops", "0"], "--loops"),
        (&["--volume", "mem:1MiB", "-c", "file.toml"], "cannot be used with"),
    ] {
        let error = refused(arguments, 2);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_a_remedy() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let state = at("state");
    let foreign = file_in(directory.path(), "foreign.img", 2 << 20);
    let made = Command::new("mkfs.ext4").args(["-q", "-F", &foreign]).status().expect("mkfs.ext4 runs");
    assert!(made.success());
    let empty = file_in(directory.path(), "empty.img", 0);
    let good = file_in(directory.path(), "good.img", 1 << 20);
    let with = |volume: &str, more: &[&str]| {
        let all = [&["--volume", volume, "--state", &state, "--listen", "127.0.0.1:0"], more].concat();
        let error = refused(&all, 1);
        assert!(error.contains("cause:") && error.contains("try:"), "{error}");
        error
    };
    assert!(with(&at("nothing"), &[]).contains("truncate -s"));
    assert!(with("/dev/null", &[]).contains("neither a regular file nor a block device"));
    assert!(with(&empty, &[]).contains("0 bytes"));
    let error = with(&foreign, &[]);
    assert!(error.contains("ext4") && error.contains("--force"), "{error}");
    assert!(with(&good, &["--volume", &good]).contains("good.img"), "a file twice");
    assert!(with(&good, &["--listen", "0.0.0.0:4420"]).contains("every address"));
    assert!(with(&good, &["--listen", "192.0.2.1:0"]).contains("192.0.2.1"));
    let nowhere = ["--volume", &good, "--listen", "127.0.0.1:0", "--state", "/dev/null/state"];
    assert!(refused(&nowhere, 1).contains("cannot use the state directory"));
    let common = ["--listen", "127.0.0.1:0", "--volume"];
    let process = start(&[&common[..], &[&good, "--state", &state]].concat());
    assert!(with("mem:1MiB", &[]).contains("another process"));
    let other = at("other-state");
    let error = refused(&[&common[..], &[&good, "--state", &other]].concat(), 1);
    assert!(error.contains("locked"), "{error}");
    drop(process);
    start(&[&common[..], &[&foreign, "--state", &state, "--force"]].concat());
}
