//! Tests which hosts `trunkline block fence` takes, what `fenced` lists, and what is missed when
//! its file is lost. That a fenced host stays out is in `block`, and that nothing of it goes on in
//! `block_pair`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use testkit::Process;

const TIMEOUT: Duration = Duration::from_secs(60);
const HOST: &str = "nqn.2026-11.test:host";
/// Named, and no volume is for it.
const SPARE: &str = "nqn.2026-11.test:spare";
const TYPO: &str = "nqn.2026-11.test:hots";

fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.arg("block").args(arguments).env_remove("TRUNKLINE_LOG");
    command
}

/// A server of a volume for these hosts.
fn start(directory: &Path, hosts: &str) -> Process {
    let file = directory.join("block.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nstate = \"{}\"\n\
         [[host]]\nname = \"spare\"\nnqn = \"{SPARE}\"\n\
         [[volume]]\nsource = \"mem:1MiB\"\nhosts = [{hosts}]\n",
        directory.join("state").display()
    );
    std::fs::write(&file, text).expect("a file");
    let process = Process::spawn(trunkline(&["serve", "-c", &file.display().to_string()]));
    process.wait_for_line("ready", TIMEOUT);
    process
}

/// Asks the server; returns the status, the output and the errors.
fn ask(process: &Process, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = trunkline(arguments);
    let output = command.args(["--pid", &process.id().to_string()]).output().expect("it runs");
    let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    (output.status.code(), out, error)
}

fn told(process: &Process, arguments: &[&str]) -> String {
    let (status, out, error) = ask(process, arguments);
    assert_eq!((status, &*error), (Some(0), ""), "{arguments:?}");
    out
}

#[test]
fn a_host_that_no_list_admits_is_fenced_by_force_only() {
    let directory = directory();
    let process = start(directory.path(), &format!("\"{HOST}\""));
    let (status, out, error) = ask(&process, &["fence", TYPO]);
    assert_eq!((status, &*out), (Some(1), ""), "{error}");
    for part in ["no server knows this host", HOST, SPARE, "--force"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(told(&process, &["fenced"]), "");
    assert_eq!(told(&process, &["fenced", "--json"]), "[]\n");
    for host in [HOST, SPARE] {
        assert_eq!(told(&process, &["fence", host]), format!("{host} is refused\n"));
    }
    assert_eq!(told(&process, &["fence", TYPO, "--force"]), format!("{TYPO} is refused\n"));
    assert_eq!(told(&process, &["fence", TYPO]), format!("{TYPO} was refused already\n"));
    assert_eq!(told(&process, &["fenced"]), format!("{HOST}\n{TYPO}\n{SPARE}\n"));
    let array: Vec<String> = serde_json::from_str(&told(&process, &["fenced", "--json"])).expect("JSON");
    assert_eq!(array, [HOST, TYPO, SPARE]);
    assert_eq!(told(&process, &["unfence", TYPO]), format!("{TYPO} may connect again\n"));
    // A cluster may ask twice; a name that was mistyped is seen.
    let (status, _, error) = ask(&process, &["unfence", TYPO]);
    assert_eq!(status, Some(0));
    assert_eq!(error, format!("note: {TYPO} was not fenced; these are: {HOST}, {SPARE}\n"));
}

#[test]
fn a_host_that_only_any_admits_is_fenced_with_a_warning() {
    let directory = directory();
    let process = start(directory.path(), &format!("\"any\", \"{HOST}\""));
    let (status, out, error) = ask(&process, &["fence", TYPO]);
    assert_eq!((status, out), (Some(0), format!("{TYPO} is refused\n")));
    assert!(error.starts_with("warning: ") && error.contains(TYPO), "{error}");
    // Both are named, one of them beside "any".
    for host in [HOST, SPARE] {
        assert_eq!(told(&process, &["fence", host]), format!("{host} is refused\n"));
    }
}

#[test]
fn a_server_does_not_start_without_its_list_of_fenced_hosts() {
    let directory = directory();
    let process = start(directory.path(), &format!("\"{HOST}\""));
    told(&process, &["fence", HOST]);
    drop(process);
    let list = directory.path().join("state/fenced.toml");
    std::fs::remove_file(&list).expect("it is there");
    let file = directory.path().join("block.toml").display().to_string();
    let output = trunkline(&["serve", "-c", &file]).output().expect("it runs");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("fenced.toml") && error.contains("hosts = []"), "{error}");
    std::fs::write(&list, "hosts = []\n").expect("a file");
    let process = start(directory.path(), &format!("\"{HOST}\""));
    assert_eq!(told(&process, &["fenced"]), "");
}
