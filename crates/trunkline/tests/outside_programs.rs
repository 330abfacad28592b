//! Programs that users keep their data with, on a mount of our own server, each with its own
//! verification: stress-ng's file-system and I/O classes, PostgreSQL killed under load and checked
//! by amcheck, and the backups of restic and of borg. Needs root and FUSE; `cargo xtask test
//! outside-programs` runs these tests, which belong to the full tier.

#[path = "mount/fixture.rs"]
#[allow(dead_code)]
mod fixture;
#[path = "mount/mounts.rs"]
#[allow(dead_code)]
mod mounts;

use fixture::Server;
use mounts::{Mounted, shell, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::{Deadline, Process, Stream, require_program, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(120);

/// How long each of stress-ng's stressors runs.
const STRESSOR_SECONDS: u32 = 3;
/// Stressors that may fail, with the reasons; docs/TESTING.md says the same.
const EXPECTED_FAILURES: &[(&str, &str)] = &[
    (
        "fanotify",
        "removes a directory while an event still holds a removed file of it open, which has a silly name",
    ),
    ("fsize", "fallocate is not supported; stress-ng writes in its place and expects fallocate's errors"),
    ("io-uring", "fails on local file systems too, with kernels that refuse statx of an empty path"),
];
/// Stressors that must have run and passed, so that a run that skips all does not pass.
const REQUIRED: &[&str] = &["access", "dentry", "getdent", "hdd", "link", "rename", "seek", "aio"];

/// The rounds in which PostgreSQL is killed.
const KILLS: u32 = 3;

/// The tree that is backed up: files of many sizes that every Debian has.
const BACKED_UP: &str = "/usr/share/doc";

/// A server and a mount that every user may enter.
fn mounted() -> (Server, Mounted) {
    let server = Server::start(2);
    let mount = server.mount("mnt", "nolock,allow_other");
    fs::set_permissions(&mount.directory, fs::Permissions::from_mode(0o755)).unwrap();
    (server, mount)
}

#[test]
fn stress_ng_finds_nothing_but_known_limits() {
    let program = require_program("stress-ng");
    let (_server, mount) = mounted();
    let output = Command::new(program)
        .args(["--class", "filesystem,io", "--sequential", "1", "--verify", "--metrics-brief"])
        .args(["--timeout", &STRESSOR_SECONDS.to_string(), "--temp-path"])
        .arg(&mount.directory)
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    // `stress-ng: fail:  [123] fsize: what was found`.
    let names = |kind: &str| {
        let head = format!("stress-ng: {kind}:");
        let of_kind = said.lines().filter(move |line| line.starts_with(&head));
        of_kind.filter_map(|line| line.split_once("] ")?.1.split_once(':').map(|(name, _)| name))
    };
    let unexpected: Vec<_> = names("fail")
        .chain(names("error"))
        .filter(|name| EXPECTED_FAILURES.iter().all(|(expected, _)| expected != name))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:?}\n{said}");
    // A line of the metrics: `stress-ng: metrc: [123] rename   345 ...`, or `info:` in older ones.
    let ran = |name: &&&str| {
        let is_metric = |line: &str| {
            let rest = line.split_once("] ").map_or("", |(_, rest)| rest);
            let mut words = rest.split_whitespace();
            words.next() == Some(name) && words.next().and_then(|ops| ops.parse::<u64>().ok()) > Some(0)
        };
        said.lines().any(is_metric)
    };
    let missing: Vec<_> = REQUIRED.iter().filter(|name| !ran(name)).collect();
    assert!(missing.is_empty(), "did not run: {missing:?}\n{said}");
    assert_eq!(mount.names(), Vec::<String>::new(), "everything is removed");
}

#[test]
fn a_backup_of_restic_is_whole_and_comes_back_equal() {
    let _ = require_program("restic");
    let (_server, mount) = mounted();
    let script = format!(
        "export RESTIC_PASSWORD=x RESTIC_REPOSITORY=$PWD/repository RESTIC_CACHE_DIR=$PWD/cache\n\
         restic -q init; restic -q backup {BACKED_UP}; restic -q check --read-data\n\
         restic -q restore latest --target back\n\
         diff -r --no-dereference {BACKED_UP} back{BACKED_UP}"
    );
    shell(&mount.directory, &script);
}

#[test]
fn a_backup_of_borg_is_whole_and_comes_back_equal() {
    let _ = require_program("borg");
    let (_server, mount) = mounted();
    let script = format!(
        "export BORG_BASE_DIR=$PWD/base BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes\n\
         borg init -e none repository; borg create repository::one {BACKED_UP}; borg check --verify-data repository\n\
         mkdir back; cd back; borg extract ../repository::one\n\
         diff -r --no-dereference {BACKED_UP} .{BACKED_UP}"
    );
    shell(&mount.directory, &script);
}

/// PostgreSQL's data directory on a mount, and its socket beside it on a local file system.
struct Database<'a> {
    programs: PathBuf,
    data: PathBuf,
    local: &'a Path,
}

impl Database<'_> {
    /// A command of PostgreSQL as its user.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(require_program("setpriv"));
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"]);
        command.arg(self.programs.join(program)).env("PGHOST", self.local).env("PGUSER", "postgres");
        command.env("PGDATABASE", "postgres").current_dir(self.local);
        command
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts the server, and waits until it has recovered. The processes of a killed server end a
    /// moment later, and until then PostgreSQL refuses to start.
    fn start(&self) -> Process {
        Deadline::wait_until("the end of the killed server", TIMEOUT, || self.try_start())
    }

    fn try_start(&self) -> Option<Process> {
        // A killed server's socket, which would make the next one think that it still runs.
        shell(self.local, "rm -f .s.PGSQL.*");
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data).arg("-k").arg(self.local).args(["-c", "listen_addresses="]);
        let mut process = Process::spawn(command);
        Deadline::wait_until("PostgreSQL to accept", TIMEOUT, || {
            if !process.is_running() {
                let said = process.all_output();
                assert!(said.contains("pre-existing shared memory block"), "{said}");
                return Some(None);
            }
            let is_ready = self.command("pg_isready").output().unwrap().status.success();
            is_ready.then_some(Some(()))
        })
        .map(|()| process)
    }
}

#[test]
fn postgresql_killed_under_load_loses_nothing_that_it_committed() {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL; apt-get install postgresql");
    let programs = versions.flatten().map(|version| version.path().join("bin")).max().unwrap();
    let (_server, mount) = mounted();
    let local = temp_dir("postgresql");
    let database = Database { programs, data: mount.path("data"), local: local.path() };
    fs::create_dir(&database.data).unwrap();
    fs::set_permissions(&database.data, fs::Permissions::from_mode(0o700)).unwrap();
    let owned = format!("chown postgres:postgres {} {}", database.data.display(), local.path().display());
    shell(local.path(), &owned);
    let data = database.data.to_str().unwrap();
    database.run("initdb", &["-D", data, "-A", "trust", "--data-checksums"]);
    let mut server = database.start();
    database.run("pgbench", &["-q", "-i", "-s", "3"]);
    for round in 0..KILLS {
        let load = Process::spawn({
            let mut command = database.command("pgbench");
            command.args(["-n", "-c", "4", "-T", "600", "-P", "1"]);
            command
        });
        // Killed after some seconds of load: pgbench reports each second.
        load.wait_for_line(&format!("progress: {}.0 s", 3 + round), TIMEOUT);
        server.kill();
        drop(load);
        server = database.start();
        database.run("pg_amcheck", &["--install-missing", "--heapallindexed", "--parent-check"]);
        // Each transaction of pgbench adds the same amount to an account and to the history.
        let same =
            "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)";
        assert_eq!(database.run("psql", &["-At", "-c", same]), "t\n", "round {round}");
    }
    let said = server.output(Stream::Err);
    assert!(!said.contains("PANIC") && !said.contains("invalid page"), "{said}");
    server.signal(rustix::process::Signal::INT);
    assert!(server.wait(TIMEOUT).success(), "{}", server.all_output());
    database.run("pg_checksums", &["-D", data]);
}
