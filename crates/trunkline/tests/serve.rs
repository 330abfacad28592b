//! Tests `trunkline serve` under a service manager: reload of the configuration, notifications,
//! passed sockets, and log messages in JSON.

#[path = "support/mnt.rs"]
mod mnt;

use mnt::mnt;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::Signal;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::{Process, Stream, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(60);

fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments);
    for name in ["TRUNKLINE_LOG", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC"] {
        command.env_remove(name);
    }
    command
}

fn address_of(process: &Process) -> SocketAddr {
    process.wait_for_line("ready", TIMEOUT);
    let out = process.output(Stream::Out);
    let line = out.lines().find_map(|line| line.strip_prefix("listening on ")).expect("an address");
    line.split(' ').next().expect("a word").parse().expect("an address")
}

fn exports(paths: &[&str]) -> String {
    let mut text = "[[node]]\nlisten = [\"127.0.0.1:0\"]\n".to_owned();
    for path in paths {
        text.push_str(&format!("[[export]]\npath = \"{path}\"\nmem = \"1MiB\"\nallow = [\"127.0.0.0/8\"]\n"));
    }
    text
}

fn write(file: &Path, text: &str) {
    std::fs::write(file, text).expect("a file");
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

/// A connection from this address of the host.
fn connect_from(source: [u8; 4], address: SocketAddr) -> OwnedFd {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((source, 0))).expect("an address of this host");
    rustix::net::connect(&socket, &address).expect("the server accepts");
    socket
}

#[test]
fn sighup_reloads_the_configuration_and_keeps_connections() {
    const NOENT: u32 = 2;
    let dir = temp_dir("reload");
    let file = dir.path().join("group.toml");
    write(&file, &exports(&["/one"]));
    let process = Process::spawn(trunkline(&["serve", "-c", file.to_str().expect("UTF-8")]));
    let mut client = connect(address_of(&process));
    assert_eq!((mnt(&mut client, "/one"), mnt(&mut client, "/two")), (0, NOENT));

    write(&file, &exports(&["/one", "/two"]));
    process.signal(Signal::HUP);
    process.wait_for_line("reloaded: 1 changed, 0 not taken over", TIMEOUT);
    assert_eq!((mnt(&mut client, "/one"), mnt(&mut client, "/two")), (0, 0));

    write(&file, &exports(&["/one", "/two"]).replace("1MiB", "2MiB"));
    process.signal(Signal::HUP);
    process.wait_for_line("reloaded: 0 changed, 2 not taken over", TIMEOUT);
    assert!(process.output(Stream::Err).contains("export /two keeps its store"), "{}", process.all_output());

    write(&file, "[[node]\n");
    process.signal(Signal::HUP);
    let error = process.wait_for_line("the configuration stays as it was", TIMEOUT);
    assert!(error.contains("group.toml"), "{error}");
    assert_eq!(mnt(&mut client, "/two"), 0);
}

#[test]
fn a_configuration_from_a_pipe_is_served_but_cannot_be_reloaded() {
    let dir = temp_dir("piped");
    let file = dir.path().join("group.toml");
    write(&file, &exports(&["/one"]));
    let mut command = Command::new("sh");
    // As `serve -c <(...)` in shells that support that.
    command.args(["-euc", "exec \"$1\" serve -c /dev/fd/3 3<<END\n$(cat \"$2\")\nEND\n", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_trunkline")).arg(&file).env_remove("TRUNKLINE_LOG");
    let process = Process::spawn(command);
    let mut client = connect(address_of(&process));
    assert_eq!(mnt(&mut client, "/one"), 0);
    process.signal(Signal::HUP);
    let error = process.wait_for_line("the configuration stays as it was", TIMEOUT);
    assert!(error.contains("/dev/fd/3 is no file that can be read again"), "{error}");
    assert_eq!(mnt(&mut client, "/one"), 0);
}

#[test]
fn sighup_on_a_quick_server_says_that_there_is_no_file() {
    let process = Process::spawn(trunkline(&["serve", "--mem", "1MiB", "--listen", "127.0.0.1:0"]));
    let mut client = connect(address_of(&process));
    process.signal(Signal::HUP);
    process.wait_for_line("there is no file", TIMEOUT);
    assert_eq!(mnt(&mut client, "/export"), 0);
}

#[test]
fn a_service_manager_is_notified_of_ready_watchdog_reload_and_stop() {
    let dir = temp_dir("notify");
    let (socket, file) = (dir.path().join("notify"), dir.path().join("group.toml"));
    write(&file, &exports(&["/one"]));
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let hear = |what: &str| {
        loop {
            let mut text = [0; 256];
            let len = manager.recv(&mut text).unwrap_or_else(|error| panic!("{what}: {error}"));
            let text = String::from_utf8_lossy(&text[..len]).into_owned();
            if text.starts_with(what) {
                return text;
            }
        }
    };
    let mut command = trunkline(&["serve", "-c", file.to_str().expect("UTF-8")]);
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "100000");
    let mut process = Process::spawn(command);
    hear("READY=1");
    hear("WATCHDOG=1");
    hear("WATCHDOG=1");
    process.signal(Signal::HUP);
    assert!(hear("RELOADING=1").contains("\nMONOTONIC_USEC="));
    hear("READY=1");
    process.signal(Signal::TERM);
    hear("STOPPING=1");
    assert!(process.wait(TIMEOUT).success(), "{}", process.all_output());
}

/// Runs the server with a listening socket as a service manager passes it: as descriptor 3, with
/// the variables that say for which process.
fn with_socket(listener: &TcpListener, arguments: &str) -> Process {
    // The descriptor is inherited under its own number; the shell moves it to number 3.
    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::empty()).expect("a descriptor");
    let script = format!(
        "exec 3<&{}; export LISTEN_FDS=1 LISTEN_PID=$$; exec {} serve {arguments}",
        listener.as_fd().as_raw_fd(),
        env!("CARGO_BIN_EXE_trunkline")
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]);
    Process::spawn(shell)
}

#[test]
fn sockets_passed_by_a_service_manager_are_served() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let process = with_socket(&listener, "--mem 1MiB");
    assert_eq!(address_of(&process), address);
    assert_eq!(mnt(&mut connect(address), "/export"), 0);
}

#[test]
fn a_passed_socket_that_no_node_claims_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut process = with_socket(&listener, "--mem 1MiB --listen 127.0.0.1:0");
    assert_eq!(process.wait(TIMEOUT).code(), Some(1));
    let error = process.output(Stream::Err);
    assert!(error.contains(&address) && error.contains("\n  try:   "), "{error}");
}

#[test]
fn mounts_and_refusals_are_logged_at_info_and_useless_exports_are_warned_of() {
    const ACCES: u32 = 13;
    let dir = temp_dir("mounts");
    let file = dir.path().join("group.toml");
    let closed =
        "[[export]]\npath = \"/closed\"\nmem = \"1MiB\"\nrw = true\nall_squash = true\nanonuid = 7\n";
    write(&file, &(exports(&["/one"]) + closed));
    let file = file.to_str().expect("UTF-8");
    let process = Process::spawn(trunkline(&["serve", "-c", file, "--log-level", "info"]));
    let mut client = connect(address_of(&process));
    let peer = client.local_addr().expect("an address").to_string();
    assert_eq!((mnt(&mut client, "/one"), mnt(&mut client, "/closed")), (0, ACCES));
    assert_eq!(mnt(&mut client, "/one/\n2026 INFO forged"), 2);
    let said = |what: &str| process.wait_for_line(what, TIMEOUT);
    assert!(said("mounted peer").contains(&format!("peer={peer} path=/one")), "{}", process.all_output());
    assert!(said("mount refused: the export").contains("path=/closed"), "{}", process.all_output());
    assert!(said("forged").contains("path=/one/\\n2026 INFO forged"), "{}", process.all_output());
    let warnings = process.output(Stream::Err);
    assert!(warnings.contains("export /closed admits nobody"), "{warnings}");
    assert!(warnings.contains("export /closed is writable (`rw`), and nobody can write"), "{warnings}");
    assert!(!warnings.contains("export /one"), "{warnings}");
}

#[test]
fn messages_that_a_peer_can_cause_are_limited_and_counted() {
    use std::io::{Read, Write};
    const CONNECTIONS: usize = 60;
    let process = Process::spawn(trunkline(&["serve", "--mem", "1MiB", "--listen", "127.0.0.1:0", "-v"]));
    let address = address_of(&process);
    for _ in 0..CONNECTIONS {
        let mut client = connect(address);
        // A fragment of 2 GiB.
        client.write_all(&[0xff; 64]).expect("the server receives");
        // The end of the stream, or a reset; the message is logged before.
        let _ = client.read_to_end(&mut Vec::new());
    }
    let summary = process.wait_for_line("more messages in 10 s like: connection closed", TIMEOUT);
    let err = process.output(Stream::Err);
    let logged = err.lines().filter(|line| line.contains("connection closed peer=")).count();
    assert_eq!(logged, 20, "{err}");
    let more: usize = summary.split(' ').find_map(|word| word.parse().ok()).expect("a number");
    assert_eq!(logged + more, CONNECTIONS, "{err}");
}

#[test]
fn a_server_keeps_no_privileges_that_it_does_not_need() {
    let mut process = Process::spawn(trunkline(&["serve", "--mem", "1MiB", "--listen", "127.0.0.1:0"]));
    address_of(&process);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("the threads");
    let mut threads = 0;
    for task in tasks.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).expect("a thread's status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
            u64::from_str_radix(line.trim(), 16).expect("a number")
        };
        assert_eq!(field("NoNewPrivs:"), 1);
        // CAP_SETPCAP, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_MODULE, CAP_SYS_PTRACE, CAP_SYS_ADMIN.
        let unneeded = [8, 12, 13, 16, 19, 21].iter().fold(0, |set, number| set | 1_u64 << number);
        for set in ["CapInh:", "CapPrm:", "CapEff:"] {
            assert_eq!(field(set) & unneeded, 0, "{set} {status}");
        }
        if rustix::process::geteuid().is_root() {
            // CAP_DAC_READ_SEARCH and CAP_SETUID, and the set of the programs that it could start.
            assert_eq!(field("CapEff:") & 0x84, 0x84, "{status}");
            assert_eq!(field("CapBnd:") & unneeded, 0, "{status}");
        }
        threads += 1;
    }
    assert!(threads > 1, "a server has several threads");
    assert!(process.terminate(TIMEOUT).success());
}

#[test]
fn few_descriptors_are_warned_of_and_are_enough_for_many_connections_and_files() {
    const LIMIT: usize = 400;
    let dir = temp_dir("descriptors");
    let [served, state, copy] = ["served", "state", "copy"].map(|name| dir.path().join(name));
    std::fs::create_dir(&served).expect("a directory");
    for number in 0..300 {
        write(&served.join(number.to_string()), &number.to_string());
    }
    let mut command = Command::new("sh");
    let script =
        format!("ulimit -n {LIMIT}; exec \"$0\" serve --dir \"$1\" --state \"$2\" --listen 127.0.0.1:0");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_trunkline")]).args([&served, &state]);
    let process = Process::spawn(command);
    let warning = process.wait_for_line("the limit of open files has room for", TIMEOUT);
    assert!(warning.contains("72 connections") && warning.contains("LimitNOFILE="), "{warning}");

    let address = address_of(&process);
    // From another address than the program below: no address keeps all places.
    let idle: Vec<OwnedFd> = (0..150).map(|_| connect_from([127, 0, 0, 2], address)).collect();
    let url = format!("nfs://{address}/export");
    let copied = trunkline(&["cp", "-r", &url]).arg(&copy).output().expect("it runs");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    assert_eq!(std::fs::read_dir(&copy).expect("the copy").count(), 300);
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.id())).expect("it runs").count();
    assert!(open < LIMIT, "{open}");
    drop(idle);
}

/// MOUNT too is asked from the address that `localports` names: a server may admit only that one.
#[test]
fn a_client_with_a_local_address_asks_from_there_from_the_first_call_on() {
    let dir = temp_dir("localports");
    let file = dir.path().join("group.toml");
    write(&file, &exports(&["/export"]).replace("127.0.0.0/8", "127.0.0.2/32"));
    let process = Process::spawn(trunkline(&["serve", "-c", file.to_str().expect("UTF-8")]));
    let url = format!("nfs://{}/export", address_of(&process));
    let listed = |url: &str| trunkline(&["ls", url]).output().expect("it runs").status.success();
    assert!(!listed(&url));
    assert!(listed(&format!("{url}?localports=127.0.0.2")));
}

#[test]
fn json_log_messages_are_one_object_per_line() {
    let arguments = ["serve", "--mem", "1MiB", "--listen", "127.0.0.1:0", "-v", "--log-format", "json"];
    let mut process = Process::spawn(trunkline(&arguments));
    address_of(&process);
    process.terminate(TIMEOUT);
    let err = process.output(Stream::Err);
    let lines: Vec<serde_json::Value> =
        err.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let draining = |line: &serde_json::Value| {
        line["level"] == "INFO" && line["message"].as_str().is_some_and(|text| text.starts_with("draining"))
    };
    assert!(lines.iter().any(draining), "{err}");
}

#[test]
fn exports_of_zero_bytes_or_more_than_the_memory_of_the_host_are_refused() {
    for (size, cause) in [("0", "0 bytes of memory"), ("999TiB", "more than this host has")] {
        let mut process = Process::spawn(trunkline(&["serve", "--mem", size, "--listen", "127.0.0.1:0"]));
        assert_eq!(process.wait(TIMEOUT).code(), Some(1));
        let error = process.output(Stream::Err);
        assert!(error.contains(cause) && error.contains("\n  try:   "), "{error}");
    }
}
