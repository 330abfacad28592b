//! Tests `trunkline block serve` as a user starts it: what it prints, whom it admits, what it
//! keeps, and what it refuses. What hosts then read and write is tested in the crate `target`, and
//! with a stock kernel in `vm`.

use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, Connected, Property};
use nvme::host::HostData;
use nvme::nqn::NQN_FIELD_BYTES;
use nvme::pdu::{Digests, HEADER_BYTES_MIN};
use nvme::register::{CC, Configuration};
use nvme::reservation::{
    Acquire, AcquireAction, Keys, Persistence, Register, RegisterAction, ReservationType,
};
use nvme::tcp::{HostConnection, HostReceived, HostSettings};
use nvme::{Cqe, HostId, IoOpcode, Nqn, Sgl, Sqe, Status};
use rustix::process::Signal;
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
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
        let subsystem = Nqn::new(&line(process, "subsystem ")).expect("a name");
        Self::connect_to(process, &subsystem, host, qid, cntlid)
    }

    fn connect_to(process: &Process, subsystem: &Nqn, host: &str, qid: u16, cntlid: u16) -> (Self, Cqe) {
        let said = line(process, "listening on ");
        let address: SocketAddr = said.split(' ').next().and_then(|at| at.parse().ok()).expect("an address");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let settings = HostSettings { digests: Digests::default(), entries: 32, transfer_bytes: 1 << 20 };
        let mut out = Vec::new();
        let machine = HostConnection::new(settings, &mut out);
        stream.write_all(&out).expect("sent");
        let mut peer = Self { stream, machine };
        assert_eq!(peer.receive(), HostReceived::Ready);
        let mut hostnqn = [0; NQN_FIELD_BYTES];
        hostnqn[..host.len()].copy_from_slice(host.as_bytes());
        // Each host has its own.
        let id = HostId([host.bytes().last().unwrap_or_default(); 16]);
        let data = ConnectData { hostnqn, ..ConnectData::new(id, cntlid, subsystem, subsystem) }.encode();
        let kato_ms = if qid == 0 { 120_000 } else { 0 };
        let connect = Connect { recfmt: 0, qid, sqsize: 31, attributes: ConnectAttributes::NONE, kato_ms };
        let cqe = peer.command(&connect.command(0, Sgl::Transport { length: 0 }), &data);
        (peer, cqe)
    }

    /// Connects the queues of a controller: the admin queue and one for input and output.
    fn controller(process: &Process, host: &str) -> (Self, Self) {
        let (mut admin, cqe) = Self::connect(process, host, 0, CNTLID_DYNAMIC);
        let cntlid = Connected::of(cqe.result).cntlid;
        assert!(admin.command(&Property::set(0, CC, Configuration::ENABLE.0), &[]).status.is_success());
        let (mut io, cqe) = Self::connect(process, host, 1, cntlid);
        assert!(cqe.status.is_success());
        io.machine.set_capsule_data_bytes(8192);
        (admin, io)
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
    // As spdk_nvme_perf comes if nobody gives it a name.
    assert!(connect(&process, "").1.is(Status::CONNECT_INVALID_PARAMETERS));
    wait_for_error(&process, "its host gives no valid name");
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

#[test]
fn addresses_and_volumes_belong_to_two_nodes_in_turn_and_owners_are_kept() {
    let directory = directory();
    let image = |name| file_in(directory.path(), name, 1 << 20);
    let images = ["a.img", "b.img", "c.img"].map(image);
    let state = directory.path().join("state");
    let file = directory.path().join("block.toml");
    let write = |owner: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\nstate = \"{}\"\nallow = [\"any\"]\n\
             [[volume]]\nsource = \"{}\"\n{owner}[[volume]]\nsource = \"{}\"\n[[volume]]\nsource = \"{}\"\n",
            state.display(),
            images[0],
            images[1],
            images[2]
        );
        std::fs::write(&file, text).expect("a file");
    };
    let owners = |process: &Process| {
        [1, 2, 3].map(|nsid| line(process, &format!("namespace {nsid}: ")).chars().last())
    };
    let arguments = ["-c", &file.display().to_string()];
    write("");
    let process = start(&arguments);
    let ports: Vec<_> = process
        .output(Stream::Out)
        .lines()
        .filter_map(|line| line.strip_prefix("listening on ")?.split_once(' '))
        .map(|(_, node)| node.to_owned())
        .collect();
    assert_eq!(ports, ["(node A)", "(node B)"]);
    assert_eq!(owners(&process), [Some('A'), Some('B'), Some('A')]);
    assert!(connect(&process, HOST).1.is_success());
    write("owner = \"B\"\n");
    process.signal(Signal::HUP);
    wait_for_error(&process, "namespace 1: node B owns it now");
    drop(process);
    // What was decided counts, also where the file does not say so.
    write("");
    let process = start(&arguments);
    assert_eq!(owners(&process), [Some('B'), Some('B'), Some('A')]);
    drop(process);
    let epochs = std::fs::read_dir(state.join("owners"))
        .expect("records")
        .map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).expect("a record"));
    let mut epochs: Vec<String> = epochs.collect();
    epochs.sort();
    assert_eq!(
        epochs,
        ["owner = \"A\"\nepoch = 2\n", "owner = \"B\"\nepoch = 2\n", "owner = \"B\"\nepoch = 3\n"]
    );
    // A node without an address owns nothing; a record that is damaged is refused.
    let alone = ["--volume", &images[0], "--listen", "127.0.0.1:0", "--state", &state.display().to_string()];
    assert!(line(&start(&alone), "namespace 1: ").ends_with("4096 bytes"));
    for record in std::fs::read_dir(state.join("owners")).expect("records") {
        std::fs::write(record.expect("an entry").path(), "owner = \"C\"\nepoch = 1\n").expect("written");
    }
    assert!(refused(&alone, 1).contains("no data are lost"));
}

/// Asks a running server; returns the status and what was printed, errors last.
fn ask(process: &Process, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.arg("block").args(arguments).args(["--pid", &process.id().to_string()]);
    let output = command.env_remove("TRUNKLINE_LOG").output().expect("it runs");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text")).concat();
    (output.status.code(), text)
}

fn told(process: &Process, arguments: &[&str]) -> String {
    let (status, text) = ask(process, arguments);
    assert_eq!(status, Some(0), "{arguments:?}: {text}");
    text
}

#[test]
fn a_running_server_tells_what_it_serves_and_to_whom() {
    let directory = directory();
    let state = directory.path().join("state").display().to_string();
    let image = file_in(directory.path(), "a.img", 1 << 20);
    let listen = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--state", &state];
    let process =
        start(&[&listen[..], &["--volume", &image, "--volume", "mem:2MiB", "--allow", HOST]].concat());
    let (host, _) = connect(&process, HOST);
    let list = told(&process, &["list"]);
    assert!(list.starts_with(&line(&process, "subsystem ")), "{list}");
    assert!(list.contains(&image) && list.contains("1.0 MiB") && list.contains("serving"), "{list}");
    let map = told(&process, &["map"]);
    assert!(map.contains(&format!("{HOST}\n  namespace 1: {image}, 1.0 MiB, node A\n")), "{map}");
    assert_eq!(map.matches("nvme connect -t tcp -a 127.0.0.1 -s ").count(), 2, "{map}");
    assert_eq!(told(&process, &["map", HOST]), map);
    let (status, text) = ask(&process, &["map", "nqn.2026-11.test:other"]);
    assert!(status == Some(1) && text.contains("sees nothing"), "{text}");
    let hosts = told(&process, &["hosts"]);
    let peer = host.local_addr().expect("an address").to_string();
    assert!(hosts.contains(HOST) && hosts.contains(&peer) && hosts.contains("120.0"), "{hosts}");
    let dump: serde_json::Value = serde_json::from_str(&told(&process, &["dump"])).expect("JSON");
    assert_eq!(dump["controllers"][0]["host"], HOST);
    assert_eq!(dump["volumes"][1]["bytes"], 2 << 20);
    for (command, entries) in [("list", 2), ("hosts", 1)] {
        let array: serde_json::Value =
            serde_json::from_str(&told(&process, &[command, "--json"])).expect("JSON");
        assert_eq!(array.as_array().map(Vec::len), Some(entries), "{command}");
    }
    let checked = told(&process, &["check"]);
    assert!(checked.contains("has 1 paths, to 1 of 2 nodes"), "{checked}");
    drop(host);
    testkit::Deadline::wait_until("no host", TIMEOUT, || {
        told(&process, &["hosts"]).starts_with("no host is connected").then_some(())
    });
}

#[test]
fn a_fenced_host_loses_its_connections_and_stays_out_over_a_restart() {
    let directory = directory();
    let state = directory.path().join("state").display().to_string();
    let image = file_in(directory.path(), "a.img", 1 << 20);
    let arguments = ["--volume", &image, "--listen", "127.0.0.1:0", "--state", &state, "--allow", "any"];
    let mut process = start(&arguments);
    let other = "nqn.2026-11.test:other";
    let (mut admin, mut io) = Peer::controller(&process, HOST);
    let (mut bystander, _) = Peer::connect(&process, other, 0, CNTLID_DYNAMIC);
    // It has no data, and is not waited for.
    let (_discovery, cqe) = Peer::connect_to(&process, &Nqn::discovery(), HOST, 0, CNTLID_DYNAMIC);
    assert!(cqe.status.is_success());
    assert_eq!(told(&process, &["fence", HOST]), format!("{HOST} is refused\n"));
    // It is over when the command has ended.
    assert_eq!(io.stream.read(&mut [0; 24]).expect("the end"), 0);
    assert_eq!(admin.stream.read(&mut [0; 24]).expect("the end"), 0);
    assert!(connect(&process, HOST).1.is(Status::CONNECT_INVALID_HOST));
    assert!(bystander.command(&Property::get(0, CC, false), &[]).status.is_success(), "nobody else is hurt");
    assert_eq!(told(&process, &["fenced"]), format!("{HOST}\n"));
    assert!(told(&process, &["map"]).contains(other));
    process.kill();
    let process = start(&arguments);
    assert!(connect(&process, HOST).1.is(Status::CONNECT_INVALID_HOST), "it stays out");
    assert_eq!(told(&process, &["fence", HOST]), format!("{HOST} was refused already\n"));
    assert_eq!(told(&process, &["unfence", HOST]), format!("{HOST} may connect again\n"));
    assert!(connect(&process, HOST).1.is_success());
    let (status, text) = ask(&process, &["fence", "host"]);
    assert!(status == Some(1) && text.contains("no name of a host"), "{text}");
    // What cannot be kept is not promised.
    std::fs::create_dir_all(directory.path().join("state/fenced.toml.new/in-the-way")).expect("a directory");
    let (status, text) = ask(&process, &["fence", HOST]);
    assert!(status == Some(1) && text.contains("cannot be written"), "{text}");
    assert!(connect(&process, HOST).1.is_success());
    drop(process);
    std::fs::write(directory.path().join("state/fenced.toml"), "hosts = [1]").expect("a file");
    assert!(refused(&arguments, 1).contains("which hosts are fenced"));
}

/// As Pacemaker starts it: options on standard input.
#[test]
fn the_fence_agent_does_what_a_cluster_asks() {
    let directory = directory();
    let state = directory.path().join("state").display().to_string();
    let process =
        start(&["--volume", "mem:1MiB", "--listen", "127.0.0.1:0", "--state", &state, "--allow", HOST]);
    // The agent asks all servers of this host; here it is to ask this one.
    let program = directory.path().join("trunkline");
    let script =
        format!("#!/bin/sh\nexec {} \"$@\" --pid {}\n", env!("CARGO_BIN_EXE_trunkline"), process.id());
    std::fs::write(&program, script).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("it may run");
    let agent = |options: &str| {
        let mut command =
            Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/cluster/fence_trunkline"));
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("it runs");
        let mut input = child.stdin.take().expect("an input");
        let all = format!("program={}\nnodename=x\n{options}", program.display());
        input.write_all(all.as_bytes()).expect("read");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text")).concat();
        (output.status.code(), text)
    };
    let plug = format!("plug={HOST}\n");
    assert!(agent("action=metadata\n").1.contains("<resource-agent name=\"fence_trunkline\""));
    assert_eq!(agent("action=monitor\n"), (Some(0), String::new()));
    assert_eq!(agent("action=list\n"), (Some(0), format!("{HOST},\n")));
    assert_eq!(agent(&format!("action=status\n{plug}")).0, Some(0));
    assert!(connect(&process, HOST).1.is_success());
    assert_eq!(agent(&format!("{plug}action=off\n")).0, Some(0));
    assert!(connect(&process, HOST).1.is(Status::CONNECT_INVALID_HOST));
    assert_eq!(agent(&format!("action=status\n{plug}")).0, Some(2));
    assert_eq!(agent(&format!("action=reboot\n{plug}")).0, Some(0), "once more");
    assert_eq!(agent(&format!("action=on\n{plug}")).0, Some(0));
    assert!(connect(&process, HOST).1.is_success());
    for (options, part) in [
        ("action=off\n", "no host is named"),
        ("action=off\nplug=a;reboot\n", "not allowed"),
        ("action=off\nplug=--help\n", "begins like an option"),
        ("action=off\nplug=a\nip=-oProxyCommand\n", "begins like an option"),
        ("action=off\nplug=host\n", "not known to be fenced"),
        ("action=reboot\nplug=nqn.2026-11.test:hots\n", "no server knows this host"),
        ("action=what\n", "there is no action"),
        ("action=off\ntimeout=x\n", "no number of seconds"),
    ] {
        let (status, text) = agent(options);
        assert!(status == Some(1) && text.contains(part), "{options}: {text}");
    }
    drop(process);
    let (status, text) = agent(&format!("{plug}action=off\n"));
    assert!(status == Some(1) && text.contains("not known to be fenced"), "{text}");
    assert_eq!(agent("action=monitor\n").0, Some(1));
}

#[test]
fn what_a_server_has_done_is_shown_by_volume() {
    let directory = directory();
    let state = directory.path().join("state").display().to_string();
    let last = directory.path().join("last.prom");
    let process = start(&[
        "--volume",
        "mem:1MiB",
        "--listen",
        "127.0.0.1:0",
        "--state",
        &state,
        "--allow",
        "any",
        "--metrics",
        "127.0.0.1:0",
        "--metrics-file",
        &last.display().to_string(),
    ]);
    let (_admin, mut io) = Peer::controller(&process, HOST);
    for _ in 0..3 {
        assert!(io.command(&Sqe::new(IoOpcode::FLUSH.0, 0, 1), &[]).status.is_success());
    }
    let said = line(&process, "metrics on http://");
    let (address, _) = said.split_once('/').expect("an address and a path");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    let is_counted = |text: &str| {
        let lines =
            text.lines().filter(|line| line.contains("operation=\"FLUSH\"") && line.contains("memory"));
        lines
            .filter_map(|line| line.rsplit_once(' '))
            .any(|(name, value)| name.contains("_total") && value == "3")
    };
    assert!(is_counted(&text), "{text}");
    assert!(text.contains("trunkline_controllers") && text.contains("trunkline_volume_served{"), "{text}");
    let list = told(&process, &["list", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    assert_eq!((&list[0]["others"]["count"], &list[0]["others"]["errors"]), (&3.into(), &0.into()));
    process.signal(Signal::TERM);
    testkit::Deadline::wait_until("the last metrics", TIMEOUT, || {
        std::fs::read_to_string(&last).ok().filter(|text| is_counted(text))
    });
}

#[test]
fn a_volume_is_given_to_a_node_of_a_running_server() {
    let directory = directory();
    let state = directory.path().join("state").display().to_string();
    let image = file_in(directory.path(), "a.img", 1 << 20);
    let common = ["--volume", &image, "--state", &state, "--allow", "any"];
    let pair = [&common[..], &["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"]].concat();
    let process = start(&pair);
    assert_eq!(told(&process, &["own", "1", "B"]), "namespace 1: node B owns it now\n");
    assert_eq!(told(&process, &["own", "1", "b"]), "namespace 1: node B owned it already\n");
    assert!(told(&process, &["own", "1", "B", "--json"]).contains("\"owner\": \"B\""));
    let (status, text) = ask(&process, &["own", "7", "A"]);
    assert!(status == Some(1) && text.contains("there is no namespace 7"), "{text}");
    assert_eq!(ask(&process, &["own", "1", "C"]).0, Some(2));
    drop(process);
    let process = start(&pair);
    assert!(line(&process, "namespace 1: ").ends_with("node B"), "it counts after the next start");
    drop(process);
    let alone = start(&[&common[..], &["--listen", "127.0.0.1:0"]].concat());
    let (status, text) = ask(&alone, &["own", "1", "B"]);
    assert!(status == Some(1) && text.contains("no address"), "{text}");
    // Nothing listens for a process that does not serve.
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    let output = command.args(["block", "list", "--pid", "1"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("process 1 does not answer"));
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

/// As `nvme gen-dhchap-key` prints them.
const SECRETS: [&str; 2] = [
    "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
];

/// A file with a volume for [`HOST`] and others, who have no secret.
fn file_with_secret(directory: &Path, secret: &str, mode: u32) -> String {
    let file = directory.join("block.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nstate = \"{}\"\nallow = [\"one\", \"nqn.2026-11.test:open\"]\n\
         [[host]]\nname = \"one\"\nnqn = \"{HOST}\"\n{secret}\n[[volume]]\nsource = \"mem:1MiB\"\n",
        directory.join("state").display()
    );
    std::fs::write(&file, text).expect("a file");
    std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its mode");
    file.display().to_string()
}

#[test]
fn a_host_with_a_secret_must_authenticate_and_nothing_shows_the_secret() {
    let directory = directory();
    let required = |process: &Process, host: &str| {
        let (_, cqe) = Peer::connect(process, host, 0, CNTLID_DYNAMIC);
        assert!(cqe.status.is_success(), "{}", cqe.status);
        Connected::of(cqe.result).authentication_required
    };
    let file = file_with_secret(directory.path(), &format!("secret = \"{}\"", SECRETS[0]), 0o600);
    let mut command = trunkline(&["-c", &file]);
    command.env("TRUNKLINE_LOG", "trace");
    let process = Process::spawn(command);
    process.wait_for_line("ready", TIMEOUT);
    line(&process, "each with --dhchap-secret");
    assert!(required(&process, HOST));
    assert!(!required(&process, "nqn.2026-11.test:open"));
    // One that does not care is served nothing.
    let (mut admin, _) = Peer::connect(&process, HOST, 0, CNTLID_DYNAMIC);
    let enable = Property::set(0, CC, Configuration::ENABLE.0);
    assert_eq!(admin.command(&enable, &[]).status, Status::AUTHENTICATION_REQUIRED.no_retry());
    let map = told(&process, &["map"]);
    assert!(map.contains(&format!("secret of the host, on\n  {HOST}\n")), "{map}");
    let check = ask(&process, &["check"]).1;
    assert!(check.contains("block.authentication"), "{check}");
    // Without a secret from now on; then with one that is wrong.
    let reload = |secret: &str, said: &str| {
        file_with_secret(directory.path(), secret, 0o600);
        process.signal(Signal::HUP);
        wait_for_error(&process, said);
    };
    reload("", "reloaded: hosts of 1");
    assert!(!required(&process, HOST));
    reload(&format!("secret = \"{}\"", &SECRETS[0][..30]), "not reloaded: ");
    reload(&format!("secrets = \"{}\"", SECRETS[0]), "unknown field");
    let said = [told(&process, &["dump"]), told(&process, &["list", "--json"]), map, check].concat();
    let all = said + &process.output(Stream::Out) + &process.output(Stream::Err);
    assert!(!all.contains(&SECRETS[0][12..20]), "{all}");
}

#[test]
fn a_secret_that_others_may_read_or_that_is_none_is_refused() {
    let directory = directory();
    let open = directory.path().join("open.secret");
    std::fs::write(&open, SECRETS[0]).expect("a file");
    std::fs::set_permissions(&open, Permissions::from_mode(0o644)).expect("its mode");
    let quoted = |secret: &str| format!("secret = \"{secret}\"");
    for (secret, mode, rule) in [
        (quoted(SECRETS[0]), 0o644, "chmod 600"),
        (format!("secret_file = \"{}\"", open.display()), 0o644, "chmod 600"),
        (quoted(&SECRETS[0].replace("AAEC", "AAED")), 0o600, "CRC"),
        (quoted("secret"), 0o600, "begins with \"DHHC-1:\""),
        (format!("controller_{}", quoted(SECRETS[0])), 0o600, "only with a secret of the host"),
        (format!("{}\ndhgroups = [\"ffdhe1024\"]", quoted(SECRETS[0])), 0o600, "known are ffdhe3072"),
    ] {
        let file = file_with_secret(directory.path(), &secret, mode);
        let error = refused(&["-c", &file], 1);
        assert!(error.contains(rule) && error.contains("try:"), "{secret}: {error}");
        assert!(!error.contains(&SECRETS[0][14..30]), "{error}");
    }
    // A file of its own may be named by one that others may read.
    std::fs::set_permissions(&open, Permissions::from_mode(0o600)).expect("its mode");
    let named = format!("secret_file = \"{}\"", open.display());
    start(&["-c", &file_with_secret(directory.path(), &named, 0o644)]);
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
    // The loop of the old connection may not have reported its end yet; hosts try again as well.
    let connected = || {
        let (io, cqe) = Peer::connect(&process, HOST, 1, cntlid);
        cqe.status.is_success().then_some(io)
    };
    let mut io = testkit::Deadline::wait_until("the queue is free", TIMEOUT, connected);
    assert!(io.command(&flush, &[]).status.is_success());
}

/// Killed, not ended: what a host was answered is on the disk.
#[test]
fn reservations_survive_a_restart_and_are_missed_when_their_file_is_lost() {
    let directory = directory();
    let state = directory.path().join("state");
    let image = file_in(directory.path(), "a.img", 1 << 20);
    let state_text = state.display().to_string();
    let arguments = ["--volume", &image, "--listen", "127.0.0.1:0", "--state", &state_text, "--allow", "any"];
    let (other, sgl) = ("nqn.2026-11.test:other", Sgl::Transport { length: 0 });
    let keys = |current, other| Keys { current, other }.encode();
    let flush = Sqe::new(IoOpcode::FLUSH.0, 0, 1);
    let flushed =
        |process: &Process, host: &str| Peer::controller(process, host).1.command(&flush, &[]).status;
    let mut process = start(&arguments);
    let (_admin, mut io) = Peer::controller(&process, HOST);
    let register = Register {
        action: RegisterAction::REGISTER,
        ignore_existing_key: false,
        persistence: Persistence::PERSISTENT,
    };
    assert!(io.command(&register.command(0, 1, sgl), &keys(0, 0xabc)).status.is_success());
    let acquire = Acquire {
        action: AcquireAction::ACQUIRE,
        ignore_existing_key: false,
        kind: ReservationType::EXCLUSIVE_ACCESS,
    };
    assert!(io.command(&acquire.command(0, 1, sgl), &keys(0xabc, 0)).status.is_success());
    assert!(flushed(&process, other).is(Status::RESERVATION_CONFLICT));
    process.signal(Signal::KILL);
    process.wait(TIMEOUT);
    let process = start(&arguments);
    assert!(flushed(&process, other).is(Status::RESERVATION_CONFLICT));
    assert!(flushed(&process, HOST).is_success());
    drop(process);
    let kept = state.join("reservations.toml");
    let text = std::fs::read_to_string(&kept).expect("reservations");
    assert!(text.contains("key = \"0x0000000000000abc\""), "{text}");
    std::fs::write(&kept, text.replace("abc", "abd")).expect("written");
    let error = refused(&arguments, 1);
    assert!(error.contains("damaged") && error.contains("try:"), "{error}");
    std::fs::remove_file(&kept).expect("removed");
    let error = refused(&arguments, 1);
    assert!(error.contains("reservations.toml: it is not there"), "{error}");
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
    let half = with(&file_in(directory.path(), "half.img", (1 << 20) + 512), &[]);
    assert!(half.contains("its last 512 bytes") && half.contains("block = 512"), "{half}");
    let odd = with(&file_in(directory.path(), "odd.img", (1 << 20) + 100), &[]);
    assert!(odd.contains("truncate -s %4096") && !odd.contains("10G"), "{odd}");
    let error = with(&foreign, &[]);
    assert!(error.contains("ext4") && error.contains("the state directory that has its identity"), "{error}");
    assert!(with(&good, &["--volume", &good]).contains("good.img"), "a file twice");
    assert!(with(&good, &["--listen", "0.0.0.0:4420"]).contains("every address"));
    assert!(with(&good, &["--listen", "192.0.2.1:0"]).contains("192.0.2.1"));
    let config = directory.path().join("block.toml");
    let text = format!(
        "state = \"{state}\"\nlisten = [\"127.0.0.1:0\"]\n[[volume]]\nsource = \"mem:1MiB\"\nowner = \"B\"\n"
    );
    std::fs::write(&config, text).expect("a file");
    let error = refused(&["-c", &config.display().to_string()], 1);
    assert!(error.contains("owned by node B, which has no address"), "{error}");
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
