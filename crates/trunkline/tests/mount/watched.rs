//! Tests that others can watch a mount: `trunkline top` and its metrics address.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server, text, unmount_all_below};
use metrics::{Dimension, Snapshot};
use rustix::process::Signal;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use testkit::{Deadline, copy_program, require_program, temp_dir};

fn trunkline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunkline")).args(arguments).output().unwrap()
}

/// Operations and bytes sent by WRITE.
fn writes(snapshot: &Snapshot) -> (u64, u64) {
    let total = snapshot.operations.by(&[], &[(Dimension::Operation, "WRITE".to_owned())]).total();
    (total.count, total.sent_bytes)
}

#[test]
fn a_mount_in_the_background_is_watched_by_top_and_answers_on_its_metrics_address() {
    let server = Server::start(2);
    let directory = server.mount_point("mnt");
    let name = directory.to_str().unwrap();
    let address = format!("127.0.0.1:{}", testkit::free_port());
    // As in /etc/fstab.
    let options = server.options(&format!("nolock,nconnect=2,wsize=65536,metrics={address}"));
    let mounted = trunkline(&["mount", "-o", &options, "127.0.0.1:/export", name]);
    assert!(mounted.status.success(), "{mounted:?}");
    std::fs::write(directory.join("f"), vec![1; 1 << 20]).unwrap();
    let asked = trunkline(&["top", &address, "--batch", "0", "--json"]);
    assert!(asked.status.success(), "{asked:?}");
    let snapshot = Snapshot::from_json(&asked.stdout).unwrap();
    assert_eq!(writes(&snapshot), (16, 1 << 20));
    assert_eq!(snapshot.process.name, format!("127.0.0.1:/export on {name}"));
    let states: Vec<_> = snapshot.paths.iter().map(|path| path.state.as_str()).collect();
    assert_eq!(states, ["up", "up"]);
    let found = trunkline(&["top", &snapshot.process.pid.to_string(), "--batch", "0", "--json"]);
    assert_eq!(writes(&Snapshot::from_json(&found.stdout).unwrap()), (16, 1 << 20));
    let shown = text(&trunkline(&["top", &address, "--batch", "0"]).stdout);
    assert!(shown.contains("WRITE") && shown.contains("failovers"), "{shown}");
    unmount_all_below(&directory);
    Deadline::wait_until("the mount to be gone", MOUNT_TIMEOUT, || {
        (!trunkline(&["top", &address, "--batch", "0"]).status.success()).then_some(())
    });
}

/// The status of the answer to `GET path`.
fn status_of(address: &str, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_mount_without_a_path_is_not_ready_until_its_server_answers_again() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let address = format!("127.0.0.1:{}", testkit::free_port());
    let options = server.options(&format!("nolock,metrics={address}"));
    let _mounted = Mounted::start("127.0.0.1:/export", directory.clone(), &options);
    assert_eq!((status_of(&address, "/ready"), status_of(&address, "/health")), (200, 200));
    server.process.signal(Signal::STOP);
    // A path without calls is not asked; this one waits until the server answers again.
    let call = std::thread::spawn(move || std::fs::write(directory.join("f"), "data"));
    let wait_for = |expected: u16| {
        Deadline::wait_until(&format!("{expected} of /ready"), MOUNT_TIMEOUT, || {
            (status_of(&address, "/ready") == expected).then_some(())
        });
    };
    wait_for(503);
    server.process.signal(Signal::CONT);
    wait_for(200);
    call.join().unwrap().unwrap();
}

#[test]
fn a_metrics_address_in_use_is_an_error_and_nothing_stays_mounted() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let name = directory.to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let options = server.options("nolock");
    let refused = trunkline(&["mount", "--metrics", &address, "-o", &options, "127.0.0.1:/export", name]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("cannot answer on the metrics address"), "{said}");
    assert!(trunkline(&["status", name]).status.code() != Some(0), "it is not mounted");
    for (option, cause) in [
        ("metrics=9101", "is no address with a port"),
        ("metricstoken=/etc/hostname", "there is no metrics address to show it to"),
    ] {
        let options = server.options(&format!("nolock,{option}"));
        let refused = trunkline(&["mount", "-o", &options, "127.0.0.1:/export", name]);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(cause), "{said}");
        assert!(trunkline(&["status", name]).status.code() != Some(0), "it is not mounted");
    }
}

/// As an ordinary user (`$3` runs a command as that user): a server, whose counters root asks for,
/// and that user asks for those of a process of root (`$4`). No other process sees this /run/user.
/// A process of root with the same number was killed earlier and has left its sockets.
const OF_ANOTHER_USER: &str = "\
    mount -t tmpfs tmpfs /run/user; mkdir -m 700 /run/user/1; chown 1:1 /run/user/1; \
    export XDG_RUNTIME_DIR=/run/user/1; \
    $3 \"$1\" serve --mem 1MiB --listen 127.0.0.1:0 >\"$2/out\" & pid=$!; \
    trap 'kill $pid' EXIT; \
    until grep -q ready \"$2/out\"; do kill -0 $pid; sleep 0.1; done; \
    echo \"pid $pid\"; \
    leave() { for of in trunkline-live trunkline-live-files; do \
        mkdir -m 700 -p /run/$of; rm -f /run/$of/$pid.sock; \
        perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); \
            bind(S, pack_sockaddr_un($ARGV[0])) or die $!' /run/$of/$pid.sock; done; }; \
    leave; \"$1\" top --batch 0 --json; \
    leave; \"$1\" top $pid --batch 1 --interval 0.1 --by file --csv >\"$2/files\"; \
    if $3 \"$1\" top $4 --batch 0; then echo seen; fi; \
    trap - EXIT; kill $pid; wait $pid";

#[test]
fn root_sees_the_processes_of_other_users_and_they_do_not_see_those_of_root() {
    let _ = (require_program("setpriv"), require_program("perl"));
    let server = Server::start(1);
    let place = temp_dir("others");
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    // The build directory may be closed to other users.
    let program = place.path().join("trunkline");
    copy_program(Path::new(env!("CARGO_BIN_EXE_trunkline")), &program);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", OF_ANOTHER_USER, "sh"]).arg(&program).arg(place.path());
    command.arg("setpriv --reuid 1 --regid 1 --clear-groups").arg(server.process.id().to_string());
    let output = command.output().unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    let mut lines = said.lines();
    let pid: u32 = lines.next().unwrap().strip_prefix("pid ").unwrap().parse().unwrap();
    let snapshots: Vec<Snapshot> = lines.map(|line| Snapshot::from_json(line.as_bytes()).unwrap()).collect();
    for wanted in [pid, server.process.id()] {
        assert!(snapshots.iter().any(|one| one.process.pid == wanted), "{wanted}: {said}");
    }
    assert!(!said.contains("seen") && errors.contains("of this user"), "{errors}");
    assert!(std::fs::read_to_string(place.path().join("files")).unwrap().starts_with("time,pid,"));
}
