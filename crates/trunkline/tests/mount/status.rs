//! Tests `trunkline status`: the mounts of this host, and those that still wait for their server.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server, text, unmount_all_below, wait_until_nobody_serves};
use std::path::Path;
use std::process::{Command, Output};
use testkit::Deadline;

fn trunkline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunkline")).args(arguments).output().unwrap()
}

/// The line of a directory in the table of all mounts.
fn line_of(directory: &Path) -> Option<String> {
    let status = trunkline(&["status"]);
    assert!(status.status.success(), "{status:?}");
    let listed = text(&status.stdout);
    let has = |line: &&str| line.split_whitespace().nth(1) == directory.to_str();
    listed.lines().find(has).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn a_mount_is_listed_with_its_paths_until_its_process_is_killed() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let options = server.options("vers=3,nolock,nconnect=2,wsize=8388608,intr");
    let mut mounted = Mounted::start("127.0.0.1:/export", directory.clone(), &options);
    let pid = mounted.process.id();
    std::fs::write(directory.join("f"), vec![1; 3 << 20]).unwrap();
    assert_eq!(
        line_of(&directory).unwrap(),
        format!("127.0.0.1:/export {} mounted 1 of 1 {pid} {options}", directory.display())
    );
    // Other mounts of this host may be too many for a page of each.
    let all = text(&trunkline(&["status"]).stdout);
    let page = format!("\n127.0.0.1:/export on {}\nin effect: rw,vers=3,", directory.display());
    assert!(all.contains(&page) || all.contains("trunkline status DIR"), "{all}");
    let name = directory.to_str().unwrap();
    let detailed = text(&trunkline(&["status", name]).stdout);
    assert!(detailed.contains("worst gap ms") && detailed.contains("3.15 MB"), "{detailed}");
    let in_effect = format!(
        "rw,vers=3,proto=tcp,port={},rsize=1048576,wsize=1048576,nconnect=2,mdconnect=0,hard,timeo=600,retrans=2,\
         acregmin=3,acregmax=60,acdirmin=30,acdirmax=60,lookupcache=all,cto,async,local_lock=all",
        server.port
    );
    assert!(detailed.contains(&format!("in effect: {in_effect}\nwithout effect: intr\n")), "{detailed}");
    let json = text(&trunkline(&["status", "--json", name]).stdout);
    assert!(json.contains(&format!("\"in_effect\": \"{in_effect}\"")), "{json}");
    let json: String = json.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(json.contains("\"without_effect\": [ \"intr\" ]"), "{json}");
    for member in ["\"state\": \"mounted\"", "\"written_bytes\": 3145728", &format!("\"pid\": {pid}")] {
        assert!(json.contains(member), "{member}: {json}");
    }
    mounted.process.kill();
    let dead = format!("127.0.0.1:/export {} dead - - -", directory.display());
    Deadline::wait_until("the mount to be dead", MOUNT_TIMEOUT, || {
        (line_of(&directory)? == dead).then_some(())
    });
    assert!(trunkline(&["umount", name]).status.success());
    assert_eq!(line_of(&directory), None);
    let unknown = trunkline(&["status", name]);
    assert!(!unknown.status.success() && text(&unknown.stderr).contains("is not mounted by trunkline"));
}

#[test]
fn a_mount_that_waits_for_its_server_is_listed_with_the_reason_and_ended_by_umount() {
    let place = testkit::temp_dir("status");
    let directory = place.path().join("mnt");
    std::fs::create_dir(&directory).unwrap();
    let name = directory.to_str().unwrap();
    let options = format!("port={},nolock,bg", testkit::free_port());
    let begun = trunkline(&["mount", "-o", &options, "127.0.0.1:/export", name]);
    assert!(begun.status.success(), "{begun:?}");
    let line = line_of(&directory).unwrap();
    assert!(line.starts_with(&format!("127.0.0.1:/export {name} trying - ")), "{line}");
    assert!(line.ends_with(&options), "{line}");
    let why = text(&trunkline(&["status", name]).stdout);
    assert!(why.contains("does not accept connections"), "{why}");
    let json = text(&trunkline(&["status", "--json", name]).stdout);
    assert!(json.contains("\"state\": \"trying\"") && json.contains("\"error\": \"cannot mount"), "{json}");
    let ended = trunkline(&["umount", name]);
    assert!(ended.status.success(), "{ended:?}");
    wait_until_nobody_serves(&directory);
    assert_eq!(line_of(&directory), None);
    let again = trunkline(&["umount", name]);
    assert!(!again.status.success() && text(&again.stderr).contains("it is not mounted"), "{again:?}");
    unmount_all_below(place.path());
}

#[test]
fn the_processes_of_a_mount_are_named_with_the_server_and_the_directory() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let name = directory.to_str().unwrap();
    let mounted = trunkline(&["mount", "-o", &server.options("nolock"), "127.0.0.1:/export", name]);
    assert!(mounted.status.success(), "{mounted:?}");
    assert_eq!(text(&mounted.stderr), "", "with local locks no warning is printed");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let listed: Vec<String> = processes
        .filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok())
        .map(|arguments| arguments.replace('\0', " "))
        .collect();
    let named = format!("trunkline mount 127.0.0.1:/export {name} ");
    assert!(listed.iter().any(|line| line.starts_with(&named)), "{listed:?}");
    assert!(trunkline(&["umount", name]).status.success());
    wait_until_nobody_serves(&directory);
}
