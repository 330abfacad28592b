//! No room while a load runs, and none for its record. A small file system is filled, and a hole is
//! punched into the file that is written, as below a thin volume: the next write to it needs room.

use super::text;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `$bench` in the background, and takes the room from it once its load writes: its files are
/// complete, and one of them changes.
const TAKE_ROOM: &str = r#"
changes() { stat -c '%y' "$1"; }
whole() { [ "$(stat -c %s "$1" 2>/dev/null)" = 4194304 ]; }
"$@" & bench=$!
first= second=
until whole "$first" && whole "$second"; do
  kill -0 $bench || exit 99
  first=$(echo data/trunkline-bench-*/w.0); second=${first%0}1
done
before=$(changes "$first")
until [ "$(changes "$first")" != "$before" ]; do kill -0 $bench || exit 99; done
kill -STOP $bench
cat /dev/zero > fill 2>/dev/null
fallocate --punch-hole --offset 0 --length 4194304 "$first"
cat /dev/zero > more 2>/dev/null
kill -CONT $bench
status=0; wait $bench || status=$?
ls data
exit $status
"#;

/// Runs a script in a mount namespace of its own, in an empty file system of 24 MiB.
fn in_small_file_system(directory: &Path, script: &str, arguments: &[&str]) -> Output {
    let script = format!(
        "mount -t tmpfs -o size=24m none . && cd \"$PWD\" && mkdir data && : >ready || exit 97\n{script}"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "timeout", "300", "sh", "-c", &script, "sh"]).args(arguments);
    command.current_dir(directory).output().unwrap()
}

fn experiment(target: &str) -> String {
    format!(
        "repeats = 1\nwindow_ms = 10000\ndirect = false\n[[route]]\nname = 'one'\ntarget = '{target}'\n\
         [[workload]]\nname = 'w'\nblock = '64KiB'\ndepth = 2\nwriters = 2\nfile = '4MiB'\n"
    )
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_trunkline");

#[test]
fn a_load_without_room_says_cause_and_mend_and_leaves_nothing() {
    let (small, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let port = testkit::free_port();
    let state = files.path().join("state");
    fs::create_dir(&state).unwrap();
    let serve = format!(
        "{PROGRAM} serve --dir data --state {} --export /data --no-root-squash --listen 127.0.0.1:{port} >ready & \
         server=$!; trap 'kill $server' EXIT; until grep -q ready ready; do kill -0 $server || exit 98; done; ",
        state.display()
    );
    let directory = small.path().join("data").display().to_string();
    for (target, script, cause) in [
        (directory, TAKE_ROOM.to_owned(), "No space left on device (os error 28)"),
        (
            format!("nfs://127.0.0.1:{port}/data"),
            format!("{serve}{TAKE_ROOM}"),
            "no space left on the server (WRITE: NOSPC)",
        ),
    ] {
        let (file, record) = (files.path().join("w.toml"), files.path().join("never.json"));
        fs::write(&file, experiment(&target)).unwrap();
        let (file, record) = (file.to_str().unwrap(), record.to_str().unwrap());
        let arguments = [PROGRAM, "bench", file, "--record", record];
        let output = in_small_file_system(small.path(), &script, &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("error: one, w: file 0 at byte "), "{said}");
        assert!(said.contains(&format!("{cause}: no room is left for what the load overwrites\n")), "{said}");
        assert!(said.contains("  try:   df        there, and room for it"), "{said}");
        assert_eq!(text(&output.stdout), "", "nothing is left, and there is no table");
        assert!(!Path::new(record).exists() && !Path::new(record).with_extension("html").exists());
    }
}

#[test]
fn a_record_without_room_is_not_half_written_and_its_table_is_shown() {
    let (small, measured) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let experiment = format!(
        "repeats = 1\nwindow_ms = 20\ndirect = false\n[[route]]\nname = 'one'\ntarget = '{}'\n\
         [[workload]]\nname = 'w'\nblock = '4KiB'\ndepth = 1\nreaders = 1\nfile = '64KiB'\n",
        measured.path().display()
    );
    let file = measured.path().join("w.toml");
    fs::write(&file, experiment).unwrap();
    let script = "cat /dev/zero > fill 2>/dev/null; status=0; \"$@\" || status=$?; ls; exit $status";
    let arguments = [PROGRAM, "bench", file.to_str().unwrap(), "--record", "record.json"];
    let output = in_small_file_system(small.path(), script, &arguments);
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot write record.json\n  cause: No space left on device"), "{said}");
    assert!(said.contains("  try:   df        there; or another file"), "{said}");
    assert!(
        table.contains("GB/s") && table.ends_with("\ndata\nfill\nready\n"),
        "the table, and no part: {table}"
    );
}
