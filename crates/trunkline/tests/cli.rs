//! Tests the program from outside: output, exit status, and error messages.

use record::Record;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use testkit::{Deadline, Process, Stream, free_port, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(120);

fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments);
    for name in ["TRUNKLINE_LOG", "TRUNKLINE_LAB", "COLUMNS"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command that ends by itself.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut process = Process::spawn(trunkline(arguments));
    let status = process.wait(TIMEOUT);
    (status.code(), process.output(Stream::Out), process.output(Stream::Err))
}

/// Runs a command that must fail with status 1 and an error of the usual form; returns the error.
fn fails(arguments: &[&str]) -> String {
    let (code, out, err) = run(arguments);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
    let lines: Vec<_> = err.lines().collect();
    assert!(lines.first().is_some_and(|line| line.starts_with("error: ")), "{err}");
    assert!(lines.iter().any(|line| line.starts_with("  cause: ")), "{err}");
    assert!(lines.last().is_some_and(|line| line.starts_with("  try:   ")), "{err}");
    assert!(!err.contains("panicked"), "{err}");
    err
}

/// A running server and the addresses that it printed.
fn serve(more: &[&str]) -> (Process, Vec<SocketAddr>) {
    started(&[&["serve", "--mem", "16MiB"], more].concat())
}

/// The same with these arguments.
fn started(arguments: &[&str]) -> (Process, Vec<SocketAddr>) {
    let process = Process::spawn(trunkline(arguments));
    process.wait_for_line("ready", TIMEOUT);
    let out = process.output(Stream::Out);
    let said = out.lines().filter_map(|line| line.strip_prefix("listening on ")?.split(' ').next());
    let addresses = said.map(|address| address.parse().expect("an address")).collect();
    (process, addresses)
}

/// A NULL call to NFS version 3 in a record. RFC 5531 s9 s11, RFC 1813 s3.3.0
const NULL_CALL: [u32; 11] = [0x8000_0028, 7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];

/// Makes a NULL call; returns the connection and the reply.
fn null_call(address: SocketAddr) -> (TcpStream, Vec<u8>) {
    let call = NULL_CALL.map(u32::to_be_bytes).concat();
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("the server accepts");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.write_all(&call).expect("the server receives");
    let mut reply = vec![0; 28];
    stream.read_exact(&mut reply).expect("the server answers");
    (stream, reply)
}

fn write(file: &Path, text: &str) -> String {
    std::fs::write(file, text).expect("a file");
    file.to_str().expect("a name in UTF-8").to_owned()
}

#[test]
fn a_quick_group_prints_its_addresses_and_each_node_answers() {
    let (_process, addresses) =
        serve(&["--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0", "--loops", "1"]);
    assert_eq!(addresses.len(), 2);
    let expected: Vec<u8> = [0x8000_0018_u32, 7, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    for address in addresses {
        assert_eq!(null_call(address).1, expected, "{address}");
    }
}

#[test]
fn serve_prints_the_address_of_each_node_and_then_ready() {
    let (process, addresses) = serve(&["--listen", "[::1]:0"]);
    let expected = format!("listening on {} (node node1)\nready\n", addresses[0]);
    assert_eq!(process.output(Stream::Out), expected);
}

#[test]
fn a_configuration_file_is_served() {
    let dir = temp_dir("serve");
    let text = "[[node]]\nname = \"left\"\nlisten = [\"127.0.0.1:0\"]\n\
        [[export]]\npath = \"/data\"\nmem = \"1MiB\"\nallow = [\"127.0.0.0/8\"]\n";
    let file = write(&dir.path().join("group.toml"), text);
    let process = Process::spawn(trunkline(&["serve", "-c", &file]));
    assert!(process.wait_for_line("listening on 127.0.0.1:", TIMEOUT).ends_with(" (node left)"));
    process.wait_for_line("ready", TIMEOUT);
}

/// A directory that everybody may write to, and a path for the server's state beside it.
fn exported() -> (testkit::TempDir, [String; 2]) {
    let place = testkit::temp_dir("exported");
    let directory = place.path().join("data");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let paths = [directory, place.path().join("state")].map(|path| path.to_str().unwrap().to_owned());
    (place, paths)
}

#[test]
fn file_handles_of_a_directory_remain_valid_when_the_server_is_killed_and_restarted() {
    let (_place, [directory, state]) = exported();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let start = || {
        let process = Process::spawn(trunkline(&[
            "serve", "--dir", &directory, "--state", &state, "--export", "/data", "--listen", &listen,
        ]));
        process.wait_for_line("ready", TIMEOUT);
        process
    };
    let mut server = start();
    let mount = client::Mount::with_settings(client::Settings::new(
        std::net::IpAddr::from([127, 0, 0, 1]),
        port,
        "/data",
    ))
    .unwrap();
    let file = mount.create_file(b"/file", 0o600).unwrap();
    let data = vec![7; 3 << 20];
    file.write_all_at(&data, 0).unwrap();
    server.kill();
    let _server = start();
    let mut back = vec![0; data.len() + 1];
    assert_eq!(file.read_all_at(&mut back, 0).unwrap(), data.len());
    assert!(back.get(..data.len()) == Some(&data[..]));
    assert!(std::fs::read(format!("{directory}/file")).unwrap() == data);
    file.write_all_at(b"again", 0).unwrap();
    assert_eq!(mount.open(b"/file").unwrap().attributes().unwrap().size, data.len() as u64);
}

#[test]
fn a_directory_that_cannot_be_exported_is_an_error_with_the_cause() {
    let (_place, [directory, state]) = exported();
    let listen = format!("127.0.0.1:{}", free_port());
    let serve = |more: &[&str]| fails(&[&["serve", "--listen", &listen], more].concat());
    let absent = serve(&["--dir", &format!("{directory}/absent"), "--state", &state]);
    assert!(absent.starts_with("error: cannot export a directory as /export"), "{absent}");
    assert!(absent.contains("No such file or directory"), "{absent}");
    let inside = serve(&["--dir", &directory, "--state", &format!("{directory}/state")]);
    assert!(inside.contains("within the exported directory") && inside.contains("--state"), "{inside}");
    let file = Path::new(&directory).join("file");
    std::fs::write(&file, "").unwrap();
    let no_directory = serve(&["--dir", file.to_str().unwrap(), "--state", &state]);
    assert!(no_directory.contains("Not a directory"), "{no_directory}");
}

#[test]
fn a_server_that_receives_sigterm_or_sigint_exits_with_status_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut process, addresses) = serve(&["--listen", "127.0.0.1:0"]);
        let _idle = null_call(addresses[0]);
        process.signal(signal);
        assert_eq!(process.wait(TIMEOUT).code(), Some(0), "{}", process.all_output());
        assert_eq!(process.output(Stream::Err), "");
    }
}

/// Asks a server for its statistics and returns what the report number `turn` says about queued
/// replies.
fn queued_replies(process: &Process, turn: usize) -> String {
    process.signal(Signal::USR1);
    let queued = Deadline::wait_until("the statistics", TIMEOUT, || {
        let said = process.output(Stream::Err);
        let mut lines = said.lines().filter(|line| line.contains(" of replies queued"));
        lines.nth(turn - 1).map(str::to_owned)
    });
    queued
        .split(", ")
        .find(|part| part.contains("queued"))
        .expect("the line counts queued replies")
        .to_owned()
}

/// The status of the answer to `GET path`.
fn status_of(address: &str, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("the metrics address accepts");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).expect("a status").parse().expect("a number")
}

#[test]
fn a_second_signal_ends_a_drain_that_a_client_blocks_and_meanwhile_it_is_not_ready() {
    let dir = temp_dir("serve");
    // A server that a busy machine keeps from running for seconds would close the connection.
    let text = "[[node]]\nlisten = [\"127.0.0.1:0\"]\n[limits]\nstall_ms = 600_000\n\
        [metrics]\nlisten = \"127.0.0.1:0\"\n\
        [[export]]\npath = \"/data\"\nmem = \"1MiB\"\nallow = [\"127.0.0.0/8\"]\n";
    let file = write(&dir.path().join("group.toml"), text);
    let (mut process, addresses) = started(&["serve", "-c", &file, "-v"]);
    let line = process.wait_for_line("metrics on http://", TIMEOUT);
    let metrics =
        line.trim().trim_start_matches("metrics on http://").trim_end_matches("/metrics").to_owned();
    assert_eq!(status_of(&metrics, "/ready"), 200);
    let mut stream = TcpStream::connect_timeout(&addresses[0], TIMEOUT).expect("the server accepts");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let calls = NULL_CALL.map(u32::to_be_bytes).concat().repeat(1000);
    // The client never reads replies, so some stay queued and the server takes no more calls. If
    // the server is only slow, the next report has other queued replies.
    let (mut sent, mut queued) = (0, String::new());
    for turn in 1.. {
        while let Ok(more) = stream.write(&calls[sent % calls.len()..]) {
            sent += more;
        }
        let before = std::mem::replace(&mut queued, queued_replies(&process, turn));
        if queued == before && !queued.starts_with("0 ") {
            break;
        }
    }
    process.signal(Signal::TERM);
    process.wait_for_line("draining", TIMEOUT);
    assert_eq!(status_of(&metrics, "/ready"), 503, "no new client should come");
    assert!(process.is_running());
    process.signal(Signal::TERM);
    assert_eq!(process.wait(TIMEOUT).code(), Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn sigusr1_prints_statistics_as_a_table_on_standard_error() {
    let (process, addresses) = serve(&["--listen", "127.0.0.1:0"]);
    null_call(addresses[0]);
    process.signal(Signal::USR1);
    process.wait_for_line("loops: ", TIMEOUT);
    let table = process.output(Stream::Err);
    let row = table.lines().find(|line| line.starts_with("node1  NULL")).expect("a row for NULL");
    assert_eq!(row.split_whitespace().nth(2), Some("1"), "{table}");
    assert!(table.contains("1 accepted since the start"), "{table}");
}

#[test]
fn the_error_for_a_port_in_use_says_that_another_program_has_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = taken.local_addr().expect("an address").to_string();
    let error = fails(&["serve", "--mem", "1MiB", "--listen", &address]);
    assert!(error.starts_with(&format!("error: cannot listen on {address}\n")), "{error}");
    assert!(error.contains("another program"), "{error}");
}

#[test]
fn the_error_for_an_address_of_another_host_says_so() {
    // RFC 5737 s3: no host has this address.
    let error = fails(&["serve", "--mem", "1MiB", "--listen", "192.0.2.1:2049"]);
    assert!(error.contains("no interface of this host has that address"), "{error}");
}

#[test]
fn the_error_for_an_invalid_configuration_names_file_and_line() {
    let dir = temp_dir("broken");
    let file = write(&dir.path().join("group.toml"), "[[node]]\nlisten = [\"127.0.0.1:0\"]\nlisen = 3\n");
    let error = fails(&["serve", "-c", &file]);
    assert!(error.contains(&format!("{file}, line 3")) && error.contains("lisen"), "{error}");
    let error = fails(&["serve", "-c", "/nonexistent/group.toml"]);
    assert!(error.contains("/nonexistent/group.toml"), "{error}");
}

#[test]
fn serve_without_an_export_lists_the_options_that_add_one() {
    let (code, out, err) = run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("nothing to serve"), "{err}");
    assert!(err.contains("try:   --dir /srv/data, --mem 2GiB, or -c FILE.toml"), "{err}");
}

#[test]
fn the_error_for_an_address_given_twice_differs_from_that_for_a_port_in_use() {
    let port = free_port();
    let (one, all) = (format!("127.0.0.1:{port}"), format!("0.0.0.0:{port}"));
    let serve = |listen: &[&str]| {
        let listen: Vec<&str> = listen.iter().flat_map(|address| ["--listen", address]).collect();
        fails(&[&["serve", "--mem", "1MiB"], listen.as_slice()].concat())
    };
    let twice = serve(&[&one, &one]);
    assert!(twice.contains(&format!("cause: {one} is there twice")), "{twice}");
    assert!(twice.contains("try:   keep one --listen of the two"), "{twice}");
    let overlapping = serve(&[&all, &one]);
    assert!(overlapping.contains(&format!("{all} and {one} overlap")), "{overlapping}");
    let rdma = format!("rdma:{one}");
    let over_rdma = serve(&[&one, &rdma, &rdma]);
    assert!(over_rdma.contains(&format!("{one} is there twice")), "{over_rdma}");
    let dir = temp_dir("twice");
    let text = format!(
        "[[node]]\nlisten = [\"{one}\"]\n[[node]]\nlisten = [\"{one}\"]\n\
        [[export]]\npath = \"/data\"\nmem = \"1MiB\"\n"
    );
    let file = write(&dir.path().join("group.toml"), &text);
    let in_file = fails(&["serve", "-c", &file]);
    assert!(in_file.starts_with(&format!("error: cannot use the configuration {file}\n")), "{in_file}");
    assert!(in_file.contains("try:   keep one `listen` of the two"), "{in_file}");
}

#[test]
fn errors_for_invalid_export_paths_state_the_reason() {
    let serve = |path: &str| fails(&["serve", "--mem", "1MiB", "--listen", "127.0.0.1:0", "--export", path]);
    let slash = serve("/data/");
    assert!(slash.contains("cause: export path \"/data/\" ends with a slash"), "{slash}");
    assert!(slash.contains("try:   write it as \"/data\""), "{slash}");
    let relative = serve("data");
    assert!(relative.contains("cause: export path \"data\" is not absolute"), "{relative}");
    let long = serve(&format!("/{}", "x".repeat(1024)));
    assert!(long.contains("longer than 1024 bytes"), "{long}");
}

#[test]
fn advice_names_keys_of_a_file_and_options_of_a_command_line() {
    let options = ["serve", "--mem", "1MiB", "--listen", "127.0.0.1:0", "--loops", "0"];
    let from_options = fails(&options);
    assert!(from_options.contains("cause: --loops is not within 1 to"), "{from_options}");
    let dir = temp_dir("advice");
    let text = "[[node]]\nlisten = [\"127.0.0.1:0\"]\n[[export]]\npath = \"/data\"\nmem = \"1MiB\"\nallow = [\"127.0.0.1\"]\n";
    let file = write(&dir.path().join("group.toml"), &format!("loops = 0\n{text}"));
    let from_file = fails(&["serve", "-c", &file]);
    assert!(from_file.contains("cause: `loops` is not within 1 to"), "{from_file}");
    let file = write(&dir.path().join("group.toml"), &format!("congestion = \"wishful\"\n{text}"));
    let from_file = fails(&["serve", "-c", &file]);
    assert!(from_file.contains("leave `congestion` out"), "{from_file}");
    let from_options = fails(&[&options[..5], &["--congestion", "wishful"]].concat());
    assert!(from_options.contains("leave --congestion out"), "{from_options}");
}

#[test]
fn the_error_for_an_unknown_congestion_control_lists_the_available_ones() {
    let listen = format!("127.0.0.1:{}", free_port());
    let error = fails(&["serve", "--mem", "1MiB", "--listen", &listen, "--congestion", "wishful"]);
    assert!(error.contains("wishful") && error.contains("on offer here: "), "{error}");
}

#[test]
fn bad_usage_ends_with_status_2() {
    for arguments in [
        &["serve", "--colour"][..],
        &["serve"],
        &["serve", "--mem", "two"],
        &["serve", "--mem", "1GiB", "--listen", "localhost"],
        &["serve", "--mem", "1GiB", "--allow", "10.0.0.0/40"],
        &["serve", "-c", "x.toml", "--mem", "1GiB"],
        &["serve", "-c", "x.toml", "--dir", "/srv"],
        &["serve", "--mem", "1GiB", "--dir", "/srv"],
        &["serve", "--mem", "1GiB", "--state", "/srv"],
        &["report"],
        &["lab", "net", "--nodes", "0"],
        &["lab", "net", "--rate", "fast"],
        &["lab", "exec", "client"],
        &["-v", "--log-level", "info", "report", "--explain"],
        &["frobnicate"],
        &[],
    ] {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(!err.contains("panicked") && !err.is_empty(), "{arguments:?}: {err}");
    }
}

#[test]
fn an_invalid_log_filter_is_bad_usage() {
    let mut command = trunkline(&["report", "--explain"]);
    command.env("TRUNKLINE_LOG", "server=[");
    let mut process = Process::spawn(command);
    assert_eq!(process.wait(TIMEOUT).code(), Some(2));
    let error = process.output(Stream::Err);
    assert!(error.starts_with("error: cannot use TRUNKLINE_LOG=server=["), "{error}");
}

#[test]
fn the_error_for_a_file_that_is_no_record_names_the_file() {
    let dir = temp_dir("report");
    let file = |name: &str, text: &[u8]| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).expect("a file");
        file.to_str().expect("UTF-8").to_owned()
    };
    let newer = Record::default().write().replace("\"version\": 1", "\"version\": 99");
    for (name, text, cause) in [
        ("garbage.json", &b"\xff\xfe\x00"[..], "it is not text"),
        ("prose.json", b"once upon a time", "not a record"),
        ("empty.json", b"{}", "no `version`"),
        ("newer.json", newer.as_bytes(), "version 99"),
        ("cut.json", b"{\"version\": 1}", "a broken record"),
    ] {
        let error = fails(&["report", &file(name, text)]);
        assert!(error.contains(name) && error.contains(cause), "{error}");
    }
    let error = fails(&["report", "/nonexistent.json"]);
    assert!(error.starts_with("error: cannot read /nonexistent.json\n"), "{error}");
    let error = fails(&["report", dir.path().to_str().expect("UTF-8")]);
    assert!(error.contains("try:   a file in that directory"), "{error}");
}

#[test]
fn report_prints_a_record_and_writes_its_page_beside_the_record() {
    let dir = temp_dir("report");
    let record = write(&dir.path().join("one.json"), &Record::default().write());
    let (code, out, err) = run(&["report", &record]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("trunkline bench: ") && !out.contains('\u{1b}'), "{out}");
    assert!(err.contains("one.html"), "{err}");
    let page = std::fs::read_to_string(dir.path().join("one.html")).expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<!doctype html>"), "{page}");
}

#[test]
fn markdown_to_standard_output_suppresses_all_other_output() {
    let dir = temp_dir("report");
    let record = write(&dir.path().join("one.json"), &Record::default().write());
    let (code, out, err) = run(&["report", "--markdown", "-", &record]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("# trunkline bench"), "{out}");
    assert!(!dir.path().join("one.html").exists());
}

#[test]
fn report_writes_to_a_pipe_and_reads_a_record_from_a_pipe() {
    let dir = temp_dir("report");
    let record = write(&dir.path().join("one.json"), &Record::default().write());
    let (code, csv, err) = run(&["report", "--csv", "-", &record]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let pipe = dir.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let name = &pipe.to_str().expect("UTF-8").to_owned();
    let reading = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).expect("the pipe is read")
    });
    assert_eq!(run(&["report", "--csv", name, &record]).0, Some(0));
    assert_eq!(reading.join().expect("the reader ends"), csv);
    // The name of standard output: the report is written there without anything else.
    let (code, out, err) = run(&["report", "--csv", "/dev/stdout", &record]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), csv.as_str(), ""));
    let writing = std::thread::spawn(move || std::fs::write(pipe, Record::default().write()));
    let (code, out, err) = run(&["report", name]);
    writing.join().expect("the writer ends").expect("the record was written");
    assert_eq!((code, err.as_str()), (Some(0), ""), "no page is written beside a pipe");
    assert!(out.starts_with("trunkline bench: "), "{out}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 2);
}

#[test]
fn csv_is_written_to_the_named_file_and_never_over_a_record() {
    let dir = temp_dir("report");
    let record = write(&dir.path().join("one.json"), &Record::default().write());
    let (code, out, err) = run(&["report", "--csv", "-", &record, &record]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("record,made_at,") && out.lines().count() == 1, "{out}");
    let file = dir.path().join("all.csv").display().to_string();
    assert_eq!(run(&["report", "--csv", &file, &record]).0, Some(0));
    assert_eq!(std::fs::read_to_string(&file).expect("the file exists"), out);
    assert!(!dir.path().join("one.html").exists());
    assert_eq!(run(&["report", "--csv", &record, &record]).0, Some(2));
    let nowhere = dir.path().join("missing/all.csv").display().to_string();
    assert_eq!(run(&["report", "--csv", &nowhere, &record]).0, Some(1));
}

#[test]
fn a_report_overwrites_nothing_but_its_own_page_unless_forced() {
    let dir = temp_dir("report");
    let record = write(&dir.path().join("one.json"), &Record::default().write());
    let page = write(&dir.path().join("one.html"), "a page by hand");
    let other = write(&dir.path().join("other"), "kept");
    let kept = |arguments: &[&str]| {
        let (code, out, err) = run(&[&["report", &record], arguments].concat());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains("it exists") && err.contains("--force"), "{err}");
    };
    kept(&[]);
    for option in ["--html", "--markdown", "--csv"] {
        kept(&[option, &other]);
    }
    assert_eq!(std::fs::read_to_string(&other).expect("the file"), "kept");
    assert_eq!(std::fs::read_to_string(&page).expect("the file"), "a page by hand");
    assert_eq!(run(&["report", &record, "--force"]).0, Some(0));
    // Now the page is one of ours: it may be made again, but not where its name is given.
    assert_eq!(run(&["report", &record]).0, Some(0));
    kept(&["--html", &page]);
    assert_eq!(run(&["report", &record, "--csv", &other, "--force"]).0, Some(0));
    assert!(std::fs::read_to_string(&other).expect("the file").starts_with("record,"));
}

#[test]
fn a_report_of_several_records_names_them_by_their_files() {
    let dir = temp_dir("report");
    let of = |name: &str| write(&dir.path().join(name), &Record::default().write());
    let (code, out, err) = run(&["report", "--html", "-", &of("before.json"), &of("after.json")]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains(">before.json</a>") && out.contains(">after.json</a>"), "{out}");
}

#[test]
fn a_report_is_never_written_over_its_record() {
    let dir = temp_dir("report");
    let text = Record::default().write();
    let record = write(&dir.path().join("one.html"), &text);
    let (code, _, err) = run(&["report", &record, "--html", &record]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("that is the record"), "{err}");
    // The same file under another name.
    let other = dir.path().join("other.csv");
    std::fs::hard_link(&record, &other).expect("linked");
    assert_eq!(run(&["report", &record, "--csv", &other.display().to_string()]).0, Some(2));
    assert_eq!(run(&["report", &record]).0, Some(0));
    assert_eq!(std::fs::read_to_string(&record).expect("the record exists"), text);
}

#[test]
fn report_to_a_reader_that_closes_early_succeeds() {
    let mut command = trunkline(&["report", "--explain"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    // Closed before anything is read, so that later output meets a broken pipe.
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().expect("the program ends");
    assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(0), ""));
}

#[test]
fn help_mentions_the_options_of_each_command() {
    let options: [(&[&str], &[&str]); 9] = [
        (
            &["--help"],
            &["serve", "report", "lab", "--verbose", "--log-level", "--version", "TRUNKLINE_LOG", "NO_COLOR"],
        ),
        (
            &["serve", "--help"],
            &[
                "--config",
                "--mem",
                "--dir",
                "--state",
                "--export",
                "--listen",
                "--allow",
                "--congestion",
                "--loops",
                "SIGUSR1",
            ],
        ),
        (
            &["mount", "--help"],
            &["--foreground", "--log-file", "remoteports", "nolock", "allow_other", "retry"],
        ),
        (&["report", "--help"], &["RECORD", "--html", "--markdown", "--csv", "--explain"]),
        (&["lab", "--help"], &["net", "cut", "restore", "list", "exec"]),
        (&["lab", "net", "--help"], &["--nodes", "--rate", "--delay", "--apart", "--serve", "COMMAND"]),
        (&["lab", "cut", "--help"], &["LINK", "--silent", "--lab"]),
        (&["lab", "restore", "--help"], &["LINK", "--lab"]),
        (&["lab", "exec", "--help"], &["NAMESPACE", "--lab", "COMMAND"]),
    ];
    for (command, expected) in options {
        let (code, out, err) = run(command);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        for option in expected {
            assert!(out.contains(option), "{command:?} does not mention {option}:\n{out}");
        }
    }
}

#[test]
fn the_version_option_prints_name_and_version() {
    let (code, out, _) = run(&["--version"]);
    assert_eq!((code, out), (Some(0), format!("trunkline {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn the_error_for_a_lab_that_does_not_run_names_the_lab() {
    let (code, _, err) = run(&["lab", "cut", "n1", "--lab", "0-0-0"]);
    assert_eq!(code, Some(1));
    assert!(err.starts_with("error: no lab 0-0-0 is running"), "{err}");
}

#[test]
fn the_documentation_of_the_configuration_has_every_key() {
    let document = include_str!("../../../docs/SERVE.md");
    let mut section = String::new();
    for line in server::config::EXAMPLE.lines() {
        let line = line.trim_start_matches('#');
        if line.starts_with('[') {
            section = line.to_owned();
            assert!(document.contains(&format!("`{section}`")), "{section} is not described");
        } else if let Some((key, _)) = line.split_once(" = ")
            && !key.contains(' ')
        {
            assert!(document.contains(&format!("\n| `{key}` |")), "{key} in {section} is not described");
        }
    }
}

#[test]
fn invalid_options_of_lab_vm_are_refused_before_anything_starts() {
    let wrong: [(&[&str], &str); 4] = [
        (&["--write", "/no/such/directory", "--", "true"], "/no/such/directory is no directory"),
        (&["--memory", "100MiB", "--", "true"], "512 MiB"),
        (&["--cpus", "99", "--", "true"], "1 to 16 processors"),
        (&["--shell"], "a shell needs a terminal"),
    ];
    for (arguments, said) in wrong {
        let (code, out, err) = run(&[&["lab", "vm"], arguments].concat());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.starts_with("error: ") && err.contains(said) && err.contains("\n  try:   "), "{err}");
    }
    let usage: [&[&str]; 4] = [
        &[],
        &["--guests", "3", "--", "true"],
        &["--accel", "fast", "--", "true"],
        &["--memory", "4", "--", "true"],
    ];
    for arguments in usage {
        let (code, _, err) = run(&[&["lab", "vm"], arguments].concat());
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
    }
    let (code, _, err) = run(&["lab", "guest"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("no guest of `trunkline lab vm`"), "{err}");
}
