//! Tests programs that people run in a directory.

use crate::fixture::mounted;
use crate::mounts::{MOUNT_TIMEOUT, Mounted, shell, text, try_shell};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Stdio};
use testkit::{Deadline, require_program};

#[test]
fn git_clones_and_checks_and_reports_no_changes() {
    let (_server, mount) = mounted();
    let _ = require_program("git");
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let script = format!(
        "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q one; cp -r {sources} one/; cd one; git add -A; \
         git -c user.name=a -c user.email=a@b commit -qm all; cd ..; git clone -q one two; cd two; \
         git fsck --strict; test -z \"$(git status --porcelain)\"; diff -r src ../one/src; \
         git -c gc.auto=0 gc -q; git fsck --strict; cd ..; rm -rf one two; ls"
    );
    assert_eq!(shell(&mount.directory, &script), "");
}

#[test]
fn tar_unpacks_thousands_of_files_unchanged() {
    let (_server, mount) = mounted();
    tar_unpacks(&mount, 2000);
}

/// Unpacks an archive of this many files in 37 directories, compares the files in two ways, and
/// removes them.
pub fn tar_unpacks(mount: &Mounted, files: u32) {
    let local = tempfile::tempdir().unwrap();
    let script = format!(
        "mkdir t; i=0; while [ $i -lt 37 ]; do mkdir t/$i; i=$((i + 1)); done; i=0; while [ $i -lt {files} ]; do \
         echo \"content of $i\" > t/$((i % 37))/file-$i; i=$((i + 1)); done; ln -s 0/file-0 t/link; tar cf t.tar t"
    );
    shell(local.path(), &script);
    let local = local.path().display();
    shell(
        &mount.directory,
        &format!("tar xf {local}/t.tar; diff -r t {local}/t; tar df {local}/t.tar; rm -r t"),
    );
    assert!(mount.names().is_empty());
}

/// Kills a writer repeatedly: the database stays intact, and keeps what was committed.
fn sqlite_survives_kills(journal: &str) {
    let (_server, mount) = mounted();
    let _ = require_program("sqlite3");
    let create = format!("sqlite3 t.db 'pragma journal_mode={journal}; create table t(a integer, b blob)'");
    shell(&mount.directory, &create);
    let acknowledged = mount.path("acknowledged");
    for _ in 0..4 {
        let before = fs::read_to_string(&acknowledged).unwrap_or_default().lines().count();
        let script = "while :; do sqlite3 t.db 'pragma busy_timeout=60000; \
                      insert into t select max(rowid), randomblob(3000) from t' > /dev/null; \
                      echo x >> acknowledged; done";
        let mut writer = Command::new("setsid");
        writer.args(["sh", "-euc", script]).current_dir(&mount.directory);
        let mut writer = writer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Deadline::wait_until("some commits", MOUNT_TIMEOUT, || {
            let lines = fs::read_to_string(&acknowledged).unwrap_or_default().lines().count();
            (lines >= before + 3).then_some(())
        });
        let group = Pid::from_child(&writer);
        rustix::process::kill_process_group(group, Signal::KILL).unwrap();
        kill_process(group, Signal::KILL).unwrap();
        writer.wait().unwrap();
        let committed = fs::read_to_string(&acknowledged).unwrap().lines().count();
        let check =
            "sqlite3 t.db 'pragma busy_timeout=60000; pragma integrity_check; select count(*) from t'";
        let checked = shell(&mount.directory, check);
        let lines: Vec<&str> = checked.lines().collect();
        assert_eq!(lines.get(1), Some(&"ok"), "{checked}");
        let rows: usize = lines.get(2).and_then(|count| count.parse().ok()).unwrap();
        assert!(rows >= committed, "{rows} rows, and {committed} were acknowledged");
    }
}

#[test]
fn sqlite_with_a_journal_survives_kills() {
    sqlite_survives_kills("delete");
}

#[test]
fn sqlite_with_a_write_ahead_log_survives_kills() {
    sqlite_survives_kills("wal");
}

#[test]
fn a_crate_is_cloned_built_tested_and_run_in_the_directory() {
    let (_server, mount) = mounted();
    let _ = require_program("git");
    let script = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; export CARGO_HOME=$PWD/cargo; unset CARGO_TARGET_DIR; \
                  cargo new --quiet --lib one/part; cargo new --quiet --vcs none one/whole; cd one; \
                  printf '[workspace]\nresolver = \"3\"\nmembers = [\"part\", \"whole\"]\n' > Cargo.toml; \
                  printf 'part = { path = \"../part\" }\n' >> whole/Cargo.toml; \
                  printf 'fn main() { println!(\"{} {}\", part::add(2, 3), env!(\"MADE\")); }\n' > whole/src/main.rs; \
                  printf 'fn main() { println!(\"cargo::rustc-env=MADE=here\"); }\n' > whole/build.rs; \
                  rm -rf part/.git; git init -q; git add -A; git -c user.name=a -c user.email=a@b commit -qm all; \
                  cd ..; git clone -q one two; cd two; cargo --quiet test --offline > ../tested; \
                  cargo --quiet run --offline; cargo --quiet run --offline; \
                  touch whole/src/main.rs; cargo build --offline --message-format short 2>&1 | grep -c Compiling; \
                  cargo build --offline 2>&1 | grep -c Compiling || :; cargo --quiet clean; test ! -e target";
    let output = try_shell(&mount.directory, script);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((said.as_str(), output.status.success()), ("5 here\n5 here\n1\n0\n", true), "{errors}");
    let tested = fs::read_to_string(mount.path("tested")).unwrap();
    assert!(tested.contains("1 passed"), "{tested}");
}
