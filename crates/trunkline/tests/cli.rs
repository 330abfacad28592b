//! The program from outside: what it prints, how it ends, what it says when something is wrong.

use record::Record;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use testkit::{Deadline, Process, Stream, free_port, temp_dir};

const SOON: Duration = Duration::from_secs(120);

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
    let status = process.wait(SOON);
    (status.code(), process.output(Stream::Out), process.output(Stream::Err))
}

/// Expects status 1 and DESIGN's form of an error; gives its text.
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

/// A running server and the addresses it said.
fn serve(more: &[&str]) -> (Process, Vec<SocketAddr>) {
    let process = Process::spawn(trunkline(&[&["serve", "--mem", "16MiB"], more].concat()));
    process.wait_for_line("ready", SOON);
    let out = process.output(Stream::Out);
    let said = out.lines().filter_map(|line| line.strip_prefix("listening on ")?.split(' ').next());
    let addresses = said.map(|address| address.parse().expect("an address")).collect();
    (process, addresses)
}

/// A NULL call to NFS version 3 in a record. RFC 5531 s9 s11, RFC 1813 s3.3.0
const NULL_CALL: [u32; 11] = [0x8000_0028, 7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];

/// Makes a NULL call; gives the connection and the reply.
fn null_call(address: SocketAddr) -> (TcpStream, Vec<u8>) {
    let call = NULL_CALL.map(u32::to_be_bytes).concat();
    let mut stream = TcpStream::connect_timeout(&address, SOON).expect("it accepts");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    stream.write_all(&call).expect("it receives");
    let mut reply = vec![0; 28];
    stream.read_exact(&mut reply).expect("it answers");
    (stream, reply)
}

fn write(file: &Path, text: &str) -> String {
    std::fs::write(file, text).expect("a file");
    file.to_str().expect("a name in UTF-8").to_owned()
}

#[test]
fn a_quick_group_says_where_it_listens_and_each_node_answers() {
    let (_process, addresses) =
        serve(&["--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0", "--loops", "1"]);
    assert_eq!(addresses.len(), 2);
    let expected: Vec<u8> = [0x8000_0018_u32, 7, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    for address in addresses {
        assert_eq!(null_call(address).1, expected, "{address}");
    }
}

#[test]
fn lines_name_the_node_and_ready_comes_last() {
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
    assert!(process.wait_for_line("listening on 127.0.0.1:", SOON).ends_with(" (node left)"));
    process.wait_for_line("ready", SOON);
}

/// A directory that everybody may write to, with the place for its state beside it.
fn exported() -> (testkit::TempDir, [String; 2]) {
    let place = testkit::temp_dir("exported");
    let directory = place.path().join("data");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let paths = [directory, place.path().join("state")].map(|path| path.to_str().unwrap().to_owned());
    (place, paths)
}

#[test]
fn a_directory_is_served_and_its_handles_outlive_the_server_that_is_killed() {
    let (_place, [directory, state]) = exported();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let start = || {
        let process = Process::spawn(trunkline(&[
            "serve", "--dir", &directory, "--state", &state, "--export", "/data", "--listen", &listen,
        ]));
        process.wait_for_line("ready", SOON);
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
fn a_directory_that_cannot_be_served_is_explained() {
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
fn a_terminated_server_ends_in_good_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut process, addresses) = serve(&["--listen", "127.0.0.1:0"]);
        let _idle = null_call(addresses[0]);
        process.signal(signal);
        assert_eq!(process.wait(SOON).code(), Some(0), "{}", process.all_output());
        assert_eq!(process.output(Stream::Err), "");
    }
}

/// What a server says, asked for the `turn`th time, of replies that it has not got rid of.
fn queued_replies(process: &Process, turn: usize) -> String {
    process.signal(Signal::USR1);
    let queued = Deadline::wait_until("the statistics", SOON, || {
        let said = process.output(Stream::Err);
        let mut lines = said.lines().filter(|line| line.contains(" of replies queued"));
        lines.nth(turn - 1).map(str::to_owned)
    });
    queued.split(", ").find(|part| part.contains("queued")).expect("it says so").to_owned()
}

#[test]
fn a_second_signal_ends_a_drain_that_a_client_holds_up() {
    let (mut process, addresses) = serve(&["--listen", "127.0.0.1:0", "-v"]);
    let mut stream = TcpStream::connect_timeout(&addresses[0], SOON).expect("it accepts");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let calls = NULL_CALL.map(u32::to_be_bytes).concat().repeat(1000);
    // Replies are never read, so that some stay queued and the server takes no more calls. A server
    // that is only slow has other ones queued when it is asked again.
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
    process.wait_for_line("draining", SOON);
    assert!(process.is_running());
    process.signal(Signal::TERM);
    assert_eq!(process.wait(SOON).code(), Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn statistics_are_a_table_on_standard_error() {
    let (process, addresses) = serve(&["--listen", "127.0.0.1:0"]);
    null_call(addresses[0]);
    process.signal(Signal::USR1);
    process.wait_for_line("loops: ", SOON);
    let table = process.output(Stream::Err);
    let row = table.lines().find(|line| line.starts_with("node1  NULL")).expect("a row for NULL");
    assert_eq!(row.split_whitespace().nth(2), Some("1"), "{table}");
    assert!(table.contains("1 accepted since the start"), "{table}");
}

#[test]
fn a_port_in_use_is_explained() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = taken.local_addr().expect("an address").to_string();
    let error = fails(&["serve", "--mem", "1MiB", "--listen", &address]);
    assert!(error.starts_with(&format!("error: cannot listen on {address}\n")), "{error}");
    assert!(error.contains("another program"), "{error}");
}

#[test]
fn an_address_of_another_host_is_explained() {
    // RFC 5737 s3: nobody has it.
    let error = fails(&["serve", "--mem", "1MiB", "--listen", "192.0.2.1:2049"]);
    assert!(error.contains("no interface of this host has that address"), "{error}");
}

#[test]
fn a_broken_configuration_is_named_by_file_and_line() {
    let dir = temp_dir("broken");
    let file = write(&dir.path().join("group.toml"), "[[node]]\nlisten = [\"127.0.0.1:0\"]\nlisen = 3\n");
    let error = fails(&["serve", "-c", &file]);
    assert!(error.contains(&format!("{file}, line 3")) && error.contains("lisen"), "{error}");
    let error = fails(&["serve", "-c", "/nonexistent/group.toml"]);
    assert!(error.contains("/nonexistent/group.toml"), "{error}");
}

#[test]
fn a_server_without_anything_to_serve_says_what_may_be_given() {
    let (code, out, err) = run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("nothing to serve"), "{err}");
    assert!(err.contains("try:   --dir /srv/data, --mem 2GiB, or -c FILE.toml"), "{err}");
}

#[test]
fn an_address_that_is_given_twice_is_told_from_one_that_another_program_has() {
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
fn an_export_path_that_cannot_be_used_is_told_from_another() {
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
    let text = "[[node]]\nlisten = [\"127.0.0.1:0\"]\n[[export]]\npath = \"/data\"\nmem = \"1MiB\"\n";
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
fn a_wrong_congestion_control_is_refused_with_those_on_offer() {
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
fn a_log_filter_that_makes_no_sense_is_bad_usage() {
    let mut command = trunkline(&["report", "--explain"]);
    command.env("TRUNKLINE_LOG", "server=[");
    let mut process = Process::spawn(command);
    assert_eq!(process.wait(SOON).code(), Some(2));
    let error = process.output(Stream::Err);
    assert!(error.starts_with("error: cannot use TRUNKLINE_LOG=server=["), "{error}");
}

#[test]
fn what_is_no_record_is_refused_by_name() {
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
fn a_record_is_shown_and_its_page_is_written_beside_it() {
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
fn markdown_to_standard_output_comes_alone_and_nothing_else_is_written() {
    let dir = temp_dir("report");
    let record = write(&dir.path().join("one.json"), &Record::default().write());
    let (code, out, err) = run(&["report", "--markdown", "-", &record]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("# trunkline bench"), "{out}");
    assert!(!dir.path().join("one.html").exists());
}

#[test]
fn a_report_goes_into_a_pipe_and_a_record_comes_out_of_one() {
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
        move || std::fs::read_to_string(pipe).expect("it is read")
    });
    assert_eq!(run(&["report", "--csv", name, &record]).0, Some(0));
    assert_eq!(reading.join().expect("it ends"), csv);
    // As standard output is called elsewhere: what is written comes alone there too.
    let (code, out, err) = run(&["report", "--csv", "/dev/stdout", &record]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), csv.as_str(), ""));
    let writing = std::thread::spawn(move || std::fs::write(pipe, Record::default().write()));
    let (code, out, err) = run(&["report", name]);
    writing.join().expect("it ends").expect("it is written");
    assert_eq!((code, err.as_str()), (Some(0), ""), "no page is written beside a pipe");
    assert!(out.starts_with("trunkline bench: "), "{out}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 2);
}

#[test]
fn comma_separated_values_go_where_they_are_wanted_and_never_over_a_record() {
    let dir = temp_dir("report");
    let record = write(&dir.path().join("one.json"), &Record::default().write());
    let (code, out, err) = run(&["report", "--csv", "-", &record, &record]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("record,made_at,") && out.lines().count() == 1, "{out}");
    let file = dir.path().join("all.csv").display().to_string();
    assert_eq!(run(&["report", "--csv", &file, &record]).0, Some(0));
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), out);
    assert!(!dir.path().join("one.html").exists());
    assert_eq!(run(&["report", "--csv", &record, &record]).0, Some(2));
    let nowhere = dir.path().join("missing/all.csv").display().to_string();
    assert_eq!(run(&["report", "--csv", &nowhere, &record]).0, Some(1));
}

#[test]
fn a_report_is_never_written_over_its_record() {
    let dir = temp_dir("report");
    let text = Record::default().write();
    let record = write(&dir.path().join("one.html"), &text);
    let (code, _, err) = run(&["report", &record, "--html", &record]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("that is the record"), "{err}");
    // The same file by another name.
    let other = dir.path().join("other.csv");
    std::fs::hard_link(&record, &other).expect("linked");
    assert_eq!(run(&["report", &record, "--csv", &other.display().to_string()]).0, Some(2));
    assert_eq!(run(&["report", &record]).0, Some(0));
    assert_eq!(std::fs::read_to_string(&record).expect("it is there"), text);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut command = trunkline(&["report", "--explain"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // Closed before anything is read; what is written afterwards meets a broken pipe.
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().expect("it ends");
    assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(0), ""));
}

#[test]
fn help_tells_every_option_of_a_command() {
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
fn the_version_is_told() {
    let (code, out, _) = run(&["--version"]);
    assert_eq!((code, out), (Some(0), format!("trunkline {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_lab_that_does_not_run_is_explained() {
    let (code, _, err) = run(&["lab", "cut", "n1", "--lab", "0-0-0"]);
    assert_eq!(code, Some(1));
    assert!(err.starts_with("error: no lab 0-0-0 is running"), "{err}");
}

#[test]
fn the_document_of_the_configuration_has_every_key() {
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
fn a_lab_of_machines_that_makes_no_sense_is_refused_before_anything_is_started() {
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
