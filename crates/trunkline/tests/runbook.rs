//! Tests `trunkline plan runbook` from outside: the folder that it writes, and what it refuses.

use client::options::Version;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use testkit::temp_dir;

/// The systems of `--init`.
const SYSTEMS: [&str; 5] = ["ef600", "linux-host", "scale", "powerscale", "linux-server"];

fn run(arguments: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(["plan", "runbook"]).args(arguments).current_dir(directory).env_remove("TRUNKLINE_LOG");
    let output = command.output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_site_file_to_start_from_becomes_a_folder() {
    let directory = temp_dir("runbook");
    for system in SYSTEMS {
        let (code, site, err) = run(&["--init", system], directory.path());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{system}");
        fs::write(directory.path().join("site.toml"), site).expect("written");
        let (code, out, err) = run(&["site.toml", "--out", system], directory.path());
        assert_eq!((code, out.as_str()), (Some(0), ""), "{system}: {err}");
        assert!(err.contains(&format!("begin with {system}/README.md")), "{err}");
        let index = fs::read_to_string(directory.path().join(system).join("README.md")).expect("an index");
        // Every file that the index names is there.
        for path in
            index.lines().filter_map(|line| line.strip_prefix("| [")?.split_once(']').map(|found| found.0))
        {
            assert!(directory.path().join(system).join(path).is_file(), "{system}: {path}");
        }
        for (verb, count) in
            ["\n- run: ", "\n- verify: ", "\n- undo: "].map(|verb| (verb, index.matches(verb).count()))
        {
            assert_eq!(count, index.matches("\n### ").count(), "{system}: {verb}");
        }
    }
    let left = fs::read_dir(directory.path()).expect("a directory").count();
    assert_eq!(left, SYSTEMS.len() + 1, "nothing is left beside the folders");
}

#[test]
fn programs_can_be_run_and_texts_cannot() {
    let directory = temp_dir("runbook-modes");
    let (_, site, _) = run(&["--init", "ef600"], directory.path());
    fs::write(directory.path().join("site.toml"), site).expect("written");
    assert_eq!(run(&["site.toml", "--out", "a/b"], directory.path()).0, Some(0));
    let mode = |path: &str| {
        let found = fs::metadata(directory.path().join("a/b").join(path)).expect("a file");
        found.permissions().mode() & 0o111
    };
    assert_ne!(mode("hosts/50-connect.sh"), 0);
    assert_ne!(mode("hosts/files/trunkline-nvme"), 0);
    assert_eq!(mode("array-de0704/10-basic.smcli"), 0);
}

#[test]
fn a_directory_that_is_not_empty_is_left_alone() {
    let directory = temp_dir("runbook-force");
    let at = |path: &str| directory.path().join(path);
    let (_, site, _) = run(&["--init", "linux-host"], directory.path());
    fs::write(at("site.toml"), &site).expect("written");
    fs::create_dir(at("mine")).expect("made");
    fs::write(at("mine/letter.txt"), "dear").expect("written");
    for force in [&["site.toml", "--out", "mine"][..], &["site.toml", "--out", "mine", "--force"]] {
        let (code, _, err) = run(force, directory.path());
        assert_eq!(code, Some(1));
        assert!(err.contains("cannot write the runbook to mine"), "{err}");
    }
    assert_eq!(fs::read_to_string(at("mine/letter.txt")).expect("still there"), "dear");
    assert_eq!(fs::read_dir(at("mine")).expect("a directory").count(), 1);

    // An empty directory and an earlier runbook are replaced.
    fs::create_dir(at("ours")).expect("made");
    assert_eq!(run(&["site.toml", "--out", "ours"], directory.path()).0, Some(0));
    assert!(at("ours/hosts/by-name/node3").exists());
    fs::write(at("site.toml"), site.replace("node[1-3]", "node[1-2]")).expect("written");
    assert_eq!(run(&["site.toml", "--out", "ours"], directory.path()).0, Some(1));
    // What steps have written there stays: undo may need it.
    fs::write(at("ours/hosts/before.conf"), "kept").expect("written");
    assert_eq!(run(&["site.toml", "--out", "ours", "--force"], directory.path()).0, Some(0));
    assert_eq!(fs::read_to_string(at("ours/hosts/before.conf")).expect("carried over"), "kept");
    assert!(at("ours/hosts/by-name/node2").exists() && !at("ours/hosts/by-name/node3").exists());
    let (code, _, err) = run(&["site.toml", "--out", "site.toml"], directory.path());
    assert!(code == Some(1) && err.contains("not a directory"), "{err}");
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 3, "nothing is left");
}

#[test]
fn a_broken_site_file_is_refused_with_its_line_the_rule_and_its_source() {
    let directory = temp_dir("runbook-refused");
    let (_, site, _) = run(&["--init", "ef600"], directory.path());
    for (old, new, parts) in [
        (
            "172.30.60.101",
            "172.30.57.110",
            [
                "error: cannot use site.toml",
                "cause: line ",
                "used twice",
                "RFC 1122",
                "try:   another address",
            ],
        ),
        (
            "drives = 20",
            "drive = 20",
            [
                "error: cannot use site.toml",
                "cause: line ",
                "unknown field",
                "expected",
                "try:   trunkline plan runbook --init",
            ],
        ),
    ] {
        fs::write(directory.path().join("site.toml"), site.replace(old, new)).expect("written");
        let (code, out, err) = run(&["site.toml", "--out", "out"], directory.path());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        for part in parts {
            assert!(err.contains(part), "{part} is not in\n{err}");
        }
        assert!(!directory.path().join("out").exists());
    }
}

#[test]
fn a_wrong_command_line_is_refused() {
    let directory = temp_dir("runbook-usage");
    for (arguments, part) in [
        (&["--init", "nas"][..], "ef600, linux-host, scale, powerscale, linux-server"),
        (&["site.toml"], "--out"),
        (&["--out", "x"], "SITE.toml"),
        (&["--init", "ef600", "--out", "x"], "cannot be used with"),
    ] {
        let (code, _, err) = run(arguments, directory.path());
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
        assert!(err.contains(part), "{arguments:?}: {err}");
    }
}

/// The server itself accepts the configuration that it is given.
#[test]
fn trunkline_serve_accepts_the_configuration_of_a_server() {
    let directory = temp_dir("runbook-serve");
    let (_, site, _) = run(&["--init", "linux-server"], directory.path());
    fs::write(directory.path().join("site.toml"), site).expect("written");
    assert_eq!(run(&["site.toml", "--out", "out"], directory.path()).0, Some(0));
    let file = directory.path().join("out/server-stor1/files/serve.toml");
    let config = server::Config::from_file(&file).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((config.nodes.len(), config.exports.len()), (2, 2));
}

/// The client itself accepts the lines of fstab that it is given, and reads the addresses there.
#[test]
fn trunkline_mount_accepts_the_lines_of_fstab() {
    let directory = temp_dir("runbook-fstab");
    let (_, site, _) = run(&["--init", "powerscale"], directory.path());
    let apart = site.replace("#localports", "localports").replace("192.168.1.203", "192.168.1.210");
    let both = apart.replace("#nfsv4 = false", "nfsv4 = true").replace("\"9.5\"", "\"9.8\"");
    let version_3 = ["tcp", "tcp-mp", "rdma", "rdma-mp"];
    let version_4 = ["tcp-v4", "tcp-mp-v4", "rdma-v4", "rdma-mp-v4"];
    for (name, site, folder, locals, expected) in [
        ("plain", &site, "files", 0, &version_3[..]),
        ("apart", &apart, "files", 0, &version_3),
        ("several", &apart, "files/by-name/p4-01", 2, &version_3),
        ("both", &both, "files/by-name/p4-01", 2, &[version_3, version_4].concat()),
    ] {
        fs::write(directory.path().join("site.toml"), site).expect("written");
        assert_eq!(run(&["site.toml", "--out", name], directory.path()).0, Some(0));
        let folder = directory.path().join(name).join("nas-clients").join(folder);
        let tab = fs::read_to_string(folder.join("fstab.trunkline"));
        let tab = tab.expect("a table");
        let lines: Vec<Vec<&str>> =
            tab.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').collect()).collect();
        let routes: Vec<_> =
            lines.iter().map(|words| words[1].rsplit('/').next().unwrap_or_default()).collect();
        assert_eq!(routes, expected);
        for (words, route) in lines.iter().zip(routes) {
            let settings = client::Settings::from_options(words[0], words[3])
                .unwrap_or_else(|error| panic!("{route}: {error}: {words:?}"));
            let is_several = route.contains("-mp");
            let version = if route.ends_with("-v4") { Version::V4(Some(1)) } else { Version::V3 };
            assert_eq!(settings.version, version, "{route}");
            assert_eq!(settings.remotes.len(), if is_several { 4 } else { 1 }, "{route}");
            assert_eq!(settings.locals.len(), if is_several { locals } else { 0 }, "{route}");
            assert_eq!(
                (settings.nconnect, settings.rsize, settings.wsize),
                (32, 1 << 20, 1 << 20),
                "{route}"
            );
            assert_eq!(settings.uses_rdma(), route.starts_with("rdma"), "{route}");
            let port = if settings.uses_rdma() { 20049 } else { 2049 };
            let ports: Vec<_> =
                settings.remotes.iter().map(|remote| settings.address_of(remote).port()).collect();
            assert!(ports.iter().all(|found| *found == port), "{route}: {ports:?}");
            assert_eq!(settings.export, b"/ifs/data/bench", "{route}");
        }
    }
}
